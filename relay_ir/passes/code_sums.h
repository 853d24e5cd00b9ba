// Sums of the codes that a product multiplies, as i32: what a zero point, or a shift of all codes by a number, adds to
// its result.
//
//   Σ (a - z)·b = Σ a·b - z·Σ b        Σ a·(b - v) = Σ a·b - v·Σ a
#pragma once

#include "relay_ir/graph.h"
#include "relay_ir/op_facts.h"

namespace tw::relay {

class CodeSums {
 public:
  // Of a product of the graph that is copied; what is added to the copy has its name.
  CodeSums(GraphCopy& copy, const Node& product, const Linear& form) : copy_(copy), node_(product), form_(form) {}

  // factor · Σ of each filter's codes, shaped to stand beside the result.  What is multiplied is so before it has that
  // shape: where it is made.
  ValueId of_filters(ValueId weights, ValueId factor);
  // The codes of each row, or window: of one group, with no more axes than those of the result less that of filters.
  // `pad`: i32, what the window's pads hold; no_value: 0.
  ValueId of_rows(ValueId data, ValueId weights, ValueId pad = no_value);
  // rows · factor, one number or one a filter, shaped to stand beside the result.
  ValueId beside(ValueId rows, ValueId factor);
  // One number, or one a filter, shaped to stand beside the result.
  ValueId filters_beside(ValueId parameter);

 private:
  const TensorType& type(ValueId id) const { return copy_.to().values[id].type; }
  ValueId add(const char* op, std::vector<ValueId> inputs, NodeAttributes attributes = {});
  ValueId reshape(ValueId x, const std::vector<Expr>& shape);
  ValueId reduced(ValueId codes, std::vector<int64_t> axes);
  ValueId of_windows(ValueId data, ValueId weights, ValueId pad);

  GraphCopy& copy_;
  const Node& node_;
  const Linear form_;
};

}  // namespace tw::relay
