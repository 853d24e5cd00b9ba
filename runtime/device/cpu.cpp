// The CPU device.  A run enters the team once; each worker walks all steps and runs its share of each.
//
// Of a step's tasks each worker owns a share, takes it in a few pieces, and then takes pieces of those who are not done
// (runtime/device/pieces.h).  A step of one task, or of so little work that the barriers which that spares take longer,
// stays with worker 0.  A step that waits has a barrier before it; this one is spared where the step and everything
// since the last barrier stay with worker 0, which runs them in order.
//
// A worker waits for the work before a step, not for the other workers (runtime/team.h): who comes late finds nothing
// left of the steps that were done without it, and goes on to where there is something.  So what it needs to pass by a
// step is its own, and what others write while the run goes on it reads only once it has taken a piece.
//
// A step of control goes the same way for all workers: worker 0 reads the condition and says so.  What depends on
// counters (parameters, where buffers begin, tasks) each worker computes for itself.
//
// Numbers that a run computes are read likewise.  What is so large gets its memory from worker 0, in one piece for all
// that a step of placement knows the sizes of: tensors, workspaces and outputs.
//
// Functions of the host are called by worker 0 in the same way, while the others wait.
//
// Every storage of ours that a kernel sees (constant, arena, workspace) begins at a 64-byte boundary; a caller's array
// that does not begin as the plan says is copied.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "runtime/artifact/elf_image.h"
#include "runtime/device/control.h"
#include "runtime/device/device.h"
#include "runtime/device/pieces.h"
#include "runtime/device/placing.h"
#include "runtime/device/sharing.h"
#include "runtime/memory.h"
#include "runtime/team.h"

namespace tw {
namespace {

using Clock = std::chrono::steady_clock;

struct StepCode {
  const Step& step;
  KernelFunction function;  // null: of control
  int64_t tasks;            // unknown_tasks: they depend on counters
  bool has_barrier;         // before it all work is done, when there is more than one worker
  bool is_shared;           // by all workers; else its tasks stay with worker 0
  bool has_counters;        // something in it depends on them, or is placed in the run
  size_t first_pointer;     // of its buffers, in a worker's table
  size_t first_parameter;
};

// An entry of the pointer table that is the caller's array, known only when a run begins.
struct CallerEntry {
  size_t entry;
  bool is_output;
  uint32_t index;
  int64_t offset;
};

// On lines of its own: a worker reads and writes only its own, but for `claimed`.
struct alignas(128) Worker {
  std::vector<void*> pointers;      // the buffers of all steps, one after the other
  std::vector<int64_t> parameters;  // likewise
  std::vector<int64_t> counters;    // of loops, and numbers that were read
  uint64_t questions = 0;           // that were asked in this run
  int64_t due = 0, done = 0;        // tasks of steps that it came to, and its own, since it last told the team
  // By step: how often it was shared out.  The same for all workers, so they begin a run with worker 0's.
  std::vector<uint32_t> executions;
  std::unique_ptr<std::atomic<uint64_t>[]> claimed;  // by step: of the worker's share, what is taken
};

// What worker 0 has read, for others that come to the question later.  `number` says which question it answers, from 1
// on; 0 while it changes.
struct Answer {
  std::atomic<uint64_t> number{0};
  std::atomic<int64_t> value{0};
};

constexpr uint64_t remembered_answers = 64;

// What programs of the same code share, whatever the sizes that they are for.
struct CpuCode {
  explicit CpuCode(const ProgramSource& source) : image(source.image), random(source.random), host(source.host) {
    for (const NDArray& constant : source.constants) {
      constants.push_back(is_aligned(constant.data()) ? constant : constant.clone());
    }
  }

  // Sees to memory for the plan and as many workers.  It grows only; then pointers into it are no longer right.
  void reserve(const Plan& plan, size_t workers) {
    if (!arena || plan.arena_bytes > arena_bytes) {
      arena = nullptr;
      arena = allocate_lasting_storage(static_cast<size_t>(plan.arena_bytes));
      arena_bytes = plan.arena_bytes;
      ++version;
    }
    if (plan.workspace_bytes > workspace_bytes || (plan.workspace_bytes > 0 && workers > workspace_count)) {
      workspace_bytes = std::max(workspace_bytes, (plan.workspace_bytes + 127) / 128 * 128);
      workspace_count = std::max(workspace_count, workers);
      workspaces = nullptr;
      workspaces = allocate_lasting_storage(static_cast<size_t>(workspace_bytes) * workspace_count);
      ++version;
    }
  }

