#include "frontends/onnx/control.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <tuple>

#include "frontends/emit.h"
#include "frontends/sequences.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::frontends::onnx {
namespace {

// The result's dimension is a number that both branches read, each what it is there.
void read_size(relay::Graph& branch, size_t output, int axis, const Expr& number) {
  const ValueId result = branch.outputs[output];
  const std::vector<Expr> size{branch.values[result].type.shape[axis]}, count{number};
  const ValueId own =
      branch.add_node("sizes", {}, attributes_of({{"values", size}, {"shape", std::vector<int64_t>{}}}))[0];
  branch.add_node("item", {own}, attributes_of({{"number", count}}));
  const ValueId all = branch.add_node("range", {}, attributes_of({{"count", count}}))[0];
  branch.outputs[output] = branch.add_node("gather", {result, all}, attributes_of({{"axis", int64_t{axis}}}))[0];
}

bool is_same_in(const relay::Graph& branch, const Expr& x, const Expr& y) {
  return is_same_dim(as_known_equal(x, branch.equalities), as_known_equal(y, branch.equalities));
}

bool is_alike(const TensorType& x, const TensorType& y) {
  return x.dtype == y.dtype && x.rank() == y.rank();
}

// Where sizes differ, the result has the size of what was taken.
void unite_types(relay::Graph& a, relay::Graph& b, Context& context) {
  if (a.outputs.size() != b.outputs.size()) context.refuse("branches with different numbers of results");
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    const TensorType &x = a.values[a.outputs[i]].type, &y = b.values[b.outputs[i]].type;
    if (!is_alike(x, y))
      context.refuse("results of different types, " + to_string(x) + " and " + to_string(y) +
                     ", on a condition that a run decides");
    for (int d = 0; d < a.values[a.outputs[i]].type.rank(); ++d) {
      const Expr m = a.values[a.outputs[i]].type.shape[d], n = b.values[b.outputs[i]].type.shape[d];
      if (is_same_in(a, m, n) || is_same_in(b, m, n)) continue;
      const Expr number = context.new_number({0});
      read_size(a, i, d, number);
      read_size(b, i, d, number);
    }
  }
}

struct Branches {
  std::unique_ptr<Region> regions[2];
  std::vector<ValueId> results[2];

  bool have_alike_types(const Lists& lists) const {
    const std::vector<ValueId> a = lists.tensors(results[0]), b = lists.tensors(results[1]);
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](ValueId x, ValueId y) {
      return is_alike(regions[0]->inside().values[x].type, regions[1]->inside().values[y].type);
    });
  }
  bool have_alike_lists(const Lists& lists) const {
    return std::equal(results[0].begin(), results[0].end(), results[1].begin(), results[1].end(),
                      [&](ValueId a, ValueId b) { return lists.is_alike(a, b); });
  }
};

// `goes_on`: the nodes after it are in the branches, too.
Branches import_branches(Context& context, const std::string& name, const Surroundings& around, bool goes_on) {
  Branches branches;
  for (const bool is_first : {true, false}) {
    const std::string place = name + (is_first ? "/then" : "/else");
    const size_t at = is_first ? 0 : 1;
    std::vector<ValueId>& results = branches.results[at];
    auto region = std::make_unique<Region>(context.import(), place);
    results =
        around.add_graph(context.attribute_graph(is_first ? "then_branch" : "else_branch"), place, region.get(), {});
    if (goes_on) results = around.add_rest(place, *region, results);
    region->leave();
    branches.regions[at] = std::move(region);
  }
  return branches;
}

