// The parts of the ONNX importer: tensors to arrays, nodes to relay nodes by the operators' rules, and what was
// refused.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "relay_ir/graph.h"
#include "relay_ir/onnx_import.h"
#include "relay_ir/onnx_proto.h"

namespace tw::relay::onnx {

// The elements of `tensor` as an array of our own: sizes are checked against the data before anything is allocated.
// Error(malformed_model | unsupported | limit | external_data).
NDArray to_array(const Tensor& tensor, const std::filesystem::path& folder);
// What to_array would refuse, found without copying; external data is not opened.
void check_tensor(const Tensor& tensor);

struct Refusal {
  std::string op;    // "DeformConv", "com.microsoft.FusedConv"
  std::string node;  // its name
  std::string type;  // of the first input, "" when it is not known
  std::string why;   // "" : the operator as a whole is not known
};

struct ImportResult {
  relay::Graph graph;  // complete only when nothing was refused
  std::vector<Refusal> refusals;
  std::map<std::string, int64_t> operators;  // how often each occurs, functions and branches inlined
  int64_t nodes = 0;
  int64_t opset = 0;  // of the standard domain
};

ImportResult import_model(const Model& model, const OnnxOptions& options);
// All of the refusals as the text of one TW1003.
std::string refusal_text(const ImportResult& result, const std::string& file_name);

}  // namespace tw::relay::onnx
