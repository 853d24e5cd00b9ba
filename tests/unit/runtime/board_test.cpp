// tw-run, the program for boards: natively, and for 64- and 32-bit ARM in the emulator.
#include <gtest/gtest.h>

#include "runtime/npy.h"
#include "tests/unit/runtime/test_model.h"

namespace tw {
namespace {

using namespace test;

struct Board {
  const char *runner, *architecture, *emulator;
};

class TwRun : public testing::TestWithParam<Board> {
 protected:
  std::string runner(const std::string& emulator_options = "") const {
    std::string program = std::string(TW_BUILD) + "/boards/" + GetParam().runner + "/tw-run ";
    if (GetParam().architecture == host_cpu().architecture && emulator_options.empty()) return program;
    return std::string(GetParam().emulator) + " " + emulator_options + " " + program;
  }

  // The small model with its inputs, in the folder.
  void save_model(const std::vector<std::string>& features = {}) {
    std::string architecture = GetParam().architecture;
    Executable(kernel_image(architecture), small_plan(), small_constants(),
               {architecture, "test:" + architecture, features})
        .save(folder / "m.twa");
    write_npy(folder / "x.npy", small_inputs()[0]);
    write_npy(folder / "y.npy", small_inputs()[1]);
  }
  std::string in(const std::string& name) const { return (folder / name).string(); }

