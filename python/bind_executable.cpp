#include <algorithm>

#include "python/array.h"
#include "python/bind.h"
#include "runtime/artifact/artifact.h"
#include "runtime/executable.h"

namespace tw::python {
namespace {

// (name, low, high) of each; None for no end.
py::list dimensions(const Plan& plan) {
  py::list rows;
  for (const Symbol& symbol : plan.symbols) {
    const bool has_end = symbol.high != Symbol().high;
    rows.append(py::make_tuple(symbol.name, symbol.may_be_empty ? 0 : symbol.low,
                               has_end ? py::cast(symbol.high) : py::none()));
  }
  return rows;
}

// By special plan of sizes that the general one is for, too: (name, low, high) of each dimension.
py::list profiles(const Plans& plans) {
  py::list result;
  for (const SpecialPlan& special : plans.special) {
    if (std::ranges::any_of(special.sizes, [](const auto& sizes) { return sizes.low == 0; })) continue;
    py::list rows;
    for (size_t i = 0; i < special.sizes.size(); ++i) {
      const auto [low, high] = special.sizes[i];
      const bool has_end = high != Symbol().high;
      rows.append(py::make_tuple(plans.general.symbols[i].name, low, has_end ? py::cast(high) : py::none()));
    }
    result.append(rows);
  }
  return result;
}

// Of an open plan: at these sizes of its dimensions or, where none are given, at the smallest.
py::dict describe(const Plans& plans, const MachineRequirements& machine, int64_t image_bytes,
                  std::vector<int64_t> sizes = {}) {
  const Plan& open = plans.general;
  if (sizes.empty()) sizes = small_sizes(open);
  const Plan plan = plan_at(plans, sizes);
  py::list steps;
  std::vector<Size> repeated;  // the steps of loops around, as far as sizes say them
  for (const Step& step : plan.steps) {
    py::dict row;
    if (step.kind == StepKind::loop) repeated.push_back(step.buffers.empty() ? step.tasks : Size(1));
    if (step.kind == StepKind::repeat) repeated.pop_back();
    int64_t executions = step.kind == StepKind::kernel ? 1 : 0;
    for (const Size& steps : repeated) executions *= steps.is_known() ? int64_t{steps} : 1;
    row["kernel"] = step.kind == StepKind::kernel ? step.kernel : "";
    row["name"] = step.name;
    row["executions"] = executions;
    const auto known = [](const Size& size) { return size.is_known() ? int64_t{size} : 0; };  // else the run says
    row["tasks"] = known(step.tasks);
    row["waits"] = step.waits;
    row["workspace_bytes"] = known(step.workspace_bytes);
    row["flops"] = static_cast<double>(known(step.flops));
    row["bytes"] = static_cast<double>(known(step.bytes));
    steps.append(row);
  }
  int64_t constant_bytes = 0;
  for (const TensorInfo& constant : plan.constants)
    constant_bytes += element_count(constant.shape) * constant.dtype.bytes();
  py::dict result;
  result["inputs"] = signature(open.inputs, open);
  result["outputs"] = signature(open.outputs, open);
  result["dimensions"] = dimensions(open);
  result["profiles"] = profiles(plans);
  py::dict shared;
  for (const TensorInfo& output : plan.outputs) {
    if (output.in_place >= 0) shared[py::str(output.name)] = plan.inputs[output.in_place].name;
  }
  result["in_place"] = shared;
  result["constants"] = plan.constants.size();
  result["constant_bytes"] = constant_bytes;
  result["arena_bytes"] = plan.arena_bytes;
  result["image_bytes"] = image_bytes;
  result["target"] = machine.target;
  result["architecture"] = machine.architecture;
  result["features"] = machine.features;
  result["metadata"] = plan.metadata;
  result["steps"] = steps;
  return result;
}

// By output: the input whose array it is, or -1.
std::vector<int> in_place(const Executable& executable) {
  std::vector<int> inputs;
  for (const TensorInfo& output : executable.plan().outputs) inputs.push_back(output.in_place);
  return inputs;
}

// Arrays in whose place outputs are must be writable: Python has checked.
py::list run(Executable& executable, const std::vector<py::array>& arrays) {
  const std::vector<NDArray> inputs = views_of(arrays, "input");
  std::vector<NDArray> outputs;
  {
    const py::gil_scoped_release unlocked;
    outputs = executable.run(inputs);
  }
  py::list result;
  const std::vector<int> shared = in_place(executable);
  for (size_t i = 0; i < outputs.size(); ++i) result.append(shared[i] < 0 ? to_numpy(outputs[i]) : arrays[shared[i]]);
  return result;
}

// Into arrays of the caller: C-contiguous and writable, which Python has checked.
void run_into(Executable& executable, const std::vector<py::array>& arrays, const std::vector<py::array>& results) {
  const std::vector<NDArray> inputs = views_of(arrays, "input");
  std::vector<NDArray> outputs = views_of(results, "output");
  const py::gil_scoped_release unlocked;
  executable.run_into(inputs, outputs);
}

py::list profile(Executable& executable, const std::vector<py::array>& arrays, int repetitions) {
  const std::vector<NDArray> inputs = views_of(arrays, "input");
  std::vector<StepProfile> rows;
  {
    const py::gil_scoped_release unlocked;
    rows = executable.profile(inputs, repetitions);
  }
  py::list result;
  for (const StepProfile& row : rows) {
    result.append(py::make_tuple(row.name, row.kernel, row.seconds, row.flops, row.bytes));
  }
  return result;
}

// (worker, step, start, end) of each share of a step; seconds since the run began.
py::list trace(Executable& executable, const std::vector<py::array>& arrays, int repetitions) {
  const std::vector<NDArray> inputs = views_of(arrays, "input");
  std::vector<StepSpan> spans;
  {
    const py::gil_scoped_release unlocked;
    spans = executable.trace(inputs, repetitions);
  }
  py::list result;
  for (const StepSpan& span : spans) result.append(py::make_tuple(span.worker, span.step, span.start, span.end));
  return result;
}

}  // namespace

void bind_executable(py::module_& module) {
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  py::class_<Executable>(module, "Executable")
      .def_property_readonly("inputs", [](const Executable& e) { return signature(e.plan().inputs, e.plan()); })
      .def_property_readonly("outputs", [](const Executable& e) { return signature(e.plan().outputs, e.plan()); })
      .def_property_readonly("input_lists", [](const Executable& e) { return described(e.plan().input_lists); })
      .def_property_readonly("output_lists", [](const Executable& e) { return described(e.plan().output_lists); })
      .def_property_readonly("dimensions", [](const Executable& e) { return dimensions(e.plan()); })
      .def_property_readonly("profiles", [](const Executable& e) { return profiles(e.plans()); })
      .def_property_readonly("target", [](const Executable& e) { return e.requirements().target; })
      .def_property("threads", &Executable::threads, &Executable::set_threads)
      .def_property_readonly("in_place", &in_place)
      .def("seed", &Executable::set_seed, unlocked)
      .def("share_random_state", &Executable::share_random_state, unlocked)
      // Of the open dimensions in inputs of these shapes, by name.
      .def("sizes",
           [](const Executable& e, const std::vector<Shape>& inputs) {
             const std::vector<int64_t> sizes = symbol_sizes(e.plan(), inputs);
             std::map<std::string, int64_t> by_name;
             for (size_t i = 0; i < sizes.size(); ++i) by_name[e.plan().symbols[i].name] = sizes[i];
             return by_name;
           })
      .def("run", &run)
      .def("run_into", &run_into)
      .def("profile", &profile)
      .def("trace", &trace)
      .def(
          "describe",
          [](const Executable& e, const std::vector<Shape>& inputs) {
            const std::vector<int64_t> sizes = inputs.empty() ? Shape() : symbol_sizes(e.plan(), inputs);
            return describe(e.plans(), e.requirements(), 0, sizes);
          },
          py::arg("inputs") = std::vector<Shape>())
      .def("save", [](const Executable& e, const std::string& path) { e.save(path); }, unlocked);
  module.def("numpy_dtype", [](const std::string& name) {
    const auto dtype = parse_element_type(name);
    if (!dtype) throw Error(ErrorCode::input, "there is no element type " + name);
    return numpy_dtype(*dtype);
  });
  module.def("load_executable", [](const std::string& path) { return Executable::load(path); }, unlocked);
  module.def("inspect_artifact", [](const std::string& path) {
    const Artifact artifact = Artifact::open(path);
    artifact.verify_constants();
    return describe(artifact.plans, artifact.requirements, static_cast<int64_t>(artifact.image.size()));
  });
}

}  // namespace tw::python
