// Nodes of an ONNX model, one by one in an order in which inputs come first, to relay nodes by the rules of the
// operators.  `If` on a known condition and calls of the model's own functions are replaced by their bodies; other
// control flow becomes regions (frontends/control.h).
#include "frontends/onnx/importer.h"

#include <deque>
#include <functional>
#include <queue>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "frontends/control.h"
#include "frontends/onnx/control.h"
#include "frontends/onnx/custom.h"
#include "frontends/onnx/list_inputs.h"
#include "frontends/onnx/names.h"
#include "frontends/onnx/rules.h"
#include "frontends/onnx/text.h"

namespace tw::frontends::onnx {
namespace {

// The newest opset of the standard domain whose operators were looked at when the rules were written.
constexpr int64_t newest_opset = 28;
constexpr int max_call_depth = 64;  // of functions and branches within each other
constexpr int max_divisions = 6;    // of one scope: what follows each of them is imported twice

struct Rest;

// Where names have their meaning: the model's graph, a branch inside it, or the body of a function.
struct Scope {
  const Scope* parent = nullptr;
  Region* region = nullptr;  // of the parent's graph, in which its values are; null: they are in the parent's graph
  std::string prefix;        // of names of nodes and values
  std::unordered_map<std::string_view, ValueId> values;
  std::unordered_map<std::string_view, const Tensor*> initializers;  // that are not yet values
  FunctionArguments arguments;
  const std::map<std::string, int64_t>* opsets = nullptr;
  int depth = 0;
  int divisions = 0;
  Rest* rest = nullptr;  // of a graph in a node's place: that node and those after it
};
using Names = std::vector<std::string_view>;

// The nodes of a scope from one on, which may have results of different types in different runs.
struct Rest {
  Scope& scope;
  const std::vector<Node>& nodes;
  std::span<const size_t> order;
  const Names& wanted;
  bool is_done = false;  // in the branches of a node, with these results
  Names defined = {};
  std::vector<ValueId> results = {};

  const Node& first() const { return nodes[order[0]]; }
};

std::string standard_domain(std::string_view domain) {
  return domain == "ai.onnx" ? std::string() : std::string(domain);
}

std::map<std::string, int64_t> opset_map(const std::vector<OpsetId>& opsets) {
  std::map<std::string, int64_t> result;
  for (const OpsetId& opset : opsets) {
    if (opset.version < 1 || opset.version > 1'000'000) malformed("an opset version is out of range");
    result[standard_domain(opset.domain)] = opset.version;
  }
  return result;
}

class Importer {
 public:
  Importer(const Model& model, const ImportOptions& options, OpenDimensions& dimensions)
      : model_(model), options_(options) {
    import_.dimensions = &dimensions;
    import_.checks_indices = options.checks;
  }

  Import run() {
    model_opsets_ = opset_map(model_.opsets);
    if (model_.opsets.empty() && model_.ir_version >= 3) malformed("the model says of no opset that it is of");
    if (!model_opsets_.count("")) model_opsets_[""] = model_.opsets.empty() ? 1 : newest_opset;
    const int64_t opset = model_opsets_[""];
    if (opset > newest_opset) {
      throw Error(ErrorCode::unsupported, "opset " + std::to_string(opset) + " is newer than " +
                                              std::to_string(newest_opset) +
                                              "\n  help: onnx.version_converter.convert_version(model, 17)");
    }
    import_.format = "opset " + std::to_string(opset);
    import_.producer = model_.producer_name;
    if (!model_.producer_name.empty() && !model_.producer_version.empty()) {
      import_.producer += " " + std::string(model_.producer_version);
    }
    for (const Function& function : model_.functions) {
      functions_[{standard_domain(function.domain), std::string(function.name), std::string(function.overload)}] =
          &function;
      function_opsets_[&function] = opset_map(function.opsets);
    }
    import_.graph.name = model_.graph.name;
    Scope scope;
    scope.opsets = &model_opsets_;
    for (const ValueInfo& info : model_.graph.value_infos) value_infos_[info.name] = &info;
    for (const ValueInfo& info : model_.graph.inputs) value_infos_[info.name] = &info;
    for (const ValueInfo& info : model_.graph.outputs) value_infos_[info.name] = &info;
    add_initializers(scope, model_.graph);
    add_inputs(scope);
    add_nodes(scope, model_.graph.nodes, names_of(model_.graph.outputs));
    add_outputs(scope);
    add_rows(scope);
    for (ListInfo& list : import_.graph.input_lists)
      if (list.kind == ListKind::text) list.words = import_.words.all();
    return std::move(import_);
  }

