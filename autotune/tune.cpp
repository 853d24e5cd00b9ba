#include "autotune/tune.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "autotune/clock.h"
#include "autotune/confirm.h"
#include "autotune/database/tuned_source.h"
#include "autotune/fleet/fleet.h"
#include "autotune/fleet/network.h"
#include "autotune/graph_decisions.h"
#include "autotune/search/learner.h"
#include "autotune/search/space.h"
#include "autotune/standalone.h"
#include "autotune/task.h"
#include "autotune/trials.h"
#include "runtime/machine/cpu_features.h"
#include "runtime/machine/machine.h"
#include "runtime/team.h"
#include "targets/machine_target.h"
#include "tensor_ir/text/printer.h"

namespace tw::autotune {
namespace {

using nlohmann::json;

// Of the budget: for the finals at most, and for runs of the network in one round of the confirmation.
constexpr double share_for_finals = 0.25, share_for_runs = 0.03;
constexpr double share_for_decisions = 0.25;  // of the network, their confirmation included
constexpr double least_runs_seconds = 0.3, most_runs_seconds = 3;
constexpr double least_final_seconds = 0.15, most_final_seconds = 0.5;
constexpr double finals_when_stopped = 5;  // seconds, after Ctrl-C
constexpr int profile_repetitions = 5;
constexpr int profiles_of_a_fleet = 4;          // of each network: a request each
constexpr int least_networks = 3;               // of each kind, to compare them
constexpr double least_budget_for_bounds = 10;  // the machine's bounds take half a second to measure

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
    machine_.cpu = host_cpu();
    if (is_for_gpu()) machine_.gpu = this_gpu();
    if (options.fleet) machine_ = options.fleet->facts();
    const std::string reason = reason_not_runnable(target, machine_);
    if (!reason.empty()) {
      throw Error(ErrorCode::target, "`" + target.name + "` cannot be tuned for " +
                                         (options.fleet ? "on these devices: " : "here: ") + reason +
                                         "\n  help: name devices that are such machines: --device tcp://HOST:PORT");
    }
    if (!options_.now) options_.now = seconds_now;
    if (!options_.measure_candidate) options_.measure_candidate = measure;
    if (options_.fleet) measure_on(*options_.fleet);
    if (options_.compile.threads == 0) options_.compile.threads = default_team_size();
    if (!options_.measure_bounds && is_for_gpu()) options_.measure_bounds = [] { return TuneOptions::Bounds{}; };
    if (!options_.measure_bounds) {
      options_.measure_bounds = [threads = options_.compile.threads] {
        return TuneOptions::Bounds{measure_peak_flops(threads), measure_read_bandwidth(threads)};
      };
    }
  }

  TuneReport run() {
    start_ = options_.now();
    relay::CompileReport compiled;
    Executable network = compile({}, &compiled);  // by analysis, then with the choices that were adopted
    compile_seconds_ = elapsed();
    inputs_ = made_up_inputs(network.plan(), options_.seed);
    std::vector<StepProfile> profile = this->profile(network);
    report_.default_seconds = seconds_;
    target_key_ = target_key(target_, options_.compile.threads);
    database_.add_target(target_key_, target_facts(target_, options_.compile.threads));
    model_ = model_key(compiled.pieces);
    find_decisions(compiled, profile);
    if (choose(network, compiled)) {
      compiled = {};
      network = compile({}, &compiled);
      profile = this->profile(network);
    }
    is_chosen_ = true;
    find_trials(compiled, profile);
    search();
    finals();
    confirm_proposals(network, compiled);
    finish();
    return report_;
  }

 private:
  // The network runs there, too.
  void measure_on(Fleet& fleet) {
    if (options_.compile.threads == 0) options_.compile.threads = fleet.facts().threads;
    network_.emplace(fleet, options_, folder_.path());
    options_.measure_bounds = [] { return TuneOptions::Bounds{}; };
    options_.profile = [this](Executable& untuned) { return network_->profile(untuned, inputs_); };
    options_.compare_networks = [this](Executable& with, Executable&) {
      return network_->compare(with, runs_seconds());
    };
    options_.time_steps = [this](Executable& executable) { return network_->time_steps(executable); };
    options_.find_difference = [this](Executable& tuned) { return network_->find_difference(tuned); };
  }
  double elapsed() const { return options_.now() - start_; }
  bool is_for_gpu() const { return target_.compute_capability > 0; }
  std::string machine_name() const { return is_for_gpu() ? machine_.gpu.name : machine_.cpu.name; }
  void send(json event) const {
    if (!options_.on_event) return;
    event["seconds"] = elapsed();
    options_.on_event(event.dump(-1, ' ', false, json::error_handler_t::replace));
  }
  bool is_stopping() {
    if (options_.is_stopping && options_.is_stopping()) report_.was_stopped = true;
    return report_.was_stopped;
  }

