// Nodes of a user's own operators (frontends/custom_operator.h).
#pragma once

#include "frontends/custom_operator.h"
#include "frontends/onnx/context.h"

namespace tw::frontends::onnx {

std::vector<ValueId> import_custom(Context& context, const std::string& name, const CustomOperator& custom);

}  // namespace tw::frontends::onnx