 private:
  struct FunctionKey {
    std::string domain, name, overload;
    auto operator<=>(const FunctionKey&) const = default;
  };

  void add_initializers(Scope& scope, const Graph& from) {
    if (from.has_sparse_initializers) {
      throw Error(ErrorCode::unsupported, "the model has sparse initializers\n  help: export it with dense weights");
    }
    for (const Tensor& tensor : from.initializers) {
      check_tensor(tensor);
      if (tensor.name.empty()) malformed("an initializer has no name");
      if (!scope.initializers.emplace(tensor.name, &tensor).second) {
        malformed("two initializers are called " + in_quotes(tensor.name));
      }
    }
  }

  void add_rows(Scope& scope) {
    const auto described = [&](const Names& names) {
      std::vector<SourceValue> values;
      for (const std::string_view name : names) {
        const auto found = scope.values.find(name);
        const bool is_tensor = found != scope.values.end() && found->second >= 0;
        values.push_back({std::string(name), is_tensor ? found->second : no_value});
      }
      return values;
    };
    for (size_t k = 0; k < order_.size(); ++k) {
      const Node& node = model_.graph.nodes[order_[k]];
      const std::string domain = standard_domain(node.domain);
      // Nodes behind a branch may have become part of it: then they became none of their own.
      const size_t first = k < starts_.size() ? starts_[k] : import_.graph.nodes.size();
      const size_t end = k + 1 < starts_.size() ? starts_[k + 1] : import_.graph.nodes.size();
      import_.rows.push_back({(domain.empty() ? "" : domain + ".") + std::string(node.op_type),
                              label(scope, node, order_[k]), described(node.inputs), described(node.outputs), first,
                              end});
    }
  }

  // Of the graph's inputs those that are no initializers.
  void add_inputs(Scope& scope) {
    std::vector<const ValueInfo*> infos;
    std::deque<std::string> names;  // of tensors
    std::vector<DeclaredInput> declared;
    ImportOptions options = options_;
    for (const ValueInfo& info : model_.graph.inputs) {
      if (const auto known = constant_of(info, options_)) {
        scope.values.emplace(info.name, import_.graph.add_constant(std::string(info.name), *known));
        continue;
      }
      if (scope.initializers.count(info.name)) continue;
      if (info.name.empty()) malformed("an input has no name");
      infos.push_back(&info);
      const size_t first = declared.size();
      input_of(info, std::string(info.name), options_, import_.lists,
               [&](const ValueInfo& tensor, const std::string& name) {
                 names.push_back(name);
                 declared.push_back({names.back(), tensor.shape});
                 return ValueId{0};
               });
      const bool is_list = info.kind == ValueKind::sequence || info.kind == ValueKind::optional;
      const auto given = options.shapes.find(std::string(info.name));
      if (is_list && given != options.shapes.end() && given->second.empty() && declared.size() == first)
        options.shapes.erase(given);  // it says that the sequence is empty
      const bool is_tensor = info.kind == ValueKind::tensor && (to_dtype(info.element_type) || is_text(info));
      if (!is_list && !is_tensor) declared.push_back({info.name, info.shape});  // which is refused
    }
    check_named_inputs(model_.graph.inputs, options_);
    Inputs inputs(import_, *import_.dimensions, options, declared);
    for (const ValueInfo* info : infos) {
      const std::string name(info->name);
      const size_t first = import_.graph.inputs.size();
      const auto value =
          input_of(*info, name, options_, import_.lists, [&](const ValueInfo& tensor, const std::string& own) {
            return inputs.add({own, tensor.shape}, is_text(tensor) ? i64 : *to_dtype(tensor.element_type));
          });
      if (!value) import_.refuse({"input", name, {}}, why_no_input(*info, name));
      if (!scope.values.emplace(info->name, value.value_or(unknown_value)).second)
        malformed("two inputs are called " + in_quotes(name));
      if (!value || !is_list(*value)) continue;
      const List& list = import_.lists[*value];
      const bool is_tensor = list.kind == ListKind::optional && list.values.size() == 1 && !is_list(list.values[0]);
      if (is_tensor) continue;
      const bool is_absent = list.kind == ListKind::optional && list.values.empty();
      const ListKind other = list.is_text() ? ListKind::text : ListKind::sequence;
      import_.graph.input_lists.push_back({name, is_absent ? ListKind::optional : other, static_cast<uint32_t>(first),
                                           static_cast<uint32_t>(import_.graph.inputs.size() - first)});
    }
  }

