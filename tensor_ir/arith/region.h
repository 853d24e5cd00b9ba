// Which elements an index expression touches: a symbolic start and an extent, over the values of some inner loops.
//
//   h*2 + kh  over kh in 0..3, h in 0..4, h = h0*4 + h1   ⇒   base h0*8, extent 9
#pragma once

#include <unordered_map>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/ir.h"

namespace tw {

struct SymbolicRange {
  Expr base;    // in terms of the outer variables
  Expr extent;  // base ≤ value < base + extent; of the outer variables too, nearly always a constant
};

using InnerExtents = std::unordered_map<Var, Expr>;  // each variable runs over 0 ≤ var < extent

// The values that e takes while the inner variables run over their extents.  May be wider than the exact set, never
// narrower. Nothing when e is of a form that is not understood (a Load in it, for example).
std::optional<SymbolicRange> range_of(const Expr& e, const InnerExtents& inner, const Assumptions& assumptions = {});

// A range that holds both.  Nothing when the distance of their starts is not a constant.
std::optional<SymbolicRange> union_of(const SymbolicRange& a, const SymbolicRange& b,
                                      const Assumptions& assumptions = {});

// e as constant + Σ coefficient·atom: an atom is a Var or any expression that is not itself a sum or a multiple.
struct LinearForm {
  int64_t constant = 0;
  std::vector<std::pair<Expr, int64_t>> terms;  // structurally distinct atoms, coefficient not 0
};
LinearForm linear_form(const Expr& e);
// The remainder of e by `divisor` where it is the same for all values of the variables.
std::optional<int64_t> known_residue(const Expr& e, int64_t divisor);

}  // namespace tw
