// Products on tensor cores: the oracle runs them with copies that land as late as they may and warps that meet only
// where they are told to, the emulator their text.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "tensor_ir/text/parser.h"
#include "tests/unit/sanitized.h"
#include "tests/unit/targets/tensor_core_cases.h"

namespace tw {
namespace {

using test::call_of;
using test::call_of_group;
using test::Copier;
using test::epilogue;
using test::expect_answer;
using test::factor;
using test::GroupCase;
using test::lowered_by_groups;
using test::lowered_product;
using test::operands;
using test::product;
using test::ProductCase;
using test::sm_80;
using test::sm_89;
using test::target_for;
using test::tolerance;
using test::with_groups;

class TensorCores : public test::LargeFamily<ProductCase> {};

TEST_P(TensorCores, GiveTheOraclesAnswerInOneKernel) {
  const Func func = product(GetParam());
  const Target& target = target_for(GetParam().dtype);
  const Schedule schedule = target.default_schedule(func, target);
  const LoweredFunc lowered = lower(schedule.func(), target, "product");
  ASSERT_EQ(lowered.kernels.size(), 1u);
  const std::string text = cuda::emit_cuda(lowered.kernels, target.shared_bytes);
  EXPECT_EQ(test::count_of(text, call_of(GetParam().dtype, GetParam().b_dtype)), 1) << text;
  EXPECT_EQ(test::count_of(text, " tw_requantise<i8>("), GetParam().gives_bytes ? 1 : 0) << text;
  expect_answer(func, schedule, lowered, text, tolerance(GetParam().dtype, 1e-4));
}

INSTANTIATE_TEST_SUITE_P(
    All, TensorCores,
    ::testing::Values(ProductCase{1, 64, 64, 96, bf16}, ProductCase{1, 64, 64, 96, f16},
                      ProductCase{1, 64, 48, 64, bf16, true, false}, ProductCase{1, 48, 64, 64, bf16, false, true},
                      ProductCase{1, 32, 64, 64, bf16, true, true}, ProductCase{2, 33, 70, 40, bf16},
                      ProductCase{1, 48, 64, 32, bf16, false, false, true},
                      ProductCase{1, 48, 64, 32, bf16, true, true, true}, ProductCase{1, 37, 21, 19, f16},
                      ProductCase{3, 5, 100, 50, bf16, false, true}, ProductCase{1, 50, 7, 33, bf16, true, false},
                      ProductCase{150, 64, 128, 32, bf16}, ProductCase{40, 256, 128, 32, f16}));

// Rows along k by ldmatrix, across it element by element.
INSTANTIATE_TEST_SUITE_P(
    OfTf32, TensorCores,
    ::testing::Values(ProductCase{1, 64, 64, 96, f32}, ProductCase{1, 64, 64, 64, f32, false, true},
                      ProductCase{1, 64, 48, 64, f32, true, false}, ProductCase{1, 48, 64, 64, f32, true, true},
                      ProductCase{2, 33, 70, 40, f32}, ProductCase{1, 48, 64, 32, f32, false, false, true},
                      ProductCase{1, 37, 21, 19, f32}, ProductCase{3, 5, 100, 50, f32, false, true},
                      ProductCase{1, 50, 7, 33, f32, true, false}, ProductCase{150, 64, 128, 16, f32}));

// Rows along k, be they so in memory or turned when they are staged or compiled.
INSTANTIATE_TEST_SUITE_P(OfBytes, TensorCores,
                         ::testing::Values(ProductCase{1, 64, 64, 192, i8, false, true},
                                           ProductCase{1, 64, 48, 128, u8, false, true, false, i8, true},
                                           ProductCase{1, 48, 64, 96, i8, false, true, true, u8},
                                           ProductCase{1, 32, 64, 64, u8, false, true, false, u8, true},
                                           ProductCase{1, 64, 48, 128, u8, false, false, false, i8, true, true},
                                           ProductCase{1, 37, 21, 50, i8, false, false, false, i8, true, true},
                                           ProductCase{2, 33, 80, 72, u8, false, false, false, i8},
                                           ProductCase{1, 48, 64, 64, i8, true, false, true, u8, true},
                                           ProductCase{3, 5, 100, 50, i8, true, true},
                                           ProductCase{150, 64, 128, 64, u8, false, true, false, i8, true}));

INSTANTIATE_TEST_SUITE_P(
    OfFloat8, TensorCores,
    ::testing::Values(ProductCase{1, 64, 64, 192, f8e4m3fn, false, true},
                      ProductCase{1, 64, 48, 128, f8e5m2, false, true, false, f8e4m3fn},
                      ProductCase{1, 48, 64, 96, f8e4m3fn, false, true, true, f8e5m2},
                      ProductCase{1, 32, 64, 64, f8e5m2, false, false, false, f8e5m2, false, true},
                      ProductCase{1, 37, 21, 50, f8e4m3fn, false, false, false, f8e4m3fn, false, true},
                      ProductCase{2, 33, 80, 72, f8e4m3fn}, ProductCase{3, 5, 100, 50, f8e4m3fn, true, true},
                      ProductCase{40, 64, 128, 64, f8e4m3fn, false, true, false, f8e4m3fn}));

struct ConvolutionCase {
  const char* name;
  int64_t images, inputs, filters, height, width, window, stride, padding;
  DType dtype;
  bool is_blocked;  // channels in blocks of 16 bytes, of data and results
  size_t kernels = 1;
  DType filter_dtype = dtype;
  bool gives_bytes = false;
  int64_t around = 0;  // what the data has around it
};
void PrintTo(const ConvolutionCase& c, std::ostream* out) {
  *out << c.name;
}

// out[n, o, y, x] = relu(Σ padded[n, c, y·stride + u, x·stride + v] · W[o, c, u, v]).
Func convolution(const ConvolutionCase& c) {
  using te::Indices;
  const te::Tensor x = te::placeholder("X", {c.images, c.inputs, c.height, c.width}, c.dtype.stored());
  const te::Tensor w = te::placeholder("W", {c.filters, c.inputs, c.window, c.window}, c.filter_dtype.stored());
  const te::Tensor padded = te::compute(
      "padded", {c.images, c.inputs, c.height + 2 * c.padding, c.width + 2 * c.padding}, {x}, [&](const Indices& s) {
        const Expr y = s[2] - c.padding, z = s[3] - c.padding;
        const Expr inside = Expr(0) <= y && y < c.height && Expr(0) <= z && z < c.width;
        const Expr data = load(x.buffer(), {s[0], s[1], y, z}, inside);
        return c.around == 0 ? data : select(inside, data, const_of(c.dtype, static_cast<double>(c.around)));
      });
  const auto extent = [&](int64_t size) { return Expr((size + 2 * c.padding - c.window) / c.stride + 1); };
  const std::vector<Expr> shape = {c.images, c.filters, extent(c.height), extent(c.width)};
  const te::Tensor sums =
      te::reduce("C", shape, {c.inputs, c.window, c.window}, te::Combiner::sum, {padded, w},
                 [&](const Indices& s, const Indices& r) {
                   const Expr data = padded({s[0], r[0], s[2] * c.stride + r[1], s[3] * c.stride + r[2]});
                   return factor(data, c.dtype) * factor(w({s[1], r[0], r[1], r[2]}), c.filter_dtype);
                 });
  const te::Tensor out = te::compute("out", shape, {sums}, [&](const Indices& s) {
    return epilogue(sums(s), c.gives_bytes, std::nextafter(1.0 / 1024, 1));
  });
  Func func = te::make_func("convolution", {x, w}, {out});
  test::mark_constant(func, "W");
  if (!c.is_blocked) return func;
  Schedule schedule(func);
  for (const char* buffer : {"X", "out"})
    schedule.transform_layout(buffer,
                              parse_index_map(c.dtype.bytes() == 1   ? "(n, c, h, w) -> (n, c // 16, h, w, c % 16)"
                                              : c.dtype.bytes() == 2 ? "(n, c, h, w) -> (n, c // 8, h, w, c % 8)"
                                                                     : "(n, c, h, w) -> (n, c // 4, h, w, c % 4)"));
  return schedule.func();
}

class ConvolutionOnTensorCores : public test::LargeFamily<ConvolutionCase> {};

TEST_P(ConvolutionOnTensorCores, GivesTheOraclesAnswer) {
  const Func func = convolution(GetParam());
  const Target& target = target_for(GetParam().dtype);
  const Schedule schedule = target.default_schedule(func, target);
  const LoweredFunc lowered = lower(schedule.func(), target, "convolution");
  EXPECT_EQ(lowered.kernels.size(), GetParam().kernels) << to_text(schedule.func());
  const std::string text = cuda::emit_cuda(lowered.kernels, target.shared_bytes);
  const auto count_of = [&](DType a, DType b) { return test::count_of(text, call_of(a, b)); };
  const auto [data, filter] = std::pair(GetParam().dtype, GetParam().filter_dtype);
  EXPECT_EQ(count_of(data, filter) + (data == filter ? 0 : count_of(filter, data)), 1) << text;
  if (GetParam().is_blocked) {
    // By 16 bytes at a time, of the data past no cache: its rows are near in memory.
    EXPECT_GE(test::count_of(text, " tw_copy<16, false>("), 1) << text;
    EXPECT_GE(test::count_of(text, " tw_copy<16, true>("), 1) << text;
  }
  expect_answer(func, schedule, lowered, text, tolerance(data, 1e-3));
}

class ConvolutionByGroupsOfWarps : public ConvolutionOnTensorCores {};

TEST_P(ConvolutionByGroupsOfWarps, GivesTheOraclesAnswer) {
  const Func func = convolution(GetParam());
  const Schedule schedule = with_groups().decided_schedule(func, with_groups(), {{"multiplier", {1}}});
  const LoweredFunc lowered = lower(schedule.func(), with_groups(), "convolution");
  const std::string text = cuda::emit_cuda(lowered.kernels, with_groups().shared_bytes);
  const auto [data, filter] = std::pair(GetParam().dtype, GetParam().filter_dtype);
  const std::string own = text.substr(text.find("extern \"C\""));
  EXPECT_EQ(test::count_of(own, call_of_group(data, filter)) +
                (data == filter ? 0 : test::count_of(own, call_of_group(filter, data))),
            1)
      << text;
  expect_answer(func, schedule, lowered, text, tolerance(data, 1e-3));
}

const auto convolutions_of_floats =
    ::testing::Values(ConvolutionCase{"in_blocks", 2, 16, 24, 9, 7, 3, 1, 1, bf16, true},
                      ConvolutionCase{"in_pieces_of_channels", 1, 64, 16, 6, 8, 3, 1, 1, f16, true},
                      ConvolutionCase{"with_strides", 1, 24, 16, 11, 10, 3, 2, 1, bf16, true},
                      ConvolutionCase{"of_points", 2, 40, 72, 5, 6, 1, 1, 0, f16, true},
                      ConvolutionCase{"of_points_with_strides", 1, 64, 16, 9, 9, 1, 2, 0, bf16, true},
                      ConvolutionCase{"of_an_image", 1, 3, 16, 17, 15, 7, 2, 3, bf16, false},
                      ConvolutionCase{"row_major", 1, 20, 37, 13, 15, 3, 1, 1, f16, false},
                      ConvolutionCase{"in_parts", 1, 256, 16, 4, 4, 3, 1, 1, bf16, true, 2},
                      ConvolutionCase{"of_points_in_parts", 1, 1024, 24, 4, 4, 1, 1, 0, f16, true, 2});
const auto name_of_convolution = [](const auto& info) { return std::string(info.param.name); };
INSTANTIATE_TEST_SUITE_P(All, ConvolutionOnTensorCores, convolutions_of_floats, name_of_convolution);
INSTANTIATE_TEST_SUITE_P(All, ConvolutionByGroupsOfWarps, convolutions_of_floats, name_of_convolution);
INSTANTIATE_TEST_SUITE_P(OfTf32, ConvolutionOnTensorCores,
                         ::testing::Values(ConvolutionCase{"in_blocks", 2, 12, 20, 9, 7, 3, 1, 1, f32, true},
                                           ConvolutionCase{"in_pieces_of_channels", 1, 32, 16, 6, 8, 3, 1, 1, f32,
                                                           true},
                                           ConvolutionCase{"with_strides", 1, 24, 16, 11, 10, 3, 2, 1, f32, true},
                                           ConvolutionCase{"of_points", 2, 40, 72, 5, 6, 1, 1, 0, f32, true},
                                           ConvolutionCase{"of_an_image", 1, 3, 16, 17, 15, 7, 2, 3, f32, false},
                                           ConvolutionCase{"row_major", 1, 20, 37, 13, 15, 3, 1, 1, f32, false},
                                           ConvolutionCase{"in_parts", 1, 256, 16, 4, 4, 3, 1, 1, f32, true, 2}),
                         name_of_convolution);
const auto convolutions_of_bytes =
    ::testing::Values(ConvolutionCase{"in_blocks", 2, 32, 48, 9, 7, 3, 1, 1, u8, true, 1, i8, true},
                      ConvolutionCase{"in_pieces_of_channels", 1, 128, 16, 6, 8, 3, 1, 1, i8, true},
                      ConvolutionCase{"with_strides", 1, 48, 16, 11, 10, 3, 2, 1, u8, true, 1, i8, true},
                      ConvolutionCase{"of_points", 2, 80, 64, 5, 6, 1, 1, 0, u8, true, 1, u8},
                      ConvolutionCase{"in_blocks_in_a_number", 1, 64, 48, 9, 7, 3, 1, 1, u8, true, 1, i8, true, 130},
                      ConvolutionCase{"in_parts", 1, 512, 16, 4, 4, 3, 1, 1, u8, true, 2, i8, true});
INSTANTIATE_TEST_SUITE_P(
    OfBytesOneByOne, ConvolutionOnTensorCores,
    ::testing::Values(ConvolutionCase{"row_major_in_a_number", 1, 20, 16, 9, 8, 3, 1, 1, i8, false, 1, i8, true, -3},
                      ConvolutionCase{"of_an_image", 1, 3, 16, 17, 15, 7, 2, 3, i8, false, 1, i8, true},
                      ConvolutionCase{"row_major", 1, 20, 37, 13, 15, 3, 1, 1, u8, false, 1, i8, true}),
    name_of_convolution);
INSTANTIATE_TEST_SUITE_P(OfBytes, ConvolutionOnTensorCores, convolutions_of_bytes, name_of_convolution);
INSTANTIATE_TEST_SUITE_P(OfBytes, ConvolutionByGroupsOfWarps, convolutions_of_bytes, name_of_convolution);

const auto convolutions_of_float8 =
    ::testing::Values(ConvolutionCase{"in_blocks", 2, 32, 48, 9, 7, 3, 1, 1, f8e4m3fn, true},
                      ConvolutionCase{"in_pieces_of_channels", 1, 128, 16, 6, 8, 3, 1, 1, f8e5m2, true, 1, f8e4m3fn},
                      ConvolutionCase{"of_points", 2, 80, 64, 5, 6, 1, 1, 0, f8e4m3fn, true, 1, f8e5m2},
                      ConvolutionCase{"in_parts", 1, 512, 16, 4, 4, 3, 1, 1, f8e4m3fn, true, 2});
INSTANTIATE_TEST_SUITE_P(OfFloat8OneByOne, ConvolutionOnTensorCores,
                         ::testing::Values(ConvolutionCase{"of_an_image", 1, 3, 16, 17, 15, 7, 2, 3, f8e4m3fn, false},
                                           ConvolutionCase{"row_major", 1, 20, 37, 13, 15, 3, 1, 1, f8e5m2, false}),
                         name_of_convolution);
INSTANTIATE_TEST_SUITE_P(OfFloat8, ConvolutionOnTensorCores, convolutions_of_float8, name_of_convolution);
INSTANTIATE_TEST_SUITE_P(OfFloat8, ConvolutionByGroupsOfWarps, convolutions_of_float8, name_of_convolution);

// Of few sums of many terms.
TEST(TensorCoreParts, ProductsOfFewSumsAreMadeInParts) {
  const Func func = product({1, 8, 40, 2048, bf16});
  const LoweredFunc lowered = lowered_product(func);
  ASSERT_EQ(lowered.kernels.size(), 2u);
  const std::vector<NDArray> arrays = test::random_buffers(func, 5);
  std::vector<NDArray> expected;
  for (const NDArray& array : arrays) expected.push_back(array.clone());
  interpret(func, expected);
  test::run_on_device(lowered, func, test::emulated_image(cuda::emit_cuda(lowered.kernels, sm_80().shared_bytes)),
                      arrays);
  EXPECT_LT(test::largest_difference(arrays.back(), expected.back()), 1e-3);
}

class TensorCoreDecisions : public test::LargeFamily<std::tuple<const Target*, Func>> {};

// What analysis would not choose here included.
TEST_P(TensorCoreDecisions, GiveTheOraclesAnswerEach) {
  const auto& [target_of_case, func] = GetParam();
  const Target& target = *target_of_case;
  std::vector<Decisions> points;
  const Schedule by_default = target.default_schedule(func, target);
  for (const AskedDecision& asked : by_default.asked())
    for (size_t c = 0; c < asked.candidates.size(); ++c)
      if (c != asked.analytic) points.push_back({{asked.name, asked.candidates[c].value}});
  EXPECT_GE(points.size(), 7u);
  std::vector<LoweredFunc> lowered;
  std::vector<Trace> traces;
  std::vector<Kernel> kernels;
  for (size_t p = 0; p < points.size(); ++p) {
    const Schedule schedule = target.decided_schedule(func, target, points[p]);
    traces.push_back(schedule.trace());
    lowered.push_back(lower(schedule.func(), target, "product_" + std::to_string(p) + "_of"));
    kernels.insert(kernels.end(), lowered.back().kernels.begin(), lowered.back().kernels.end());
  }
  const std::vector<std::byte> image = test::emulated_image(cuda::emit_cuda(kernels, target.shared_bytes));
  const std::vector<NDArray> arrays = operands(func);
  std::vector<NDArray> expected;
  for (const NDArray& array : arrays) expected.push_back(array.clone());
  interpret(func, expected);
  const double near = tolerance(func.buffers.back()->dtype, 1e-4);
  for (size_t p = 0; p < points.size(); ++p) {
    std::vector<NDArray> scheduled;
    for (size_t i = 0; i < arrays.size(); ++i)
      scheduled.push_back(test::as_scheduled(arrays[i].clone(), traces[p], func.buffers[i]->name));
    test::run_on_device(lowered[p], func, image, scheduled);
    EXPECT_LT(test::largest_difference(scheduled.back(), expected.back()), near) << to_text(points[p]);
  }
}
INSTANTIATE_TEST_SUITE_P(
    Shapes, TensorCoreDecisions,
    ::testing::Combine(::testing::Values(&sm_80(), &with_groups()),
                       ::testing::Values(product({1, 130, 136, 140, bf16}), product({2, 40, 24, 512, bf16}),
                                         product({1, 130, 136, 272, u8, false, false, false, i8, true, true}),
                                         product({1, 130, 136, 100, f32}), product({1, 40, 24, 512, f32, true, true}),
                                         convolution({"in_pieces_and_parts", 1, 64, 40, 6, 6, 3, 1, 1, bf16, true}))));

INSTANTIATE_TEST_SUITE_P(OfFloat8, TensorCoreDecisions,
                         ::testing::Combine(::testing::Values(&sm_89(), &with_groups()),
                                            ::testing::Values(product({1, 130, 136, 272, f8e4m3fn, false, true}))));

TEST(TensorCoreText, GroupsAreNoPartOfPtx) {
  const Target with_ptx = parse_target("cuda:sm_90+ptx");
  const Func func = product({1, 1024, 1024, 1024, bf16});
  const auto text_for = [&](const Target& target) {
    const LoweredFunc lowered = lower(target.default_schedule(func, target).func(), target, "product");
    const std::string text = cuda::emit_cuda(lowered.kernels, target.shared_bytes);
    return text.substr(text.find("extern \"C\""));
  };
  EXPECT_EQ(test::count_of(text_for(with_groups()), "  tw_wgmma_"), 1);
  EXPECT_EQ(test::count_of(text_for(with_ptx), "  tw_wgmma_"), 0);
}

class TensorCoreGroups : public test::LargeFamily<GroupCase> {};

TEST_P(TensorCoreGroups, GiveTheOraclesAnswer) {
  const Func func = product(GetParam().product);
  const LoweredFunc lowered = lowered_by_groups(GetParam());
  ASSERT_EQ(lowered.kernels.size(), 1u);
  const std::string text = cuda::emit_cuda(lowered.kernels, with_groups().shared_bytes);
  const auto& [batch, m, n, k, dtype, ta, tb, is_b_first, b_dtype, gives_bytes, is_constant] = GetParam().product;
  EXPECT_EQ(test::count_of(text.substr(text.find("extern \"C\"")), call_of_group(dtype, b_dtype)), 1) << text;
  const std::vector<NDArray> arrays = operands(func);
  const double near = tolerance(GetParam().product.dtype, 1e-3);
  std::vector<NDArray> expected, by_oracle;
  for (const NDArray& array : arrays) expected.push_back(array.clone()), by_oracle.push_back(array.clone());
  interpret(func, expected);
  test::interpret_kernels(lowered, func, by_oracle, {.parameters = {}, .seed = 3});
  EXPECT_LT(test::largest_difference(by_oracle.back(), expected.back()), near) << to_text(lowered.kernels[0].func);
  test::run_on_device(lowered, func, test::emulated_image(text), arrays);
  EXPECT_LT(test::largest_difference(arrays.back(), expected.back()), near) << text;
}

INSTANTIATE_TEST_SUITE_P(
    All, TensorCoreGroups,
    ::testing::Values(GroupCase{{1, 64, 64, 192, bf16, false, true}, {64, 64, 64, 4, 1}, 3},
                      GroupCase{{1, 130, 70, 200, f16, false, true}, {128, 64, 64, 8, 1}, 2},
                      GroupCase{{2, 64, 256, 128, bf16}, {64, 256, 64, 4, 1}, 2},
                      GroupCase{{1, 128, 128, 256, f16, true, false}, {128, 128, 64, 8, 1}, 4},
                      GroupCase{{1, 200, 250, 130, bf16, true, true}, {128, 256, 64, 8, 1}, 1},
                      GroupCase{{1, 64, 64, 192, bf16, false, true}, {64, 64, 64, 4, 1}, 3, Copier::own_warp},
                      GroupCase{{1, 130, 70, 200, f16, false, true}, {128, 64, 64, 8, 1}, 2, Copier::own_warp},
                      GroupCase{{1, 128, 192, 320, bf16, false, true}, {64, 64, 64, 4, 1}, 4, Copier::own_warp, 1, 2},
                      GroupCase{{3, 130, 128, 200, f16}, {128, 64, 64, 8, 1}, 2, Copier::own_warp, 1, 6},
                      GroupCase{
                          {2, 512, 256, 136, bf16, true, false}, {128, 256, 64, 8, 1}, 3, Copier::own_warp, 2, 4}));
// Both operands lie along k: as boxes of a tensor, or piece by piece.
INSTANTIATE_TEST_SUITE_P(
    OfBytes, TensorCoreGroups,
    ::testing::Values(
        GroupCase{{1, 64, 64, 384, i8, false, true}, {64, 64, 64, 4, 1}, 3},
        GroupCase{{1, 130, 70, 208, u8, false, true, false, i8, true}, {128, 64, 64, 8, 1}, 2},
        GroupCase{{2, 64, 256, 256, u8, false, true, false, u8}, {64, 256, 64, 4, 1}, 2, Copier::all_threads},
        GroupCase{{1, 128, 100, 100, i8, false, true, true, u8}, {128, 128, 64, 8, 1}, 1},
        GroupCase{{1, 64, 64, 384, f8e4m3fn, false, true}, {64, 64, 64, 4, 1}, 3},
        GroupCase{{1, 130, 70, 208, f8e5m2, false, true, false, f8e4m3fn}, {128, 64, 64, 8, 1}, 2},
        GroupCase{{2, 64, 256, 256, f8e4m3fn, false, true, false, f8e5m2}, {64, 256, 64, 4, 1}, 2, Copier::all_threads},
        GroupCase{{1, 128, 128, 512, f8e5m2, false, true, true, f8e5m2}, {128, 128, 64, 8, 1}, 4},
        GroupCase{{1, 200, 250, 132, f8e4m3fn, false, true}, {128, 256, 64, 8, 1}, 1},
        GroupCase{{1, 128, 192, 640, f8e4m3fn, false, true}, {64, 64, 64, 4, 1}, 4, Copier::own_warp, 1, 2},
        GroupCase{{3, 130, 128, 400, u8, false, true, false, i8}, {128, 64, 64, 8, 1}, 2, Copier::own_warp, 1, 6}));

// Aligned operands are copied 16 bytes at a time, to where no two rows come from the same banks.
TEST(TensorCoreText, CopiesAreAsynchronousAndWide) {
  const auto copies_of = [](const ProductCase& c) {
    const std::string text = cuda::emit_cuda(lowered_product(product(c)).kernels, sm_80().shared_bytes);
    std::istringstream lines(text.substr(text.find("extern \"C\"")));
    std::vector<std::string> copies;
    for (std::string line; std::getline(lines, line);)
      if (line.find(" tw_copy<16, ") != std::string::npos) copies.push_back(line);
    return copies;
  };
  for (const ProductCase& c : {ProductCase{1, 64, 64, 96, bf16}, ProductCase{1, 72, 56, 40, bf16}}) {
    EXPECT_FALSE(copies_of(c).empty());
    for (const std::string& copy : copies_of(c)) EXPECT_NE(copy.find("tw_swizzle<"), std::string::npos) << copy;
  }
  EXPECT_TRUE(copies_of({1, 64, 63, 95, bf16}).empty());
}

// Sums become the first operand of another product where they are, and two products of different shapes agree on what
// a thread holds: out = relu(x · yᵀ) · zᵀ, of one warp.
const char* chained_products = R"(
func chained(x: bf16[512], y: bf16[512], z: bf16[512]) -> (out: f32[512]) {
  for b in 0..1 block.x {
    alloc xs: bf16[512] in shared
    alloc ys: bf16[512] in shared
    alloc zs: bf16[512] in shared
    alloc sums: f32[1024] in fragment
    alloc rows: bf16[1024] in fragment
    alloc second: f32[512] in fragment
    for i in 0..8 thread.y { for j in 0..4 thread.x { for p in 0..2 unrolled {
      xs[ramp(p * 256 + i * 32 + j * 8, 1, 8)] = x[ramp(p * 256 + i * 32 + j * 8, 1, 8)]
      ys[ramp(p * 256 + i * 32 + j * 8, 1, 8)] = y[ramp(p * 256 + i * 32 + j * 8, 1, 8)]
      zs[ramp(p * 256 + i * 32 + j * 8, 1, 8)] = z[ramp(p * 256 + i * 32 + j * 8, 1, 8)]
    } } }
    barrier()
    warp_barrier()
    for i in 0..8 thread.y { for j in 0..4 thread.x { for p in 0..4 unrolled { for q in 0..4 unrolled {
      sums[ramp(i * 32 + j * 2 + p * 256 + q * 8, 1, 2)] = broadcast(0.0f, 2)
    } } } }
    warp_barrier()
    for one in 0..1 thread.y { for other in 0..1 thread.x {
      sums[tile_at:i64x1024(0, 32, 32, 1, 32)] = mma_bf16(sums[tile_at:i64x1024(0, 32, 32, 1, 32)],
        xs[tile_at:i64x512(0, 16, 32, 1, 16)], ys[tile_at:i64x512(0, 16, 32, 1, 16)])
    } }
    warp_barrier()
    for i in 0..8 thread.y { for j in 0..4 thread.x { for p in 0..4 unrolled { for q in 0..4 unrolled {
      rows[ramp(i * 32 + j * 2 + p * 256 + q * 8, 1, 2)] =
        bf16x2(maximum(sums[ramp(i * 32 + j * 2 + p * 256 + q * 8, 1, 2)], broadcast(0.0f, 2)))
    } } } }
    warp_barrier()
    for i in 0..8 thread.y { for j in 0..4 thread.x { for p in 0..4 unrolled { for q in 0..2 unrolled {
      second[ramp(i * 16 + j * 2 + p * 128 + q * 8, 1, 2)] = broadcast(0.0f, 2)
    } } } }
    warp_barrier()
    for one in 0..1 thread.y { for other in 0..1 thread.x {
      second[tile_at:i64x512(0, 16, 32, 1, 16)] = mma_bf16(second[tile_at:i64x512(0, 16, 32, 1, 16)],
        rows[tile_at:i64x1024(0, 32, 32, 1, 32)], zs[tile_at:i64x512(0, 32, 16, 1, 32)])
    } }
    warp_barrier()
    for i in 0..8 thread.y { for j in 0..4 thread.x { for p in 0..4 unrolled { for q in 0..2 unrolled {
      out[ramp(i * 16 + j * 2 + p * 128 + q * 8, 1, 2)] = second[ramp(i * 16 + j * 2 + p * 128 + q * 8, 1, 2)]
    } } } }
  }
})";

TEST(TensorCores, MultiplyWhatIsInRegisters) {
  const Func func = parse_func(chained_products);
  LoweredFunc lowered;
  lowered.kernels.push_back({.symbol = "chained", .func = func, .tasks = 1});
  const std::string text = cuda::emit_cuda(lowered.kernels, sm_80().shared_bytes);
  EXPECT_EQ(test::count_of(text, " tw_ldmatrix(&"), 3) << text;
  const std::vector<NDArray> arrays = test::random_buffers(func, 5);
  std::vector<NDArray> by_oracle;
  for (const NDArray& array : arrays) by_oracle.push_back(array.clone());
  interpret(func, by_oracle);
  for (int64_t i = 0; i < 32; ++i) {
    for (int64_t j = 0; j < 16; ++j) {
      double expected = 0;
      for (int64_t k = 0; k < 32; ++k) {
        double sum = 0;
        for (int64_t l = 0; l < 16; ++l) sum += arrays[0].get_float(i * 16 + l) * arrays[1].get_float(k * 16 + l);
        expected += std::max(sum, 0.0) * arrays[2].get_float(j * 32 + k);
      }
      EXPECT_NEAR(by_oracle.back().get_float(i * 16 + j), expected, 0.1);
    }
  }
  test::run_on_device(lowered, func, test::emulated_image(text), arrays);
  EXPECT_LT(test::largest_difference(arrays.back(), by_oracle.back()), 1e-4) << text;
}

TEST(TensorCores, FragmentsThatAreMultipliedAreOfRows) {
  const auto replaced = [](const std::string& text, const std::string& from, const std::string& to) {
    return std::regex_replace(text, std::regex(from), to);
  };
  const auto problem_of = [&](const std::string& from, const std::string& to,
                              const std::string& text = chained_products) {
    const Func func = parse_func(replaced(text, from, to));
    try {
      cuda::emit_cuda({{.symbol = "chained", .func = func, .tasks = 1}}, sm_80().shared_bytes);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(problem_of("nothing of it", ""), "");
  EXPECT_NE(problem_of(R"(rows\[tile_at:i64x1024\(0, 32, 32, 1, 32)", "rows[tile_at:i64x1024(0, 1, 32, 32, 32")
                .find("keep the rows of a warp"),
            std::string::npos);
  EXPECT_NE(problem_of("alloc zs: bf16\\[512\\] in shared", "alloc zs: bf16[512] in fragment")
                .find("stage it in shared memory"),
            std::string::npos);
  const std::string of_tf32 = replaced(chained_products, "mma_bf16", "mma_tf32");
  EXPECT_NE(problem_of("bf16", "f32", of_tf32).find("stage it with rows across the sum"), std::string::npos);
  const std::string across =
      replaced(of_tf32, R"(zs\[tile_at:i64x512\(0, 32, 16, 1, 32)", "zs[tile_at:i64x512(0, 1, 16, 16, 32");
  EXPECT_EQ(problem_of("bf16", "f32", across), "");
}

}  // namespace
}  // namespace tw
