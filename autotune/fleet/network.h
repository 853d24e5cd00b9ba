// The whole network on a device of a fleet, in the confined child as its kernels are.
#pragma once

#include "autotune/fleet/fleet.h"
#include "autotune/tune.h"

namespace tw::autotune {

class FleetNetwork {
 public:
  // `folder`: for artifacts, one job's own.
  FleetNetwork(Fleet& fleet, const TuneOptions& options, std::filesystem::path folder)
      : fleet_(fleet), options_(options), folder_(std::move(folder)) {}

  // Of the network with default schedules, beside which others run from now on.
  std::vector<StepProfile> profile(const Executable& untuned, std::vector<NDArray> inputs);
  // Of another network with these inputs and outputs: what its steps take by name, each kernel alone, in runs of the
  // untuned network on the same device.  Devices of one kind may still be of different speed.
  std::map<std::string, double> time_steps(const Executable& network);
  // Where the network with other schedules does not compute the same; empty: nowhere.
  std::string find_difference(const Executable& tuned);
  Ratio compare(const Executable& tuned, double seconds);

 private:
  MeasureRequest request(const std::string& candidate) const;
  Measurement measure_steps(const std::string& candidate, const Plan& plan, double seconds);

  Fleet& fleet_;
  const TuneOptions& options_;
  std::filesystem::path folder_;
  std::vector<NDArray> inputs_;
  Plan plan_;  // of the untuned one
};

}  // namespace tw::autotune
