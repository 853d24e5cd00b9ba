// ONNX's shape operators.
#pragma once

#include "relay_ir/ops/common.h"

namespace tw::relay {

std::vector<OnnxRule> shape_rules();
std::vector<OnnxRule> constant_rules();  // those whose result is known at import

// Some ranges of one axis, one after the other.
std::vector<ValueId> emit_split(OnnxNodeContext& c, ValueId x, int axis, const std::vector<int64_t>& sizes);

}  // namespace tw::relay
