// ONNX in: opset 7 to the newest.  Reads the protobuf with explicit limits; initializers as raw, typed or external data
// (inside the model's folder only, no symlinks out).  Shape arithmetic is folded.  Everything unsupported is reported
// at once (TW1003), with node names and types.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "relay_ir/graph.h"

namespace tw::relay {

struct OnnxOptions {
  std::map<std::string, Shape> shapes;   // of inputs, replacing symbolic dimensions
  std::filesystem::path folder;          // for external data; empty: none allowed
  std::string file_name = "model.onnx";  // for messages
};

Graph import_onnx(std::span<const std::byte> bytes, const OnnxOptions& options = {});
Graph import_onnx_file(const std::filesystem::path& path, OnnxOptions options = {});

// What `explain` prints: coverage, operators, FLOPs, parameters; works also when operators are unsupported.
std::string explain_onnx(std::span<const std::byte> bytes, const OnnxOptions& options = {});

}  // namespace tw::relay
