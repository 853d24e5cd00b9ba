#include "python/device_array.h"

#include <algorithm>

#include "python/array.h"
#include "python/bind.h"
#include "python/dlpack.h"
#include "runtime/device/cuda.h"

namespace tw::python {
namespace {

constexpr StreamHandle legacy_default_stream = 1;

bool has(const py::handle& value, const char* name) {
  return py::hasattr(value, name);
}

std::string tuple_text(const std::vector<int64_t>& values) {
  std::string text;
  for (const int64_t value : values) text += (text.empty() ? "" : ", ") + std::to_string(value);
  return "(" + text + ")";
}

// `strides` in units of `unit` bytes.
void require_dense(const std::string& name, const Shape& shape, const std::vector<int64_t>& strides, int64_t step) {
  if (element_count(shape) == 0) return;
  for (size_t i = shape.size(); i-- > 0; step *= shape[i])
    if (shape[i] > 1 && strides[i] != step)
      throw Error(ErrorCode::input, name + " is not C-contiguous: shape " + tuple_text(shape) + ", strides " +
                                        tuple_text(strides) + "\nhelp: give a contiguous copy, such as .contiguous()");
}

// Of what speaks DLPack and is in a GPU's memory.
bool has_gpu_dlpack(const py::handle& value) {
  if (!has(value, "__dlpack__") || !has(value, "__dlpack_device__")) return false;
  try {
    const int type = value.attr("__dlpack_device__")().cast<std::pair<int, int>>().first;
    return type == dlpack::cuda || type == dlpack::cuda_managed;
  } catch (const py::error_already_set&) {  // it is on none
    return false;
  }
}

// What the device has: `capsule`, which is asked for the tensor once.
template <class Tensor>
std::optional<DeviceArray> taken_from(PyObject* capsule, const std::string& name) {
  if (!PyCapsule_IsValid(capsule, Tensor::name)) return std::nullopt;
  auto* managed = static_cast<Tensor*>(PyCapsule_GetPointer(capsule, Tensor::name));
  PyCapsule_SetName(capsule, Tensor::used_name);
  const std::shared_ptr<const void> owner(managed, [](Tensor* released) {
    const py::gil_scoped_acquire locked;
    if (released->release) released->release(released);
  });
  const dlpack::Tensor& tensor = managed->tensor;
  const std::optional<DType> dtype = dlpack::dtype_of(tensor);
  if (!dtype)
    throw Error(ErrorCode::input, name + " has elements of " + std::to_string(tensor.bits) + " bits, DLPack's type " +
                                      std::to_string(tensor.code) + ", which no model takes\nhelp: convert it");
  const Shape shape(tensor.shape, tensor.shape + tensor.rank);
  if (tensor.strides) require_dense(name, shape, {tensor.strides, tensor.strides + tensor.rank}, 1);
  void* data = static_cast<char*>(tensor.data) + tensor.byte_offset;
  const int gpu = tensor.device_type == dlpack::cuda ? tensor.device_id : gpu_with(data);
  DeviceArray result{NDArray(*dtype, shape, data, owner, gpu), GivenStream(py::none())};
  if constexpr (std::is_same_v<Tensor, dlpack::ManagedVersioned>)
    result.is_read_only = (managed->flags & dlpack::ManagedVersioned::read_only) != 0;
  return result;
}

// The producer lets `stream` wait for what is queued on it, or else the legacy default stream, which a run waits for.
DeviceArray by_dlpack(const py::object& value, const std::string& name, const GivenStream& stream) {
  // None and -1 mean other things there, as 0 does nothing.
  StreamHandle handle = stream.handle.value_or(legacy_default_stream);
  if (handle == 0) handle = legacy_default_stream;
  py::object capsule;
  try {
    try {
      capsule = value.attr("__dlpack__")(py::arg("stream") = handle, py::arg("max_version") = py::make_tuple(1, 0));
    } catch (py::error_already_set& error) {
      if (!error.matches(PyExc_TypeError)) throw;  // of before version 1
      capsule = value.attr("__dlpack__")(py::arg("stream") = handle);
    }
  } catch (py::error_already_set& error) {
    throw Error(ErrorCode::input, name + " is not given away: " + py::str(error.value()).cast<std::string>() +
                                      "\nhelp: give a plain array");
  }
  auto taken = taken_from<dlpack::ManagedVersioned>(capsule.ptr(), name);
  if (!taken) taken = taken_from<dlpack::Managed>(capsule.ptr(), name);
  if (!taken)
    throw Error(ErrorCode::input,
                name + " gives no capsule of DLPack that is still there\nhelp: give the array itself");
  if (!stream.handle) taken->stream = GivenStream(py::int_(legacy_default_stream));
  return std::move(*taken);
}

DeviceArray by_cuda_array_interface(const py::object& value, const std::string& name) {
  const py::dict facts = value.attr("__cuda_array_interface__");
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::input, name + ": its __cuda_array_interface__ " + what);
  };
  for (const char* key : {"shape", "typestr", "data", "version"})
    if (!facts.contains(key)) refuse(std::string("has no ") + key);
  if (facts["version"].cast<int>() < 3)
    refuse("is of a version before 3, which says nothing of streams\nhelp: give it by DLPack");
  if (facts.contains("mask") && !facts["mask"].is_none()) refuse("has a mask\nhelp: give an array without one");
  const py::dtype type = py::dtype::from_args(facts["typestr"]);
  const std::optional<DType> dtype = dtype_of(type);
  if (!dtype) refuse("has the type " + py::str(type).cast<std::string>() + ", which no model takes\nhelp: convert it");
  const auto shape = facts["shape"].cast<Shape>();
  if (facts.contains("strides") && !facts["strides"].is_none())
    require_dense(name, shape, facts["strides"].cast<std::vector<int64_t>>(), dtype->bytes());
  const auto [address, is_read_only] = facts["data"].cast<std::pair<uintptr_t, bool>>();
  const auto release = [](py::object* kept) {
    const py::gil_scoped_acquire locked;
    delete kept;
  };
  const std::shared_ptr<py::object> owner(new py::object(value), release);
  const py::object stream = facts.contains("stream") ? py::object(facts["stream"]) : py::none();
  void* data = reinterpret_cast<void*>(address);
  return {NDArray(*dtype, shape, data, owner, gpu_with(data)), GivenStream(stream), is_read_only};
}

