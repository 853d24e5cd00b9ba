// Nodes of an ONNX model to nodes of ours, by the rules of its operators.
#pragma once

#include "frontends/inputs.h"
#include "frontends/onnx/proto.h"

namespace tw::frontends::onnx {

Import import_model(const Model& model, const ImportOptions& options);

}  // namespace tw::frontends::onnx
