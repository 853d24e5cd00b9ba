// DFT and STFT.
#include "frontends/fourier.h"

#include "frontends/computed.h"
#include "frontends/onnx/rules.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::frontends::onnx {
namespace {

ValueId transform_along(Context& c, ValueId x, int axis) {
  const int rank = rank_of(c, x);
  if (rank < 2 || axis == rank - 1) c.refuse("a transform along the parts of numbers");
  Fourier fourier;
  fourier.is_inverse = c.attribute_int("inverse", 0) != 0;
  fourier.is_onesided = c.attribute_int("onesided", 0) != 0;
  const Expr& extent = c.type(x).shape[axis];
  const bool is_of_half = fourier.is_inverse && fourier.is_onesided;
  fourier.length = c.has_input(1) ? c.emit_item(c.input(1), {1}) : is_of_half ? (extent - 1) * 2 : extent;
  Ints order;
  for (int d = 0; d < rank; ++d) order.push_back(d);
  std::swap(order[axis], order[rank - 2]);
  return emit_transpose(c, emit_fourier(c, emit_transpose(c, x, order), fourier), order);
}

ValueId import_dft(Context& c, int64_t axis) {
  return transform_along(c, c.input(0), rule_axis(c, axis, rank_of(c, c.input(0))));
}

ValueId import_dft_20(Context& c) {
  if (!c.has_input(2)) return import_dft(c, -2);
  if (c.is_known(2)) return import_dft(c, c.constant_ints(2).at(0));
  return emit_along(c, c.input(0), c.input(2), 1, [&](ValueId x) { return transform_along(c, x, 1); });
}

// Frames of the signal, each times the window, transformed alone.
ValueId import_stft(Context& c) {
  const ValueId signal = c.input(0);
  if (rank_of(c, signal) != 3) c.refuse("a signal of another rank than 3");
  const std::vector<Expr> dims = c.type(signal).shape;
  const Expr step = c.emit_item(c.input(1), {1});
  const Expr length = c.has_input(3)   ? c.emit_item(c.input(3), {1})
                      : c.has_input(2) ? c.type(c.input(2)).shape[0]
                                       : dims[1];
  if (as_int(step).value_or(1) < 1) c.refuse("steps of less than 1");
  if (as_int(length).value_or(1) > longest_transform) c.refuse("frames of " + to_text(length));
  const Expr frames = simplify(max(floor_div(dims[1] - length, step) + 1, 0));
  const ValueId begin = c.emit("multiply", {emit_range(c, frames, {frames, Expr(1)}), c.emit_sizes({step}, {})});
  const ValueId places = c.emit("add", {begin, emit_range(c, length, {Expr(1), length})});
  ValueId x = c.emit("gather", {signal, places}, attributes_of({{"axis", int64_t{1}}}));
  if (c.has_input(2)) x = c.emit("multiply", {x, emit_new_axis(c, c.input(2), 1)});
  return emit_fourier(c, x, {length, false, c.attribute_int("onesided", 1) != 0});
}

}  // namespace

std::vector<Rule> fourier_rules() {
  return {
      rule("DFT", 17, [](Context& c) { return import_dft(c, c.attribute_int("axis", 1)); }),
      rule("DFT", 20, import_dft_20),
      rule("STFT", 17, import_stft),
  };
}

}  // namespace tw::frontends::onnx
