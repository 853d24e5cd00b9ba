// Parser of the text form (SYNTAX.md).  Error(text) locates, explains and suggests; it never crashes on bad input, and
// stops at stated limits (nesting depth 256, 16 MiB of text).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tensor_ir/ir.h"

namespace tw {

Func parse_func(std::string_view text, const std::string& file = "<text>");
std::vector<Func> parse_funcs(std::string_view text, const std::string& file = "<text>");

}  // namespace tw
