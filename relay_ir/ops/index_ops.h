// ONNX's operators on indices.
#pragma once

#include "relay_ir/ops/common.h"

namespace tw::relay {

std::vector<OnnxRule> index_rules();
std::vector<OnnxRule> loss_rules();

}  // namespace tw::relay
