// Axes that every access walks together become one; others stay.
#include "relay_ir/compile/merge_axes.h"

#include <gtest/gtest.h>

#include "tensor_ir/interp/interp.h"
#include "tensor_ir/text/parser.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/verify.h"

namespace tw::relay {
namespace {

// A pointwise convolution of blocks of channels with an epilogue; `pixel` is how it reads its input.
std::string pointwise(const std::string& pixel) {
  return "func conv(X: bf16[1, 2, 3, 5, 4], W: bf16[6, 8, 1, 1] constant, B: f32[6] constant) -> (O: f32[1, 6, 3, 5]) {"
         "  alloc Y: f32[1, 6, 3, 5]"
         "  for n in 0..1 { for c in 0..6 { for h in 0..3 { for w in 0..5 {"
         "    for k in 0..8 { for kh in 0..1 { for kw in 0..1 {"
         "    block Y(spatial vn: 1 = n, spatial vc: 6 = c, spatial vh: 3 = h, spatial vw: 5 = w, reduce vk: 8 = k,"
         "            reduce vkh: 1 = kh, reduce vkw: 1 = kw) {"
         "      init { Y[vn, vc, vh, vw] = 0.0f }"
         "      Y[vn, vc, vh, vw] = Y[vn, vc, vh, vw] + f32(X[vn, vk // 4, " +
         pixel +
         ", vk % 4]) * f32(W[vc, vk, vkh, vkw])"
         "    } } } } } } } }"
         "  for n in 0..1 { for c in 0..6 { for h in 0..3 { for w in 0..5 {"
         "    block O(spatial vn: 1 = n, spatial vc: 6 = c, spatial vh: 3 = h, spatial vw: 5 = w) {"
         "      O[vn, vc, vh, vw] = max(Y[vn, vc, vh, vw] + B[vc], 0.0f)"
         "    } } } } }"
         "}";
}

TEST(MergeAxes, PointwiseConvolutionsAreProductsOverPixels) {
  const Func func = parse_func(pointwise("vh + vkh, vw + vkw")), merged = merge_axes(func);
  verify(merged);
  EXPECT_EQ(const_shape(merged.buffers[0]), (std::vector<int64_t>{1, 2, 15, 4})) << to_text(merged);
  EXPECT_EQ(const_shape(merged.buffers[1]), (std::vector<int64_t>{6, 8, 1, 1}));
  EXPECT_EQ(const_shape(merged.buffers[3]), (std::vector<int64_t>{1, 6, 15}));
  std::vector<NDArray> before, after;
  for (size_t i = 0; i < func.buffers.size(); ++i) {
    before.emplace_back(func.buffers[i]->dtype, *const_shape(func.buffers[i]));
    for (int64_t e = 0; e < before.back().size(); ++e) before.back().set_float(e, static_cast<double>(e % 13) - 6);
    after.emplace_back(func.buffers[i]->dtype, *const_shape(merged.buffers[i]));
    for (int64_t e = 0; e < before.back().size(); ++e) after.back().set_float(e, before.back().get_float(e));
  }
  interpret(func, before);
  interpret(merged, after);
  for (int64_t e = 0; e < before.back().size(); ++e) EXPECT_EQ(before.back().get_float(e), after.back().get_float(e));
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

TEST(MergeAxes, OpenHeightsAndWidthsAreOneAxisToo) {
  std::string text = replaced(pointwise("vh, vw"), "func conv(", "func conv[height: 1.., width: 1..](");
  text = replaced(text, "2, 3, 5, 4]", "2, (height + 1) // 2, width, 4]");
  text = replaced(text, "6, 3, 5]", "6, (height + 1) // 2, width]");
  text = replaced(replaced(text, "0..3", "0..(height + 1) // 2"), "0..5", "0..width");
  text = replaced(replaced(text, "vh: 3", "vh: (height + 1) // 2"), "vw: 5", "vw: width");
  const Func func = parse_func(text), merged = merge_axes(func);
  verify(merged);
  EXPECT_EQ(merged.buffers[0].rank(), 4) << to_text(merged);
  EXPECT_EQ(merged.buffers[3].rank(), 3);
  // Seven rows are the four of the window's stride.
  InterpretOptions options;
  options.parameters = {{"height", 7}, {"width", 5}};
  const auto filled = [](const DType& dtype, const Shape& shape) {
    NDArray array(dtype, shape);
    for (int64_t e = 0; e < array.size(); ++e) array.set_float(e, static_cast<double>(e % 13) - 6);
    return array;
  };
  const auto run = [&](const Func& f, const Shape& image, const Shape& result) {
    std::vector<NDArray> arrays{filled(bf16, image), filled(bf16, {6, 8, 1, 1}), filled(f32, {6}), filled(f32, result)};
    interpret(f, arrays, options);
    return arrays.back().reshape({arrays.back().size()});
  };
  const NDArray expected = run(func, {1, 2, 4, 5, 4}, {1, 6, 4, 5}), got = run(merged, {1, 2, 20, 4}, {1, 6, 20});
  for (int64_t e = 0; e < expected.size(); ++e) EXPECT_EQ(got.get_float(e), expected.get_float(e));
}

TEST(MergeAxes, WindowsAndOtherOrdersKeepTheirAxes) {
  for (const char* pixel : {"(vh + 1) % 3, vw + vkw", "2 - vh, vw", "vh, 4 - vw"}) {
    const Func func = parse_func(pointwise(pixel));
    EXPECT_EQ(to_text(merge_axes(func)), to_text(func)) << pixel;
  }
  // The result's bias would have both axes: its array is stored as it is.
  std::string text = pointwise("vh, vw");
  text.replace(text.find("B: f32[6]"), 9, "B: f32[3, 5]");
  text.replace(text.find("B[vc]"), 5, "B[vh, vw]");
  const Func func = parse_func(text);
  EXPECT_EQ(to_text(merge_axes(func)), to_text(func));
}

}  // namespace
}  // namespace tw::relay
