// Tuning jobs and their database.
#include <pybind11/functional.h>

#include "autotune/database.h"
#include "autotune/space.h"
#include "autotune/task.h"
#include "autotune/tune.h"
#include "python/bind.h"
#include "python/own_template.h"

namespace tw::python {
namespace {

using autotune::Database;

// `ask`: called with no arguments now and then, with the GIL, so that Python's signal handlers run; what it raises ends
// the job at once.
bool asks_to_end(const py::function& ask) {
  const py::gil_scoped_acquire locked;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  return ask().cast<bool>();
}

void tune(const relay::Graph& graph, const std::string& target, const std::string& database, int threads,
          const std::string& precision, bool winograd, double budget, uint64_t seed, const std::string& measure_program,
          const py::function& on_event, const py::function& is_stopping, int most_trials, int most_tasks,
          bool is_evolution, const py::object& own_template, const std::string& template_name) {
  const Target parsed = with_template(parse_target(target), own_template, template_name);
  const py::gil_scoped_release unlocked;
  const auto cache = KernelCache::from_environment();
  autotune::TuneOptions options;
  options.compile.threads = threads;
  options.compile.precision = parse_dtype(precision).value();
  options.compile.winograd = winograd;
  options.compile.cache = cache.get();
  options.budget_seconds = budget;
  options.seed = seed;
  options.measure_program = measure_program;
  options.most_trials = most_trials;
  options.most_tasks = most_tasks;
  if (is_evolution) options.strategy = autotune::Strategy::evolution;
  options.on_event = [&](const std::string& line) {
    const py::gil_scoped_acquire locked;
    on_event(line);
  };
  options.is_stopping = [&] { return asks_to_end(is_stopping); };
  options.is_cancelled = [&] { return asks_to_end(is_stopping), false; };
  Database records(database, Database::Access::write);
  autotune::tune(graph, parsed, records, options);
}

py::dict summary(const std::string& path) {
  const Database database(path, Database::Access::read);
  const Database::Summary summary = database.summary();
  py::dict result, by_status;
  for (const auto& [status, count] : summary.by_status) by_status[status.c_str()] = count;
  result["targets"] = summary.targets;
  result["tasks"] = summary.tasks;
  result["jobs"] = summary.jobs;
  result["records"] = summary.records;
  result["confirmations"] = summary.confirmations;
  result["by_status"] = by_status;
  return result;
}

}  // namespace

void bind_tune(py::module_& module) {
  module.def("tune", &tune, py::arg("graph"), py::arg("target"), py::arg("database"), py::arg("threads"),
             py::arg("precision"), py::arg("winograd"), py::arg("budget"), py::arg("seed"), py::arg("measure_program"),
             py::arg("on_event"), py::arg("is_stopping"), py::arg("most_trials") = 64, py::arg("most_tasks") = 0,
             py::arg("is_evolution") = false, py::arg("own_template") = py::none(), py::arg("template_name") = "");
  module.def("database_summary", &summary);
  module.def("database_lines", [](const std::string& path, const std::function<void(const std::string&)>& line) {
    Database(path, Database::Access::read).export_lines(line);
  });
  module.def("database_merge", [](const std::string& into, const std::string& from) {
    return Database(into, Database::Access::write).merge(from);
  });
  module.def("database_verify",
             [](const std::string& path) { return Database(path, Database::Access::read).verify(); });
  module.def("database_prune", [](const std::string& path) {
    return Database(path, Database::Access::write).prune(autotune::space_version, autotune::compiler_key());
  });
}

}  // namespace tw::python
