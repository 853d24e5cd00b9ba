// Text of a Graph.  parse_graph(to_text(g)) is the same graph, always: constants of up to sixteen elements are written
// out, larger ones are named by the hash of their bytes and travel in a table beside the text.
//
//   graph `main` (x: f32[1, 3, 8, 8]) {
//     w = constant dense(`5b1d…`): f32[4, 3, 3, 3]
//     b = constant [0.5, 1, -1, 0]: f32[4]
//     y = conv(x, w) {pads = [1, 1, 1, 1]} as `conv1`: f32[1, 4, 8, 8]
//     return out = y
//   }
//
// Names that are no identifiers stand in backticks; `_` is an absent input.  A node's name follows `as` where it
// differs from its first result's.  Attributes that have their default are left out.  Types that follow a node are
// checked, not needed.  Outputs that are lists stand so, with names of their own: return y = packed(x, sizes, axis =
// 0).  A blocked layout is part of what is written: f32[1, 64, 8, 8] in c16.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "relay_ir/graph.h"

namespace tw::relay {

using ConstantTable = std::map<std::string, NDArray>;  // by hash

std::string to_text(const Graph& graph, ConstantTable* constants = nullptr);
std::string attribute_text(const AttributeValue& value);
// packed(x, sizes, axis = 0) of the list `at`, which becomes that of the one behind it and those in it.
std::string made_of_text(const std::vector<ListInfo>& lists, size_t& at,
                         const std::function<std::string(size_t)>& tensor);
// So many tensors, and lists that they make up: tensor(i), and list(it, its place), which becomes that of the one
// behind.
std::string values_text(const std::vector<ListInfo>& lists, size_t count, const std::string& separator,
                        const std::function<std::string(size_t)>& tensor,
                        const std::function<std::string(const ListInfo&, size_t& at)>& list);

}  // namespace tw::relay
