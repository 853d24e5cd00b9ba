// ONNX Runtime's operators on quantised data (com.microsoft), as its quantiser and optimiser write them: what the
// operator of ONNX makes of the numbers that are meant, quantised again; and products that quantise what they take.
#include <string_view>

#include "frontends/onnx/rules/quantize.h"
#include "frontends/onnx/rules/window.h"

namespace tw::frontends::onnx {
namespace {

// The inputs are some that are taken as they are, then codes, scale and zero point of each that is quantised; scale and
// zero point of the result are two of them.
struct QuantizedForm {
  std::string_view op_type, of;  // the operator of ONNX
  size_t first, quantized, result;
  int opset = 13;  // of ONNX, whose attributes the node has
};

constexpr size_t all_others = 0;

constexpr QuantizedForm quantized_forms[] = {
    {"QLinearAdd", "Add", 0, 2, 6},
    {"QLinearMul", "Mul", 0, 2, 6},
    {"QLinearSigmoid", "Sigmoid", 0, 1, 3},
    {"QLinearLeakyRelu", "LeakyRelu", 0, 1, 3},
    {"QLinearSoftmax", "Softmax", 0, 1, 3},
    {"QLinearAveragePool", "AveragePool", 0, 1, 3},
    {"QLinearGlobalAveragePool", "GlobalAveragePool", 0, 1, 3},
    {"QLinearReduceMean", "ReduceMean", 0, 1, 3},
    {"QLinearWhere", "Where", 1, 2, 7},
    {"QLinearConcat", "Concat", 2, all_others, 0},
};

void refuse_channels_last(const Context& c) {
  if (c.attribute_int("channels_last", 0) != 0) c.refuse("channels_last=1");
}

std::vector<ValueId> import_quantized(Context& c, const QuantizedForm& form) {
  refuse_channels_last(c);
  const size_t count = form.quantized == all_others ? (c.input_count() - form.first) / 3 : form.quantized;
  std::vector<ValueId> inputs;
  if (form.result > 0) {
    for (size_t i = 0; i < form.first; ++i) inputs.push_back(c.input(i));
  }
  for (size_t k = 0; k < count; ++k) {
    const size_t at = form.first + 3 * k;
    inputs.push_back(emit_dequantized(c, {c.input(at), c.input(at + 1), c.optional_input(at + 2)}));
  }
  const int opset = static_cast<int>(c.attribute_int("opset", form.opset));
  const Rule* rule = find_rule("", form.of, opset);
  if (!rule) c.refuse("opset=" + std::to_string(opset));
  const ValueId y = c.with_inputs(inputs, opset, rule->import).at(0);
  const ValueId zero_point = c.optional_input(form.result + 1);
  const DType to = dtype_of(c, zero_point == no_value ? c.input(form.first) : zero_point);
  return {emit_quantized(c, y, c.input(form.result), zero_point, to)};
}

ValueId as_floats(Context& c, ValueId sum, ValueId scale) {
  return c.emit("multiply", {emit_cast(c, sum, f32), scale});
}

// A scale of one element, or of one a column.
ValueId by_column(Context& c, ValueId scale) {
  return rank_of(c, scale) <= 1 ? scale : scalar_or_refuse(c, scale);
}

// alpha · (scales of A and B) · (A · B + C), as floats where there is no scale of the result.
ValueId import_quantized_gemm(Context& c) {
  const auto matrix = [&](size_t i, const char* transposes) {
    if (rank_of(c, c.input(i)) != 2) c.refuse("inputs that are no matrices");
    return c.attribute_int(transposes, 0) != 0 ? emit_transpose(c, c.input(i), {1, 0}) : c.input(i);
  };
  ValueId sum =
      emit_integer_matmul(c, matrix(0, "transA"), c.optional_input(2), matrix(3, "transB"), c.optional_input(5));
  if (c.has_input(6)) sum = c.emit("add", {sum, c.input(6)});
  const ValueId alpha = emit_scalar(c, f32, c.attribute_float("alpha", 1));
  const ValueId scale = c.emit("multiply", {scalar_or_refuse(c, c.input(1)), by_column(c, c.input(4))});
  const ValueId y = as_floats(c, sum, c.emit("multiply", {scale, alpha}));
  if (!c.has_input(7)) return y;
  const ValueId zero_point = c.optional_input(8);
  return emit_quantized(c, y, scalar_or_refuse(c, c.input(7)),
                        zero_point == no_value ? zero_point : scalar_or_refuse(c, zero_point),
                        zero_point == no_value ? u8 : dtype_of(c, zero_point));
}

ValueId import_matmul_integer_to_float(Context& c) {
  const ValueId sum = emit_integer_matmul(c, c.input(0), c.optional_input(4), c.input(1), c.optional_input(5));
  const ValueId scale = c.emit("multiply", {scalar_or_refuse(c, c.input(2)), by_column(c, c.input(3))});
  const ValueId y = as_floats(c, sum, scale);
  return c.has_input(6) ? c.emit("add", {y, c.input(6)}) : y;
}

ValueId import_dynamic_quantize_matmul(Context& c) {
  const Quantized a = emit_quantized_dynamically(c, c.input(0));
  const ValueId sum = emit_integer_matmul(c, a.codes, a.zero_point, c.input(1), c.optional_input(3));
  const ValueId y = as_floats(c, sum, c.emit("multiply", {a.scale, by_column(c, c.input(2))}));
  return c.has_input(4) ? c.emit("add", {y, c.input(4)}) : y;
}

}  // namespace

std::vector<Rule> quantized_rules() {
  std::vector<Rule> rules{
      rule_of(microsoft, "QGemm", import_quantized_gemm),
      rule_of(microsoft, "MatMulIntegerToFloat", import_matmul_integer_to_float),
      rule_of(microsoft, "DynamicQuantizeMatMul", import_dynamic_quantize_matmul),
      {"QLinearConv", microsoft, 1,
       [](Context& c) {
         refuse_channels_last(c);
         return find_rule("", "QLinearConv", 10)->import(c);
       }},
  };
  for (const QuantizedForm& form : quantized_forms)
    rules.push_back(
        {std::string(form.op_type), microsoft, 1, [&form](Context& c) { return import_quantized(c, form); }});
  return rules;
}

}  // namespace tw::frontends::onnx
