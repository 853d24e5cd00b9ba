#include "autotune/trials.h"

#include <algorithm>

#include "autotune/candidate.h"
#include "autotune/exchange.h"
#include "relay_ir/cost.h"
#include "tensor_ir/interp.h"

namespace tw::autotune {
namespace {

constexpr double most_oracle_flops = 2e6;  // about a second of the oracle's
constexpr double least_gain = 0.01;        // that makes a candidate the incumbent

int count_spills(const CodegenReport& report) {
  int spills = 0;
  for (const InnerLoopReport& loop : report.inner_loops) spills += loop.vector_spills;
  return spills;
}

}  // namespace

Trials::Trials(Task task, const Target& target, const TuneOptions& options, std::vector<Record> earlier,
               std::filesystem::path folder)
    : task_(std::move(task)),
      target_(target),
      options_(options),
      folder_(std::move(folder)),
      space_(task_.func, target, options.seed) {
  for (const Record& record : earlier) note(record);
  fruitless_ = count_;
}

void Trials::note(const Record& record) {
  tried_.insert(record.decisions);
  ++count_, ++fruitless_;
  const bool is_faster = record.status == "ok" && record.ratio_high < 1 && record.ratio_to_default < 1 - least_gain;
  if (!is_faster || (best_ && best_->ratio_to_default <= record.ratio_to_default)) return;
  best_ = record;
  fruitless_ = 0;
}

Executable Trials::build(const Decisions& decisions, CodegenReport* report) const {
  const Schedule schedule = target_.decided_schedule(task_.func, target_, decisions);
  return build_candidate(task_.func, schedule, target_, buffers_[0], report);
}

void Trials::make_incumbent(const Executable& executable, double to_default) {
  incumbent_ = folder_ / (task_.key + ".incumbent.twa");
  executable.save(incumbent_);
  incumbent_to_default_ = to_default;
}

// The default by the oracle, where that takes no longer than a second or so.
std::string Trials::check_default(const std::vector<std::vector<NDArray>>& outputs) const {
  if (static_cast<double>(as_int(relay::flops_of(task_.func)).value_or(int64_t{1} << 60)) > most_oracle_flops)
    return "";
  InterpretOptions fast;
  fast.check_races = false;
  for (size_t set = 0; set < buffers_.size(); ++set) {
    std::vector<NDArray> arrays;
    for (const NDArray& array : buffers_[set]) arrays.push_back(array.clone());
    try {
      interpret(task_.func, arrays, fast);
    } catch (const Error& error) {
      return std::string("the oracle: ") + error.what();  // made-up numbers are none that it is for
    }
    const std::string difference = find_difference(outputs[set], outputs_among(task_.func, arrays));
    if (!difference.empty()) return "the default schedule's inputs " + std::to_string(set) + ", " + difference;
  }
  return "";
}

void Trials::prepare() {
  is_prepared_ = true;
  for (int set = 0; set < input_sets; ++set) buffers_.push_back(made_up_buffers(task_.func, set, options_.seed));
  CodegenReport report;
  const Executable by_default = build({}, &report);
  default_spills_ = count_spills(report);
  plan_ = by_default.plan();
  make_incumbent(by_default, 1);
  MeasureRequest request;
  request.candidate = request.incumbent = incumbent_;
  request.seconds = 0;
  request.plan = &plan_;
  request.program = options_.measure_program;
  request.threads = options_.compile.threads;
  request.is_cancelled = options_.is_cancelled;
  for (const auto& buffers : buffers_) request.inputs.push_back(inputs_among(task_.func, buffers));
  Measurement measured = options_.measure_candidate(request);
  if (measured.status != Status::ok) {
    problem_ = "with its default schedule: " + std::string(word_of(measured.status)) + ", " + measured.detail;
    return;
  }
  problem_ = check_default(measured.outputs);
  expected_ = std::move(measured.outputs);
  if (problem_.empty() && best_)
    make_incumbent(build(parse_decisions(best_->decisions), nullptr), best_->ratio_to_default);
}

Record Trials::try_point(const Point& point) {
  Record record;
  record.task = task_.key;
  record.space = space_version;
  record.decisions = to_text(point.decisions);
  record.trace = point.trace;
  record.predicted = point.cost;
  std::optional<Executable> candidate;
  CodegenReport report;
  try {
    candidate = build(point.decisions, &report);
  } catch (const Error& error) {
    record.status = word_of(Status::refused);
    record.detail = error.what();
    return record;
  }
  if (count_spills(report) > default_spills_) {
    record.status = word_of(Status::spill);
    record.detail = std::to_string(count_spills(report)) + " vectors in inner loops, " +
                    std::to_string(default_spills_) + " by default";
    return record;
  }
  MeasureRequest request;
  request.program = options_.measure_program;
  request.candidate = folder_ / "candidate.twa";
  request.incumbent = incumbent_;
  request.plan = &plan_;
  for (const auto& buffers : buffers_) request.inputs.push_back(inputs_among(task_.func, buffers));
  request.expected = expected_;
  request.threads = options_.compile.threads;
  request.is_cancelled = options_.is_cancelled;
  candidate->save(request.candidate);
  const Measurement measured = options_.measure_candidate(request);
  record.status = word_of(measured.status);
  record.detail = measured.detail;
  record.samples = measured.samples;
  if (measured.status != Status::ok) return record;
  const Ratio ratio = ratio_of(measured.samples);
  record.ratio = ratio.median, record.ratio_low = ratio.low, record.ratio_high = ratio.high;
  record.ratio_to_default = ratio.median * incumbent_to_default_;
  if (ratio.high < 1 && ratio.median < 1 - least_gain) make_incumbent(*candidate, record.ratio_to_default);
  return record;
}

std::optional<Record> Trials::next() {
  if (!is_prepared_) prepare();
  while (!is_done()) {
    const auto point = space_.next();
    if (!point) {
      is_exhausted_ = true;
      break;
    }
    if (point->decisions.empty() || tried_.count(to_text(point->decisions))) continue;
    return try_point(*point);
  }
  return std::nullopt;
}

}  // namespace tw::autotune
