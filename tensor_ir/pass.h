// PassScope: every pass over a Func runs through here; it is timed, verified, dumpable and, if optional, skippable.
//
//   TW_DUMP=dir     writes dir/FUNC.00_input.tw, dir/FUNC.03_flatten_buffers.tw … for each Func, by its name
//   TW_SKIP=a,b     leaves out optional passes (passes.def says which)
//   TW_VERIFY=1     verifies after each pass (always on in tests)
//
// An Error that leaves a pass says which pass and Func it was.  A pass that breaks an invariant is a bug of ours:
// Error(internal) with the violations and the text before the pass.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor_ir/ir.h"

namespace tw {

Func run_pass(std::string_view name, const Func& f, const std::function<Func(const Func&)>& pass);

struct PassTime {
  std::string name;
  double seconds;
  int64_t runs;
};
std::vector<PassTime> pass_times();  // of this process so far, in the order of first runs

// By name, for tw-opt --pass.  Those of passes.def that take no options.
using PassFunction = Func (*)(const Func&);
PassFunction find_pass(std::string_view name);  // null: unknown
std::vector<std::string> pass_names();

}  // namespace tw
