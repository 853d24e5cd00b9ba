#include "autotune/measure/message.h"

#include <algorithm>
#include <cmath>

#include "runtime/artifact/bytes.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tw::autotune {
namespace {

constexpr uint32_t header_magic = 0x514d5754, answer_magic = 0x414d5754;  // "TWMQ", "TWMA"
constexpr uint32_t most_steps = 1 << 20;

void put_times(ByteWriter& writer, const std::vector<double>& times) {
  writer.put(static_cast<uint32_t>(times.size()));
  for (const double seconds : times) writer.put(seconds);
}

std::vector<double> get_times(ByteReader& reader, uint32_t most) {
  std::vector<double> times(reader.get_count(sizeof(double)));
  if (times.size() > most) reader.fail("too many times");
  for (double& seconds : times) {
    seconds = reader.get<double>();
    if (!std::isfinite(seconds) || seconds < 0) reader.fail("a time that is none");
  }
  return times;
}

}  // namespace

std::vector<std::byte> write_header(const RequestHeader& header) {
  ByteWriter writer;
  writer.put(header_magic);
  writer.put(message_version);
  writer.put(static_cast<int32_t>(header.threads));
  writer.put(header.seconds);
  writer.put(header.worst_ratio);
  writer.put(header.limit_seconds);
  writer.put(header.memory_bytes);
  writer.put(static_cast<uint8_t>(header.wants_profile));
  writer.put(static_cast<uint8_t>(header.wants_incumbent));
  return writer.bytes();
}

RequestHeader read_header(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, "request");
  if (reader.get<uint32_t>() != header_magic) reader.fail("it is none");
  if (reader.get<uint32_t>() != message_version) reader.fail("it is of another version");
  RequestHeader header;
  header.threads = reader.get<int32_t>();
  header.seconds = reader.get<double>();
  header.worst_ratio = reader.get<double>();
  header.limit_seconds = reader.get<double>();
  header.memory_bytes = reader.get<int64_t>();
  header.wants_profile = reader.get<uint8_t>() != 0;
  header.wants_incumbent = reader.get<uint8_t>() != 0;
  const bool is_sensible = header.threads >= 1 && header.threads <= 1024 && header.seconds >= 0 &&
                           header.seconds <= 3600 && header.worst_ratio > 0 && header.limit_seconds > 0 &&
                           header.limit_seconds <= 3600 && header.memory_bytes >= 0 &&
                           header.memory_bytes <= int64_t{1} << 40;
  if (!is_sensible || reader.remaining() > 0) reader.fail("its numbers are none of a job's");
  return header;
}

void keep_candidate_outputs(const ExchangeLayout& layout, std::vector<std::byte>& outputs) {
  if (outputs.empty()) return;
  std::vector<std::byte> kept;
  for (int set = 0; set < input_sets; ++set) {
    const auto from = outputs.begin() + 2 * set * layout.output_bytes;
    kept.insert(kept.end(), from, from + layout.output_bytes);
  }
  outputs = std::move(kept);
}

bool restore_outputs(const ExchangeLayout& layout, bool has_incumbent, std::vector<std::byte>& outputs) {
  const int64_t arrays = has_incumbent ? 2 : 1;
  if (static_cast<int64_t>(outputs.size()) != arrays * input_sets * layout.output_bytes) return false;
  if (has_incumbent) return true;
  std::vector<std::byte> all(static_cast<size_t>(layout.all_outputs()));
  for (int set = 0; set < input_sets; ++set) {
    const auto from = outputs.begin() + set * layout.output_bytes;
    std::copy(from, from + layout.output_bytes, all.begin() + 2 * set * layout.output_bytes);
  }
  outputs = std::move(all);
  return true;
}

std::vector<std::byte> write_answer(const Answer& answer) {
  ByteWriter writer;
  const ChildResult& result = answer.result;
  writer.put(answer_magic);
  writer.put(message_version);
  writer.put_text(answer.problem);
  writer.put(static_cast<uint8_t>(result.status));
  writer.put_text(result.detail);
  writer.put(static_cast<uint8_t>(result.filters_calls));
  std::vector<double> incumbent, candidate;
  for (const Sample& sample : result.samples) {
    incumbent.push_back(sample.incumbent);
    candidate.push_back(sample.candidate);
  }
  put_times(writer, incumbent);
  put_times(writer, candidate);
  put_times(writer, result.step_seconds);
  writer.put(static_cast<uint64_t>(result.outputs.size()));
  writer.put_bytes(result.outputs);
  writer.put(static_cast<uint64_t>(XXH3_64bits(writer.bytes().data(), writer.size())));
  return std::move(writer.bytes());
}

Answer read_answer(std::span<const std::byte> bytes) {
  ByteReader reader(bytes, "answer");
  if (bytes.size() < sizeof(uint64_t)) reader.fail("it is none");
  const auto covered = bytes.first(bytes.size() - sizeof(uint64_t));
  uint64_t checksum;
  std::memcpy(&checksum, bytes.data() + covered.size(), sizeof checksum);
  if (checksum != XXH3_64bits(covered.data(), covered.size())) reader.fail("its checksum differs");
  reader = ByteReader(covered, "answer");
  if (reader.get<uint32_t>() != answer_magic || reader.get<uint32_t>() != message_version) reader.fail("it is none");
  Answer answer;
  ChildResult& result = answer.result;
  answer.problem = reader.get_text();
  const auto status = reader.get<uint8_t>();
  if (status > static_cast<uint8_t>(Status::crash)) reader.fail("a status that no child has");
  result.status = static_cast<Status>(status);
  result.detail = reader.get_text().substr(0, 1000);
  result.filters_calls = reader.get<uint8_t>() != 0;
  const std::vector<double> incumbent = get_times(reader, most_rounds), candidate = get_times(reader, most_rounds);
  if (incumbent.size() != candidate.size()) reader.fail("samples without their others");
  for (size_t i = 0; i < incumbent.size(); ++i) {
    if (incumbent[i] == 0 || candidate[i] == 0) reader.fail("a time that is none");
    result.samples.push_back({incumbent[i], candidate[i]});
  }
  result.step_seconds = get_times(reader, most_steps);
  const auto outputs = reader.get<uint64_t>();
  if (outputs != reader.remaining()) reader.fail("outputs of another size");
  const auto raw = reader.get_bytes(reader.remaining());
  result.outputs.assign(raw.begin(), raw.end());
  return answer;
}

}  // namespace tw::autotune