  ElfImage image;
  const RandomState& random;
  const HostFunctions& host;
  GrowingMemory placed{allocate_lasting_storage};
  std::vector<NDArray> constants;
  std::shared_ptr<void> arena;
  std::shared_ptr<void> workspaces;  // of all workers side by side, on huge pages when they are large together
  int64_t arena_bytes = 0, workspace_bytes = 0;
  size_t workspace_count = 0;
  int version = 0;  // of the memory
};

// What the frames of kernels will be in.
[[gnu::noinline]] void fill_stack(std::byte value) {
  volatile char frame[size_t{64} << 10];
  for (volatile char& byte : frame) byte = std::to_integer<char>(value);
}

class CpuProgram final : public Program {
 public:
  CpuProgram(const Plan& plan, std::shared_ptr<CpuCode> shared)
      : plan_(plan), code_(std::move(shared)), placing_(plan) {
    size_t pointers = 0, parameters = 0;
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      const Step& step = plan_.steps[i];
      void* address = step.kind == StepKind::kernel ? code_->image.function(step.kernel) : nullptr;
      if (step.kind == StepKind::kernel && !address)
        throw Error(ErrorCode::artifact, "step " + std::to_string(i) + " (" + step.name +
                                             "): the code has no kernel '" + step.kernel +
                                             "'\n  help: compile the model again");
      bool has_counters = !step.tasks.is_known() || !step.workspace_bytes.is_known();
      for (const Size& parameter : step.parameters) has_counters |= !parameter.is_known();
      for (size_t b = 0; b < step.buffers.size(); ++b) {
        const BufferUse& use = step.buffers[b];
        has_counters |= !use.offset.is_known() || placing_.has(use);
        if ((use.storage == Storage::input || use.storage == Storage::output) && use.offset.is_known() &&
            !placing_.has(use))
          caller_entries_.push_back({pointers + b, use.storage == Storage::output, use.index, use.offset});
      }
      const int64_t tasks = step.tasks.is_known() ? int64_t{step.tasks} : unknown_tasks;
      steps_.push_back(
          {step, reinterpret_cast<KernelFunction>(address), tasks, false, false, has_counters, pointers, parameters});
      pointers += step.buffers.size() + (has_workspace(step) ? 1 : 0);
      parameters += step.parameters.size();
    }
    const Sharing sharing = share_steps(plan_);
    most_tasks_ = sharing.most_tasks;
    for (size_t i = 0; i < steps_.size(); ++i)
      steps_[i].is_shared = sharing.is_shared[i], steps_[i].has_barrier = sharing.has_barrier[i];
    aligned_inputs_.resize(plan_.inputs.size());
    aligned_outputs_.resize(plan_.outputs.size());
  }

  void fill_scratch(std::byte value, TeamRequest who) override {
    const int workers = useful_threads(who.threads);
    code_->reserve(plan_, static_cast<size_t>(workers));
    if (code_->arena) std::memset(code_->arena.get(), std::to_integer<int>(value), code_->arena_bytes);
    if (code_->workspaces)
      std::memset(code_->workspaces.get(), std::to_integer<int>(value),
                  code_->workspace_bytes * code_->workspace_count);
    code_->placed.fill(value);
    TeamLease({workers, who.kind})->run([&](int) { fill_stack(value); });
  }

  std::unique_ptr<Program> at(const Plan& plan) const override { return std::make_unique<CpuProgram>(plan, code_); }

  void run(std::span<const NDArray> inputs, std::span<NDArray> outputs, TeamRequest who, const RunOptions&) override {
    const int threads = useful_threads(who.threads);
    begin(inputs, outputs, threads);
    TeamLease team({threads, who.kind});
    lead(*team, [&](const StepCode& step, int w) {
      if (step.has_barrier && !meet(*team, w)) return false;
      run_share(step, w, threads);
      return true;
    });
    throw_failure();
    end(outputs);
  }

