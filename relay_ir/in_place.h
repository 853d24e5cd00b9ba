// Results that are stored where a value is that nobody needs any more, such as caches that a step of a model updates.
//
// Operators whose result is their first input but for some elements, or that and more behind it, leave open where it
// lies: in_place=1 says that it takes the place of that input.  The value is the same either way.
#pragma once

#include <map>
#include <string>

#include "relay_ir/compile/group.h"
#include "relay_ir/op.h"

namespace tw::relay {

DecisionDef in_place_decision();

// Whether the node writes its result over its first input, or behind it.
bool is_in_place(const Node& node);
// …and changes elements that were there.
bool overwrites(const Node& node);

// Puts groups that read the old elements of a value before the one that overwrites them; otherwise the order stays.
// Error(unsupported) where something that depends on the new elements reads the old ones.
void order_groups(const Graph& graph, std::vector<Group>& groups);

}  // namespace tw::relay
