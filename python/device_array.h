// Arrays in the memory of a GPU: ours, and other libraries' by DLPack or __cuda_array_interface__, without copying.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <optional>
#include <variant>
#include <vector>

#include "runtime/device/device.h"

namespace tw::python {

// A stream as Python gives it: None, a handle, or an object with __cuda_stream__.  Error(input): something else.
struct GivenStream {
  explicit GivenStream(pybind11::object given);
  std::optional<StreamHandle> handle;
  pybind11::object object;  // which keeps it
};

struct DeviceArray {
  NDArray array;
  GivenStream stream;  // in which work on it may be queued; none: it is complete
  bool is_read_only = false;
};

using GivenArray = std::variant<pybind11::array, DeviceArray*>;

// Views arrays, which must outlive the result: those of numpy as view_of (array.h) does.
std::vector<NDArray> views_of(const std::vector<GivenArray>& arrays, const std::string& kind);
// A run on these arrays, whose streams it waits for.
RunOptions options_of(const std::vector<GivenArray>& inputs, const std::vector<GivenArray>& outputs,
                      const GivenStream& stream);

}  // namespace tw::python
