#include "autotune/tune.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "autotune/candidate.h"
#include "autotune/space.h"
#include "autotune/task.h"
#include "autotune/trials.h"
#include "autotune/tuned_source.h"
#include "runtime/cpu_features.h"
#include "runtime/machine.h"
#include "runtime/team.h"
#include "tensor_ir/printer.h"

namespace tw::autotune {
namespace {

using nlohmann::json;

// Of the budget, for compiling the tuned network and measuring it beside the untuned one.
constexpr double share_for_confirmation = 0.2, most_for_confirmation = 30;
constexpr double confirmation_seconds = 2;
constexpr int profile_repetitions = 5;
constexpr double least_budget_for_bounds = 10;  // the machine's bounds take half a second to measure

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int64_t unix_time() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// The job's own, removed with all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tilewright-tune-XXXXXX").string();
    if (!mkdtemp(pattern.data()))
      throw Error(ErrorCode::file, pattern + " cannot be made\n  help: TMPDIR names a directory that can be written");
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

class Job {
 public:
  Job(const relay::Graph& graph, const Target& target, Database& database, const TuneOptions& options)
      : graph_(graph), target_(target), database_(database), options_(options) {
    const MachineRequirements requirements{target.architecture, target.name, target.features};
    const std::string reason =
        target.kind == TargetKind::cuda ? "GPUs are not tuned for yet" : reason_not_runnable(requirements);
    if (!reason.empty()) {
      throw Error(ErrorCode::target, "`" + target.name + "` cannot be tuned for here: " + reason +
                                         "\n  help: run the job on such a machine, and `tw db merge` its records");
    }
    if (!options_.now) options_.now = seconds_now;
    if (!options_.measure_candidate) options_.measure_candidate = measure;
    if (options_.compile.threads == 0) options_.compile.threads = default_team_size();
    if (!options_.measure_bounds) {
      options_.measure_bounds = [threads = options_.compile.threads] {
        return TuneOptions::Bounds{measure_peak_flops(threads), measure_read_bandwidth(threads)};
      };
    }
  }

  TuneReport run() {
    start_ = options_.now();
    relay::CompileReport compiled;
    Executable untuned = compile({}, &compiled);
    const std::vector<NDArray> inputs = made_up_inputs(untuned.plan(), options_.seed);
    const auto profile = untuned.profile(inputs, profile_repetitions);
    for (const StepProfile& step : profile) report_.default_seconds += step.seconds;
    target_key_ = target_key(target_, options_.compile.threads);
    database_.add_target(target_key_, target_facts(target_, options_.compile.threads));
    model_ = model_key(compiled.pieces);
    if (!options_.compare_networks) {
      options_.compare_networks = [inputs](Executable& with, Executable& without) {
        return autotune::compare_networks(with, without, inputs, confirmation_seconds);
      };
    }
    find_trials(compiled, profile);
    add_job();
    search();
    confirm(untuned, inputs);
    finish();
    return report_;
  }

 private:
  double elapsed() const { return options_.now() - start_; }
  void send(json event) const {
    if (!options_.on_event) return;
    event["seconds"] = elapsed();
    options_.on_event(event.dump(-1, ' ', false, json::error_handler_t::replace));
  }
  bool is_stopping() {
    if (options_.is_stopping && options_.is_stopping()) report_.was_stopped = true;
    return report_.was_stopped;
  }

  Executable compile(const std::vector<Record>& records, relay::CompileReport* compiled = nullptr) const {
    relay::CompileOptions options = options_.compile;
    options.schedule = TunedSchedules(records).source();
    return relay::compile(graph_, target_, options, compiled);
  }

  void find_trials(const relay::CompileReport& compiled, const std::vector<StepProfile>& profile) {
    int64_t earlier_trials = 0;
    for (Task& task : find_tasks(compiled.pieces, profile, target_)) {
      auto earlier = database_.records(target_key_, task.key, space_version, compiler_key());
      earlier_trials += static_cast<int64_t>(earlier.size());
      database_.add_task(task.key, to_text(task.func));
      trials_.push_back(
          std::make_unique<Trials>(std::move(task), target_, options_, std::move(earlier), folder_.path()));
    }
    report_.tasks = static_cast<int>(trials_.size());
    send({{"event", "start"},
          {"tasks", report_.tasks},
          {"budget", options_.budget_seconds},
          {"earlier_trials", earlier_trials},
          {"milliseconds", report_.default_seconds * 1e3},
          {"target", target_.name},
          {"threads", options_.compile.threads}});
  }

  void add_job() const {
    JobRow job;
    job.model = model_, job.name = graph_.name, job.target = target_key_;
    job.space = space_version, job.compiler = compiler_key();
    job.seconds = report_.default_seconds;
    for (const auto& trials : trials_) {
      const Task& task = trials->task();
      job.tasks.push_back({task.key, task.name, task.groups, task.seconds, task.flops, task.bytes});
    }
    if (options_.budget_seconds >= least_budget_for_bounds) {
      const TuneOptions::Bounds bounds = options_.measure_bounds();
      job.peak_flops = bounds.peak_flops, job.bandwidth = bounds.bandwidth;
    }
    job.machine = host_cpu().name;
    job.budget = options_.budget_seconds, job.seed = static_cast<int64_t>(options_.seed), job.started_at = unix_time();
    database_.add(job);
  }

