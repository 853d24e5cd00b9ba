// Conditions as values that loops move: whether they hold in all iterations, or in none.
#pragma once

#include <optional>
#include <vector>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/ir.h"

namespace tw {

// a < b or a <= b as a value that is then at least 0.
std::optional<Expr> slack_of(const Expr& condition);

struct Extremes {
  Expr least, most;
};
// Of e while the loops run; nothing where it does not move by a constant with one of them, or an extent depends on
// another one.
std::optional<Extremes> extremes_within(const Expr& e, const std::vector<const For*>& loops, const Assumptions& ranges);

// A value that falls by a constant from each iteration of a loop to the next.
struct Fall {
  Expr first;              // the most that it is in the first one
  int64_t step;            // 1 or more
  int64_t within_one = 0;  // what it falls in one at the most, along other loops
};
// …while the loops in `others` run; nothing where it does not fall, or where it is not known by how much.
std::optional<Fall> fall_along(const Expr& e, const For& loop, const std::vector<const For*>& others,
                               const Assumptions& ranges);

}  // namespace tw
