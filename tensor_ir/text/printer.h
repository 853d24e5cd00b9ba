// Text of tensor_ir, as SYNTAX.md defines it.  parse_func(to_text(f)) is structurally equal to f, always; names that
// collide are made unique (i, i_1).
#pragma once

#include <string>

#include "tensor_ir/ir.h"

namespace tw {

std::string to_text(const Expr& e);
std::string to_text(const Stmt& s);
std::string to_text(const Func& f);
std::string to_text(Intrinsic intrinsic);
std::string to_text(Scope scope);  // "register" for Scope::register_

}  // namespace tw
