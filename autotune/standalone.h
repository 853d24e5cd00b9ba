// One scheduled Func as an executable of its own, with made-up weights.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/executable.h"
#include "targets/compile_image.h"

namespace tw::autotune {

// By set, input_sets (exchange.h) of them: made-up arrays for all buffers of a Func with constant shapes; outputs are
// zero.  Set 0 is as activations are, set 1 has the extremes of integers and the smallest and largest magnitudes that
// sums of floats bear, set 2 mixes magnitudes.  Weights (constants) are the same in all sets, and one piece of memory.
std::vector<std::vector<NDArray>> made_up_buffers(const Func& func, uint64_t seed);

// `buffers`: for the unscheduled Func, in whose layout constants are taken; inputs and outputs are the others, in
// order. What a primitive, lowering or code generation refuses is their Error.
Executable build_standalone(const Func& func, const Schedule& schedule, const Target& target,
                            const std::vector<NDArray>& buffers, CodegenReport* report = nullptr);

// Those of the Func's buffers that are inputs or outputs of its executable.
std::vector<NDArray> inputs_among(const Func& func, const std::vector<NDArray>& buffers);
std::vector<NDArray> outputs_among(const Func& func, const std::vector<NDArray>& buffers);

// By output and element: what nobody writes or reads, the last lanes of blocks that channels do not fill.  No elements:
// there are none such.
using Padding = std::vector<std::vector<bool>>;
// Of elements that two runs of one kernel left as they were, filled with either poison (exchange.h), those that can be
// padding: in some rows the last lanes, in all of these as many, never a whole row.
Padding padding_of(const std::vector<NDArray>& candidate, const std::vector<NDArray>& incumbent);

// Makes it zero: what it was filled with is larger than any number beside it.
void clear_padding(std::vector<NDArray>& outputs, const Padding& padding);

// Where outputs differ by more than rounding does; empty: nowhere.  Integers are to be equal.
std::string find_difference(const std::vector<NDArray>& outputs, const std::vector<NDArray>& expected,
                            const Padding& padding = {});
// The same of a whole network, where small differences grow and flip roundings to small types: floats only, by a
// tolerance that a wrong kernel exceeds.
std::string find_network_difference(const std::vector<NDArray>& outputs, const std::vector<NDArray>& expected);

}  // namespace tw::autotune