bool is_on_gpu(const py::object& value) {
  if (py::isinstance<py::array>(value)) return false;
  if (py::isinstance<DeviceArray>(value)) return true;
  return has_gpu_dlpack(value) || has(value, "__cuda_array_interface__");
}

// Of what is_on_gpu.  `is_written`: by a run.
py::object view_on_gpu(const py::object& value, const std::string& name, const py::object& stream, bool is_written) {
  if (py::isinstance<DeviceArray>(value)) return value;
  DeviceArray view =
      has_gpu_dlpack(value) ? by_dlpack(value, name, GivenStream(stream)) : by_cuda_array_interface(value, name);
  if (is_written && view.is_read_only)
    throw Error(ErrorCode::input, name + " may only be read, and a run would write to it\nhelp: give another array");
  return py::cast(std::move(view));
}

DeviceArray to_device(const py::array& array, int gpu) {
  const NDArray from = view_of(array, "the array");
  NDArray to;
  {
    const py::gil_scoped_release unlocked;
    to = new_gpu_array(from.dtype(), from.shape(), gpu);
    copy_gpu_array(from, to, legacy_default_stream);
  }
  return {to, GivenStream(py::none())};
}

py::array to_host(const DeviceArray& from) {
  NDArray to(from.array.dtype(), from.array.shape());
  {
    const py::gil_scoped_release unlocked;
    copy_gpu_array(from.array, to, from.stream.handle.value_or(legacy_default_stream));
  }
  return to_numpy(to);
}

py::typing::Tuple<int64_t, py::ellipsis> extents_of(const DeviceArray& array) {
  return py::tuple(py::cast(array.array.shape()));
}

Facts cuda_array_interface(const DeviceArray& array) {
  if (array.array.dtype().is_narrow() || array.array.dtype() == bf16)
    throw py::attribute_error("__cuda_array_interface__ has no " + to_string(array.array.dtype()) + "; DLPack has");
  Facts facts;
  facts["shape"] = extents_of(array);
  facts["typestr"] = numpy_dtype(array.array.dtype()).attr("str");
  facts["data"] = py::make_tuple(reinterpret_cast<uintptr_t>(array.array.data()), array.is_read_only);
  facts["version"] = 3;
  facts["strides"] = py::none();
  facts["stream"] = py::none();
  if (const auto handle = array.stream.handle) facts["stream"] = *handle == 0 ? legacy_default_stream : *handle;
  return facts;
}