  // With the choices of the network that were adopted, and these records.
  Executable compile(std::vector<Record> records, relay::CompileReport* compiled = nullptr) const {
    records.insert(records.end(), adopted_decisions_.begin(), adopted_decisions_.end());
    const TunedSchedules tuned(std::move(records));
    relay::CompileOptions options = options_.compile;
    options.schedule = tuned.source();
    options.decide = tuned.decisions();
    return relay::compile(graph_, target_, options, compiled);
  }

  std::vector<StepProfile> profile(Executable& network) {
    const double start = elapsed();
    auto profile = options_.profile ? options_.profile(network) : network.profile(inputs_, profile_repetitions);
    profile_seconds_ = elapsed() - start;
    seconds_ = 0;
    for (const StepProfile& step : profile) seconds_ += step.seconds;
    return profile;
  }

  // With the same random numbers in every network.
  std::vector<NDArray> first_run(Executable& network) const {
    network.set_seed(0);
    return network.run(inputs_);
  }

  // From what the network by analysis computes.
  std::string find_difference(Executable& network) {
    if (options_.find_difference) return options_.find_difference(network);
    return find_network_difference(first_run(network), expected_);
  }

  void find_decisions(const relay::CompileReport& compiled, const std::vector<StepProfile>& profile) {
    decisions_.emplace(compiled.decisions, profile);
    for (const Task& task : decisions_->tasks()) {
      database_.add_task(task.key, to_text(task.func));
      for (const Record& record : database_.records(target_key_, task.key, space_version, compiler_key()))
        decisions_->note(record);
    }
    earlier_decided_ = decisions_->count();
    send({{"event", "start"},
          {"budget", options_.budget_seconds},
          {"milliseconds", report_.default_seconds * 1e3},
          {"open_choices", decisions_->tasks().size()},
          {"target", target_.name},
          {"threads", options_.compile.threads}});
  }

  // Tries what passes of the graph leave open, and adopts what makes the network faster.  Whether anything does.
  bool choose(Executable& by_analysis, const relay::CompileReport& compiled) {
    if (!options_.choices) return false;
    const auto variants = decisions_->variants();
    if (variants.empty() && decisions_->proposals().empty()) return false;
    const double seconds = share_for_decisions * options_.budget_seconds, until = elapsed() + seconds;
    const double comparison_seconds = network_ ? 2 * profiles_of_a_fleet * profile_seconds_ : runs_seconds();
    const double needed =
        static_cast<double>(variants.size()) * (compile_seconds_ + comparison_seconds) + round_seconds();
    if (needed > seconds) {
      send({{"event", "choices_skipped"},
            {"open_choices", decisions_->tasks().size()},
            {"reason", "the budget is too short; " +
                           std::to_string(static_cast<int64_t>(std::ceil(needed / share_for_decisions))) +
                           " s would be enough"}});
      return false;
    }
    expected_ = options_.find_difference ? std::vector<NDArray>() : first_run(by_analysis);
    for (const std::vector<Record>& variant : variants)
      if (elapsed() < until && !is_stopping()) try_variant(variant, by_analysis, compiled);
    const auto compare_tasks = [&](const std::vector<Record>& records, Executable& tuned,
                                   const relay::CompileReport& report) {
      return ratios_of(time_decisions(records, tuned, report, by_analysis, compiled));
    };
    adopted_decisions_ = adopt(decisions_->proposals(), by_analysis, compare_tasks, until);
    report_.choices = static_cast<int>(adopted_decisions_.size());
    return report_.choices > 0;
  }

