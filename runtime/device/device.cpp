#include "runtime/device/device.h"

#include <algorithm>

#include "runtime/device/cuda.h"
#include "runtime/machine/cpu_features.h"

namespace tw {

std::vector<StepSpan> Program::trace(std::span<const NDArray> inputs, std::span<NDArray> outputs, TeamRequest who,
                                     int repetitions) {
  std::vector<StepSpan> spans;
  double now = 0;
  for (const StepTime& step : time_steps(inputs, outputs, who, repetitions)) {
    spans.push_back({0, static_cast<uint32_t>(spans.size()), now, now + step.seconds});
    now += step.seconds;
  }
  return spans;
}

NDArray Program::take_output(size_t) {
  internal_error("Program: this device computes no sizes of outputs");
}

double Program::time_run(std::span<const NDArray>, std::span<NDArray>, int) {
  internal_error("Program::time_run: the device has no clock of its own");
}

std::unique_ptr<Program> Program::at(const Plan&) const {
  return nullptr;
}

std::vector<StepTime> medians_of(std::vector<std::vector<double>> samples) {
  std::vector<StepTime> medians(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    if (samples[i].empty()) continue;
    const auto middle = samples[i].begin() + static_cast<std::ptrdiff_t>(samples[i].size() / 2);
    std::nth_element(samples[i].begin(), middle, samples[i].end());
    medians[i].seconds = *middle;
  }
  return medians;
}

std::unique_ptr<Program> make_program(const ProgramSource& source) {
  if (source.requirements.architecture == "cuda") return make_cuda_program(source);
  require_runnable(source.requirements, "");
  return make_cpu_program(source);
}

}  // namespace tw