// A capsule of what a consumer takes over.
template <class Tensor>
py::object capsule_of(const DeviceArray& array) {
  struct Kept {
    Tensor managed{};
    NDArray array;
    Shape shape, strides;
  };
  const std::optional<uint8_t> code = dlpack::code_of(array.array.dtype());
  if (!code) throw py::buffer_error("DLPack has no " + to_string(array.array.dtype()) + " of a byte each");
  auto kept = std::make_unique<Kept>();
  kept->array = array.array;
  kept->shape = array.array.shape();
  kept->strides.assign(kept->shape.size(), 1);
  for (size_t i = kept->shape.size(); i-- > 1;) kept->strides[i - 1] = kept->strides[i] * kept->shape[i];
  const DType dtype = array.array.dtype();
  kept->managed.tensor = {kept->array.data(),
                          dlpack::cuda,
                          kept->array.gpu(),
                          kept->array.rank(),
                          *code,
                          static_cast<uint8_t>(dtype.bytes() * 8),
                          1,
                          kept->shape.data(),
                          kept->strides.data(),
                          0};
  kept->managed.owner = kept.get();
  kept->managed.release = [](Tensor* managed) { delete static_cast<Kept*>(managed->owner); };
  if constexpr (std::is_same_v<Tensor, dlpack::ManagedVersioned>) {
    kept->managed.major = 1;
    kept->managed.flags = array.is_read_only ? dlpack::ManagedVersioned::read_only : 0;
  }
  const auto drop = [](PyObject* capsule) {  // which nobody has taken
    if (!PyCapsule_IsValid(capsule, Tensor::name)) return;
    auto* managed = static_cast<Tensor*>(PyCapsule_GetPointer(capsule, Tensor::name));
    managed->release(managed);
  };
  PyObject* capsule = PyCapsule_New(&kept->managed, Tensor::name, drop);
  if (!capsule) throw py::error_already_set();
  kept.release();
  return py::reinterpret_steal<py::object>(capsule);
}

py::object to_dlpack(const DeviceArray& array, const std::optional<int64_t>& stream,
                     const std::optional<std::pair<int, int>>& max_version,
                     const std::optional<std::pair<int, int>>& dl_device, const std::optional<bool>& copy) {
  if (dl_device && *dl_device != std::pair<int, int>(dlpack::cuda, array.array.gpu()))
    throw py::buffer_error("the array is in a GPU's memory: numpy() copies it to the host");
  if (copy.value_or(false)) throw py::buffer_error("no copies are made: numpy() and tw.to_device do");
  if (stream && (*stream == 0 || *stream < -1)) throw py::value_error("stream=" + std::to_string(*stream));
  constexpr int64_t waits_itself = -1;
  const int64_t consumer = stream.value_or(legacy_default_stream);
  if (array.stream.handle && consumer != waits_itself)
    wait_for_stream(static_cast<StreamHandle>(consumer), *array.stream.handle, array.array.gpu());
  const bool has_versions = max_version && max_version->first >= 1;
  return has_versions ? capsule_of<dlpack::ManagedVersioned>(array) : capsule_of<dlpack::Managed>(array);
}

}  // namespace

GivenStream::GivenStream(py::object given) : object(std::move(given)) {
  if (object.is_none()) return;
  const auto refuse = [&] {
    throw Error(ErrorCode::input, "stream=" + py::repr(object).cast<std::string>() +
                                      " is no stream\nhelp: give the handle of one as an int, such as "
                                      "torch.cuda.current_stream().cuda_stream, or an object with __cuda_stream__");
  };
  py::object handle_object = object;
  if (has(object, "__cuda_stream__")) {
    const py::object pair = object.attr("__cuda_stream__")();
    if (!py::isinstance<py::tuple>(pair) || py::len(pair) != 2) refuse();
    handle_object = py::tuple(pair)[1];
  }
  if (!py::isinstance<py::int_>(handle_object) || py::isinstance<py::bool_>(handle_object)) refuse();
  const size_t value = PyLong_AsSize_t(handle_object.ptr());
  if (PyErr_Occurred()) {
    PyErr_Clear();
    refuse();
  }
  handle = value;
}