  std::vector<StepTime> time_steps(std::span<const NDArray> inputs, std::span<NDArray> outputs, TeamRequest who,
                                   int repetitions) override {
    const int threads = useful_threads(who.threads);
    begin(inputs, outputs, threads);
    std::vector<std::vector<double>> samples(steps_.size());
    std::vector<int64_t> often(steps_.size());  // of the last repetition
    // A worker may lose its core between the barrier and its clock: a step begins where the first of them does.
    std::vector<std::vector<Execution>> executions(threads);  // by worker, in order: the same, but some end early
    TeamLease team({threads, who.kind});
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      for (auto& of_worker : executions) of_worker.clear();
      std::vector<Execution> calls;
      calls_ = &calls;
      lead(*team, [&](const StepCode& step, int w) {
        if (!meet(*team, w)) return false;
        const Clock::time_point start = Clock::now();
        const bool has_run = run_share(step, w, threads);
        executions[w].push_back({index_of(step), start, has_run || w == 0 ? Clock::now() : start});
        return true;
      });
      std::vector<double> seconds(steps_.size());
      for (size_t i = 0; i < executions[0].size(); ++i) {
        Execution all = executions[0][i];
        for (const auto& of_worker : executions)
          if (i < of_worker.size() && of_worker[i].end > of_worker[i].start)
            all = {all.step, std::min(all.start, of_worker[i].start), std::max(all.end, of_worker[i].end)};
        seconds[all.step] += std::chrono::duration<double>(all.end - all.start).count();
      }
      calls_ = nullptr;
      for (const Execution& call : calls)
        seconds[call.step] += std::chrono::duration<double>(call.end - call.start).count();
      for (size_t i = 0; i < steps_.size(); ++i) samples[i].push_back(seconds[i]);
      often.assign(steps_.size(), 0);
      for (const Execution& execution : executions[0]) ++often[execution.step];
      for (const Execution& call : calls) ++often[call.step];
    }
    throw_failure();
    end(outputs);
    std::vector<StepTime> times = medians_of(std::move(samples));
    for (size_t i = 0; i < times.size(); ++i) times[i].executions = often[i];
    return times;
  }

  std::vector<StepSpan> trace(std::span<const NDArray> inputs, std::span<NDArray> outputs, TeamRequest who,
                              int repetitions) override {
    const int threads = useful_threads(who.threads);
    begin(inputs, outputs, threads);
    std::vector<std::vector<StepSpan>> runs(repetitions);  // each by worker, then by time
    TeamLease team({threads, who.kind});
    for (std::vector<StepSpan>& spans : runs) {
      std::vector<std::vector<StepSpan>> by_worker(threads);
      std::vector<Execution> calls;
      calls_ = &calls;
      for (std::vector<StepSpan>& own : by_worker) own.reserve(steps_.size());
      const Clock::time_point origin = Clock::now();
      const auto now = [&] { return std::chrono::duration<double>(Clock::now() - origin).count(); };
      lead(*team, [&](const StepCode& step, int w) {
        if (step.has_barrier && !meet(*team, w)) return false;
        const double start = now();
        if (run_share(step, w, threads))
          by_worker[w].push_back({w, static_cast<uint32_t>(index_of(step)), start, now()});
        return true;
      });
      calls_ = nullptr;
      for (const Execution& call : calls) {
        const auto since = [&](Clock::time_point time) { return std::chrono::duration<double>(time - origin).count(); };
        by_worker[0].push_back({0, static_cast<uint32_t>(call.step), since(call.start), since(call.end)});
      }
      std::ranges::sort(by_worker[0], {}, &StepSpan::start);
      for (const std::vector<StepSpan>& own : by_worker) spans.insert(spans.end(), own.begin(), own.end());
    }
    throw_failure();
    end(outputs);
    const auto duration = [](const std::vector<StepSpan>& spans) {
      double last = 0;
      for (const StepSpan& span : spans) last = std::max(last, span.end);
      return last;
    };
    const auto middle = runs.begin() + repetitions / 2;
    std::nth_element(runs.begin(), middle, runs.end(),
                     [&](const auto& a, const auto& b) { return duration(a) < duration(b); });
    return std::move(*middle);
  }

  NDArray take_output(size_t index) override { return placing_.take_output(index); }
  std::vector<int64_t> counters() const override {
    return workers_.empty() ? std::vector<int64_t>() : workers_[0].counters;
  }

 private:
  static bool has_workspace(const Step& step) { return !step.workspace_bytes.is_known() || step.workspace_bytes > 0; }

