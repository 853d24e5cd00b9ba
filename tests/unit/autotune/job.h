// A tuning job whose clock, measurer and comparison are predictable: candidates run in this process, and how fast one
// is follows from its code.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "autotune/search/space.h"
#include "autotune/task.h"
#include "autotune/tune.h"
#include "relay_ir/text/parser.h"
#include "tests/unit/runtime/test_model.h"

namespace tw::autotune::test {

using namespace tw::test;  // NOLINT
using Access = Database::Access;

inline relay::Graph network() {
  return relay::parse_graph(R"(graph g (x: f32[1, 16, 12, 12]) {
    w1 = constant [0.03]: f32[32, 16, 3, 3]
    w2 = constant [0.02]: f32[24, 32, 1, 1]
    c1 = conv(x, w1) {pads = [1, 1, 1, 1]}
    r1 = relu(c1)
    c2 = conv(r1, w2)
    p = max_pool(c2) {kernel = [2, 2], `strides` = [2, 2], dilations = [1, 1], pads = [0, 0, 0, 0]}
    return p
  })");
}

class TuningJob : public testing::Test {
 protected:
  TuningJob() {
    options_.compile.threads = 1;
    options_.compile.constraints = {{"winograd", {0}}};
    options_.budget_seconds = 1e6;
    options_.most_trials = 6;
    options_.now = [this] { return clock_ += 1; };
    options_.on_event = [this](const std::string& line) { events_.push_back(nlohmann::json::parse(line)); };
    options_.measure_bounds = [] { return TuneOptions::Bounds{1e11, 1e10}; };
    options_.compare_networks = [this](Executable&, Executable&) { return ++comparisons_, network_ratio_; };
    options_.measure_candidate = [this](const MeasureRequest& request) { return measure(request); };
    // Each kernel takes as long as the others: which is tried next does not follow from a clock.
    options_.profile = [](Executable& network) {
      std::vector<StepProfile> profile;
      for (const Step& step : network.plan().steps) profile.push_back({step.kernel, step.name, 1});
      return profile;
    };
  }

  // Runs it here; how fast it is follows from its code.
  Measurement measure(const MeasureRequest& request) {
    Measurement measured;
    Executable candidate = Executable::load(request.candidate);
    const size_t hash = std::hash<std::string>()(candidate.plan().steps.at(0).kernel);
    const double seconds = 0.6 + 0.01 * static_cast<double>(hash % 80);
    if (request.seconds > 0 && status_ != Status::ok) {
      measured.status = status_;
      return measured;
    }
    for (const auto& inputs : request.inputs) {
      // A kernel may leave the padding of an output's last block of channels as it was.
      std::vector<NDArray> outputs;
      for (const TensorInfo& tensor : candidate.plan().outputs) {
        outputs.emplace_back(tensor.dtype, tensor.shape);
        std::memset(outputs.back().data(), 0, outputs.back().byte_size());
      }
      candidate.run_into(inputs, outputs);
      measured.outputs.push_back(std::move(outputs));
    }
    for (int i = 0; i < 9 && request.seconds > 0; ++i) measured.samples.push_back({1.0, seconds});
    return measured;
  }

  TuneReport run() {
    Database database(folder_ / "tune.db", Access::write);
    return tune(network(), parse_target("cpu"), database, options_);
  }
  std::vector<Record> winners(int threads = 1, const std::string& target = "cpu") {
    const Database database(folder_ / "tune.db", Access::read);
    return database.winners(target_key(parse_target(target), threads), space_version, compiler_key());
  }
  int64_t count_records() { return Database(folder_ / "tune.db", Access::read).summary().records; }

  test::Folder folder_;
  TuneOptions options_;
  Ratio network_ratio_{0.9, 0.89, 0.91};
  Status status_ = Status::ok;
  double clock_ = 0;
  int comparisons_ = 0;
  std::vector<nlohmann::json> events_;
};

}  // namespace tw::autotune::test
