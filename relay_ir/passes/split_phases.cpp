// Transposed convolutions with known weights as convolutions, one for each phase of the result's positions modulo the
// strides: none of them multiplies the zeros between the elements.  The phases are channels of one convolution, and
// come together behind it.
//
//   conv_transpose(x: [1, 64, 28, 28], w: [64, 64, 4, 4]) {strides = [2, 2], pads = [1, 1, 1, 1]}
//   ⇒
//   phases = conv(x, w': [256, 64, 2, 2]) {pads = [1, 1, 1, 1]}                      # [1, 256, 29, 29]
//   wide = reshape(transpose(reshape(phases, [1, 1, 2, 2, 64, 29, 29])), [1, 64, 58, 58])
//   slice(wide, 56 rows from 1, 56 columns from 1)
//
// Position o of the full result, pads included, is o = q·s + r in phase r.  It gets x[i] · w[k] for k = o - i·s, which
// is r + s·(q - i): a window of ⌈kernel / s⌉ elements up to x[q], with the weights of phase r in it, in reverse.
#include <algorithm>

#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"
#include "relay_ir/pattern.h"
#include "runtime/rounding.h"

namespace tw::relay {
namespace {

using Ints = std::vector<int64_t>;

struct Phases {
  int64_t groups = 1, inputs = 1, outputs = 1;  // channels of a group
  Ints kernel, strides;
  Ints taps;          // of a phase's window
  Ints pads;          // of the convolution
  Ints first;         // of the result's positions, in the first phases
  int64_t count = 1;  // of phases

  size_t rank() const { return kernel.size(); }
};

std::optional<Phases> find_phases(const Graph& graph, const Node& node) {
  const auto form = linear_of(graph, node);
  if (!form || !graph.is_constant(node.inputs[1])) return std::nullopt;
  const Shape& weight = graph.values[node.inputs[1]].constant->shape();
  Phases p;
  p.groups = form->groups, p.inputs = weight[0] / form->groups, p.outputs = weight[1];
  p.kernel.assign(weight.begin() + 2, weight.end());
  const size_t rank = p.rank();
  const auto numbers = [&](const char* name, int64_t otherwise, size_t count) {
    const Ints& given = node.attributes.get_ints(name);
    return given.empty() ? Ints(count, otherwise) : given;
  };
  p.strides = numbers("strides", 1, rank);
  const Ints dilations = numbers("dilations", 1, rank), cut = numbers("pads", 0, 2 * rank),
             extra = numbers("output_padding", 0, rank);
  p.pads.resize(2 * rank);
  for (size_t d = 0; d < rank; ++d) {
    const int64_t s = p.strides[d];
    if (dilations[d] != 1 && p.kernel[d] > 1) return std::nullopt;
    p.taps.push_back(divide_up(p.kernel[d], s));
    p.first.push_back(cut[d] % s);
    p.pads[d] = p.taps[d] - 1 - cut[d] / s;
    const int64_t behind = p.kernel[d] - 1 + extra[d] - cut[rank + d];
    p.pads[rank + d] = behind < 0 ? -1 : behind / s;
    if (p.pads[d] < 0 || p.pads[rank + d] < 0) return std::nullopt;  // some of x is used nowhere
    p.count *= s;
  }
  return p;
}

// [group, phase, output, input, taps…] of [group, input, output, kernel…].
NDArray phase_weights(const NDArray& weight, const Phases& p) {
  Shape shape{p.groups * p.count * p.outputs, p.inputs};
  shape.insert(shape.end(), p.taps.begin(), p.taps.end());
  NDArray result(weight.dtype(), shape);
  std::memset(result.data(), 0, result.byte_size());
  const auto bytes = static_cast<size_t>(weight.dtype().bytes());
  const int64_t window = element_count(p.kernel);
  auto* to = static_cast<std::byte*>(result.data());
  const auto* from = static_cast<const std::byte*>(weight.data());
  std::vector<int64_t> position_of(static_cast<size_t>(window)), phase_of(position_of);
  for (int64_t k = 0; k < window; ++k) {
    int64_t position = 0, phase = 0, stride = 1, phases = 1;
    int64_t rest = k;
    for (size_t d = p.rank(); d-- > 0;) {
      const int64_t at = rest % p.kernel[d], s = p.strides[d];
      rest /= p.kernel[d];
      position += (p.taps[d] - 1 - at / s) * stride, stride *= p.taps[d];
      phase += at % s * phases, phases *= s;
    }
    position_of[static_cast<size_t>(k)] = position, phase_of[static_cast<size_t>(k)] = phase;
  }
  const int64_t taps = element_count(p.taps);
  for (int64_t g = 0; g < p.groups; ++g) {
    for (int64_t i = 0; i < p.inputs; ++i) {
      for (int64_t o = 0; o < p.outputs; ++o, from += static_cast<size_t>(window) * bytes) {
        for (int64_t k = 0; k < window; ++k) {
          const int64_t filter = (g * p.count + phase_of[static_cast<size_t>(k)]) * p.outputs + o;
          const int64_t at = (filter * p.inputs + i) * taps + position_of[static_cast<size_t>(k)];
          std::memcpy(to + static_cast<size_t>(at) * bytes, from + static_cast<size_t>(k) * bytes, bytes);
        }
      }
    }
  }
  return result;
}

class PhaseSplitter {
 public:
  explicit PhaseSplitter(const Graph& graph) : copy_(graph) {}

