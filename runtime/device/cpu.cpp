// The CPU device.  A run enters the team once; each worker walks all steps and runs its share of each.
//
// Worker w of n owns the tasks from ⌈w·tasks/n⌉ to ⌈(w+1)·tasks/n⌉, so the same rows stay with the same worker from
// layer to layer, and a step of one task runs on worker 0.  It takes its tasks in a few pieces; who is done takes
// pieces of those who are not, so that a core which another program uses, too, holds up a step by one piece only.  A
// step that waits has a barrier before it; this one is spared where the step and everything since the last barrier have
// one task, and so run on worker 0 in order.
//
// Every storage of ours that a kernel sees (constant, arena, workspace) begins at a 64-byte boundary; a caller's array
// that does not begin as the plan says is copied.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "runtime/artifact/elf_image.h"
#include "runtime/device/device.h"
#include "runtime/memory.h"
#include "runtime/team.h"

namespace tw {
namespace {

using Clock = std::chrono::steady_clock;

struct StepCode {
  KernelFunction function;
  std::vector<int64_t> parameters;
  int64_t tasks;
  bool has_barrier;      // before it, when there is more than one worker
  size_t first_pointer;  // of its buffers, in a worker's table
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
  std::vector<void*> pointers;  // the buffers of all steps, one after the other
  // By step: in which run (its number's low bits) which of the worker's tasks are taken.  What was left by the run
  // before means none, so nobody need wait for a worker that wakes late.
  std::unique_ptr<std::atomic<int64_t>[]> claimed;
};

constexpr int64_t pieces_a_share = 8;
constexpr int task_bits = 48;  // more than a plan's tasks take

// What programs of the same code share, whatever the sizes that they are for.
struct CpuCode {
  explicit CpuCode(const ProgramSource& source) : image(source.image) {
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
  CpuProgram(const Plan& plan, std::shared_ptr<CpuCode> shared) : plan_(plan), code_(std::move(shared)) {
    bool all_on_worker_0 = true, spared = false, is_first = true;  // since the last barrier
    size_t pointers = 0;
    for (size_t i = 0; i < plan_.steps.size(); ++i) {
      const Step& step = plan_.steps[i];
      void* address = code_->image.function(step.kernel);
      if (!address)
        throw Error(ErrorCode::artifact, "step " + std::to_string(i) + " (" + step.name +
                                             "): the code has no kernel '" + step.kernel +
                                             "'\n  help: compile the model again");
      const bool on_worker_0 = step.tasks <= 1;
      const std::vector<int64_t> parameters(step.parameters.begin(), step.parameters.end());
      StepCode code{reinterpret_cast<KernelFunction>(address), parameters, step.tasks, false, pointers};
      // Whoever planned a step that does not wait relied on the barriers before it, the spared ones too.
      if (is_first || (on_worker_0 && all_on_worker_0)) {
        spared |= step.waits && !is_first;
      } else {
        code.has_barrier = step.waits || spared;
      }
      if (code.has_barrier) all_on_worker_0 = true, spared = false;
      all_on_worker_0 &= on_worker_0;
      most_tasks_ = std::max<int64_t>(most_tasks_, step.tasks);
      is_first = false;
      steps_.push_back(code);
      for (size_t b = 0; b < step.buffers.size(); ++b) {
        const BufferUse& use = step.buffers[b];
        if (use.storage == Storage::input || use.storage == Storage::output)
          caller_entries_.push_back({pointers + b, use.storage == Storage::output, use.index, use.offset});
      }
      pointers += step.buffers.size() + (step.workspace_bytes > 0 ? 1 : 0);
    }
    aligned_inputs_.resize(plan_.inputs.size());
    aligned_outputs_.resize(plan_.outputs.size());
  }

  void fill_scratch(std::byte value, int threads) override {
    const int workers = useful_threads(threads);
    code_->reserve(plan_, static_cast<size_t>(workers));
    if (code_->arena) std::memset(code_->arena.get(), std::to_integer<int>(value), code_->arena_bytes);
    if (code_->workspaces)
      std::memset(code_->workspaces.get(), std::to_integer<int>(value),
                  code_->workspace_bytes * code_->workspace_count);
    TeamLease(workers)->run([&](int) { fill_stack(value); });
  }

  std::unique_ptr<Program> at(const Plan& plan) const override { return std::make_unique<CpuProgram>(plan, code_); }

  void run(std::span<const void* const> inputs, std::span<void* const> outputs, int threads) override {
    threads = useful_threads(threads);
    begin(inputs, outputs, threads);
    TeamLease team(threads);
    next_run();
    team->run([&](int w) {
      FlushSubnormals flush;
      set_caller_pointers(workers_[w]);
      for (const StepCode& step : steps_) {
        if (step.has_barrier) team->barrier(w);
        run_share(step, w, threads);
      }
    });
    end(outputs);
  }

  std::vector<double> time_steps(std::span<const void* const> inputs, std::span<void* const> outputs, int threads,
                                 int repetitions) override {
    threads = useful_threads(threads);
    begin(inputs, outputs, threads);
    std::vector<std::vector<double>> samples(steps_.size());
    // A worker may lose its core between the barrier and its clock: a step begins where the first of them does.
    struct Times {
      Clock::time_point start, end;
    };
    std::vector<std::vector<Times>> times(threads, std::vector<Times>(steps_.size()));  // by worker and step
    TeamLease team(threads);
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      next_run();
      team->run([&](int w) {
        FlushSubnormals flush;
        set_caller_pointers(workers_[w]);
        for (size_t i = 0; i < steps_.size(); ++i) {
          team->barrier(w);
          times[w][i].start = Clock::now();
          run_share(steps_[i], w, threads);
          times[w][i].end = Clock::now();
        }
      });
      for (size_t i = 0; i < steps_.size(); ++i) {
        Times step = times[0][i];
        for (const auto& of_worker : times)
          step = {std::min(step.start, of_worker[i].start), std::max(step.end, of_worker[i].end)};
        samples[i].push_back(std::chrono::duration<double>(step.end - step.start).count());
      }
    }
    end(outputs);
    return medians_of(std::move(samples));
  }

