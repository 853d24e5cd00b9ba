// Candidates that do what none should (autotune_hostile.c), and how each of them has to end.
#pragma once

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "autotune/measure/exchange.h"
#include "autotune/measure/measure.h"
#include "tests/unit/runtime/test_model.h"

namespace tw::autotune::test {

using namespace tw::test;  // NOLINT

static_assert(offsetof(Exchange, progress) == 44 && offsetof(Exchange, rounds) == 52 &&
                  offsetof(Exchange, incumbent) == 56 && offsetof(Exchange, message) == 56 + 2 * 8 * 256,
              "autotune_hostile.c knows the exchange");

// x → out, one f32 each.
inline Executable hostile_program(const std::string& kernel, const std::string& image = TW_HOSTILE_IMAGE,
                                  const std::string& architecture = host_cpu().architecture) {
  Plan plan;
  plan.inputs = {{"x", f32, {1}}};
  plan.outputs = {{"out", f32, {1}}};
  plan.steps = {{kernel, kernel, {{Storage::input, 0, 0, 4}, {Storage::output, 0, 0, 4}}, {}, 1}};
  return {read_bytes(image), plan, {}, {architecture, "test", {}}};
}

struct Hostile {
  const char* kernel;
  std::set<Status> ends;  // where the kernel filters system calls, and where it does not
};

inline const std::vector<Hostile>& hostile_kernels() {
  static const std::vector<Hostile> list = {
      {"wrong", {Status::wrong}},
      {"silent", {Status::wrong}},
      {"crash", {Status::crash}},
      {"trap", {Status::crash}},
      {"jump_nowhere", {Status::crash}},
      {"stack_overflow", {Status::crash}},
      {"endless", {Status::timeout}},
      {"sleepy", {Status::timeout}},
#if !defined(__SANITIZE_ADDRESS__) && !__has_feature(address_sanitizer)  // whose memory cannot be limited
      {"greedy", {Status::crash, Status::timeout}},
#endif
      {"fork_bomb", {Status::crash, Status::timeout}},
      {"write_file", {Status::crash, Status::ok}},
      {"move_others", {Status::crash, Status::ok}},
      {"flood", {Status::crash, Status::timeout}},
      {"exit_well", {Status::crash}},
      {"exit_badly", {Status::crash}},
      {"unmap_all", {Status::crash, Status::timeout}},
      {"protect_code", {Status::crash}},
      {"claim_measured", {Status::wrong}},
      {"claim_no_rounds", {Status::crash}},
      {"claim_failed", {Status::crash}},
      {"claim_unknown", {Status::crash}},
      {"smash_exchange", {Status::crash, Status::timeout}},
      {"absurd_times", {Status::crash}},
  };
  return list;
}

// A request for two of these programs, written to a folder.
struct HostileRequest {
  explicit HostileRequest(const std::string& image = TW_HOSTILE_IMAGE,
                          const std::string& architecture = host_cpu().architecture)
      : image_(image), architecture_(architecture) {}
  MeasureRequest of(const std::string& candidate, const std::string& incumbent = "right") {
    MeasureRequest request;
    const Executable ours = hostile_program(candidate, image_, architecture_);
    plan_ = ours.plan();
    request.program = TW_MEASURE;
    request.candidate = folder_ / (candidate + ".twa");
    request.incumbent = folder_ / (incumbent + ".incumbent.twa");
    ours.save(request.candidate);
    hostile_program(incumbent, image_, architecture_).save(request.incumbent);
    request.plan = &plan_;
    request.seconds = 0.01;
    for (int set = 0; set < input_sets; ++set) {
      NDArray x(f32, {1});
      x.set_float(0, set + 1);
      request.inputs.push_back({x});
    }
    return request;
  }

 private:
  std::string image_, architecture_;
  Folder folder_;
  Plan plan_;
};

}  // namespace tw::autotune::test