  // What cannot be compiled or computes something else is tried by halves, until it is known which choice is to blame.
  void try_variant(const std::vector<Record>& choices, Executable& by_analysis, const relay::CompileReport& compiled) {
    relay::CompileReport report;
    std::optional<Executable> variant;
    Measurement measured;
    try {
      variant.emplace(compile(choices, &report));
    } catch (const Error& error) {
      measured.status = Status::refused, measured.detail = error.what();
    }
    if (variant) measured.detail = find_difference(*variant);
    if (variant && !measured.detail.empty()) measured.status = Status::wrong;
    if (measured.status != Status::ok && choices.size() > 1) {
      const auto half = choices.begin() + static_cast<std::ptrdiff_t>(choices.size() / 2);
      try_variant({choices.begin(), half}, by_analysis, compiled);
      try_variant({half, choices.end()}, by_analysis, compiled);
      return;
    }
    std::map<std::string, std::vector<Sample>> samples;
    if (measured.status == Status::ok) samples = time_decisions(choices, *variant, report, by_analysis, compiled);
    for (Record record : choices) {
      measured.samples = samples[record.task];
      // Of nodes that a later pass removed nothing is known.
      if (measured.status == Status::ok && measured.samples.empty()) continue;
      set_ratio(record, measured, 1);
      add(record);
      decisions_->note(record);
      count_trial(decisions_->task(record.task), decisions_->count(record.task), "network", record,
                  decisions_->best(record.task));
    }
  }

  // By task: the steps that the choices change, with them and by analysis.
  std::map<std::string, std::vector<Sample>> time_decisions(const std::vector<Record>& choices, Executable& with,
                                                            const relay::CompileReport& report, Executable& without,
                                                            const relay::CompileReport& compiled) const {
    StepComparison comparison;
    comparison.with = steps_of_decisions(with.plan(), report.decisions, without.plan(), choices);
    comparison.without = steps_of_decisions(without.plan(), compiled.decisions, with.plan(), choices);
    comparison.time_steps = time_steps();
    if (network_) comparison.rounds = profiles_of_a_fleet;
    comparison.seconds = options_.time_steps ? 0 : runs_seconds();
    return compare_steps(with, without, comparison);
  }

  void find_trials(const relay::CompileReport& compiled, const std::vector<StepProfile>& profile) {
    std::vector<Task> tasks = find_tasks(compiled.pieces, profile, target_);
    if (const auto& only = options_.only_tasks; !only.empty())
      std::erase_if(tasks, [&](const Task& t) { return std::find(only.begin(), only.end(), t.key) == only.end(); });
    if (options_.most_tasks > 0) tasks.resize(std::min(tasks.size(), static_cast<size_t>(options_.most_tasks)));
    std::vector<std::string> keys;
    for (const Task& task : tasks) {
      keys.push_back(task.key);
      database_.add_task(task.key, to_text(task.func));
    }
    const TuneOptions::Bounds bounds = add_job(tasks);
    learner_.emplace(database_, target_, target_key_, keys);
    int64_t earlier_trials = earlier_decided_;
    for (Task& task : tasks) {
      auto earlier = database_.records(target_key_, task.key, space_version, compiler_key());
      // Products of small elements go beyond what multiply-adds of floats can do.
      const bool is_bounded = bounds.peak_flops > 0 && options_.compile.precision == relay::Precision::f32 &&
                              options_.strategy == Strategy::search;
      const double bound = is_bounded ? task.flops / bounds.peak_flops : 0;
      trials_.push_back(
          std::make_unique<Trials>(std::move(task), target_, options_, std::move(earlier), folder_.path(), bound));
      earlier_trials += trials_.back()->count();
      learner_->attach(trials_.back()->task().key, trials_.back()->search());
    }
    report_.tasks = static_cast<int>(trials_.size());
    send({{"event", "tasks"},
          {"tasks", report_.tasks},
          {"choices", report_.choices},
          {"earlier_trials", earlier_trials},
          {"milliseconds", seconds_ * 1e3}});
  }

  TuneOptions::Bounds add_job(const std::vector<Task>& tasks) const {
    JobRow job;
    job.model = model_, job.name = graph_.name, job.target = target_key_;
    job.space = space_version, job.compiler = compiler_key();
    job.seconds = report_.default_seconds;
    for (const std::vector<Task>& list : {decisions_->tasks(), tasks})
      for (const Task& task : list)
        job.tasks.push_back({task.key, task.name, task.groups, task.seconds, task.flops, task.bytes});
    TuneOptions::Bounds bounds;
    if (options_.budget_seconds >= least_budget_for_bounds) bounds = options_.measure_bounds();
    job.peak_flops = bounds.peak_flops, job.bandwidth = bounds.bandwidth;
    job.machine = machine_name();
    job.budget = options_.budget_seconds, job.seed = static_cast<int64_t>(options_.seed), job.started_at = unix_time();
    database_.add(job);
    return bounds;
  }