  // Candidate by candidate, of the task that promises most.
  void search() {
    const double reserve = std::min(share_for_confirmation * options_.budget_seconds, most_for_confirmation);
    // At least one, so that jobs of any budget come to an end some day.
    while ((report_.trials == 0 || elapsed() < options_.budget_seconds - reserve) && !is_stopping()) {
      const auto next = std::max_element(trials_.begin(), trials_.end(),
                                         [](const auto& a, const auto& b) { return a->promise() < b->promise(); });
      if (next == trials_.end() || (*next)->is_done()) break;
      Trials& trials = **next;
      auto record = trials.next();
      if (!record) {
        if (!trials.problem().empty()) {
          report_.skipped.push_back(trials.task().name + ": " + trials.problem());
          send({{"event", "skipped"}, {"task", trials.task().name}, {"reason", trials.problem()}});
        }
        continue;
      }
      record->target = target_key_;
      record->compiler = compiler_key();
      record->machine = host_cpu().name;
      record->measured_at = unix_time();
      record->digest = database_.add(*record);
      trials.note(*record);
      ++report_.trials;
      ++report_.by_status[record->status];
      send({{"event", "trial"},
            {"task", trials.task().name},
            {"key", trials.task().key},
            {"share", trials.task().seconds / std::max(report_.default_seconds, 1e-12)},
            {"trial", trials.count()},
            {"decisions", record->decisions},
            {"status", record->status},
            {"detail", record->detail},
            {"ratio", record->ratio},
            {"ratio_to_default", record->ratio_to_default},
            {"best", trials.best() ? trials.best()->ratio_to_default : 1.0},
            {"predicted_milliseconds", predicted_seconds() * 1e3}});
    }
  }

  // Of the network, if every task's time changes in it as it did alone.
  double predicted_seconds() const {
    double seconds = report_.default_seconds;
    for (const auto& trials : trials_)
      if (trials->best()) seconds -= trials->task().seconds * (1 - trials->best()->ratio_to_default);
    return seconds;
  }

  // The network with the fastest records beside the one without.  Where it is not faster, the half that promises less
  // is left out, until it is.
  void confirm(Executable& untuned, const std::vector<NDArray>& inputs) {
    std::vector<Record> proposed;
    std::map<std::string, double> gain;  // seconds of a run, by task
    for (const auto& trials : trials_) {
      if (!trials->best()) continue;
      proposed.push_back(*trials->best());
      gain[trials->task().key] = trials->task().seconds * (1 - trials->best()->ratio_to_default);
    }
    std::stable_sort(proposed.begin(), proposed.end(),
                     [&](const Record& a, const Record& b) { return gain[a.task] > gain[b.task]; });
    const std::vector<NDArray> expected = untuned.run(inputs);
    while (!proposed.empty()) {
      Executable tuned = compile(proposed);
      const std::string difference = find_network_difference(tuned.run(inputs), expected);
      const Ratio ratio = difference.empty() ? options_.compare_networks(tuned, untuned) : Ratio{};
      const bool is_adopted = difference.empty() && ratio.median <= 1;
      send({{"event", "confirmation"},
            {"records", proposed.size()},
            {"ratio", ratio.median},
            {"ratio_low", ratio.low},
            {"ratio_high", ratio.high},
            {"adopted", is_adopted},
            {"detail", difference}});
      const size_t half = proposed.size() / 2;
      if (is_adopted) {
        for (const Record& record : proposed) database_.add({record.digest, model_, ratio.median, 1, unix_time()});
        report_.adopted = static_cast<int>(proposed.size());
        report_.ratio = ratio.median;
        return;
      }
      // Slower beyond doubt: what is left out now speaks against itself.
      for (size_t i = half; i < proposed.size() && (!difference.empty() || ratio.low > 1); ++i)
        database_.add({proposed[i].digest, model_, ratio.median, -1, unix_time()});
      proposed.resize(half);
    }
  }

  void finish() const {
    send({{"event", "end"},
          {"tasks", report_.tasks},
          {"trials", report_.trials},
          {"by_status", report_.by_status},
          {"adopted", report_.adopted},
          {"ratio", report_.ratio},
          {"before_milliseconds", report_.default_seconds * 1e3},
          {"after_milliseconds", report_.default_seconds * report_.ratio * 1e3},
          {"was_stopped", report_.was_stopped}});
  }

  const relay::Graph& graph_;
  const Target& target_;
  Database& database_;
  TuneOptions options_;
  TemporaryFolder folder_;
  TuneReport report_;
  double start_ = 0;
  std::string target_key_, model_;
  std::vector<std::unique_ptr<Trials>> trials_;
};

}  // namespace

std::vector<NDArray> made_up_inputs(const Plan& plan, uint64_t seed) {
  std::vector<NDArray> inputs;
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  for (const TensorInfo& tensor : plan.inputs) {
    NDArray array(tensor.dtype, tensor.shape);
    std::memset(array.data(), tensor.dtype.is_bool() ? 1 : 0, array.byte_size());
    for (int64_t i = 0; tensor.dtype.is_float() && i < array.size(); ++i) array.set_float(i, normal(random));
    inputs.push_back(std::move(array));
  }
  return inputs;
}

Ratio compare_networks(Executable& with, Executable& without, const std::vector<NDArray>& inputs, double seconds) {
  std::vector<NDArray> outputs = with.run(inputs);
  without.run_into(inputs, outputs);
  const auto time = [&](Executable& executable) {
    const double start = seconds_now();
    executable.run_into(inputs, outputs);
    return seconds_now() - start;
  };
  std::vector<Sample> samples;
  for (const double start = seconds_now(); samples.size() < 10 || seconds_now() - start < seconds;) {
    Sample sample;
    if (samples.size() % 2) {
      sample.candidate = time(with), sample.incumbent = time(without);
    } else {
      sample.incumbent = time(without), sample.candidate = time(with);
    }
    samples.push_back(sample);
  }
  return ratio_of(samples);
}

TuneReport tune(const relay::Graph& graph, const Target& target, Database& database, const TuneOptions& options) {
  return Job(graph, target, database, options).run();
}

}  // namespace tw::autotune
