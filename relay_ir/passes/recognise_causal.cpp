// A mask under which the first query sees some keys at the most, and each next one sees one more, is a number: kernels
// go over those keys alone that some query of theirs sees.
//
//   m = less_equal(key positions, query positions);  attention(q, k, v, m)   ⇒   attention(q, k, v) {causal = 1}
//   n = logical_and(m, padding);                     attention(q, k, v, n)   ⇒   attention(q, k, v, n) {causal = 1}
//
// In the first case nothing is read of it; in the second others are masked, too, with -∞, which leaves no key behind
// the number a weight.  Masks are such conditions, numbers that `where` chooses by one, or constants.
#include <limits>

#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"
#include "relay_ir/pattern.h"

namespace tw::relay {
namespace {

// What a mask lets the first query see, if each next one sees one key more.
struct Frontier {
  int64_t first;  // so many keys, at the most
  bool is_all;    // all of them
};

class Masks {
 public:
  Masks(const Graph& graph, const Node& attention, const Uses& uses)
      : graph_(graph),
        uses_(uses),
        queries_(rows_of(attention.inputs[0])),
        keys_(rows_of(attention.inputs[1])),
        masked_(attention.attributes.get_float("masked")) {}

  // Where the mask hides other keys, too, the frontier is not all that it says.
  std::optional<Frontier> of_mask(ValueId mask) const {
    const TensorType& type = graph_.values[mask].type;
    constexpr double nothing = -1e9, nothing_f16 = -65504;  // added to a score, or in its place, it leaves no weight
    const double most = type.dtype == f16 ? nothing_f16 : nothing;
    if (type.dtype.is_bool()) return hidden_by(of_condition(mask), masked_, most);
    if (graph_.is_constant(mask)) return of_constant(*graph_.values[mask].constant, most);
    const Node* chosen = made_by(graph_, uses_, mask, "where");
    const auto masked = chosen ? uniform_number(graph_, chosen->inputs[2]) : std::nullopt;
    if (!masked) return std::nullopt;
    std::optional<Frontier> frontier = of_condition(chosen->inputs[0]);
    if (frontier && uniform_number(graph_, chosen->inputs[1]) != 0) frontier->is_all = false;
    return hidden_by(frontier, *masked, most);
  }

 private:
  Expr rows_of(ValueId operand) const {
    const std::vector<Expr>& shape = graph_.values[operand].type.shape;
    return shape[shape.size() - 2];
  }

  // Where `masked` takes the place of other scores, or is added to them: with -∞ they have no weight, and with other
  // numbers from `most` down none beside a score that is there.
  static std::optional<Frontier> hidden_by(const std::optional<Frontier>& frontier, double masked, double most) {
    const bool hides =
        frontier && (frontier->is_all ? masked <= most : masked == -std::numeric_limits<double>::infinity());
    return hides ? frontier : std::nullopt;
  }

  // Bools, or numbers to add: 0, and such that are `most` or less.
  std::optional<Frontier> of_constant(const NDArray& mask, double most = 0) const {
    const auto queries = as_int(queries_), keys = as_int(keys_);
    const Shape& shape = mask.shape();
    if (!queries || !keys || shape.size() < 2 || mask.size() != *queries * *keys || shape.back() != *keys ||
        *(shape.rbegin() + 1) != *queries)
      return std::nullopt;
    const bool is_bool = mask.dtype().is_bool();
    const auto is_seen = [&](int64_t at) { return is_bool ? mask.get_int(at) != 0 : mask.get_float(at) == 0; };
    int64_t first = 0;
    while (first < *keys && is_seen(first)) ++first;
    if (first == *keys) return std::nullopt;
    for (int64_t at = 0; at < mask.size(); ++at) {
      const bool is_expected = at % *keys < first + at / *keys;
      if (is_seen(at) != is_expected) return std::nullopt;
      if (!is_bool && !is_expected && !(mask.get_float(at) <= most)) return std::nullopt;
    }
    return Frontier{first, true};
  }

  // Of bools that are true where a key is seen.
  std::optional<Frontier> of_condition(ValueId condition) const {
    if (graph_.is_constant(condition)) return of_constant(*graph_.values[condition].constant);
    if (const Node* both = made_by(graph_, uses_, condition, "logical_and")) {
      for (const size_t side : {0, 1})
        if (uniform_number(graph_, both->inputs[side]) == 1) return of_condition(both->inputs[1 - side]);
      const auto a = of_condition(both->inputs[0]), b = of_condition(both->inputs[1]);
      if (a && b) return Frontier{std::min(a->first, b->first), a->is_all && b->is_all};
      if (a || b) return Frontier{(a ? a : b)->first, false};
      return std::nullopt;
    }
    const Node* to_the_same = made_by(graph_, uses_, condition, "less_equal");
    const Node* comparison = to_the_same ? to_the_same : made_by(graph_, uses_, condition, "less");
    const std::vector<Expr>& shape = graph_.values[condition].type.shape;
    if (!comparison || shape.size() < 2 || !is_known_equal(shape.back(), keys_) ||
        !is_known_equal(*(shape.rbegin() + 1), queries_))
      return std::nullopt;
    const auto key = position(comparison->inputs[0], 1), query = position(comparison->inputs[1], 2);
    if (!key || !query) return std::nullopt;
    return Frontier{*query - *key + (to_the_same ? 1 : 0), true};
  }

  // The element at i along the axis, counted from the end, is i and this number; the other axes have one element.
  std::optional<int64_t> position(ValueId value, size_t axis) const {
    const std::vector<Expr>& shape = graph_.values[value].type.shape;
    for (size_t d = 1; d <= shape.size(); ++d)
      if (d != axis && as_int(shape[shape.size() - d]) != 1) return std::nullopt;
    if (shape.size() < axis) return std::nullopt;
    if (const Node* sum = made_by(graph_, uses_, value, "add")) {
      for (const size_t side : {0, 1}) {
        const auto number = uniform_number(graph_, sum->inputs[side]);
        const bool is_as_long = is_same_shape(graph_.values[sum->inputs[1 - side]].type.shape, shape);
        const auto rest = number && is_as_long ? position(sum->inputs[1 - side], axis) : std::nullopt;
        if (rest) return *rest + static_cast<int64_t>(*number);
      }
      return std::nullopt;
    }
    if (const Node* moved = made_by(graph_, uses_, value, "reshape")) {
      const size_t rank = graph_.values[moved->inputs[0]].type.shape.size();
      for (size_t from = 1; from <= rank; ++from)
        if (const auto found = position(moved->inputs[0], from)) return found;
      return std::nullopt;
    }
    const Node* range = made_by(graph_, uses_, value, "range");
    if (!range || as_int(range->attributes.get_dims("step")[0]) != 1) return std::nullopt;
    return as_int(range->attributes.get_dims("start")[0]);
  }

  const Graph& graph_;
  const Uses& uses_;
  Expr queries_, keys_;
  double masked_;
};

}  // namespace

Graph recognise_causal(const Graph& graph) {
  Graph result = graph;
  const Uses uses(graph);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (!node.op->leaves_open("query_tile") || node.inputs.size() < 4 || node.attributes.get_int("causal") != 0)
      continue;
    if (node.inputs[3] == no_value) continue;
    const auto frontier = Masks(graph, node, uses).of_mask(node.inputs[3]);
    if (!frontier || frontier->first < 1) continue;
    if (frontier->is_all) result.nodes[i].inputs.resize(3);
    result.nodes[i].attributes.set("causal", frontier->first);
  }
  return result;
}

}  // namespace tw::relay
