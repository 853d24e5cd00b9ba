#include <gtest/gtest.h>

#include <random>

#include "runtime/plan/memory_plan.h"

namespace tw {
namespace {

TEST(MemoryPlan, SharesMemoryOfWhatIsNeverAliveTogether) {
  std::vector<ArenaTensor> chain;
  for (int i = 0; i < 10; ++i) chain.push_back({1000, i, i + 1, -1});
  EXPECT_EQ(plan_memory(chain), 2 * 1024);
}

TEST(MemoryPlan, NeverOverlapsWhatIsAliveTogether) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    std::vector<ArenaTensor> tensors;
    int64_t lower_bound = 0;
    for (int i = 0; i < 60; ++i) {
      const int first = static_cast<int>(random() % 40);
      tensors.push_back({static_cast<int64_t>(random() % 5000), first, first + static_cast<int>(random() % 8), -1});
    }
    const int64_t arena = plan_memory(tensors);
    for (int step = 0; step < 48; ++step) {
      int64_t alive = 0;
      for (const ArenaTensor& t : tensors) alive += t.first <= step && step <= t.last ? (t.bytes + 63) / 64 * 64 : 0;
      lower_bound = std::max(lower_bound, alive);
    }
    EXPECT_LE(arena, lower_bound * 3 / 2);
    for (size_t a = 0; a < tensors.size(); ++a) {
      EXPECT_EQ(tensors[a].offset % 64, 0);
      EXPECT_LE(tensors[a].offset + tensors[a].bytes, arena);
      for (size_t b = 0; b < a; ++b) {
        if (tensors[a].last < tensors[b].first || tensors[b].last < tensors[a].first) continue;
        EXPECT_TRUE(tensors[a].offset + tensors[a].bytes <= tensors[b].offset ||
                    tensors[b].offset + tensors[b].bytes <= tensors[a].offset);
      }
    }
  }
}

}  // namespace
}  // namespace tw
