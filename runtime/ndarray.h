// A dense, row-major array: what goes into a run, comes out of it, and holds constants.  It lies in the host's memory
// or, between runs of a GPU, in that one's, which only copies reach.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "runtime/dtype.h"
#include "runtime/error.h"

namespace tw {

using Shape = std::vector<int64_t>;

class FileMap;

int64_t element_count(std::span<const int64_t> shape);

// Shares its storage when copied (as a numpy array does); `clone` copies the data.
class NDArray {
 public:
  NDArray() = default;
  // Uninitialised storage aligned to 64 bytes; Error(limit) when the size overflows or cannot be had.
  NDArray(DType dtype, Shape shape);
  // Views memory that `owner` keeps alive.
  NDArray(DType dtype, Shape shape, void* data, std::shared_ptr<const void> owner);
  // The same of a GPU's memory, by the GPU's ordinal; `data` is none that the host may follow.
  NDArray(DType dtype, Shape shape, void* data, std::shared_ptr<const void> owner, int gpu);
  // Of a file's bytes, as many as it takes from the first on; nobody may write to it.
  NDArray(DType dtype, Shape shape, std::shared_ptr<const FileMap> file);

  template <class T>
  static NDArray from(DType dtype, Shape shape, std::span<const T> values) {
    NDArray result(dtype, std::move(shape));
    check(values.size_bytes() == result.byte_size(), "NDArray::from: element count and width match");
    std::memcpy(result.data(), values.data(), values.size_bytes());
    return result;
  }

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return static_cast<int>(shape_.size()); }
  int64_t size() const { return element_count(shape_); }
  size_t byte_size() const { return static_cast<size_t>(size()) * dtype_.bytes(); }
  bool is_defined() const { return data_ != nullptr; }
  bool is_on_gpu() const { return gpu_ >= 0; }
  int gpu() const { return gpu_; }  // -1: it is in the host's memory

  void* data() { return data_; }
  const void* data() const { return data_; }
  template <class T>
  T* as() {
    return static_cast<T*>(data_);
  }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data_);
  }

  // Element `index` (flat) widened; f16, bf16 and narrow types convert.  For constants and tests, not for speed.
  double get_float(int64_t index) const;
  int64_t get_int(int64_t index) const;
  void set_float(int64_t index, double value);
  void set_int(int64_t index, int64_t value);

  // Where the elements are; null when they are in memory of their own.
  const FileMap* file() const { return file_; }
  // Whether nobody else holds the storage, which may be written.
  bool is_sole_owner() const { return !file_ && owner_.use_count() == 1; }

  NDArray reshape(Shape shape) const;  // same storage
  NDArray stored() const;              // same storage, as what loops see it (DType::stored)
  NDArray clone() const;

 private:
  DType dtype_ = f32;
  Shape shape_;
  void* data_ = nullptr;
  int gpu_ = -1;
  std::shared_ptr<const void> owner_;
  const FileMap* file_ = nullptr;  // `owner_` keeps it
};

}  // namespace tw
