// A whole network compiled for CUDA: its plan is run with the emitted text on the host and compared with the CPU's
// answer.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <map>
#include <random>

#include "relay_ir/compile.h"
#include "relay_ir/parser.h"
#include "targets/cuda/nvrtc.h"
#include "tests/unit/cuda_on_host.h"
#include "tests/unit/sample_funcs.h"

namespace tw::relay {
namespace {

constexpr const char* network = R"(
graph convolutional (x: f32[1, 3, 20, 20]) {
  w1 = constant [1]: f32[16, 3, 3, 3]
  b1 = constant [1]: f32[16, 1, 1]
  w2 = constant [1]: f32[32, 16, 1, 1]
  wd = constant [1]: f32[32, 1, 3, 3]
  wm = constant [1]: f32[32, 10]
  bm = constant [1]: f32[10]
  c1 = conv(x, w1) {pads = [1, 1, 1, 1], `strides` = [2, 2]}
  a1 = add(c1, b1)
  r1 = relu(a1)
  p1 = max_pool(r1) {kernel = [3, 3], `strides` = [2, 2], dilations = [1, 1], pads = [1, 1, 1, 1]}
  c2 = conv(p1, w2)
  d = conv(c2, wd) {pads = [1, 1, 1, 1], groups = 32}
  s = add(d, c2)
  g = sigmoid(s)
  m = reduce_mean(g) {axes = [2, 3], keepdims = 0}
  f = matmul(m, wm)
  h = add(f, bm)
  y = softmax(h) {axis = 1}
  return y, s
}
)";

void fill(NDArray& array, std::mt19937_64& random) {
  std::uniform_real_distribution<double> values(-0.5, 0.5);
  for (int64_t i = 0; i < array.size(); ++i) array.set_float(i, values(random));
}

TEST(RelayCuda, ANetworkGivesTheCpusAnswer) {
  if (!cuda::nvrtc_problem().empty()) GTEST_SKIP() << cuda::nvrtc_problem();
  Graph graph = parse_graph(network);
  std::mt19937_64 random(3);
  for (Value& value : graph.values)
    if (value.constant) fill(*value.constant, random);
  NDArray input(f32, {1, 3, 20, 20});
  fill(input, random);
  const std::vector<NDArray> expected = compile(graph, parse_target("cpu")).run({input});

  const Target target = parse_target("cuda:sm_90");
  std::vector<Kernel> kernels;
  CompileOptions options;
  options.jobs = 1;
  options.schedule = [&](const Func& func, const Target& for_target) {
    const Schedule schedule = for_target.default_schedule(func, for_target);
    LoweredFunc lowered = lower(schedule.func(), for_target, func.name);
    name_by_content(lowered, func.name);
    for (Kernel& kernel : lowered.kernels) kernels.push_back(std::move(kernel));
    return schedule;
  };
  const Executable executable = compile(graph, target, options);
  const Plan& plan = executable.plan();
  EXPECT_EQ(executable.requirements().architecture, "cuda");

  std::string folder = (std::filesystem::temp_directory_path() / "tilewright-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const test::CudaOnHost host(kernels, folder);
  std::filesystem::remove_all(folder);

  std::vector<NDArray> constants, outputs;
  const Graph optimised = optimise(graph, target);
  for (const TensorInfo& info : plan.constants) {
    for (const Value& value : optimised.values)
      if (value.constant && value.name == info.name) constants.push_back(*value.constant);
  }
  ASSERT_EQ(constants.size(), plan.constants.size());
  for (const TensorInfo& info : plan.outputs) outputs.emplace_back(info.dtype, info.shape);
  NDArray arena(u8, {plan.arena_bytes});
  for (const Step& step : plan.steps) {
    std::vector<void*> buffers;
    for (const BufferUse& use : step.buffers) {
      void* start = use.storage == Storage::arena    ? arena.data()
                    : use.storage == Storage::input  ? input.data()
                    : use.storage == Storage::output ? outputs[use.index].data()
                                                     : constants[use.index].data();
      buffers.push_back(static_cast<char*>(start) + use.offset);
    }
    const auto kernel =
        std::find_if(kernels.begin(), kernels.end(), [&](const Kernel& k) { return k.symbol == step.kernel; });
    ASSERT_NE(kernel, kernels.end()) << step.kernel;
    const cuda::Launch launch = cuda::launch_of(*kernel);
    for (size_t axis = 0; axis < 3; ++axis) {
      EXPECT_EQ(as_int(launch.grid[axis]), step.grid[axis]);
      EXPECT_EQ(as_int(launch.block[axis]), step.block[axis]);
    }
    host.run(*kernel, buffers);
  }
  ASSERT_EQ(outputs.size(), expected.size());
  for (size_t i = 0; i < outputs.size(); ++i) EXPECT_LT(test::largest_difference(outputs[i], expected[i]), 1e-4);
}

}  // namespace
}  // namespace tw::relay
