#include "frontends/control.h"

#include <algorithm>

#include "frontends/emit.h"
#include "frontends/open_dimensions.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/dimension.h"

namespace tw::frontends {

Region::Region(Import& import, const std::string& branch)
    : import_(import), branch_(branch.empty() ? import.branch : branch) {
  graph_.name = import.graph.name;
  graph_.symbols = variables_of(import.graph);
  graph_.equalities = import.graph.equalities;
  if (!branch.empty()) {
    const std::vector<Equality>& own = import.dimensions->equalities(branch);
    graph_.equalities.insert(graph_.equalities.end(), own.begin(), own.end());
  }
  swap();
}

Region::~Region() {
  if (is_open_) swap();
}

void Region::swap() {
  std::swap(import_.graph, graph_);
  std::swap(import_.sizes, sizes_);
  std::swap(import_.branch, branch_);
  import_.open_regions += is_open_ ? -1 : 1;
  is_open_ = !is_open_;
}

Var Region::add_step(const Expr& count) {
  std::vector<Var>& symbols = import_.graph.symbols;
  std::string name = "step";
  const auto is_taken = [&](const Var& symbol) { return symbol.name() == name; };
  while (std::any_of(symbols.begin(), symbols.end(), is_taken)) name += "_";
  const auto most = bounds_of(count).high;
  DimensionBounds bounds{0};
  if (most) bounds.high = std::max<int64_t>(0, *most - 1);
  symbols.push_back(dimension(name, bounds));
  return symbols.back();
}

ValueId Region::add_input(const std::string& name, const TensorType& type) {
  const ValueId id = import_.graph.add_value(name, type);
  import_.graph.inputs.push_back(id);
  return id;
}

ValueId Region::capture(ValueId outside) {
  if (is_list(outside)) return import_.lists.map(outside, [&](ValueId id) { return capture(id); });
  if (outside < 0) return outside;
  const auto [found, is_new] = known_.emplace(outside, no_value);
  if (!is_new) return found->second;
  const Value& value = graph_.values[outside];
  if (value.constant) return found->second = import_.graph.add_constant(value.name, *value.constant);
  const auto sizes = sizes_.find(outside);
  if (sizes != sizes_.end() && value.type.dtype == i64)
    return found->second = import_.add_sizes(value.name, sizes->second, *static_shape(value.type));
  found->second = import_.graph.add_value(value.name, value.type);
  for (Expr& dim : import_.graph.values[found->second].type.shape) dim = as_known_equal(dim, import_.graph.equalities);
  captured_.push_back(outside);
  captures_.push_back(found->second);
  if (sizes != sizes_.end()) import_.sizes[found->second] = sizes->second;
  return found->second;
}

Region::Result Region::finish(const std::vector<ValueId>& outputs) {
  Graph& graph = import_.graph;
  graph.outputs = outputs;
  graph.inputs.insert(graph.inputs.end(), captures_.begin(), captures_.end());
  Result result{std::move(graph), std::move(captured_)};
  swap();
  return result;
}

std::vector<ValueId> emit_branch(Builder& b, ValueId condition, Region::Result first, Region::Result second) {
  // Both take what one of them uses.
  std::vector<ValueId> inputs{condition};
  for (const Region::Result* region : {&first, &second})
    for (const ValueId id : region->captured)
      if (std::find(inputs.begin() + 1, inputs.end(), id) == inputs.end()) inputs.push_back(id);
  for (Region::Result* region : {&first, &second}) {
    std::vector<ValueId> own;
    for (auto id = inputs.begin() + 1; id != inputs.end(); ++id) {
      const auto at = std::find(region->captured.begin(), region->captured.end(), *id);
      own.push_back(at == region->captured.end()
                        ? region->graph.add_value("unused", b.type(*id))
                        : region->graph.inputs[static_cast<size_t>(at - region->captured.begin())]);
    }
    region->graph.inputs = std::move(own);
  }
  std::vector<Graph> regions;
  regions.push_back(std::move(first.graph));
  regions.push_back(std::move(second.graph));
  return b.emit_control("branch", std::move(inputs), {}, std::move(regions));
}

std::vector<ValueId> emit_loop(
    Builder& b, const Expr& steps, ValueId condition, std::vector<ValueId> carried,
    const std::vector<int64_t>& reversed,
    const std::function<LoopStep(Region&, const Var& step, const std::vector<ValueId>&)>& body) {
  Region region(b.import());
  const Var step = region.add_step(steps);
  std::vector<ValueId> before, outputs;
  for (const ValueId id : carried) {
    const Value& value = region.outside(id);
    before.push_back(region.add_input(value.name, value.type));
  }
  const LoopStep after = body(region, step, before);
  carried.resize(after.carried.size());
  region.keep_inputs(carried.size());
  if (after.condition != no_value) outputs.push_back(after.condition);
  outputs.insert(outputs.end(), after.carried.begin(), after.carried.end());
  outputs.insert(outputs.end(), after.kept.begin(), after.kept.end());
  Region::Result result = region.finish(outputs);
  std::vector<ValueId> inputs{no_value};
  if (after.condition != no_value) inputs[0] = condition == no_value ? emit_scalar(b, boolean, 1) : condition;
  inputs.insert(inputs.end(), carried.begin(), carried.end());
  inputs.insert(inputs.end(), result.captured.begin(), result.captured.end());
  std::vector<Graph> regions;
  regions.push_back(std::move(result.graph));
  return b.emit_control("loop", std::move(inputs),
                        attributes_of({{"steps", std::vector<Expr>{steps}},
                                       {"carried", static_cast<int64_t>(carried.size())},
                                       {"reversed", reversed}}),
                        std::move(regions));
}

ValueId emit_pick(Builder& b, ValueId x, int axis, const Expr& index) {
  return b.emit("pick", {x}, attributes_of({{"axis", int64_t{axis}}, {"index", std::vector<Expr>{simplify(index)}}}));
}

}  // namespace tw::frontends
