#include "relay_ir/winograd.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "runtime/error.h"
#include "runtime/rounding.h"
#include "tensor_ir/parallel.h"

namespace tw::relay {
namespace {

using Matrix = std::vector<std::vector<double>>;

// left · x · rightᵀ.
template <typename Number>
std::vector<Number> sandwich(const Matrix& left, const std::vector<Number>& x, const Matrix& right) {
  const size_t rows = left.size(), height = left[0].size(), columns = right.size(), width = right[0].size();
  std::vector<Number> half(rows * width), result(rows * columns);
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < width; ++j)
      for (size_t k = 0; k < height; ++k) half[i * width + j] += static_cast<Number>(left[i][k]) * x[k * width + j];
  for (size_t i = 0; i < rows; ++i)
    for (size_t j = 0; j < columns; ++j)
      for (size_t k = 0; k < width; ++k)
        result[i * columns + j] += half[i * width + k] * static_cast<Number>(right[j][k]);
  return result;
}

// Of F(m, 2) for the even elements of the input, and the odd ones as they are.
WinogradTransform with_stride_two(const WinogradTransform& even) {
  const size_t m = even.output.size(), points = even.input.size(), size = points + m;
  WinogradTransform result{static_cast<int>(m), 2, Matrix(size, std::vector<double>(size)),
                           Matrix(size, std::vector<double>(3)), Matrix(m, std::vector<double>(size))};
  for (size_t p = 0; p < points; ++p) {
    for (size_t i = 0; i < points; ++i) result.input[p][2 * i] = even.input[p][i];
    for (size_t k = 0; k < 2; ++k) result.weight[p][2 * k] = even.weight[p][k];
    for (size_t i = 0; i < m; ++i) result.output[i][p] = even.output[i][p];
  }
  for (size_t i = 0; i < m; ++i)
    result.input[points + i][2 * i + 1] = result.weight[points + i][1] = result.output[i][points + i] = 1;
  return result;
}

}  // namespace

const WinogradTransform& winograd_transform(int64_t tile, int64_t stride) {
  static const WinogradTransform one{1, 1, {{1}}, {{1}}, {{1}}};
  static const WinogradTransform two{
      2,
      1,
      {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}},
      {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}},
      {{1, 1, 1, 0}, {0, 1, -1, -1}},
  };
  static const WinogradTransform four{
      4,
      1,
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
  static const WinogradTransform two_by_two = with_stride_two({
      2,
      1,
      {{1, -1, 0}, {0, 1, 0}, {0, -1, 1}},
      {{1, 0}, {1, 1}, {0, 1}},
      {{1, 1, 0}, {0, 1, 1}},
  });
  static const WinogradTransform four_by_two = with_stride_two({
      4,
      1,
      {{2, -1, -2, 1, 0}, {0, -2, -1, 1, 0}, {0, 2, -3, 1, 0}, {0, -1, 0, 1, 0}, {0, 2, -1, -2, 1}},
      {{1.0 / 2, 0}, {-1.0 / 2, -1.0 / 2}, {-1.0 / 6, 1.0 / 6}, {1.0 / 6, 1.0 / 3}, {0, 1}},
      {{1, 1, 1, 1, 0}, {0, 1, -1, 2, 0}, {0, 1, 1, 4, 0}, {0, 1, -1, 8, 1}},
  });
  if (tile == 1) return one;
  check(tile == 2 || tile == 4, "winograd_transform: tiles are of 2 or 4");
  check(stride == 1 || stride == 2, "winograd_transform: strides are 1 or 2");
  if (stride == 2) return tile == 2 ? two_by_two : four_by_two;
  return tile == 2 ? two : four;
}

std::vector<size_t> filtered_axes(const std::vector<int64_t>& window) {
  std::vector<size_t> axes;
  for (size_t d = window.size(); d-- > 0 && axes.size() < 2;)
    if (window[d] == 3) axes.insert(axes.begin(), d);
  return axes;
}

WinogradFilter winograd_filter(int64_t tile, int64_t stride, size_t axes) {
  return {winograd_transform(axes == 2 ? tile : 1, stride), winograd_transform(tile, stride)};
}

