// Products and convolutions of open sizes on tensor cores: one program, by the oracle and the emulator at each size.
#include <gtest/gtest.h>

#include "targets/cuda/emit.h"
#include "tensor_ir/dimension.h"
#include "tensor_ir/interp/interp.h"
#include "tensor_ir/te.h"
#include "tensor_ir/text/printer.h"
#include "tests/unit/cuda_device.h"
#include "tests/unit/sample_funcs.h"
#include "tests/unit/sanitized.h"
#include "tests/unit/targets/run.h"
#include "tests/unit/targets/same_meaning.h"

namespace tw {
namespace {

const Target& of_warps() {
  static const Target target = parse_target("cuda:sm_80");
  return target;
}
const Target& of_groups() {  // of four warps
  static const Target target = parse_target("cuda:sm_90");
  return target;
}

// Sizes that are known when it runs, of one or several of the iterations.
struct OpenCase {
  const char* name;
  Func func;
};
void PrintTo(const OpenCase& c, std::ostream* out) {
  *out << c.name;
}

// out[b, i, j] = relu(Σ A[b, i, k] · B[b, k, j]).
Func open_product(const Expr& batch, const Expr& m, const Expr& n, const Expr& k, std::vector<Var> sizes) {
  const te::Tensor a = te::placeholder("A", {batch, m, k}, bf16), b = te::placeholder("B", {batch, k, n}, bf16);
  const te::Tensor sums =
      te::reduce("C", {batch, m, n}, {k}, te::Combiner::sum, {a, b}, [&](const te::Indices& s, const te::Indices& r) {
        return cast(f32, a({s[0], s[1], r[0]})) * cast(f32, b({s[0], r[0], s[2]}));
      });
  const te::Tensor out =
      te::compute("out", {batch, m, n}, {sums}, [&](const te::Indices& s) { return max(sums(s), float_imm(f32, 0)); });
  return te::make_func("product", {a, b}, {out}, std::move(sizes));
}

// out[b, i, j] = Σ A[b, i, k] · W[k, j]: both of the first are rows.
Func open_rows(const Var& batch, const Var& length) {
  const te::Tensor a = te::placeholder("A", {batch, length, 48}, f16), w = te::placeholder("W", {48, 40}, f16);
  const te::Tensor sums = te::reduce("C", {batch, length, 40}, {48}, te::Combiner::sum, {a, w},
                                     [&](const te::Indices& s, const te::Indices& r) {
                                       return cast(f32, a({s[0], s[1], r[0]})) * cast(f32, w({r[0], s[2]}));
                                     });
  Func func = te::make_func("rows", {a, w}, {sums}, {batch, length});
  test::mark_constant(func, "W");
  return func;
}

// Channels in blocks of 8, zeros around the maps, a window of 3 × 3.
Func open_convolution(const Expr& images, const Expr& height, const Expr& width, int64_t stride,
                      std::vector<Var> sizes) {
  const te::Tensor x = te::placeholder("X", {images, 16, height, width}, bf16);
  const te::Tensor w = te::placeholder("W", {24, 16, 3, 3}, bf16);
  const te::Tensor padded = te::compute("padded", {images, 16, height + 2, width + 2}, {x}, [&](const te::Indices& s) {
    const Expr y = s[2] - 1, z = s[3] - 1;
    return load(x.buffer(), {s[0], s[1], y, z}, Expr(0) <= y && y < height && Expr(0) <= z && z < width);
  });
  const std::vector<Expr> shape = {images, 24, floor_div(height - 1, stride) + 1, floor_div(width - 1, stride) + 1};
  const te::Tensor sums = te::reduce(
      "C", shape, {16, 3, 3}, te::Combiner::sum, {padded, w}, [&](const te::Indices& s, const te::Indices& r) {
        const Expr data = padded({s[0], r[0], s[2] * stride + r[1], s[3] * stride + r[2]});
        return cast(f32, data) * cast(f32, w({s[1], r[0], r[1], r[2]}));
      });
  const te::Tensor out =
      te::compute("out", shape, {sums}, [&](const te::Indices& s) { return max(sums(s), float_imm(f32, 0)); });
  Func func = te::make_func("convolution", {x, w}, {out}, std::move(sizes));
  test::mark_constant(func, "W");
  Schedule schedule(func);
  for (const char* buffer : {"X", "out"})
    schedule.transform_layout(buffer, parse_index_map("(n, c, h, w) -> (n, c // 8, h, w, c % 8)"));
  return schedule.func();
}

std::vector<OpenCase> open_cases() {
  const Var m = dimension("m", {1, 4096}), n = dimension("n", {1}), k = dimension("k", {1});
  const Var few = dimension("m", {1}, "", 1);
  return {{"rows", open_product(1, m, 40, 64, {m})},
          {"usually_one_row", open_product(1, few, 40, 64, {few})},
          {"columns", open_product(1, 40, n, 64, {n})},
          {"terms", open_product(1, 40, 24, k, {k})},
          {"all", open_product(n, m, n, k, {m, n, k})},
          {"rows_of_two", open_rows(n, m)},
          {"images", open_convolution(n, 3, 4, 1, {n})},
          {"maps", open_convolution(2, m, n, 1, {m, n})},
          {"images_of_maps_with_strides", open_convolution(k, n, m, 2, {m, n, k})}};
}

// At each of the sizes, by a program that has `product` in it.
void expect_answers(const Func& func, const Target& target, const Decisions& decisions, const std::string& product) {
  const Schedule schedule = target.decided_schedule(func, target, decisions);
  const LoweredFunc lowered = lower(schedule.func(), target, "open_sizes");
  ASSERT_EQ(lowered.kernels.size(), 1u);
  const std::string text = cuda::emit_cuda(lowered.kernels, target.shared_bytes);
  EXPECT_EQ(test::count_of(text.substr(text.find("extern \"C\"")), product), 1) << text;
  const std::vector<std::byte> image = test::emulated_image(text);
  for (const int64_t size : {1, 7, 64, 100, 129}) {
    std::map<std::string, int64_t> sizes;
    for (const Var& var : func.parameters) sizes[var.name()] = var.name() == "m" ? size : var.name() == "n" ? 3 : 11;
    if (!sizes.contains("m")) sizes.begin()->second = size;
    SCOPED_TRACE(size);
    const InterpretOptions options{.parameters = sizes, .seed = 3};
    std::vector<NDArray> arrays = test::random_buffers(func, 5, sizes), expected, by_oracle;
    for (size_t i = 0; i < arrays.size(); ++i) {
      expected.push_back(arrays[i].clone());
      arrays[i] = test::as_scheduled(arrays[i], schedule.trace(), func.buffers[i]->name);
      by_oracle.push_back(arrays[i].clone());
    }
    interpret(func, expected, options);
    test::interpret_kernels(lowered, schedule.func(), by_oracle, options);
    EXPECT_LT(test::largest_difference(by_oracle.back(), expected.back()), 1e-4) << to_text(schedule.func());
    test::run_on_device(lowered, func, image, arrays, sizes);
    EXPECT_LT(test::largest_difference(arrays.back(), expected.back()), 1e-4) << text;
  }
}

class OpenTensorCores : public test::LargeFamily<OpenCase> {};

TEST_P(OpenTensorCores, GiveTheOraclesAnswerByWarps) {
  expect_answers(GetParam().func, of_warps(), {}, "  tw_mma_");
}

TEST_P(OpenTensorCores, GiveTheOraclesAnswerByGroups) {
  expect_answers(GetParam().func, of_groups(), {{"multiplier", {1}}, {"warp_tile", {64, 64, 64, 4, 1}}}, "  tw_wgmma_");
}

INSTANTIATE_TEST_SUITE_P(All, OpenTensorCores, ::testing::ValuesIn(open_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tw
