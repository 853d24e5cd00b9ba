// Control flow: operators with regions, which the plan runs by steps of control (compile/network_plan.h) and the oracle
// by itself (evaluate.h).
//
//   branch  of two regions one is computed, as a condition says.  Inputs: the condition, then what the regions use,
//           both of which take all of it.
//   loop    a region is computed again and again.  Inputs: a condition or none, the carried values as they are before
//           the first step, then what the region uses besides.  The region takes the carried values and what it uses,
//           and gives: whether there is another step, if there is a condition; the carried values after the step; then
//           what is kept of each step.  Its last symbol is the number of the step, with which carried values may grow:
//           one is of type T(step) before a step and T(step + 1) behind it, T(0) where it comes from.  Sizes that a
//           step decides, by numbers that it reads or in another way, are symbols before that one: each is a size of a
//           carried value, and in types before a step stands for what it is there.  `sizes` says what they are behind
//           the loop: variables, or to what a run makes sure that they are equal.  Results: the carried values after
//           the last step, of type T(steps), or T(done) where `done` is a variable for how many were done; then what
//           was kept, one step after the other; of steps that were not done it is anything.
//   pick    what one position along an axis holds: how a step of a loop reads what it works on.
//   item    a number that a run has computed becomes a size.  Its attribute `number` is a variable that nothing before
//           knows, or an expression to which the run makes sure it is equal.  It has no results: what comes after it
//           has the number in types and attributes.
//   demand  an item that finds what is wrong: the run ends with the number that it reads, or with none, the least i64.
#include <algorithm>
#include <limits>

#include "relay_ir/op.h"
#include "relay_ir/ops/common.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/dimension.h"
#include "tensor_ir/match.h"
#include "tensor_ir/text/printer.h"