// Gives the branches' sequences and optional values one form each, which serves what either of them gives; false: there
// is none.
bool unite_lists(Branches& branches, Context& context) {
  const Lists& lists = context.import().lists;
  if (branches.have_alike_lists(lists)) return true;
  const size_t count = branches.results[0].size();
  if (count != branches.results[1].size()) return false;
  std::vector<United> forms;
  for (size_t i = 0; i < count; ++i) {
    const auto form = unite(lists, branches.regions[0]->inside(), branches.results[0][i], branches.regions[1]->inside(),
                            branches.results[1][i], [](const Expr&) { return true; });
    if (!form) return false;
    forms.push_back(*form);
  }
  for (const size_t branch : {0, 1}) {
    branches.regions[branch]->enter();
    for (size_t i = 0; i < count; ++i)
      branches.results[branch][i] = emit_united(context, branches.results[branch][i], forms[i]);
    branches.regions[branch]->leave();
  }
  return true;
}

std::vector<ValueId> import_if(Context& context, const std::string& name, const Surroundings& around) {
  const ValueId condition = context.input(0);
  const TensorType& type = context.type(condition);
  if (!type.dtype.is_bool() || !static_shape(type) || element_count(*static_shape(type)) != 1)
    malformed("node " + in_quotes(name) + ": the condition of If is one bool");
  const Expr truth = context.known_truth(condition);  // in terms of open dimensions
  if (const auto known = truth.is_defined() ? as_int(truth) : std::nullopt) {
    return around.replace(context.attribute_graph(*known ? "then_branch" : "else_branch"));
  }
  Import& import = context.import();
  Lists& lists = import.lists;
  const auto counted = std::pair(import.nodes, import.operators);
  Branches branches = import_branches(context, name, around, false);
  bool is_united = unite_lists(branches, context);
  if (!is_united || !branches.have_alike_types(lists)) {
    // On sizes, the model goes on with one of them.  Exporters write so what takes a dimension away where it is 1.
    const auto* comparison = truth.is_defined() ? truth.as<Binary>() : nullptr;
    if (comparison && (comparison->op == BinaryOp::eq || comparison->op == BinaryOp::ne))
      context.assume_equal(comparison->a, comparison->b);
    // On data, it goes on in both ways, until what comes of them is of one type again.
    std::tie(import.nodes, import.operators) = counted;
    branches = import_branches(context, name, around, true);
    is_united = unite_lists(branches, context);
  }
  if (!is_united) context.refuse("branches with other sequences or optional values, on a condition that a run decides");
  std::vector<Region::Result> regions;
  for (const size_t branch : {0, 1}) {
    branches.regions[branch]->enter();
    regions.push_back(branches.regions[branch]->finish(lists.tensors(branches.results[branch])));
  }
  unite_types(regions[0].graph, regions[1].graph, context);
  const std::vector<ValueId> tensors =
      emit_branch(context, emit_reshape(context, condition, {}), std::move(regions[0]), std::move(regions[1]));
  std::vector<ValueId>& results = branches.results[0];
  size_t next = 0;
  for (ValueId& result : results) result = lists.map(result, [&](ValueId) { return tensors[next++]; });
  return results;
}

// Of a step that a run does over and over.
void require_tensors(const std::vector<ValueId>& results, Context& context) {
  if (std::any_of(results.begin(), results.end(), is_list))
    context.refuse("sequences or optional values as results of a step");
}

// Whether a step says, as it is imported, that there is another one: as far as the first one tells.
bool is_counted(Context& context, const std::string& name, const Surroundings& around, const Graph& graph,
                const std::vector<ValueId>& carried) {
  Import& import = context.import();
  const auto at_first = std::tuple(import.nodes, import.operators, import.items, import.random_nodes);
  Region tried(import);
  std::vector<ValueId> inputs{emit_scalar(context, i64, 0), emit_scalar(context, boolean, 1)};
  for (const ValueId id : carried) inputs.push_back(tried.capture(id));
  const std::vector<ValueId> results = around.add_graph(graph, name + "/0", &tried, inputs);
  require_tensors({results.front()}, context);
  const Expr truth = context.known_truth(results[0]);
  std::tie(import.nodes, import.operators, import.items, import.random_nodes) = at_first;
  return truth.is_defined() && as_int(truth).has_value();
}

