// Software pipelining, as the pass does it and as the schedule primitive asks beforehand whether it may.
#pragma once

#include <string>
#include <vector>

#include "tensor_ir/ir.h"

namespace tw {

// A loop with this attribute, an integer ≥ 2, is pipelined with that many stages.
inline constexpr const char* pipeline_attribute = "pipeline";
inline constexpr int64_t most_pipeline_stages = 16;

// With this one, too, its copies may be made by threads that do nothing else, and go on with those of the next time
// that the loop runs: the versions of what is copied follow each other from one time to the next.
inline constexpr const char* copying_warp_attribute = "copying_warp";

// A loop's body taken apart.  A copy is a statement that reads nothing which the body writes, and writes only memory
// that the body allocates for itself: the copies of any later iteration may run before anything of an earlier one, once
// each iteration has memory of its own.
struct PipelineParts {
  std::vector<Buffer> staged;  // what the copies fill
  std::vector<Buffer> others;  // also allocated in the body
  std::vector<Stmt> copies, rest;
  std::string problem, help;  // not empty: the loop cannot be pipelined
};
// Of scheduled and of lowered form.
PipelineParts pipeline_parts(const For& loop);

}  // namespace tw
