// Pads as nodes of their own.
#pragma once

#include "relay_ir/graph.h"

namespace tw::relay {

// x, [n, c, d…], with what the attribute "pads" of a window puts around it, all of one value; the window has no pads
// then.
ValueId padded(Graph& graph, ValueId x, NodeAttributes& window, ValueId value);

}  // namespace tw::relay
