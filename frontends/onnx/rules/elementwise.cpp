// ONNX's elementwise operators.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>

#include "frontends/onnx/rules.h"

namespace tw::frontends::onnx {
namespace {

std::optional<double> constant_scalar(Context& c, ValueId id) {
  const NDArray* value = c.constant(id);
  if (!value || value->size() != 1) return std::nullopt;
  return value->dtype().is_float() ? value->get_float(0) : static_cast<double>(value->get_int(0));
}

// a, b, c … → op(op(a, b), c) …
ValueId fold_inputs(Context& c, const std::string& op) {
  ValueId result = c.input(0);
  for (size_t i = 1; i < c.input_count(); ++i) result = c.emit(op, {result, c.input(i)});
  return result;
}

ValueId import_clip(Context& c) {
  const ValueId x = c.input(0);
  const DType dtype = dtype_of(c, x);
  if (c.opset() < 11) {
    const double low = c.attribute_float("min", -std::numeric_limits<double>::infinity());
    const double high = c.attribute_float("max", std::numeric_limits<double>::infinity());
    return c.emit("clip", {x}, attributes_of({{"low", low}, {"high", high}}));
  }
  const ValueId low = c.has_input(1) ? c.input(1) : no_value, high = c.has_input(2) ? c.input(2) : no_value;
  const auto low_value = low == no_value ? -std::numeric_limits<double>::infinity() : constant_scalar(c, low);
  const auto high_value = high == no_value ? std::numeric_limits<double>::infinity() : constant_scalar(c, high);
  if (dtype.is_float() && low_value && high_value) {
    if (std::isinf(*low_value) && std::isinf(*high_value) && *low_value < *high_value) return x;
    return c.emit("clip", {x}, attributes_of({{"low", *low_value}, {"high", *high_value}}));
  }
  ValueId result = x;
  if (low != no_value) result = c.emit("maximum", {result, emit_reshape(c, low, {})});
  if (high != no_value) result = c.emit("minimum", {result, emit_reshape(c, high, {})});
  return result;
}

ValueId import_power(Context& c) {
  const ValueId base = c.input(0), exponent = c.input(1);
  const DType dtype = dtype_of(c, base), exponent_dtype = dtype_of(c, exponent);
  if (const auto value = constant_scalar(c, exponent); value && rank_of(c, exponent) <= rank_of(c, base)) {
    if (*value == 1) return base;
    if (*value == 2) return c.emit("multiply", {base, base});
    if (*value == 0.5 && dtype.is_float()) return c.emit("sqrt", {base});
  }
  if (dtype == exponent_dtype) return c.emit("power", {base, exponent});
  if (dtype.is_float()) {  // an exponent keeps its digits: whether it is whole decides what a negative base gives
    const bool is_wider = exponent_dtype.is_float() && exponent_dtype.bytes() > dtype.bytes();
    const DType wide = is_wider ? exponent_dtype : exponent_dtype.is_float() ? dtype : accumulator_of(dtype);
    return emit_cast(c, c.emit("power", {emit_cast(c, base, wide), emit_cast(c, exponent, wide)}), dtype);
  }
  if (dtype == u64 || exponent_dtype == u64) c.refuse("64-bit unsigned integers beside another type");
  const ValueId wide_base = emit_cast(c, base, i64), wide_exponent = emit_cast(c, exponent, i64);
  const ValueId whole = c.emit("power", {wide_base, wide_exponent});
  if (!exponent_dtype.is_float()) return emit_cast(c, whole, dtype);
  // Whole exponents exactly, others in f64.
  const ValueId exponent_f64 = emit_cast(c, exponent, f64);
  const ValueId real = c.emit("power", {emit_cast(c, base, f64), exponent_f64});
  const ValueId is_whole = c.emit("equal", {c.emit("floor", {exponent_f64}), exponent_f64});
  return emit_cast(c, c.emit("where", {is_whole, whole, emit_cast(c, real, i64)}), dtype);
}

// By the exponents of f32, without a look at the sign.
ValueId emit_power_of_two(Context& c, ValueId x) {
  const std::string mode = c.attribute_string("round_mode", "up");
  if (mode != "up" && mode != "down" && mode != "nearest") c.refuse("round_mode=" + mode);
  const auto number = [&](int64_t value) { return emit_ints(c, {value}, {}, i32); };
  const ValueId bits = c.emit(
      "bit_and", {c.emit("bitcast", {emit_cast(c, x, f32)}, attributes_of({{"to", "i32"}})), number(0x7fffffff)});
  const ValueId exponent = c.emit("shift", {bits, number(23)});
  const ValueId fraction = c.emit("bit_and", {bits, number(0x7fffff)});
  // The least fraction that is rounded up.  Below 2^-126 a half of it is a power of two of its own.
  ValueId least = number(1);
  if (mode == "nearest")
    least = c.emit("where", {c.emit("equal", {exponent, number(0)}), number(0x400001), number(0x400000)});
  ValueId code = exponent;
  if (mode != "down") code = c.emit("add", {exponent, emit_cast(c, c.emit("less_equal", {least, fraction}), i32)});
  if (c.attribute_int("saturate", 1) != 0) code = c.emit("minimum", {code, number(254)});
  code = c.emit("where", {c.emit("equal", {exponent, number(255)}), number(255), code});
  return c.emit("bitcast", {emit_cast(c, code, u8)}, attributes_of({{"to", to_string(f8e8m0)}}));
}

ValueId import_cast(Context& c) {
  if (c.has_text(0)) {
    if (c.opset() < 6 || c.attribute_int("to", 0) != text_type) c.refuse("elements of type string");
    return c.input_or_list(0);
  }
  if (c.opset() < 6) {
    std::string name = c.attribute_string("to", "");  // "FLOAT"
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char letter) { return std::tolower(letter); });
    const auto dtype = dtype_named(name);
    if (!dtype) c.refuse("elements of type " + name);
    return emit_cast(c, c.input(0), *dtype);
  }
  return emit_onnx_cast(c, c.input(0), c.attribute_dtype("to"));
}