  std::vector<StepSpan> trace(std::span<const void* const> inputs, std::span<void* const> outputs, int threads,
                              int repetitions) override {
    threads = useful_threads(threads);
    begin(inputs, outputs, threads);
    std::vector<std::vector<StepSpan>> runs(repetitions);  // each by worker, then by time
    TeamLease team(threads);
    for (std::vector<StepSpan>& spans : runs) {
      std::vector<std::vector<StepSpan>> by_worker(threads);
      for (std::vector<StepSpan>& own : by_worker) own.reserve(steps_.size());
      const Clock::time_point origin = Clock::now();
      const auto now = [&] { return std::chrono::duration<double>(Clock::now() - origin).count(); };
      next_run();
      team->run([&](int w) {
        FlushSubnormals flush;
        set_caller_pointers(workers_[w]);
        for (size_t i = 0; i < steps_.size(); ++i) {
          if (steps_[i].has_barrier) team->barrier(w);
          const double start = now();
          if (run_share(steps_[i], w, threads)) by_worker[w].push_back({w, static_cast<uint32_t>(i), start, now()});
        }
      });
      for (const std::vector<StepSpan>& own : by_worker) spans.insert(spans.end(), own.begin(), own.end());
    }
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

 private:
  // Before the team is entered.  Never 0, which new workers' claims are of.
  void next_run() { run_ = run_ % ((1 << 14) - 1) + 1; }

  static int64_t first_task(const StepCode& step, int w, int workers) {
    return (w * step.tasks + workers - 1) / workers;
  }

  struct Piece {
    int64_t begin, end;
  };

  // The next piece of first … last - 1 that nobody has taken in this run; empty: there is none.  The last ones are
  // small, so that all workers are done at about the same time.
  Piece claim(std::atomic<int64_t>& claimed, int64_t first, int64_t last, int64_t most) const {
    int64_t seen = claimed.load(std::memory_order_relaxed);
    for (;;) {
      const int64_t next = seen >> task_bits == run_ ? seen & ((int64_t{1} << task_bits) - 1) : first;
      if (next >= last) return {last, last};
      const int64_t end = next + std::clamp<int64_t>((last - next) / 2, 1, most);
      if (claimed.compare_exchange_weak(seen, run_ << task_bits | end, std::memory_order_relaxed)) return {next, end};
    }
  }

  // Runs the worker's tasks, then what others have left.  Whether there was any.
  bool run_share(const StepCode& step, int w, int workers) {
    const auto index = static_cast<size_t>(&step - steps_.data());
    void** pointers = workers_[w].pointers.data() + step.first_pointer;
    if (workers == 1) {
      if (step.tasks > 0) step.function(pointers, step.parameters.data(), 0, step.tasks);
      return step.tasks > 0;
    }
    bool has_run = false;
    const int owners = step.tasks > 1 ? workers : 1;  // a single task stays with worker 0
    for (int k = 0; k < owners; ++k) {
      const int owner = (w + k) % workers;
      const int64_t first = first_task(step, owner, workers), last = first_task(step, owner + 1, workers);
      const int64_t most = std::max<int64_t>(1, (last - first + pieces_a_share - 1) / pieces_a_share);
      std::atomic<int64_t>& claimed = workers_[owner].claimed[index];
      for (Piece piece; (piece = claim(claimed, first, last, most)).begin < piece.end;) {
        step.function(pointers, step.parameters.data(), piece.begin, piece.end);
        has_run = true;
      }
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
  void begin(std::span<const void* const> inputs, std::span<void* const> outputs, int threads) {
    code_->reserve(plan_, static_cast<size_t>(threads));
    if (workers_.size() != static_cast<size_t>(threads) || version_ != code_->version) make_workers(threads);
    input_starts_.assign(inputs.begin(), inputs.end());
    output_starts_.assign(outputs.begin(), outputs.end());
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (is_aligned(inputs[i], plan_.caller_alignment)) continue;
      NDArray& copy = aligned_inputs_[i];
      if (!copy.is_defined()) copy = NDArray(plan_.inputs[i].dtype, plan_.inputs[i].shape);
      if (copy.byte_size() > 0) std::memcpy(copy.data(), inputs[i], copy.byte_size());
      input_starts_[i] = copy.data();
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (const int32_t input = plan_.outputs[i].in_place; input >= 0) {
        output_starts_[i] = const_cast<void*>(input_starts_[input]);  // perhaps its copy
        continue;
      }
      if (is_aligned(outputs[i], plan_.caller_alignment)) continue;
      NDArray& copy = aligned_outputs_[i];
      if (!copy.is_defined()) copy = NDArray(plan_.outputs[i].dtype, plan_.outputs[i].shape);
      output_starts_[i] = copy.data();
    }
  }

  void end(std::span<void* const> outputs) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      const int32_t input = plan_.outputs[i].in_place;
      const NDArray& copy = input >= 0 ? aligned_inputs_[input] : aligned_outputs_[i];
      const size_t bytes = output_starts_[i] == outputs[i] ? 0 : copy.byte_size();
      if (bytes > 0) std::memcpy(outputs[i], output_starts_[i], bytes);
    }
  }

