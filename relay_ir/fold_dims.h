// What becomes of shapes that a model computes with: operators on small tensors of which every element is known as an
// expression of open dimensions.
#pragma once

#include "relay_ir/op.h"

namespace tw::relay {

// Elements are constants; dimensions (i64), also where the tensor has other integers; or, where it has floats,
// expressions of these that are whole numbers or fractions: ceil(f32(n) / 2.0).  Truths are comparisons of them.
struct FoldedDims {
  TensorType type;
  std::vector<Expr> elements;
};
// Such a float as a fraction of a dimension by a positive number.
struct Fraction {
  Expr above;
  int64_t below = 1;
};
std::optional<Fraction> as_fraction(const Expr& e);
// The only result's elements.  Nothing where the operator is no plain function of indices and elements.  Numbers are
// taken not to overflow, and fractions to be exact: sizes are less than 2^24.
std::optional<FoldedDims> fold_dims(const OpDef& op, const NodeAttributes& attributes,
                                    const std::vector<TensorType>& types, const std::vector<std::vector<Expr>>& inputs);

}  // namespace tw::relay
