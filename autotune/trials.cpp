#include "autotune/trials.h"

#include <algorithm>
#include <cmath>
#include <future>
#include <utility>

#include "autotune/measure/compile_child.h"
#include "autotune/measure/exchange.h"
#include "autotune/standalone.h"
#include "relay_ir/cost.h"
#include "runtime/team.h"
#include "tensor_ir/interp/interp.h"

namespace tw::autotune {
namespace {

constexpr double most_oracle_flops = 2e6;  // about a second of the oracle's
constexpr double least_gain = 0.01;        // that makes a candidate the incumbent
constexpr double trial_seconds = 0.12;     // of timing: finals are longer
// What gains less than this beside the incumbent, beyond doubt, is given up; in a final only what cannot be.
constexpr double worst_ratio = 1 - least_gain, worst_in_a_final = 3;
constexpr double final_within = 0.03;  // of the fastest: who takes part in the final
constexpr size_t most_finalists = 3;
constexpr double most_compile_seconds = 60;  // of one candidate
constexpr double most_seconds_on_gpu = 30;   // its driver takes some to start

int count_spills(const CodegenReport& report) {
  int spills = report.spilled_buffers;
  for (const InnerLoopReport& loop : report.inner_loops) spills += loop.vector_spills;
  return spills;
}

}  // namespace

bool is_faster(const Record& record) {
  return record.status == "ok" && record.ratio_high < 1 && record.ratio_to_default < 1 - least_gain;
}

void set_ratio(Record& record, const Measurement& measured, double incumbent_to_default) {
  record.status = word_of(measured.status);
  record.detail = measured.detail;
  record.samples = measured.samples;
  record.machine = measured.machine;
  const Ratio ratio = measured.status == Status::ok ? ratio_of(measured.samples) : Ratio{};
  record.ratio = ratio.median, record.ratio_low = ratio.low, record.ratio_high = ratio.high;
  record.ratio_to_default = ratio.median * incumbent_to_default;
}

Trials::Trials(Task task, const Target& target, const TuneOptions& options, std::vector<Record> earlier,
               std::filesystem::path folder, double bound)
    : task_(std::move(task)),
      target_(target),
      options_(options),
      folder_(std::move(folder)),
      space_(std::make_unique<Space>(task_.func, target)),
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
  if (!problem_.empty() || count_ >= options_.most_trials || (is_exhausted_ && !is_in_batch())) return 0;
  const TaskState state{task_.seconds, best_ ? best_->ratio_to_default : 1, bound_, search_->predicted_gain(),
                        search_->fruitless()};
  return std::max(expected_gain(state), 1e-12);
}

Executable Trials::build(const Decisions& decisions, CodegenReport* report) const {
  const Schedule schedule = target_.decided_schedule(task_.func, target_, decisions);
  return build_standalone(task_.func, schedule, target_, buffers_[0], report);
}

void Trials::build(Built& candidate, const std::function<bool()>& is_cancelled) const {
  Record& record = candidate.record;
  record.task = task_.key;
  record.space = space_version;
  record.decisions = to_text(candidate.point.decisions);
  record.trace = candidate.point.trace;
  record.predicted = candidate.point.predicted;
  candidate.is_built = true;
  const std::filesystem::path file = new_file();
  const CompiledInChild compiled = compile_in_child(
      [&] {
        if (options_.on_compile) options_.on_compile(candidate.point.decisions);
        CodegenReport report;
        build_standalone(task_.func, *candidate.schedule, target_, buffers_[0], &report).save(file);
        return count_spills(report);
      },
      most_compile_seconds, is_cancelled);
  if (!compiled.problem.empty()) {
    record.status = word_of(Status::refused);
    record.detail = compiled.problem;
  } else if (compiled.value > default_spills_ + default_spills_ / 2) {
    // Transforms of many vectors spill in any schedule: some more may still be faster.
    record.status = word_of(Status::spill);
    record.detail =
        std::to_string(compiled.value) + " vectors in inner loops, " + std::to_string(default_spills_) + " by default";
    std::filesystem::remove(file);
  } else {
    candidate.file = file;
  }
}

// The first of the batch, as many as are measured next and, on the other cores, those behind them: nothing else runs
// while one is measured.
void Trials::build_ahead() {
  const auto jobs = static_cast<size_t>(options_.compile.jobs > 0 ? options_.compile.jobs : default_team_size());
  const size_t needed = std::min(batch_.size(), static_cast<size_t>(measured_at_once(options_)));
  if (std::all_of(batch_.begin(), batch_.begin() + static_cast<std::ptrdiff_t>(needed),
                  [](const Built& candidate) { return candidate.is_built; }))
    return;
  const size_t count = std::min(batch_.size(), std::max(needed, jobs));
  // Templates run here and now: one of a user's own is no code for a copy of this process, and no copy is made while
  // they run.
  for (size_t i = 0; i < count; ++i) {
    Built& candidate = batch_[i];
    if (!candidate.is_built && !candidate.schedule)
      candidate.schedule = target_.decided_schedule(task_.func, target_, candidate.point.decisions);
  }
  for (size_t first = 0; first < count; first += jobs) {
    std::vector<std::future<void>> others;
    for (size_t i = first + 1; i < std::min(first + jobs, count); ++i)
      if (!batch_[i].is_built) others.push_back(std::async(std::launch::async, [this, i] { build(batch_[i], {}); }));
    if (!batch_[first].is_built) build(batch_[first], options_.is_cancelled);
    for (auto& other : others) other.get();
  }
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
    const std::string difference = find_difference(outputs[set], outputs_among(task_.func, arrays), padding_);
    if (!difference.empty()) return "the default schedule's inputs " + std::to_string(set) + ", " + difference;
  }
  return "";
}

