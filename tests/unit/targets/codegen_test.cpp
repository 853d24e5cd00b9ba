// Kernels as machine code against the oracle: of this machine, and of others in the emulator.
#include <gtest/gtest.h>

#include <algorithm>

#include "targets/llvm/compile_image.h"
#include "tensor_ir/dimension.h"
#include "tensor_ir/te.h"
#include "tensor_ir/text/parser.h"
#include "tests/unit/machines.h"
#include "tests/unit/sample_funcs.h"
#include "tests/unit/sanitized.h"
#include "tests/unit/targets/run.h"
#include "tests/unit/targets/same_meaning.h"

namespace tw {
namespace {

using namespace test;

using CaseList = std::vector<KernelCase> (*)(const Target&);
struct Group {
  const char* name;
  CaseList cases;
};
const Group groups[] = {
    {"naive", [](const Target& t) { return sample_cases(t, false); }},
    {"scheduled", [](const Target& t) { return sample_cases(t, true); }},
    {"elementwise", elementwise_cases},
    {"math", math_cases},
    {"conversion", conversion_cases},
    {"lane_reduction", lane_reduction_cases},
    {"stride", stride_cases},
    {"transposition", transposition_cases},
    {"instruction", instruction_cases},
    {"small_element", small_element_cases},
    {"tile", tile_cases},
};

std::string name_of(std::string text) {
  std::replace_if(text.begin(), text.end(), [](char c) { return !isalnum(static_cast<unsigned char>(c)); }, '_');
  return text;
}

std::vector<const char*> targets() {
  if (test::is_sanitized) return {"cpu", "armv7"};
  std::vector<const char*> names;
  for (const Machine& machine : machines) names.push_back(machine.target);
  return names;
}

class TargetsRun : public testing::TestWithParam<std::tuple<const char*, Group>> {};

TEST_P(TargetsRun, AgreesWithTheOracle) {
  const auto& [name, group] = GetParam();
  const Target target = parse_target(name);
  const std::vector<KernelCase> cases = group.cases(target);
  if (cases.empty()) GTEST_SKIP() << "the target has no instructions";
  Executable executable = make_executable(cases, target);
  const std::vector<NDArray> outputs = run_on(*find_machine(name), executable);
  size_t at = 0;
  for (const KernelCase& c : cases) {
    std::vector<NDArray> own;
    for (size_t i = 0; i < c.expected.size(); ++i) own.push_back(outputs[at++]);
    EXPECT_EQ(compare(c, own, target), "");
  }
}

INSTANTIATE_TEST_SUITE_P(All, TargetsRun, testing::Combine(testing::ValuesIn(targets()), testing::ValuesIn(groups)),
                         [](const auto& info) {
                           return name_of(std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name);
                         });

// A kernel written for AVX-512: 14 × 32 of f32 in registers, B packed.
const char* const tiled_matmul = R"(
func matmul(A: f32[504, 512], B: f32[16, 512, 32]) -> (C: f32[504, 512]) {
  for t in 0..576 parallel {
    alloc Cr: f32[14, 32] in register
    for i in 0..14 unrolled {
      for j in 0..32 vectorized {
        block zero(spatial vi: 14 = i, spatial vj: 32 = j) { Cr[vi, vj] = 0.0f }
      }
    }
    for k in 0..512 {
      for i in 0..14 unrolled {
        for j in 0..32 vectorized {
          block update(spatial vi: 504 = (t % 36) * 14 + i, spatial vp: 16 = t // 36, spatial vj: 32 = j, reduce vk: 512 = k) {
            Cr[vi - (t % 36) * 14, vj] = Cr[vi - (t % 36) * 14, vj] + A[vi, vk] * B[vp, vk, vj]
          }
        }
      }
    }
    for i in 0..14 unrolled {
      for j in 0..32 vectorized {
        block out(spatial vi: 504 = (t % 36) * 14 + i, spatial vj: 512 = (t // 36) * 32 + j) {
          C[vi, vj] = Cr[vi - (t % 36) * 14, vj - (t // 36) * 32]
        }
      }
    }
  }
}
)";

TEST(TargetsCodegen, RegisterTilesDoNotSpill) {
  const Target target = parse_target("x86:avx512");
  const LoweredFunc lowered = lower(parse_func(tiled_matmul), target, "k");
  CodegenReport report;
  CodegenOptions options;
  options.wants_report = true;
  compile_image(lowered.kernels, target, options, &report);
  ASSERT_EQ(report.inner_loops.size(), 1u);
  EXPECT_EQ(report.inner_loops[0].vector_spills, 0);
  EXPECT_EQ(report.inner_loops[0].vector_reloads, 0);
  const std::string assembly = emit_text(lowered.kernels, target, EmitForm::assembly);
  size_t count = 0;
  for (size_t at = 0; (at = assembly.find("vfmadd", at)) != std::string::npos; ++at) ++count;
  EXPECT_EQ(count, 28u);
}

// Runs anywhere: what is emitted, not what it computes.
TEST(TargetsCodegen, TilesStayInTheirRegisters) {
  const Target target = parse_target("x86:amx");
  const auto assembly_of = [&](const Func& f) {
    return emit_text(lower(target.default_schedule(f, target).func(), target, "k").kernels, target, EmitForm::assembly);
  };
  const std::string whole = assembly_of(narrow_matmul(1, 64, 64, 256, bf16, bf16, f32, bf16, true));
  EXPECT_EQ(test::count_of(whole, "tdpbf16ps"), 4) << whole;
  EXPECT_EQ(test::count_of(whole, "tileloadd"), 4);
  EXPECT_EQ(test::count_of(whole, "tilestored"), 4);
  EXPECT_EQ(test::count_of(whole, "tilezero"), 4);
  EXPECT_EQ(test::count_of(whole, "ldtilecfg"), 1);
  EXPECT_EQ(test::count_of(whole, "tilerelease"), 1);
  EXPECT_GT(test::count_of(assembly_of(narrow_matmul(1, 64, 64, 256, u8, i8, i32, i32, true)), "tdpbusd"), 0);
  EXPECT_GT(test::count_of(assembly_of(narrow_matmul(1, 64, 64, 256, i8, i8, i32, i32, true)), "tdpbssd"), 0);
  // One row is not worth tiles, and vdpbf16ps of such cores is slower than multiply-adds of f32.
  const std::string row = assembly_of(narrow_matmul(1, 1, 64, 256, bf16, bf16, f32, f32, true));
  EXPECT_EQ(test::count_of(row, "dpbf16ps"), 0);
  EXPECT_GT(test::count_of(row, "vfmadd"), 0);
}

// As many rows as there are when it runs: tiles are whole, and the last of them is filled up.
TEST(TargetsCodegen, OpenRowsFillTiles) {
  const Target target = parse_target("x86:amx");
  const Var n = dimension("n", {1, 4096});
  const auto rows = te::placeholder("A", {n, 96}, bf16), weights = te::placeholder("B", {96, 80}, bf16);
  const auto sum = te::reduce("C", {n, 80}, {96}, te::Combiner::sum, {rows, weights},
                              [&](const te::Indices& s, const te::Indices& r) {
                                return cast(f32, rows({s[0], r[0]})) * cast(f32, weights({r[0], s[1]}));
                              });
  const auto more =
      te::compute("D", {n, 80}, {sum}, [&](const te::Indices& s) { return sum({s[0], s[1]}) + const_of(f32, 1); });
  Func func = te::make_func("layer", {rows, weights}, {more}, {n});
  mark_constant(func, "B");
  const Schedule schedule = target.default_schedule(func, target);
  const LoweredFunc lowered = lower(schedule.func(), target, "k");
  const std::string assembly = emit_text(lowered.kernels, target, EmitForm::assembly);
  EXPECT_GT(test::count_of(assembly, "tdpbf16ps"), 0);
  EXPECT_EQ(test::count_of(assembly, "vfmadd"), 0);
  for (const int64_t size : {1, 39}) {
    const auto [expected, actual, options] = arrays_at(func, schedule.trace(), {{n, size}});
    interpret(func, expected, options);
    interpret_kernels(lowered, schedule.func(), actual, options);
    EXPECT_EQ(largest_difference(actual.back().reshape(expected.back().shape()), expected.back()), 0);
  }
}

// A step of eight elements of k is one instruction for each two rows and two columns; sums do not leave their registers
// before the last one.
TEST(TargetsCodegen, RowsOfBytesAreMatrices) {
  const Target target = parse_target("neoverse-v1");
  const auto report_of = [&](DType a) {
    const Func product = narrow_matmul(1, 64, 96, 256, a, i8, i32, i32, true);
    const LoweredFunc lowered = lower(target.default_schedule(product, target).func(), target, "k");
    CodegenReport report;
    CodegenOptions options;
    options.wants_report = true;
    compile_image(lowered.kernels, target, options, &report);
    return std::pair{report, emit_text(lowered.kernels, target, EmitForm::assembly)};
  };
  for (const auto& [a, name] : {std::pair{i8, "\tsmmla\t"}, std::pair{u8, "\tusmmla\t"}}) {
    const auto [report, assembly] = report_of(a);
    EXPECT_GE(test::count_of(assembly, name), 12) << assembly;
    EXPECT_EQ(test::count_of(assembly, "dot\t"), 0);
    ASSERT_FALSE(report.inner_loops.empty());
    for (const auto& loop : report.inner_loops) EXPECT_EQ(loop.vector_spills + loop.vector_reloads, 0) << assembly;
  }
}

}  // namespace
}  // namespace tw
