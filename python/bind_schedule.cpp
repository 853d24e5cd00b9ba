#include "python/bind.h"
#include "schedule/schedule.h"
#include "targets/target.h"
#include "tensor_ir/match.h"
#include "tensor_ir/printer.h"

namespace tw::python {
namespace {

BlockRef block_of(const Schedule& schedule, const std::string& name) {
  return schedule.block(name);
}

Scope scope_of(const std::string& name) {
  for (const Scope scope :
       {Scope::global, Scope::stack, Scope::local, Scope::register_, Scope::shared, Scope::fragment}) {
    if (to_text(scope) == name) return scope;
  }
  throw Error(ErrorCode::schedule,
              "there is no scope " + name + "\nhelp: the scopes are global, stack, local, register, shared, fragment");
}

ThreadAxis axis_of(const std::string& name) {
  static const std::vector<std::pair<std::string, ThreadAxis>> axes = {
      {"block.x", ThreadAxis::block_x},   {"block.y", ThreadAxis::block_y},   {"block.z", ThreadAxis::block_z},
      {"thread.x", ThreadAxis::thread_x}, {"thread.y", ThreadAxis::thread_y}, {"thread.z", ThreadAxis::thread_z}};
  for (const auto& [text, axis] : axes) {
    if (text == name) return axis;
  }
  throw Error(ErrorCode::schedule,
              "there is no thread axis " + name + "\nhelp: use block.x … block.z, thread.x … thread.z");
}

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

}  // namespace

void bind_schedule(py::module_& module) {
  py::class_<LoopRef>(module, "Loop")
      .def_property_readonly("name", [](const LoopRef& loop) { return loop.name(); })
      .def("__repr__", [](const LoopRef& loop) { return "<loop " + loop.name() + ">"; })
      .def("__eq__", [](const LoopRef& a, const LoopRef& b) { return a == b; })
      .def("__hash__", [](const LoopRef& loop) { return py::hash(py::str(loop.name())); });

  py::class_<Schedule>(module, "Schedule")
      .def(py::init<Func>(), py::arg("func"))
      .def_property_readonly("func", &Schedule::func)
      .def_property_readonly("trace", [](const Schedule& s) { return to_text(s.trace()); })
      .def("blocks",
           [](const Schedule& s) {
             std::vector<std::string> names;
             for (const BlockRef& block : s.blocks()) names.push_back(block.name);
             return names;
           })
      .def("loops", [](const Schedule& s, const std::string& block) { return s.loops(block_of(s, block)); })
      .def("split", [](Schedule& s, const LoopRef& loop,
                       const std::vector<std::optional<int64_t>>& factors) { return s.split(loop, factors); })
      .def("fuse", [](Schedule& s, const py::args& loops) { return s.fuse(loops.cast<std::vector<LoopRef>>()); })
      .def("reorder", [](Schedule& s, const py::args& loops) { s.reorder(loops.cast<std::vector<LoopRef>>()); })
      .def("parallel", &Schedule::parallel)
      .def("vectorize", &Schedule::vectorize)
      .def("unroll", &Schedule::unroll)
      .def("pipeline", &Schedule::pipeline)
      .def("tensorize", &Schedule::tensorize)
      .def("bind", [](Schedule& s, const LoopRef& loop, const std::string& axis) { s.bind(loop, axis_of(axis)); })
      .def("annotate", [](Schedule& s, const LoopRef& loop, const std::string& key,
                          const AttributeValue& value) { s.annotate(loop, key, value); })
      .def("annotate", [](Schedule& s, const std::string& block, const std::string& key,
                          const AttributeValue& value) { s.annotate(block_of(s, block), key, value); })
      .def("compute_at",
           [](Schedule& s, const std::string& block, const LoopRef& loop) { s.compute_at(block_of(s, block), loop); })
      .def("reverse_compute_at", [](Schedule& s, const std::string& block,
                                    const LoopRef& loop) { s.reverse_compute_at(block_of(s, block), loop); })
      .def("compute_inline", [](Schedule& s, const std::string& block) { s.compute_inline(block_of(s, block)); })
      .def("reverse_compute_inline",
           [](Schedule& s, const std::string& block) { s.reverse_compute_inline(block_of(s, block)); })
      .def("cache_read",
           [](Schedule& s, const std::string& block, const std::string& buffer, const std::string& scope) {
             return s.cache_read(block_of(s, block), buffer, scope_of(scope)).name;
           })
      .def("cache_write",
           [](Schedule& s, const std::string& block, const std::string& buffer, const std::string& scope) {
             return s.cache_write(block_of(s, block), buffer, scope_of(scope)).name;
           })
      .def("set_scope", [](Schedule& s, const std::string& buffer,
                           const std::string& scope) { s.set_scope(buffer, scope_of(scope)); })
      .def("transform_layout",
           [](Schedule& s, const std::string& buffer, const py::function& map) {
             s.transform_layout(buffer, index_map(s.func(), buffer, map));
           })
      .def("pad", [](Schedule& s, const std::string& block,
                     const std::vector<int64_t>& multiples) { s.pad(block_of(s, block), multiples); })
      .def("decompose_reduction",
           [](Schedule& s, const std::string& block, const LoopRef& loop) {
             return s.decompose_reduction(block_of(s, block), loop).name;
           })
      .def("rfactor", [](Schedule& s, const LoopRef& loop, int axis) { return s.rfactor(loop, axis).name; })
      .def_static(
          "replay", [](const std::string& trace, const Func& func) { return replay(parse_trace(trace), func); },
          py::arg("trace"), py::arg("func"))
      .def_static(
          "default",
          [](const Func& func, const std::string& target) {
            const Target parsed = parse_target(target);
            return parsed.default_schedule(func, parsed);
          },
          py::arg("func"), py::arg("target") = "cpu");
}

}  // namespace tw::python