  void throw_failure() {
    has_failed_ = false;
    if (failure_) throw *std::exchange(failure_, std::nullopt);
  }

  // A run.  Calls kernel(step, w) for each step that is one, in the order of this run.  False, of it and of what it
  // calls: the run has ended without this worker, which touches nothing then.
  template <class F>
  void lead(Team& team, F&& kernel) {
    executions_ = workers_[0].executions;
    team.lead([&](int w) { walk(team, w, kernel); });
  }

  template <class F>
  void walk(Team& team, int w, F&& kernel) {
    FlushSubnormals flush;
    Worker& worker = workers_[w];
    set_caller_pointers(worker);
    worker.questions = 0;
    worker.due = worker.done = 0;
    if (w != 0) worker.executions = executions_;
    for (size_t i = 0; i < steps_.size();) {
      const StepCode& code = steps_[i];
      if (!code.function) {
        const std::optional<size_t> next = next_step(team, w, worker, code, i);
        if (!next) return;
        i = *next;
      } else if (kernel(code, w)) {
        ++i;
      } else {
        return;
      }
    }
    // Worker 0 stays until all is done; the others need not.
    if (w != 0) return team.add(w, worker.due, worker.done);
    (void)meet(team, w);
  }

  // Returns when all that this worker came to is done.
  [[nodiscard]] bool meet(Team& team, int w) {
    Worker& worker = workers_[w];
    return team.wait(w, std::exchange(worker.due, 0), std::exchange(worker.done, 0));
  }

  // The step after a step of control; none: the run has ended without this worker.
  std::optional<size_t> next_step(Team& team, int w, Worker& worker, const StepCode& code, size_t i) {
    return tw::next_step(
        plan_.steps, i, worker.counters, [&] { return ask(team, w, worker, code); },
        [&] { return code.step.kind == StepKind::call ? call(team, w, worker, code) : place(team, w, worker, code); },
        [&](const Error& error) {
          if (w == 0) fail(error);
        });
  }

  // What is in the step's buffer; none: the run has ended without this worker, or goes on without it, since it is so
  // late that the answer was forgotten.
  std::optional<int64_t> ask(Team& team, int w, Worker& worker, const StepCode& code) {
    const uint64_t number = ++worker.questions;
    Answer& answer = answers_[number % remembered_answers];
    if (w != 0) {
      if (!hear(team, w)) return std::nullopt;
      const int64_t value = answer.value.load();
      return answer.number.load() == number ? std::optional(value) : std::nullopt;
    }
    if (code.has_barrier) (void)meet(team, w);
    update_pointers(code, worker);
    const void* at = worker.pointers[code.first_pointer];
    const int64_t value = number_at(at, code.step.buffers[0].bytes);
    answer.number.store(0);
    answer.value.store(value);
    answer.number.store(number);
    say(team, worker);
    return value;
  }

  // Of a step in a run.
  struct Execution {
    size_t step;
    Clock::time_point start, end;
  };

  // Worker 0 has done what the others need; they wait for it.
  static void say(Team& team, Worker& worker) {
    team.add(0, std::exchange(worker.due, 0) + 1, std::exchange(worker.done, 0) + 1);
  }
  // What they have done they say before: worker 0 may sleep until it is.
  [[nodiscard]] bool hear(Team& team, int w) {
    Worker& worker = workers_[w];
    team.add(w, std::exchange(worker.due, 0), std::exchange(worker.done, 0));
    return team.wait(w, 1, 0);
  }

  std::optional<bool> place(Team& team, int w, Worker& worker, const StepCode& code) {
    const size_t counter = code.step.counter;
    if (!placing_.places_any(counter) && !code.has_barrier) return true;
    return alone(team, w, worker, code,
                 [&] { placing_.place(counter, worker.counters, workers_.size(), code_->placed); });
  }

  std::optional<bool> call(Team& team, int w, Worker& worker, const StepCode& code) {
    return alone(team, w, worker, code, [&] {
      const Clock::time_point start = Clock::now();
      update_parameters(code, worker), update_pointers(code, worker);
      code_->host.call(plan_.host_calls[code.step.target], code.step.name, worker.pointers.data() + code.first_pointer,
                       worker.parameters.data() + code.first_parameter);
      if (calls_) calls_->push_back({index_of(code), start, Clock::now()});
    });
  }

