// Layouts of buffers as index maps: shapes, and moving arrays into them at compile time.
#pragma once

#include <string>
#include <vector>

#include "runtime/ndarray.h"
#include "schedule/schedule.h"

namespace tw {

// The shape of a buffer of `logical` shape after the map.  A dimension `c % 16` is 16 long even when there are fewer
// channels.  Error(schedule) when the map is not one to one or its bounds are not known.
std::vector<Expr> physical_shape(const IndexMap& map, const std::vector<Expr>& logical);

// The array in the new layout, written into `result`, which has the physical shape; padding elements are zero.  Native
// strided loops: fit for weights of 100 MB.
void apply_layout(const NDArray& array, const IndexMap& map, NDArray& result);
NDArray apply_layout(const NDArray& array, const IndexMap& map, const Shape& physical);

}  // namespace tw
