// Normalisations: layer norm and RMS norm, with their scale and bias.  Statistics over all of space (instance norm) are
// layer norms whose normalised axes begin earlier.
#include "relay_ir/passes/recognise.h"

namespace tw::relay {
namespace {

// x / √v
Pattern over_root(const Pattern& x, const Pattern& v) {
  const Pattern root = either({op("sqrt", {v}), op("power", {v, number(0.5)})});
  return either({x / root, x * (number(1) / root), x * op("reciprocal", {root}), x * op("rsqrt", {v}),
                 x * op("power", {v, number(-0.5)})});
}

// Means that keep their axes, these being the last ones of x; the first of them, or -1.
int first_axis(const Node& mean, int rank) {
  if (mean.attributes.get_int("keepdims") == 0) return -1;
  std::vector<bool> is_reduced(rank, false);
  for (const int64_t axis : mean.attributes.get_ints("axes")) is_reduced[axis < 0 ? axis + rank : axis] = true;
  int first = rank;
  while (first > 0 && is_reduced[first - 1]) --first;
  for (int axis = 0; axis < first; ++axis) {
    if (is_reduced[axis]) return -1;
  }
  return first < rank ? first : -1;
}

// A scale or bias: it differs along the normalised axes only.
bool is_parameter(const TensorType& type, const TensorType& x, int axis) {
  if (type.rank() > x.rank() || type.dtype != x.dtype) return false;
  for (int d = 0; d < type.rank(); ++d) {
    const int of_x = x.rank() - type.rank() + d;
    const auto extent = as_int(type.shape[d]), wanted = as_int(x.shape[of_x]);
    if (!extent || !(*extent == 1 || (of_x >= axis && extent == wanted))) return false;
  }
  return true;
}

struct Norm {
  Pattern x, scale = any(), bias = any(), epsilon = number();
  std::vector<Pattern> means;
};

// The pattern's rows: with scale and bias, with a scale, bare.
std::vector<Recognition> rows(const std::string& name, const Norm& norm, const Pattern& bare) {
  const auto build = [=](Site& s) -> ValueId {
    const TensorType& x = s.type(norm.x);
    const double epsilon = s.number(norm.epsilon);
    if (!x.dtype.is_float() || !(x == s.result_type()) || !(epsilon >= 0)) return no_value;
    const int axis = first_axis(s.node(norm.means[0]), x.rank());
    if (axis < 0) return no_value;
    for (const Pattern& mean : norm.means) {
      if (first_axis(s.node(mean), x.rank()) != axis) return no_value;
    }
    for (const Pattern& parameter : {norm.scale, norm.bias}) {
      if (s.has(parameter) && !is_parameter(s.type(parameter), x, axis)) return no_value;
    }
    std::vector<ValueId> inputs{s[norm.x]};
    if (s.has(norm.scale)) inputs.push_back(s[norm.scale]);
    if (s.has(norm.bias)) inputs.push_back(s[norm.bias]);
    return s.result(name, inputs, attributes_of({{"axis", int64_t{axis}}, {"epsilon", epsilon}}));
  };
  std::vector<Recognition> result;
  if (name == "layer_norm") result.push_back({bare * norm.scale + norm.bias, build});
  result.push_back({bare * norm.scale, build});
  result.push_back({bare, build});
  return result;
}

std::vector<Recognition> layer_norm() {
  const Pattern x = any();
  const Pattern mean = op("reduce_mean", {x}), centred = x - mean;
  const Pattern variance = op("reduce_mean", {either({centred * centred, op("power", {centred, number(2)})})});
  Norm norm{.x = x, .means = {mean, variance}};
  return rows("layer_norm", norm, over_root(centred, variance + norm.epsilon));
}

std::vector<Recognition> rms_norm() {
  const Pattern x = any();
  const Pattern mean = op("reduce_mean", {either({x * x, op("power", {x, number(2)})})});
  Norm norm{.x = x, .means = {mean}};
  return rows("rms_norm", norm, over_root(x, mean + norm.epsilon));
}

}  // namespace

std::vector<Recognition> norm_recognitions() {
  std::vector<Recognition> result = layer_norm();
  for (Recognition& row : rms_norm()) result.push_back(std::move(row));
  return result;
}

}  // namespace tw::relay
