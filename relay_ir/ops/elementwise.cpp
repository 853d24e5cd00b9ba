// Elementwise operators: the rows of elementwise_unary.cpp and elementwise_binary.cpp, where, lookup and cast.
#include "relay_ir/ops/elementwise_rows.h"
#include "relay_ir/ops/narrow.h"

namespace tw::relay {
namespace {

bool takes_dtype(Takes takes, DType dtype) {
  switch (takes) {
    case Takes::numbers:
      return !dtype.is_bool();
    case Takes::signed_numbers:
      return dtype.is_float() || dtype.is_signed_integer();
    case Takes::floats:
      return dtype.is_float();
    case Takes::integers:
      return dtype.is_integer();
    case Takes::numbers_and_bool:
      return true;
    case Takes::bools:
      return dtype.is_bool();
  }
  return false;
}

const char* name_of(Takes takes) {
  static const char* const names[] = {"numbers", "signed numbers", "floats", "integers", "numbers or bools", "bools"};
  return names[static_cast<int>(takes)];
}

std::vector<Expr> broadcast_of(const OpCall& call) {
  std::vector<std::vector<Expr>> shapes;
  for (const TensorType& input : call.inputs) shapes.push_back(input.shape);
  return broadcast_shapes(call, shapes);
}

// One element of each input, halves widened to f32.
std::vector<Expr> read_all(const OpCall& c, const std::vector<te::Tensor>& inputs, const te::Indices& i) {
  std::vector<Expr> values;
  for (const te::Tensor& input : inputs) {
    values.push_back(cast(accumulator_of(input.dtype()), broadcast_read(input, i, c.outputs[0].shape)));
  }
  return values;
}

OpDef where_op() {
  OpDef op;
  op.name = "where";
  op.takes_narrow = true;
  op.kind = OpKind::elementwise;
  op.doc = "a where the condition holds, otherwise b.";
  op.input_names = {"condition", "a", "b"};
  op.facts = plain_facts(broadcast_axes, Rounding::keeps);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    c.require(c.inputs[0].dtype.is_bool(), "the condition is bool");
    c.require(c.inputs[1].dtype == c.inputs[2].dtype, "a and b have one type");
    return {{c.inputs[1].dtype, broadcast_of(c)}};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    return {te::compute("where", c.outputs[0].shape, in, [&](const te::Indices& i) {
      const std::vector<Expr>& shape = c.outputs[0].shape;
      return select(broadcast_read(in[0], i, shape), broadcast_read(in[1], i, shape), broadcast_read(in[2], i, shape));
    })};
  };
  op.examples = {{{tensor_type(boolean, {2, 1}), tensor_type(f32, {3}), tensor_type(f32, {2, 3})}, {}},
                 {{tensor_type(boolean, {4}), tensor_type(i64, {4}), tensor_type(i64, {})}, {}}};
  return op;
}

AxisUses lookup_axes(const OpCall& c) {
  AxisUses uses = aligned_axes(c);
  for (AxisUse& use : uses[1]) use = fixed_axis();  // the table has none of the result's axes
  return uses;
}

OpDef lookup_op() {
  OpDef op;
  op.name = "lookup";
  op.kind = OpKind::elementwise;
  op.doc = "table[x]: what any function of 8-bit integers gives.  Those below 0 come last, as their bits have it.";
  op.input_names = {"x", "table"};
  op.facts = plain_facts(lookup_axes, Rounding::exact, 1);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType &x = c.inputs[0], &table = c.inputs[1];
    c.require(x.dtype == u8 || x.dtype == i8, "x is u8 or i8");
    c.require(table.rank() == 1 && is_const_int(table.shape[0], codes_of_8_bits), "the table has 256 elements");
    return {{table.dtype, x.shape}};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    return {te::compute("lookup", c.outputs[0].shape, in,
                        [&](const te::Indices& i) { return in[1]({cast(i64, cast(u8, in[0](i)))}); })};
  };
  for (const DType codes : {u8, i8})
    op.examples.push_back({{tensor_type(codes, {3, 5}), tensor_type(codes, {codes_of_8_bits})}, {}, {}, -128, 128});
  op.examples.push_back({{tensor_type(u8, {7}), tensor_type(f32, {codes_of_8_bits})}, {}, {}, 0, 100});
  return op;
}

