#include "autotune/standalone.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <optional>
#include <random>

#include "autotune/measure/exchange.h"
#include "relay_ir/compile/plan_maker.h"

namespace tw::autotune {
namespace {

Shape shape_of(const Buffer& buffer) {
  const auto shape = const_shape(buffer);
  check(shape.has_value(), "candidate: shapes are constant");
  return *shape;
}

// Numbers of one set, one after the other.
class MadeUpFloats {
 public:
  MadeUpFloats(int set, uint64_t seed) : set_(set), random_(seed) {}
  double next() {
    if (set_ == 0) return normal_(random_);
    if (set_ == 1) {
      // Zeros of both signs, subnormals, and magnitudes whose squares and sums are still finite in f32.
      constexpr double extremes[] = {0.0, -0.0, 1e-40, -1e-40, 1e-20, 1.0, -1.0, 100.0, -100.0, 6e4, -6e4};
      return extremes[random_() % std::size(extremes)];
    }
    constexpr double magnitudes[] = {1e-3, 1e-2, 1e-1, 1, 1e1, 1e2, 1e3};
    return normal_(random_) * magnitudes[random_() % std::size(magnitudes)];
  }

 private:
  int set_;
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
};

int64_t made_up_integer(DType dtype, int set, std::mt19937_64& random) {
  const bool is_signed = dtype.is_signed_integer();
  if (dtype.bits == 8 && set != 1) return static_cast<int64_t>(random() % 256) - (is_signed ? 128 : 0);
  if (dtype.bits == 8) return random() % 2 ? (is_signed ? 127 : 255) : (is_signed ? -128 : 0);
  if (set != 1) return static_cast<int64_t>(random() % 16) - (is_signed ? 8 : 0);
  const int64_t largest = (int64_t{1} << (dtype.bits - 1 < 62 ? dtype.bits - 1 : 62)) - 1;
  const int64_t extremes[] = {0, 1, largest, is_signed ? -largest - 1 : largest};
  return extremes[random() % 4];
}

// Floats are multiplied by `scale`.
NDArray made_up_array(DType dtype, const Shape& shape, int set, uint64_t seed, double scale) {
  NDArray array(dtype, shape);
  if (dtype.is_float()) {
    MadeUpFloats floats(set, seed);
    // Millions of weights: those of f32 without a call for each.
    float* own = dtype == f32 ? array.as<float>() : nullptr;
    for (int64_t i = 0; i < array.size(); ++i) {
      const double value = floats.next() * scale;
      if (own) {
        own[i] = static_cast<float>(value);
      } else {
        array.set_float(i, value);
      }
    }
    return array;
  }
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < array.size(); ++i)
    array.set_int(i, dtype.is_bool() ? static_cast<int64_t>(random() % 2) : made_up_integer(dtype, set, random));
  return array;
}

// As trained weights are: sums of products stay about as large as what is multiplied.
double scale_of_weights(const Shape& shape) {
  const auto terms = static_cast<double>(element_count(shape)) / static_cast<double>(shape.empty() ? 1 : shape[0]);
  return 1 / std::sqrt(std::max(1.0, terms));
}

// Sums in another order round otherwise: by their terms' magnitude, which the output's largest stands for.  -1: none.
int64_t first_different_float(const NDArray& a, const NDArray& b, double tolerance,
                              const std::vector<bool>& padding = {}) {
  check(a.size() == b.size(), "first_different_float: outputs of one shape");
  // Hundreds of thousands of elements in each trial: those of f32 without a call for each.
  const auto reader = [](const NDArray& array) {
    const float* floats = array.dtype() == f32 ? array.as<float>() : nullptr;
    return [floats, &array](int64_t i) { return floats ? double{floats[i]} : array.get_float(i); };
  };
  const auto ours_at = reader(a), theirs_at = reader(b);
  const int64_t size = b.size();
  double largest = 0;
  const auto is_padding = [&](int64_t i) { return !padding.empty() && padding[static_cast<size_t>(i)]; };
  for (int64_t i = 0; i < size; ++i) {
    if (is_padding(i)) continue;
    if (const double value = theirs_at(i); std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  for (int64_t i = 0; i < size; ++i) {
    if (is_padding(i)) continue;
    const double ours = ours_at(i), theirs = theirs_at(i);
    if (std::isnan(theirs) ? std::isnan(ours) : ours == theirs) continue;
    if (!(std::abs(ours - theirs) <= tolerance * largest)) return i;
  }
  return -1;
}

int64_t first_different_integer(const NDArray& a, const NDArray& b, const std::vector<bool>& padding) {
  for (int64_t i = 0; i < b.size(); ++i)
    if ((padding.empty() || !padding[static_cast<size_t>(i)]) && a.get_int(i) != b.get_int(i)) return i;
  return -1;
}

std::string describe(size_t output, int64_t element, const NDArray& ours, const NDArray& theirs) {
  const auto value = [&](const NDArray& array) {
    return array.dtype().is_float() ? std::to_string(array.get_float(element)) : std::to_string(array.get_int(element));
  };
  return "output " + std::to_string(output) + ", element " + std::to_string(element) + ": " + value(ours) +
         " instead of " + value(theirs);
}

template <class Keep>
std::vector<NDArray> among(const Func& func, const std::vector<NDArray>& buffers, Keep keep) {
  std::vector<NDArray> kept;
  for (size_t i = 0; i < buffers.size(); ++i)
    if (keep(func.buffers[i])) kept.push_back(buffers[i]);
  return kept;
}

}  // namespace

std::vector<std::vector<NDArray>> made_up_buffers(const Func& func, uint64_t seed) {
  std::vector<std::vector<NDArray>> sets(input_sets);
  for (size_t i = 0; i < func.buffers.size(); ++i) {
    const Buffer& buffer = func.buffers[i];
    const Shape shape = shape_of(buffer);
    const uint64_t own_seed = seed + 1000 * i;
    std::optional<NDArray> weights;
    if (buffer->is_constant) weights = made_up_array(buffer->dtype, shape, 0, own_seed, scale_of_weights(shape));
    for (int set = 0; set < input_sets; ++set) {
      auto& buffers = sets[static_cast<size_t>(set)];
      if (func.is_output(buffer)) {
        buffers.emplace_back(buffer->dtype, shape);
        std::memset(buffers.back().data(), 0, buffers.back().byte_size());
      } else {
        buffers.push_back(weights ? *weights
                                  : made_up_array(buffer->dtype, shape, set, own_seed + static_cast<uint64_t>(set), 1));
      }
    }
  }
  return sets;
}

Executable build_standalone(const Func& func, const Schedule& schedule, const Target& target,
                            const std::vector<NDArray>& buffers, CodegenReport* report) {
  const relay::ScheduledFunc scheduled = relay::lower_scheduled(func, schedule, target, func.name);
  if (report) report->spilled_buffers = static_cast<int>(scheduled.lowered.spilled.size());
  relay::ConstantPool constants;
  relay::PlanMaker maker(func.name, {}, {}, target, constants);
  std::vector<BufferUse> uses;
  for (size_t i = 0; i < func.buffers.size(); ++i) {
    const Buffer& buffer = func.buffers[i];
    const relay::TensorType type{buffer->dtype, buffer->shape};
    uses.push_back(buffer->is_constant      ? maker.add_constant(buffer->name, buffers.at(i), scheduled.layouts[i])
                   : func.is_output(buffer) ? maker.add_output(buffer->name, type)
                                            : maker.add_input(buffer->name, type));
  }
  constexpr int bytes_moved = 0;  // which nobody asks a candidate
  const std::vector<Expr> parameters(scheduled.func.parameters.begin(), scheduled.func.parameters.end());
  maker.add_steps(func.name, scheduled, parameters, bytes_moved, [&](size_t i) { return uses[i]; });
  CodegenOptions options;
  options.wants_report = report != nullptr;
  Plan plan = std::move(maker).finish();
  plan.constants = constants.infos();
  return {compile_image(relay::different_kernels({scheduled}), target, options, report),
          std::move(plan),
          constants.pack(options.jobs),
          {target.architecture, target.name, target.features}};
}

std::vector<NDArray> inputs_among(const Func& func, const std::vector<NDArray>& buffers) {
  return among(func, buffers, [&](const Buffer& b) { return !func.is_output(b) && !b->is_constant; });
}

std::vector<NDArray> outputs_among(const Func& func, const std::vector<NDArray>& buffers) {
  return among(func, buffers, [&](const Buffer& b) { return func.is_output(b); });
}

Padding padding_of(const std::vector<NDArray>& candidate, const std::vector<NDArray>& incumbent) {
  const auto is_filled = [](const NDArray& array, int64_t i, std::byte poison) {
    const auto* bytes = static_cast<const std::byte*>(array.data()) + i * array.dtype().bytes();
    return std::all_of(bytes, bytes + array.dtype().bytes(), [&](std::byte byte) { return byte == poison; });
  };
  Padding padding(candidate.size());
  for (size_t o = 0; o < candidate.size(); ++o) {
    const NDArray &a = candidate[o], &b = incumbent[o];
    if (a.rank() < 2 || a.size() == 0) continue;
    const int64_t lanes = a.shape().back();
    const auto is_left = [&](int64_t i) {
      return is_filled(a, i, candidate_poison) && is_filled(b, i, incumbent_poison);
    };
    int64_t filled = lanes;  // lanes of a row that is not full
    for (int64_t row = 0; row < a.size(); row += lanes) {
      if (!is_left(row + lanes - 1)) continue;
      int64_t first = lanes;
      while (first > 0 && is_left(row + first - 1)) --first;
      if (first == 0 || (filled != lanes && first != filled)) return Padding(candidate.size());
      filled = first;
      if (padding[o].empty()) padding[o].resize(static_cast<size_t>(a.size()));
      for (int64_t lane = first; lane < lanes; ++lane) padding[o][static_cast<size_t>(row + lane)] = true;
    }
  }
  return padding;
}

void clear_padding(std::vector<NDArray>& outputs, const Padding& padding) {
  for (size_t o = 0; o < padding.size(); ++o) {
    const auto bytes = static_cast<size_t>(outputs[o].dtype().bytes());
    for (size_t i = 0; i < padding[o].size(); ++i)
      if (padding[o][i]) std::memset(static_cast<std::byte*>(outputs[o].data()) + i * bytes, 0, bytes);
  }
}

std::string find_difference(const std::vector<NDArray>& outputs, const std::vector<NDArray>& expected,
                            const Padding& padding) {
  check(outputs.size() == expected.size(), "find_difference: outputs in the same order");
  for (size_t o = 0; o < outputs.size(); ++o) {
    const NDArray &a = outputs[o], &b = expected[o];
    const std::vector<bool> unread = padding.empty() ? std::vector<bool>() : padding[o];
    const int64_t at = b.dtype().is_float() ? first_different_float(a, b, b.dtype().bits == 16 ? 2e-2 : 1e-4, unread)
                                            : first_different_integer(a, b, unread);
    if (at >= 0) return describe(o, at, a, b);
  }
  return "";
}

std::string find_network_difference(const std::vector<NDArray>& outputs, const std::vector<NDArray>& expected) {
  check(outputs.size() == expected.size(), "find_network_difference: outputs in the same order");
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (!expected[o].dtype().is_float()) continue;
    const int64_t at = first_different_float(outputs[o], expected[o], 2e-2);
    if (at >= 0) return describe(o, at, outputs[o], expected[o]);
  }
  return "";
}

}  // namespace tw::autotune
