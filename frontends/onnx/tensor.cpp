#include "frontends/onnx/tensor.h"

#include <algorithm>
#include <charconv>
#include <fstream>

#include "runtime/artifact/file_map.h"

namespace tw::frontends::onnx {
namespace {

namespace fs = std::filesystem;

std::string label(const Tensor& tensor) {
  return "tensor `" + std::string(tensor.name) + "`";
}

[[noreturn]] void malformed(const Tensor& tensor, const std::string& why) {
  throw Error(ErrorCode::malformed_model, label(tensor) + " " + why);
}

DType dtype_of(const Tensor& tensor) {
  const auto dtype = to_dtype(tensor.data_type);
  if (!dtype) {
    throw Error(ErrorCode::unsupported, label(tensor) + " has elements of type " + data_type_name(tensor.data_type) +
                                            ", which are not supported");
  }
  return *dtype;
}

// The number of elements; not so many that their bytes overflow.
int64_t count_of(const Tensor& tensor) {
  int64_t count = 1;
  const bool is_empty = std::find(tensor.dims.begin(), tensor.dims.end(), 0) != tensor.dims.end();
  for (const int64_t dim : tensor.dims) {
    if (dim < 0) malformed(tensor, "has a negative dimension");
    if (is_empty) continue;
    if (__builtin_mul_overflow(count, dim, &count) || count > (int64_t{1} << 56)) {
      throw Error(ErrorCode::limit, label(tensor) + " has more elements than memory can hold");
    }
  }
  return is_empty ? 0 : count;
}

// Elements of fewer than 8 bits share bytes, the first in the lowest bits.
size_t elements_a_byte(DType dtype) {
  return dtype.is_narrow() ? 8 / dtype.bits : 1;
}
// Of the typed field: one an element, or a byte of them.
size_t entries_of(DType dtype, size_t count) {
  const size_t shared = elements_a_byte(dtype);
  return count / shared + (count % shared != 0);
}
size_t bytes_of(DType dtype, size_t count) {
  return entries_of(dtype, count) * dtype.bytes();
}

// One a byte.  A signed one fills its byte.
void unpack(DType dtype, std::span<const std::byte> packed, NDArray& array) {
  const size_t shared = elements_a_byte(dtype), count = static_cast<size_t>(array.size());
  const int unused = 8 - dtype.bits;
  const bool is_signed = dtype.is_signed_integer();
  auto* out = array.as<uint8_t>();
  for (size_t i = 0; i < count; ++i) {
    const auto part = std::to_integer<uint8_t>(packed[i / shared] >> (i % shared * dtype.bits));
    const auto high = static_cast<uint8_t>(part << unused);
    out[i] = static_cast<uint8_t>(is_signed ? static_cast<int8_t>(high) >> unused : high >> unused);
  }
}

// The typed field that holds elements of this type (onnx.proto says which), and how many entries it has.
size_t typed_count(const Tensor& tensor, DType dtype) {
  if (dtype == f32) return tensor.float_data.size();
  if (dtype == f64) return tensor.double_data.size();
  if (dtype == i64) return tensor.int64_data.size();
  if (dtype == u32 || dtype == u64) return tensor.uint64_data.size();
  return tensor.int32_data.size();
}

template <class To, class From>
void copy_values(NDArray& array, const std::vector<From>& values) {
  To* out = array.as<To>();
  for (size_t i = 0; i < values.size(); ++i) out[i] = static_cast<To>(values[i]);
}

void copy_typed(const Tensor& tensor, DType dtype, NDArray& array) {
  if (dtype == f32) return copy_values<float>(array, tensor.float_data);
  if (dtype == f64) return copy_values<double>(array, tensor.double_data);
  if (dtype == i64) return copy_values<int64_t>(array, tensor.int64_data);
  if (dtype == u32) return copy_values<uint32_t>(array, tensor.uint64_data);
  if (dtype == u64) return copy_values<uint64_t>(array, tensor.uint64_data);
  if (dtype == i32) return copy_values<int32_t>(array, tensor.int32_data);
  if (elements_a_byte(dtype) > 1) {
    std::vector<std::byte> packed;
    for (const int32_t entry : tensor.int32_data) packed.push_back(static_cast<std::byte>(entry));
    return unpack(dtype, packed, array);
  }
  if (dtype.bits == 16) return copy_values<uint16_t>(array, tensor.int32_data);  // f16 and bf16 by their bits
  copy_values<uint8_t>(array, tensor.int32_data);
}

struct ExternalPlace {
  std::string location;
  uint64_t offset = 0;
  std::optional<uint64_t> length;
};

ExternalPlace external_place(const Tensor& tensor) {
  ExternalPlace place;
  auto number = [&](std::string_view text) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
      throw Error(ErrorCode::external_data,
                  label(tensor) + ": offset and length of external data are numbers of bytes");
    }
    return value;
  };
  for (const StringEntry& entry : tensor.external_data) {
    if (entry.key == "location") place.location = entry.value;
    if (entry.key == "offset") place.offset = number(entry.value);
    if (entry.key == "length") place.length = number(entry.value);
  }
  if (place.location.empty())
    throw Error(ErrorCode::external_data, label(tensor) + ": external data without a location");
  return place;
}

