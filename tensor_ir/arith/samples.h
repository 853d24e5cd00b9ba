// What integer expressions are at a few points.  What holds for all values holds there, so what fails at one needs no
// attempt at a proof: most of what is asked of sizes is whether they are others that they are not.
#pragma once

#include <array>
#include <optional>

#include "tensor_ir/arith/simplify.h"

namespace tw {

// At each point a value; none where it is not known (of memory, of other types, or too large), or where the assumptions
// rule the point out.
using Samples = std::array<std::optional<int64_t>, 4>;

// Of an i64 or bool expression.  Points are the same for all expressions under the same assumptions.
Samples samples_of(const Expr& e, const Assumptions& assumptions = {});
// False: they differ at a point.
bool may_be_equal(const Samples& a, const Samples& b);
// Of a product, modulo 2^64: fit to be compared alone.
Samples product_of(const Samples& a, const Samples& b);

}  // namespace tw
