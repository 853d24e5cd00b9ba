// Tuning jobs and their database.
#include <pybind11/functional.h>

#include <nlohmann/json.hpp>

#include "autotune/database/database.h"
#include "autotune/fleet/fleet.h"
#include "autotune/search/cost_model.h"
#include "autotune/search/space.h"
#include "autotune/task.h"
#include "autotune/tune.h"
#include "python/bind.h"
#include "python/own_schedules.h"
#include "targets/machine_target.h"

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

// A device of Python's (tilewright/device.py): whatever it raises, the device is lost.
class PythonDevice : public autotune::Device {
 public:
  explicit PythonDevice(py::object device) : device_(std::move(device)) {}
  ~PythonDevice() override {
    const py::gil_scoped_acquire locked;
    device_ = py::object();
  }
  std::string name() const override {
    return ask([&] { return device_.attr("name").cast<std::string>(); });
  }
  MachineFacts reach() override {
    return parse_machine_facts(ask([&] { return device_.attr("reach")().cast<std::string>(); }));
  }
  std::vector<std::byte> call(const std::vector<std::vector<std::byte>>& parts, int64_t most_bytes,
                              double seconds) override {
    return ask([&] {
      py::list list;
      for (const auto& part : parts) list.append(py::bytes(reinterpret_cast<const char*>(part.data()), part.size()));
      const py::bytes answer = device_.attr("call")(list, most_bytes, seconds);
      const std::string_view text = answer;
      const auto bytes = std::as_bytes(std::span(text));
      return std::vector<std::byte>(bytes.begin(), bytes.end());
    });
  }
  void interrupt() override {
    ask([&] { return device_.attr("interrupt")(), 0; });
  }

 private:
  template <class F>
  auto ask(F&& f) const -> decltype(f()) {
    const py::gil_scoped_acquire locked;
    try {
      return f();
    } catch (py::error_already_set& error) {
      if (error.matches(PyExc_KeyboardInterrupt)) throw;
      const bool is_nonsense = py::getattr(error.value(), "is_nonsense", py::bool_(false)).cast<bool>();
      throw Error(is_nonsense ? ErrorCode::artifact : ErrorCode::device, py::str(error.value()).cast<std::string>());
    } catch (const py::cast_error&) {
      throw Error(ErrorCode::device, "it answers something else than bytes");
    }
  }
  py::object device_;
};

using OnEvent = py::typing::Callable<void(std::string)>;  // takes a line of JSON
using IsStopping = py::typing::Callable<bool()>;