  Folder folder;
  Finished compared;
};

TEST_P(TwRun, GivesTheAnswer) {
  save_model();
  for (std::string threads : {"1", "3"}) {
    Finished run = finish(runner() + in("m.twa") + " --input x=" + in("x.npy") + " --input y=" + in("y.npy") +
                          " --threads " + threads + " --repeat 20 --output-dir " + folder.path().string());
    EXPECT_EQ(run.status, 0) << run.output;
    EXPECT_NE(run.output.find(threads + " threads: 20 runs"), std::string::npos) << run.output;
    EXPECT_EQ(values(read_npy(folder / "sums.npy", f32)), small_answer()[0]);
    EXPECT_EQ(values(read_npy(folder / "total.npy", f32)), small_answer()[1]);
    std::filesystem::remove(folder / "sums.npy");
  }
}

TEST_P(TwRun, ComparesWithWhatIsExpected) {
  save_model();
  const auto expect = [&](float sum, float total, const std::string& more = "") {
    std::vector<NDArray> expected;
    const auto answer = small_answer();
    for (size_t i = 0; i < 2; ++i) {
      expected.emplace_back(f32, small_plan().outputs[i].shape);
      for (size_t j = 0; j < answer[i].size(); ++j) expected[i].set_float(static_cast<int64_t>(j), answer[i][j]);
    }
    expected[0].set_float(3, expected[0].get_float(3) + sum);
    expected[1].set_float(0, expected[1].get_float(0) + total);
    std::filesystem::create_directories(folder / "expected");
    write_npy(folder / "expected" / "sums.npy", expected[0]);
    write_npy(folder / "expected" / "total.npy", expected[1]);
    compared = finish(runner() + in("m.twa") + " --input x=" + in("x.npy") + " --input y=" + in("y.npy") + " --expect " +
                      in("expected") + more);
  };
  const auto says = [&](const std::string& text) { return compared.output.find(text) != std::string::npos; };
  expect(0, 0);
  EXPECT_EQ(compared.status, 0) << compared.output;
  EXPECT_TRUE(says("as expected, off by 0.0e+00")) << compared.output;
  expect(1e-4f, 0);
  EXPECT_EQ(compared.status, 0) << compared.output;
  expect(100, 0);
  EXPECT_EQ(compared.status, 1) << compared.output;
  EXPECT_TRUE(says("sums f32[37]: NOT as expected")) << compared.output;
  expect(100, 0, " --tolerance 1");
  EXPECT_EQ(compared.status, 0) << compared.output;
  expect(0, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(compared.status, 1) << compared.output;
  EXPECT_TRUE(says("off by inf")) << compared.output;
  std::filesystem::remove(folder / "expected" / "total.npy");
  compared = finish(runner() + in("m.twa") + " --input x=" + in("x.npy") + " --input y=" + in("y.npy") + " --expect " +
                    in("expected"));
  EXPECT_EQ(compared.status, 2) << compared.output;
}

TEST_P(TwRun, RelocatesTables) {
  Plan plan;
  plan.outputs = {{"a/b:c", f32, {4}}};
  plan.steps = {{"look_up", "large", {{Storage::output, 0, 0, 16}}, {1}, 4}};
  Executable(kernel_image(GetParam().architecture), plan, {}, small_requirements(GetParam().architecture))
      .save(folder / "m.twa");
  Finished run = finish(runner() + in("m.twa") + " --output-dir " + folder.path().string());
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_EQ(values(read_npy(folder / "a_b_c.npy", f32)), (std::vector<float>{100, 200, 300, 400}));
}

TEST_P(TwRun, RefusesWhatItMust) {
  save_model();
  const std::string x = " --input x=" + in("x.npy"), y = " --input y=" + in("y.npy");
  auto refused = [&](const std::string& arguments, const std::string& text) {
    Finished run = finish(runner() + arguments);
    EXPECT_EQ(run.status, 2) << run.output;
    EXPECT_NE(run.output.find(text), std::string::npos) << run.output;
  };
  refused("", "TW1101 no model is named");
  refused(in("none.twa"), "TW1001");
  refused(in("x.npy"), "TW1201");
  refused(in("m.twa") + x, "TW1101 these inputs of the model are missing: y");
  refused(in("m.twa") + x + y + " --input z=" + in("y.npy"), "has no input 'z'");
  refused(in("m.twa") + x + " --input y=" + in("m.twa"), "TW1101");
  refused(in("m.twa") + x + y + " --threads none", "TW1101");
  refused(in("m.twa") + " --wrong", "unknown option --wrong");
  write_npy(folder / "short.npy", NDArray(f32, {3}));
  refused(in("m.twa") + x + " --input y=" + in("short.npy"), "input 'y' is f32[3], the model has f32[37,24]");
  std::string other = std::string(GetParam().architecture) == "aarch64" ? "arm" : "aarch64";
  Executable(kernel_image(other), small_plan(), small_constants(), {other, "other", {}}).save(folder / "other.twa");
  refused(in("other.twa"), "TW1202");
  std::vector<std::byte> damaged = read_bytes(folder / "m.twa");
  damaged[100] ^= std::byte{1};
  write_bytes(folder / "damaged.twa", damaged);
  refused(in("damaged.twa"), "TW1201");
}

INSTANTIATE_TEST_SUITE_P(Boards, TwRun,
                         testing::Values(Board{"x86_64", "x86_64", "qemu-x86_64"},
                                         Board{"aarch64", "aarch64", "qemu-aarch64"},
                                         Board{"arm", "arm", "qemu-arm"}),
                         [](const auto& info) { return std::string(info.param.runner); });

// The emulator plays a weaker and a stronger CPU; the requirement decides which of them may run the artifact.
struct FeatureCase {
  const char *runner, *architecture, *emulator, *feature, *weaker, *stronger;
};

class Features : public testing::TestWithParam<FeatureCase> {};

TEST_P(Features, AreRequired) {
  const FeatureCase& c = GetParam();
  Folder folder;
  Plan plan;
  plan.outputs = {{"out", f32, {4}}};
  plan.steps = {{"look_up", "small", {{Storage::output, 0, 0, 16}}, {0}, 4}};
  Executable(kernel_image(c.architecture), plan, {}, {c.architecture, "board", {c.feature}}).save(folder / "m.twa");
  auto run_on = [&](const std::string& cpu) {
    return finish(std::string(c.emulator) + " -cpu " + cpu + " " + TW_BUILD + "/boards/" + c.runner + "/tw-run " +
                  (folder / "m.twa").string());
  };
  Finished weaker = run_on(c.weaker), stronger = run_on(c.stronger);
  EXPECT_EQ(weaker.status, 2) << weaker.output;
  EXPECT_NE(weaker.output.find(std::string("TW1202 ") + (folder / "m.twa").string() +
                               ": built for board, this CPU lacks " + c.feature),
            std::string::npos)
      << weaker.output;
  EXPECT_EQ(stronger.status, 0) << stronger.output;
}

INSTANTIATE_TEST_SUITE_P(
    Cpus, Features,
    testing::Values(FeatureCase{"x86_64", "x86_64", "qemu-x86_64", "avx2", "Nehalem", "max"},
                    FeatureCase{"x86_64", "x86_64", "qemu-x86_64", "sse4.1", "core2duo", "Nehalem"},
                    FeatureCase{"aarch64", "aarch64", "qemu-aarch64", "dotprod", "cortex-a53", "neoverse-n1"},
                    FeatureCase{"aarch64", "aarch64", "qemu-aarch64", "fullfp16", "cortex-a72", "neoverse-n1"},
                    FeatureCase{"aarch64", "aarch64", "qemu-aarch64", "i8mm", "neoverse-n1", "max"},
                    FeatureCase{"aarch64", "aarch64", "qemu-aarch64", "bf16", "neoverse-n1", "max"},
                    FeatureCase{"aarch64", "aarch64", "qemu-aarch64", "sve2", "a64fx", "max"},
                    FeatureCase{"aarch64", "aarch64", "qemu-aarch64", "sve", "neoverse-n1", "a64fx"},
                    FeatureCase{"arm", "arm", "qemu-arm", "vfp4", "cortex-a9", "cortex-a7"}));

}  // namespace
}  // namespace tw