// The file, once it is certain that it lies inside the folder, whatever links lie on the way.
fs::path external_path(const Tensor& tensor, const ExternalPlace& place, const fs::path& folder) {
  auto refuse = [&](const std::string& why, const std::string& help) {
    throw Error(ErrorCode::external_data,
                label(tensor) + ": external data `" + place.location + "` " + why + "\n  help: " + help);
  };
  if (folder.empty()) {
    refuse("cannot be found: the model was given as bytes, without a folder", "load the model from its file");
  }
  const fs::path relative(place.location);
  const bool is_inside = relative.is_relative() &&
                         std::find(relative.begin(), relative.end(), fs::path("..")) == relative.end() &&
                         place.location.find('\0') == std::string::npos;
  if (!is_inside) refuse("points outside the model's folder", "external data must lie beside the model");
  std::error_code error;
  const fs::path root = fs::canonical(folder, error);
  const fs::path path = error ? fs::path() : fs::canonical(root / relative, error);
  if (error) refuse("does not exist", "keep the weights file beside the model");
  const auto [root_end, unused] = std::mismatch(root.begin(), root.end(), path.begin(), path.end());
  if (root_end != root.end()) refuse("is a link that leaves the model's folder", "copy the file into the folder");
  if (!fs::is_regular_file(path, error)) refuse("is not a file", "keep the weights file beside the model");
  return path;
}

void read_external(const Tensor& tensor, const fs::path& folder, size_t bytes, NDArray& array, DType dtype,
                   const Shape& shape) {
  const ExternalPlace place = external_place(tensor);
  const fs::path path = external_path(tensor, place, folder);
  if (place.length && *place.length != bytes) {
    throw Error(ErrorCode::external_data, label(tensor) + ": external data has " + std::to_string(*place.length) +
                                              " bytes, its shape needs " + std::to_string(bytes));
  }
  std::error_code error;
  const uint64_t size = fs::file_size(path, error);
  if (error || place.offset > size || bytes > size - place.offset) {
    throw Error(ErrorCode::external_data, label(tensor) + ": external data `" + place.location + "` ends before byte " +
                                              std::to_string(place.offset) + " + " + std::to_string(bytes) +
                                              "\n  help: the weights file is truncated, or of another model");
  }
  // Large ones stay in the file until they are packed.
  constexpr size_t mapped_from = 1 << 20;
  const bool is_as_stored = elements_a_byte(dtype) == 1 && !dtype.is_bool();
  if (is_as_stored && bytes >= mapped_from && place.offset % static_cast<uint64_t>(dtype.bytes()) == 0) {
    array = NDArray(dtype, shape, FileMap::open(path, place.offset, bytes));
    return;
  }
  array = NDArray(dtype, shape);
  std::vector<std::byte> packed(elements_a_byte(dtype) > 1 ? bytes : 0);
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(place.offset));
  file.read(static_cast<char*>(packed.empty() ? array.data() : packed.data()), static_cast<std::streamsize>(bytes));
  if (!file && bytes > 0) {
    throw Error(ErrorCode::external_data, label(tensor) + ": external data `" + place.location + "` cannot be read");
  }
  if (!packed.empty()) unpack(dtype, packed, array);
}

}  // namespace

void check_tensor(const Tensor& tensor) {
  const int64_t count = count_of(tensor);
  const auto dtype = to_dtype(tensor.data_type);
  if (!dtype || tensor.is_external) return;  // of another type: matters only if it is used
  if (tensor.raw_data) {
    const uint64_t wanted = bytes_of(*dtype, static_cast<size_t>(count));
    if (tensor.raw_data->size() != wanted) {
      malformed(tensor, "holds " + std::to_string(tensor.raw_data->size()) + " bytes, its shape needs " +
                            std::to_string(wanted));
    }
  } else if (typed_count(tensor, *dtype) != entries_of(*dtype, static_cast<size_t>(count))) {
    malformed(tensor, "holds " + std::to_string(typed_count(tensor, *dtype)) +
                          (elements_a_byte(*dtype) > 1 ? " bytes of elements of type " : " elements of type ") +
                          to_string(*dtype) + ", its shape needs " +
                          std::to_string(entries_of(*dtype, static_cast<size_t>(count))));
  }
}

bool is_text(const Tensor& tensor) {
  return tensor.data_type == text_type;
}

NDArray codes_of(const Tensor& tensor, const std::function<int64_t(std::string_view)>& code_of) {
  const int64_t count = count_of(tensor);
  if (tensor.is_external || count != static_cast<int64_t>(tensor.string_data.size()))
    malformed(tensor, "holds " + std::to_string(tensor.string_data.size()) + " strings, its shape needs " +
                          std::to_string(count));
  NDArray codes(i64, tensor.dims);
  for (int64_t i = 0; i < count; ++i) codes.set_int(i, code_of(tensor.string_data[i]));
  return codes;
}

NDArray to_array(const Tensor& tensor, const fs::path& folder) {
  const DType dtype = dtype_of(tensor);
  check_tensor(tensor);
  const size_t bytes = bytes_of(dtype, static_cast<size_t>(count_of(tensor)));
  NDArray array;
  if (tensor.is_external) {
    read_external(tensor, folder, bytes, array, dtype, tensor.dims);
  } else {
    array = NDArray(dtype, tensor.dims);
    if (!tensor.raw_data) {
      copy_typed(tensor, dtype, array);
    } else if (elements_a_byte(dtype) > 1) {
      unpack(dtype, std::as_bytes(std::span(*tensor.raw_data)), array);
    } else if (bytes > 0) {
      std::memcpy(array.data(), tensor.raw_data->data(), bytes);
    }
  }
  if (dtype.is_bool()) {  // any non-zero byte is true; ours are 0 and 1
    for (int64_t i = 0; i < array.size(); ++i) array.as<uint8_t>()[i] = array.as<uint8_t>()[i] != 0;
  }
  return array;
}

}  // namespace tw::frontends::onnx
