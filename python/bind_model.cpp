#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "autotune/database/tuned_source.h"
#include "autotune/task.h"
#include "python/array.h"
#include "python/bind.h"
#include "python/own_schedules.h"
#include "relay_ir/compile/compile.h"
#include "relay_ir/cut.h"
#include "relay_ir/evaluate.h"
#include "relay_ir/text/printer.h"
#include "runtime/machine/facts.h"
#include "runtime/team.h"
#include "tensor_ir/te.h"
#ifdef TW_TESTS
#include "tests/seeded_fault.h"
#endif

namespace tw::python {
namespace {

Signature inputs_of(const relay::Graph& graph) {
  Signature rows;
  for (size_t i = 0; i < graph.inputs_of_caller(); ++i) {
    const relay::Value& value = graph.value(graph.inputs[i]);
    rows.emplace_back(value.name, text_of(value.type));
  }
  return rows;
}

// (name, type, is_known, may_be_given) of each value.
Rows<std::string, std::string, bool, bool> values_of(const relay::Graph& graph) {
  Rows<std::string, std::string, bool, bool> rows;
  for (size_t id = 0; id < graph.values.size(); ++id) {
    const relay::Value& value = graph.values[id];
    rows.append(py::make_tuple(value.name, text_of(value.type), value.constant.has_value(),
                               relay::may_be_given(graph, static_cast<relay::ValueId>(id))));
  }
  return rows;
}

// By the oracle; the inputs of a caller, in order.
Arrays evaluate(const relay::Graph& graph, const std::vector<py::array>& arrays) {
  const std::vector<NDArray> inputs = views_of(arrays);
  std::vector<NDArray> outputs;
  {
    const py::gil_scoped_release unlocked;
    outputs = relay::evaluate(graph, inputs);
  }
  Arrays result;
  for (const NDArray& output : outputs) result.append(to_numpy(output));
  return result;
}

Signature outputs_of(const relay::Graph& graph) {
  Signature rows;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    rows.emplace_back(graph.output_name(i), text_of(graph.value(graph.outputs[i]).type));
  }
  return rows;
}

// By name of an open dimension: its least, typical (-1: nobody says) and largest size.
using SizeRanges = std::map<std::string, std::tuple<int64_t, int64_t, int64_t>>;

relay::Profile profile_of(const SizeRanges& sizes) {
  relay::Profile profile;
  for (const auto& [name, range] : sizes) {
    const auto [low, typical, high] = range;
    profile[name] = {low, high, typical < 0 ? std::nullopt : std::optional(typical)};
  }
  return profile;
}

// The executable, and what the compilation did.
using Compiled = py::typing::Tuple<Executable, Facts>;

Compiled compile(const relay::Graph& graph, const std::string& target, int threads, const std::string& precision,
                 const std::string& constraints, const std::map<std::string, std::string>& in_place,
                 const std::vector<SizeRanges>& profiles, const std::string& database, const py::object& own_template,
                 const std::string& template_name, const std::map<std::string, py::object>& operator_schedules,
                 const std::set<std::string>& kept_nodes, const std::set<std::string>& unfused_nodes,
                 const std::set<std::string>& skipped_passes, const PythonFunctions& functions) {
  relay::CompileReport report;
  std::optional<autotune::TunedSchedules> tuned;
  const Target parsed = with_schedules(parse_target(target), {own_template, template_name, operator_schedules});
  auto host_functions = in_python(functions);
  const auto cache = KernelCache::from_environment();
  const auto run = [&] {
    const py::gil_scoped_release unlocked;
    relay::CompileOptions options;
    options.threads = threads;
    options.precision = relay::parse_precision(precision).value();
    options.constraints = parse_decisions(constraints);
    options.cache = cache.get();
    options.in_place = in_place;
    options.host_functions = std::move(host_functions);
    options.kept_nodes = kept_nodes, options.unfused_nodes = unfused_nodes;
    options.skipped_passes = skipped_passes;
#ifdef TW_TESTS
    options.after_pass = with_seeded_fault;
#endif
    for (const SizeRanges& sizes : profiles) options.profiles.push_back(profile_of(sizes));
    if (!database.empty()) {
      const autotune::Database records(database, autotune::Database::Access::read);
      tuned.emplace(records, parsed, threads > 0 ? threads : default_team_size());
      options.schedule = tuned->source();
      options.decide = tuned->decisions();
    }
    return relay::compile(graph, parsed, options, &report);
  };
  Executable executable = run();
  log_problems(cache.get());
  Facts rows;
  std::vector<std::pair<std::string, double>> phases;
  for (const auto& [name, seconds] : report.phases) phases.emplace_back(name, seconds);
  rows["phases"] = phases;
  rows["groups"] = report.groups;
  rows["funcs"] = report.funcs;
  rows["kernels"] = report.kernels;
  rows["cached_kernels"] = report.cached_kernels;
  rows["serial_loops"] = report.serial_loops;
  rows["spilled_buffers"] = report.spilled_buffers;
  std::map<std::string, std::map<std::string, int64_t>> requests;  // by kernel of a GPU
  for (const auto& [kernel, found] : report.requests)
    requests[kernel] = {{"requests", found.requests},
                        {"sectors", found.sectors},
                        {"least_sectors", found.least_sectors},
                        {"unknown", found.unknown}};
  rows["requests"] = requests;
  py::list decided;  // (node, what was chosen, what analysis prefers), as "winograd=4"
  for (const relay::GraphDecision& decision : report.decisions) {
    const AskedDecision& asked = decision.asked;
    const auto text = [&](size_t candidate) { return to_text({{asked.name, asked.candidates[candidate].value}}); };
    decided.append(py::make_tuple(decision.node, text(asked.chosen), text(asked.analytic)));
  }
  rows["decisions"] = decided;
  if (tuned) {
    const auto uses = tuned->uses();
    std::set<std::string> kernels;  // of those that follow a record
    const auto is_used = [&](const Func& func) {
      const auto use = uses.find(autotune::task_key(func));
      return use != uses.end() && use->second == autotune::TunedSchedules::Use::record;
    };
    int used = 0, stale = 0;
    for (const auto& [key, use] : uses) ++(use == autotune::TunedSchedules::Use::record ? used : stale);
    for (const auto& piece : report.pieces)
      if (is_used(piece.func)) kernels.insert(piece.kernels.begin(), piece.kernels.end());
    std::set<std::string> choices;  // tasks of nodes that follow a record
    for (const relay::GraphDecision& decision : report.decisions)
      if (is_used(decision.func)) choices.insert(autotune::task_key(decision.func));
    rows["tuned_kernels"] = kernels.size();
    rows["used_records"] = used - static_cast<int>(choices.size());
    rows["used_choices"] = choices.size();
    rows["stale_records"] = stale;
    if (parsed.compute_capability > 0 && used > 0) {  // of which GPUs differ by name alone
      const std::set<std::string> machines = tuned->machines();
      rows["measured_on"] = std::vector<std::string>(machines.begin(), machines.end());
      rows["gpu"] = this_gpu().name;
    }
  }
  return py::make_tuple(std::move(executable), rows);
}

// What a network's kernels leave to decide, as dicts: (name, groups that compute it, kernels, asked).
using DecidedKernels = Rows<std::string, int, std::vector<std::string>, py::typing::List<Facts>>;

DecidedKernels decisions(const relay::Graph& graph, const std::string& target, int threads,
                         const std::string& precision, const std::string& constraints) {
  relay::CompileReport report;
  const Target parsed = parse_target(target);
  const auto cache = KernelCache::from_environment();
  {
    const py::gil_scoped_release unlocked;
    relay::CompileOptions options;
    options.threads = threads, options.precision = relay::parse_precision(precision).value();
    options.constraints = parse_decisions(constraints), options.cache = cache.get();
    relay::compile(graph, parsed, options, &report);
  }
  log_problems(cache.get());
  DecidedKernels result;
  for (const auto& piece : report.pieces) {
    if (!parsed.decided_schedule) continue;
    result.append(py::make_tuple(piece.name, piece.groups, piece.kernels,
                                 asked_of(parsed.decided_schedule(piece.func, parsed, {}))));
  }
  return result;
}

// With these decisions in this task and none elsewhere, or, without a task, wherever they are asked for; for
// experiments.  Of the task, the report has the kernels.
Compiled compile_decided(const relay::Graph& graph, const std::string& target, int threads, const Decisions& decisions,
                         const std::string& task, const std::string& constraints) {
  const Target parsed = parse_target(target);
  if (!parsed.decided_schedule)
    throw Error(ErrorCode::schedule, "the templates of " + target + " leave nothing to decide");
  relay::CompileReport report;
  relay::CompileOptions options;
  const auto cache = KernelCache::from_environment();
  options.threads = threads, options.constraints = parse_decisions(constraints), options.cache = cache.get();
  options.schedule = [&](const Func& func, const Target& for_target) {
    if (!task.empty())
      return parsed.decided_schedule(func, for_target, autotune::task_key(func) == task ? decisions : Decisions());
    Decisions wanted;
    const Schedule by_default = parsed.decided_schedule(func, for_target, {});
    for (const AskedDecision& asked : by_default.asked())
      if (const auto found = decisions.find(asked.name); found != decisions.end()) wanted.insert(*found);
    return parsed.decided_schedule(func, for_target, wanted);
  };
  Executable executable = relay::compile(graph, parsed, options, &report);
  log_problems(cache.get());
  std::vector<std::string> kernels;
  for (const auto& piece : report.pieces)
    if (!task.empty() && autotune::task_key(piece.func) == task)
      kernels.insert(kernels.end(), piece.kernels.begin(), piece.kernels.end());
  return py::make_tuple(std::move(executable), Facts(py::dict(py::arg("kernels_of_task") = kernels)));
}

}  // namespace

