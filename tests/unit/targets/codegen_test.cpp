// Kernels as machine code against the oracle: of this machine, and of others in the emulator.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "runtime/npy.h"
#include "targets/llvm/compile_image.h"
#include "tensor_ir/text/parser.h"
#include "tests/unit/sample_funcs.h"
#include "tests/unit/sanitized.h"
#include "tests/unit/targets/run.h"

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
    {"tile", tile_cases},
};

struct Machine {
  const char* target;
  const char* runner;  // a folder of boards/ and the emulator's command; empty: this process
  const char* emulator;
};

void PrintTo(const Machine& machine, std::ostream* out) {
  *out << machine.target;
}

std::vector<Machine> machines() {
  const Machine armv7{"armv7", "armv7", "qemu-arm -cpu cortex-a7"};
  if (test::is_sanitized) return {{"cpu", "", ""}, armv7};
  return {{"cpu", "", ""},
          {"x86:avx2", "x86_64", "qemu-x86_64 -cpu max"},
          {"x86:sse4", "x86_64", "qemu-x86_64 -cpu Nehalem"},
          {"rpi3", "aarch64", "qemu-aarch64 -cpu cortex-a53"},
          {"neoverse-n1", "aarch64", "qemu-aarch64 -cpu neoverse-n1"},
          {"neoverse-v1", "aarch64", "qemu-aarch64 -cpu max"},
          armv7};
}

class TargetsRun : public testing::TestWithParam<std::tuple<Machine, Group>> {};

TEST_P(TargetsRun, AgreesWithTheOracle) {
  const auto& [machine, group] = GetParam();
  const Target target = parse_target(machine.target);
  const std::vector<KernelCase> cases = group.cases(target);
  if (cases.empty()) GTEST_SKIP() << "the target has no instructions";
  Executable executable = make_executable(cases, target);
  std::vector<NDArray> outputs;
  if (*machine.runner == 0) {
    outputs = executable.run({});
  } else {
    const auto folder = std::filesystem::temp_directory_path() /
                        ("tilewright-test-" + std::to_string(getpid()) + "-" + group.name + machine.runner);
    std::filesystem::create_directories(folder);
    executable.save(folder / "m.twa");
    const std::string command = std::string(machine.emulator) + " " + TW_BUILD + "/boards/" + machine.runner +
                                "/tw-run " + (folder / "m.twa").string() + " --threads 2 --output-dir " +
                                folder.string() + " > " + (folder / "log").string() + " 2>&1";
    const int status = std::system(command.c_str());
    ASSERT_EQ(status, 0) << command;
    for (const TensorInfo& info : executable.plan().outputs) {
      std::string name = info.name;
      for (char& c : name)
        if (!isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.') c = '_';
      outputs.push_back(read_npy(folder / (name + ".npy"), info.dtype));
    }
    std::filesystem::remove_all(folder);
  }
  size_t at = 0;
  for (const KernelCase& c : cases) {
    std::vector<NDArray> own;
    for (size_t i = 0; i < c.expected.size(); ++i) own.push_back(outputs[at++]);
    EXPECT_EQ(compare(c, own, target), "");
  }
}

INSTANTIATE_TEST_SUITE_P(All, TargetsRun, testing::Combine(testing::ValuesIn(machines()), testing::ValuesIn(groups)),
                         [](const auto& info) {
                           std::string name =
                               std::string(std::get<0>(info.param).target) + "_" + std::get<1>(info.param).name;
                           for (char& c : name)
                             if (!isalnum(static_cast<unsigned char>(c))) c = '_';
                           return name;
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
  const std::string assembly = emit_assembly(lowered.kernels, target);
  size_t count = 0;
  for (size_t at = 0; (at = assembly.find("vfmadd", at)) != std::string::npos; ++at) ++count;
  EXPECT_EQ(count, 28u);
}

int count_of(const std::string& text, const std::string& word) {
  int count = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos; at += word.size()) ++count;
  return count;
}

// Runs anywhere: what is emitted, not what it computes.
TEST(TargetsCodegen, TilesStayInTheirRegisters) {
  const Target target = parse_target("x86:amx");
  const auto assembly_of = [&](const Func& f) {
    return emit_assembly(lower(target.default_schedule(f, target).func(), target, "k").kernels, target);
  };
  const std::string whole = assembly_of(narrow_matmul(1, 64, 64, 256, bf16, bf16, f32, bf16, true));
  EXPECT_EQ(count_of(whole, "tdpbf16ps"), 4) << whole;
  EXPECT_EQ(count_of(whole, "tileloadd"), 4);
  EXPECT_EQ(count_of(whole, "tilestored"), 4);
  EXPECT_EQ(count_of(whole, "tilezero"), 4);
  EXPECT_EQ(count_of(whole, "ldtilecfg"), 1);
  EXPECT_EQ(count_of(whole, "tilerelease"), 1);
  EXPECT_GT(count_of(assembly_of(narrow_matmul(1, 64, 64, 256, u8, i8, i32, i32, true)), "tdpbusd"), 0);
  EXPECT_GT(count_of(assembly_of(narrow_matmul(1, 64, 64, 256, i8, i8, i32, i32, true)), "tdpbssd"), 0);
  // One row is not worth tiles, and vdpbf16ps of such cores is slower than multiply-adds of f32.
  const std::string row = assembly_of(narrow_matmul(1, 1, 64, 256, bf16, bf16, f32, f32, true));
  EXPECT_EQ(count_of(row, "dpbf16ps"), 0);
  EXPECT_GT(count_of(row, "vfmadd"), 0);
}

}  // namespace
}  // namespace tw
