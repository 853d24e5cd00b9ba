// What the families of operators share: reading types and attributes, small pieces of tensor expressions, and small
// graphs that import rules build.
#pragma once

#include <string>
#include <vector>

#include "relay_ir/op.h"

namespace tw::relay {

// ---------------------------------------------------------------------------------------------------------------
// For infer and compute

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
// Of a contraction's first two inputs.  They have one type, and so has the result; or the attribute "result" says f32
// for inputs of f32, f16 and bf16, or i32 for 8-bit integers, in any mixture.
AttributeDef result_attribute();
DType contraction_dtype(const OpCall& call);
te::Tensor cast_stage(const te::Tensor& tensor, DType dtype);  // the tensor itself when it has the dtype
Expr product_of(const std::vector<Expr>& extents);
// NaN when either is, for floats.
Expr minimum_of(Expr a, Expr b);
Expr maximum_of(Expr a, Expr b);
// An index that comes from data: negative ones count from the end, those outside are moved to the nearest valid one, so
// that no run can read foreign memory.
Expr data_index(Expr index, const Expr& extent);
// 0 ≤ index < extent
Expr in_bounds(const Expr& index, const Expr& extent);
// Row-major offset of `indices`, and back.
Expr flatten_index(const te::Indices& indices, const std::vector<Expr>& shape);
te::Indices unflatten_index(Expr flat, const std::vector<Expr>& shape);
// Indices into `from` of the element that has `indices` in `to`, a shape of as many elements in the same order.
te::Indices reshape_index(const te::Indices& indices, const std::vector<Expr>& to, const std::vector<Expr>& from);
bool is_same_dim(const Expr& a, const Expr& b);

// Examples: types from a dtype and a list of dimensions.
TensorType tensor_type(DType dtype, const std::vector<int64_t>& dims);
NodeAttributes attributes_of(std::initializer_list<std::pair<std::string, AttributeValue>> list);
NDArray int_array(const std::vector<int64_t>& values, DType dtype = i64);   // rank 1
NDArray float_array(const std::vector<double>& values, DType dtype = f32);  // rank 1

// ---------------------------------------------------------------------------------------------------------------
// For import rules

// Dimensions as integers; refuses the node when one is symbolic.
std::vector<int64_t> dims_of(const OnnxNodeContext& c, ValueId id);
int rank_of(const OnnxNodeContext& c, ValueId id);
DType dtype_of(const OnnxNodeContext& c, ValueId id);
int rule_axis(const OnnxNodeContext& c, int64_t axis, int rank);
std::vector<int> rule_axes(const OnnxNodeContext& c, const std::vector<int64_t>& axes, int rank);
// The element type that ONNX's TensorProto numbers so; refuses types that we do not have.
DType onnx_dtype(const OnnxNodeContext& c, int64_t number);
// axes as input `input` (newer opsets) or as attribute: empty when absent.
std::vector<int64_t> axes_of(const OnnxNodeContext& c, size_t input);

ValueId emit_scalar(OnnxNodeContext& c, DType dtype, double value);
ValueId emit_ints(OnnxNodeContext& c, const std::vector<int64_t>& values, const std::vector<int64_t>& shape,
                  DType dtype);
// 0, 1 … count - 1 as i64 in this shape.
ValueId emit_range(OnnxNodeContext& c, int64_t count, const std::vector<int64_t>& shape);
ValueId emit_binary(OnnxNodeContext& c, const char* op, ValueId a, ValueId b);
ValueId emit_reshape(OnnxNodeContext& c, ValueId x,
                     const std::vector<int64_t>& shape);  // x itself when it has the shape
ValueId emit_transpose(OnnxNodeContext& c, ValueId x, const std::vector<int64_t>& perm);
ValueId emit_broadcast(OnnxNodeContext& c, ValueId x, const std::vector<int64_t>& shape);
// The same with dimensions that may be symbolic.
ValueId emit_reshape_open(OnnxNodeContext& c, ValueId x, const std::vector<Expr>& shape);
ValueId emit_broadcast_open(OnnxNodeContext& c, ValueId x, const std::vector<Expr>& shape);
ValueId emit_cast(OnnxNodeContext& c, ValueId x, DType dtype);
// Elements begin, begin + step … of one axis.
ValueId emit_slice(OnnxNodeContext& c, ValueId x, int axis, int64_t begin, int64_t size, int64_t step = 1);
ValueId emit_concat(OnnxNodeContext& c, const std::vector<ValueId>& parts, int axis);
ValueId emit_reduce(OnnxNodeContext& c, const std::string& op, ValueId x, const std::vector<int>& axes, bool keepdims);
// a · b by numpy's rules, vectors included.  `result`: type of the result, as the attribute of that name.
ValueId emit_matmul(OnnxNodeContext& c, ValueId a, ValueId b, const std::string& result = "");
// A per-channel vector [C] (or any vector along one axis) shaped to broadcast along `axis` of a tensor of that rank.
ValueId emit_along_axis(OnnxNodeContext& c, ValueId vector, int axis, int rank);
// f(x) in f32 for f16 and bf16, in x's own type otherwise; the result has x's type again.
ValueId in_accumulator(OnnxNodeContext& c, ValueId x, const std::function<ValueId(ValueId)>& f);

// A rule that hands all inputs to one operator.
OnnxRule direct_rule(const std::string& op_type, const std::string& op, int since_opset = 1);
// A rule with one result.
OnnxRule rule(const std::string& op_type, int since_opset, std::function<ValueId(OnnxNodeContext&)> import);
OnnxRule rule_of_domain(const std::string& domain, const std::string& op_type,
                        std::function<std::vector<ValueId>(OnnxNodeContext&)> import);

}  // namespace tw::relay
