// What surrounds the data of a convolution is put in where that reads it, so that no kernel writes it to memory: for
// targets whose convolutions gather what they multiply.
//
//   p = pad(x, value); y = conv(p, w)   ⇒   p = pad(x, value); y = conv(p, w) decided "fuse_padding=1"
#include "relay_ir/pass.h"
#include "relay_ir/pattern.h"

namespace tw::relay {

Graph fuse_pads(const Graph& graph, const PassContext&) {
  const std::string decision = "fuse_padding";
  Graph result = graph;
  const Uses uses(graph);
  for (Node& node : result.nodes) {
    const Node* pad = node.op->leaves_open(decision) ? made_by(graph, uses, node.inputs[0], "pad") : nullptr;
    if (pad && pad->attributes.get_string("mode") == "constant") node.decisions[decision] = {1};
  }
  return result;
}

}  // namespace tw::relay
