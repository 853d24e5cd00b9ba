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

NDArray strassen_scale(const NDArray& weight, int64_t levels) {
  const int64_t parts = int64_t{1} << levels, width = weight.shape()[1], outputs = width / parts;
  const auto* from = static_cast<const float*>(weight.data());
  std::vector<float> largest(static_cast<size_t>(width));
  for (const float* row = from; row < from + weight.size(); row += width)
    for (int64_t o = 0; o < width; ++o) largest[o] = std::max(largest[o], std::abs(row[o]));
  constexpr int least = std::numeric_limits<float>::min_exponent - 1;
  const auto exponent_of = [&](int64_t o) { return largest[o] > 0 ? std::max(std::ilogb(largest[o]), least) : least; };
  NDArray scale(f32, {width});
  for (int64_t o = 0; o < width; ++o) {
    int of_all = least;
    for (int64_t block = 0; block < parts; ++block)
      of_all = std::max(of_all, exponent_of(block * outputs + o % outputs));
    const int own = exponent_of(o);
    scale.set_float(o, std::ldexp(1.0, own < of_all - 1 ? own : of_all));
  }
  return scale;
}

NDArray strassen_weight(const NDArray& weight, const NDArray& scale, int64_t levels, int jobs) {
  check(weight.dtype() == f32 && weight.rank() == 2, "strassen_weight: the weight is a matrix of f32");
  check(levels == 1 || levels == 2, "strassen_weight: one level or two");
  const auto &first = strassen_transform(true).weight, &second = strassen_transform(levels == 2).weight;
  const int64_t parts = int64_t{1} << levels, inner = parts / 2;  // along each axis, and of a block of the first level
  const int64_t inputs = weight.shape()[0] / parts, width = weight.shape()[1], outputs = width / parts;
  check(scale.shape() == Shape{width}, "strassen_weight: a scale for each column");
  check(inputs * parts == weight.shape()[0] && outputs * parts == width, "strassen_weight: blocks are equal");
  NDArray result(f32, {static_cast<int64_t>(first.size() * second.size()), inputs, outputs});
  const auto* from = static_cast<const float*>(weight.data());
  const auto* scales = static_cast<const float*>(scale.data());
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
          for (int64_t o = 0; o < outputs; ++o) sum[o] += factor * of[o] / scales[column * outputs + o];
        }
      }
      for (int64_t o = 0; o < outputs; ++o) line[o] = static_cast<float>(sum[o]);
    }
  });
  return result;
}

}  // namespace tw::relay
