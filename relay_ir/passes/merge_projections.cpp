// Products of one input with several weights become one product with the weights side by side.
//
//   q = matmul(x, wq) + bq; k = matmul(x, wk) + bk; …   ⇒   y = matmul(x, [wq wk …]) + [bq bk …]
//                                                             q = slice(y, …); k = slice(y, …); …
//
// Only where what follows each is a matter of indices (reshapes, transposes, attention): elementwise work on a product
// is its epilogue, and would be none on a part of a larger one.
#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>

#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"
#include "relay_ir/pattern.h"

namespace tw::relay {
namespace {

struct Branch {
  ValueId input = no_value, weight = no_value, bias = no_value;  // bias: of one number a column
  ValueId end = no_value;                                        // the product, or its sum with the bias
  int64_t columns = 0;
};

class Merger {
 public:
  explicit Merger(const Graph& graph) : graph_(graph), uses_(graph), copy_(graph) {}

  Graph run() {
    std::map<ValueId, std::vector<Branch>> by_input;
    for (const Node& node : graph_.nodes) {
      if (const auto branch = branch_of(node)) by_input[branch->input].push_back(*branch);
    }
    for (auto& [input, branches] : by_input) {
      if (branches.size() < 2) continue;
      for (size_t i = 0; i < branches.size(); ++i) member_of_[branches[i].end] = {input, i};
    }
    return copy_.rewrite([&](const Node& node) {
      const auto member = node.outputs.empty() ? member_of_.end() : member_of_.find(node.outputs[0]);
      if (member == member_of_.end()) return no_value;
      const auto& [input, index] = member->second;
      return part(node, by_input[input], input, index);
    });
  }

 private:
  // A product with weights, or what is added to it where nothing else uses it.
  std::optional<Branch> branch_of(const Node& node) const {
    static const Pattern x = any(), weight = any(), bias = any(),
                         product = op("matmul", {x, weight}, [](const Node& n) {
                           return !n.attributes.get_int("transpose_a") && !n.attributes.get_int("transpose_b");
                         });
    static const Pattern rows[] = {product + bias, product};
    for (const Pattern& row : rows) {
      const auto match = node.outputs.size() == 1 ? find_match(graph_, uses_, row, node.outputs[0]) : std::nullopt;
      if (!match || !is_only_moved(node.outputs[0])) continue;
      Branch branch{(*match)[x], (*match)[weight], no_value, node.outputs[0]};
      const TensorType& type = graph_.values[branch.weight].type;
      if (!graph_.is_constant(branch.weight) || type.rank() != 2 || !type.dtype.is_float() ||
          uses_.users[branch.weight].size() != 1 || graph_.is_constant(branch.input)) {
        return std::nullopt;
      }
      branch.columns = *as_int(type.shape[1]);
      if (!match->has(bias)) return branch;
      branch.bias = (*match)[bias];
      return is_bias(branch, (*match)[product]) ? std::optional(branch) : std::nullopt;
    }
    return std::nullopt;
  }

  // A constant vector along the columns.
  bool is_bias(const Branch& branch, ValueId product) const {
    const TensorType& type = graph_.values[branch.bias].type;
    return graph_.is_constant(branch.bias) && type.rank() > 0 &&
           graph_.values[branch.bias].constant->size() == branch.columns &&
           as_int(type.shape.back()) == branch.columns && graph_.values[branch.end].type == graph_.values[product].type;
  }

  bool is_only_moved(ValueId id) const {
    if (uses_.is_output[id] || uses_.users[id].empty()) return false;
    return std::all_of(uses_.users[id].begin(), uses_.users[id].end(), [&](int user) {
      const Node& node = graph_.nodes[user];
      return node.op->kind == OpKind::view || is_strided(graph_, node) || node.op->facts.takes_strides;
    });
  }

  NDArray joined_weights(const std::vector<Branch>& branches, int64_t columns) const {
    const NDArray& first = *graph_.values[branches[0].weight].constant;
    NDArray result(first.dtype(), {first.shape()[0], columns});
    const int64_t size = first.dtype().bytes();
    auto* to = static_cast<std::byte*>(result.data());
    for (int64_t row = 0; row < first.shape()[0]; ++row) {
      for (const Branch& branch : branches) {
        const auto* from = static_cast<const std::byte*>(graph_.values[branch.weight].constant->data());
        std::memcpy(to, from + row * branch.columns * size, branch.columns * size);
        to += branch.columns * size;
      }
    }
    return result;
  }

  NDArray joined_bias(const std::vector<Branch>& branches, int64_t columns) const {
    NDArray result(graph_.values[branches[0].weight].type.dtype, {columns});
    int64_t at = 0;
    for (const Branch& branch : branches) {
      for (int64_t i = 0; i < branch.columns; ++i) {
        result.set_float(at++, branch.bias == no_value ? 0 : graph_.values[branch.bias].constant->get_float(i));
      }
    }
    return result;
  }

  // The branch's columns of the joined product, which the first of the branches makes.
  ValueId part(const Node& node, const std::vector<Branch>& branches, ValueId input, size_t index) {
    int64_t columns = 0, begin = 0;
    bool has_bias = false;
    for (size_t i = 0; i < branches.size(); ++i) {
      if (i < index) begin += branches[i].columns;
      columns += branches[i].columns;
      has_bias = has_bias || branches[i].bias != no_value;
    }
    const auto [found, is_new] = products_.emplace(input, no_value);
    if (is_new) {
      Graph& to = copy_.to();
      const ValueId weight = to.add_constant(node.name + ".weights", joined_weights(branches, columns));
      found->second = to.add_node("matmul", {copy_[input], weight}, {}, node.name + ".joined")[0];
      if (has_bias) {
        const ValueId bias = to.add_constant(node.name + ".biases", joined_bias(branches, columns));
        found->second = to.add_node("add", {found->second, bias}, {}, node.name + ".biased")[0];
      }
    }
    using Ints = std::vector<int64_t>;
    return copy_.add(node, "slice", {found->second},
                     attributes_of({{"axes", Ints{graph_.values[node.outputs[0]].type.rank() - 1}},
                                    {"starts", Ints{begin}},
                                    {"sizes", Ints{branches[index].columns}}}))[0];
  }

  const Graph& graph_;
  const Uses uses_;
  GraphCopy copy_;
  std::unordered_map<ValueId, std::pair<ValueId, size_t>> member_of_;  // end of a branch → input, number
  std::unordered_map<ValueId, ValueId> products_;                      // by input: the joined product
};

}  // namespace

Graph merge_projections(const Graph& graph) {
  return Merger(graph).run();
}

}  // namespace tw::relay
