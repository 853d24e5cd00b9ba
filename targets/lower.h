// From a scheduled Func to kernels, by the passes that the target's backend lists.
#pragma once

#include <string>
#include <vector>

#include "targets/target.h"
#include "tensor_ir/ir.h"

namespace tw {

// One KernelFunction (runtime/plan/plan.h) or GPU kernel, in lowered form: flat buffers, no blocks.
struct Kernel {
  std::string symbol;
  // Its body is `for task in 0..n parallel { … }` or, where there is nothing to share out, any statement (n = 1); on
  // GPUs loops bound to thread axes.  The oracle runs it as it is.  Buffers: those of the Func that it uses, then
  // temporaries, then, when it has one, `workspace`: u8 scratch of one worker.
  Func func;
  Expr tasks;                // n: constant, or of func.parameters
  Expr workspace_bytes = 0;  // constant, or of func.parameters
  bool has_workspace() const { return !is_const_int(workspace_bytes, 0); }
};

struct LoweredFunc {
  std::vector<Kernel> kernels;      // to run in order, each after the one before has ended
  std::vector<Buffer> temporaries;  // global buffers that live between kernels
  // Register buffers that are in memory instead, for the schedule leaves a loop that indexes them as it is.
  std::vector<std::string> spilled;
};

LoweredFunc lower(const Func& scheduled, const Target& target, const std::string& symbol);

// Renames kernels by what they compute, "conv2d_5c1e09a2b7d34f60": so the same kernel of another model, or of this one
// after a change elsewhere, has the same symbol and object.  Kernels of one symbol are equal (64 bits of a digest).
void name_by_content(LoweredFunc& lowered, const std::string& prefix);

}  // namespace tw
