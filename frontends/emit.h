// Small graphs that rules of all frontends emit.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "frontends/builder.h"
#include "relay_ir/ops/common.h"

namespace tw::frontends {

// Dimensions as integers; refuses the node when one is symbolic.
std::vector<int64_t> dims_of(const Builder& b, ValueId id);
// One of them; refuses the node when that one is symbolic.
int64_t dim_of(const Builder& b, ValueId id, int axis);
int rank_of(const Builder& b, ValueId id);
DType dtype_of(const Builder& b, ValueId id);
int rule_axis(const Builder& b, int64_t axis, int rank);
std::vector<int> rule_axes(const Builder& b, const std::vector<int64_t>& axes, int rank);

// `first`, first + 1 … up to the last.
std::vector<int> axes_from(const Builder& b, ValueId x, int first = 0);

ValueId emit_scalar(Builder& b, DType dtype, double value);
ValueId emit_ints(Builder& b, const std::vector<int64_t>& values, const std::vector<int64_t>& shape, DType dtype);
// 0, 1 … count - 1 as i64 in this shape.
ValueId emit_range(Builder& b, const Expr& count, const std::vector<Expr>& shape);
ValueId emit_reshape(Builder& b, ValueId x,
                     const std::vector<int64_t>& shape);  // x itself when it has the shape
ValueId emit_transpose(Builder& b, ValueId x, const std::vector<int64_t>& perm);
ValueId emit_broadcast(Builder& b, ValueId x, const std::vector<int64_t>& shape);
// The same with dimensions that may be symbolic.
ValueId emit_reshape_open(Builder& b, ValueId x, const std::vector<Expr>& shape);
ValueId emit_broadcast_open(Builder& b, ValueId x, const std::vector<Expr>& shape);
ValueId emit_cast(Builder& b, ValueId x, DType dtype);
// Elements begin, begin + step … of one axis.
ValueId emit_slice(Builder& b, ValueId x, int axis, const Expr& begin, const Expr& size, int64_t step = 1);
// Parts of these sizes, which are those of the axis together.
std::vector<ValueId> emit_split(Builder& b, ValueId x, int axis, const std::vector<Expr>& sizes);
ValueId emit_concat(Builder& b, const std::vector<ValueId>& parts, int axis);
// x with an axis of 1 there; x without one; tensors of one shape along an axis that is new.
ValueId emit_new_axis(Builder& b, ValueId x, int axis);
ValueId emit_without_axis(Builder& b, ValueId x, int axis);
ValueId emit_stack(Builder& b, std::vector<ValueId> parts, int axis);
ValueId emit_reduce(Builder& b, const std::string& op, ValueId x, const std::vector<int>& axes, bool keepdims);
// x · y by numpy's rules, vectors included.  `result`: type of the result, as the attribute of that name.
ValueId emit_matmul(Builder& b, ValueId x, ValueId y, const std::string& result = "");
// A per-channel vector [C] (or any vector along one axis) shaped to broadcast along `axis` of a tensor of that rank.
ValueId emit_along_axis(Builder& b, ValueId vector, int axis, int rank);
// f(x) in f32 for f16 and bf16, in x's own type otherwise; the result has x's type again.
ValueId in_accumulator(Builder& b, ValueId x, const std::function<ValueId(ValueId)>& f);

}  // namespace tw::frontends
