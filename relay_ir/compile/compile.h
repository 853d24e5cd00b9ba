// Graph + target + schedules → Executable: the whole compiler, top to bottom.
//
//   profiles → for each the graph → passes → fuse into groups → tensor expressions, the different ones → schedule
//   → lower → kernels → image → memory plans → pack constants → Executable
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "relay_ir/compile/profile.h"
#include "relay_ir/decision.h"
#include "relay_ir/graph.h"
#include "relay_ir/pass.h"
#include "runtime/executable.h"
#include "schedule/source.h"
#include "targets/backend.h"
#include "targets/kernel_cache.h"
#include "targets/target.h"

namespace tw::relay {

struct CompileOptions {
  ScheduleSource schedule;               // not set: the target's default
  DecisionSource decide;                 // of what passes leave open; not set: as analysis prefers
  Precision precision = Precision::f32;  // Error(target) where the target has no products of tf32
  int threads = 0;                       // of the Executable; 0: all cores of the affinity mask
  int jobs = 0;                          // compiler threads; 0: all cores
  // By name: of these, passes leave nothing open; winograd=0 and strassen=0 cost time and round less.
  Decisions constraints;
  KernelCache* cache = nullptr;
  // Output → input: the caller gives one array for both.  The output must be made from the input by updates of some of
  // its elements (ScatterND, ScatterElements, TensorScatter), which then write these only.  Others are refused.
  std::map<std::string, std::string> in_place = {};
  // Of a model with open dimensions: sizes that get a plan of their own beside the model's, as good as if the model was
  // compiled for them.  Runs take the first one that is for their sizes.
  std::vector<Profile> profiles = {};
  // Nodes of the model, by name, whose operands and results keep f32 where `precision` is another.  Error(input).
  std::set<std::string> kept_nodes = {};
  std::set<std::string> unfused_nodes = {};                 // likewise: kernels end before and after them
  std::set<std::string> skipped_passes = {};                // optional ones (passes.def), as TW_SKIP leaves them out
  AfterPass after_pass = {};                                // of tests
  std::map<std::string, HostFunction> host_functions = {};  // by name: of those that the model calls and no library has
};

// What a compilation did, for people.
struct CompileReport {
  // One of the different Funcs among the groups', as the schedule source was asked for it.
  struct Piece {
    Func func;
    std::vector<std::string> kernels;  // symbols; different Funcs may share one
    int groups = 0;                    // that compute it
    std::string name;                  // of the first of them: "conv1+relu1"
  };
  struct Phase {
    std::string name;
    double seconds;  // wall time
  };
  std::vector<Phase> phases;  // in order
  std::vector<Piece> pieces;
  std::vector<GraphDecision> decisions;  // in the order of nodes, the model's before those of profiles
  int groups = 0;                        // of nodes, of all plans
  int funcs = 0;                         // different ones among the groups'
  int kernels = 0, cached_kernels = 0;
  // Loops that stayed on one worker because a default schedule could not prove their iterations independent, as
  // "conv1+relu1: loop `i`".  They compute right; they are slow, and worth a report to us.
  std::vector<std::string> serial_loops;
  // Likewise buffers that a default schedule wants in registers and that are in memory, as "softmax1: `softmax_sum`".
  std::vector<std::string> spilled_buffers;
  std::map<std::string, MemoryRequests> requests;  // of GPUs' kernels, by symbol
};

// The graph after the passes and layout assignment, before fusion.  `decisions`: what passes asked is added to it.
Graph optimise(const Graph& graph, const Target& target, const CompileOptions& options = {},
               std::vector<GraphDecision>* decisions = nullptr);

Executable compile(const Graph& graph, const Target& target, const CompileOptions& options = {},
                   CompileReport* report = nullptr);

}  // namespace tw::relay