  // no_value: no such name.
  ValueId look_up(Scope& scope, std::string_view name) {
    if (const auto found = scope.values.find(name); found != scope.values.end()) return found->second;
    if (const auto found = scope.initializers.find(name); found != scope.initializers.end()) {
      ValueId id = unknown_value;
      try {
        if (is_text(*found->second)) return scope.values[name] = text_constant(import_, *found->second);
        id = import_.graph.add_constant(scope.prefix + std::string(name), to_array(*found->second, options_.folder));
      } catch (const Error& error) {
        if (error.code() != ErrorCode::unsupported) throw;
        import_.refuse({"initializer", scope.prefix + std::string(name), {}},
                       data_type_name(found->second->data_type) + " elements");
      }
      return scope.values[name] = id;
    }
    if (!scope.parent) return no_value;
    // Parents outlive the scope and grow only by what is found through them.  The initializers that a region uses are
    // values already: sorted() looked at the names that its node uses.
    const ValueId outside = look_up(const_cast<Scope&>(*scope.parent), name);
    if (!scope.region || outside == no_value) return outside;
    return scope.values[name] = scope.region->capture(outside);
  }

  static std::string label(const Scope& scope, const Node& node, size_t index) {
    return scope.prefix +
           (node.name.empty() ? std::string(node.op_type) + "_" + std::to_string(index) : std::string(node.name));
  }

  // Indices of nodes in an order in which inputs come first; that of the file where it is one.
  std::vector<size_t> sorted(Scope& scope, const std::vector<Node>& nodes) {
    std::unordered_map<std::string_view, size_t> producer;
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (const std::string_view name : nodes[i].outputs) {
        if (name.empty()) continue;
        if (!producer.emplace(name, i).second || scope.values.count(name) || scope.initializers.count(name)) {
          malformed("the name " + in_quotes(name) + " is defined twice, the second time by node " +
                    in_quotes(label(scope, nodes[i], i)));
        }
      }
    }
    std::vector<std::vector<size_t>> users(nodes.size());
    std::vector<size_t> waits_for(nodes.size(), 0);
    for (size_t i = 0; i < nodes.size(); ++i) {
      for (const std::string_view name : names_used(nodes[i])) {
        const auto found = producer.find(name);
        if (found != producer.end()) {
          users[found->second].push_back(i);
          ++waits_for[i];
        } else if (look_up(scope, name) == no_value) {
          malformed("node " + in_quotes(label(scope, nodes[i], i)) + " (" + std::string(nodes[i].op_type) + ") uses " +
                    in_quotes(name) + ", which nothing defines");
        }
      }
    }
    std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (waits_for[i] == 0) ready.push(i);
    }
    std::vector<size_t> order;
    while (!ready.empty()) {
      const size_t i = ready.top();
      ready.pop();
      order.push_back(i);
      for (const size_t user : users[i]) {
        if (--waits_for[user] == 0) ready.push(user);
      }
    }
    if (order.size() != nodes.size()) {
      std::string members;
      int listed = 0;
      for (size_t i = 0; i < nodes.size(); ++i) {
        if (waits_for[i] && listed++ < 5)
          members += (members.empty() ? "" : ", ") + in_quotes(label(scope, nodes[i], i));
      }
      malformed("the graph has a cycle: " + std::to_string(listed) + " nodes wait for each other: " + members +
                (listed > 5 ? ", …" : ""));
    }
    return order;
  }