constexpr int64_t most_unrolled = 1024;  // steps

// Sequences grow in the steps of a loop, which are then steps of the import.
std::vector<ValueId> unroll_loop(Context& context, const std::string& name, const Surroundings& around,
                                 const Graph& graph, int64_t count, std::vector<ValueId> carried) {
  std::vector<std::vector<ValueId>> kept(graph.outputs.size() - 1 - carried.size());
  bool goes_on = true;
  for (int64_t step = 0; goes_on && step < count; ++step) {
    std::vector<ValueId> inputs{emit_scalar(context, i64, static_cast<double>(step)), emit_scalar(context, boolean, 1)};
    inputs.insert(inputs.end(), carried.begin(), carried.end());
    const std::vector<ValueId> results = around.add_graph(graph, name + "/" + std::to_string(step), nullptr, inputs);
    if (std::find(results.begin(), results.end(), unknown_value) != results.end())
      context.refuse("a node within it is not supported");
    require_tensors({results.front()}, context);
    const Expr truth = context.known_truth(results[0]);
    if (!truth.is_defined() || !as_int(truth)) context.refuse("sequences that grow until a condition of the run");
    goes_on = *as_int(truth) != 0;
    std::copy_n(results.begin() + 1, carried.size(), carried.begin());
    for (size_t i = 0; i < kept.size(); ++i) kept[i].push_back(results[1 + carried.size() + i]);
  }
  for (const std::vector<ValueId>& parts : kept) {
    if (parts.empty()) context.refuse("results of each step of a loop without steps");
    require_tensors(parts, context);
    carried.push_back(emit_stack(context, parts, 0));
  }
  return carried;
}

// The steps of a run: as many as the sequence is long, over what is stacked.
std::vector<ValueId> map_in_steps(Context& context, const std::string& name, const Surroundings& around,
                                  const Graph& graph) {
  const Expr length = sequence_length(context, context.sequence(0));
  std::vector<ValueId> values;
  for (size_t i = 0; i < context.input_count(); ++i) {
    values.push_back(context.input_or_list(i));
    if (!is_list(values[i])) continue;
    context.require_equal(sequence_length(context, context.sequence(i)), length, "sequences of one length");
    values[i] = emit_stacked(context, values[i]);
  }
  std::vector<ValueId> results =
      emit_loop(context, length, no_value, {}, {}, [&](Region& region, const Var& step, const std::vector<ValueId>&) {
        std::vector<ValueId> inputs;
        for (size_t i = 0; i < values.size(); ++i) {
          inputs.push_back(region.capture(values[i]));
          if (context.has_sequence(i)) inputs[i] = emit_pick(context, inputs[i], 0, step);
        }
        LoopStep after;
        after.kept = around.add_graph(graph, name, &region, inputs);
        require_tensors(after.kept, context);
        return after;
      });
  for (ValueId& result : results) result = context.import().lists.add({ListKind::stacked, {result}, 0});
  return results;
}

// The same graph for each tensor of a sequence; further sequences are as long, and tensors the same in each step.
std::vector<ValueId> import_sequence_map(Context& context, const std::string& name, const Surroundings& around) {
  const Graph& graph = context.attribute_graph("body");
  if (graph.inputs.size() != context.input_count())
    malformed("node " + in_quotes(name) + ": the body of SequenceMap does not fit its inputs");
  const Lists& lists = context.import().lists;
  for (size_t i = 0; i < context.input_count(); ++i)
    if (context.has_sequence(i) && lists[context.sequence(i)].kind != ListKind::sequence)
      return map_in_steps(context, name, around, graph);
  const size_t length = lists[context.sequence(0)].values.size();
  std::vector<std::vector<ValueId>> results(graph.outputs.size());
  for (size_t step = 0; step < length; ++step) {
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < context.input_count(); ++i) {
      if (!is_list(context.input_or_list(i))) {
        inputs.push_back(context.input(i));
        continue;
      }
      const std::vector<ValueId>& values = lists[context.sequence(i)].values;
      if (values.size() != length) malformed("node " + in_quotes(name) + ": its sequences differ in length");
      inputs.push_back(values[step]);
    }
    const std::vector<ValueId> of_step = around.add_graph(graph, name + "/" + std::to_string(step), nullptr, inputs);
    require_tensors(of_step, context);
    for (size_t i = 0; i < results.size(); ++i) results[i].push_back(of_step[i]);
  }
  std::vector<ValueId> sequences;
  for (const std::vector<ValueId>& values : results) sequences.push_back(emit_sequence(context, values));
  return sequences;
}

