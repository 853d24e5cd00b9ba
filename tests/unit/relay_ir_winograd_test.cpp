// Winograd's transforms of weights, against their definition.
#include <gtest/gtest.h>

#include <random>

#include "relay_ir/winograd.h"

namespace tw::relay {
namespace {

TEST(Winograd, WeightsAreTransformedAsDefined) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> distribution(-1, 1);
  for (const int64_t tile : {2, 4}) {
    for (const int64_t outputs : {1, 16, 35}) {
      const int64_t inputs = 3;
      NDArray weight(f32, {outputs, inputs, 3, 3});
      for (int64_t i = 0; i < weight.size(); ++i) weight.set_float(i, distribution(random));
      const WinogradTransform& transform = winograd_transform(tile);
      const NDArray result = winograd_weight(weight, transform);
      const int size = transform.size();
      ASSERT_EQ(result.shape(), (Shape{size * size, inputs, outputs}));
      for (int64_t o = 0; o < outputs; ++o) {
        for (int64_t i = 0; i < inputs; ++i) {
          for (int r = 0; r < size; ++r) {
            for (int c = 0; c < size; ++c) {
              double expected = 0;
              for (int a = 0; a < 3; ++a)
                for (int b = 0; b < 3; ++b)
                  expected += transform.weight[r][a] * weight.get_float((o * inputs + i) * 9 + a * 3 + b) *
                              transform.weight[c][b];
              EXPECT_NEAR(result.get_float(((r * size + c) * inputs + i) * outputs + o), expected, 1e-7);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tw::relay
