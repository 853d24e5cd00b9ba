// What a measuring child finds out, before anybody compares outputs.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tw::autotune {

struct Sample {
  double incumbent = 0, candidate = 0;  // seconds of runs side by side
};

// How a trial ends; the words are those of the database.  `refused`: a primitive, lowering or code generation did.
enum class Status { ok, timeout, crash, wrong, spill, refused };

struct ChildResult {
  Status status = Status::ok;  // or timeout, crash
  std::string detail;          // of what is not ok
  bool filters_calls = false;  // whether the kernel kept the child from all system calls but harmless ones
  // Where it is ok.
  std::vector<Sample> samples;
  std::vector<std::byte> outputs;    // as in the exchange (exchange.h): of all sets, candidate's and incumbent's
  std::vector<double> step_seconds;  // by step of the plan, where a profile was asked for
};

}  // namespace tw::autotune
