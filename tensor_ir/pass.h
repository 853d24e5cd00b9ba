// Passes over Funcs (passes.def), each of which runs in a scope (pass_scope.h).
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor_ir/ir.h"

namespace tw {

Func run_pass(std::string_view name, const Func& f, const std::function<Func(const Func&)>& pass);

// By name, for tw-opt --pass.  Those of passes.def that take no options.
using PassFunction = Func (*)(const Func&);
PassFunction find_pass(std::string_view name);  // null: unknown
std::vector<std::string> pass_names();

}  // namespace tw
