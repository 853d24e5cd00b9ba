// A model for the runs in which open dimensions are 0.
//
// Everything that is proven of kernels and graphs may rely on open dimensions having an element, so such a run has a
// plan of its own, in which the dimension is the number 0: most of the network is then gone.  Kernels that do not
// depend on the dimension are the model's.
#pragma once

#include <vector>

#include "relay_ir/compile/profile.h"

namespace tw::relay {

// In the order in which a run takes the first that is for its sizes.  Runs with a 0 that none is for cannot be had.
std::vector<SpecialGraph> empty_runs(const Graph& model);

}  // namespace tw::relay
