// Faults that tests put into the compiler, to see that they are found: TW_FAULT=swapped_operand@sub3, for the node of
// that name.  Builds without tests know nothing of them.
//
//   wrong_constant    fold_batch_norm     weights that it has made are too large by one percent
//   wrong_rounding    eliminate_common    the result has the bits of a bf16
//   wrong_axis        hoist_slices        the axis is the one before it
//   wrong_epsilon     recognise           epsilon is a hundred times what it should be
//   swapped_operand   merge_projections   the first two operands have changed places
//   error             merge_projections   ends with TW1404
//   crash             merge_projections   ends the process
//   hang              merge_projections   never ends
#pragma once

#include <string_view>

#include "relay_ir/graph.h"

namespace tw::python {

// What the pass gives if it has the fault that TW_FAULT names, and else what it has given.
relay::Graph with_seeded_fault(std::string_view pass, relay::Graph graph);

}  // namespace tw::python
