#include "runtime/ndarray.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/artifact/file_map.h"
#include "runtime/memory.h"

namespace tw {
namespace {

std::string text_of(std::span<const int64_t> shape) {
  std::string text = "[";
  for (int64_t extent : shape) text += (text.size() > 1 ? "," : "") + std::to_string(extent);
  return text + "]";
}

size_t checked_bytes(DType dtype, std::span<const int64_t> shape) {
  uint64_t count = static_cast<uint64_t>(element_count(shape)), bytes;
  if (__builtin_mul_overflow(count, static_cast<uint64_t>(dtype.bytes()), &bytes) || bytes > uint64_t{PTRDIFF_MAX})
    throw Error(ErrorCode::limit,
                "an array " + to_string(dtype) + text_of(shape) + " is larger than the address space");
  return static_cast<size_t>(bytes);
}

template <class T>
T saturate(double value) {
  if (std::isnan(value)) return 0;
  // The bounds as doubles: the upper one may round up to 2^63 or 2^64, hence ≥.
  if (value <= static_cast<double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  if (value >= static_cast<double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

// Calls `use` with a null pointer of the element's C++ type; floats of 16 bits and fewer are handled by the callers.
template <class Use>
auto with_type(DType dtype, Use&& use) {
  switch (dtype.kind) {
    case DTypeKind::boolean:
      return use(static_cast<uint8_t*>(nullptr));
    case DTypeKind::signed_integer:
      if (dtype.bits <= 8) return use(static_cast<int8_t*>(nullptr));
      if (dtype.bits == 16) return use(static_cast<int16_t*>(nullptr));
      if (dtype.bits == 32) return use(static_cast<int32_t*>(nullptr));
      if (dtype.bits == 64) return use(static_cast<int64_t*>(nullptr));
      break;
    case DTypeKind::unsigned_integer:
      if (dtype.bits <= 8) return use(static_cast<uint8_t*>(nullptr));
      if (dtype.bits == 16) return use(static_cast<uint16_t*>(nullptr));
      if (dtype.bits == 32) return use(static_cast<uint32_t*>(nullptr));
      if (dtype.bits == 64) return use(static_cast<uint64_t*>(nullptr));
      break;
    case DTypeKind::floating:
      if (dtype.bits == 32) return use(static_cast<float*>(nullptr));
      if (dtype.bits == 64) return use(static_cast<double*>(nullptr));
      break;
    default:
      break;
  }
  internal_error("no array elements of type " + to_string(dtype));
}

bool is_half(DType dtype) {
  return dtype == f16 || dtype == bf16;
}

// Of a narrow integer the low bits of its byte.
int64_t narrowed(DType dtype, int64_t value) {
  if (!dtype.is_narrow()) return value;
  const int unused = 64 - dtype.bits;
  const uint64_t high = static_cast<uint64_t>(value) << unused;
  return dtype.is_signed_integer() ? static_cast<int64_t>(high) >> unused : static_cast<int64_t>(high >> unused);
}

}  // namespace

int64_t element_count(std::span<const int64_t> shape) {
  int64_t count = 1;
  bool overflows = false, is_empty = false;
  for (int64_t extent : shape) {
    if (extent < 0) throw Error(ErrorCode::shape, "a negative extent in the shape " + text_of(shape));
    if (extent == 0)
      is_empty = true;
    else if (__builtin_mul_overflow(count, extent, &count))
      overflows = true;
  }
  if (is_empty) return 0;
  if (overflows) throw Error(ErrorCode::limit, "the shape " + text_of(shape) + " has more than 2^63 elements");
  return count;
}

NDArray::NDArray(DType dtype, Shape shape) : dtype_(dtype), shape_(std::move(shape)) {
  check(!dtype.is_vector(), "NDArray: elements are scalars");
  std::shared_ptr<void> storage = allocate_storage(checked_bytes(dtype_, shape_));
  data_ = storage.get();
  owner_ = std::move(storage);
}

NDArray::NDArray(DType dtype, Shape shape, void* data, std::shared_ptr<const void> owner)
    : dtype_(dtype), shape_(std::move(shape)), data_(data), owner_(std::move(owner)) {
  check(!dtype.is_vector(), "NDArray: elements are scalars");
  (void)checked_bytes(dtype_, shape_);
}

NDArray::NDArray(DType dtype, Shape shape, void* data, std::shared_ptr<const void> owner, int gpu)
    : NDArray(dtype, std::move(shape), data, std::move(owner)) {
  gpu_ = gpu;
}

NDArray::NDArray(DType dtype, Shape shape, std::shared_ptr<const FileMap> file)
    : NDArray(dtype, std::move(shape), const_cast<std::byte*>(file->bytes().data()), file) {
  check(byte_size() <= file->bytes().size(), "NDArray: the file has all of it");
  file_ = file.get();
}

double NDArray::get_float(int64_t index) const {
  check(index >= 0 && index < size(), "NDArray: index in range");
  if (is_half(dtype_)) {
    uint16_t bits = as<uint16_t>()[index];
    return dtype_ == f16 ? f16_to_float(bits) : bf16_to_float(bits);
  }
  if (dtype_.is_minifloat()) return minifloat_to_float(dtype_, as<uint8_t>()[index]);
  if (dtype_.is_narrow()) return static_cast<double>(get_int(index));
  return with_type(dtype_, [&]<class T>(T*) -> double { return static_cast<double>(as<T>()[index]); });
}

int64_t NDArray::get_int(int64_t index) const {
  check(index >= 0 && index < size(), "NDArray: index in range");
  if (dtype_.is_float() || dtype_.is_minifloat()) return saturate<int64_t>(get_float(index));
  return narrowed(dtype_,
                  with_type(dtype_, [&]<class T>(T*) -> int64_t { return static_cast<int64_t>(as<T>()[index]); }));
}

void NDArray::set_float(int64_t index, double value) {
  check(index >= 0 && index < size(), "NDArray: index in range");
  if (dtype_.is_bool()) {
    as<uint8_t>()[index] = value != 0;
  } else if (is_half(dtype_)) {
    float narrow = static_cast<float>(value);
    as<uint16_t>()[index] = dtype_ == f16 ? float_to_f16(narrow) : float_to_bf16(narrow);
  } else if (dtype_.is_minifloat()) {
    as<uint8_t>()[index] = float_to_minifloat(dtype_, static_cast<float>(value));
  } else if (dtype_.is_narrow()) {
    const double most = std::ldexp(1, dtype_.is_signed_integer() ? dtype_.bits - 1 : dtype_.bits) - 1;
    set_int(index, saturate<int64_t>(std::clamp(value, dtype_.is_signed_integer() ? -most - 1 : 0.0, most)));
  } else {
    with_type(dtype_, [&]<class T>(T*) {
      if constexpr (std::is_floating_point_v<T>)
        as<T>()[index] = static_cast<T>(value);
      else
        as<T>()[index] = saturate<T>(value);
    });
  }
}

void NDArray::set_int(int64_t index, int64_t value) {
  if (dtype_.is_float() || dtype_.is_minifloat()) return set_float(index, static_cast<double>(value));
  check(index >= 0 && index < size(), "NDArray: index in range");
  if (dtype_.is_bool()) {
    as<uint8_t>()[index] = value != 0;
  } else {
    with_type(dtype_, [&]<class T>(T*) { as<T>()[index] = static_cast<T>(narrowed(dtype_, value)); });
  }
}

NDArray NDArray::reshape(Shape shape) const {
  check(element_count(shape) == size(), "NDArray::reshape: the element count stays");
  NDArray result = *this;
  result.shape_ = std::move(shape);
  return result;
}

NDArray NDArray::stored() const {
  NDArray result = *this;
  result.dtype_ = dtype_.stored();
  return result;
}

NDArray NDArray::clone() const {
  if (!is_defined()) return {};
  check(!is_on_gpu(), "NDArray::clone: the array is in the host's memory");
  NDArray result(dtype_, shape_);
  std::memcpy(result.data(), data_, byte_size());
  return result;
}

}  // namespace tw
