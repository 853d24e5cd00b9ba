#include "relay_ir/onnx_import.h"

#include <algorithm>
#include <cmath>

#include "relay_ir/cost.h"
#include "relay_ir/onnx_importer.h"
#include "runtime/artifact/file_map.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/text/printer.h"

namespace tw::relay {
namespace onnx {
namespace {

std::string percent(int64_t part, int64_t whole) {
  if (whole == 0 || part == whole) return "100 %";
  char text[32];  // rounded down: 100 % only if it is all
  std::snprintf(text, sizeof text, "%.1f %%", std::floor(1000.0 * part / whole) / 10);
  return text;
}

std::string padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

struct RefusedOperator {
  int64_t nodes = 0;
  std::vector<std::string> names;
  std::string why;
};

// Lines of "  Op   5 nodes: a (type), b, …", one an operator and reason.
std::string refused_lines(const std::vector<Refusal>& refusals, int64_t& operators) {
  std::map<std::pair<std::string, std::string>, RefusedOperator> by_operator;
  for (const Refusal& refusal : refusals) {
    RefusedOperator& row = by_operator[{refusal.op, refusal.why}];
    row.why = refusal.why;
    if (++row.nodes <= 3) {
      row.names.push_back(refusal.node + (refusal.type.empty() ? "" : " (" + refusal.type + ")"));
    }
  }
  operators = static_cast<int64_t>(by_operator.size());
  size_t width = 0;
  for (const auto& [key, row] : by_operator) width = std::max(width, key.first.size());
  std::string text;
  for (const auto& [key, row] : by_operator) {
    text += "\n  " + padded(key.first, width + 2) +
            padded(std::to_string(row.nodes) + (row.nodes == 1 ? " node:" : " nodes:"), 10);
    for (size_t i = 0; i < row.names.size(); ++i) text += (i ? ", " : "") + row.names[i];
    if (row.nodes > 3) text += ", …";
    if (!row.why.empty()) text += ": " + row.why;
  }
  return text;
}

std::string scaled(double value, const char* unit) {
  static const char* const prefixes[] = {"", " k", " M", " G", " T"};
  int step = 0;
  for (; value >= 1000 && step < 4; ++step) value /= 1000;
  char text[48];
  std::snprintf(text, sizeof text, step ? "%.3g%s%s" : "%.0f%s%s", value, prefixes[step], unit);
  return text;
}

}  // namespace

std::string refusal_text(const ImportResult& result, const std::string& file_name) {
  int64_t operators = 0;
  const std::string lines = refused_lines(result.refusals, operators);
  const auto refused = static_cast<int64_t>(result.refusals.size());
  return file_name + ": " + std::to_string(operators) + (operators == 1 ? " operator in " : " operators in ") +
         std::to_string(refused) + (refused == 1 ? " node is" : " nodes are") + " not supported (opset " +
         std::to_string(result.opset) + ", " + std::to_string(result.nodes) + " nodes, " +
         percent(std::max<int64_t>(0, result.nodes - refused), result.nodes) + " covered)" + lines +
         "\n  help: `tw explain` shows what the model uses; export these parts in another way, or leave them out";
}

}  // namespace onnx

namespace {

// Errors name the file first.
template <class F>
auto with_file_name(const std::string& name, F&& body) {
  try {
    return body();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) throw;
    const std::string text = error.what();
    const std::string code = error.code_text();
    const size_t start = text.compare(0, code.size(), code) == 0 ? text.find_first_not_of(" :", code.size()) : 0;
    const std::string message = text.substr(start == std::string::npos ? 0 : start);
    throw Error(error.code(), message.compare(0, name.size(), name) == 0 ? message : name + ": " + message);
  }
}

}  // namespace

Graph import_onnx(std::span<const std::byte> bytes, const OnnxOptions& options) {
  return with_file_name(options.file_name, [&] {
    const onnx::Model model = onnx::parse_model(bytes);
    onnx::ImportResult result = onnx::import_model(model, options);
    if (!result.refusals.empty()) {
      throw Error(ErrorCode::unsupported, onnx::refusal_text(result, options.file_name));
    }
    return std::move(result.graph);
  });
}

Graph import_onnx_file(const std::filesystem::path& path, OnnxOptions options) {
  const auto file = FileMap::open(path);
  if (options.folder.empty()) options.folder = path.has_parent_path() ? path.parent_path() : ".";
  options.file_name = path.filename().string();
  return import_onnx(file->bytes(), options);
}

std::string explain_onnx(std::span<const std::byte> bytes, const OnnxOptions& options) {
  return with_file_name(options.file_name, [&] {
    const onnx::Model model = onnx::parse_model(bytes);
    const onnx::ImportResult result = onnx::import_model(model, options);
    const auto refused = static_cast<int64_t>(result.refusals.size());
    std::string text = options.file_name + ": opset " + std::to_string(result.opset) + ", " +
                       std::to_string(result.nodes) + " nodes, " +
                       onnx::percent(std::max<int64_t>(0, result.nodes - refused), result.nodes) + " covered";
    if (!model.producer_name.empty()) {
      text += ", written by " + std::string(model.producer_name) +
              (model.producer_version.empty() ? "" : " " + std::string(model.producer_version));
    }
    for (const ValueId id : result.graph.inputs) {
      text += "\n  input       " + result.graph.values[id].name + " " + to_string(result.graph.values[id].type);
    }
    for (size_t i = 0; i < result.graph.outputs.size(); ++i) {
      text += "\n  output      " + result.graph.output_names[i] + " " +
              to_string(result.graph.values[result.graph.outputs[i]].type);
    }
    std::vector<std::pair<int64_t, std::string>> operators;
    for (const auto& [name, count] : result.operators) operators.emplace_back(-count, name);
    std::sort(operators.begin(), operators.end());
    text += "\n  operators  ";
    size_t width = 12;
    for (const auto& [count, name] : operators) {
      const std::string item = " " + name + " " + std::to_string(-count);
      if (width + item.size() > 116) text += "\n             ", width = 12;
      text += item;
      width += item.size();
    }
    double elements = 0, parameter_bytes = 0;
    Expr flops = 0;
    const Uses uses(result.graph);
    for (size_t id = 0; id < result.graph.values.size(); ++id) {
      const Value& value = result.graph.values[id];
      if (!value.constant || (uses.users[id].empty() && !uses.is_output[id])) continue;
      elements += value.constant->size();
      parameter_bytes += value.constant->byte_size();
    }
    for (const Node& node : result.graph.nodes) flops = flops + flops_of(result.graph, node);
    const auto known = as_int(simplify(flops));
    text += "\n  parameters  " + onnx::scaled(elements, "") + " (" + onnx::scaled(parameter_bytes, "B") + ")";
    text += "\n  work        " + (!result.refusals.empty() ? std::string("not known while operators are not supported")
                                  : known ? onnx::scaled(static_cast<double>(*known), "FLOP") + " a run"
                                          : to_text(simplify(flops)) + " FLOP a run");
    if (!result.refusals.empty()) {
      int64_t count = 0;
      const std::string lines = onnx::refused_lines(result.refusals, count);
      text += "\nnot supported:" + lines;
    }
    return text + "\n";
  });
}

}  // namespace tw::relay