  void make_workers(int threads) {
    std::vector<Worker> workers(threads);
    for (size_t w = 0; w < workers.size(); ++w) {
      Worker& worker = workers[w];
      for (const Step& step : plan_.steps) {
        for (const BufferUse& use : step.buffers) {
          char* start = nullptr;
          if (use.storage == Storage::arena) start = static_cast<char*>(code_->arena.get());
          if (use.storage == Storage::constant) start = static_cast<char*>(code_->constants[use.index].data());
          worker.pointers.push_back(start ? start + use.offset : nullptr);
        }
        if (step.workspace_bytes > 0)
          worker.pointers.push_back(static_cast<char*>(code_->workspaces.get()) + w * code_->workspace_bytes);
      }
      worker.claimed = std::make_unique<std::atomic<int64_t>[]>(steps_.size());
    }
    workers_ = std::move(workers);
    version_ = code_->version;
  }

  const Plan& plan_;
  const std::shared_ptr<CpuCode> code_;
  int version_ = -1;  // of the memory that the workers' pointers are into
  int64_t run_ = 0;
  std::vector<StepCode> steps_;
  int64_t most_tasks_ = 1;  // of a step
  std::vector<CallerEntry> caller_entries_;
  std::vector<Worker> workers_;
  // For the current run.
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