  // What is still to come, in seconds.
  double trial_seconds() const { return searched_ ? search_seconds_ / searched_ : 0; }
  double runs_seconds() const {
    return std::clamp(share_for_runs * options_.budget_seconds, least_runs_seconds, most_runs_seconds);
  }
  double round_seconds() const {
    double faster = 0;
    for (const auto& trials : trials_) faster += trials->best().has_value();
    // Kernels that stay as they are come from the cache.
    const double share = options_.compile.cache ? std::min(1.0, 0.2 + faster / std::max(1.0, 1.0 * report_.tasks)) : 1;
    const double again = options_.compile.cache ? 0.1 : 1;
    return (share + 2 * least_networks * again) * compile_seconds_ + 2 * runs_seconds();
  }
  double reserve_for_confirmation() const { return std::min(2 * round_seconds(), 0.4 * options_.budget_seconds); }
  double final_seconds() const {
    return std::clamp(options_.budget_seconds / 600, least_final_seconds, most_final_seconds);
  }
  double reserve_for_finals() const {
    int finalists = 0;
    for (const auto& trials : trials_) finalists += trials->count_finalists();
    return std::min(finalists * (final_seconds() + trial_seconds()), share_for_finals * options_.budget_seconds);
  }

  void add(Record& record) {
    record.target = target_key_;
    record.compiler = compiler_key();
    if (record.machine.empty() || is_for_gpu()) record.machine = machine_name();
    record.measured_at = unix_time();
    record.digest = database_.add(record);
  }

  void count_trial(const Task& task, int trial, const std::string& phase, const Record& record, double best) {
    ++report_.trials;
    ++report_.by_status[record.status];
    send({{"event", "trial"},
          {"task", task.name},
          {"key", task.key},
          {"share", task.seconds / std::max(seconds_, 1e-12)},
          {"trial", trial},
          {"phase", phase},
          {"decisions", record.decisions},
          {"status", record.status},
          {"detail", record.detail},
          {"ratio", record.ratio},
          {"ratio_to_default", record.ratio_to_default},
          {"best", best},
          {"predicted_milliseconds", predicted_seconds() * 1e3}});
  }

  void report_problem(const Trials& trials) {
    if (trials.problem().empty()) return;
    report_.skipped.push_back(trials.task().name + ": " + trials.problem());
    send({{"event", "skipped"}, {"task", trials.task().name}, {"reason", trials.problem()}});
  }

  // Batch by batch, of the task that promises most.
  void search() {
    Trials* current = nullptr;
    const double start = elapsed();
    // At least one, so that jobs of any budget come to an end some day.
    while (
        (searched_ == 0 || elapsed() < options_.budget_seconds - reserve_for_confirmation() - reserve_for_finals()) &&
        !is_stopping()) {
      if (!current || !current->is_in_batch()) {
        const auto next = std::max_element(trials_.begin(), trials_.end(),
                                           [](const auto& a, const auto& b) { return a->promise() < b->promise(); });
        if (next == trials_.end() || (*next)->is_done()) break;
        current = next->get();
        Search& search = current->search();
        if (search.count() == 0)
          for (const Decisions& prior : learner_->priors(current->task().key, search)) search.add_prior(prior);
        // Evolution has no use for a model, and training one on thousands of points takes a while.
        const bool is_evolution = options_.strategy == Strategy::evolution;
        if (!current->begin_batch(is_evolution ? no_model_ : learner_->model())) continue;
      }
      auto record = current->next();
      if (!record) {
        report_problem(*current);
        continue;
      }
      add(*record);
      current->note(*record);
      ++searched_;
      search_seconds_ = elapsed() - start;
      count_trial(current->task(), current->count(), current->search().phase(), *record,
                  current->best() ? current->best()->ratio_to_default : 1.0);
    }
  }

