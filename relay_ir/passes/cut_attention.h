// Attention over many keys in parts (ops/attention_op.cpp).
#pragma once

#include "relay_ir/graph.h"
#include "targets/target.h"

namespace tw::relay {

Graph cut_attention(const Graph& graph, const Target& target);

}  // namespace tw::relay
