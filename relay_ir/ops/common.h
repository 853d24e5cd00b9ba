// What the families of operators share: reading types and attributes, and small pieces of tensor expressions.
#pragma once

#include <string>
#include <vector>

#include "relay_ir/op.h"

namespace tw::relay {

// Which dimension is open, and that it has to be fixed.
std::string open_dimension_text(const TensorType& type);  // of the first that is open
std::string open_dimension_text(const TensorType& type, int axis);
// Dimensions as integers; call.fail() when one is symbolic.
std::vector<int64_t> const_dims(const OpCall& call, const TensorType& type);
// Axis -rank … rank-1 as 0 … rank-1.
int normal_axis(const OpCall& call, int64_t axis, int rank);
std::vector<int> normal_axes(const OpCall& call, const std::vector<int64_t>& axes, int rank);
bool contains(const std::vector<int>& list, int value);
DType dtype_attribute(const OpCall& call, const std::string& name);  // "f32"

// f16 and bf16 accumulate in f32, all others in themselves.
DType accumulator_of(DType dtype);
bool is_half(DType dtype);
bool is_float8(DType dtype);  // of those that tensor cores multiply
// Of a contraction's first two inputs.  They have one type, and so has the result; or the attribute "result" says f32
// for inputs of f32, f16, bf16, f8e4m3fn, f8e5m2 and 8-bit integers, or i32 for 8-bit integers, in any mixture.
AttributeDef result_attribute();
DType contraction_dtype(const OpCall& call);
// How inputs are multiplied: as they are, or those of f32 rounded to tf32.
AttributeDef operands_attribute();
void require_operands(const OpCall& call);
// `input`: the number of the one that it is of.
Expr factor_of(const OpCall& call, size_t input, const Expr& element);
te::Tensor cast_stage(const te::Tensor& tensor, DType dtype);  // the tensor itself when it has the dtype
Expr product_of(const std::vector<Expr>& extents);
// NaN when either is, for floats.
Expr minimum_of(Expr a, Expr b);
Expr maximum_of(Expr a, Expr b);
// An index that comes from data: negative ones count from the end, those outside are moved to the nearest valid one, so
// that no run can read foreign memory.
Expr data_index(Expr index, const Expr& extent);
// The element where the condition holds, else 0; it need not exist then.
Expr loaded_where(const Expr& condition, const te::Tensor& x, const te::Indices& at);
// 0 ≤ index < extent
Expr in_bounds(const Expr& index, const Expr& extent);
// Row-major offset of `indices`, and back.
Expr flatten_index(const te::Indices& indices, const std::vector<Expr>& shape);
te::Indices unflatten_index(Expr flat, const std::vector<Expr>& shape);
// Indices into `from` of the element that has `indices` in `to`, a shape of as many elements in the same order.
te::Indices reshape_index(const te::Indices& indices, const std::vector<Expr>& to, const std::vector<Expr>& from);
bool is_same_dim(const Expr& a, const Expr& b);

// Numbers that 8 bits can be.
inline constexpr int64_t codes_of_8_bits = 256;

// Examples: types from a dtype and a list of dimensions.
TensorType tensor_type(DType dtype, const std::vector<int64_t>& dims);
NodeAttributes attributes_of(std::initializer_list<std::pair<std::string, AttributeValue>> list);
// The node's, for a result of so many elements along the axis: where they state its shape, they say so.
NodeAttributes attributes_for(const Graph& graph, const Node& node, int axis, const Expr& extent);
NDArray int_array(const std::vector<int64_t>& values, DType dtype = i64);   // rank 1
NDArray float_array(const std::vector<double>& values, DType dtype = f32);  // rank 1

}  // namespace tw::relay