  // Between the leaders of each task, the largest gain first, as far as the time goes.
  void finals() {
    const auto gain = [](const auto& trials) {
      return trials->best() ? trials->task().seconds * (1 - trials->best()->ratio_to_default) : 0.0;
    };
    std::vector<Trials*> order;
    for (const auto& trials : trials_) order.push_back(trials.get());
    std::stable_sort(order.begin(), order.end(), [&](const auto* a, const auto* b) { return gain(a) > gain(b); });
    const double stop =
        report_.was_stopped ? elapsed() + finals_when_stopped : options_.budget_seconds - reserve_for_confirmation();
    for (Trials* trials : order) {
      while (trials->count_finalists() > 0 && elapsed() < stop) {
        auto record = trials->next_final(final_seconds());
        if (!record) {
          report_problem(*trials);
          break;
        }
        add(*record);
        trials->note(*record);
        ++report_.finals;
        send({{"event", "final"},
              {"task", trials->task().name},
              {"key", trials->task().key},
              {"decisions", record->decisions},
              {"status", record->status},
              {"ratio_to_default", record->ratio_to_default},
              {"predicted_milliseconds", predicted_seconds() * 1e3}});
      }
    }
  }

  // Of the network, if every task's time changes in it as it did alone.
  double predicted_seconds() const {
    double seconds = seconds_;
    if (!is_chosen_)
      for (const Proposal& proposal : decisions_->proposals()) seconds -= proposal.gain;
    for (const auto& trials : trials_)
      if (trials->best()) seconds -= trials->task().seconds * (1 - trials->best()->ratio_to_default);
    return seconds;
  }

  // The network with these records by the network without.  Where its memory came to lie makes one and the same network
  // up to 7 % slower or faster, so several are made; more, and for longer, while it is not clear which is faster.
  Ratio compare_networks(const std::vector<Record>& records, double until) const {
    constexpr int most_networks = 12;
    const double seconds = runs_seconds() / least_networks;
    std::vector<Sample> samples;
    for (int made = 1;; ++made) {
      Executable with = compile(records), without = compile({});
      const std::vector<Sample> own = time_networks(with, without, inputs_, seconds);
      samples.insert(samples.end(), own.begin(), own.end());
      const Ratio ratio = ratio_of(samples);
      const bool is_clear = ratio.high <= 1 || ratio.low > 1;
      if (made >= most_networks || until - elapsed() < seconds || (made >= least_networks && is_clear)) return ratio;
    }
  }

  std::function<std::map<std::string, double>(Executable&)> time_steps() const {
    if (options_.time_steps) return options_.time_steps;
    return [this](Executable& network) { return seconds_of_steps(network, inputs_); };
  }

  static std::map<std::string, Ratio> ratios_of(const std::map<std::string, std::vector<Sample>>& samples) {
    std::map<std::string, Ratio> ratios;
    for (const auto& [task, own] : samples) ratios[task] = ratio_of(own);
    return ratios;
  }

  // By task: the steps of the groups that compute it, whose names are the same with other schedules.
  std::map<std::string, Ratio> compare_tasks(Executable& tuned, Executable& untuned,
                                             const relay::CompileReport& compiled) const {
    std::map<std::string, std::set<std::string>> tasks_of_kernel;
    for (const auto& piece : compiled.pieces)
      for (const std::string& kernel : piece.kernels) tasks_of_kernel[kernel].insert(task_key(piece.func));
    StepComparison comparison;
    for (const Step& step : untuned.plan().steps)
      if (const auto& tasks = tasks_of_kernel[step.kernel]; tasks.size() == 1)
        comparison.with[step.name] = comparison.without[step.name] = *tasks.begin();
    comparison.time_steps = time_steps();
    comparison.seconds = runs_seconds();
    return ratios_of(compare_steps(tuned, untuned, comparison));
  }

  void confirm_proposals(Executable& network, const relay::CompileReport& compiled) {
    std::vector<Proposal> proposals;
    for (const auto& trials : trials_)
      if (const auto record = trials->proposal())
        proposals.push_back({*record, trials->task().seconds * (1 - record->ratio_to_default)});
    const auto compare = [&](const std::vector<Record>&, Executable& tuned, const relay::CompileReport&) {
      return compare_tasks(tuned, network, compiled);
    };
    adopt(std::move(proposals), network, compare, options_.budget_seconds);
  }

