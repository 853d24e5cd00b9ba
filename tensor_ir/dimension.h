// A symbolic dimension: a variable that is a parameter of a Func and knows what it may be.
#pragma once

#include <limits>
#include <optional>
#include <string>

#include "tensor_ir/ir.h"

namespace tw {

struct DimensionBounds {  // both ends included
  int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  bool operator==(const DimensionBounds&) const = default;
};

// Everything that is done to a Func may rely on the bounds of its parameters.  `demanded_by`: what sets them, for
// people.
Var dimension(std::string name, DimensionBounds bounds, std::string demanded_by = "",
              std::optional<int64_t> typical = std::nullopt);
// The size that what is decided for all sizes at once should be good for; nothing when nobody says.
std::optional<int64_t> typical_size(const ExprNode& var);
const std::string& bounds_demanded_by(const Var& var);  // "" when nobody says
DimensionBounds dimension_bounds(const ExprNode& var);  // of any other variable: every i64
inline DimensionBounds dimension_bounds(const Var& var) {
  return dimension_bounds(*var.get());
}

}  // namespace tw