// What steps carry, where that may be lists: in forms that serve what is there before the first step and what each of
// them gives.
class CarriedValues {
 public:
  struct OtherForms {};  // are needed than a step was given

  CarriedValues(Context& context, std::vector<ValueId> first)
      : context_(context), import_(context.import()), given_(first), first_(std::move(first)) {
    for (const ValueId id : first_) forms_.push_back(as_it_is(import_.lists, import_.graph, id));
  }

  size_t count() const { return first_.size(); }
  // Another value, of which there is nothing before the first step.
  void add_sequence() {
    given_.push_back(emit_sequence(context_, {}));
    first_.push_back(given_.back());
    forms_.push_back(as_it_is(import_.lists, import_.graph, given_.back()));
  }
  std::vector<ValueId> first_tensors() const { return import_.lists.tensors(first_); }
  // What these tensors are, which come in the order of those.
  std::vector<ValueId> made_of(const std::vector<ValueId>& tensors) {
    size_t next = 0;
    std::vector<ValueId> values;
    for (const ValueId id : first_) values.push_back(import_.lists.map(id, [&](ValueId) { return tensors[next++]; }));
    return values;
  }
  // What a step gives, in the region.
  std::vector<ValueId> tensors_after(const Region& region, std::vector<ValueId> results) {
    Lists& lists = import_.lists;
    std::vector<United> forms;
    for (size_t i = 0; i < results.size(); ++i) {
      // A body's type may say optional of what it takes alone.
      const bool is_content = !is_list(results[i]) || lists[results[i]].is_sequence();
      if (forms_[i].kind == ListKind::optional && is_content)
        results[i] = context_.emit_list(ListKind::optional, {results[i]});
      const auto form = unite(lists, region.around(), first_[i], import_.graph, results[i],
                              [&](const Expr& size) { return region.is_known_outside(size); });
      if (!form) context_.refuse("a step that gives another kind of value than it is given");
      forms.push_back(*form);
    }
    if (!std::ranges::equal(forms, forms_, is_same_form)) {
      forms_ = std::move(forms);
      throw OtherForms();
    }
    for (size_t i = 0; i < results.size(); ++i) results[i] = emit_united(context_, results[i], forms[i]);
    return lists.tensors(results);
  }
  // What is there before the first step, in the forms that were found.
  void begin_anew() {
    for (size_t i = 0; i < first_.size(); ++i) first_[i] = emit_united(context_, given_[i], forms_[i]);
  }

 private:
  Context& context_;
  Import& import_;
  std::vector<ValueId> given_, first_;
  std::vector<United> forms_;
};