std::vector<NDArray> views_of(const std::vector<GivenArray>& arrays, const std::string& kind) {
  std::vector<NDArray> views;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const auto* on_host = std::get_if<py::array>(&arrays[i]);
    views.push_back(on_host ? view_of(*on_host, kind + " " + std::to_string(i))
                            : std::get<DeviceArray*>(arrays[i])->array);
  }
  return views;
}

RunOptions options_of(const std::vector<GivenArray>& inputs, const std::vector<GivenArray>& outputs,
                      const GivenStream& stream) {
  RunOptions options;
  options.stream = stream.handle;
  for (const auto* arrays : {&inputs, &outputs})
    for (const GivenArray& array : *arrays) {
      auto* const* given = std::get_if<DeviceArray*>(&array);
      if (!given || !(*given)->stream.handle) continue;
      const StreamHandle other = *(*given)->stream.handle;
      if (std::ranges::find(options.after, other) == options.after.end()) options.after.push_back(other);
    }
  return options;
}

void bind_device_array(py::module_& module) {
  py::class_<DeviceArray>(
      module, "DeviceArray",
      "An array in the memory of a GPU: what `Executable.run(…, outputs=\"device\")` gives and\n"
      "`to_device` makes, and what other libraries take by DLPack (torch.from_dlpack) and\n"
      "__cuda_array_interface__ (cupy.asarray), without a copy.  Executables for CUDA take it as an\n"
      "input and in `out`.  It is C-contiguous.")
      .def_property_readonly("shape", &extents_of, "Extents.")
      .def_property_readonly(
          "dtype", [](const DeviceArray& a) -> py::object { return numpy_dtype(a.array.dtype()); },
          "numpy's type of elements; bf16 is that of the package ml_dtypes.")
      .def_property_readonly(
          "nbytes", [](const DeviceArray& a) { return a.array.byte_size(); }, "Of all elements.")
      .def_property_readonly(
          "gpu", [](const DeviceArray& a) { return a.array.gpu(); }, "The ordinal of the GPU.")
      .def_property_readonly(
          "stream", [](const DeviceArray& a) { return a.stream.object; },
          "The stream in which the run that makes it was queued, as it was given; None: it is complete.")
      .def("numpy", &to_host, "A copy on the host, once all that is queued on it is done.")
      .def(
          "__array__",
          [](const DeviceArray& a, const py::object& dtype, const py::object& copy) -> py::array {
            if (copy.is(py::bool_(false))) throw py::value_error("an array of a GPU is only copied to the host");
            const py::array result = to_host(a);
            return dtype.is_none() ? result : py::array(result.attr("astype")(dtype));
          },
          py::arg("dtype") = py::none(), py::arg("copy") = py::none())
      .def_property_readonly("__cuda_array_interface__", &cuda_array_interface)
      .def("__dlpack__", &to_dlpack, py::kw_only(), py::arg("stream") = py::none(), py::arg("max_version") = py::none(),
           py::arg("dl_device") = py::none(), py::arg("copy") = py::none())
      .def("__dlpack_device__", [](const DeviceArray& a) { return std::pair<int, int>(dlpack::cuda, a.array.gpu()); })
      .def("__len__",
           [](const DeviceArray& a) {
             if (a.array.rank() == 0) throw py::type_error("an array without dimensions has no length");
             return a.array.shape()[0];
           })
      .def("__repr__", [](const DeviceArray& a) {
        std::string shape;
        for (const int64_t extent : a.array.shape()) shape += (shape.empty() ? "" : ",") + std::to_string(extent);
        return "<tilewright.DeviceArray " + to_string(a.array.dtype()) + "[" + shape + "] on GPU " +
               std::to_string(a.array.gpu()) + ">";
      });
  module.def("is_on_gpu", &is_on_gpu, py::arg("value"), "Whether it is an array in a GPU's memory, of any library.");
  module.def(
      "view_on_gpu", &view_on_gpu, py::arg("value"), py::arg("name"), py::arg("stream"), py::arg("is_written"),
      "A DeviceArray of what `is_on_gpu`, without copying: ready in the stream, or for a run without one.  Error\n"
      "(TW1101) names it where it is not contiguous, of no known type, or only to be read.");
  module.def("to_device", &to_device, py::arg("array"), py::arg("gpu") = 0,
             "A copy of a C-contiguous array in the memory of a GPU.");
}

}  // namespace tw::python
