// What tests of tensor cores multiply, and how answers are compared.
#pragma once

#include <gtest/gtest.h>

#include <random>

#include "targets/cuda/emit.h"
#include "tensor_ir/interp/interp.h"
#include "tensor_ir/match.h"
#include "tensor_ir/te.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/type_rules.h"
#include "tests/unit/cuda_device.h"
#include "tests/unit/sample_funcs.h"
#include "tests/unit/targets/run.h"
#include "tests/unit/targets/same_meaning.h"

namespace tw::test {

struct ProductCase {
  int64_t batch, m, n, k;
  DType dtype;
  bool is_a_transposed = false, is_b_transposed = false, is_b_first = false;
  DType b_dtype = dtype;
  bool gives_bytes = false, is_b_constant = false;
};

inline DType sum_of(DType dtype) {
  return dtype.is_float() || dtype.is_minifloat() ? f32 : i32;
}
// Of sums, as bytes where those are wanted: some lie halfway between two, or nearly so.
inline Expr epilogue(const Expr& sum, bool gives_bytes, double factor = 1.0 / 1024) {
  if (!gives_bytes) return max(sum, zero_of(sum.dtype()));
  const auto number = [](double value) { return float_imm(f64, value); };
  const Expr rounded = call(Intrinsic::round_even, {cast(f64, sum) * number(factor)}) + number(3);
  const Expr above = call(Intrinsic::maximum, {rounded, number(-128)});
  return cast(i8, call(Intrinsic::minimum, {above, number(127)}));
}
inline std::string name_of_product(DType a, DType b) {
  const auto name = [](DType dtype) {
    return dtype == f32        ? "tf32"
           : dtype == bf16     ? "bf16"
           : dtype == f16      ? "f16"
           : dtype == f8e4m3fn ? "e4m3"
           : dtype == f8e5m2   ? "e5m2"
           : dtype == i8       ? "s8"
                               : "u8";
  };
  return std::string(name(a)) + (a.is_float() ? "" : name(b));
}
inline std::string call_of(DType a, DType b) {
  return "  tw_mma_" + name_of_product(a, b) + "(";
}
inline std::string call_of_group(DType a, DType b) {
  return "  tw_wgmma_" + name_of_product(a, b) + "_";
}
// What is multiplied: of f32 in tf32.
inline Expr factor(const Expr& element, DType dtype) {
  if (dtype == f32) return call(Intrinsic::round_tf32, {element});
  if (dtype.is_minifloat()) return call(dtype == f8e4m3fn ? Intrinsic::decode_e4m3 : Intrinsic::decode_e5m2, {element});
  return cast(sum_of(dtype), element);
}
// The format of which a buffer has codes.
inline std::optional<DType> format_of(const Func& func, const Buffer& buffer) {
  std::optional<DType> format;
  visit(func.body, [&](const Call& call) {
    if (kind_of(call.intrinsic) != IntrinsicKind::decode) return;
    visit(call.arguments[0], [&](const Load& load) {
      if (load.buffer == buffer) format = code_format(call.intrinsic);
    });
  });
  return format;
}
// Bytes of any value; of codes, numbers of moderate size.
inline std::vector<NDArray> operands(const Func& func) {
  std::vector<NDArray> arrays = random_buffers(func, 5);
  std::mt19937_64 random(7);
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].dtype().bytes() > 1 || func.is_output(func.buffers[i])) continue;
    if (const auto format = format_of(func, func.buffers[i])) {
      std::normal_distribution<float> numbers;
      for (int64_t e = 0; e < arrays[i].size(); ++e) arrays[i].set_int(e, float_to_minifloat(*format, numbers(random)));
      continue;
    }
    std::uniform_int_distribution<int64_t> values(arrays[i].dtype() == i8 ? -128 : 0,
                                                  arrays[i].dtype() == i8 ? 127 : 255);
    for (int64_t e = 0; e < arrays[i].size(); ++e) arrays[i].set_int(e, values(random));
  }
  return arrays;
}
// How far sums may be apart: integers not at all.
inline double tolerance(DType dtype, double of_floats) {
  return sum_of(dtype) == f32 ? of_floats : std::numeric_limits<double>::min();
}

