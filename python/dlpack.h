// The structures of DLPack 1.0 and of versions before it (dmlc/dlpack, include/dlpack/dlpack.h), as far as they are
// used.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "runtime/dtype.h"

namespace tw::dlpack {

enum DeviceType : int32_t { cuda = 2, cuda_managed = 13 };

struct Tensor {
  void* data;
  int32_t device_type, device_id;
  int32_t rank;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;  // in elements; null: row-major
  uint64_t byte_offset;
};

struct Managed {
  static constexpr const char *name = "dltensor", *used_name = "used_dltensor";
  Tensor tensor;
  void* owner;
  void (*release)(Managed*);
};

struct ManagedVersioned {
  static constexpr const char *name = "dltensor_versioned", *used_name = "used_dltensor_versioned";
  static constexpr uint64_t read_only = 1;
  uint32_t major, minor;
  void* owner;
  void (*release)(ManagedVersioned*);
  uint64_t flags;
  Tensor tensor;
};

// Codes of element types that take a whole number of bytes, as ours do.
inline constexpr std::pair<DTypeKind, uint8_t> codes[] = {
    {DTypeKind::signed_integer, 0}, {DTypeKind::unsigned_integer, 1},
    {DTypeKind::floating, 2},       {DTypeKind::brain_floating, 4},
    {DTypeKind::boolean, 6},        {DTypeKind::e4m3fn, 10},
    {DTypeKind::e4m3fnuz, 11},      {DTypeKind::e5m2, 12},
    {DTypeKind::e5m2fnuz, 13},      {DTypeKind::e8m0, 14}};

inline std::optional<uint8_t> code_of(DType dtype) {
  for (const auto& [kind, code] : codes)
    if (kind == dtype.kind && (dtype.bits % 8 == 0 || dtype.is_bool())) return code;
  return std::nullopt;
}

inline std::optional<DType> dtype_of(const Tensor& tensor) {
  for (const auto& [kind, code] : codes)
    if (code == tensor.code && tensor.lanes == 1 && tensor.bits % 8 == 0 && tensor.bits <= 64)
      return kind == DTypeKind::boolean ? boolean : DType{kind, tensor.bits};
  return std::nullopt;
}

}  // namespace tw::dlpack