// As many steps as are known, or as there can be: then a condition ends the loop.
std::vector<ValueId> import_loop(Context& context, const std::string& name, const Surroundings& around) {
  const Graph& graph = context.attribute_graph("body");
  const size_t carried_count = context.input_count() < 2 ? 0 : context.input_count() - 2;
  if (graph.inputs.size() != carried_count + 2 || graph.outputs.size() < carried_count + 1)
    malformed("node " + in_quotes(name) + ": the body of Loop does not fit its inputs");
  const ValueId count = context.optional_input(0);
  ValueId condition = context.optional_input(1);
  Expr steps(std::numeric_limits<int64_t>::max());
  if (count != no_value) steps = max(context.emit_item(count, {}), 0);
  if (condition != no_value) {
    const Expr truth = context.known_truth(condition);
    const auto known = truth.is_defined() ? as_int(truth) : std::nullopt;
    if (known && *known == 0) steps = 0;
    condition = known ? no_value : emit_reshape(context, condition, {});
  }
  steps = simplify(steps);
  std::vector<ValueId> first;
  for (size_t i = 0; i < carried_count; ++i) first.push_back(context.input_or_list(2 + i));
  const auto known = as_int(steps);
  if (std::ranges::any_of(first, is_list) && known.value_or(most_unrolled + 1) <= most_unrolled &&
      condition == no_value && (*known == 0 || is_counted(context, name, around, graph, first)))
    return unroll_loop(context, name, around, graph, *known, first);
  CarriedValues carried(context, first);
  // Of what is kept: what is of sizes that steps read.  Sequences carry it, and are put together behind the loop.
  std::vector<ptrdiff_t> collected;
  const auto body = [&](Region& region, const Var& step, const std::vector<ValueId>& before) -> LoopStep {
    std::vector<ValueId> inputs{context.emit_sizes({step}, {}), emit_scalar(context, boolean, 1)};
    const std::vector<ValueId> given = carried.made_of(before);
    inputs.insert(inputs.end(), given.begin(), given.begin() + static_cast<ptrdiff_t>(carried_count));
    const std::vector<ValueId> results = around.add_graph(graph, name, &region, inputs);
    const auto kept = results.begin() + 1 + static_cast<ptrdiff_t>(carried_count);
    LoopStep after;
    std::vector<ValueId> carried_after(results.begin() + 1, kept);
    require_tensors({results[0]}, context);
    require_tensors({kept, results.end()}, context);
    for (auto id = kept; id != results.end(); ++id) {
      if (std::ranges::count(collected, id - kept) > 0) continue;
      const std::vector<Expr>& shape = context.type(*id).shape;
      if (!std::ranges::all_of(shape, [&](const Expr& size) { return region.is_known_outside(size); })) {
        collected.push_back(id - kept);
        throw CarriedValues::OtherForms();
      }
      after.kept.push_back(*id);
    }
    for (size_t k = 0; k < collected.size(); ++k)
      carried_after.push_back(
          emit_sequence_insert(context, given[carried_count + k], *(kept + collected[k]), std::nullopt));
    const Expr truth = context.known_truth(results[0]);
    const bool goes_on = truth.is_defined() && as_int(truth).value_or(0) != 0;
    if (!goes_on) after.condition = emit_reshape(context, results[0], {});
    if (goes_on && condition != no_value) after.condition = emit_scalar(context, boolean, 1);
    after.carried = carried.tensors_after(region, carried_after);
    return after;
  };
  constexpr int most_forms = 8;  // one after the other
  Import& import = context.import();
  const auto at_first = std::tuple(import.nodes, import.operators, import.items, import.random_nodes);
  for (int round = 0; round < most_forms; ++round) {
    const AnotherTime another(import, round, '*');
    try {
      const std::vector<ValueId> tensors = carried.first_tensors();
      const std::vector<ValueId> results = emit_loop(context, steps, condition, tensors, {}, body);
      std::vector<ValueId> values = carried.made_of(results), kept;
      auto tensor = results.begin() + static_cast<ptrdiff_t>(tensors.size());
      for (ptrdiff_t i = 0; i < std::ssize(graph.outputs) - 1 - static_cast<ptrdiff_t>(carried_count); ++i) {
        const auto listed = std::ranges::find(collected, i) - collected.begin();
        kept.push_back(listed < std::ssize(collected)
                           ? emit_stacked(context, values[carried_count + static_cast<size_t>(listed)])
                           : *tensor++);
      }
      values.resize(carried_count);
      values.insert(values.end(), kept.begin(), kept.end());
      return values;
    } catch (const CarriedValues::OtherForms&) {
      std::tie(import.nodes, import.operators, import.items, import.random_nodes) = at_first;
      if (carried.count() < carried_count + collected.size()) carried.add_sequence();
      carried.begin_anew();
    }
  }
  context.refuse("sequences that become something else in each step");
}