ValueId import_bitcast(Context& c) {
  const DType from = dtype_of(c, c.input(0)), to = c.attribute_dtype("to");
  if (from == to) return c.input(0);
  if (from.is_bool() && to.bits == 8) return emit_cast(c, c.input(0), to);
  if (from.bits != to.bits) c.refuse("types of different widths");
  return c.emit("bitcast", {c.input(0)}, attributes_of({{"to", to_string(to)}}));
}

// Attributes: ONNX's name, ours, the default, which is an f32 as written ones are.
Rule float_rule(const std::string& op_type, const std::string& op, int since,
                std::vector<std::tuple<std::string, std::string, float>> attributes) {
  return rule(op_type, since, [=](Context& c) {
    NodeAttributes given;
    for (const auto& [name, target, value] : attributes) given.set(target, c.attribute_float(name, value));
    return c.emit(op, {c.input(0)}, given);
  });
}

// Of integers, bias and lambda may lie between two.
ValueId import_shrink(Context& c) {
  const DType dtype = dtype_of(c, c.input(0));
  const ValueId x = dtype.is_float() ? c.input(0) : emit_cast(c, c.input(0), f64);
  const NodeAttributes bounds =
      attributes_of({{"lambda", c.attribute_float("lambd", 0.5)}, {"bias", c.attribute_float("bias", 0)}});
  return emit_cast(c, c.emit("shrink", {x}, bounds), dtype);
}

ValueId gelu(Context& c, ValueId x, bool is_tanh) {
  return c.emit("gelu", {x}, attributes_of({{"approximate", int64_t{is_tanh}}}));
}

ValueId silu(Context& c, ValueId x, double alpha) {
  return c.emit("silu", {x}, attributes_of({{"alpha", alpha}}));
}

}  // namespace

ValueId emit_cast_of_codes(Context& c, ValueId x, DType to) {
  const bool has_codes = c.constant(x) && rank_of(c, x) >= 2;
  return has_codes ? c.emit_unfolded("cast", {x}, attributes_of({{"to", to_string(to)}})) : emit_cast(c, x, to);
}

ValueId emit_onnx_cast(Context& c, ValueId x, DType to) {
  if (dtype_of(c, x) == to) return x;
  if (dtype_of(c, x).is_minifloat() && to.is_float()) return emit_cast_of_codes(c, x, to);
  if (to == f8e8m0) return emit_power_of_two(c, x);
  const bool has_more = to.is_minifloat() && to != f4e2m1;  // infinity or NaN
  if (!has_more || c.attribute_int("saturate", 1) == 0) return emit_cast(c, x, to);
  const double largest = minifloat_to_float(to, minifloat_format(to).largest);
  return emit_cast(c, c.emit("clip", {emit_cast(c, x, f32)}, attributes_of({{"low", -largest}, {"high", largest}})),
                   to);
}

