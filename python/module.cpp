#include "python/bind.h"
#include "runtime/error.h"
#include "targets/kernel_cache.h"

namespace tw::python {
namespace {

// Error(code, message): Python's class puts the code in front again.
void raise(const Error& error) {
  const std::string code = error.code_text(), text = error.what();
  const size_t skipped = text.starts_with(code + " ") ? code.size() + 1 : 0;
  const py::object type = py::module_::import("tilewright.error").attr("Error");
  PyErr_SetObject(type.ptr(), type(code, text.substr(skipped)).ptr());
}

}  // namespace

std::string type_text(const TensorInfo& tensor, const Plan& plan) {
  std::vector<std::string> names;
  for (const Symbol& symbol : plan.symbols) names.push_back(symbol.name);
  std::string text = to_string(tensor.dtype) + "[";
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    std::string dim = tensor.dims.empty() ? std::to_string(tensor.shape[i]) : tensor.dims[i].text(names);
    std::erase(dim, ' ');
    text += (i ? "," : "") + dim;
  }
  return text + "]";
}

Signature signature(const std::vector<TensorInfo>& tensors, const Plan& plan) {
  Signature rows;
  for (const TensorInfo& tensor : tensors) rows.emplace_back(tensor.name, type_text(tensor, plan));
  return rows;
}

Lists described(const std::vector<ListInfo>& lists) {
  Lists rows;
  for (const ListInfo& list : lists)
    rows.append(py::make_tuple(list.name, to_string(list.kind), list.first, list.count, list.axis, py::cast(list.words),
                               py::cast(list.numbers)));
  return rows;
}

void log_problems(KernelCache* cache) {
  if (!cache) return;
  for (const std::string& problem : cache->take_problems())
    py::module_::import("logging").attr("getLogger")("tilewright").attr("warning")("%s", problem);
}

}  // namespace tw::python

PYBIND11_MODULE(_core, module) {
  using namespace tw::python;
  module.doc() = "The compiler and runtime; use the package tilewright.";
  module.attr("__version__") = TW_VERSION;
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const tw::Error& error) {
      raise(error);
    }
  });
  // A signature names a class only once that is known.
  bind_device_array(module);
  bind_executable(module);
  bind_tensor_expressions(module);
  bind_schedule(module);
  bind_model(module);
  bind_import(module);
  bind_machine(module);
  bind_tune(module);
}
