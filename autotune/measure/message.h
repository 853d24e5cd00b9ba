// What goes to a device and comes back, in bytes: nothing of it is a program's object, and every length is checked.
//
//   request  header | candidate.twa | incumbent.twa | inputs, as in the exchange
//   answer   status, times, outputs as in the exchange; ends with a checksum of all before it
//
// tw-measure --job takes a request as its standard input, behind the sizes of its parts, and writes the answer to its
// standard output.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "autotune/measure/exchange.h"
#include "autotune/measure/measurement.h"

namespace tw::autotune {

// One more whenever the meaning of a message or of the exchange changes.
inline constexpr uint32_t message_version = 1;
inline constexpr size_t request_parts = 4;
inline constexpr int64_t most_part_bytes = int64_t{4} << 30;

struct RequestHeader {
  int threads = 1;
  double seconds = 0, worst_ratio = 0, limit_seconds = 0;
  int64_t memory_bytes = 0;  // beside the model's own
  bool wants_profile = false;
  bool wants_incumbent = false;  // its outputs, too: there are no others to compare with
};

std::vector<std::byte> write_header(const RequestHeader& header);
// Error(artifact) for what is none, or asks for what nobody would.
RequestHeader read_header(std::span<const std::byte> bytes);

struct Answer {
  ChildResult result;
  std::string problem;  // not empty: the device could not do it
};

// Of outputs as in the exchange: the candidate's alone, and both again with nothing for the incumbent's.  False: they
// are not of the size that the layout says.
void keep_candidate_outputs(const ExchangeLayout& layout, std::vector<std::byte>& outputs);
bool restore_outputs(const ExchangeLayout& layout, bool has_incumbent, std::vector<std::byte>& outputs);

std::vector<std::byte> write_answer(const Answer& answer);
// Error(artifact) for what is none.
Answer read_answer(std::span<const std::byte> bytes);

}  // namespace tw::autotune
