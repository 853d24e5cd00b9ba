#include "relay_ir/ops/common.h"

#include <algorithm>

#include "relay_ir/ops/narrow.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/text/printer.h"

namespace tw::relay {

std::string open_dimension_text(const TensorType& type) {
  const auto open = std::find_if(type.shape.begin(), type.shape.end(), [](const Expr& dim) { return !as_int(dim); });
  return open_dimension_text(type, static_cast<int>(open - type.shape.begin()));
}

std::string open_dimension_text(const TensorType& type, int axis) {
  return "dimension " + std::to_string(axis) + " of " + to_string(type) +
         " is open, which this use of the operator cannot be; fix `" + to_text(type.shape[axis]) + "` with shapes=";
}

std::vector<int64_t> const_dims(const OpCall& call, const TensorType& type) {
  const auto shape = static_shape(type);
  if (!shape) call.fail(open_dimension_text(type));
  return *shape;
}

int normal_axis(const OpCall& call, int64_t axis, int rank) {
  call.require(axis >= -rank && axis < rank,
               "axis " + std::to_string(axis) + " is outside rank " + std::to_string(rank));
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<int> normal_axes(const OpCall& call, const std::vector<int64_t>& axes, int rank) {
  std::vector<int> result;
  for (const int64_t axis : axes) result.push_back(normal_axis(call, axis, rank));
  std::sort(result.begin(), result.end());
  call.require(std::adjacent_find(result.begin(), result.end()) == result.end(), "an axis is named twice");
  return result;
}

bool contains(const std::vector<int>& list, int value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

DType dtype_attribute(const OpCall& call, const std::string& name) {
  const auto dtype = parse_element_type(call.attributes.get_string(name));
  call.require(dtype.has_value(), "attribute `" + name + "` is no element type");
  return *dtype;
}

bool is_half(DType dtype) {
  return dtype == f16 || dtype == bf16;
}

bool is_float8(DType dtype) {
  return dtype == f8e4m3fn || dtype == f8e5m2;
}

DType accumulator_of(DType dtype) {
  return is_half(dtype) ? f32 : dtype;
}

AttributeDef result_attribute() {
  return {"result", "", false,
          "type of the result: f32 of f16, bf16, f8e4m3fn, f8e5m2 and 8-bit integers, i32 of 8-bit integers"};
}

AttributeDef operands_attribute() {
  return {"operands", "", false, "tf32: inputs of f32 are rounded to it as they are multiplied"};
}

void require_operands(const OpCall& call) {
  const std::string& operands = call.attributes.get_string("operands");
  const bool is_single = call.inputs[0].dtype == f32 && call.inputs[1].dtype == f32;
  call.require(operands.empty() || (operands == "tf32" && is_single), "operands of f32 are rounded to tf32");
}

Expr factor_of(const OpCall& call, size_t input, const Expr& element) {
  if (!call.attributes.get_string("operands").empty()) return tw::call(Intrinsic::round_tf32, {element});
  const DType dtype = call.inputs[input].dtype, accumulator = accumulator_of(call.outputs[0].dtype);
  return dtype.is_minifloat() ? converted(element, dtype, accumulator) : cast(accumulator, element);
}

DType contraction_dtype(const OpCall& call) {
  const DType a = call.inputs[0].dtype, b = call.inputs[1].dtype;
  require_operands(call);
  if (call.attributes.get_string("result").empty()) {
    for (const DType input : {a, b})
      call.require(!input.is_narrow(),
                   "narrow types are stored, moved and converted; nothing is computed in " + to_string(input));
    call.require(a == b && !a.is_bool(), "inputs have one type of numbers");
    return a;
  }
  const DType result = dtype_attribute(call, "result");
  const auto is_narrow = [&](DType dtype) {
    const bool is_byte = dtype.is_integer() && dtype.bits == 8;
    return is_byte || (result == f32 && (dtype == f32 || is_half(dtype) || is_float8(dtype)));
  };
  call.require((result == f32 || result == i32) && is_narrow(a) && is_narrow(b),
               "the result is f32 of 8-bit integers and floats of at most 32 bits (f8e4m3fn, f8e5m2), or i32 of 8-bit "
               "integers");
  return result;
}

te::Tensor cast_stage(const te::Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype) return tensor;
  return te::compute(tensor.buffer()->name + "_" + to_string(dtype), tensor.shape(), {tensor},
                     [&](const te::Indices& i) { return cast(dtype, tensor(i)); });
}

Expr product_of(const std::vector<Expr>& extents) {
  Expr result(1);
  for (const Expr& extent : extents) result = result * extent;
  return result;
}

Expr minimum_of(Expr a, Expr b) {
  return a.dtype().is_float() || b.dtype().is_float() ? call(Intrinsic::minimum, {a, b}) : min(a, b);
}

Expr maximum_of(Expr a, Expr b) {
  return a.dtype().is_float() || b.dtype().is_float() ? call(Intrinsic::maximum, {a, b}) : max(a, b);
}

Expr data_index(Expr index, const Expr& extent) {
  index = cast(i64, index);
  if (is_const_int(extent, 1)) return Expr(0);
  return max(min(select(index < 0, index + extent, index), extent - 1), Expr(0));
}

Expr loaded_where(const Expr& condition, const te::Tensor& x, const te::Indices& at) {
  if (const auto known = as_int(condition)) return *known ? x(at) : zero_of(x.dtype());
  return load(x.buffer(), at, condition);
}

Expr in_bounds(const Expr& index, const Expr& extent) {
  return index >= 0 && index < extent;
}

Expr flatten_index(const te::Indices& indices, const std::vector<Expr>& shape) {
  Expr flat(0);
  for (size_t i = 0; i < shape.size(); ++i) flat = flat * shape[i] + indices[i];
  return flat;
}

te::Indices unflatten_index(Expr flat, const std::vector<Expr>& shape) {
  te::Indices indices(shape.size());
  int first = 0;  // the outermost dimension that is not 1 needs no modulo
  while (first < static_cast<int>(shape.size()) && is_const_int(shape[first], 1)) ++first;
  for (int i = static_cast<int>(shape.size()) - 1; i >= 0; --i) {
    if (is_const_int(shape[i], 1)) {
      indices[i] = Expr(0);
    } else if (i == first) {
      indices[i] = flat;
    } else {
      indices[i] = floor_mod(flat, shape[i]);
      flat = floor_div(flat, shape[i]);
    }
  }
  return indices;
}

bool is_same_dim(const Expr& a, const Expr& b) {
  const auto x = as_int(a), y = as_int(b);
  if (x && y) return *x == *y;
  return a.is_same(b) || is_known_equal(a, b);
}

te::Indices reshape_index(const te::Indices& indices, const std::vector<Expr>& to, const std::vector<Expr>& from) {
  // Pairs of runs of dimensions with equal products: [1, 128, 768] ↔ [1, 128, 12, 64] need arithmetic in the last run
  // only.
  te::Indices result(from.size());
  size_t i = 0, j = 0;  // in to, from
  while (i < to.size() || j < from.size()) {
    size_t i_end = i, j_end = j;
    Expr to_product(1), from_product(1);
    auto take_to = [&] { to_product = simplify(to_product * to[i_end++]); };
    auto take_from = [&] { from_product = simplify(from_product * from[j_end++]); };
    if (i_end < to.size()) take_to();
    if (j_end < from.size()) take_from();
    while (!is_same_dim(to_product, from_product) && (i_end < to.size() || j_end < from.size())) {
      const auto a = as_int(to_product), b = as_int(from_product);
      const bool grow_to = i_end < to.size() && (j_end == from.size() || (a && b && *a < *b) || (a && !b));
      if (grow_to) {
        take_to();
      } else if (j_end < from.size()) {
        take_from();
      } else {
        take_to();
      }
    }
    const std::vector<Expr> to_run(to.begin() + i, to.begin() + i_end),
        from_run(from.begin() + j, from.begin() + j_end);
    const te::Indices run(indices.begin() + i, indices.begin() + i_end);
    const te::Indices mapped = unflatten_index(flatten_index(run, to_run), from_run);
    std::copy(mapped.begin(), mapped.end(), result.begin() + j);
    i = i_end, j = j_end;
  }
  return result;
}

TensorType tensor_type(DType dtype, const std::vector<int64_t>& dims) {
  TensorType type{dtype, {}};
  for (const int64_t dim : dims) type.shape.emplace_back(dim);
  return type;
}

NodeAttributes attributes_of(std::initializer_list<std::pair<std::string, AttributeValue>> list) {
  NodeAttributes result;
  for (const auto& [name, value] : list) result.set(name, value);
  return result;
}

NodeAttributes attributes_for(const Graph& graph, const Node& node, int axis, const Expr& extent) {
  NodeAttributes attributes = node.attributes;
  if (!attributes.has("shape")) return attributes;
  std::vector<Expr> shape = graph.values[node.outputs[0]].type.shape;
  shape[static_cast<size_t>(axis)] = extent;
  attributes.set("shape", shape);
  return attributes;
}

NDArray int_array(const std::vector<int64_t>& values, DType dtype) {
  NDArray result(dtype, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) result.set_int(static_cast<int64_t>(i), values[i]);
  return result;
}

NDArray float_array(const std::vector<double>& values, DType dtype) {
  NDArray result(dtype, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i) result.set_float(static_cast<int64_t>(i), values[i]);
  return result;
}

}  // namespace tw::relay
