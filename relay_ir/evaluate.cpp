#include "relay_ir/evaluate.h"

#include <cstring>
#include <limits>

#include "relay_ir/op.h"
#include "runtime/device/control.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/dimension.h"
#include "tensor_ir/match.h"
#include "tensor_ir/text/printer.h"

namespace tw::relay {
namespace {

int64_t number_of(const Expr& dim, const Substitution& symbols) {
  const auto number = as_int(simplify(substitute(dim, symbols)));
  check(number.has_value(), "evaluate: the inputs say what open dimensions are");
  return *number;
}

NodeAttributes closed(const NodeAttributes& attributes, const Substitution& symbols) {
  if (!attributes.are_open()) return attributes;
  NodeAttributes result = attributes;
  for (const auto& [name, value] : attributes.all()) {
    const auto* dims = std::get_if<std::vector<Expr>>(&value);
    if (!dims) continue;
    std::vector<Expr> numbers;
    for (const Expr& dim : *dims) numbers.emplace_back(number_of(dim, symbols));
    result.set(name, std::move(numbers));
  }
  return result;
}

// Of those that are made of what is known.
void require_equalities(const Graph& graph, const Substitution& symbols) {
  for (const Equality& equal : graph.equalities) {
    const auto a = as_int(simplify(substitute(equal.a, symbols))), b = as_int(simplify(substitute(equal.b, symbols)));
    if (!a || !b || a == b) continue;
    throw Error(ErrorCode::input, "`" + to_text(equal.a) + "` and `" + to_text(equal.b) + "` differ, against what " +
                                      (equal.demanded_by.empty() ? "the graph says" : equal.demanded_by + " demands") +
                                      "\n  help: give inputs of other sizes");
  }
}

void read_number(const Node& node, const Expr& wanted, int64_t number, Substitution& symbols) {
  const bool is_new = wanted.kind() == NodeKind::Var && !symbols.count(Var::of(wanted));
  const DimensionBounds bounds = is_new ? dimension_bounds(Var::of(wanted)) : DimensionBounds();
  if (number < bounds.low || number > bounds.high || (!is_new && number_of(wanted, symbols) != number))
    throw Error(ErrorCode::input, "node `" + node.name + "` reads " + std::to_string(number) + " for `" +
                                      to_text(wanted) + "`, which it cannot be\n  help: give other inputs");
  if (is_new) symbols[Var::of(wanted)] = Expr(number);
}

// Numbers that a branch has read are sizes of its results.
void note_sizes(const Graph& graph, const Node& branch, const std::vector<NDArray>& results, Substitution& symbols) {
  for (size_t i = 0; i < results.size(); ++i) {
    const std::vector<Expr>& shape = graph.values[branch.outputs[i]].type.shape;
    for (size_t d = 0; d < shape.size(); ++d)
      if (shape[d].kind() == NodeKind::Var) symbols.emplace(Var::of(shape[d]), Expr(results[i].shape()[d]));
  }
}

bool is_true(const NDArray& condition) {
  return condition.get_int(0) != 0;
}

// Adds how many steps it did, where the loop has a variable for that.
std::vector<NDArray> run_loop(const Node& node, const std::vector<NDArray>& arguments, Substitution& symbols) {
  const Graph& region = node.regions[0];
  const auto carried = static_cast<ptrdiff_t>(carried_by(node));
  const int64_t steps = number_of(steps_of(node), symbols);
  const bool has_condition = condition_of(node) != no_value;
  std::vector<NDArray> inputs;
  if (!arguments.empty()) inputs.assign(arguments.begin() + 1, arguments.end());
  bool goes_on = !has_condition || is_true(arguments[0]);
  std::vector<std::vector<NDArray>> kept;  // by step
  for (int64_t step = 0; step < steps && goes_on; ++step) {
    Substitution within = symbols;
    within[region.symbols.back()] = Expr(step);
    std::vector<NDArray> results = evaluate(region, inputs, within);
    if (has_condition) {
      goes_on = is_true(results[0]);
      results.erase(results.begin());
    }
    std::copy(results.begin(), results.begin() + carried, inputs.begin());
    kept.emplace_back(results.begin() + carried, results.end());
  }
  for (const Expr& done : node.attributes.get_dims("done"))
    symbols[Var::of(done)] = Expr(static_cast<int64_t>(kept.size()));
  std::vector<NDArray> outputs(inputs.begin(), inputs.begin() + carried);
  for (const LoopSize& size : sizes_of(node))
    read_number(node, size.behind, outputs[size.value].shape()[size.axis], symbols);
  const size_t first = static_cast<size_t>(carried) + (has_condition ? 1 : 0);
  for (size_t i = first; i < region.outputs.size(); ++i) {
    const TensorType& type = region.values[region.outputs[i]].type;
    Shape shape{std::max<int64_t>(steps, 0)};
    for (const Expr& dim : type.shape) shape.push_back(number_of(dim, symbols));
    NDArray all(type.dtype, shape);
    auto* to = static_cast<std::byte*>(all.data());
    if (all.byte_size() > 0) std::memset(to, 0, all.byte_size());
    const std::vector<int64_t>& reversed = node.attributes.get_ints("reversed");
    const bool is_reversed = !reversed.empty() && reversed[i - first] != 0;
    for (size_t step = 0; step < kept.size(); ++step) {
      const NDArray& part = kept[is_reversed ? kept.size() - 1 - step : step][i - first];
      if (part.byte_size() > 0) std::memcpy(to, part.data(), part.byte_size());
      to += part.byte_size();
    }
    outputs.push_back(std::move(all));
  }
  return outputs;
}

std::vector<NDArray> run_node(const Node& node, const std::vector<NDArray>& arguments, Substitution& symbols) {
  if (node.op->is_on_host)
    throw Error(ErrorCode::unsupported, "node `" + node.name + "` is computed by a function of the host, `" +
                                            node.attributes.get_string("function") +
                                            "`, which the oracle does not call\n  help: compile the model and run it");
  if (node.regions.empty()) return evaluate_op(*node.op, closed(node.attributes, symbols), arguments);
  if (is_loop(node)) return run_loop(node, arguments, symbols);
  return evaluate(node.regions[is_true(arguments[0]) ? 0 : 1], {arguments.begin() + 1, arguments.end()}, symbols);
}

}  // namespace

std::vector<NDArray> evaluate_values(const Graph& graph, const std::vector<NDArray>& inputs, Substitution symbols) {
  std::vector<NDArray> values(graph.values.size());
  for (size_t id = 0; id < values.size(); ++id) {
    if (graph.values[id].constant) values[id] = *graph.values[id].constant;
  }
  if (graph.has_random_state && inputs.size() == graph.inputs_of_caller()) {
    NDArray state(u64, {2});
    state.set_int(0, 0), state.set_int(1, 0);
    values[graph.inputs.back()] = std::move(state);
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    values[graph.inputs[i]] = inputs[i];
    const std::vector<Expr>& shape = graph.values[graph.inputs[i]].type.shape;
    for (size_t d = 0; d < shape.size() && inputs[i].is_defined(); ++d)
      if (shape[d].kind() == NodeKind::Var) symbols.emplace(Var::of(shape[d]), Expr(inputs[i].shape()[d]));
  }
  require_equalities(graph, symbols);
  for (const Node& node : graph.nodes) {
    std::vector<NDArray> arguments;
    for (const ValueId id : node.inputs) arguments.push_back(id == no_value ? NDArray() : values[id]);
    if (node.op->is_demand) {
      const int64_t number = arguments[0].get_int(0);
      if (number != std::numeric_limits<int64_t>::min())
        throw failed_demand(node.attributes.get_string("text"), number);
      continue;
    }
    if (is_item(node)) {
      read_number(node, number_of(node), arguments[0].get_int(0), symbols);
      require_equalities(graph, symbols);
      continue;
    }
    const auto results = run_node(node, arguments, symbols);
    for (size_t i = 0; i < results.size(); ++i) values[node.outputs[i]] = results[i];
    if (is_branch(node)) note_sizes(graph, node, results, symbols);
    if (is_loop(node)) require_equalities(graph, symbols);
  }
  return values;
}

std::vector<NDArray> evaluate(const Graph& graph, const std::vector<NDArray>& inputs, Substitution symbols) {
  const std::vector<NDArray> values = evaluate_values(graph, inputs, std::move(symbols));
  std::vector<NDArray> outputs;
  for (const ValueId id : graph.outputs) outputs.push_back(values[id]);
  return outputs;
}

}  // namespace tw::relay