  static Names names_of(const std::vector<ValueInfo>& infos) {
    Names names;
    for (const ValueInfo& info : infos) names.push_back(info.name);
    return names;
  }

  // `wanted`: what is used of them after all of them.
  void add_nodes(Scope& scope, const std::vector<Node>& nodes, const Names& wanted) {
    if (scope.depth > max_call_depth) {
      throw Error(ErrorCode::limit, "functions and branches are nested more than " + std::to_string(max_call_depth) +
                                        " deep at " + in_quotes(scope.prefix));
    }
    const std::vector<size_t> order = sorted(scope, nodes);
    const bool is_model = &nodes == &model_.graph.nodes;
    if (is_model) order_ = order;
    for (size_t k = 0; k < order.size(); ++k) {
      if (is_model) starts_.push_back(import_.graph.nodes.size());
      Rest rest{scope, nodes, std::span(order).subspan(k), wanted};
      add_node(scope, nodes[order[k]], label(scope, nodes[order[k]], order[k]), rest);
      if (rest.is_done) return;
    }
  }

  // In a region, in which the first of them has these results.  What follows the node in whose place the scope is
  // goes on there, too.
  std::vector<ValueId> add_rest(Rest& rest, const std::string& place, Region& region,
                                const std::vector<ValueId>& results, const Context& context) {
    Scope scope = scope_within(rest.scope, place, &region);
    if (++scope.divisions > max_divisions)
      context.refuse("results of different types, one after the other, " + std::to_string(scope.divisions) + " times");
    const Names& outputs = rest.first().outputs;
    for (size_t i = 0; i < outputs.size() && i < results.size(); ++i)
      if (!outputs[i].empty()) scope.values[outputs[i]] = results[i];
    const size_t refused = import_.refusals.size();
    rest.is_done = true, rest.defined.clear();
    std::vector<Node> nodes;
    std::unordered_set<std::string_view> made(outputs.begin(), outputs.end());
    for (const size_t i : rest.order.subspan(1)) {
      nodes.push_back(rest.nodes[i]);
      made.insert(nodes.back().outputs.begin(), nodes.back().outputs.end());
    }
    add_nodes(scope, nodes, rest.wanted);
    if (Rest* around = rest.scope.rest)
      return add_rest(*around, place, region, results_of(scope, rest.wanted, refused, context), context);
    for (const std::string_view name : rest.wanted)
      if (made.contains(name)) rest.defined.push_back(name);
    return results_of(scope, rest.defined, refused, context);
  }