  // What worker 0 does and the others wait for: whether the run goes on.
  template <class F>
  std::optional<bool> alone(Team& team, int w, Worker& worker, const StepCode& code, F&& work) {
    if (w != 0) {
      if (!hear(team, w)) return std::nullopt;
    } else {
      if (code.has_barrier) (void)meet(team, w);
      try {
        work();
      } catch (const Error& error) {
        fail(error);
      } catch (const std::bad_alloc&) {
        fail(Error(ErrorCode::limit, "there is no memory for what the run computes\n  help: give other inputs"));
      }
      say(team, worker);
    }
    return !has_failed_;
  }

  void fail(Error error) {
    failure_ = std::move(error);
    has_failed_ = true;
  }

  size_t index_of(const StepCode& code) const { return static_cast<size_t>(&code - steps_.data()); }

  // What in the step depends on counters, as they are.
  void update_parameters(const StepCode& code, Worker& worker) {
    const Step& step = code.step;
    for (size_t i = 0; i < step.parameters.size(); ++i)
      if (!step.parameters[i].is_known())
        worker.parameters[code.first_parameter + i] = step.parameters[i].at({}, worker.counters);
  }

  void update_pointers(const StepCode& code, Worker& worker) {
    const Step& step = code.step;
    for (size_t b = 0; b < step.buffers.size(); ++b) {
      const BufferUse& use = step.buffers[b];
      if (!use.offset.is_known() || placing_.has(use))
        worker.pointers[code.first_pointer + b] = start_of(use) + use.offset.at({}, worker.counters);
    }
    if (!step.workspace_bytes.is_known())
      worker.pointers[code.first_pointer + step.buffers.size()] =
          placing_.workspace(index_of(code), static_cast<size_t>(&worker - workers_.data()));
  }

  char* start_of(const BufferUse& use) {
    if (placing_.has(use)) return placing_.start_of(use);
    switch (use.storage) {
      case Storage::input:
        return static_cast<char*>(const_cast<void*>(input_starts_[use.index]));
      case Storage::output:
        return static_cast<char*>(output_starts_[use.index]);
      case Storage::constant:
        return static_cast<char*>(code_->constants[use.index].data());
      case Storage::arena:
        return static_cast<char*>(code_->arena.get());
      case Storage::random:
        return reinterpret_cast<char*>(const_cast<RandomState*>(&code_->random));
      case Storage::placed:
        break;
    }
    internal_error("CpuProgram: an unknown storage");
  }

  // Runs the worker's tasks, then what others have left.  Whether there was any.
  bool run_share(const StepCode& step, int w, int workers) {
    Worker& worker = workers_[w];
    const size_t index = index_of(step);
    const int64_t tasks = step.tasks == unknown_tasks ? step.step.tasks.at({}, worker.counters) : step.tasks;
    bool has_run = false;
    const auto run = [&](Piece piece) {
      if (!has_run && step.has_counters) update_parameters(step, worker), update_pointers(step, worker);
      has_run = true;
      step.function(worker.pointers.data() + step.first_pointer, worker.parameters.data() + step.first_parameter,
                    piece.begin, piece.end);
      worker.done += piece.end - piece.begin;
    };
    if (tasks <= 0) return false;
    worker.due += tasks;
    if (workers == 1 || tasks == 1 || tasks > most_shared_tasks || !step.is_shared) {
      if (w == 0) run({0, tasks});
      return has_run;
    }
    const uint32_t execution = ++worker.executions[index];
    for (int k = 0; k < workers; ++k) {
      const int owner = (w + k) % workers;
      const Piece share = share_of(tasks, owner, workers);
      std::atomic<uint64_t>& claimed = workers_[owner].claimed[index];
      for (Piece piece; (piece = claim(claimed, execution, share)).begin < piece.end;) run(piece);
    }
    return has_run;
  }

  void set_caller_pointers(Worker& worker) {
    for (const CallerEntry& entry : caller_entries_) {
      char* start = static_cast<char*>(entry.is_output ? output_starts_[entry.index]
                                                       : const_cast<void*>(input_starts_[entry.index]));
      worker.pointers[entry.entry] = start + entry.offset;
    }
  }

  // Nobody is woken who would find no task in any step.
  int useful_threads(int threads) const { return static_cast<int>(std::min<int64_t>(threads, most_tasks_)); }