std::unique_ptr<autotune::Fleet> fleet_of(const py::list& devices, const OnEvent& on_event) {
  std::vector<std::unique_ptr<autotune::Device>> list;
  for (const py::handle device : devices)
    list.push_back(std::make_unique<PythonDevice>(py::reinterpret_borrow<py::object>(device)));
  const auto on_lost = [&on_event](const std::string& name, const std::string& reason) {
    const nlohmann::json event = {{"event", "device_lost"}, {"device", name}, {"reason", reason}};
    const py::gil_scoped_acquire locked;
    on_event(event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  };
  const py::gil_scoped_release unlocked;
  return std::make_unique<autotune::Fleet>(std::move(list), on_lost);
}

void tune(const relay::Graph& graph, const std::string& target, const std::string& database, int threads,
          const std::string& precision, const std::string& constraints, double budget, uint64_t seed,
          const std::string& measure_program, const OnEvent& on_event, const IsStopping& is_stopping, int most_trials,
          int most_tasks, bool is_evolution, const py::typing::List<py::object>& devices, bool is_check,
          const py::object& own_template, const std::string& template_name,
          const std::map<std::string, py::object>& operator_schedules, bool choices,
          const std::vector<std::string>& only_tasks, const PythonFunctions& functions) {
  const auto fleet = devices.empty() ? nullptr : fleet_of(devices, on_event);
  const Target parsed = with_schedules(fleet ? parse_target(target, fleet->facts()) : parse_target(target),
                                       {own_template, template_name, operator_schedules});
  const bool is_for_gpu = parsed.compute_capability > 0;
  const bool is_emulated =
      (fleet && fleet->facts().is_emulated) || (is_for_gpu && (fleet ? fleet->facts().gpu : this_gpu()).is_emulated);
  if (is_emulated && !is_check) {
    throw Error(ErrorCode::target, std::string(fleet ? "the devices are" : "the GPU is") +
                                       " emulated, and an emulator's times mean nothing\n"
                                       "  help: check=True, or --check, tries candidates there and keeps no record");
  }
  auto host_functions = in_python(functions);
  const py::gil_scoped_release unlocked;
  const auto cache = KernelCache::from_environment();
  autotune::TuneOptions options;
  options.compile.host_functions = std::move(host_functions);
  options.compile.threads = threads;
  options.compile.precision = relay::parse_precision(precision).value();
  options.compile.constraints = parse_decisions(constraints);
  options.compile.cache = cache.get();
  options.budget_seconds = budget;
  options.seed = seed;
  options.measure_program = measure_program;
  options.most_trials = most_trials;
  options.most_tasks = most_tasks;
  options.only_tasks = only_tasks;
  options.choices = choices;
  if (is_evolution) options.strategy = autotune::Strategy::evolution;
  options.on_event = [&](const std::string& line) {
    const py::gil_scoped_acquire locked;
    on_event(line);
  };
  options.is_stopping = [&] { return asks_to_end(is_stopping); };
  options.is_cancelled = [&] { return asks_to_end(is_stopping), false; };
  options.fleet = fleet.get();
  Database records(database, Database::Access::write);
  autotune::tune(graph, parsed, records, options);
  const py::gil_scoped_acquire locked;
  log_problems(cache.get());
}

Facts summary(const std::string& path) {
  const Database database(path, Database::Access::read);
  const Database::Summary summary = database.summary();
  Facts result;
  py::dict by_status;
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
  module.def(
      "tune", &tune, py::arg("graph"), py::arg("target"), py::arg("database"), py::arg("threads"), py::arg("precision"),
      py::arg("constraints"), py::arg("budget"), py::arg("seed"), py::arg("measure_program"), py::arg("on_event"),
      py::arg("is_stopping"), py::arg("most_trials") = 64, py::arg("most_tasks") = 0, py::arg("is_evolution") = false,
      py::arg("devices") = py::list(), py::arg("is_check") = false, py::arg("own_template") = py::none(),
      py::arg("template_name") = "", py::arg("operator_schedules") = std::map<std::string, py::object>(),
      py::arg("choices") = true, py::arg("only_tasks") = std::vector<std::string>(),
      py::arg("functions") = PythonFunctions(),
      "A tuning job of `budget` seconds.  `on_event` is called with lines of JSON, `is_stopping` now and then; the\n"
      "other options are those of tilewright.tune, checked.");
  module.def("rank_correlation", &autotune::rank_correlation, py::arg("a"), py::arg("b"),
             "Spearman's, of two lists of one length: from -1 to 1.");
  module.def("database_summary", &summary, py::arg("path"), "Counts of what is in a database of tuning records.");
  module.def(
      "database_lines",
      [](const std::string& path, const std::function<void(const std::string&)>& line) {
        Database(path, Database::Access::read).export_lines(line);
      },
      py::arg("path"), py::arg("line"), "Calls `line` with each row of a database as JSON.");
  module.def(
      "database_merge",
      [](const std::string& into, const std::string& from) {
        return Database(into, Database::Access::write).merge(from);
      },
      py::arg("into"), py::arg("source"), "Takes over the rows of another database; gives how many are new.");
  module.def(
      "database_verify", [](const std::string& path) { return Database(path, Database::Access::read).verify(); },
      py::arg("path"), "What is damaged in a database, in words.");
  module.def(
      "database_prune",
      [](const std::string& path) {
        return Database(path, Database::Access::write).prune(autotune::space_version, autotune::compiler_key());
      },
      py::arg("path"), "Removes the rows of other builds of the compiler; gives how many.");
}

}  // namespace tw::python
