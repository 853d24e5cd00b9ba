#include "tests/tw_opt_relay.h"

#include "relay_ir/compile/compile.h"
#include "relay_ir/compile/group.h"
#include "relay_ir/pass.h"
#include "relay_ir/text/parser.h"
#include "relay_ir/verify.h"

using namespace tw;
using namespace tw::relay;

namespace {

std::string groups_text(const Graph& graph) {
  std::string text;
  for (const Group& group : fuse(graph)) {
    for (size_t i = 0; i < group.nodes.size(); ++i) text += (i ? " + " : "") + graph.nodes[group.nodes[i]].name;
    text += "\n";
  }
  return text;
}

}  // namespace

std::string apply_relay(const std::vector<std::string>& words, const std::string& text, const std::string& file) {
  ConstantTable constants;
  Graph graph = parse_graph(text, file);
  Target target = parse_target("x86:avx2");
  PassContext context{target};
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    auto argument = [&] {
      if (i + 1 == words.size()) throw Error(ErrorCode::text, word + " needs an argument");
      return words[++i];
    };
    if (word == "--verify") {
      verify(graph);
    } else if (word == "--target") {
      target = parse_target(argument());
    } else if (word == "--precision") {
      context.precision = parse_precision(argument()).value();
    } else if (word == "--decided") {
      context.constraints = parse_decisions(argument());
    } else if (word == "--in-place") {
      const std::string output = argument();
      context.in_place[output] = argument();
    } else if (word == "--groups") {
      return groups_text(graph);
    } else if (word == "--pass") {
      const std::string name = argument();
      const relay::PassFunction pass = relay::find_pass(name);
      if (!pass) throw Error(ErrorCode::text, "unknown pass " + name + " of graphs");
      graph = pass(graph, context);
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
