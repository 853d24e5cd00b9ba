// ONNX in: opset 7 to the newest.  Reads the protobuf with explicit limits; initializers as raw, typed or external data
// (inside the model's folder only, no symlinks out).  Shape arithmetic is folded.  Everything unsupported is reported
// at once (TW1003), with node names and types.
#pragma once

#include <span>

#include "frontends/inputs.h"

namespace tw::frontends {

Graph import_onnx(std::span<const std::byte> bytes, const ImportOptions& options = {});
Graph import_onnx_file(const std::filesystem::path& path, const ImportOptions& options = {});

// The same, before anybody has asked whether all of it is supported: also its nodes and what was refused, for
// `explain`.
Import read_onnx(std::span<const std::byte> bytes, const ImportOptions& options = {});
Import read_onnx_file(const std::filesystem::path& path, const ImportOptions& options = {});

}  // namespace tw::frontends
