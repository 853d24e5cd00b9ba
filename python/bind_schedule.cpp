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
using IndexFunction = py::typing::Callable<py::typing::Iterable<py::typing::Union<Expr, py::int_>>(py::ellipsis)>;

IndexMap index_map(const Func& func, const std::string& name, const IndexFunction& map) {
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

template <class... Names>
constexpr std::array<const char*, sizeof...(Names)> named(Names... names) {
  return {names...};
}

// A row of primitives.def: what takes a list of loops takes them one by one.  Layouts' maps are functions in Python.
template <class Result, class... Arguments>
void bind_primitive(py::class_<Schedule>& schedule, const char* name, Result (Schedule::*method)(Arguments...),
                    const std::array<const char*, sizeof...(Arguments)>& names, const char* what) {
  if constexpr (std::is_same_v<std::tuple<Arguments...>, std::tuple<const std::vector<LoopRef>&>>) {
    schedule.def(
        name,
        [method](Schedule& s, const py::Args<LoopRef>& loops) {
          return (s.*method)(loops.cast<std::vector<LoopRef>>());
        },
        what);
  } else if constexpr ((std::is_same_v<Arguments, const IndexMap&> || ...)) {
    const auto with_function = [method](Schedule& s, const std::string& buffer, const IndexFunction& map) {
      return (s.*method)(buffer, index_map(s.func(), buffer, map));
    };
    schedule.def(name, with_function, py::arg(names[0]), py::arg(names[1]), what);
  } else {
    [&]<size_t... I>(std::index_sequence<I...>) {
      schedule.def(name, method, py::arg(names[I]).noconvert(std::is_arithmetic_v<Arguments>)..., what);
    }(std::index_sequence_for<Arguments...>());
  }
}

using Numbers = py::typing::Tuple<py::int_, py::ellipsis>;
using DecidedValues = std::map<std::string, py::typing::Union<py::int_, Numbers>>;

Choice choice_of(const py::handle& value) {
  if (py::isinstance<py::int_>(value)) return {value.cast<int64_t>()};
  return value.cast<Choice>();
}

py::object value_of(const Choice& choice) {
  if (choice.size() == 1) return py::int_(choice[0]);
  return py::tuple(py::cast(choice));
}

Decisions decisions_of(const DecidedValues& values) {
  Decisions decisions;
  for (const auto& [name, value] : values) decisions[name] = choice_of(value);
  return decisions;
}

// Value: py::int_ or Numbers, as candidates are.
template <class Value>
Value decide(Schedule& schedule, const std::string& name, const py::typing::List<Value>& candidates,
             const Value& analytic, const std::optional<std::vector<double>>& costs) {
  if (costs && costs->size() != candidates.size())
    throw Error(ErrorCode::schedule, "decide: " + std::to_string(candidates.size()) + " candidates have " +
                                         std::to_string(costs->size()) + " costs\nhelp: give one cost for each");
  std::vector<Candidate> made;
  for (const py::handle item : candidates) made.push_back({choice_of(item), costs ? (*costs)[made.size()] : 1});
  const Choice preferred = choice_of(analytic);
  if (std::none_of(made.begin(), made.end(), [&](const Candidate& c) { return c.value == preferred; }))
    throw Error(ErrorCode::schedule, "decide: the analytic choice of " + name + " is no candidate\nhelp: add it");
  const Choice choice = schedule.decide(name, made, preferred);
  if constexpr (std::is_same_v<Value, py::int_>) return py::int_(choice.at(0));
  return py::tuple(py::cast(choice));
}

}  // namespace

py::typing::List<Facts> asked_of(const Schedule& schedule) {
  py::typing::List<Facts> result;
  for (const AskedDecision& asked : schedule.asked()) {
    Facts row;
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
  py::class_<LoopRef>(module, "Loop", "A loop of a schedule, until a primitive such as split takes its place.")
      .def_property_readonly(
          "name", [](const LoopRef& loop) { return loop.name(); }, "Its variable.")
      .def("__repr__", [](const LoopRef& loop) { return "<loop " + loop.name() + ">"; })
      .def(
          "__eq__",
          [](const LoopRef& a, const py::object& b) {
            return py::isinstance<LoopRef>(b) && a == b.cast<const LoopRef&>();
          },
          py::arg("other"))
      .def("__hash__", [](const LoopRef& loop) { return py::hash(py::str(loop.name())); });

  py::class_<Schedule> schedule(
      module, "Schedule",
      "A Func that primitives transform, one after the other: its loops change, what it computes does not.\n\n"
      "Blocks are given by name and loops as `loops` gives them.  A primitive that is not legal raises Error "
      "(TW1401),\n"
      "which says where and why, and the schedule stays as it was.");
  const char* decide_text =
      "The value that was decided for `name`, else `analytic`, which is one of the candidates: numbers, or tuples of\n"
      "numbers.\n\n"
      "`costs`: the predicted time with each, in any unit; left out, all are alike.";
  schedule
      .def(py::init([](const Func& func, const DecidedValues& decisions) {
             return Schedule(func, decisions_of(decisions));
           }),
           py::arg("func"), py::arg("decisions") = py::dict(),
           "A schedule of the loops as they are.  `decisions`: what `decide` gives, by name.")
      .def("decide", &decide<py::int_>, py::arg("name"), py::arg("candidates"), py::arg("analytic"),
           py::arg("costs") = py::none(), decide_text)
      .def("decide", &decide<Numbers>, py::arg("name"), py::arg("candidates"), py::arg("analytic"),
           py::arg("costs") = py::none(), decide_text)
      .def_property_readonly("asked", asked_of,
                             "What was asked for: dicts of name, candidates, costs, analytic and chosen (positions).")
      .def_property_readonly("func", &Schedule::func, "The loops as they are now.")
      .def_property_readonly(
          "trace", [](const Schedule& s) { return to_text(s.trace()); }, "What was done, as text that `replay` takes.")
      .def("blocks", &Schedule::blocks, "The names of all blocks, in the order of the text.")
      .def("loops", &Schedule::loops, py::arg("block"), "The loops around a block, outermost first.")
      .def(
          "extent", [](const Schedule& s, const LoopRef& loop) { return as_int(s.node(loop).extent); }, py::arg("loop"),
          "Iterations of a loop; None: known when a run begins.")
      .def_static(
          "replay", [](const std::string& trace, const Func& func) { return replay(parse_trace(trace), func); },
          py::arg("trace"), py::arg("func"),
          "The schedule that a trace makes of a Func.  Error names the line that does not parse (TW1402), or that is\n"
          "not legal (TW1401).")
      .def_static(
          "default",
          [](const Func& func, const std::string& target, const DecidedValues& decisions) {
            const Target parsed = parse_target(target);
            if (decisions.empty()) return parsed.default_schedule(func, parsed);
            if (!parsed.decided_schedule)
              throw Error(ErrorCode::schedule, "the templates of " + target + " leave nothing to decide");
            return parsed.decided_schedule(func, parsed, decisions_of(decisions));
          },
          py::arg("func"), py::arg("target") = "cpu", py::arg("decisions") = py::dict(),
          "What the target does with a Func by itself.  `decisions`: values for what its templates ask (`asked`).");
#define PRIMITIVE(name, method, names, what, Result, ...)                                                           \
  bind_primitive(schedule, #method, static_cast<Result (Schedule::*)(__VA_ARGS__)>(&Schedule::method), named names, \
                 what);
#include "schedule/primitives.def"
}

}  // namespace tw::python