  Graph run() {
    return copy_.rewrite([&](const Node& node) { return replacement(node); });
  }

 private:
  using Rule = std::optional<Phases> (*)(const Graph& graph, const Node& node);

  ValueId replacement(const Node& node) {
    static const RulesByOp<Rule> rules = {{"conv_transpose", find_phases}};
    const Rule* rule = rules.find(node);
    const auto phases = rule ? (*rule)(copy_.from(), node) : std::nullopt;
    if (!phases) return no_value;
    const ValueId weights = copy_.to().add_constant(
        node.name + ".phases", phase_weights(*copy_.from().values[node.inputs[1]].constant, *phases));
    const NodeAttributes attributes = attributes_of({{"pads", phases->pads}, {"groups", phases->groups}});
    if (phases->count == 1) return copy_.add(node, "conv", {copy_[node.inputs[0]], weights}, attributes)[0];
    return join(node, *phases, add(node, "conv", {copy_[node.inputs[0]], weights}, attributes));
  }

  // [n, group · phases · output, q…] ⇒ [n, group · output, size…]
  ValueId join(const Node& node, const Phases& p, ValueId x) {
    const std::vector<Expr> from = copy_.to().values[x].type.shape,
                            wanted = copy_.from().values[node.outputs[0]].type.shape;
    const size_t rank = p.rank();
    std::vector<Expr> apart{from[0], Expr(p.groups)}, wide{from[0], wanted[1]};
    Ints perm{0, 1, static_cast<int64_t>(2 + rank)}, axes;
    std::vector<Expr> starts, sizes;
    for (const int64_t s : p.strides) apart.emplace_back(s);
    apart.emplace_back(p.outputs);
    for (size_t d = 0; d < rank; ++d) {
      apart.push_back(from[2 + d]);
      perm.push_back(static_cast<int64_t>(3 + rank + d));
      perm.push_back(static_cast<int64_t>(2 + d));
      wide.push_back(simplify(from[2 + d] * p.strides[d]));
      if (p.first[d] == 0 && is_same_dim(wide.back(), wanted[2 + d])) continue;
      axes.push_back(static_cast<int64_t>(2 + d));
      starts.emplace_back(p.first[d]);
      sizes.push_back(wanted[2 + d]);
    }
    x = add(node, "reshape", {x}, attributes_of({{"shape", apart}}));
    x = add(node, "transpose", {x}, attributes_of({{"perm", perm}}));
    const NodeAttributes whole = attributes_of({{"shape", wide}});
    if (axes.empty()) return copy_.add(node, "reshape", {x}, whole)[0];
    x = add(node, "reshape", {x}, whole);
    return copy_.add(node, "slice", {x}, attributes_of({{"axes", axes}, {"starts", starts}, {"sizes", sizes}}))[0];
  }

  ValueId add(const Node& node, const char* op, std::vector<ValueId> inputs, NodeAttributes attributes) {
    return copy_.to().add_node(op, std::move(inputs), std::move(attributes), node.name + "." + op)[0];
  }

  GraphCopy copy_;
};

}  // namespace

Graph split_phases(const Graph& graph, const PassContext&) {
  return PhaseSplitter(graph).run();
}

}  // namespace tw::relay
