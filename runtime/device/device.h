// A Program is one executable's code made ready on a device.  Executable checks and allocates; a Program runs.
#pragma once

#include <cstddef>
#include <memory>
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

// Calls come one at a time: Executable holds a lock.
class Program {
 public:
  virtual ~Program() = default;
  // Host addresses in the order of the plan's inputs and outputs, of the sizes that the plan says, not overlapping but
  // for outputs in place of an input, which have its address.  Of outputs whose sizes the run computes null: they are
  // the run's own, and take_output() gives them.
  // `who`, of 1 thread or more, is for devices that run on the host's cores.
  virtual void run(std::span<const void* const> inputs, std::span<void* const> outputs, TeamRequest who) = 0;
  // Of the last run: an output whose sizes it computed; and its counters as they were at the end.
  virtual NDArray take_output(size_t index);
  virtual std::vector<int64_t> counters() const { return {}; }
  // Runs all steps `repetitions` times, each step alone; its median seconds, in the order of the plan's steps.
  virtual std::vector<StepTime> time_steps(std::span<const void* const> inputs, std::span<void* const> outputs,
                                           TeamRequest who, int repetitions) = 0;
  // The same code for another plan_at() of the plan that it was made for, which outlives it.  They share their code,
  // constants and memory.  Null: a device that runs no open plans.
  virtual std::unique_ptr<Program> at(const Plan& plan) const;
  // Fills the memory that kernels have between and within steps, and outputs that lie on the device;
  // Executable::fill_scratch.
  virtual void fill_scratch(std::byte value, TeamRequest who) = 0;
  // Of a device with a clock and caches of its own: Executable::time_run.
  virtual double time_run(std::span<const void* const> inputs, int repetitions);
  // Who ran what when in a run like any other, the median one of some repetitions; by worker, then by time.  Here: all
  // steps one after the other on worker 0, as time_steps has them, for devices whose workers cannot be watched.
  virtual std::vector<StepSpan> trace(std::span<const void* const> inputs, std::span<void* const> outputs,
                                      TeamRequest who, int repetitions);
};

// The device that plan code for `source.requirements.architecture` runs on.  Error(wrong_machine | device | artifact).
std::unique_ptr<Program> make_program(const ProgramSource& source);

// Of each step's times; 0 where there are none.
std::vector<StepTime> medians_of(std::vector<std::vector<double>> samples);

// One function a device.
std::unique_ptr<Program> make_cpu_program(const ProgramSource& source);

}  // namespace tw
