#include "autotune/trials.h"

#include <algorithm>
#include <cmath>
#include <future>

#include "autotune/candidate.h"
#include "autotune/exchange.h"
#include "relay_ir/cost.h"
#include "runtime/team.h"
#include "tensor_ir/interp.h"

namespace tw::autotune {
namespace {

constexpr double most_oracle_flops = 2e6;  // about a second of the oracle's
constexpr double least_gain = 0.01;        // that makes a candidate the incumbent
constexpr double trial_seconds = 0.12;     // of timing: finals are longer
constexpr double worst_ratio = 1.15;       // slower ones are given up after some rounds
constexpr double worst_in_a_final = 3;     // only what cannot be
constexpr double final_within = 0.03;      // of the fastest: who takes part in the final
constexpr size_t most_finalists = 3;

int count_spills(const CodegenReport& report) {
  int spills = 0;
  for (const InnerLoopReport& loop : report.inner_loops) spills += loop.vector_spills;
  return spills;
}

bool is_faster(const Record& record) {
  return record.status == "ok" && record.ratio_high < 1 && record.ratio_to_default < 1 - least_gain;
}

void set_ratio(Record& record, const Measurement& measured, double incumbent_to_default) {
  record.status = word_of(measured.status);
  record.detail = measured.detail;
  record.samples = measured.samples;
  if (measured.status != Status::ok) return;
  const Ratio ratio = ratio_of(measured.samples);
  record.ratio = ratio.median, record.ratio_low = ratio.low, record.ratio_high = ratio.high;
  record.ratio_to_default = ratio.median * incumbent_to_default;
}

}  // namespace

Trials::Trials(Task task, const Target& target, const TuneOptions& options, std::vector<Record> earlier,
               std::filesystem::path folder, double bound)
    : task_(std::move(task)),
      target_(target),
      options_(options),
      folder_(std::move(folder)),
      space_(std::make_unique<Space>(task_.func, target, options.seed)),
      search_(std::make_unique<Search>(*space_, target, options.seed, options.strategy)),
      bound_(bound) {
  for (const Record& record : earlier) note(record);
}

void Trials::note(const Record& record) {
  if (record.detail == final_detail) {
    finals_[record.decisions] = record;
    return;
  }
  ++count_;
  const bool has_time = record.status == "ok" && record.ratio_to_default > 0;
  search_->note(parse_decisions(record.decisions),
                has_time ? std::optional(std::log(record.ratio_to_default)) : std::nullopt);
  if (has_time) tried_[record.decisions] = record;
  if (is_faster(record) && (!best_ || record.ratio_to_default < best_->ratio_to_default)) best_ = record;
}

double Trials::promise() const {
  if (!problem_.empty() || count_ >= options_.most_trials || (is_exhausted_ && batch_.empty())) return 0;
  const TaskState state{task_.seconds, best_ ? best_->ratio_to_default : 1, bound_, search_->predicted_gain(),
                        search_->fruitless()};
  // The peak is measured low on a busy machine: a few trials there are in any case.
  if (count_ >= seed_trials && is_at_bound(state)) return 0;
  return std::max(expected_gain(state), 1e-12);
}

Executable Trials::build(const Decisions& decisions, CodegenReport* report) const {
  const Schedule schedule = target_.decided_schedule(task_.func, target_, decisions);
  return build_candidate(task_.func, schedule, target_, buffers_[0], report);
}

void Trials::build(Built& candidate) const {
  Record& record = candidate.record;
  record.task = task_.key;
  record.space = space_version;
  record.decisions = to_text(candidate.point.decisions);
  record.trace = candidate.point.trace;
  record.predicted = candidate.point.predicted;
  candidate.is_built = true;
  CodegenReport report;
  try {
    candidate.executable = build(candidate.point.decisions, &report);
  } catch (const Error& error) {
    record.status = word_of(Status::refused);
    record.detail = error.what();
    return;
  }
  // Transforms of many vectors spill in any schedule: some more may still be faster.
  if (const int spills = count_spills(report); spills > default_spills_ + default_spills_ / 2) {
    record.status = word_of(Status::spill);
    record.detail =
        std::to_string(spills) + " vectors in inner loops, " + std::to_string(default_spills_) + " by default";
    candidate.executable.reset();
  }
}

// The first of the batch and, on the other cores, those behind it: nothing else runs while one is measured.
void Trials::build_ahead() {
  const int jobs = options_.compile.jobs > 0 ? options_.compile.jobs : default_team_size();
  std::vector<std::future<void>> others;
  for (size_t i = 1; i < std::min(batch_.size(), static_cast<size_t>(jobs)); ++i)
    others.push_back(std::async(std::launch::async, [this, i] { build(batch_[i]); }));
  build(batch_[0]);
  for (auto& other : others) other.get();
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

MeasureRequest Trials::request_for(const Executable& candidate, const std::filesystem::path& incumbent) const {
  MeasureRequest request;
  request.program = options_.measure_program;
  request.candidate = folder_ / "candidate.twa";
  candidate.save(request.candidate);
  request.incumbent = incumbent;
  request.plan = &plan_;
  for (const auto& buffers : buffers_) request.inputs.push_back(inputs_among(task_.func, buffers));
  request.expected = expected_;
  request.threads = options_.compile.threads;
  request.seconds = trial_seconds;
  request.worst_ratio = worst_ratio;
  request.is_cancelled = options_.is_cancelled;
  return request;
}

// Whether the task can be measured.
bool Trials::prepare() {
  if (is_prepared_) return problem_.empty();
  is_prepared_ = true;
  for (int set = 0; set < input_sets; ++set) buffers_.push_back(made_up_buffers(task_.func, set, options_.seed));
  CodegenReport report;
  const Executable by_default = build({}, &report);
  default_spills_ = count_spills(report);
  plan_ = by_default.plan();
  default_ = folder_ / (task_.key + ".default.twa");
  by_default.save(default_);
  incumbent_ = default_;
  MeasureRequest request = request_for(by_default, default_);
  request.seconds = 0;
  Measurement measured = options_.measure_candidate(request);
  if (measured.status != Status::ok) {
    problem_ = "with its default schedule: " + std::string(word_of(measured.status)) + ", " + measured.detail;
    return false;
  }
  problem_ = check_default(measured.outputs);
  expected_ = std::move(measured.outputs);
  if (problem_.empty() && best_)
    make_incumbent(build(parse_decisions(best_->decisions), nullptr), best_->ratio_to_default);
  return problem_.empty();
}

bool Trials::begin_batch(const CostModel& model) {
  const int left = options_.most_trials - count_;
  for (Point& point : search_->next_batch(model, static_cast<size_t>(std::max(left, 0)))) {
    batch_.emplace_back();
    batch_.back().point = std::move(point);
  }
  is_exhausted_ = batch_.empty();
  return !batch_.empty();
}

std::optional<Record> Trials::next() {
  if (batch_.empty()) return std::nullopt;
  if (!prepare()) {
    batch_.clear();
    return std::nullopt;
  }
  if (!batch_[0].is_built) build_ahead();
  Built candidate = std::move(batch_.front());
  batch_.pop_front();
  Record& record = candidate.record;
  if (!candidate.executable) return record;
  set_ratio(record, options_.measure_candidate(request_for(*candidate.executable, incumbent_)), incumbent_to_default_);
  if (is_faster(record)) make_incumbent(*candidate.executable, record.ratio_to_default);
  return record;
}

std::vector<const Record*> Trials::finalists() const {
  std::vector<const Record*> list;
  if (!best_ || !problem_.empty()) return list;
  for (const auto& [decisions, record] : tried_)
    if (record.ratio_to_default < (1 + final_within) * best_->ratio_to_default) list.push_back(&record);
  std::stable_sort(list.begin(), list.end(),
                   [](const Record* a, const Record* b) { return a->ratio_to_default < b->ratio_to_default; });
  list.resize(std::min(list.size(), most_finalists));
  std::erase_if(list, [&](const Record* record) { return finals_.count(record->decisions) > 0; });
  return list;
}

std::optional<Record> Trials::next_final(double seconds) {
  const auto list = finalists();
  if (list.empty() || !prepare()) return std::nullopt;
  Record record;
  record.task = task_.key, record.space = space_version;
  record.decisions = list[0]->decisions, record.trace = list[0]->trace, record.predicted = list[0]->predicted;
  MeasureRequest request = request_for(build(parse_decisions(record.decisions), nullptr), default_);
  request.seconds = seconds;
  request.worst_ratio = worst_in_a_final;
  set_ratio(record, options_.measure_candidate(request), 1);
  record.detail = final_detail;
  return record;
}

std::optional<Record> Trials::proposal() const {
  const Record* winner = nullptr;
  for (const auto& [decisions, record] : finals_)
    if (is_faster(record) && (!winner || record.ratio_to_default < winner->ratio_to_default)) winner = &record;
  return winner ? std::optional(*winner) : std::nullopt;
}

}  // namespace tw::autotune
