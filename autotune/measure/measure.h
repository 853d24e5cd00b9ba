// A candidate beside the incumbent, in a child process with limits (tw-measure): whatever it does ends there.
#pragma once

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "autotune/measure/measurement.h"
#include "autotune/measure/ratio.h"
#include "runtime/plan/plan.h"

namespace tw::autotune {

const char* word_of(Status status);

struct MeasureRequest {
  std::filesystem::path program;               // tw-measure
  std::filesystem::path candidate, incumbent;  // .twa, with equal inputs and outputs
  const Plan* plan = nullptr;                  // of either
  std::vector<std::vector<NDArray>> inputs;    // by set: input_sets of them (exchange.h)
  // By set: what the outputs have to be; none: whatever the incumbent's are.
  std::vector<std::vector<NDArray>> expected;
  std::vector<std::vector<bool>> padding;  // of what is expected (standalone.h)
  int threads = 1;
  double seconds = 0.2;      // of timing; 0: outputs only
  double worst_ratio = 1.3;  // what is slower beyond doubt is given up
  // The child's limits.
  double limit_seconds = 10;                // by the clock, from its start to its end
  int64_t memory_bytes = int64_t{2} << 30;  // beside the model's own
  bool is_network = false;                  // outputs are compared as whole networks are (candidate.h)
  bool wants_profile = false;               // seconds of each of the candidate's steps; `plan` is the candidate's
  std::function<bool()> is_cancelled;       // asked now and then; true ends the child: Error(input)
};

struct Measurement {
  Status status = Status::ok;
  std::string detail;  // of what is not ok
  std::vector<Sample> samples;
  std::vector<std::vector<NDArray>> outputs;  // by set: the candidate's, where it got so far
  std::vector<std::vector<bool>> padding;     // of these, where the incumbent's are expected (standalone.h)
  bool filters_calls = false;        // whether the kernel kept the child from all system calls but harmless ones
  std::vector<double> step_seconds;  // by step, where asked for
  std::string machine;               // the CPU's name
};

// Of the child, wherever it ran, with its outputs compared.
Measurement judge(const MeasureRequest& request, ChildResult child);
// Writes the inputs as a child's exchange has them.
void write_inputs(const MeasureRequest& request, std::span<std::byte> memory);

// In a child on this machine.  Error(file) when the program cannot be started, or it cannot load the two.
Measurement measure(const MeasureRequest& request);

}  // namespace tw::autotune