namespace tw::relay {
namespace {

using Dims = std::vector<Expr>;
using Ints = std::vector<int64_t>;

std::vector<TensorType> output_types(const Graph& region) {
  std::vector<TensorType> types;
  for (const ValueId id : region.outputs) types.push_back(region.values[id].type);
  return types;
}

// As far as it is known where `known` holds.
void require_same(const OpCall& c, const TensorType& a, const TensorType& b, std::span<const Equality> known,
                  const std::string& what) {
  const std::string message = c.text() + ": " + what + " " + to_string(a) + " and " + to_string(b);
  if (a.dtype != b.dtype || a.rank() != b.rank()) throw Error(ErrorCode::shape, message);
  for (int d = 0; d < a.rank(); ++d) require_equal(a.shape[d], b.shape[d], known, message);
}

bool is_same_in(const Graph& region, const Expr& a, const Expr& b) {
  return is_known_equal(as_known_equal(a, region.equalities), as_known_equal(b, region.equalities));
}

// The region's inputs are those of the node from `first` on; `type_of`: what they are when it begins.
template <class F>
void require_inputs(const OpCall& c, const Graph& region, size_t first, F&& type_of) {
  c.require(region.inputs.size() + first == std::max(c.inputs.size(), first),
            "the region takes " + std::to_string(region.inputs.size()) + " values, not those that are given");
  for (size_t i = 0; i < region.inputs.size(); ++i) {
    c.require(c.has_input(first + i), "a value that a region takes is missing");
    require_same(c, c.inputs[first + i], type_of(region.values[region.inputs[i]].type), region.equalities,
                 "a region's input is");
  }
}

bool depends_on(const TensorType& type, const Substitution& numbers) {
  return std::ranges::any_of(type.shape, [&](const Expr& dim) {
    return std::ranges::any_of(numbers, [&](const auto& number) { return uses_var(dim, number.first); });
  });
}

void require_condition(const OpCall& c, const TensorType& type) {
  c.require(type.dtype == boolean && type.rank() == 0, "a condition is bool[], not " + to_string(type));
}

OpDef branch_op() {
  OpDef op;
  op.name = "branch";
  op.kind = OpKind::opaque;
  op.doc = "The results of its first region where the condition is true, else those of its second.";
  op.input_names = {"condition_and_used"};
  op.takes_any_number = true;
  op.regions = 2;
  op.facts = plain_facts(unknown_axes, Rounding::exact);
  op.infer = [](const OpCall& c) {
    c.require(c.has_input(0), "the condition is missing");
    require_condition(c, c.inputs[0]);
    const auto as_it_is = [](const TensorType& type) { return type; };
    for (const Graph& region : c.regions) require_inputs(c, region, 1, as_it_is);
    std::vector<TensorType> types = output_types(c.regions[0]);
    const std::vector<TensorType> others = output_types(c.regions[1]);
    c.require(types.size() == others.size(), "both regions have as many results");
    for (size_t i = 0; i < types.size(); ++i) {
      // What one region knows of a size the other need not.
      for (int d = 0; d < types[i].rank() && types[i].rank() == others[i].rank(); ++d) {
        if (is_same_in(c.regions[0], types[i].shape[d], others[i].shape[d])) types[i].shape[d] = others[i].shape[d];
      }
      require_same(c, types[i], others[i], c.regions[1].equalities, "results of its regions are");
    }
    return types;
  };
  return op;
}

OpDef loop_op() {
  OpDef op;
  op.name = "loop";
  op.kind = OpKind::opaque;
  op.doc = "Its region again and again: `steps` times, or until its condition is false.";
  op.input_names = {"condition_carried_used"};
  op.takes_any_number = true;
  op.regions = 1;
  op.attributes = {{"steps", Dims{}, true, "how many there are at most"},
                   {"carried", int64_t{0}, true, "how many values are carried from step to step"},
                   {"done", Dims{}, false, "a variable for how many are done; empty: all, or nobody asks", true},
                   {"sizes", Dims{}, false, "variables for what sizes become that steps decide", true},
                   {"reversed", Ints{}, false, "of what is kept, whether the last step's comes first; empty: of none"}};
  op.facts = plain_facts(unknown_axes, Rounding::exact);
  op.infer = [](const OpCall& c) {
    const Graph& region = c.regions[0];
    const Dims &steps = c.attributes.get_dims("steps"), &done = c.attributes.get_dims("done");
    const int64_t carried = c.attributes.get_int("carried");
    c.require(steps.size() == 1 && as_int(steps[0]).value_or(0) >= 0, "steps are one number");
    c.require(done.empty() || (done.size() == 1 && done[0].kind() == NodeKind::Var), "what is done is one variable");
    c.require(region.symbols.size() > c.attributes.get_dims("sizes").size(),
              "the region has a symbol for the number of the step");
    c.require(carried >= 0 && static_cast<size_t>(carried) <= region.inputs.size(), "carried values are inputs");
    const bool has_condition = c.has_input(0);
    std::vector<TensorType> types = output_types(region);
    const size_t first = has_condition ? 1 : 0;
    c.require(types.size() >= first + static_cast<size_t>(carried), "the region gives what it carries");
    const Var number = region.symbols.back();
    const Expr steps_done = done.empty() ? simplify(max(steps[0], Expr(0))) : done[0];
    Substitution before{{number, Expr(0)}}, after{{number, Expr(number) + 1}}, behind{{number, steps_done}};
    for (const LoopSize& size : sizes_of(region, c.attributes)) {
      c.require(size.value + 1 < c.inputs.size() && c.inputs[1 + size.value].shape.size() > size.axis &&
                    types[first + size.value].shape.size() > size.axis,
                "a carried value has its axes before and after a step");
      before[size.within] = c.inputs[1 + size.value].shape[size.axis];
      after[size.within] = types[first + size.value].shape[size.axis];
      behind[size.within] = size.behind;
    }
    require_inputs(c, region, 1, [&](const TensorType& type) { return type_with(type, before); });
    if (has_condition) require_condition(c, c.inputs[0]);
    if (has_condition) require_condition(c, types[0]);
    const Ints& reversed = c.attributes.get_ints("reversed");
    c.require(reversed.empty() || reversed.size() + first + static_cast<size_t>(carried) == types.size(),
              "reversed says something of all that is kept");
    types.erase(types.begin(), types.begin() + static_cast<ptrdiff_t>(first));
    for (size_t i = 0; i < types.size(); ++i) {
      if (i < static_cast<size_t>(carried)) {
        const TensorType& type = region.values[region.inputs[i]].type;
        require_same(c, type_with(type, after), types[i], region.equalities,
                     "a carried value is before and after a step");
        types[i] = c.inputs[1 + i];  // what steps rely on need not hold where there are none
        if (!depends_on(type, behind)) continue;
        c.require(!has_condition || !done.empty() || !depends_on(type, {{number, Expr(0)}}),
                  "what grows until a condition ends it needs `done`");
        types[i] = type_with(type, behind);
      } else {
        c.require(!depends_on(types[i], behind), "what is kept has another size in each step: " + to_string(types[i]));
        types[i].shape.insert(types[i].shape.begin(), steps[0]);
      }
    }
    return types;
  };
  return op;
}

AxisUses pick_axes(const OpCall& c) {
  const int64_t axis = c.attributes.get_int("axis");
  AxisUses uses(1);
  for (int d = 0; d < c.inputs[0].rank() - 1; ++d) uses[0].push_back(same_axis(d < axis ? d : d + 1));
  return uses;
}

// The one nearest to what the attribute says.
Expr picked_position(const OpCall& c) {
  const Expr last = c.inputs[0].shape[c.attributes.get_int("axis")] - 1;
  Expr index = c.attributes.get_dims("index")[0];
  if (!can_prove(index <= last)) index = min(index, last);
  if (!can_prove(index >= 0)) index = max(index, 0);
  return index;
}

std::optional<Expr> picked_part(const OpCall& c) {
  const Dims& shape = c.inputs[0].shape;
  const int64_t axis = c.attributes.get_int("axis");
  if (!is_const_int(product_of({shape.begin(), shape.begin() + axis}), 1)) return std::nullopt;
  return picked_position(c) * product_of({shape.begin() + axis + 1, shape.end()});
}

OpDef pick_op() {
  OpDef op;
  op.name = "pick";
  op.kind = OpKind::injective;
  op.doc = "The elements at one position along an axis, without that axis; the position may depend on symbols.";
  op.input_names = {"x"};
  op.attributes = {{"axis", int64_t{0}, false, "the axis, not negative"},
                   {"index", Dims{}, true, "the position; the nearest one where it is outside"}};
  op.facts = part_facts(pick_axes, picked_part);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    TensorType y = c.inputs[0];
    const int64_t axis = c.attributes.get_int("axis");
    const Dims& index = c.attributes.get_dims("index");
    c.require(axis >= 0 && axis < y.rank(), "the axis is one of x");
    c.require(index.size() == 1, "the index is one number");
    const auto known = as_int(index[0]), extent = as_int(y.shape[axis]);
    c.require(known.value_or(0) >= 0 && known.value_or(0) < extent.value_or(1), "the index is outside");
    y.shape.erase(y.shape.begin() + axis);
    return {y};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const int64_t axis = c.attributes.get_int("axis");
    const Expr index = picked_position(c);
    return {te::compute("pick", c.outputs[0].shape, in, [&](const te::Indices& i) {
      te::Indices indices = i;
      indices.insert(indices.begin() + axis, index);
      return in[0](indices);
    })};
  };
  op.examples = {{{tensor_type(f32, {4, 5})}, attributes_of({{"axis", int64_t{0}}, {"index", Dims{2}}})},
                 {{tensor_type(i32, {4, 5, 2})}, attributes_of({{"axis", int64_t{1}}, {"index", Dims{4}}})}};
  return op;
}

OpDef item_op() {
  OpDef op;
  op.name = "item";
  op.kind = OpKind::opaque;
  op.doc = "The only element as a number that what comes after it may have as a size, or must be equal to one.";
  op.input_names = {"x"};
  op.reads_number = true;
  op.attributes = {{"number", Dims{}, true, "a variable for it, within its bounds; or what it has to be", true}};
  op.facts = plain_facts(unknown_axes, Rounding::exact);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    c.require(c.inputs[0].dtype == i64 || c.inputs[0].dtype == i32, "a number is i32 or i64");
    c.require(is_const_int(product_of(c.inputs[0].shape), 1), "takes one element");
    c.require(c.attributes.get_dims("number").size() == 1, "it is one number");
    return {};
  };
  return op;
}

OpDef demand_op() {
  OpDef op = item_op();
  op.name = "demand";
  op.doc = "Ends the run where the only element is not the least i64, which stands for nothing wrong.";
  op.is_demand = true;
  op.attributes = {{"number", Dims{Expr(std::numeric_limits<int64_t>::min())}, false, "what it has to be", true},
                   {"text", std::string(), true, "what another one is, for people"}};
  return op;
}

}  // namespace

std::vector<OpDef> control_family() {
  return {branch_op(), loop_op(), pick_op(), item_op(), demand_op()};
}

}  // namespace tw::relay
