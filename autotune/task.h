// What is tuned: a Func, up to names and without its weights, on a target.  Most are kernels of a network, and what is
// decided is their schedule; some are nodes of it, and what is decided is what a pass of graphs makes of them.  Both
// are decisions (schedule/decisions.h), and their records are alike; a kernel is measured alone, a node in the network.
#pragma once

#include <string>
#include <vector>

#include "relay_ir/compile/compile.h"

namespace tw::autotune {

// The same on every platform for Funcs that differ in names only.
std::string task_key(const Func& func);
bool has_constant_shapes(const Func& func);

// Everything that a schedule and its speed depend on, as JSON: instruction set, registers, caches, threads of a run on
// a CPU.
std::string target_facts(const Target& target, int threads);
std::string target_key(const Target& target, int threads);

// The build of this compiler, in hexadecimal digits: other builds may make other code of the same schedule.
std::string compiler_key();

// One Func of a network, and what of the network's time it takes.
struct Task {
  std::string key;
  std::string name;  // of one of the groups that compute it, for people
  Func func;
  int groups = 0;               // that compute it
  double seconds = 0;           // of all of them in a run
  double flops = 0, bytes = 0;  // that they do and move in it
};

// The pieces that leave a schedule something to decide and that can be measured alone: shapes are constant, and no
// index is read from memory, where made-up numbers could point anywhere.  `profile` is of the compiled network.
std::vector<Task> find_tasks(const std::vector<relay::CompileReport::Piece>& pieces,
                             const std::vector<StepProfile>& profile, const Target& target);

// Digest of the tasks of a network.
std::string model_key(const std::vector<relay::CompileReport::Piece>& pieces);

}  // namespace tw::autotune
