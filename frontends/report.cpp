#include "frontends/report.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "relay_ir/cost.h"
#include "relay_ir/text/printer.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/dimension.h"
#include "tensor_ir/match.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/text/syntax.h"

namespace tw::frontends {
namespace {

// "opset 17, 5 nodes, 40.0 % covered"
std::string coverage(const Import& import) {
  const int64_t covered = std::max<int64_t>(0, import.nodes - static_cast<int64_t>(import.refusals.size()));
  char percent[32] = "100";  // rounded down: 100 % only if it is all
  if (covered != import.nodes) {
    std::snprintf(percent, sizeof percent, "%.1f", std::floor(1000.0 * covered / import.nodes) / 10);
  }
  return import.format + ", " + std::to_string(import.nodes) + " nodes, " + percent + " % covered";
}

std::string padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

// Lines of "  Op   5 nodes: a (type), b, …", one an operator and reason, and how many they are.
std::pair<std::string, size_t> refused_lines(const std::vector<Refusal>& refusals) {
  std::map<std::pair<std::string, std::string>, std::vector<const Refusal*>> by_operator;
  for (const Refusal& refusal : refusals) by_operator[{refusal.op, refusal.why}].push_back(&refusal);
  size_t width = 0;
  for (const auto& [key, nodes] : by_operator) width = std::max(width, key.first.size());
  std::string text;
  for (const auto& [key, nodes] : by_operator) {
    const auto& [op, why] = key;
    text += "\n  " + padded(op, width + 2) +
            padded(std::to_string(nodes.size()) + (nodes.size() == 1 ? " node:" : " nodes:"), 10);
    for (size_t i = 0; i < std::min<size_t>(nodes.size(), 3); ++i) {
      text += (i ? ", " : "") + nodes[i]->node + (nodes[i]->type.empty() ? "" : " (" + nodes[i]->type + ")");
    }
    text += (nodes.size() > 3 ? ", …" : "") + (why.empty() ? "" : ": " + why);
  }
  return {text, by_operator.size()};
}

std::string scaled(double value, const char* unit) {
  static const char* const prefixes[] = {"", " k", " M", " G", " T"};
  int step = 0;
  for (; value >= 1000 && step < 4; ++step) value /= 1000;
  char text[48];
  std::snprintf(text, sizeof text, step ? "%.3g%s%s" : "%.0f%s%s", value, prefixes[step], unit);
  return text;
}

}  // namespace

Import with_file_name(const std::string& name, const std::function<Import()>& read) {
  try {
    Import import = read();
    import.file_name = name;
    return import;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) throw;
    const std::string text = error.what();
    const std::string code = error.code_text();
    const size_t start = text.compare(0, code.size(), code) == 0 ? text.find_first_not_of(" :", code.size()) : 0;
    const std::string message = text.substr(start == std::string::npos ? 0 : start);
    throw Error(error.code(), message.compare(0, name.size(), name) == 0 ? message : name + ": " + message);
  }
}

Graph finish(Import import) {
  if (import.refusals.empty()) {
    if (import.random_state != no_value) {
      import.graph.inputs.push_back(import.random_state);
      import.graph.has_random_state = true;
    }
    return std::move(import.graph);
  }
  const auto [lines, operators] = refused_lines(import.refusals);
  const size_t refused = import.refusals.size();
  throw Error(
      ErrorCode::unsupported,
      import.file_name + ": " + std::to_string(operators) + (operators == 1 ? " operator in " : " operators in ") +
          std::to_string(refused) + (refused == 1 ? " node is" : " nodes are") + " not supported (" + coverage(import) +
          ")" + lines +
          "\n  help: `tw explain` shows what the model uses; export these parts in another way, or leave them out");
}

namespace {

// Of constants that nodes use, those within nodes too, each once.
struct Parameters {
  double elements = 0, bytes = 0;
  std::set<const void*> seen;

  void add(const Graph& graph) {
    const Uses uses(graph);
    for (size_t id = 0; id < graph.values.size(); ++id) {
      const auto& constant = graph.values[id].constant;
      if (!constant || (uses.users[id].empty() && !uses.is_output[id]) || !seen.insert(constant->data()).second)
        continue;
      elements += static_cast<double>(constant->size());
      bytes += static_cast<double>(constant->byte_size());
    }
    for (const Node& node : graph.nodes)
      for (const Graph& region : node.regions) add(region);
  }
};

// Of what a loop carries, what is of another size from step to step.
std::string grown_text(const Graph& graph, const Node& loop) {
  const Graph& region = loop.regions[0];
  std::vector<Var> numbers{region.symbols.back()};
  for (const LoopSize& size : sizes_of(loop)) numbers.push_back(size.within);
  std::string text;
  for (size_t i = 0; i < carried_by(loop); ++i) {
    const TensorType& type = region.values[region.inputs[i]].type;
    const auto changes = [&](const Expr& dim) {
      return std::ranges::any_of(numbers, [&](const Var& var) { return uses_var(dim, var); });
    };
    if (std::ranges::none_of(type.shape, changes)) continue;
    text += (text.empty() ? "; what grows: " : ", ") + in_quotes(graph.values[loop.outputs[i]].name) + " " +
            to_string(type);
  }
  return text;
}

// What a run decides: a line for each node of control flow, those within others too.
void add_control(const Graph& graph, std::vector<std::string>& lines) {
  for (const Node& node : graph.nodes) {
    if (is_item(node) && !node.op->is_demand) {
      const Expr& number = number_of(node);
      const bool is_new = number.kind() == NodeKind::Var;
      lines.push_back(in_quotes(node.name) + " reads the size " + to_text(number) +
                      (is_new ? syntax::bounds_text(dimension_bounds(Var::of(number))) : "") + " in a run");
    } else if (node.op->is_on_host) {
      const std::string& library = node.attributes.get_string("library");
      lines.push_back(in_quotes(node.name) + " is computed by " + in_quotes(node.attributes.get_string("function")) +
                      (library.empty() ? ", a function of the host" : " of " + library));
    } else if (is_branch(node)) {
      lines.push_back(in_quotes(node.name) + " goes one of two ways in a run");
    } else if (is_loop(node)) {
      const Expr& steps = steps_of(node);
      const bool has_condition = condition_of(node) != no_value;
      const bool has_end = !is_const_int(steps, std::numeric_limits<int64_t>::max());
      lines.push_back(in_quotes(node.name) + " is repeated" +
                      (has_end ? (has_condition ? " up to " : " ") + to_text(steps) + " times" : "") +
                      (has_condition ? " while its condition holds" : "") + grown_text(graph, node));
    }
    for (const Graph& region : node.regions) add_control(region, lines);
  }
}

}  // namespace

