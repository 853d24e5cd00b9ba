// TensorProto → NDArray.  Data come raw, typed, or from a file inside the model's folder.
#pragma once

#include <filesystem>
#include <functional>

#include "frontends/onnx/proto.h"

namespace tw::frontends::onnx {

// Sizes are checked against the data before anything is allocated.
// Error(malformed_model | unsupported | limit | external_data).
NDArray to_array(const Tensor& tensor, const std::filesystem::path& folder);
// What to_array would refuse, found without copying; external data is not opened.
void check_tensor(const Tensor& tensor);
bool is_text(const Tensor& tensor);
// Of a tensor of strings: i64, each by `code_of`.  Error(malformed_model).
NDArray codes_of(const Tensor& tensor, const std::function<int64_t(std::string_view)>& code_of);

}  // namespace tw::frontends::onnx
