#include "relay_ir/strassen.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/error.h"
#include "tensor_ir/parallel.h"

namespace tw::relay {

const StrassenTransform& strassen_transform(bool is_split) {
  static const StrassenTransform whole{{{1}}, {{1}}, {{1}}};
  static const StrassenTransform split{
      {{1, 0, 0, 1}, {0, 0, 1, 1}, {1, 0, 0, 0}, {0, 0, 0, 1}, {1, 1, 0, 0}, {-1, 0, 1, 0}, {0, 1, 0, -1}},
      {{1, 0, 0, 1}, {1, 0, 0, 0}, {0, 1, 0, -1}, {-1, 0, 1, 0}, {0, 0, 0, 1}, {1, 1, 0, 0}, {0, 0, 1, 1}},
      {{1, 0, 0, 1, -1, 0, 1}, {0, 0, 1, 0, 1, 0, 0}, {0, 1, 0, 1, 0, 0, 0}, {1, -1, 1, 0, 0, 1, 0}},
  };
  return is_split ? split : whole;
}

NDArray strassen_weight(const NDArray& weight, int64_t levels, int jobs) {
  check(weight.dtype() == f32 && weight.rank() == 2, "strassen_weight: the weight is a matrix of f32");
  check(levels == 1 || levels == 2, "strassen_weight: one level or two");
  const auto &first = strassen_transform(true).weight, &second = strassen_transform(levels == 2).weight;
  const int64_t parts = int64_t{1} << levels, inner = parts / 2;  // along each axis, and of a block of the first level
  const int64_t inputs = weight.shape()[0] / parts, width = weight.shape()[1], outputs = width / parts;
  check(inputs * parts == weight.shape()[0] && outputs * parts == width, "strassen_weight: blocks are equal");
  NDArray result(f32, {static_cast<int64_t>(first.size() * second.size()), inputs, outputs});
  const auto* from = static_cast<const float*>(weight.data());
  auto* to = static_cast<float*>(result.data());
  for_each_in_parallel(static_cast<size_t>(inputs), jobs, [&](size_t number) {
    const auto i = static_cast<int64_t>(number);
    for (size_t point = 0; point < first.size() * second.size(); ++point) {
      const std::vector<double>&outer_row = first[point / second.size()], &inner_row = second[point % second.size()];
      float* line = to + (static_cast<int64_t>(point) * inputs + i) * outputs;
      std::vector<double> sum(static_cast<size_t>(outputs));
      for (size_t outer = 0; outer < outer_row.size(); ++outer) {
        for (size_t block = 0; block < inner_row.size(); ++block) {
          const double factor = outer_row[outer] * inner_row[block];
          if (factor == 0) continue;
          const auto row = static_cast<int64_t>(outer / 2 * inner + block / 2),
                     column = static_cast<int64_t>(outer % 2 * inner + block % 2);
          const float* of = from + (row * inputs + i) * width + column * outputs;
          for (int64_t o = 0; o < outputs; ++o) sum[o] += factor * of[o];
        }
      }
      for (int64_t o = 0; o < outputs; ++o) line[o] = static_cast<float>(sum[o]);
    }
  });
  return result;
}

double strassen_spread(const NDArray& weight, int64_t levels) {
  const int64_t parts = int64_t{1} << levels, width = weight.shape()[1], outputs = width / parts;
  const int64_t inputs = weight.shape()[0] / parts;
  const auto* from = static_cast<const float*>(weight.data());
  std::vector<double> whole(static_cast<size_t>(width)), largest(static_cast<size_t>(outputs));
  for (int64_t block = 0; block < parts; ++block) {
    std::vector<double> squares(static_cast<size_t>(width));
    for (const float* row = from + block * inputs * width; row < from + (block + 1) * inputs * width; row += width)
      for (int64_t o = 0; o < width; ++o) squares[o] += static_cast<double>(row[o]) * row[o];
    for (int64_t o = 0; o < width; ++o) {
      whole[o] += squares[o];
      largest[o % outputs] = std::max(largest[o % outputs], squares[o]);
    }
  }
  double spread = 0;
  const double most = std::numeric_limits<float>::max() / static_cast<double>(parts * parts);
  const bool sums_are_finite =
      std::all_of(from, from + weight.size(), [&](float w) { return std::abs(static_cast<double>(w)) <= most; });
  if (!sums_are_finite) return std::numeric_limits<double>::infinity();
  for (int64_t o = 0; o < width; ++o)
    spread = std::max(spread, largest[o % outputs] > 0 ? largest[o % outputs] / whole[o] : 0);
  return std::sqrt(spread);
}

}  // namespace tw::relay
