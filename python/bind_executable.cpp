#include <algorithm>
#include <set>
#include <tuple>

#include "python/array.h"
#include "python/bind.h"
#include "python/device_array.h"
#include "runtime/artifact/artifact.h"
#include "runtime/device/cuda.h"
#include "runtime/executable.h"

namespace tw::python {
namespace {

// (name, low, high) of each; None for no end.
using Bounds = Rows<std::string, int64_t, std::optional<int64_t>>;

Bounds dimensions(const Plan& plan) {
  Bounds rows;
  for (const Symbol& symbol : plan.symbols) {
    const bool has_end = symbol.high != Symbol().high;
    rows.append(py::make_tuple(symbol.name, symbol.may_be_empty ? 0 : symbol.low,
                               has_end ? py::cast(symbol.high) : py::none()));
  }
  return rows;
}

// By special plan of sizes that the general one is for, too: (name, low, high) of each dimension.
py::typing::List<Bounds> profiles(const Plans& plans) {
  py::typing::List<Bounds> result;
  for (const SpecialPlan& special : plans.special) {
    if (std::ranges::any_of(special.sizes, [](const auto& sizes) { return sizes.low == 0; })) continue;
    Bounds rows;
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
Facts describe(const Plans& plans, const MachineRequirements& machine, int64_t image_bytes,
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
    row["calls"] = step.kind == StepKind::call ? plan.host_calls[step.target].function : "";
    row["name"] = step.name;
    row["executions"] = executions;
    const auto known = [](const Size& size) { return size.is_known() ? int64_t{size} : 0; };  // else the run says
    row["tasks"] = known(step.tasks);
    row["waits"] = step.waits;
    row["workspace_bytes"] = known(step.workspace_bytes);
    py::list grid, block;  // of a launch on a GPU
    for (const Size& extent : step.grid) grid.append(known(extent));
    for (const uint32_t extent : step.block) block.append(extent);
    row["grid"] = grid, row["block"] = block;
    row["shared_bytes"] = step.shared_bytes;
    row["flops"] = static_cast<double>(known(step.flops));
    row["bytes"] = static_cast<double>(known(step.bytes));
    steps.append(row);
  }
  int64_t constant_bytes = 0;
  for (const TensorInfo& constant : plan.constants)
    constant_bytes += element_count(constant.shape) * constant.dtype.bytes();
  Facts result;
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

std::vector<NDArray> run_unlocked(Executable& executable, const std::vector<NDArray>& inputs,
                                  const RunOptions& options) {
  const py::gil_scoped_release unlocked;
  return executable.run(inputs, options);
}

// Arrays in whose place outputs are must be writable: Python has checked.
Arrays run(Executable& executable, const std::vector<py::array>& arrays) {
  const std::vector<NDArray> outputs = run_unlocked(executable, views_of(arrays, "input"), {});
  Arrays result;
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

// The same on a GPU, where nothing is in place.
Arrays run_from_device(Executable& executable, const std::vector<GivenArray>& arrays, const py::object& stream) {
  Arrays result;
  const RunOptions options = options_of(arrays, {}, GivenStream(stream));
  for (const NDArray& output : run_unlocked(executable, views_of(arrays, "input"), options))
    result.append(to_numpy(output));
  return result;
}

py::typing::List<DeviceArray> run_on_device(Executable& executable, const std::vector<GivenArray>& arrays,
                                            const py::object& stream) {
  const GivenStream given(stream);
  RunOptions options = options_of(arrays, {}, given);
  options.leaves_outputs = true;
  py::typing::List<DeviceArray> result;
  for (const NDArray& output : run_unlocked(executable, views_of(arrays, "input"), options))
    result.append(DeviceArray{output, given});
  return result;
}

void run_into_device(Executable& executable, const std::vector<GivenArray>& arrays,
                     const std::vector<GivenArray>& results, const py::object& stream) {
  const GivenStream given(stream);
  const std::vector<NDArray> inputs = views_of(arrays, "input");
  std::vector<NDArray> outputs = views_of(results, "output");
  const RunOptions options = options_of(arrays, results, given);
  {
    const py::gil_scoped_release unlocked;
    executable.run_into(inputs, outputs, options);
  }
  for (const GivenArray& result : results)
    if (DeviceArray* const* array = std::get_if<DeviceArray*>(&result)) (*array)->stream = given;
}

// Arrays to measure on: what is queued on them is done.
std::vector<NDArray> ready_views_of(const std::vector<GivenArray>& arrays, int gpu) {
  for (const StreamHandle stream : options_of(arrays, {}, GivenStream(py::none())).after) finish_stream(stream, gpu);
  return views_of(arrays, "input");
}

using StepTimes = Rows<std::string, std::string, double, double, double>;

StepTimes profile(Executable& executable, const std::vector<GivenArray>& arrays, int repetitions) {
  const std::vector<NDArray> inputs = ready_views_of(arrays, executable.gpu());
  std::vector<StepProfile> rows;
  {
    const py::gil_scoped_release unlocked;
    rows = executable.profile(inputs, repetitions);
  }
  StepTimes result;
  for (const StepProfile& row : rows) {
    result.append(py::make_tuple(row.name, row.kernel, row.seconds, row.flops, row.bytes));
  }
  return result;
}

// (worker, step, start, end) of each share of a step; seconds since the run began.
using StepSpans = Rows<int, int, double, double>;

StepSpans trace(Executable& executable, const std::vector<GivenArray>& arrays, int repetitions) {
  const std::vector<NDArray> inputs = ready_views_of(arrays, executable.gpu());
  std::vector<StepSpan> spans;
  {
    const py::gil_scoped_release unlocked;
    spans = executable.trace(inputs, repetitions);
  }
  StepSpans result;
  for (const StepSpan& span : spans) result.append(py::make_tuple(span.worker, span.step, span.start, span.end));
  return result;
}

// Arrays that a call sees: the run's memory, which nobody may keep.
py::list lent_arrays(const std::vector<NDArray>& arrays, bool writable) {
  py::list result;
  for (const NDArray& array : arrays) {
    static char nothing;  // of an array without elements, which has no memory
    void* data = array.size() == 0 ? &nothing : const_cast<void*>(static_cast<const void*>(array.data()));
    const py::capsule owner(data, [](void*) {});
    const std::vector<py::ssize_t> shape(array.shape().begin(), array.shape().end());
    py::array lent(numpy_dtype(array.dtype()), shape, data, owner);
    if (!writable) lent.attr("setflags")(py::arg("write") = false);
    result.append(std::move(lent));
  }
  return result;
}

bool is_kept(const py::list& arrays) {
  return std::ranges::any_of(arrays,
                             [](const py::handle& array) { return array.ref_count() > 1; });  // more than the list
}

// (function, library, attributes) of each that is called.
std::set<std::tuple<std::string, std::string, std::string>> host_calls(const Executable& executable) {
  std::set<std::tuple<std::string, std::string, std::string>> result;
  const auto add = [&](const Plan& plan) {
    for (const HostCall& call : plan.host_calls) result.emplace(call.function, call.library, call.attributes);
  };
  add(executable.plan());
  for (const SpecialPlan& special : executable.plans().special) add(special.plan);
  return result;
}

}  // namespace

// `function` takes the attributes (JSON; "" where it does not want them), and lists of arrays: those that it reads, and
// those that it writes.
HostFunction in_python(py::function function, bool takes_attributes) {
  const auto release = [](py::function* kept) {
    const py::gil_scoped_acquire locked;
    delete kept;
  };
  const std::shared_ptr<py::function> kept(new py::function(std::move(function)), release);
  return [kept, takes_attributes](const std::string& attributes, const std::vector<NDArray>& inputs,
                                  const std::vector<NDArray>& outputs) {
    const py::gil_scoped_acquire locked;
    try {
      const py::list in = lent_arrays(inputs, false), out = lent_arrays(outputs, true);
      (*kept)(takes_attributes ? attributes : std::string(), in, out);
      if (is_kept(in) || is_kept(out))
        throw Error(ErrorCode::host_function, "it has kept an array, whose memory is the run's\n  help: keep a copy");
    } catch (const py::error_already_set& error) {
      throw Error(ErrorCode::host_function, error.what());
    }
  };
}

std::map<std::string, HostFunction> in_python(const PythonFunctions& functions) {
  std::map<std::string, HostFunction> result;
  for (const auto& [name, each] : functions) result[name] = in_python(each.first, each.second);
  return result;
}

void bind_executable(py::module_& module) {
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  py::class_<Executable>(module, "Executable", "A compiled network, with memory of its own for one run at a time.")
      .def_property_readonly(
          "inputs", [](const Executable& e) { return signature(e.plan().inputs, e.plan()); },
          "(name, type) of each input, as \"f32[1,n]\", in order.")
      .def_property_readonly(
          "outputs", [](const Executable& e) { return signature(e.plan().outputs, e.plan()); },
          "(name, type) of each output, in order.")
      .def_property_readonly(
          "input_lists", [](const Executable& e) { return described(e.plan().input_lists); },
          "Inputs that are no single tensor: (name, kind, first, count, axis, words, numbers) of each, as\n"
          "runtime/plan/list_info.h has it.")
      .def_property_readonly(
          "output_lists", [](const Executable& e) { return described(e.plan().output_lists); },
          "Outputs that are no single tensor, as `input_lists`.")
      .def_property_readonly(
          "dimensions", [](const Executable& e) { return dimensions(e.plan()); },
          "(name, least, largest) of each open dimension, both included; None: no end.")
      .def_property_readonly(
          "profiles", [](const Executable& e) { return profiles(e.plans()); },
          "Sizes that have kernels of their own: bounds as of `dimensions`, a list for each.")
      .def_property_readonly(
          "target", [](const Executable& e) { return e.requirements().target; }, "What it was compiled for.")
      .def_property("threads", &Executable::threads,
                    py::cpp_function(&Executable::set_threads, py::arg("self"), py::arg("count")), "Workers of a run.")
      .def_property(
          "team", [](const Executable& e) { return to_string(e.team()); },
          py::cpp_function([](Executable& e, const std::string& name) { e.set_team(parse_team_kind(name)); },
                           py::arg("self"), py::arg("name")),
          "Whose threads the workers are, by name.")
      .def_property("gpu", &Executable::gpu,
                    py::cpp_function(&Executable::set_gpu, py::arg("self"), py::arg("ordinal"), unlocked),
                    "The ordinal of the GPU that runs are on.")
      .def_property_readonly("in_place", &in_place, "By output: the input whose array it is, or -1.")
      .def_property_readonly("host_calls", &host_calls,
                             "(function, library, attributes) of each function of the host that a run calls.")
      .def(
          "set_host_function",
          [](Executable& e, const std::string& name, PythonFunction function, bool takes_attributes) {
            e.set_host_function(name, in_python(std::move(function), takes_attributes));
          },
          py::arg("name"), py::arg("function"), py::arg("takes_attributes"),
          "What a run calls by this name: function(attributes as JSON or \"\", arrays to read, arrays to write).")
      .def("seed", &Executable::set_seed, py::arg("seed"), unlocked, "Begins the random numbers of runs anew.")
      .def("share_random_state", &Executable::share_random_state, py::arg("other"), unlocked,
           "Draws random numbers from the same stream as another executable.")
      .def(
          "sizes",
          [](const Executable& e, const std::vector<Shape>& inputs) {
            const std::vector<int64_t> sizes = symbol_sizes(e.plan(), inputs);
            std::map<std::string, int64_t> by_name;
            for (size_t i = 0; i < sizes.size(); ++i) by_name[e.plan().symbols[i].name] = sizes[i];
            return by_name;
          },
          py::arg("inputs"), "Sizes of the open dimensions, by name, in inputs of these shapes.")
      .def("run", &run, py::arg("arrays"),
           "The outputs in order, of C-contiguous arrays for all inputs.  Error (TW1101) names an array that does not "
           "fit.")
      .def("run", &run_from_device, py::arg("arrays"), py::arg("stream") = py::none(),
           "The same of arrays on the host or the GPU, and in a stream.")
      .def("run_on_device", &run_on_device, py::arg("arrays"), py::arg("stream") = py::none(),
           "As `run`, with all outputs in the memory of the GPU.")
      .def("run_into", &run_into, py::arg("arrays"), py::arg("results"),
           "As `run`, into C-contiguous arrays for all outputs.")
      .def("run_into", &run_into_device, py::arg("arrays"), py::arg("results"), py::arg("stream") = py::none(),
           "The same of arrays on the host or the GPU, and in a stream.")
      .def("profile", &profile, py::arg("arrays"), py::arg("repetitions"),
           "(nodes, kernel, seconds, FLOPs, bytes) of each step, timed alone.")
      .def("trace", &trace, py::arg("arrays"), py::arg("repetitions"),
           "(worker, step, start, end) of each share of a step, in seconds since the run began.")
      .def(
          "describe",
          [](const Executable& e, const std::vector<Shape>& inputs) {
            const std::vector<int64_t> sizes = inputs.empty() ? Shape() : symbol_sizes(e.plan(), inputs);
            return describe(e.plans(), e.requirements(), 0, sizes);
          },
          py::arg("inputs") = std::vector<Shape>(),
          "The plan: kernels, memory in bytes, requirements; for inputs of these shapes, or the smallest.")
      .def(
          "save", [](const Executable& e, const std::string& path) { e.save(path); }, py::arg("path"), unlocked,
          "Writes a .twa artifact.")
      .def("clone", &Executable::clone, unlocked, "One with memory of its own; code and constants are shared.")
      .def(
          "to_bytes",
          [](const Executable& e) {
            const std::vector<std::byte> bytes = e.to_bytes();
            return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          },
          "What `save` writes.");
  module.def(
      "numpy_dtype",
      [](const std::string& name) {
        const auto dtype = parse_element_type(name);
        if (!dtype) throw Error(ErrorCode::input, "there is no element type " + name);
        return numpy_dtype(*dtype);
      },
      py::arg("name"), "numpy's for an element type, such as \"f32\"; bf16 is that of the package ml_dtypes.");
  module.def(
      "dtype_name", [](const py::array& array) { return to_string(view_of(array, "the array").dtype()); },
      py::arg("array"), "The element type of an array, such as \"f32\".");
  module.def(
      "load_executable", [](const std::string& path, int gpu) { return Executable::load(path, gpu); }, py::arg("path"),
      py::arg("gpu") = 0, unlocked,
      "Maps a .twa artifact.  Error (TW1201, TW1202) where it is damaged or for another machine.");
  module.def(
      "load_executable_bytes",
      [](const py::bytes& data, int gpu) {
        const std::string_view view = data;
        const py::gil_scoped_release released;
        return Executable::load(std::as_bytes(std::span(view.data(), view.size())), gpu);
      },
      py::arg("data"), py::arg("gpu") = 0, "As `load_executable`, of the bytes of an artifact, which are copied.");
  module.def(
      "inspect_artifact",
      [](const std::string& path) {
        const Artifact artifact = Artifact::open(path);
        artifact.verify_constants();
        return describe(artifact.plans, artifact.requirements, static_cast<int64_t>(artifact.image.size()));
      },
      py::arg("path"), "The plan of an artifact for any machine, as `describe` of Executable gives it.");
}

}  // namespace tw::python
