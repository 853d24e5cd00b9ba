// Occupancy, beside figures of NVIDIA's occupancy calculator.
#include "targets/cuda/device_facts.h"

#include <gtest/gtest.h>

#include "targets/backend.h"
#include "targets/machine_target.h"
#include "targets/target.h"

namespace tw::cuda {
namespace {

struct Case {
  int capability, threads, registers;
  int64_t shared_bytes;
  int blocks;
  double share;
  std::string_view limited_by;
};

TEST(DeviceFacts, OccupancyIsTheCalculators) {
  const Case cases[] = {
      {80, 256, 32, 0, 8, 1.0, "warps"},     {80, 128, 255, 0, 2, 0.125, "registers"},
      {80, 32, 16, 0, 32, 0.5, "blocks"},    {90, 256, 40, 48 << 10, 4, 0.5, "shared memory"},
      {90, 256, 64, 0, 4, 0.5, "registers"}, {89, 256, 40, 0, 6, 1.0, "warps"},
      {75, 1024, 64, 0, 1, 1.0, "warps"},    {75, 256, 32, 20 << 10, 3, 0.75, "shared memory"},
  };
  for (const Case& c : cases) {
    const Occupancy held = occupancy_of(*device_facts(c.capability), c.threads, c.registers, c.shared_bytes);
    EXPECT_EQ(held.blocks, c.blocks) << c.capability << " " << c.threads << " " << c.registers;
    EXPECT_DOUBLE_EQ(held.share, c.share) << c.capability << " " << c.threads << " " << c.registers;
    EXPECT_EQ(held.limited_by, c.limited_by) << c.capability << " " << c.threads << " " << c.registers;
  }
}

TEST(DeviceFacts, EveryTargetHasThem) {
  int count = 0;
  for (const std::string& name : target_names()) {
    const Target target = parse_target(name);
    if (!target.backend->fit_of) continue;
    ++count;
    const KernelFit fit = target.backend->fit_of(target, 128, 64, 0);
    EXPECT_GT(fit.blocks, 0) << name;
    EXPECT_EQ(fit.multiprocessors, target.threads) << name;
    EXPECT_GT(fit.flops, 1e12) << name;
    EXPECT_GT(fit.bytes, 1e11) << name;
  }
  EXPECT_GE(count, 7);
  EXPECT_EQ(device_facts(12), nullptr);
}

TEST(CudaTargets, PtxIsForAllLaterGpus) {
  const Target with_ptx = parse_target("cuda:sm_80+ptx");
  EXPECT_EQ(with_ptx.name, "cuda:sm_80+ptx");
  EXPECT_EQ(with_ptx.compute_capability, 80);
  EXPECT_TRUE(with_ptx.has("ptx"));
  const auto reason = [](const char* name, int capability) {
    MachineFacts machine;
    machine.gpu = {"GPU", capability, false};
    return reason_not_runnable(parse_target(name), machine);
  };
  EXPECT_EQ(reason("cuda:sm_80", 86), "");
  EXPECT_NE(reason("cuda:sm_80", 90), "");
  EXPECT_EQ(reason("cuda:sm_80+ptx", 120), "");
  EXPECT_NE(reason("cuda:sm_80+ptx", 75), "");
}

}  // namespace
}  // namespace tw::cuda