MeasureRequest Trials::request_for(const std::filesystem::path& candidate,
                                   const std::filesystem::path& incumbent) const {
  MeasureRequest request;
  request.program = options_.measure_program;
  request.candidate = candidate;
  request.incumbent = incumbent;
  request.plan = &plan_;
  for (const auto& buffers : buffers_) request.inputs.push_back(inputs_among(task_.func, buffers));
  request.expected = expected_;
  request.padding = padding_;
  request.threads = options_.compile.threads;
  request.seconds = trial_seconds;
  request.worst_ratio = worst_ratio;
  if (target_.compute_capability > 0) request.limit_seconds = most_seconds_on_gpu;
  request.is_cancelled = options_.is_cancelled;
  return request;
}

// Whether the task can be measured.
bool Trials::prepare() {
  if (is_prepared_) return problem_.empty();
  is_prepared_ = true;
  buffers_ = made_up_buffers(task_.func, options_.seed);
  CodegenReport report;
  const Executable by_default = build({}, &report);
  default_spills_ = count_spills(report);
  plan_ = by_default.plan();
  default_ = new_file();
  by_default.save(default_);
  incumbent_ = default_;
  MeasureRequest request = request_for(default_, default_);
  request.seconds = 0;
  Measurement measured = measure_one(options_, request);
  if (measured.status != Status::ok) {
    problem_ = "with its default schedule: " + std::string(word_of(measured.status)) + ", " + measured.detail;
    return false;
  }
  padding_ = std::move(measured.padding);
  problem_ = check_default(measured.outputs);
  expected_ = std::move(measured.outputs);
  if (problem_.empty() && best_) {
    incumbent_ = new_file();
    build(parse_decisions(best_->decisions), nullptr).save(incumbent_);
    incumbent_to_default_ = best_->ratio_to_default;
  }
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

// The next of the batch, as many as there are places to measure at.
void Trials::measure_some() {
  build_ahead();
  std::vector<Built> candidates;
  std::vector<MeasureRequest> requests;
  while (!batch_.empty() && requests.size() < static_cast<size_t>(measured_at_once(options_)) && batch_[0].is_built) {
    if (batch_[0].file.empty()) {
      ready_.push_back(std::move(batch_[0].record));
    } else {
      requests.push_back(request_for(batch_[0].file, incumbent_));
      candidates.push_back(std::move(batch_[0]));
    }
    batch_.pop_front();
  }
  const double to_default = incumbent_to_default_;
  const auto is_promising = [&](const Record& record) {
    return is_faster(record) && record.ratio_to_default < incumbent_to_default_;
  };
  const auto finish = [&](Built& candidate) {
    if (incumbent_ != candidate.file) std::filesystem::remove(candidate.file);
    ready_.push_back(std::move(candidate.record));
  };
  try {
    std::vector<Built*> promising;
    measure_all(options_, requests, [&](size_t i, const Measurement& measured) {
      set_ratio(candidates[i].record, measured, to_default);
      if (is_promising(candidates[i].record)) {
        promising.push_back(&candidates[i]);
      } else {
        finish(candidates[i]);
      }
    });
    // Whoever is chosen for a measurement had luck in it, and all that is measured beside an incumbent would inherit
    // its luck, from one to the next.  A second measurement, which nobody was chosen for, beside the default has none.
    requests.clear();
    for (const Built* candidate : promising) requests.push_back(request_for(candidate->file, default_));
    measure_all(options_, requests, [&](size_t i, const Measurement& measured) {
      Built& candidate = *promising[i];
      set_ratio(candidate.record, measured, 1);
      if (is_promising(candidate.record)) {
        if (incumbent_ != default_) std::filesystem::remove(incumbent_);
        incumbent_ = candidate.file;
        incumbent_to_default_ = candidate.record.ratio_to_default;
      }
      finish(candidate);
    });
  } catch (const Error&) {
    if (ready_.empty()) throw;
    lost_ = std::current_exception();
  }
}

std::optional<Record> Trials::next() {
  if (ready_.empty() && lost_) std::rethrow_exception(std::exchange(lost_, nullptr));
  if (batch_.empty() && ready_.empty()) return std::nullopt;
  if (!prepare()) {
    batch_.clear();
    return std::nullopt;
  }
  if (ready_.empty()) measure_some();
  Record record = std::move(ready_.front());
  ready_.pop_front();
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
  const std::filesystem::path file = new_file();
  build(parse_decisions(record.decisions), nullptr).save(file);
  MeasureRequest request = request_for(file, default_);
  request.seconds = seconds;
  request.worst_ratio = worst_in_a_final;
  set_ratio(record, measure_one(options_, request), 1);
  std::filesystem::remove(file);
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