SourceCost cost_of(const Import& import, const SourceRow& row) {
  const Graph& graph = import.graph;
  const auto bytes_of = [&](ValueId id) {
    const TensorType& type = graph.values[id].type;
    int64_t bytes = type.dtype.bytes();
    for (const int64_t size : typical_shape(type)) bytes *= size;
    return bytes;
  };
  SourceCost cost;
  std::set<ValueId> read;
  for (size_t i = row.first; i < row.end; ++i) {
    const Node& node = graph.nodes[i];
    cost.flops += typical_value(flops_of(graph, node));
    for (const ValueId id : node.inputs)
      if (id != no_value && graph.values[id].constant && read.insert(id).second) cost.parameters += bytes_of(id);
    if (node.op->kind == OpKind::view) continue;
    for (const ValueId id : node.outputs) cost.written += bytes_of(id);
  }
  return cost;
}

std::string explain(const Import& import) {
  std::string text = import.file_name + ": " + coverage(import);
  if (!import.producer.empty()) text += ", written by " + import.producer;
  const Graph& graph = import.graph;
  const auto values = [&](const char* kind, const std::vector<ListInfo>& lists, const std::vector<ValueId>& ids,
                          const std::function<std::string(size_t)>& name) {
    const auto type = [&](size_t i) { return to_string(graph.values[ids[i]].type); };
    constexpr size_t most_keys = 8;
    std::vector<ListInfo> short_lists = lists;
    for (ListInfo& list : short_lists) {
      if (list.words.size() > most_keys) list.words.resize(most_keys), list.words.emplace_back("…");
      if (list.numbers.size() > most_keys) list.numbers.resize(most_keys);
    }
    const std::string start = std::string("\n  ") + kind;
    const std::string lines = values_text(
        short_lists, ids.size(), start, [&](size_t i) { return name(i) + " " + type(i); },
        [&](const ListInfo& list, size_t& at) { return list.name + " " + made_of_text(short_lists, at, type); });
    return lines.empty() ? "" : start + lines;
  };
  text += values("input       ", graph.input_lists, graph.inputs,
                 [&](size_t i) { return graph.values[graph.inputs[i]].name; });
  if (import.random_state != no_value)
    text += "\n  random      " + std::to_string(import.random_nodes) +
            (import.random_nodes == 1 ? " node draws" : " nodes draw") + " numbers, which are other ones in each run";
  for (const std::string& line : import.demands) text += "\n  dimension   " + line;
  constexpr size_t most_lines = 20;
  std::vector<std::string> control;
  add_control(import.graph, control);
  for (size_t i = 0; i < std::min(control.size(), most_lines); ++i) text += "\n  control     " + control[i];
  if (control.size() > most_lines)
    text += "\n  control     … and " + std::to_string(control.size() - most_lines) + " more";
  text +=
      values("output      ", graph.output_lists, graph.outputs, [&](size_t i) { return import.graph.output_names[i]; });
  std::vector<std::pair<int64_t, std::string>> operators;
  for (const auto& [name, count] : import.operators) operators.emplace_back(-count, name);
  std::sort(operators.begin(), operators.end());
  text += "\n  operators  ";
  size_t width = 12;
  for (const auto& [count, name] : operators) {
    const std::string item = " " + name + " " + std::to_string(-count);
    if (width + item.size() > 116) text += "\n             ", width = 12;
    text += item;
    width += item.size();
  }
  Expr flops = 0;
  Parameters parameters;
  parameters.add(import.graph);
  for (const Node& node : import.graph.nodes) flops = flops + flops_of(import.graph, node);
  const auto known = as_int(simplify(flops));
  text += "\n  parameters  " + scaled(parameters.elements, "") + " (" + scaled(parameters.bytes, "B") + ")";
  text += "\n  work        " + (!import.refusals.empty() ? std::string("not known while operators are not supported")
                                : known                  ? scaled(static_cast<double>(*known), "FLOP") + " a run"
                                                         : to_text(simplify(flops)) + " FLOP a run");
  if (!import.refusals.empty()) text += "\nnot supported:" + refused_lines(import.refusals).first;
  return text + "\n";
}

}  // namespace tw::frontends
