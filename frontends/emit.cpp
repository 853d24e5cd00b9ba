#include "frontends/emit.h"

#include <algorithm>
#include <numeric>

#include "tensor_ir/arith/simplify.h"

namespace tw::frontends {

std::vector<int64_t> dims_of(const Builder& b, ValueId id) {
  const auto shape = static_shape(b.type(id));
  if (!shape) b.refuse(open_dimension_text(b.type(id)));
  return *shape;
}

int64_t dim_of(const Builder& b, ValueId id, int axis) {
  const TensorType& type = b.type(id);
  const auto dim = as_int(type.shape[axis]);
  if (!dim) b.refuse(open_dimension_text(type, axis));
  return *dim;
}

int rank_of(const Builder& b, ValueId id) {
  return b.type(id).rank();
}

DType dtype_of(const Builder& b, ValueId id) {
  return b.type(id).dtype;
}

int rule_axis(const Builder& b, int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    throw Error(ErrorCode::shape, b.op() + ": axis " + std::to_string(axis) + " is outside rank " +
                                      std::to_string(rank) + "\n  help: axes run from -rank to rank-1");
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<int> rule_axes(const Builder& b, const std::vector<int64_t>& axes, int rank) {
  std::vector<int> result;
  for (const int64_t axis : axes) result.push_back(rule_axis(b, axis, rank));
  return result;
}

std::vector<int> axes_from(const Builder& b, ValueId x, int first) {
  std::vector<int> axes(std::max(0, rank_of(b, x) - first));
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}

ValueId emit_scalar(Builder& b, DType dtype, double value) {
  NDArray array(dtype, {});
  if (dtype.is_float())
    array.set_float(0, value);
  else
    array.set_int(0, static_cast<int64_t>(value));
  return b.emit_constant(array);
}

ValueId emit_ints(Builder& b, const std::vector<int64_t>& values, const std::vector<int64_t>& shape, DType dtype) {
  return b.emit_constant(int_array(values, dtype).reshape(shape));
}

ValueId emit_range(Builder& b, const Expr& count, const std::vector<Expr>& shape) {
  return emit_reshape_open(b, b.emit("range", {}, attributes_of({{"count", std::vector<Expr>{count}}})), shape);
}

ValueId emit_reshape(Builder& b, ValueId x, const std::vector<int64_t>& shape) {
  return emit_reshape_open(b, x, {shape.begin(), shape.end()});
}

ValueId emit_reshape_open(Builder& b, ValueId x, const std::vector<Expr>& shape) {
  if (b.type(x) == TensorType{dtype_of(b, x), shape}) return x;
  return b.emit("reshape", {x}, attributes_of({{"shape", shape}}));
}

ValueId emit_transpose(Builder& b, ValueId x, const std::vector<int64_t>& perm) {
  if (std::is_sorted(perm.begin(), perm.end())) return x;
  return b.emit("transpose", {x}, attributes_of({{"perm", perm}}));
}

ValueId emit_broadcast(Builder& b, ValueId x, const std::vector<int64_t>& shape) {
  return emit_broadcast_open(b, x, {shape.begin(), shape.end()});
}

ValueId emit_broadcast_open(Builder& b, ValueId x, const std::vector<Expr>& shape) {
  if (b.type(x) == TensorType{dtype_of(b, x), shape}) return x;
  return b.emit("broadcast_to", {x}, attributes_of({{"shape", shape}}));
}

ValueId emit_cast(Builder& b, ValueId x, DType dtype) {
  if (b.type(x).dtype == dtype) return x;
  return b.emit("cast", {x}, attributes_of({{"to", to_string(dtype)}}));
}

ValueId emit_slice(Builder& b, ValueId x, int axis, const Expr& begin, const Expr& size, int64_t step) {
  const TensorType& type = b.type(x);
  if (is_const_int(begin, 0) && step == 1 && is_same_dim(type.shape[axis], size)) return x;
  return b.emit("slice", {x},
                attributes_of({{"axes", std::vector<int64_t>{axis}},
                               {"starts", std::vector<Expr>{begin}},
                               {"sizes", std::vector<Expr>{size}},
                               {"steps", std::vector<int64_t>{step}}}));
}

std::vector<ValueId> emit_split(Builder& b, ValueId x, int axis, const std::vector<Expr>& sizes) {
  Expr total(0);
  for (const Expr& size : sizes) {
    if (as_int(size).value_or(0) < 0) throw Error(ErrorCode::shape, b.op() + ": a negative size\n  help: 0 or more");
    total = simplify(total + size);
  }
  b.require_equal(total, b.type(x).shape[axis], "sizes that are not those of the axis");
  std::vector<ValueId> parts;
  Expr begin(0);
  for (const Expr& size : sizes) {
    parts.push_back(emit_slice(b, x, axis, begin, size));
    begin = simplify(begin + size);
  }
  return parts;
}

ValueId emit_concat(Builder& b, const std::vector<ValueId>& parts, int axis) {
  if (parts.size() == 1) return parts[0];
  return b.emit("concat", parts, attributes_of({{"axis", int64_t{axis}}}));
}

ValueId emit_new_axis(Builder& b, ValueId x, int axis) {
  std::vector<Expr> shape = b.type(x).shape;
  shape.insert(shape.begin() + axis, Expr(1));
  return emit_reshape_open(b, x, shape);
}

ValueId emit_without_axis(Builder& b, ValueId x, int axis) {
  std::vector<Expr> shape = b.type(x).shape;
  shape.erase(shape.begin() + axis);
  return emit_reshape_open(b, x, shape);
}

ValueId emit_stack(Builder& b, std::vector<ValueId> parts, int axis) {
  for (ValueId& part : parts) part = emit_new_axis(b, part, axis);
  return emit_concat(b, parts, axis);
}

ValueId emit_reduce(Builder& b, const std::string& op, ValueId x, const std::vector<int>& axes, bool keepdims) {
  return b.emit(
      op, {x},
      attributes_of({{"axes", std::vector<int64_t>(axes.begin(), axes.end())}, {"keepdims", int64_t{keepdims}}}));
}

// Numpy's product: a vector on the left is a row, on the right a column, and that dimension goes away again.
ValueId emit_matmul(Builder& b, ValueId x, ValueId y, const std::string& result) {
  const bool row = rank_of(b, x) == 1, column = rank_of(b, y) == 1;
  if (rank_of(b, x) == 0 || rank_of(b, y) == 0) b.refuse("a scalar");
  if (row) x = emit_reshape_open(b, x, {Expr(1), b.type(x).shape[0]});
  if (column) y = emit_reshape_open(b, y, {b.type(y).shape[0], Expr(1)});
  const ValueId product = b.emit("matmul", {x, y}, attributes_of({{"result", result}}));
  if (!row && !column) return product;
  std::vector<Expr> shape = b.type(product).shape;
  if (column) shape.pop_back();
  if (row) shape.erase(shape.end() - (column ? 1 : 2));
  return emit_reshape_open(b, product, shape);
}

ValueId emit_along_axis(Builder& b, ValueId vector, int axis, int rank) {
  if (rank_of(b, vector) != 1 || rank <= axis) b.refuse("a parameter of type " + to_string(b.type(vector)));
  std::vector<Expr> shape(rank - axis, Expr(1));
  shape[0] = b.type(vector).shape[0];
  return emit_reshape_open(b, vector, shape);
}

ValueId in_accumulator(Builder& b, ValueId x, const std::function<ValueId(ValueId)>& f) {
  const DType dtype = dtype_of(b, x);
  return emit_cast(b, f(emit_cast(b, x, accumulator_of(dtype))), dtype);
}

}  // namespace tw::frontends
