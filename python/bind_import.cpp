// Models on their way into a graph.
#include <variant>

#include "frontends/onnx/import.h"
#include "frontends/report.h"
#include "python/array.h"
#include "python/bind.h"
#include "tensor_ir/te.h"

namespace tw::python {
namespace {

using frontends::Import;

// A number, or (name, low, high) of an open dimension, where high is -1 for no end and the name may be empty.
using Dimension = std::variant<int64_t, std::tuple<std::string, int64_t, int64_t>>;
// Nothing: an optional input that is not there.
using Shapes = std::map<std::string, std::optional<std::vector<Dimension>>>;

std::span<const std::byte> bytes_of(std::string_view data) {
  return std::as_bytes(std::span(data.data(), data.size()));
}

frontends::ImportOptions options_for(const Shapes& shapes) {
  frontends::ImportOptions options;
  for (const auto& [input, shape] : shapes) {
    if (!shape) {
      options.absent.insert(input);
      continue;
    }
    std::vector<frontends::DimensionOption>& dims = options.shapes[input];
    for (const Dimension& dim : *shape) {
      if (const auto* size = std::get_if<int64_t>(&dim)) {
        dims.emplace_back(*size);
        continue;
      }
      const auto& [name, low, high] = std::get<1>(dim);
      frontends::DimensionOption& open = dims.emplace_back();
      open.name = name;
      open.bounds.low = low;
      if (high >= 0) open.bounds.high = high;
    }
  }
  return options;
}

// By (domain, type): a function of the node's name, its attributes as JSON, and placeholders of its inputs' types.  It
// gives (expression, update, schedule), Funcs or None and a name, or (function, library, (outputs, sizes)): of each
// output (element type, shape), where None is a size that the function `sizes` says in the run.
using PythonOperators = std::map<std::pair<std::string, std::string>, PythonFunction>;

frontends::CustomResult call_operator(const py::handle& lower, const frontends::CustomUse& use) {
  const py::gil_scoped_acquire locked;
  std::vector<te::Tensor> inputs;
  for (size_t i = 0; i < use.inputs.size(); ++i)
    inputs.push_back(te::placeholder("x" + std::to_string(i), use.inputs[i].shape, use.inputs[i].dtype));
  const py::object result = lower(use.node, use.attributes, inputs);
  frontends::CustomResult custom;
  const auto [first, second, third] = result.cast<std::tuple<py::object, py::object, py::object>>();
  if (!py::isinstance<py::str>(first)) {
    if (!first.is_none()) custom.expression = first.cast<Func>();
    if (!second.is_none()) custom.update = second.cast<Func>();
    custom.schedule = third.cast<std::string>();
    return custom;
  }
  custom.function = first.cast<std::string>(), custom.library = second.cast<std::string>();
  const auto [outputs, sizes] = third.cast<std::pair<std::vector<std::pair<std::string, py::sequence>>, std::string>>();
  custom.sizes = sizes;
  for (const auto& [dtype, shape] : outputs) {
    const auto known = parse_element_type(dtype);
    if (!known) throw Error(ErrorCode::unsupported, "there is no element type " + dtype);
    frontends::TensorType& type = custom.outputs.emplace_back(frontends::TensorType{*known, {}});
    for (const py::handle extent : shape) type.shape.push_back(extent.is_none() ? Expr() : extent_of(extent));
  }
  return custom;
}

// Either `path` or, when it is empty, the model's own bytes.
Import read_onnx(const std::string& path, const py::bytes& model, const Shapes& shapes,
                 const PythonOperators& operators, bool checks, const std::map<std::string, py::array>& constants) {
  frontends::ImportOptions options = options_for(shapes);
  options.checks = checks;
  for (const auto& [name, array] : constants) options.constants[name] = view_of(array, name);
  for (const auto& [key, lower] : operators)
    options.operators[key] = [lower = py::handle(lower)](const auto& use) { return call_operator(lower, use); };
  const std::string_view data = model;
  const py::gil_scoped_release unlocked;
  return path.empty() ? frontends::read_onnx(bytes_of(data), options) : frontends::read_onnx_file(path, options);
}

// (name, operator, inputs, outputs) of each of the model's nodes; of a value its name and its place in the graph's, -1
// for none.
using SourceValues = Rows<std::string, int>;
using SourceRows = Rows<std::string, std::string, SourceValues, SourceValues>;

SourceRows rows_of(const Import& import) {
  const auto described = [](const std::vector<frontends::SourceValue>& values) {
    SourceValues rows;
    for (const frontends::SourceValue& value : values) rows.append(py::make_tuple(value.name, value.value));
    return rows;
  };
  SourceRows rows;
  for (const frontends::SourceRow& row : import.rows)
    rows.append(py::make_tuple(row.name, row.op, described(row.inputs), described(row.outputs)));
  return rows;
}

// (FLOPs, bytes of parameters, bytes written) of each.
Rows<int64_t, int64_t, int64_t> costs_of(const Import& import) {
  Rows<int64_t, int64_t, int64_t> rows;
  for (const frontends::SourceRow& row : import.rows) {
    const frontends::SourceCost cost = frontends::cost_of(import, row);
    rows.append(py::make_tuple(cost.flops, cost.parameters, cost.written));
  }
  return rows;
}

// (operator, node, why) of each.
Rows<std::string, std::string, std::string> refusals_of(const Import& import) {
  Rows<std::string, std::string, std::string> rows;
  for (const frontends::Refusal& refusal : import.refusals)
    rows.append(py::make_tuple(refusal.op, refusal.node, refusal.why));
  return rows;
}

// "f32[1,n]" of each of the graph's values, in order.
std::vector<std::string> types_of(const Import& import) {
  std::vector<std::string> types;
  for (const relay::Value& value : import.graph.values) types.push_back(text_of(value.type));
  return types;
}

}  // namespace

std::string text_of(const relay::TensorType& type) {
  std::string text = relay::to_string(type);
  std::erase(text, ' ');
  return text;
}

void bind_import(py::module_& module) {
  py::class_<Import>(module, "Import", "A model that was read, also where some of its nodes are not supported.")
      .def_property_readonly(
          "rows", &rows_of,
          "(name, operator, inputs, outputs) of each node of the model; of a value its name and its\n"
          "place among the graph's values, -1 for none.")
      .def_property_readonly("costs", &costs_of, "(FLOPs, bytes of parameters, bytes written) of each row.")
      .def_property_readonly("types", &types_of, "The type of each of the graph's values, such as \"f32[1,n]\".")
      .def_property_readonly("refusals", &refusals_of, "(operator, node, why) of each that is not supported.")
      .def_property_readonly("text", &frontends::explain, "What there is to say of the model, for people.")
      .def(
          "finish", [](Import& import) { return frontends::finish(std::move(import)); },
          "The graph, once: the import is empty then.  Error (TW1003) names all nodes that are not supported.");
  module.def("read_onnx", &read_onnx, py::arg("path"), py::arg("model"), py::arg("shapes"), py::arg("operators"),
             py::arg("checks") = true, py::arg("constants") = std::map<std::string, py::array>(),
             "Reads an ONNX model: a file or, where `path` is \"\", the model's own bytes.");
}

}  // namespace tw::python