  void add_node(Scope& scope, const Node& node, const std::string& name, Rest& rest) {
    if (++visited_ > max_nodes) {
      throw Error(ErrorCode::limit, "more than " + std::to_string(max_nodes) + " nodes after functions are inlined");
    }
    const std::string domain = standard_domain(node.domain);
    const auto custom = options_.operators.find({domain, std::string(node.op_type)});
    const bool is_custom = custom != options_.operators.end();
    const auto function = functions_.find({domain, std::string(node.op_type), std::string(node.overload)});
    std::vector<ValueId> inputs;
    bool is_known = true;
    for (const std::string_view input : node.inputs) {
      inputs.push_back(input.empty() ? no_value : look_up(scope, input));
      is_known = is_known && inputs.back() != unknown_value;
    }
    if (function != functions_.end() && !is_custom) return call_function(scope, node, name, *function->second, inputs);

    const SourceNode source{(domain.empty() ? "" : domain + ".") + std::string(node.op_type), name, inputs};
    import_.count(source.op);
    auto refuse = [&](const std::string& why) {
      import_.refuse(source, why);
      define_unknown(scope, node);
    };
    const auto version = scope.opsets->find(domain);
    const int opset = version == scope.opsets->end() ? 1 : static_cast<int>(version->second);
    const ControlRule control = is_custom ? nullptr : find_control_rule(domain, node.op_type);
    const Rule* rule = find_rule(domain, node.op_type, opset);
    if (!rule && !control && !is_custom) return refuse("");
    if (!is_known) return define_unknown(scope, node);
    const bool has_text =
        std::any_of(inputs.begin(), inputs.end(), [&](ValueId id) { return is_text_or_map(import_.lists, id); });
    const TextUse use = rule && has_text && !is_custom ? rule->text : TextUse::none;
    const auto moved = moved_text(import_.lists, use, inputs);
    if (has_text && use != TextUse::read && !moved) return refuse("elements of type string");
    const auto first_new = static_cast<ValueId>(import_.graph.values.size());
    const bool is_done = import_.attempt(source, !control, [&] {
      const SourceNode seen{source.op, source.name, moved ? moved->inputs : inputs};
      const bool is_model = !scope.parent && scope.prefix.empty();
      Context context(import_, seen, node, opset, scope.arguments, options_.folder, is_model ? &value_infos_ : nullptr);
      std::vector<ValueId> results = is_custom ? import_custom(context, name, custom->second)
                                     : control ? control(context, name, surroundings(scope, name, rest, context))
                                               : rule->import(context);
      if (moved) results[0] = context.emit_text(results[0], moved->may_be_unknown);
      const std::vector<ValueId>& values = rest.results.empty() ? results : rest.results;
      // The rest may be that of a scope around this one.
      if (rest.is_done && scope.rest && scope.rest->is_done) {
        scope.rest->results = values;
        return;
      }
      const Names& names = rest.is_done ? rest.defined : node.outputs;
      for (size_t i = 0; i < names.size(); ++i) {
        if (names[i].empty()) continue;
        if (i >= values.size() || values[i] == no_value) {
          context.refuse("its output " + std::to_string(i) + " is not supported");
        }
        define(scope, names[i], values[i], values[i] >= first_new);
      }
    });
    if (is_done) return;
    define_unknown(scope, node);
    for (const std::string_view name : rest.defined) scope.values.emplace(name, unknown_value);
    if (scope.rest) scope.rest->results.assign(scope.rest->defined.size(), unknown_value);
  }

  Surroundings surroundings(Scope& scope, const std::string& name, Rest& rest, const Context& context) {
    return {[&](const Graph& graph, const std::string& place, Region* region, const std::vector<ValueId>& inputs) {
              return add_graph(scope, graph, place, region, inputs, context);
            },
            [&](const Graph& graph) { return add_graph(scope, graph, name, nullptr, {}, context, &rest); },
            [&](const std::string& place, Region& region, const std::vector<ValueId>& results) {
              return add_rest(rest, place, region, results, context);
            }};
  }

  void define(Scope& scope, std::string_view name, ValueId id, bool is_new) {
    scope.values[name] = id;
    if (is_new) import_.graph.rename_value(id, scope.prefix + std::string(name));
  }

  // Results that cannot be computed keep the type that the model states, so that what follows is still looked at.
  void define_unknown(Scope& scope, const Node& node) {
    for (const std::string_view output : node.outputs) {
      if (output.empty() || scope.values.count(output)) continue;
      ValueId id = unknown_value;
      const auto found = scope.parent || !scope.prefix.empty() ? value_infos_.end() : value_infos_.find(output);
      if (found != value_infos_.end() && found->second->kind == ValueKind::tensor && found->second->shape) {
        const auto dtype = to_dtype(found->second->element_type);
        TensorType type{dtype.value_or(f32), {}};
        bool is_known = dtype.has_value();
        for (const Dimension& dim : *found->second->shape) {
          is_known = is_known && dim.value;
          type.shape.push_back(Expr(dim.value.value_or(0)));
        }
        if (is_known) id = import_.graph.add_value(std::string(output), std::move(type));
      }
      scope.values[output] = id;
    }
  }

