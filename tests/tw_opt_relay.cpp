#include "tests/tw_opt_relay.h"

#include "relay_ir/compile/compile.h"
#include "relay_ir/pass.h"
#include "relay_ir/text/parser.h"
#include "relay_ir/verify.h"

using namespace tw;
using namespace tw::relay;

namespace {

std::string groups_text(const Graph& graph, const Target& target) {
  std::string text;
  for (const Group& group : fuse(graph, target)) {
    for (size_t i = 0; i < group.nodes.size(); ++i) text += (i ? " + " : "") + graph.nodes[group.nodes[i]].name;
    text += "\n";
  }
  return text;
}

}  // namespace

std::string apply_relay(const std::vector<std::string>& words, const std::string& text, const std::string& file) {
  ConstantTable constants;
  Graph graph = parse_graph(text, file);
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    auto argument = [&] {
      if (i + 1 == words.size()) throw Error(ErrorCode::text, word + " needs an argument");
      return words[++i];
    };
    if (word == "--verify") {
      verify(graph);
    } else if (word == "--layout") {
      graph = assign_layout(graph, parse_target(argument()));
    } else if (word == "--precision") {
      const std::string dtype = argument();
      graph = lower_precision(graph, parse_dtype(dtype).value(), parse_target(argument()));
    } else if (word == "--bytes") {
      graph = match_byte_products(graph, parse_target(argument()));
    } else if (word == "--groups") {
      return groups_text(graph, parse_target(argument()));
    } else if (word == "--pass") {
      const std::string name = argument();
      const relay::PassFunction pass = relay::find_pass(name);
      if (!pass) throw Error(ErrorCode::text, "unknown pass " + name + " of graphs");
      graph = pass(graph);
    } else if (word != "--relay") {
      throw Error(ErrorCode::text, "unknown option " + word + " after --relay");
    }
  }
  verify(graph);
  const std::string result = to_text(graph, &constants);
  if (to_text(parse_graph(result, file, constants)) != result) {
    throw Error(ErrorCode::internal, "the result does not read back as itself:\n" + result);
  }
  return result;
}
