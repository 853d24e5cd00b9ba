// ONNX in: opset 7 to the newest.  Reads the protobuf with explicit limits; initializers as raw, typed or external data
// (inside the model's folder only, no symlinks out).  Shape arithmetic is folded.  Everything unsupported is reported
// at once (TW1003), with node names and types.
#pragma once

#include <span>

#include "frontends/inputs.h"

namespace tw::frontends {

Graph import_onnx(std::span<const std::byte> bytes, const ImportOptions& options = {});
Graph import_onnx_file(const std::filesystem::path& path, const ImportOptions& options = {});

// What import_onnx() would refuse: all of it at once.
std::vector<Refusal> find_refusals(std::span<const std::byte> bytes, const ImportOptions& options = {});
std::vector<Refusal> find_refusals_in_file(const std::filesystem::path& path, const ImportOptions& options = {});

// The model's nodes, and which values of the graph of import_onnx theirs are.
std::vector<SourceRow> list_onnx(std::span<const std::byte> bytes, const ImportOptions& options = {});
std::vector<SourceRow> list_onnx_file(const std::filesystem::path& path, const ImportOptions& options = {});

// What `tw explain` prints; works also when operators are unsupported.
std::string explain_onnx(std::span<const std::byte> bytes, const ImportOptions& options = {});
std::string explain_onnx_file(const std::filesystem::path& path, const ImportOptions& options = {});

}  // namespace tw::frontends