// Filters of some output channels side by side, so that the transformed ones are written in whole lines of the cache.
NDArray winograd_weight(const NDArray& weight, const WinogradFilter& filter, int jobs) {
  constexpr int64_t lanes = 16, most_points = 9, most_window = 3;  // along an axis
  const auto& [along_rows, along_columns] = filter;
  const int rows = along_rows.size(), columns = along_columns.size();
  const int height = along_rows.window(), width = along_columns.window(), window = filter.window();
  const int64_t outputs = weight.shape()[0], channels = weight.shape()[1], inputs = weight.size() / outputs / window,
                slices = inputs / channels;
  NDArray result(f32, {filter.points(), inputs, outputs});
  auto* to = static_cast<float*>(result.data());
  const auto* from = static_cast<const float*>(weight.data());
  const auto transform_lanes = [&](int64_t i, int64_t first, int64_t count) {
    const int64_t row = i % slices * channels + i / slices;
    double g[most_window * most_window][lanes] = {}, half[most_points][most_window][lanes] = {};
    for (int64_t l = 0; l < count; ++l)
      for (int k = 0; k < window; ++k) g[k][l] = from[((first + l) * inputs + i) * window + k];
    for (int r = 0; r < rows; ++r)
      for (int c = 0; c < width; ++c)
        for (int k = 0; k < height; ++k)
          for (int64_t l = 0; l < lanes; ++l) half[r][c][l] += along_rows.weight[r][k] * g[k * width + c][l];
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < columns; ++c) {
        double u[lanes] = {};
        for (int k = 0; k < width; ++k)
          for (int64_t l = 0; l < lanes; ++l) u[l] += half[r][k][l] * along_columns.weight[c][k];
        float* line = to + ((r * columns + c) * inputs + row) * outputs + first;
        for (int64_t l = 0; l < count; ++l) line[l] = static_cast<float>(u[l]);
      }
    }
  };
  for_each_in_parallel(static_cast<size_t>(inputs), jobs, [&](size_t i) {
    for (int64_t first = 0; first < outputs; first += lanes)
      transform_lanes(static_cast<int64_t>(i), first, std::min(lanes, outputs - first));
  });
  return result;
}

double winograd_error(const NDArray& weight, const WinogradFilter& filter) {
  constexpr int64_t tested_outputs = 16, tested_tiles = 2;
  const auto& [rows, columns] = filter;
  const auto window = static_cast<size_t>(filter.window()), points = static_cast<size_t>(filter.points());
  const int64_t outputs = weight.shape()[0],
                inputs = weight.size() / (filter.window() * outputs);  // of all slices
  const int64_t step = std::max<int64_t>(1, outputs / tested_outputs), tested = divide_up(outputs, step);
  NDArray sample(f32, {tested, inputs, filter.window()});
  const size_t filter_bytes = static_cast<size_t>(inputs) * window * sizeof(float);
  for (int64_t o = 0; o < tested; ++o)
    std::memcpy(static_cast<std::byte*>(sample.data()) + o * filter_bytes,
                static_cast<const std::byte*>(weight.data()) + o * step * filter_bytes, filter_bytes);
  const NDArray transformed = winograd_weight(sample, filter, 1);
  const auto* w = static_cast<const float*>(sample.data());
  const auto* u = static_cast<const float*>(transformed.data());
  // Where an element of a tile reads first, and how much further on the window's other elements are.
  std::vector<size_t> first_read, read_by_window;
  for (int r = 0; r < rows.tile; ++r)
    for (int c = 0; c < columns.tile; ++c) first_read.push_back(r * rows.stride * columns.size() + c * columns.stride);
  for (int r = 0; r < rows.window(); ++r)
    for (int c = 0; c < columns.window(); ++c) read_by_window.push_back(r * columns.size() + c);
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  double error = 0, largest = 0;
  for (int64_t round = 0; round < tested_tiles; ++round) {
    std::vector<std::vector<float>> data, v;
    for (int64_t i = 0; i < inputs; ++i) {
      std::vector<float> d(points);
      for (float& x : d) x = normal(generator);
      v.push_back(sandwich<float>(rows.input, d, columns.input));
      data.push_back(std::move(d));
    }
    std::vector<float> m(points * tested);  // of all outputs
    for (int64_t i = 0; i < inputs; ++i)
      for (size_t p = 0; p < points; ++p)
        for (int64_t o = 0; o < tested; ++o) m[p * tested + o] += u[(p * inputs + i) * tested + o] * v[i][p];
    for (int64_t o = 0; o < tested; ++o) {
      std::vector<float> own(points);
      for (size_t p = 0; p < points; ++p) own[p] = m[p * tested + o];
      const std::vector<float> y = sandwich<float>(rows.output, own, columns.output);
      std::vector<double> exact(y.size());
      for (int64_t i = 0; i < inputs; ++i)
        for (size_t k = 0; k < window; ++k)
          for (size_t e = 0; e < exact.size(); ++e)
            exact[e] +=
                static_cast<double>(w[(o * inputs + i) * window + k]) * data[i][first_read[e] + read_by_window[k]];
      for (size_t e = 0; e < exact.size(); ++e) {
        if (!std::isfinite(y[e])) return std::numeric_limits<double>::infinity();
        error = std::max(error, std::abs(exact[e] - y[e]));
        largest = std::max(largest, std::abs(exact[e]));
      }
    }
  }
  return largest > 0 ? error / largest : error;
}

}  // namespace tw::relay
