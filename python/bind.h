// The Python module's parts: each bind_*.cpp fills in one of them.
//
// Functions that compile or run release the GIL.  Error becomes tilewright.Error; anything else that escapes is a bug
// of ours and arrives as RuntimeError.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <string>
#include <utility>
#include <vector>

#include "relay_ir/graph.h"
#include "runtime/host_function.h"
#include "runtime/plan/plan.h"
#include "tensor_ir/ir.h"

namespace tw {
class KernelCache;
class Schedule;
}  // namespace tw

namespace tw::python {

namespace py = pybind11;

// What the stub says (_core.pyi): dicts of what there is to say by name, and lists of tuples.
using Facts = py::typing::Dict<py::str, py::object>;
template <class... Parts>
using Rows = py::typing::List<py::typing::Tuple<Parts...>>;

void bind_device_array(py::module_& module);
void bind_executable(py::module_& module);
void bind_import(py::module_& module);
void bind_machine(py::module_& module);
void bind_model(py::module_& module);
void bind_schedule(py::module_& module);
void bind_tensor_expressions(py::module_& module);
void bind_tune(py::module_& module);

// "f32[batch,3,224,224]", and (name, type) of each, in order; open dimensions are the plan's.
std::string type_text(const TensorInfo& tensor, const Plan& plan);
std::string text_of(const relay::TensorType& type);
using Signature = std::vector<std::pair<std::string, std::string>>;
Signature signature(const std::vector<TensorInfo>& tensors, const Plan& plan);
// (name, kind, first, count, axis, words, numbers) of each.
using Lists = Rows<std::string, std::string, int, int, int, std::vector<std::string>, std::vector<int64_t>>;
Lists described(const std::vector<ListInfo>& lists);

// Extents: numbers, or expressions of open dimensions.
struct Extents : py::sequence {
  using sequence::sequence;
};
Expr extent_of(const py::handle& extent);
std::vector<Expr> shape_of(const py::sequence& extents);

using PythonFunction = py::typing::Callable<py::object(py::ellipsis)>;
// By name: a function in Python, and whether it looks at attributes (operators.py).
using PythonFunctions = std::map<std::string, std::pair<PythonFunction, bool>>;
HostFunction in_python(py::function function, bool takes_attributes);
std::map<std::string, HostFunction> in_python(const PythonFunctions& functions);

// What a template asked for: dicts of name, candidates, costs, analytic and chosen (positions).
py::typing::List<Facts> asked_of(const Schedule& schedule);

// Tells the logger "tilewright" what was wrong with a cache, which may be null.
void log_problems(KernelCache* cache);

}  // namespace tw::python

template <>
struct pybind11::detail::handle_type_name<tw::python::Extents> {
  static constexpr auto name =
      const_name("collections.abc.Sequence[int | ") + make_caster<tw::Expr>::name + const_name("]");
};
