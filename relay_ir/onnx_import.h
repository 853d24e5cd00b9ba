// ONNX in: opset 7 to the newest.  Reads the protobuf with explicit limits; initializers as raw, typed or external data
// (inside the model's folder only, no symlinks out).  Shape arithmetic is folded.  Everything unsupported is reported
// at once (TW1003), with node names and types.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "relay_ir/graph.h"
#include "tensor_ir/dimension.h"

namespace tw::relay {

// What the caller says of one dimension of an input.
struct DimensionOption {
  std::optional<int64_t> size;   // fixed
  std::string name;              // open, under this name; empty: as the model has it
  DimensionBounds bounds = {1};  // of an open one

  DimensionOption() = default;
  DimensionOption(int64_t fixed) {  // NOLINT: a number is a dimension; a negative one leaves it as it is
    if (fixed >= 0) size = fixed;
  }
};

struct OnnxOptions {
  std::map<std::string, std::vector<DimensionOption>> shapes;  // of inputs, by name
  std::filesystem::path folder;                                // for external data; empty: none allowed
  std::string file_name = "model.onnx";                        // for messages
};

Graph import_onnx(std::span<const std::byte> bytes, const OnnxOptions& options = {});
Graph import_onnx_file(const std::filesystem::path& path, OnnxOptions options = {});

// What `explain` prints: coverage, operators, FLOPs, parameters; works also when operators are unsupported.
std::string explain_onnx(std::span<const std::byte> bytes, const OnnxOptions& options = {});

}  // namespace tw::relay
