// Results that are other names of bytes that are there already.
#pragma once

#include <cstdint>
#include <optional>

#include "relay_ir/graph.h"

namespace tw::relay {

// Bytes from the start of the node's first input at which its result lies; nothing when the result has memory of its
// own.  Views (reshape …) lie at 0, slices of whole rows where these begin, if that is a multiple of 64, and what a
// loop picks in each step wherever it is.
std::optional<Expr> view_offset(const Graph& graph, const Node& node);

// By ValueId: the value whose elements it sees, through views of views; itself where it is none.
std::vector<ValueId> viewed_values(const Graph& graph);

}  // namespace tw::relay
