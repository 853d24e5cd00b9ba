#include "python/array.h"

namespace tw::python {

namespace py = pybind11;

namespace {

// Types that numpy has from the package ml_dtypes, by their names there.
constexpr std::pair<DType, const char*> ml_dtypes_names[] = {{bf16, "bfloat16"},
                                                             {i4, "int4"},
                                                             {u4, "uint4"},
                                                             {i2, "int2"},
                                                             {u2, "uint2"},
                                                             {f8e4m3fn, "float8_e4m3fn"},
                                                             {f8e5m2, "float8_e5m2"},
                                                             {f8e4m3fnuz, "float8_e4m3fnuz"},
                                                             {f8e8m0, "float8_e8m0fnu"},
                                                             {f8e5m2fnuz, "float8_e5m2fnuz"},
                                                             {f4e2m1, "float4_e2m1fn"}};

}  // namespace

// By numpy's kind and width: the same on every platform, where names and characters of types are not.
std::optional<DType> dtype_of(const py::dtype& dtype) {
  const bool is_of_numpy = dtype.kind() != 'V' && (dtype.kind() != 'f' || dtype.itemsize() > 1);
  if (!is_of_numpy) {
    const auto name = dtype.attr("name").cast<std::string>();
    for (const auto& [known, text] : ml_dtypes_names)
      if (name == text) return known;
    return std::nullopt;
  }
  const int bits = static_cast<int>(dtype.itemsize()) * 8;
  if (dtype.byteorder() == '>') return std::nullopt;
  switch (dtype.kind()) {
    case 'b':
      return boolean;
    case 'i':
      return DType{DTypeKind::signed_integer, static_cast<uint8_t>(bits)};
    case 'u':
      return DType{DTypeKind::unsigned_integer, static_cast<uint8_t>(bits)};
    case 'f':
      if (bits > 64) return std::nullopt;
      return DType{DTypeKind::floating, static_cast<uint8_t>(bits)};
    default:
      return std::nullopt;
  }
}

py::dtype numpy_dtype(DType dtype) {
  for (const auto& [known, name] : ml_dtypes_names) {
    if (known != dtype) continue;
    try {
      return py::dtype::from_args(py::module_::import("ml_dtypes").attr(name));
    } catch (py::error_already_set&) {
      throw Error(ErrorCode::unsupported,
                  "numpy has no " + to_string(dtype) + " of its own\nhelp: pip install ml_dtypes");
    }
  }
  if (dtype == boolean) return py::dtype::of<bool>();
  const char kind = dtype.is_float() ? 'f' : dtype.is_signed_integer() ? 'i' : 'u';
  return py::dtype(std::string(1, kind) + std::to_string(dtype.bytes()));
}

NDArray view_of(const py::array& array, const std::string& name) {
  const std::optional<DType> dtype = dtype_of(array.dtype());
  if (!dtype) {
    throw Error(ErrorCode::input, name + " has the numpy type " + py::str(array.dtype()).cast<std::string>() +
                                      ", which no model takes\nhelp: convert it with .astype()");
  }
  check((array.flags() & py::array::c_style) != 0, "view_of: the array is C-contiguous");
  return NDArray(*dtype, Shape(array.shape(), array.shape() + array.ndim()), const_cast<void*>(array.data()), nullptr);
}

std::vector<NDArray> views_of(const std::vector<py::array>& arrays, const std::string& kind) {
  std::vector<NDArray> views;
  for (size_t i = 0; i < arrays.size(); ++i) views.push_back(view_of(arrays[i], kind + " " + std::to_string(i)));
  return views;
}

py::array to_numpy(const NDArray& array) {
  auto* kept = new NDArray(array);
  const py::capsule owner(kept, [](void* pointer) { delete static_cast<NDArray*>(pointer); });
  const std::vector<py::ssize_t> shape(array.shape().begin(), array.shape().end());
  return py::array(numpy_dtype(array.dtype()), shape, kept->data(), owner);
}

}  // namespace tw::python
