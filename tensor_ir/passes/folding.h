// Substitution that folds constants on its way, as copying code out needs it: `0*6 + i < 512` with i = 3 is `true`, and
// an If of it is its body.  Cheap: no ranges are consulted.
#pragma once

#include "tensor_ir/match.h"

namespace tw {

Expr fold_substitute(const Expr& e, const Substitution& values);
Stmt fold_substitute(const Stmt& s, const Substitution& values);

// Integer arithmetic on scalars, ramps and broadcasts that keeps ramps: ramp(b, s) * c → ramp(b*c, s*c).
Expr vector_binary(BinaryOp op, const Expr& a, const Expr& b);

// The value of each lane, where all are constants.
std::optional<std::vector<int64_t>> constant_lanes(const Expr& e);

}  // namespace tw
