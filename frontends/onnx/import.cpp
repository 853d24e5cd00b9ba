#include "frontends/onnx/import.h"

#include "frontends/onnx/importer.h"
#include "frontends/report.h"
#include "runtime/artifact/file_map.h"

namespace tw::frontends {

Import read_onnx(std::span<const std::byte> bytes, const ImportOptions& options) {
  const std::string name = options.file_name.empty() ? "the model" : options.file_name;
  return with_file_name(name, [&] { return onnx::import_model(onnx::parse_model(bytes), options); });
}

Import read_onnx_file(const std::filesystem::path& path, const ImportOptions& options) {
  const auto file = FileMap::open(path);
  ImportOptions here = options;
  if (here.folder.empty()) here.folder = path.has_parent_path() ? path.parent_path() : ".";
  here.file_name = path.filename().string();
  return read_onnx(file->bytes(), here);
}

Graph import_onnx(std::span<const std::byte> bytes, const ImportOptions& options) {
  return finish(read_onnx(bytes, options));
}

Graph import_onnx_file(const std::filesystem::path& path, const ImportOptions& options) {
  return finish(read_onnx_file(path, options));
}

}  // namespace tw::frontends