OpDef cast_op() {
  OpDef op;
  op.name = "cast";
  op.takes_narrow = true;
  op.kind = OpKind::elementwise;
  op.doc = "Converts elements.  Floats to integers truncate; to bool: whether not 0; to narrow integers: the low bits.";
  op.input_names = {"x"};
  op.attributes = {{"to", "f32", true, "element type of the result"}};
  op.decisions = {{"at_load", "1: x is stored, and the result computed where it is read"}};
  op.facts = plain_facts(broadcast_axes, Rounding::exact);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> { return {{dtype_attribute(c, "to"), c.inputs[0].shape}}; };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    return {te::compute("cast", c.outputs[0].shape, in, [&](const te::Indices& i) {
      return converted(in[0](i), c.inputs[0].dtype, c.outputs[0].dtype);
    })};
  };
  for (const DType to : {f16, bf16, f64, i8, u8, i64, boolean}) {
    op.examples.push_back({{tensor_type(f32, {2, 3})}, attributes_of({{"to", to_string(to)}}), {}, 0, 100});
  }
  op.examples.push_back({{tensor_type(boolean, {4})}, attributes_of({{"to", "f32"}})});
  for (const DType narrow : narrow_types) {
    op.examples.push_back({{tensor_type(f32, {5, 7})}, attributes_of({{"to", to_string(narrow)}}), {}, -9, 9});
    op.examples.push_back({{tensor_type(narrow, {33})}, attributes_of({{"to", "f32"}}), {}, 1, 3});
  }
  op.examples.push_back({{tensor_type(i32, {5})}, attributes_of({{"to", "i4"}})});
  op.examples.push_back({{tensor_type(f8e5m2, {5})}, attributes_of({{"to", "f8e4m3fn"}})});
  return op;
}

OpDef bitcast_op() {
  OpDef op;
  op.name = "bitcast";
  op.takes_narrow = true;
  op.kind = OpKind::elementwise;
  op.doc = "The same bits as another element type of the same width.";
  op.input_names = {"x"};
  op.attributes = {{"to", "f32", true, "element type of the result"}};
  op.facts = plain_facts(broadcast_axes, Rounding::exact);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const DType to = dtype_attribute(c, "to"), from = c.inputs[0].dtype;
    c.require(to.bits == from.bits, "the types have one width");
    return {{to, c.inputs[0].shape}};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    return {te::compute("bitcast", c.outputs[0].shape, in,
                        [&](const te::Indices& i) { return with_same_bits(in[0](i), c.outputs[0].dtype); })};
  };
  op.examples = {{{tensor_type(f32, {3})}, attributes_of({{"to", "i32"}})},
                 {{tensor_type(u16, {3})}, attributes_of({{"to", "i16"}})},
                 {{tensor_type(i4, {3})}, attributes_of({{"to", "u4"}})},
                 {{tensor_type(u8, {3})}, attributes_of({{"to", "f8e8m0"}})}};
  return op;
}

OpDef elementwise_op(const ElementwiseRow& row) {
  OpDef op;
  op.name = row.name;
  op.kind = OpKind::elementwise;
  op.doc = row.doc;
  op.input_names = row.inputs;
  op.attributes = row.attributes;
  op.facts = plain_facts(broadcast_axes, row.rounding);
  op.infer = [takes = row.takes, gives = row.gives](const OpCall& c) -> std::vector<TensorType> {
    const DType dtype = c.inputs[0].dtype;
    c.require(takes_dtype(takes, dtype), std::string("takes ") + name_of(takes));
    for (const TensorType& input : c.inputs) c.require(input.dtype == dtype, "inputs have one element type");
    return {{gives == Gives::truth ? boolean : dtype, broadcast_of(c)}};
  };
  op.compute = [element = row.element, name = op.name](const OpCall& c,
                                                       const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    return {te::compute(name, c.outputs[0].shape, in, [&](const te::Indices& i) {
      return cast(c.outputs[0].dtype, element(c, read_all(c, in, i)));
    })};
  };
  for (const DType dtype : {f32, f16, i32, u8, boolean}) {
    if (!takes_dtype(row.takes, dtype)) continue;
    OpExample example;
    for (size_t i = 0; i < row.inputs.size(); ++i) {
      example.inputs.push_back(tensor_type(dtype, i == 0 ? std::vector<int64_t>{2, 3} : std::vector<int64_t>{3}));
    }
    example.low = dtype.is_integer() ? 1 : row.low, example.high = dtype.is_integer() ? 9 : row.high;
    op.examples.push_back(example);
  }
  return op;
}

}  // namespace

std::vector<OpDef> elementwise_family() {
  std::vector<OpDef> ops;
  for (const ElementwiseRow& row : unary_rows()) ops.push_back(elementwise_op(row));
  for (const ElementwiseRow& row : binary_rows()) ops.push_back(elementwise_op(row));
  ops.push_back(where_op());
  ops.push_back(lookup_op());
  ops.push_back(cast_op());
  ops.push_back(bitcast_op());
  return ops;
}

}  // namespace tw::relay