void bind_model(py::module_& module) {
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  py::class_<relay::Graph>(module, "Graph", "A network, ready to be compiled.")
      .def_property_readonly("inputs", &inputs_of, "(name, type) of each input, as \"f32[1,n]\", in order.")
      .def_property_readonly("outputs", &outputs_of, "(name, type) of each output, in order.")
      .def_property_readonly(
          "input_lists", [](const relay::Graph& graph) { return described(graph.input_lists); },
          "Inputs that are no single tensor: (name, kind, first, count, axis, words, numbers) of each, as\n"
          "runtime/plan/list_info.h has it.")
      .def_property_readonly(
          "output_lists", [](const relay::Graph& graph) { return described(graph.output_lists); },
          "Outputs that are no single tensor, as `input_lists`.")
      .def_property_readonly(
          "text", [](const relay::Graph& g) { return relay::to_text(g); }, "The graph in its text form.")
      .def_property_readonly("values", &values_of, "(name, type, whether it is a constant, whether `cut` may give it).")
      .def_readonly("input_values", &relay::Graph::inputs, "The inputs' places among the values.")
      .def_readonly("output_values", &relay::Graph::outputs, "The outputs' places among the values.")
      .def(
          "has_node",
          [](const relay::Graph& graph, const std::string& name) {
            return std::ranges::any_of(graph.nodes,
                                       [&](const relay::Node& node) { return relay::is_named(node, {name}); });
          },
          py::arg("name"), "Whether something is computed that is called so, as `keep_f32` takes it.")
      .def(
          "known_value", [](const relay::Graph& graph, size_t id) { return to_numpy(*graph.values.at(id).constant); },
          py::arg("id"), "The array of a constant, by its place among the values.")
      .def("cut", &relay::cut, py::arg("given"), py::arg("wanted"), unlocked,
           "The part that computes the values `wanted` from those `given`, by their places.")
      .def("evaluate", &evaluate, py::arg("arrays"),
           "The outputs by the oracle, which is slow, of C-contiguous arrays for all inputs in order.");
  module.def("optional_passes", &relay::optional_passes, "Names of the passes of graphs that can be left out.");
  module.def("compile", &compile, py::arg("graph"), py::arg("target"), py::arg("threads"), py::arg("precision"),
             py::arg("constraints"), py::arg("in_place"), py::arg("profiles"), py::arg("database"),
             py::arg("own_template"), py::arg("template_name"), py::arg("operator_schedules"), py::arg("keep_f32"),
             py::arg("unfused"), py::arg("skip"), py::arg("functions"),
             "The executable, and what the compilation did.  The options are those of tilewright.compile, checked;\n"
             "`threads` 0: one for each core; `database` \"\": none.");
  module.def(
      "specialise",
      [](const relay::Graph& graph, const SizeRanges& sizes) {
        return relay::specialise(graph, profile_of(sizes)).graph;
      },
      py::arg("graph"), py::arg("sizes"),
      "The graph at these sizes of its open dimensions: (least, typical or -1, largest) by name.");
  module.def("decisions", &decisions, py::arg("graph"), py::arg("target"), py::arg("threads"), py::arg("precision"),
             py::arg("constraints"),
             "What a network's kernels leave to decide: (name, groups of nodes, kernels, what was asked) of each.");
  module.def(
      "compile_decided", &compile_decided, py::arg("graph"), py::arg("target"), py::arg("threads"),
      py::arg("decisions"), py::arg("task") = "", py::arg("constraints") = "winograd=0",
      "For experiments: compiles with these decisions in one task or, without a task, wherever they are asked for.");
  module.def(
      "kernel_cache",
      []() -> std::optional<std::tuple<std::string, int64_t, int64_t>> {
        const auto cache = KernelCache::from_environment();
        if (!cache) return std::nullopt;
        const KernelCache::Size size = cache->size();
        return std::tuple(cache->directory().string(), size.entries, size.bytes);
      },
      "Where compiled kernels are kept: (directory, entries, bytes); None where they are not.");
}

}  // namespace tw::python
