// Inputs of a model that are no tensors: sequences and optional values, of which the caller says how long they are and
// that they are absent (ImportOptions).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "frontends/inputs.h"
#include "frontends/lists.h"
#include "frontends/onnx/proto.h"

namespace tw::frontends::onnx {

// An input as a tensor, or as a list of tensors: f(info, name) of each of these.  Nothing: it cannot be had.
std::optional<ValueId> input_of(const ValueInfo& info, const std::string& name, const ImportOptions& options,
                                Lists& lists, const std::function<ValueId(const ValueInfo&, const std::string&)>& f);
// For people, where it cannot.
std::string why_no_input(const ValueInfo& info, const std::string& name);

}  // namespace tw::frontends::onnx