  // Sees to as many workers as asked for, and to aligned arrays.
  void begin(std::span<const NDArray> inputs, std::span<NDArray> outputs, int threads) {
    code_->reserve(plan_, static_cast<size_t>(threads));
    if (workers_.size() != static_cast<size_t>(threads) || version_ != code_->version) make_workers(threads);
    input_starts_.clear();
    output_starts_.clear();
    for (const NDArray& input : inputs) input_starts_.push_back(input.data());
    for (NDArray& output : outputs) output_starts_.push_back(output.data());
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (is_aligned(input_starts_[i], plan_.caller_alignment)) continue;
      NDArray& copy = aligned_inputs_[i];
      if (!copy.is_defined()) copy = NDArray(plan_.inputs[i].dtype, plan_.inputs[i].shape);
      if (copy.byte_size() > 0) std::memcpy(copy.data(), inputs[i].data(), copy.byte_size());
      input_starts_[i] = copy.data();
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (const int32_t input = plan_.outputs[i].in_place; input >= 0) {
        output_starts_[i] = const_cast<void*>(input_starts_[input]);  // perhaps its copy
        continue;
      }
      if (!plan_.outputs[i].dims.empty() || is_aligned(output_starts_[i], plan_.caller_alignment)) continue;
      NDArray& copy = aligned_outputs_[i];
      if (!copy.is_defined()) copy = NDArray(plan_.outputs[i].dtype, plan_.outputs[i].shape);
      output_starts_[i] = copy.data();
    }
  }

  void end(std::span<NDArray> outputs) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      const int32_t input = plan_.outputs[i].in_place;
      if (!plan_.outputs[i].dims.empty()) continue;
      const NDArray& copy = input >= 0 ? aligned_inputs_[input] : aligned_outputs_[i];
      const size_t bytes = output_starts_[i] == outputs[i].data() ? 0 : copy.byte_size();
      if (bytes > 0) std::memcpy(outputs[i].data(), output_starts_[i], bytes);
    }
  }

  void make_workers(int threads) {
    std::vector<Worker> workers(threads);
    for (size_t w = 0; w < workers.size(); ++w) {
      Worker& worker = workers[w];
      for (const Step& step : plan_.steps) {
        for (const BufferUse& use : step.buffers) {
          const bool is_ours =
              use.storage == Storage::arena || use.storage == Storage::constant || use.storage == Storage::random;
          worker.pointers.push_back(is_ours && use.offset.is_known() ? start_of(use) + use.offset : nullptr);
        }
        if (!step.workspace_bytes.is_known()) {
          worker.pointers.push_back(nullptr);
        } else if (step.workspace_bytes > 0)
          worker.pointers.push_back(static_cast<char*>(code_->workspaces.get()) + w * code_->workspace_bytes);
        for (const Size& parameter : step.parameters)
          worker.parameters.push_back(parameter.is_known() ? int64_t{parameter} : 0);
      }
      worker.counters.resize(std::max<size_t>(1, plan_.counters.size()));
      worker.executions.resize(steps_.size());
      worker.claimed = std::make_unique<std::atomic<uint64_t>[]>(steps_.size());
    }
    workers_ = std::move(workers);
    version_ = code_->version;
  }

  const Plan& plan_;
  const std::shared_ptr<CpuCode> code_;
  int version_ = -1;  // of the memory that the workers' pointers are into
  std::vector<StepCode> steps_;
  std::array<Answer, remembered_answers> answers_;  // to the last questions
  std::optional<Error> failure_;
  std::atomic<bool> has_failed_{false};
  Placing placing_;
  int64_t most_tasks_ = 1;  // of a step
  std::vector<CallerEntry> caller_entries_;
  std::vector<Worker> workers_;
  // For the current run.
  std::vector<uint32_t> executions_;         // worker 0's, as it began
  std::vector<Execution>* calls_ = nullptr;  // of the host, where somebody measures them
  std::vector<const void*> input_starts_;
  std::vector<void*> output_starts_;
  // Copies of arrays that callers gave unaligned; made when first needed.
  std::vector<NDArray> aligned_inputs_, aligned_outputs_;
};

}  // namespace

std::unique_ptr<Program> make_cpu_program(const ProgramSource& source) {
  return std::make_unique<CpuProgram>(source.plan, std::make_shared<CpuCode>(source));
}

}  // namespace tw
