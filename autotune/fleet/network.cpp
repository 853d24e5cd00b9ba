#include "autotune/fleet/network.h"

#include <algorithm>

#include "autotune/measure/exchange.h"

namespace tw::autotune {
namespace {

constexpr double limit_seconds = 300;
constexpr double any_ratio = 10;
constexpr double least_seconds = 0.01;  // of timing: as few runs as there are in any case

std::string how_it_ended(const Measurement& measured) {
  return std::string(word_of(measured.status)) + ", " + measured.detail;
}

}  // namespace

MeasureRequest FleetNetwork::request(const std::string& candidate) const {
  MeasureRequest request;
  request.candidate = folder_ / candidate;
  request.incumbent = folder_ / "untuned.twa";
  request.plan = &plan_;
  request.inputs.assign(input_sets, inputs_);
  request.threads = options_.compile.threads;
  request.seconds = 0;
  request.worst_ratio = any_ratio;
  request.limit_seconds = limit_seconds;
  request.is_network = true;
  request.is_cancelled = options_.is_cancelled;
  return request;
}

Measurement FleetNetwork::measure_steps(const std::string& candidate, const Plan& plan, double seconds) {
  MeasureRequest request = this->request(candidate);
  request.plan = &plan;
  request.seconds = seconds;
  request.wants_profile = true;
  Measurement measured = fleet_.measure(request);
  if (measured.status != Status::ok)
    throw Error(ErrorCode::device, "the network does not run on the device: " + how_it_ended(measured));
  return measured;
}

std::vector<StepProfile> FleetNetwork::profile(const Executable& untuned, std::vector<NDArray> inputs) {
  inputs_ = std::move(inputs);
  plan_ = untuned.plan();
  untuned.save(folder_ / "untuned.twa");
  const Measurement measured = measure_steps("untuned.twa", plan_, 0);
  std::vector<StepProfile> profile;
  for (size_t i = 0; i < plan_.steps.size(); ++i) {
    const Step& step = plan_.steps[i];
    profile.push_back({step.kernel, step.name, measured.step_seconds[i], static_cast<double>(step.flops),
                       static_cast<double>(step.bytes)});
  }
  return profile;
}

std::map<std::string, double> FleetNetwork::time_steps(const Executable& network) {
  network.save(folder_ / "tuned.twa");
  const Measurement measured = measure_steps("tuned.twa", network.plan(), least_seconds);
  std::vector<double> untuned;
  for (const Sample& sample : measured.samples) untuned.push_back(sample.incumbent);
  check(!untuned.empty(), "fleet: networks that were timed have samples");
  const auto middle = untuned.begin() + static_cast<std::ptrdiff_t>(untuned.size() / 2);
  std::nth_element(untuned.begin(), middle, untuned.end());
  std::map<std::string, double> runs;
  for (size_t i = 0; i < measured.step_seconds.size(); ++i)
    runs[network.plan().steps[i].name] += measured.step_seconds[i] / *middle;
  return runs;
}

std::string FleetNetwork::find_difference(const Executable& tuned) {
  tuned.save(folder_ / "tuned.twa");
  const Measurement measured = fleet_.measure(request("tuned.twa"));
  return measured.status == Status::ok ? "" : how_it_ended(measured);
}

Ratio FleetNetwork::compare(const Executable& tuned, double seconds) {
  tuned.save(folder_ / "tuned.twa");
  MeasureRequest request = this->request("tuned.twa");
  request.seconds = seconds;
  const Measurement measured = fleet_.measure(request);
  // What did not run to its end is no faster.
  return measured.status == Status::ok ? ratio_of(measured.samples) : Ratio{any_ratio, any_ratio, any_ratio};
}

}  // namespace tw::autotune
