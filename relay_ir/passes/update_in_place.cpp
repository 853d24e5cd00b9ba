// Results that the user wants where an input lies, such as a cache of keys: what makes them from that input writes the
// changed elements only.
//
//   graph g (past: f32[1, 4, 256, 64], new: f32[1, 4, 1, 64], at: i64[1]) {      present in place of past
//     present = cache_update(past, new, at)        ⇒       present = cache_update(past, new, at) decided "in_place=1"
//     return present
//   }
//
// From the output back to the input there may be several updates, and views.  What reads the old elements elsewhere
// runs before they are overwritten (in_place.h); what reads them within the update itself is refused here.
#include <algorithm>

#include "relay_ir/in_place.h"
#include "relay_ir/pass.h"
#include "relay_ir/view.h"

namespace tw::relay {
namespace {

constexpr const char* leave_out = "\n  help: leave it out of in_place; its value is the same, in an array of its own";

class Updater {
 public:
  explicit Updater(const Graph& graph) : graph_(graph), uses_(graph), viewed_(viewed_values(graph)) {}

  void update(const std::string& output, const std::string& input) {
    std::vector<std::string> outputs, inputs;
    for (size_t i = 0; i < graph_.outputs.size(); ++i) outputs.push_back(graph_.output_name(i));
    for (size_t i = 0; i < graph_.inputs_of_caller(); ++i) inputs.push_back(graph_.values[graph_.inputs[i]].name);
    ValueId value = graph_.outputs[position_of("output", output, outputs)];
    const ValueId past = graph_.inputs[position_of("input", input, inputs)];
    const std::string pair = "output `" + output + "` cannot take the place of input `" + input + "`: ";
    if (!(graph_.values[value].type == graph_.values[past].type)) {
      throw Error(ErrorCode::shape, pair + "it is " + to_string(graph_.values[value].type) + ", the input is " +
                                        to_string(graph_.values[past].type) +
                                        "\n  help: a cache of fixed capacity, updated by ScatterND, ScatterElements or "
                                        "TensorScatter, keeps its shape; a concatenation grows");
    }
    while (value != past) {
      const int producer = uses_.producer[value];
      if (producer < 0) throw Error(ErrorCode::unsupported, pair + "it is not made from it" + leave_out);
      Node& node = graph_.nodes[producer];
      if (node.op->facts.update) {
        require_independent_updates(node, pair);
        node.decisions["in_place"] = {1};
      } else if (node.op->kind != OpKind::view) {
        throw Error(ErrorCode::unsupported, pair + "node `" + node.name + "` (" + node.op->name +
                                                ") makes all of its elements anew" + leave_out);
      }
      value = node.inputs[0];
    }
  }

  Graph finish() { return std::move(graph_); }

 private:
  static size_t position_of(const std::string& kind, const std::string& name, const std::vector<std::string>& names) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found != names.end()) return found - names.begin();
    std::string known;
    for (const std::string& other : names) known += (known.empty() ? "" : ", ") + other;
    throw Error(ErrorCode::input,
                "in_place: there is no " + kind + " `" + name + "`\n  help: the " + kind + "s are " + known);
  }

  // What is written does not come, as it lies, from what is overwritten.
  void require_independent_updates(const Node& node, const std::string& pair) const {
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == no_value || viewed_[node.inputs[i]] != viewed_[node.inputs[0]]) continue;
      throw Error(ErrorCode::unsupported,
                  pair + "node `" + node.name + "` reads elements of it while it overwrites them" + leave_out);
    }
  }

  Graph graph_;
  const Uses uses_;
  const std::vector<ValueId> viewed_;
};

}  // namespace

Graph update_in_place(const Graph& graph, const PassContext& context) {
  Updater updater(graph);
  std::map<std::string, std::string> taken;  // input → output
  for (const auto& [output, input] : context.in_place) {
    const auto [other, is_first] = taken.emplace(input, output);
    if (!is_first) {
      throw Error(ErrorCode::input, "in_place: outputs `" + other->second + "` and `" + output +
                                        "` cannot both take the place of input `" + input +
                                        "`\n  help: each input has one array");
    }
    updater.update(output, input);
  }
  return updater.finish();
}

}  // namespace tw::relay
