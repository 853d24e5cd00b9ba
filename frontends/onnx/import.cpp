#include "frontends/onnx/import.h"

#include "frontends/onnx/importer.h"
#include "frontends/report.h"
#include "runtime/artifact/file_map.h"

namespace tw::frontends {
namespace {

Import read(std::span<const std::byte> bytes, const ImportOptions& options) {
  const std::string name = options.file_name.empty() ? "model.onnx" : options.file_name;
  return with_file_name(name, [&] { return onnx::import_model(onnx::parse_model(bytes), options); });
}

// f of the file's bytes, and of options that say where the file lies.
template <class F>
auto of_file(const std::filesystem::path& path, ImportOptions options, const F& f) {
  const auto file = FileMap::open(path);
  if (options.folder.empty()) options.folder = path.has_parent_path() ? path.parent_path() : ".";
  options.file_name = path.filename().string();
  return f(file->bytes(), options);
}

}  // namespace

Graph import_onnx(std::span<const std::byte> bytes, const ImportOptions& options) {
  return finish(read(bytes, options));
}

Graph import_onnx_file(const std::filesystem::path& path, const ImportOptions& options) {
  return of_file(path, options, import_onnx);
}

std::vector<Refusal> find_refusals(std::span<const std::byte> bytes, const ImportOptions& options) {
  return read(bytes, options).refusals;
}

std::vector<Refusal> find_refusals_in_file(const std::filesystem::path& path, const ImportOptions& options) {
  return of_file(path, options, find_refusals);
}

std::vector<SourceRow> list_onnx(std::span<const std::byte> bytes, const ImportOptions& options) {
  return read(bytes, options).rows;
}

std::vector<SourceRow> list_onnx_file(const std::filesystem::path& path, const ImportOptions& options) {
  return of_file(path, options, list_onnx);
}

std::string explain_onnx(std::span<const std::byte> bytes, const ImportOptions& options) {
  return explain(read(bytes, options));
}

std::string explain_onnx_file(const std::filesystem::path& path, const ImportOptions& options) {
  return of_file(path, options, explain_onnx);
}

}  // namespace tw::frontends
