// Extents that are made of several symbols, or of one in a way that is not linear, are named where nothing else is
// asked of these symbols: what is proved of tiles and tails then asks only how large an extent is.
//
//   f(a, b) { for i in 0..a * b { … X[i] … } }   ⇒   f(rows) { for i in 0..rows { … X[i] … } }   with rows = a * b
#pragma once

#include <vector>

#include "tensor_ir/ir.h"

namespace tw::relay {

struct NamedExtents {
  Func func;
  std::vector<Expr> parameters;  // what its parameters are, in terms of the parameters before
};
NamedExtents name_extents(const Func& func);

}  // namespace tw::relay
