#include "frontends/control.h"

#include <algorithm>
#include <tuple>

#include "frontends/emit.h"
#include "frontends/open_dimensions.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/dimension.h"
#include "tensor_ir/match.h"

namespace tw::frontends {

Region::Region(Import& import, const std::string& branch)
    : import_(import), branch_(branch.empty() ? import.branch : branch), around_(this) {
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
  std::swap(import_.region, around_);
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
  step_ = {symbols.back()};
  return step_[0];
}

std::vector<Var> Region::steps() const {
  std::vector<Var> all = around_ ? around_->steps() : std::vector<Var>();
  all.insert(all.end(), step_.begin(), step_.end());
  return all;
}

ValueId Region::capture_random_state() {
  leave();
  const ValueId outside = import_.emit_random_state();
  enter();
  return capture(outside);
}

ValueId Region::add_input(const std::string& name, const TensorType& type) {
  const ValueId id = import_.graph.add_value(name, type);
  import_.graph.inputs.push_back(id);
  return id;
}

bool Region::is_known_outside(const Expr& e) const {
  return relay::is_made_of(e, variables_of(graph_));
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

namespace {

constexpr int64_t most_kept = int64_t{1} << 24;  // steps of a loop that keeps something of each

// What steps do to a size of a carried value: nothing, or make it larger by as much each time, or something that they
// decide themselves: then it is a number of the run.
struct Change {
  Expr more = 0;
  bool is_decided = false;
};
using Changes = std::vector<std::vector<Change>>;  // by carried value and dimension

bool grows(const std::vector<Change>& changes) {
  return std::ranges::any_of(changes, [](const Change& change) { return !is_const_int(change.more, 0); });
}

// What the types before a step, which change so, and those after it say of the changes.  The same: they are right.
// `is_asked`: nothing is known of them.
bool learn_changes(const Builder& b, const Region& region, const Var& step, const std::vector<ValueId>& before,
                   const std::vector<ValueId>& after, bool is_asked, Changes& changes) {
  bool are_right = true;
  for (size_t i = 0; i < after.size(); ++i) {
    const TensorType &x = b.type(before[i]), &y = b.type(after[i]);
    if (x.dtype != y.dtype || x.rank() != y.rank())
      b.refuse("a value that is " + to_string(x) + " before and " + to_string(y) + " after a step");
    for (int d = 0; d < x.rank(); ++d) {
      Change& change = changes[i][d];
      const Expr before_next = simplify(substitute(x.shape[d], {{step, Expr(step) + 1}}));
      if (change.is_decided || is_known_equal(before_next, y.shape[d])) continue;
      const Expr more = simplify(y.shape[d] - x.shape[d]);
      const bool is_outside = region.is_known_outside(more);
      const bool is_growth = as_int(more) ? *as_int(more) > 0 : is_outside && can_prove(more >= 0);
      if (is_asked && is_growth) {
        change.more = more;
      } else if (is_outside && !as_int(more) && !as_int(x.shape[d]) && !as_int(y.shape[d]) &&
                 is_const_int(change.more, 0)) {
        continue;  // sizes that inputs say may be the same, which the loop demands
      } else {
        change = {Expr(0), true};
      }
      are_right = false;
    }
  }
  return are_right;
}

// A variable for the steps that a loop has done.  Nothing is learned of it, since its bounds are not checked in a run.
Var new_count(const Graph& graph, const Expr& steps) {
  const std::vector<Var> taken = variables_of(graph);
  std::string name = "done";
  while (std::ranges::any_of(taken, [&](const Var& other) { return other.name() == name; })) name += "_";
  return dimension(name, {0, bounds_of(steps).high.value_or(DimensionBounds{}.high)});
}

bool is_symbol(const Graph& graph, const Var& var) {
  return std::ranges::find(graph.symbols, var) != graph.symbols.end();
}

// Numbers of the run for sizes of the value, each before a step or behind the loop.
std::vector<Expr> numbers_for(Builder& b, size_t value, int rank, const std::string& suffix) {
  std::vector<Expr> numbers;
  for (int d = 0; d < rank; ++d)
    numbers.push_back(b.number(std::to_string(value) + "." + std::to_string(d) + suffix, {0}));
  return numbers;
}

}  // namespace

std::vector<ValueId> emit_loop(
    Builder& b, const Expr& steps, ValueId condition, std::vector<ValueId> carried,
    const std::vector<int64_t>& reversed,
    const std::function<LoopStep(Region&, const Var& step, const std::vector<ValueId>&)>& body) {
  Import& import = b.import();
  const auto at_first = std::tuple(import.nodes, import.operators, import.items, import.random_nodes);
  std::vector<TensorType> first;
  std::vector<std::vector<Expr>> numbers;  // which are known before what steps read
  Changes changes;
  for (size_t i = 0; i < carried.size(); ++i) {
    first.push_back(b.type(carried[i]));
    numbers.push_back(numbers_for(b, i, first[i].rank(), ""));
    changes.emplace_back(first[i].rank());
  }
  LoopStep after;
  Region::Result result;
  std::vector<std::pair<size_t, int>> decided;  // by symbol: the value and the dimension that it is
  bool is_found = false;
  for (int time = 0; !is_found; ++time) {
    const AnotherTime another(import, time, '+');
    std::tie(import.nodes, import.operators, import.items, import.random_nodes) = at_first;
    Region region(import);
    decided.clear();
    for (size_t i = 0; i < carried.size(); ++i)
      for (int d = 0; d < first[i].rank(); ++d)
        if (changes[i][d].is_decided && !region.is_known_outside(numbers[i][d]) &&
            numbers[i][d].kind() == NodeKind::Var && !is_symbol(import.graph, Var::of(numbers[i][d]))) {
          region.add_symbol(Var::of(numbers[i][d]));
          decided.emplace_back(i, d);
        }
    const Var step = region.add_step(steps);
    std::vector<ValueId> before, outputs;
    for (size_t i = 0; i < carried.size(); ++i) {
      TensorType type = first[i];
      for (int d = 0; d < type.rank(); ++d) {
        const Change& change = changes[i][d];
        if (change.is_decided) type.shape[d] = numbers[i][d];
        if (!is_const_int(change.more, 0)) type.shape[d] = simplify(type.shape[d] + step * change.more);
      }
      before.push_back(region.add_input(region.outside(carried[i]).name, type));
    }
    after = body(region, step, before);
    is_found = learn_changes(b, region, step, before, after.carried, time == 0, changes);
    if (!is_found) continue;
    region.keep_inputs(after.carried.size());
    if (after.condition != no_value) outputs.push_back(after.condition);
    outputs.insert(outputs.end(), after.carried.begin(), after.carried.end());
    outputs.insert(outputs.end(), after.kept.begin(), after.kept.end());
    result = region.finish(outputs);
  }
  const bool is_growing = std::any_of(changes.begin(), changes.end(), grows);
  carried.resize(after.carried.size());
  const bool is_ended = after.condition != no_value, is_counted = is_ended && (is_growing || !after.kept.empty());
  if (as_int(steps).value_or(0) > most_kept && !after.kept.empty())
    b.refuse("results of each step of a loop that only its condition ends");
  if (as_int(steps).value_or(0) > most_kept && is_growing && !is_ended) b.refuse("a value that grows without end");
  std::vector<ValueId> inputs{no_value};
  if (is_ended) inputs[0] = condition == no_value ? emit_scalar(b, boolean, 1) : condition;
  inputs.insert(inputs.end(), carried.begin(), carried.end());
  inputs.insert(inputs.end(), result.captured.begin(), result.captured.end());
  std::vector<Expr> done;
  if (is_counted) done.push_back(new_count(import.graph, steps));
  std::vector<Expr> sizes;
  for (const auto& [value, d] : decided) sizes.push_back(numbers_for(b, value, first[value].rank(), ".last")[d]);
  std::vector<Graph> regions;
  regions.push_back(std::move(result.graph));
  std::vector<ValueId> results = b.emit_control("loop", std::move(inputs),
                                                attributes_of({{"steps", std::vector<Expr>{steps}},
                                                               {"carried", static_cast<int64_t>(carried.size())},
                                                               {"done", done},
                                                               {"sizes", sizes},
                                                               {"reversed", reversed}}),
                                                std::move(regions));
  if (!is_counted || results.size() == carried.size()) return results;
  // What the model demands of their number is checked where it is read.
  const Expr count = b.new_number({0});
  const ValueId size = import.graph.add_node("sizes", {}, attributes_of({{"values", done}, {"shape", Shape{}}}))[0];
  import.graph.add_node("item", {size}, attributes_of({{"number", std::vector<Expr>{count}}}));
  for (size_t i = carried.size(); i < results.size(); ++i) results[i] = emit_slice(b, results[i], 0, Expr(0), count);
  return results;
}

ValueId emit_pick(Builder& b, ValueId x, int axis, const Expr& index) {
  return b.emit("pick", {x}, attributes_of({{"axis", int64_t{axis}}, {"index", std::vector<Expr>{simplify(index)}}}));
}

}  // namespace tw::frontends
