// What operators on elements make of 8-bit integers, and store as such again, is a table of 256 elements.
//
//   s = q(sigmoid(d(x)))        ⇒   y = lookup(x, table)
//   y = q(d(x) * d(s))
//
// where d widens codes to floats and q rounds to codes (quantised.h): activations of quantised networks, whose
// exponentials, divisions and roundings take many times as long.  What is computed so are the nodes themselves, on all
// codes, when constants are folded.  For targets that permute bytes by a table in registers.
#include <algorithm>
#include <numeric>

#include "relay_ir/ops/common.h"
#include "relay_ir/pass.h"
#include "relay_ir/pattern.h"

namespace tw::relay {
namespace {

// So many operators take longer than a lookup: those that only rescale codes are no more.
constexpr int fewest_operators = 13;

bool is_code(DType dtype) {
  return dtype == u8 || dtype == i8;
}

class Tabulator {
 public:
  Tabulator(const Graph& graph, const PassContext& context)
      : context_(context),
        uses_(graph),
        copy_(graph),
        functions_(graph.values.size()),
        on_all_(graph.values.size(), no_value) {}

  Graph run() {
    return copy_.rewrite([&](const Node& node) {
      if (node.outputs.size() != 1 || is_named(node, context_.kept_nodes)) return no_value;
      const ValueId out = node.outputs[0];
      functions_[out] = function_by(node);
      const auto& [codes, operators] = functions_[out];
      if (codes == no_value || !is_code(type(out).dtype) || operators < fewest_operators) return no_value;
      return copy_.add(node, "lookup", {copy_[codes], on_all(out)})[0];
    });
  }

 private:
  // Of the elements of one value of codes.
  struct Function {
    ValueId codes = no_value;
    int operators = 0;  // at most fewest_operators; those of a value that is read twice count twice
  };

  const Graph& from() const { return copy_.from(); }
  const TensorType& type(ValueId id) const { return from().values[id].type; }

  // What a value is a function of: codes that are none themselves are so of themselves.
  Function function_of(ValueId id) const {
    if (functions_[id].codes != no_value) return functions_[id];
    return is_code(type(id).dtype) ? Function{id, 0} : Function{};
  }

  Function function_by(const Node& node) {
    if (node.op->kind != OpKind::elementwise || node.op->states_shapes) return {};
    Function result;
    for (const ValueId id : node.inputs) {
      if (id == no_value) continue;
      if (from().is_constant(id)) {
        if (!uniform_number(from(), id)) return {};
        continue;
      }
      const Function own = function_of(id);
      if (own.codes == no_value || (result.codes != no_value && result.codes != own.codes)) return {};
      result = {own.codes, std::min(result.operators + own.operators, fewest_operators)};
    }
    const bool has_its_shape =
        result.codes != no_value && is_same_shape(type(result.codes).shape, type(node.outputs[0]).shape);
    ++result.operators;
    return has_its_shape ? result : Function{};
  }

  // What the value is for each code, in the order of their bits.
  ValueId on_all(ValueId id) {
    if (on_all_[id] != no_value) return on_all_[id];
    Graph& to = copy_.to();
    if (from().is_constant(id)) {
      const NDArray& all = *from().values[id].constant;
      NDArray one(all.dtype(), {});
      std::copy_n(static_cast<const std::byte*>(all.data()), all.dtype().bytes(), static_cast<std::byte*>(one.data()));
      return on_all_[id] = to.add_constant(from().values[id].name + ".number", std::move(one));
    }
    if (functions_[id].codes == no_value) {
      std::vector<int64_t> codes(codes_of_8_bits);
      std::iota(codes.begin(), codes.end(), 0);
      return on_all_[id] = to.add_constant(from().values[id].name + ".all", int_array(codes, type(id).dtype));
    }
    const Node& node = from().nodes[static_cast<size_t>(uses_.producer[id])];
    std::vector<ValueId> inputs;
    for (const ValueId in : node.inputs) inputs.push_back(in == no_value ? no_value : on_all(in));
    return on_all_[id] = to.add_node(*node.op, inputs, node.attributes, node.name + ".table")[0];
  }

  const PassContext& context_;
  const Uses uses_;
  GraphCopy copy_;
  std::vector<Function> functions_;  // by ValueId
  std::vector<ValueId> on_all_;      // by ValueId: of the new graph
};

}  // namespace

Graph tabulate(const Graph& graph, const PassContext& context) {
  return context.target.byte_lookup.lanes > 0 ? Tabulator(graph, context).run() : graph;
}

}  // namespace tw::relay
