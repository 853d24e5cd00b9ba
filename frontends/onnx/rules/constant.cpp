// ONNX operators whose result depends on sizes alone, and is known at import where these are: constants, shapes,
// ranges, windows of signal processing.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "frontends/onnx/rules.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::frontends::onnx {
namespace {

constexpr int64_t max_elements = 1 << 24;  // that a rule writes itself

ValueId import_constant(Context& c) {
  if (c.has_text_tensor("value")) return c.emit_text(c.emit_constant(c.attribute_text_tensor("value")));
  if (c.has_attribute("value")) return c.emit_constant(c.attribute_tensor("value"));
  if (c.has_attribute("value_int")) return emit_ints(c, {c.attribute_int("value_int", 0)}, {}, i64);
  if (c.has_attribute("value_float")) return emit_scalar(c, f32, c.attribute_float("value_float", 0));
  if (c.has_attribute("value_ints")) return c.emit_constant(int_array(c.attribute_ints("value_ints", {})));
  if (c.has_attribute("value_floats")) return c.emit_constant(float_array(c.attribute_floats("value_floats", {})));
  if (c.has_attribute("value_strings")) return c.emit_text(c.emit_constant(c.attribute_text("value_strings")));
  if (c.has_attribute("value_string")) {
    const int64_t code = c.import().words.code_of(c.attribute_string("value_string", ""));
    return c.emit_text(emit_ints(c, {code}, {}, i64));
  }
  c.refuse("sparse tensors");
}

ValueId import_constant_of_shape(Context& c) {
  const std::vector<Expr> shape = c.read_dims(0);
  if (std::any_of(shape.begin(), shape.end(), [](const Expr& dim) { return as_int(dim).value_or(0) < 0; })) {
    throw Error(ErrorCode::shape, "ConstantOfShape: a negative dimension\n  help: dimensions are 0 or more");
  }
  const ValueId value =
      c.has_attribute("value") ? c.emit_constant(c.attribute_tensor("value").reshape({})) : emit_scalar(c, f32, 0);
  return emit_broadcast_open(c, value, shape);
}

ValueId import_shape(Context& c) {
  const std::vector<Expr>& shape = c.type(c.input(0)).shape;
  const auto rank = static_cast<int64_t>(shape.size());
  auto bound = [&](const char* name, int64_t otherwise) {
    const int64_t given = c.attribute_int(name, otherwise);
    return std::clamp<int64_t>(given < 0 ? given + rank : given, 0, rank);
  };
  std::vector<Expr> dims;
  for (int64_t i = bound("start", 0), end = bound("end", rank); i < end; ++i) dims.push_back(shape[i]);
  return c.emit_sizes(dims, {static_cast<int64_t>(dims.size())});
}

ValueId import_size(Context& c) {
  return c.emit_sizes({simplify(product_of(c.type(c.input(0)).shape))}, {});
}

const NDArray& known_scalar(Context& c, size_t input) {
  const NDArray* value = c.constant(c.input(input));
  if (!value) c.refuse("input " + std::to_string(input) + " must be known at import");
  if (value->size() != 1) {
    throw Error(ErrorCode::shape,
                c.op() + ": input " + std::to_string(input) + " is no scalar\n  help: give one number");
  }
  return *value;
}

// Of numbers that depend on open dimensions: integers, or floats that are fractions of such.
ValueId import_open_range(Context& c) {
  const DType dtype = dtype_of(c, c.input(0));
  const auto number = [&](size_t input) {
    if (dtype.is_float()) return c.known_fraction(input);
    const std::vector<Expr> dims = c.known_dims(input);
    if (dims.size() != 1) malformed("Range: input " + std::to_string(input) + " is no scalar");
    return Fraction{dims[0]};
  };
  const Fraction start = number(0), limit = number(1), delta = number(2);
  const auto step = as_int(delta.above);
  if (!step || *step == 0) c.refuse("a step that depends on open dimensions, or is 0");
  // (limit - start) / step, in one unit.
  const int64_t unit = start.below * limit.below * delta.below;
  const Expr way = limit.above * (unit / limit.below) - start.above * (unit / start.below);
  const int64_t stride = std::abs(*step) * (unit / delta.below);
  const Expr span = simplify(*step > 0 ? way : -way);
  const Expr count = floor_div(span + (stride - 1), stride);
  const std::vector<Expr> counts{simplify(can_prove(span >= 0) ? count : max(count, Expr(0)))};
  const bool is_whole = start.below == 1 && delta.below == 1;
  const std::vector<Expr> first{is_whole ? start.above : Expr(0)}, steps{is_whole ? delta.above : Expr(1)};
  const ValueId range =
      emit_cast(c, c.emit("range", {}, attributes_of({{"count", counts}, {"start", first}, {"step", steps}})), dtype);
  if (is_whole) return range;
  return c.emit("add", {c.input(0), c.emit("multiply", {range, c.input(2)})});
}

// Of numbers that only the run knows: start + i · delta, where i · delta comes before the limit.
ValueId import_computed_range(Context& c) {
  const DType dtype = dtype_of(c, c.input(0)), wide = dtype.is_float() ? f64 : i64;
  ValueId in[3];
  for (size_t i = 0; i < 3; ++i) in[i] = emit_reshape(c, c.input(i), {});
  const auto number = [&](size_t i) { return emit_cast(c, in[i], wide); };
  const ValueId way = c.emit("subtract", {number(1), number(0)}), delta = number(2);
  ValueId count;
  if (dtype.is_float()) {
    count = emit_cast(c, c.emit("ceil", {c.emit("divide", {way, delta})}), i64);
  } else {
    const ValueId one = emit_scalar(c, i64, 1), is_up = c.emit("less", {emit_scalar(c, i64, 0), delta});
    const ValueId room = c.emit("where", {is_up, c.emit("subtract", {delta, one}), c.emit("add", {delta, one})});
    count = c.emit("divide", {c.emit("add", {way, room}), delta});
  }
  const Expr elements = c.emit_item(c.emit("maximum", {count, emit_scalar(c, i64, 0)}));
  const ValueId steps = emit_cast(c, emit_range(c, elements, {elements}), dtype);
  return c.emit("add", {in[0], c.emit("multiply", {steps, in[2]})});
}

ValueId import_range(Context& c) {
  for (size_t i = 0; i < 3; ++i)
    if (!c.is_known(i)) return import_computed_range(c);
  for (size_t i = 0; i < 3; ++i)
    if (!c.constant(c.input(i))) return import_open_range(c);
  const NDArray &start = known_scalar(c, 0), &limit = known_scalar(c, 1), &delta = known_scalar(c, 2);
  const DType dtype = start.dtype();
  if (limit.dtype() != dtype || delta.dtype() != dtype) c.refuse("numbers of different types");
  int64_t count = 0;
  if (dtype.is_float()) {
    const double exact = std::ceil((limit.get_float(0) - start.get_float(0)) / delta.get_float(0));
    if (!(exact <= static_cast<double>(max_elements))) c.refuse("a range of too many elements");
    count = std::max<int64_t>(0, static_cast<int64_t>(exact));
  } else {
    constexpr int64_t bound = int64_t{1} << 61;
    for (const NDArray* value : {&start, &limit, &delta}) {
      if (value->get_int(0) > bound || value->get_int(0) < -bound) c.refuse("a range of too large numbers");
    }
    const int64_t step = delta.get_int(0), span = limit.get_int(0) - start.get_int(0);
    if (step == 0) c.refuse("a step of 0");
    const int64_t towards = step > 0 ? span : -span, stride = step > 0 ? step : -step;
    count = towards <= 0 ? 0 : (towards - 1) / stride + 1;
    if (count > max_elements) c.refuse("a range of too many elements");
  }
  NDArray result(dtype, {count});
  for (int64_t i = 0; i < count; ++i) {
    if (dtype.is_float())
      result.set_float(i, start.get_float(0) + static_cast<double>(i) * delta.get_float(0));
    else
      result.set_int(i, start.get_int(0) + i * delta.get_int(0));
  }
  return c.emit_constant(result);
}

ValueId import_eye_like(Context& c) {
  const ValueId x = c.input(0);
  const std::vector<Expr> dims = c.type(x).shape;
  const DType dtype = c.has_attribute("dtype") ? c.attribute_dtype("dtype") : dtype_of(c, x);
  if (dims.size() != 2)
    throw Error(ErrorCode::shape, "EyeLike: its input is no matrix\n  help: it takes [rows, columns]");
  const ValueId diagonal =
      c.emit("add", {emit_range(c, dims[0], {dims[0], Expr(1)}), emit_ints(c, {c.attribute_int("k", 0)}, {}, i64)});
  return emit_cast(c, c.emit("equal", {diagonal, emit_range(c, dims[1], {dims[1]})}), dtype);
}

// a0 - a1 cos(2πn / N) + a2 cos(4πn / N), N the size or, of a symmetric window, one less.
Rule window_rule(const std::string& op_type, double a0, double a1, double a2) {
  return rule(op_type, 17, [=](Context& c) {
    const Expr size = c.emit_item(c.input(0));
    const Expr period = c.attribute_int("periodic", 1) != 0 ? size : simplify(size - 1);
    const auto number = [&](double value) { return emit_scalar(c, f64, value); };
    const auto cosine = [&](ValueId phase, double factor) {
      return c.emit("multiply", {number(factor), c.emit("cos", {phase})});
    };
    const ValueId steps = emit_cast(c, c.emit_sizes({simplify(max(period, 1))}, {}), f64);
    const ValueId turn = c.emit("divide", {number(2 * std::numbers::pi), steps});
    const ValueId phase = c.emit("multiply", {emit_cast(c, emit_range(c, size, {size}), f64), turn});
    ValueId window = c.emit("subtract", {number(a0), cosine(phase, a1)});
    if (a2 != 0) window = c.emit("add", {window, cosine(c.emit("add", {phase, phase}), a2)});
    return emit_cast(c, window, c.has_attribute("output_datatype") ? c.attribute_dtype("output_datatype") : f32);
  });
}

}  // namespace

std::vector<Rule> constant_rules() {
  return {
      rule("Constant", 1, import_constant),
      rule("ConstantOfShape", 9, import_constant_of_shape),
      rule("Shape", 1, import_shape),
      rule("Size", 1, import_size),
      rule("Range", 11, import_range),
      rule("EyeLike", 9, import_eye_like),
      window_rule("HannWindow", 0.5, 0.5, 0),
      window_rule("HammingWindow", 25.0 / 46, 21.0 / 46, 0),
      window_rule("BlackmanWindow", 0.42, 0.5, 0.08),
  };
}

}  // namespace tw::frontends::onnx