namespace {

// Before opset 7.
bool is_broadcast_by_attributes(const std::string& op_type) {
  static const char* const names[] = {"Add", "Sub",   "Mul",  "Div",     "And", "Or",
                                      "Xor", "Equal", "Less", "Greater", "Pow", "PRelu"};
  return std::any_of(std::begin(names), std::end(names), [&](const char* name) { return name == op_type; });
}

// Its dimensions are those of the first input from the attribute `axis` on, or the last ones; slopes are of channels.
ValueId old_second_input(Context& c, bool is_slope) {
  const ValueId x = c.input(1);
  const std::vector<Expr> own = c.type(x).shape, dims = c.type(c.input(0)).shape;
  const bool is_one = is_const_int(product_of(own), 1);
  if (is_one || (is_slope ? own.size() != 1 : c.attribute_int("broadcast", 0) == 0)) return x;
  const int rank = static_cast<int>(dims.size()), last = rank - static_cast<int>(own.size());
  const int axis = rule_axis(c, is_slope ? std::min(1, rank - 1) : c.attribute_int("axis", last), rank);
  if (last < axis)
    c.refuse("axis=" + std::to_string(axis) + " with inputs of rank " + std::to_string(rank) + " and " +
             std::to_string(own.size()));
  std::vector<Expr> shape = own;
  shape.resize(dims.size() - static_cast<size_t>(axis), Expr(1));
  return emit_reshape_open(c, x, shape);
}

}  // namespace

