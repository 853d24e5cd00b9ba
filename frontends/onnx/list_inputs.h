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

// What the caller says that it is in every run, if he does.  Error(shape) where that cannot be.
std::optional<NDArray> constant_of(const ValueInfo& info, const ImportOptions& options);
// Error(shape) where the caller names inputs that are none, or absent ones that have to be there.
void check_named_inputs(const std::vector<ValueInfo>& inputs, const ImportOptions& options);

}  // namespace tw::frontends::onnx
