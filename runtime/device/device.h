// A Program is one executable's code made ready on a device.  Executable checks and allocates; a Program runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "runtime/host_function.h"
#include "runtime/plan/plan.h"
#include "runtime/team.h"

namespace tw {

inline const RandomState first_random_state;
inline const HostFunctions no_host_functions{};

// What a Program is made from; all of it outlives the Program.  The plan is valid (plan_io.h).
struct ProgramSource {
  std::span<const std::byte> image;
  const Plan& plan;
  const std::vector<NDArray>& constants;
  const MachineRequirements& requirements;
  const RandomState& random = first_random_state;  // which changes between runs
  const HostFunctions& host = no_host_functions;   // that steps call; more may come between runs
  int gpu = 0;                                     // by its ordinal, of those that there are
};

// One worker's share of one step within a run.
struct StepSpan {
  int worker = 0;
  uint32_t step = 0;          // of the plan
  double start = 0, end = 0;  // seconds since the run began
};

// A step in a run: its seconds, all executions together.
struct StepTime {
  double seconds = 0;
  int64_t executions = 1;  // 0: of control, or not come to; more: in a loop
};

// A CUstream's or cudaStream_t's handle; 0 and 1: the legacy default stream.
using StreamHandle = uintptr_t;

// What a GPU's run is asked for beyond its arrays.  CPUs have none of it.
struct RunOptions {
  // The run is queued here, behind what is there, and not waited for, unless arrays of the host take part, whose sizes
  // or contents it needs.  None: it is complete when the call returns.
  std::optional<StreamHandle> stream = {};
  std::vector<StreamHandle> after = {};  // streams whose work so far is done before it begins
  bool leaves_outputs = false;           // outputs that nobody gave an array for stay in the GPU's memory
};

// Calls come one at a time: Executable holds a lock.
class Program {
 public:
  virtual ~Program() = default;
  // Arrays in the order of the plan's inputs and outputs, of the sizes that the plan says, not overlapping but for
  // outputs in place of an input, which are its array.  Outputs whose sizes the run computes are undefined: they are
  // the run's own, and take_output() gives them.  Those of a GPU may be in its memory, where it uses them as they are.
  // `who`, of 1 thread or more, is for devices that run on the host's cores.
  virtual void run(std::span<const NDArray> inputs, std::span<NDArray> outputs, TeamRequest who,
                   const RunOptions& options = {}) = 0;
  // Of the last run: an output whose sizes it computed; and its counters as they were at the end.
  virtual NDArray take_output(size_t index);
  virtual std::vector<int64_t> counters() const { return {}; }
  // Runs all steps `repetitions` times, each step alone; its median seconds, in the order of the plan's steps.
  virtual std::vector<StepTime> time_steps(std::span<const NDArray> inputs, std::span<NDArray> outputs, TeamRequest who,
                                           int repetitions) = 0;
  // The same code for another plan_at() of the plan that it was made for, which outlives it.  They share their code,
  // constants and memory.  Null: a device that runs no open plans.
  virtual std::unique_ptr<Program> at(const Plan& plan) const;
  // Fills the memory that kernels have between and within steps, and outputs that lie on the device;
  // Executable::fill_scratch.
  virtual void fill_scratch(std::byte value, TeamRequest who) = 0;
  // Of a device with a clock and caches of its own: Executable::time_run.
  virtual double time_run(std::span<const NDArray> inputs, std::span<NDArray> outputs, int repetitions);
  // Who ran what when in a run like any other, the median one of some repetitions; by worker, then by time.  Here: all
  // steps one after the other on worker 0, as time_steps has them, for devices whose workers cannot be watched.
  virtual std::vector<StepSpan> trace(std::span<const NDArray> inputs, std::span<NDArray> outputs, TeamRequest who,
                                      int repetitions);
};

// The device that plan code for `source.requirements.architecture` runs on.  Error(wrong_machine | device | artifact).
std::unique_ptr<Program> make_program(const ProgramSource& source);

// Of each step's times; 0 where there are none.
std::vector<StepTime> medians_of(std::vector<std::vector<double>> samples);

// One function a device.
std::unique_ptr<Program> make_cpu_program(const ProgramSource& source);

}  // namespace tw