  void call_function(Scope& scope, const Node& node, const std::string& name, const Function& function,
                     const std::vector<ValueId>& inputs) {
    Scope body;
    body.prefix = name + "/";
    body.opsets = &function_opsets_.at(&function);
    body.depth = scope.depth + 1;
    if (inputs.size() > function.inputs.size()) {
      malformed("node " + in_quotes(name) + " gives function " + in_quotes(function.name) + " more inputs than it has");
    }
    for (size_t i = 0; i < function.inputs.size(); ++i) {
      body.values[function.inputs[i]] = i < inputs.size() ? inputs[i] : no_value;
    }
    for (const Attribute& attribute : function.attribute_defaults) body.arguments[attribute.name] = &attribute;
    for (const Attribute& attribute : node.attributes) {
      const Attribute* argument = &attribute;
      if (!attribute.reference.empty()) {
        const auto outer = scope.arguments.find(attribute.reference);
        if (outer == scope.arguments.end()) continue;
        argument = outer->second;
      }
      body.arguments[attribute.name] = argument;
    }
    // An input that is absent is a name without a value: nodes of the body see it as absent, too.
    std::vector<Node> nodes = function.nodes;
    for (Node& inner : nodes) {
      for (std::string_view& input : inner.inputs) {
        const auto found = body.values.find(input);
        if (found != body.values.end() && found->second == no_value) input = {};
      }
    }
    add_nodes(body, nodes, function.outputs);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i].empty()) continue;
      if (i >= function.outputs.size())
        malformed("function " + in_quotes(function.name) + " has fewer outputs than used");
      const ValueId id = look_up(body, function.outputs[i]);
      if (id == no_value)
        malformed("function " + in_quotes(function.name) + " does not define " + in_quotes(function.outputs[i]));
      scope.values[node.outputs[i]] = id;
    }
  }

  // A graph within a node: in the same graph of ours or, with `region`, in that one.
  std::vector<ValueId> add_graph(const Scope& around, const Graph& graph, const std::string& place, Region* region,
                                 const std::vector<ValueId>& inputs, const Context& context, Rest* rest = nullptr) {
    Scope scope = scope_within(around, place, region);
    scope.rest = rest;
    for (size_t i = 0; i < inputs.size(); ++i) scope.values[graph.inputs[i].name] = inputs[i];
    const size_t refused = import_.refusals.size();
    add_initializers(scope, graph);
    add_nodes(scope, graph.nodes, names_of(graph.outputs));
    if (rest && rest->is_done) return {};
    return results_of(scope, names_of(graph.outputs), refused, context);
  }

  static Scope scope_within(const Scope& around, const std::string& place, Region* region) {
    Scope scope;
    scope.parent = &around;
    scope.region = region;
    scope.prefix = place + "/";
    scope.opsets = around.opsets;
    scope.arguments = around.arguments;
    scope.depth = around.depth + 1;
    scope.divisions = around.divisions;
    return scope;
  }

  // `refused`: so many nodes before the scope.
  std::vector<ValueId> results_of(Scope& scope, const Names& names, size_t refused, const Context& context) {
    std::vector<ValueId> results;
    for (const std::string_view name : names) {
      results.push_back(look_up(scope, name));
      if (results.back() == no_value) malformed(in_quotes(scope.prefix) + ": nothing defines " + in_quotes(name));
      if (scope.region && is_text_or_map(import_.lists, results.back())) context.refuse("results of type string");
    }
    // What is unknown in a region was refused, and so is the node.
    const bool is_unknown = std::find(results.begin(), results.end(), unknown_value) != results.end();
    if (scope.region && (is_unknown || import_.refusals.size() != refused))
      context.refuse("a node within it is not supported");
    return results;
  }

  void add_outputs(Scope& scope) {
    if (model_.graph.outputs.empty()) malformed("the graph has no outputs");
    for (const ValueInfo& info : model_.graph.outputs) {
      add_output_name(std::string(info.name));
      const ValueId id = look_up(scope, info.name);
      if (id == no_value) malformed("output " + in_quotes(info.name) + " is not defined by any node");
      if (id == unknown_value || !import_.refusals.empty()) continue;
      const auto dtype = to_dtype(info.element_type);
      const bool is_declared = info.kind == ValueKind::tensor && info.element_type != 0;
      const bool has_text = is_text(import_.lists, id);
      if (has_text && import_.lists[id].may_be_unknown) {
        import_.refuse({"output", std::string(info.name), {}}, "strings of an input, which the model may not know");
        continue;
      }
      const bool is_as_declared =
          has_text ? is_text(info) : !is_list(id) && dtype == import_.graph.values[id].type.dtype;
      if (is_declared && !is_as_declared) {
        malformed("output " + in_quotes(info.name) + " is declared as " + data_type_name(info.element_type) +
                  ", but it is " + (is_list(id) ? "no tensor" : to_string(import_.graph.values[id].type)));
      }
      add_output(std::string(info.name), id);
    }
  }

  // What a list is made of gets names of its own (runtime/plan/list_info.h).
  void add_output(const std::string& name, ValueId id) {
    if (!is_list(id)) {
      import_.graph.outputs.push_back(id);
      import_.graph.output_names.push_back(name);
      return;
    }
    const List list = import_.lists[id];
    if (list.kind == ListKind::optional && list.values.size() == 1) return add_output(name, list.values[0]);
    std::vector<ListInfo>& lists = import_.graph.output_lists;
    const size_t at = lists.size(), first = import_.graph.outputs.size();
    const int axis = list.kind == ListKind::ragged ? 0 : list.axis;
    lists.push_back({name, list.kind, static_cast<uint32_t>(first), 0, static_cast<uint32_t>(axis),
                     list.is_text() ? import_.words.all() : list.words, list.numbers});
    const std::vector<std::string> names = tensor_names(name, list.kind, list.values.size());
    for (size_t i = 0; i < list.values.size(); ++i) {
      if (i < names.size() && names[i] != name) add_output_name(names[i]);
      add_output(i < names.size() ? names[i] : name, list.values[i]);
    }
    lists[at].count = static_cast<uint32_t>(import_.graph.outputs.size() - first);
  }

  void add_output_name(const std::string& name) {
    if (!output_names_.insert(name).second) malformed("two outputs are called " + in_quotes(name));
  }

  const Model& model_;
  const ImportOptions& options_;
  Import import_;
  std::map<std::string, int64_t> model_opsets_;
  std::map<FunctionKey, const Function*> functions_;
  std::map<const Function*, std::map<std::string, int64_t>> function_opsets_;
  ValueInfos value_infos_;
  std::unordered_set<std::string> output_names_;
  std::vector<size_t> order_;   // of the model's own nodes
  std::vector<size_t> starts_;  // by place in that order: how many nodes the graph had before
  int64_t visited_ = 0;
};

}  // namespace

Import import_model(const Model& model, const ImportOptions& options) try {
  return with_open_dimensions([&](OpenDimensions& dimensions) { return Importer(model, options, dimensions).run(); });
} catch (const Error& error) {
  std::vector<DeclaredInput> inputs;
  for (const ValueInfo& info : model.graph.inputs) inputs.push_back({info.name, info.shape});
  const std::string changed = changed_dimensions(options, inputs);
  if (error.code() != ErrorCode::shape || changed.empty()) throw;
  throw Error(error.code(), error.message() + ("\n  note: shapes= changes " + changed +
                                               "; the model may be made for the sizes that it states"));
}

}  // namespace tw::frontends::onnx
