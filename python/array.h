// numpy arrays as NDArray and back, without copying.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/typing.h>

#include <optional>

#include "runtime/ndarray.h"

namespace tw::python {

using Arrays = pybind11::typing::List<pybind11::array>;

// Views `array`, which must be C-contiguous and outlive the result.  Error(input) naming `name` for other dtypes.
NDArray view_of(const pybind11::array& array, const std::string& name);
std::vector<NDArray> views_of(const std::vector<pybind11::array>& arrays, const std::string& kind = "input");
// Shares the storage of `array`.  bf16 and narrow types are those of the package ml_dtypes.
pybind11::array to_numpy(const NDArray& array);
pybind11::dtype numpy_dtype(DType dtype);
std::optional<DType> dtype_of(const pybind11::dtype& dtype);  // none: no model has it

}  // namespace tw::python