  // Which of the proposals the network is no slower with than `without` them, by the time `until`.
  using CompareTasks = std::function<std::map<std::string, Ratio>(const std::vector<Record>& records, Executable& with,
                                                                  const relay::CompileReport& compiled)>;
  std::vector<Record> adopt(std::vector<Proposal> proposals, Executable& without, const CompareTasks& compare_tasks,
                            double until) {
    if (proposals.empty()) return {};
    if (expected_.empty() && !options_.find_difference) expected_ = first_run(without);
    bool is_first = true;
    Confirming with;
    std::vector<Record> records;  // of the last one compiled
    relay::CompileReport compiled;
    with.compile = [&](const std::vector<Record>& proposed) {
      compiled = {};
      return compile(records = proposed, &compiled);
    };
    with.find_difference = [&](Executable& tuned) { return find_difference(tuned); };
    with.compare_tasks = [&](Executable& tuned) {
      return options_.compare_networks ? std::map<std::string, Ratio>() : compare_tasks(records, tuned, compiled);
    };
    with.compare = [&](Executable& tuned) {
      return options_.compare_networks ? options_.compare_networks(tuned, without) : compare_networks(records, until);
    };
    // One round there is always: what was measured is not to be lost.
    with.has_time = [&] {
      return std::exchange(is_first, false) || report_.was_stopped || elapsed() + round_seconds() < until;
    };
    const double ratio_without = report_.ratio;
    with.on_round = [&](const ConfirmationRound& round) {
      send({{"event", "confirmation"},
            {"records", round.records},
            {"ratio", round.ratio.median},
            {"ratio_low", round.ratio.low},
            {"ratio_high", round.ratio.high},
            {"adopted", round.is_adopted},
            {"detail", round.detail}});
      for (const Record& record : round.slower)
        database_.add({record.digest, model_, ratio_without * round.ratio.median, -1, unix_time()});
      if (round.is_adopted) report_.ratio = ratio_without * round.ratio.median;
    };
    std::vector<Record> adopted = confirm(std::move(proposals), with);
    for (const Record& record : adopted) database_.add({record.digest, model_, report_.ratio, 1, unix_time()});
    report_.adopted += static_cast<int>(adopted.size());
    return adopted;
  }

  void finish() const {
    send({{"event", "end"},
          {"tasks", report_.tasks},
          {"trials", report_.trials},
          {"finals", report_.finals},
          {"by_status", report_.by_status},
          {"adopted", report_.adopted},
          {"choices", report_.choices},
          {"ratio", report_.ratio},
          {"before_milliseconds", report_.default_seconds * 1e3},
          {"after_milliseconds", report_.default_seconds * report_.ratio * 1e3},
          {"was_stopped", report_.was_stopped}});
  }

  const relay::Graph& graph_;
  const Target& target_;
  Database& database_;
  TuneOptions options_;
  MachineFacts machine_;  // of the job, or of the fleet's
  TemporaryFolder folder_;
  std::optional<FleetNetwork> network_;
  TuneReport report_;
  double start_ = 0, compile_seconds_ = 0, profile_seconds_ = 0, search_seconds_ = 0;
  double seconds_ = 0;                      // of a run with default schedules and the choices that were adopted
  int searched_ = 0;                        // candidates of the search
  std::vector<NDArray> inputs_, expected_;  // of the network by analysis, where networks are compared here
  std::optional<GraphDecisions> decisions_;
  std::vector<Record> adopted_decisions_;
  bool is_chosen_ = false;   // the network is as the choices that were adopted have it
  int earlier_decided_ = 0;  // records
  std::string target_key_, model_;
  std::vector<std::unique_ptr<Trials>> trials_;
  std::optional<Learner> learner_;  // of their searches
  const CostModel no_model_;
};

}  // namespace

int measured_at_once(const TuneOptions& options) {
  return options.fleet ? std::max(1, options.fleet->size()) : 1;
}

void measure_all(const TuneOptions& options, const std::vector<MeasureRequest>& requests,
                 const std::function<void(size_t, const Measurement&)>& on_result) {
  if (options.fleet) return options.fleet->measure(requests, on_result);
  for (size_t i = 0; i < requests.size(); ++i) on_result(i, options.measure_candidate(requests[i]));
}

Measurement measure_one(const TuneOptions& options, const MeasureRequest& request) {
  return options.fleet ? options.fleet->measure(request) : options.measure_candidate(request);
}

TuneReport tune(const relay::Graph& graph, const Target& target, Database& database, const TuneOptions& options) {
  return Job(graph, target, database, options).run();
}

}  // namespace tw::autotune
