#include <filesystem>

#include "python/bind.h"
#include "relay_ir/compile.h"
#include "relay_ir/onnx_import.h"
#include "relay_ir/printer.h"
#include "runtime/file_map.h"

namespace tw::python {
namespace {

using Shapes = std::map<std::string, Shape>;

std::span<const std::byte> bytes_of(const std::string& data) {
  return std::as_bytes(std::span(data.data(), data.size()));
}

relay::OnnxOptions options_for(const Shapes& shapes) {
  relay::OnnxOptions options;
  options.shapes = shapes;
  return options;
}

// Either `path` or, when it is empty, the model's own bytes.
relay::Graph load_onnx(const std::string& path, const std::string& data, const Shapes& shapes) {
  const relay::OnnxOptions options = options_for(shapes);
  return path.empty() ? relay::import_onnx(bytes_of(data), options) : relay::import_onnx_file(path, options);
}

std::string explain_onnx(const std::string& path, const std::string& data, const Shapes& shapes) {
  relay::OnnxOptions options = options_for(shapes);
  if (path.empty()) return relay::explain_onnx(bytes_of(data), options);
  const auto file = FileMap::open(path);
  options.folder = std::filesystem::path(path).parent_path();
  options.file_name = std::filesystem::path(path).filename();
  return relay::explain_onnx(file->bytes(), options);
}

// As type_text writes it.
std::string text_of(const relay::TensorType& type) {
  std::string text = relay::to_string(type);
  std::erase(text, ' ');
  return text;
}

Signature inputs_of(const relay::Graph& graph) {
  Signature rows;
  for (const relay::ValueId id : graph.inputs) rows.emplace_back(graph.value(id).name, text_of(graph.value(id).type));
  return rows;
}

Signature outputs_of(const relay::Graph& graph) {
  Signature rows;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    rows.emplace_back(graph.output_name(i), text_of(graph.value(graph.outputs[i]).type));
  }
  return rows;
}

}  // namespace

void bind_model(py::module_& module) {
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  py::class_<relay::Graph>(module, "Graph")
      .def_property_readonly("inputs", &inputs_of)
      .def_property_readonly("outputs", &outputs_of)
      .def_property_readonly("text", [](const relay::Graph& g) { return relay::to_text(g); });
  module.def("load_onnx", &load_onnx, unlocked);
  module.def("explain_onnx", &explain_onnx, unlocked);
  module.def(
      "compile",
      [](const relay::Graph& graph, const std::string& target, int threads) {
        relay::CompileOptions options;
        options.threads = threads;
        return relay::compile(graph, parse_target(target), options);
      },
      unlocked);
}

}  // namespace tw::python