// out[b, i, j] = relu(Σ A[b, i, k] · B[b, k, j]), of 16-bit floats, of tf32, of bytes or of floats of 8 bits.
inline Func product(const ProductCase& c) {
  using te::Indices;
  const auto shape = [&](int64_t rows, int64_t columns, bool is_transposed) {
    return std::vector<Expr>{c.batch, is_transposed ? columns : rows, is_transposed ? rows : columns};
  };
  const te::Tensor a = te::placeholder("A", shape(c.m, c.k, c.is_a_transposed), c.dtype.stored());
  const te::Tensor b = te::placeholder("B", shape(c.k, c.n, c.is_b_transposed), c.b_dtype.stored());
  const auto at = [](const Expr& batch, const Expr& row, const Expr& column, bool is_transposed) {
    return is_transposed ? Indices{batch, column, row} : Indices{batch, row, column};
  };
  const te::Tensor sums =
      te::reduce("C", {c.batch, c.m, c.n}, {c.k}, te::Combiner::sum, {a, b}, [&](const Indices& s, const Indices& r) {
        const Expr x = factor(a(at(s[0], s[1], r[0], c.is_a_transposed)), c.dtype);
        const Expr y = factor(b(at(s[0], r[0], s[2], c.is_b_transposed)), c.b_dtype);
        return c.is_b_first ? y * x : x * y;
      });
  const te::Tensor out = te::compute("out", {c.batch, c.m, c.n}, {sums},
                                     [&](const Indices& s) { return epilogue(sums(s), c.gives_bytes); });
  Func func = te::make_func("product", {a, b}, {out});
  if (c.is_b_constant) mark_constant(func, "B");
  return func;
}

inline const Target& sm_80() {
  static const Target target = parse_target("cuda:sm_80");
  return target;
}

inline const Target& sm_89() {
  static const Target target = parse_target("cuda:sm_89");
  return target;
}

// The first that has products of the type.
inline const Target& target_for(DType dtype) {
  return dtype.is_minifloat() ? sm_89() : sm_80();
}

inline const Target& with_groups() {
  static const Target target = parse_target("cuda:sm_90");
  return target;
}

inline LoweredFunc lowered_product(const Func& func) {
  return lower(sm_80().default_schedule(func, sm_80()).func(), sm_80(), "product");
}

// By the oracle and the emulator.
inline void expect_answer(const Func& func, const Schedule& schedule, const LoweredFunc& lowered,
                          const std::string& text, double near) {
  std::vector<NDArray> arrays = operands(func), expected, by_oracle;
  for (size_t i = 0; i < arrays.size(); ++i) {
    expected.push_back(arrays[i].clone());
    arrays[i] = as_scheduled(arrays[i], schedule.trace(), func.buffers[i]->name);
    by_oracle.push_back(arrays[i].clone());
  }
  interpret(func, expected);
  interpret_kernels(lowered, schedule.func(), by_oracle, {.parameters = {}, .seed = 3});
  EXPECT_LT(largest_difference(by_oracle.back(), expected.back()), near) << to_text(schedule.func());
  run_on_device(lowered, func, emulated_image(text), arrays);
  EXPECT_LT(largest_difference(arrays.back(), expected.back()), near) << text;
}

// By the instructions of groups of four warps, which read both operands from shared memory.
// Who copies what groups of warps multiply.
enum class Copier : uint8_t { all_threads, one_thread, own_warp };

struct GroupCase {
  ProductCase product;
  Choice tile;
  int64_t stages;
  Copier copier = Copier::one_thread;
  int64_t multiprocessors = with_groups().threads;
  int64_t tiles_of_block = 1;
};
inline void PrintTo(const GroupCase& c, std::ostream* out) {
  static constexpr const char* copiers[] = {"all threads", "one thread", "a warp"};
  *out << c.product.m << " × " << c.product.n << " × " << c.product.k << " by " << c.tile[0] << " × " << c.tile[1]
       << ", copies by " << copiers[static_cast<int>(c.copier)];
}

inline LoweredFunc lowered_by_groups(const GroupCase& c) {
  Target target = with_groups();
  target.threads = static_cast<int>(c.multiprocessors);
  Decisions decisions = {{"multiplier", {1}}, {"warp_tile", c.tile}, {"stages", {c.stages}}};
  if (c.stages > 1) decisions["tile_copies"] = {c.copier != Copier::all_threads ? 1 : 0};
  if (c.stages > 1 && c.copier != Copier::all_threads)
    decisions["copying_warp"] = {c.copier == Copier::own_warp ? 1 : 0};
  if (c.tiles_of_block > 1) decisions["tiles_of_block"] = {c.tiles_of_block};
  return lower(target.decided_schedule(product(c.product), target, decisions).func(), target, "product");
}

}  // namespace tw::test