std::vector<Rule> elementwise_rules() {
  static constexpr std::pair<const char*, const char*> direct[] = {
      {"Abs", "abs"},
      {"Neg", "negate"},
      {"Sign", "sign"},
      {"Ceil", "ceil"},
      {"Floor", "floor"},
      {"Round", "round"},
      {"Sqrt", "sqrt"},
      {"Reciprocal", "reciprocal"},
      {"Exp", "exp"},
      {"Log", "log"},
      {"Sin", "sin"},
      {"Cos", "cos"},
      {"Tan", "tan"},
      {"Asin", "asin"},
      {"Acos", "acos"},
      {"Atan", "atan"},
      {"Sinh", "sinh"},
      {"Cosh", "cosh"},
      {"Asinh", "asinh"},
      {"Acosh", "acosh"},
      {"Atanh", "atanh"},
      {"Tanh", "tanh"},
      {"Erf", "erf"},
      {"Sigmoid", "sigmoid"},
      {"Relu", "relu"},
      {"Softplus", "softplus"},
      {"Softsign", "softsign"},
      {"Mish", "mish"},
      {"HardSwish", "hard_swish"},
      {"IsNaN", "is_nan"},
      {"Not", "logical_not"},
      {"BitwiseNot", "bit_not"},
      {"Add", "add"},
      {"Sub", "subtract"},
      {"Mul", "multiply"},
      {"Div", "divide"},
      {"And", "logical_and"},
      {"Or", "logical_or"},
      {"Xor", "logical_xor"},
      {"BitwiseAnd", "bit_and"},
      {"BitwiseOr", "bit_or"},
      {"BitwiseXor", "bit_xor"},
      {"Less", "less"},
      {"LessOrEqual", "less_equal"},
      {"Equal", "equal"},
      {"Where", "where"},
      {"PRelu", "prelu"},
  };
  auto extremum = [](const char* of_numbers, const char* of_bools) {
    return [=](Context& c) { return fold_inputs(c, dtype_of(c, c.input(0)).is_bool() ? of_bools : of_numbers); };
  };
  std::vector<Rule> rules = {
      rule("Greater", 1, [](Context& c) { return c.emit("less", {c.input(1), c.input(0)}); }),
      rule("GreaterOrEqual", 1, [](Context& c) { return c.emit("less_equal", {c.input(1), c.input(0)}); }),
      rule("Max", 1, extremum("maximum", "logical_or")),
      rule("Min", 1, extremum("minimum", "logical_and")),
      rule("Sum", 1, [](Context& c) { return fold_inputs(c, "add"); }),
      rule("Mean", 1,
           [](Context& c) {
             const ValueId sum = fold_inputs(c, "add");
             if (c.input_count() == 1) return sum;
             return c.emit("divide", {sum, emit_scalar(c, dtype_of(c, sum), static_cast<double>(c.input_count()))});
           }),
      with_text(rule("Identity", 1, [](Context& c) { return c.input_or_list(0); }), TextUse::moved),
      rule("Clip", 1, import_clip),
      rule("Pow", 1, import_power),
      with_text(rule("Cast", 1, import_cast), TextUse::read),
      rule("CastLike", 15, [](Context& c) { return emit_onnx_cast(c, c.input(0), dtype_of(c, c.input(1))); }),
      rule("BitCast", 26, import_bitcast),
      rule("Mod", 10,
           [](Context& c) {
             const bool is_c = c.attribute_int("fmod", 0) != 0;
             return c.emit(is_c ? "remainder" : "modulo", {c.input(0), c.input(1)});
           }),
      rule("BitShift", 11,
           [](Context& c) {
             const std::string direction = c.attribute_string("direction", "");
             if (direction != "LEFT" && direction != "RIGHT") c.refuse("direction \"" + direction + "\"");
             return c.emit("shift", {c.input(0), c.input(1)}, attributes_of({{"left", int64_t{direction == "LEFT"}}}));
           }),
      rule("IsInf", 10,
           [](Context& c) {
             return c.emit("is_inf", {c.input(0)},
                           attributes_of({{"positive", c.attribute_int("detect_positive", 1)},
                                          {"negative", c.attribute_int("detect_negative", 1)}}));
           }),
      float_rule("LeakyRelu", "leaky_relu", 1, {{"alpha", "alpha", 0.01F}}),
      float_rule("HardSigmoid", "hard_sigmoid", 1, {{"alpha", "alpha", 0.2F}, {"beta", "beta", 0.5F}}),
      float_rule("Elu", "elu", 1, {{"alpha", "alpha", 1.0F}}),
      float_rule("Selu", "elu", 1,
                 {{"alpha", "alpha", 1.67326319217681884765625F}, {"gamma", "gamma", 1.05070102214813232421875F}}),
      float_rule("Celu", "elu", 12, {{"alpha", "alpha", 1.0F}, {"alpha", "beta", 1.0F}}),
      float_rule("ThresholdedRelu", "thresholded_relu", 10, {{"alpha", "alpha", 1.0F}}),
      rule("Shrink", 9, import_shrink),
      float_rule("Swish", "silu", 24, {{"alpha", "alpha", 1.0F}}),
      rule("SwiGLU", 28,
           [](Context& c) {
             return c.emit("multiply", {silu(c, c.input(0), c.attribute_float("alpha", 1)), c.input(1)});
           }),
      rule("Gelu", 20,
           [](Context& c) {
             const std::string form = c.attribute_string("approximate", "none");
             if (form != "none" && form != "tanh") c.refuse("approximate=\"" + form + "\"");
             return gelu(c, c.input(0), form == "tanh");
           }),
      rule_of(microsoft, "Gelu", [](Context& c) { return gelu(c, c.input(0), false); }),
      rule_of(microsoft, "BiasGelu",
              [](Context& c) { return gelu(c, c.emit("add", {c.input(0), c.input(1)}), false); }),
      rule_of(microsoft, "FastGelu",
              [](Context& c) {
                return gelu(c, c.has_input(1) ? c.emit("add", {c.input(0), c.input(1)}) : c.input(0), true);
              }),
      rule_of(microsoft, "QuickGelu",
              [](Context& c) { return silu(c, c.input(0), c.attribute_float("alpha", 1.702)); }),
  };
  for (const auto& [op_type, op] : direct) {
    rules.push_back({op_type, "", 1, [op = op](Context& c) { return c.emit_all(op, c.inputs()); }});
  }
  for (size_t i = 0, count = rules.size(); i < count; ++i) {
    if (!is_broadcast_by_attributes(rules[i].op_type)) continue;
    const Rule now = rules[i];
    rules[i].since_opset = 7;
    rules.push_back({now.op_type, "", 1, [now](Context& c) {
                       return c.with_input(1, old_second_input(c, now.op_type == "PRelu"), now.import);
                     }});
  }
  return rules;
}

}  // namespace tw::frontends::onnx
