// NumPy's .npy files, versions 1 to 3, C order, little endian.  A bf16 array is stored as two raw bytes an element
// ("V2").
#pragma once

#include <filesystem>

#include "runtime/ndarray.h"

namespace tw {

// Error(file) when it cannot be read, Error(input) when it is not such a file or holds other types.  `expected` tells
// bf16 from other two-byte data.
NDArray read_npy(const std::filesystem::path& path, DType expected);
void write_npy(const std::filesystem::path& path, const NDArray& array);

}  // namespace tw
