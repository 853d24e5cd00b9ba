#include "relay_ir/winograd.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "runtime/error.h"

namespace tw::relay {
namespace {

using Matrix = std::vector<std::vector<double>>;

// left · x · leftᵀ of a square x.
template <typename Number>
std::vector<Number> sandwich(const Matrix& left, const std::vector<Number>& x) {
  const size_t rows = left.size(), size = left[0].size();
  std::vector<Number> half(rows * size), result(rows * rows);
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < size; ++j)
      for (size_t k = 0; k < size; ++k) half[i * size + j] += static_cast<Number>(left[i][k]) * x[k * size + j];
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < rows; ++j)
      for (size_t k = 0; k < size; ++k) result[i * rows + j] += half[i * size + k] * static_cast<Number>(left[j][k]);
  return result;
}

}  // namespace

const WinogradTransform& winograd_transform(int64_t tile) {
  static const WinogradTransform two{
      2,
      {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}},
      {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}},
      {{1, 1, 1, 0}, {0, 1, -1, -1}},
  };
  static const WinogradTransform four{
      4,
      {{4, 0, -5, 0, 1, 0},
       {0, -4, -4, 1, 1, 0},
       {0, 4, -4, -1, 1, 0},
       {0, -2, -1, 2, 1, 0},
       {0, 2, -1, -2, 1, 0},
       {0, 4, 0, -5, 0, 1}},
      {{1.0 / 4, 0, 0},
       {-1.0 / 6, -1.0 / 6, -1.0 / 6},
       {-1.0 / 6, 1.0 / 6, -1.0 / 6},
       {1.0 / 24, 1.0 / 12, 1.0 / 6},
       {1.0 / 24, -1.0 / 12, 1.0 / 6},
       {0, 0, 1}},
      {{1, 1, 1, 1, 1, 0}, {0, 1, -1, 2, -2, 0}, {0, 1, 1, 4, 4, 0}, {0, 1, -1, 8, -8, 1}},
  };
  check(tile == 2 || tile == 4, "winograd_transform: tiles are 2×2 or 4×4");
  return tile == 2 ? two : four;
}

NDArray winograd_weight(const NDArray& weight, const WinogradTransform& transform) {
  const int64_t outputs = weight.shape()[0], inputs = weight.shape()[1];
  const size_t points = transform.size() * transform.size();
  NDArray result(f32, {static_cast<int64_t>(points), inputs, outputs});
  auto* to = static_cast<float*>(result.data());
  const auto* from = static_cast<const float*>(weight.data());
  for (int64_t o = 0; o < outputs; ++o) {
    for (int64_t i = 0; i < inputs; ++i) {
      const float* filter = from + (o * inputs + i) * 9;
      const std::vector<double> u = sandwich<double>(transform.weight, {filter, filter + 9});
      for (size_t p = 0; p < points; ++p) to[(p * inputs + i) * outputs + o] = static_cast<float>(u[p]);
    }
  }
  return result;
}

double winograd_error(const NDArray& weight, const NDArray& transformed, const WinogradTransform& transform) {
  constexpr int64_t tested_outputs = 16, tested_tiles = 2;
  const int64_t outputs = weight.shape()[0], inputs = weight.shape()[1];
  const size_t size = transform.size(), points = size * size, tile = transform.tile;
  const auto* w = static_cast<const float*>(weight.data());
  const auto* u = static_cast<const float*>(transformed.data());
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  double error = 0, largest = 0;
  for (int64_t round = 0; round < tested_tiles; ++round) {
    std::vector<std::vector<float>> data, v;
    for (int64_t i = 0; i < inputs; ++i) {
      std::vector<float> d(points);
      for (float& x : d) x = normal(generator);
      v.push_back(sandwich<float>(transform.input, d));
      data.push_back(std::move(d));
    }
    const int64_t step = std::max<int64_t>(1, outputs / tested_outputs);
    for (int64_t o = 0; o < outputs; o += step) {
      std::vector<float> m(points);
      for (int64_t i = 0; i < inputs; ++i)
        for (size_t p = 0; p < points; ++p) m[p] += u[(p * inputs + i) * outputs + o] * v[i][p];
      const std::vector<float> y = sandwich<float>(transform.output, m);
      for (size_t r = 0; r < tile; ++r) {
        for (size_t c = 0; c < tile; ++c) {
          double exact = 0;
          for (int64_t i = 0; i < inputs; ++i)
            for (size_t k = 0; k < 9; ++k)
              exact += static_cast<double>(w[(o * inputs + i) * 9 + k]) * data[i][(r + k / 3) * size + c + k % 3];
          error = std::max(error, std::abs(exact - y[r * tile + c]));
          largest = std::max(largest, std::abs(exact));
        }
      }
    }
  }
  return largest > 0 ? error / largest : error;
}

}  // namespace tw::relay