std::vector<ValueId> import_scan(Context& context, const std::string& name, const Surroundings& around) {
  if (context.opset() < 9) context.refuse("Scan of before opset 9");
  const Graph& graph = context.attribute_graph("body");
  const int64_t scanned = context.attribute_int("num_scan_inputs", 0);
  const auto inputs = static_cast<int64_t>(context.input_count());
  if (scanned < 1 || scanned > inputs || static_cast<int64_t>(graph.inputs.size()) != inputs ||
      static_cast<int64_t>(graph.outputs.size()) < inputs - scanned)
    malformed("node " + in_quotes(name) + ": the body of Scan does not fit its inputs");
  const auto carried_count = static_cast<size_t>(inputs - scanned), kept_count = graph.outputs.size() - carried_count;
  const auto scanned_count = static_cast<size_t>(scanned);
  const auto flags = [&](const char* attribute, size_t count) {
    const std::vector<int64_t> values = context.attribute_ints(attribute, std::vector<int64_t>(count, 0));
    if (values.size() != count) malformed("node " + in_quotes(name) + ": " + attribute + " is of another length");
    return values;
  };
  const std::vector<int64_t> axes = flags("scan_input_axes", scanned_count),
                             backwards = flags("scan_input_directions", scanned_count),
                             kept_axes = flags("scan_output_axes", kept_count),
                             reversed = flags("scan_output_directions", kept_count);
  std::vector<ValueId> carried, sequences;
  for (size_t i = 0; i < carried_count; ++i) carried.push_back(context.input(i));
  Expr steps;
  std::vector<int> from;
  for (size_t i = 0; i < scanned_count; ++i) {
    sequences.push_back(context.input(carried_count + i));
    from.push_back(rule_axis(context, axes[i], rank_of(context, sequences[i])));
    const Expr& extent = context.type(sequences[i]).shape[static_cast<size_t>(from[i])];
    if (i > 0) context.require_equal(steps, extent, "what is scanned is of one length");
    steps = i > 0 ? steps : extent;
  }
  std::vector<ValueId> results =
      emit_loop(context, steps, no_value, carried, reversed,
                [&](Region& region, const Var& step, const std::vector<ValueId>& before) -> LoopStep {
                  std::vector<ValueId> inputs = before;
                  for (size_t i = 0; i < scanned_count; ++i) {
                    const Expr at = backwards[i] ? steps - 1 - step : Expr(step);
                    inputs.push_back(emit_pick(context, region.capture(sequences[i]), from[i], at));
                  }
                  const std::vector<ValueId> results = around.add_graph(graph, name, &region, inputs);
                  require_tensors(results, context);
                  LoopStep after;
                  after.carried.assign(results.begin(), results.begin() + carried_count);
                  after.kept.assign(results.begin() + carried_count, results.end());
                  return after;
                });
  for (size_t i = 0; i < kept_count; ++i) {
    ValueId& result = results[carried_count + i];
    const int rank = rank_of(context, result), axis = rule_axis(context, kept_axes[i], rank);
    std::vector<int64_t> order;
    for (int64_t d = 1; d < rank; ++d) order.push_back(d);
    order.insert(order.begin() + axis, 0);
    result = emit_transpose(context, result, order);
  }
  return results;
}

}  // namespace

ControlRule find_control_rule(std::string_view domain, std::string_view op_type) {
  if (domain == "ai.onnx.preview" && op_type == "FlexAttention") return import_flex_attention;
  if (!domain.empty()) return nullptr;
  if (op_type == "SequenceMap") return import_sequence_map;
  return op_type == "If" ? import_if : op_type == "Loop" ? import_loop : op_type == "Scan" ? import_scan : nullptr;
}

}  // namespace tw::frontends::onnx
