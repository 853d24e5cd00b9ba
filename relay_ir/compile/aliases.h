// Which values are other names of the same bytes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "relay_ir/compile/group.h"

namespace tw::relay {

struct Aliases {
  std::vector<ValueId> root;           // by ValueId: whose bytes it shares
  std::vector<Expr> offset;            // by ValueId: where in them it begins
  std::map<size_t, int32_t> in_place;  // output → the input whose array it is, too; by position
};

// A view is another name of what its input is; so is, in memory, what is updated in place.  Where kernels can make all
// parts of a concatenation in their places, the parts are views of the result, and its group goes.  `in_place`: output
// → input, by name.  Other outputs that are inputs, constants, parts of a value, carried by a loop or the same as
// another output become copies, each a group of its own.
Aliases resolve_aliases(Graph& graph, std::vector<Group>& groups, const std::map<std::string, std::string>& in_place);

}  // namespace tw::relay
