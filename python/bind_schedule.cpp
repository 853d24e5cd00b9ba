#include "python/bind.h"
#include "schedule/schedule.h"
#include "targets/target.h"
#include "tensor_ir/match.h"
#include "tensor_ir/text/printer.h"

// Python has names for blocks, and words of the text form for scopes and axes of threads.
namespace pybind11::detail {

template <class T, auto parse>
struct text_caster {
  PYBIND11_TYPE_CASTER(T, const_name("str"));
  bool load(handle source, bool) {
    if (!isinstance<str>(source)) return false;
    value = parse(source.cast<std::string>());
    return true;
  }
};
template <>
struct type_caster<tw::Scope> : text_caster<tw::Scope, tw::parse_scope> {};
template <>
struct type_caster<tw::ThreadAxis> : text_caster<tw::ThreadAxis, tw::parse_thread_axis> {};
template <>
struct type_caster<tw::BlockRef>
    : text_caster<tw::BlockRef, [](std::string name) { return tw::BlockRef{std::move(name)}; }> {
  static handle cast(const tw::BlockRef& block, return_value_policy, handle) { return str(block.name).release(); }
};

}  // namespace pybind11::detail

namespace tw::python {
namespace {

Buffer buffer_of(const Func& func, const std::string& name) {
  for (const Buffer& buffer : func.buffers) {
    if (buffer->name == name) return buffer;
  }
  Buffer allocated;
  visit(func.body, [&](const Allocate& a) {
    if (a.buffer->name == name) allocated = a.buffer;
  });
  if (allocated.is_defined()) return allocated;
  throw Error(ErrorCode::schedule, func.name + " has no buffer " + name);
}

// `map` takes one expression a dimension and gives the new index: lambda k, n: [n // 16, k, n % 16].
IndexMap index_map(const Func& func, const std::string& name, const py::function& map) {
  IndexMap result;
  py::tuple arguments(buffer_of(func, name).rank());
  for (size_t i = 0; i < arguments.size(); ++i) {
    result.from.emplace_back("i" + std::to_string(i));
    arguments[i] = static_cast<const Expr&>(result.from.back());
  }
  for (const py::handle item : map(*arguments)) {
    result.to.push_back(py::isinstance<py::int_>(item) ? Expr(item.cast<int64_t>()) : item.cast<Expr>());
  }
  return result;
}

// A row of primitives.def: what takes a list of loops takes them one by one.  Layouts' maps are functions in Python.
template <class Result, class... Arguments>
void bind_primitive(py::class_<Schedule>& schedule, const char* name, const std::string& doc,
                    Result (Schedule::*method)(Arguments...)) {
  if constexpr (std::is_same_v<std::tuple<Arguments...>, std::tuple<const std::vector<LoopRef>&>>) {
    schedule.def(
        name, [method](Schedule& s, const py::args& loops) { return (s.*method)(loops.cast<std::vector<LoopRef>>()); },
        doc.c_str());
  } else if constexpr ((std::is_same_v<Arguments, const IndexMap&> || ...)) {
    schedule.def(
        name,
        [method](Schedule& s, const std::string& buffer, const py::function& map) {
          return (s.*method)(buffer, index_map(s.func(), buffer, map));
        },
        doc.c_str());
  } else {
    schedule.def(name, method, doc.c_str());
  }
}

// "split(loop, factors, /) -> list[Loop]", then what it does; pybind11 keeps a copy.
std::string documented(const char* method, const char* signature, const char* doc) {
  return *doc ? std::string(method) + signature + "\n\n" + doc : "";
}

Choice choice_of(const py::handle& value) {
  if (py::isinstance<py::int_>(value)) return {value.cast<int64_t>()};
  return value.cast<Choice>();
}

py::object value_of(const Choice& choice) {
  if (choice.size() == 1) return py::int_(choice[0]);
  return py::tuple(py::cast(choice));
}

py::object decide(Schedule& schedule, const std::string& name, const py::list& candidates, const py::object& analytic,
                  const std::optional<std::vector<double>>& costs) {
  if (costs && costs->size() != candidates.size())
    throw Error(ErrorCode::schedule, "decide: " + std::to_string(candidates.size()) + " candidates have " +
                                         std::to_string(costs->size()) + " costs\nhelp: give one cost for each");
  std::vector<Candidate> made;
  for (const py::handle item : candidates) made.push_back({choice_of(item), costs ? (*costs)[made.size()] : 1});
  const Choice preferred = choice_of(analytic);
  if (std::none_of(made.begin(), made.end(), [&](const Candidate& c) { return c.value == preferred; }))
    throw Error(ErrorCode::schedule, "decide: the analytic choice of " + name + " is no candidate\nhelp: add it");
  return value_of(schedule.decide(name, made, preferred));
}

}  // namespace

py::list asked_of(const Schedule& schedule) {
  py::list result;
  for (const AskedDecision& asked : schedule.asked()) {
    py::dict row;
    py::list candidates, costs;
    for (const Candidate& candidate : asked.candidates) {
      candidates.append(value_of(candidate.value));
      costs.append(candidate.cost);
    }
    row["name"] = asked.name, row["candidates"] = candidates, row["costs"] = costs;
    row["analytic"] = asked.analytic, row["chosen"] = asked.chosen;
    result.append(row);
  }
  return result;
}

void bind_schedule(py::module_& module) {
  py::options options;
  options.disable_function_signatures();  // ours are in the texts, as Python writes them
  py::class_<LoopRef>(module, "Loop", "A loop of a Schedule, until a primitive takes it apart (split, fuse).")
      .def_property_readonly(
          "name", [](const LoopRef& loop) { return loop.name(); }, "As texts and traces have it.")
      .def("__repr__", [](const LoopRef& loop) { return "<loop " + loop.name() + ">"; })
      .def("__eq__", [](const LoopRef& a, const LoopRef& b) { return a == b; })
      .def("__hash__", [](const LoopRef& loop) { return py::hash(py::str(loop.name())); });

  py::class_<Schedule> schedule(
      module, "Schedule",
      "Schedule(func, decisions={})\n\n"
      "A te.Func being transformed, primitive by primitive, and the trace of what was done.\n\n"
      "Blocks and buffers are named; loops are what `loops` and primitives give.  A primitive that is not legal raises "
      "Error (TW1401), which locates and suggests, and leaves the schedule as it was.  `decisions`: by name, what "
      "`decide` gives.");
  schedule
      .def(py::init([](const Func& func, const std::map<std::string, py::object>& decisions) {
             Decisions parsed;
             for (const auto& [name, value] : decisions) parsed[name] = choice_of(value);
             return Schedule(func, parsed);
           }),
           py::arg("func"), py::arg("decisions") = py::dict())
      .def("decide", decide, py::arg("name"), py::arg("candidates"), py::arg("analytic"), py::arg("costs") = py::none(),
           "decide(name, candidates, analytic, costs=None) -> int | tuple[int, ...]\n\n"
           "The value that was decided for `name`, else `analytic`, which is one of the candidates: numbers or tuples "
           "of numbers.  `costs`: the predicted time with each, in any unit; left out, all are alike.")
      .def_property_readonly("asked", asked_of,
                             "What was asked for: dicts of name, candidates, costs, analytic and chosen (positions).")
      .def_property_readonly("func", &Schedule::func, "The loops as they are now: a te.Func.")
      .def_property_readonly(
          "trace", [](const Schedule& s) { return to_text(s.trace()); }, "What was done, as text that `replay` takes.")
      .def("blocks", &Schedule::blocks, "blocks() -> list[str]\n\nNames of the blocks, in the order of the text.")
      .def("loops", &Schedule::loops, "loops(block, /) -> list[Loop]\n\nThe loops around a block, outermost first.")
      .def(
          "extent", [](const Schedule& s, const LoopRef& loop) { return as_int(s.node(loop).extent); }, py::arg("loop"),
          "extent(loop) -> int | None\n\nIterations of a loop; None: known when a run begins.")
      .def_static(
          "replay", [](const std::string& trace, const Func& func) { return replay(parse_trace(trace), func); },
          py::arg("trace"), py::arg("func"),
          "replay(trace, func) -> Schedule\n\n"
          "What a trace makes of a te.Func.  Raises Error: TW1402 where the text is no trace, TW1401 where one of "
          "its primitives is not legal.")
      .def_static(
          "default",
          [](const Func& func, const std::string& target, const std::map<std::string, py::object>& decisions) {
            const Target parsed = parse_target(target);
            if (decisions.empty()) return parsed.default_schedule(func, parsed);
            if (!parsed.decided_schedule)
              throw Error(ErrorCode::schedule, "the templates of " + target + " leave nothing to decide");
            Decisions decided;
            for (const auto& [name, value] : decisions) decided[name] = choice_of(value);
            return parsed.decided_schedule(func, parsed, decided);
          },
          py::arg("func"), py::arg("target") = "cpu", py::arg("decisions") = py::dict(),
          "default(func, target=\"cpu\", decisions={}) -> Schedule\n\n"
          "What the target's templates make of a te.Func, by analysis or by these decisions.");
#define PRIMITIVE(name, method, signature, doc, Result, ...)             \
  bind_primitive(schedule, #method, documented(#method, signature, doc), \
                 static_cast<Result (Schedule::*)(__VA_ARGS__)>(&Schedule::method));
#include "schedule/primitives.def"
}

}  // namespace tw::python
