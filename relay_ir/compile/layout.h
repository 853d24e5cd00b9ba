// Physical layouts: how values with a channel_block are stored, and how constants are brought into the layout that a
// schedule has chosen for them.
#pragma once

#include "relay_ir/compile/group.h"
#include "schedule/schedule.h"

namespace tw::relay {

// Bytes that a value takes, padding included.
Expr storage_bytes(const Value& value);

// The Func with the buffers of blocked values as they are stored.
Func apply_layouts(const Graph& graph, const Group& group, const Func& func);

// The array's elements in another order; padding is zero.
NDArray pack_array(const NDArray& array, const IndexMap& map);
// How a constant gets to the layout that kernels read.
struct Packing {
  NDArray original;
  std::vector<IndexMap> layouts;  // one after the other
  Shape packed_shape() const;
};
// All of them.  What is packed lies side by side in one storage, in the given order, and so on huge pages however small
// each constant is; what keeps its layout keeps its storage, unless that is a file.
std::vector<NDArray> pack_constants(const std::vector<Packing>& packings, int jobs);

}  // namespace tw::relay
