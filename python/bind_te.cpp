// Tensor expressions for Python: Expr with operators, tensors that are indexed, compute and reduce over lambdas.
#include <functional>

#include "python/array.h"
#include "python/bind.h"
#include "python/build_func.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/interp/interp.h"
#include "tensor_ir/te.h"
#include "tensor_ir/text/parser.h"
#include "tensor_ir/text/printer.h"

namespace tw::python {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::text, message);
}

DType dtype_named(const std::string& name) {
  if (const auto dtype = parse_dtype(name)) return *dtype;
  refuse("there is no element type " + name + "\nhelp: f32 f64 f16 bf16 i8 i16 i32 i64 u8 u16 u32 u64 bool");
}

// A Python number takes the dtype of what it meets.
Expr expr_of(const py::handle& value, DType dtype) {
  if (py::isinstance<Expr>(value)) return value.cast<Expr>();
  if (py::isinstance<py::bool_>(value)) return bool_imm(value.cast<bool>());
  if (py::isinstance<py::int_>(value)) {
    return dtype.is_float() ? float_imm(dtype, value.cast<double>()) : int_imm(dtype, value.cast<int64_t>());
  }
  if (py::isinstance<py::float_>(value) && dtype.is_float()) return float_imm(dtype, value.cast<double>());
  refuse("an expression of type " + to_string(dtype) + " is needed, not " + py::repr(value).cast<std::string>());
}

Expr require_same(const Expr& a, const Expr& b, const char* operation, const std::function<Expr()>& make) {
  if (a.dtype() != b.dtype()) {
    refuse(std::string("operands of ") + operation + " are " + to_string(a.dtype()) + " and " + to_string(b.dtype()) +
           "\nhelp: te.cast(dtype, value) converts");
  }
  return make();
}

using Operation = Expr (*)(Expr, Expr);

template <class Class>
void define_operator(Class& expr, const char* method, const char* reflected, const char* symbol, Operation operation) {
  const auto apply = [symbol, operation](const Expr& a, const Expr& b) {
    return require_same(a, b, symbol, [&] { return operation(a, b); });
  };
  expr.def(
      method, [apply](const Expr& a, const py::object& b) { return apply(a, expr_of(b, a.dtype())); },
      py::is_operator());
  if (reflected) {
    expr.def(
        reflected, [apply](const Expr& a, const py::object& b) { return apply(expr_of(b, a.dtype()), a); },
        py::is_operator());
  }
}

Intrinsic intrinsic_named(const std::string& name) {
  static const std::map<std::string, Intrinsic> intrinsics = {
#define INTRINSIC(name, arity, kind) {#name, Intrinsic::name},
#include "tensor_ir/intrinsics.def"
  };
  const auto found = intrinsics.find(name);
  if (found == intrinsics.end()) refuse("there is no function " + name + "\nhelp: see tensor_ir/intrinsics.def");
  return found->second;
}

// The tensors that a lambda indexes are its inputs.  While one is being called, they are collected here.
thread_local std::vector<te::Tensor>* tensors_in_use = nullptr;

Expr index(const te::Tensor& tensor, const py::object& indices) {
  std::vector<Expr> exprs;
  if (py::isinstance<py::tuple>(indices)) {
    for (const py::handle item : indices) exprs.push_back(expr_of(item, i64));
  } else {
    exprs.push_back(expr_of(indices, i64));
  }
  if (static_cast<int>(exprs.size()) != tensor.rank()) {
    refuse(tensor.buffer()->name + " has " + std::to_string(tensor.rank()) + " dimensions, " +
           std::to_string(exprs.size()) + " indices were given");
  }
  if (tensors_in_use) tensors_in_use->push_back(tensor);
  return tensor(std::move(exprs));
}

py::object call_lambda(const py::function& value, const te::Indices& spatial, const te::Indices& reduce) {
  py::list arguments;
  for (const Expr& e : spatial) arguments.append(e);
  for (const Expr& e : reduce) arguments.append(e);
  return value(*py::tuple(arguments));
}

Expr value_at(const py::function& value, const te::Indices& spatial, const te::Indices& reduce, DType dtype = f32) {
  return expr_of(call_lambda(value, spatial, reduce), dtype);
}

te::Indices variables(size_t count) {
  te::Indices indices;
  for (size_t i = 0; i < count; ++i) indices.push_back(Var("v" + std::to_string(i)));
  return indices;
}

std::vector<te::Tensor> tensors_used(const py::function& value, size_t spatial, size_t reduce) {
  std::vector<te::Tensor> used;
  tensors_in_use = &used;
  try {
    call_lambda(value, variables(spatial), variables(reduce));
  } catch (...) {
    tensors_in_use = nullptr;
    throw;
  }
  tensors_in_use = nullptr;
  return used;
}

// (stages, update) of te.update on the first input: the Func that computes the tensors between, or None, and the loops
// that write the changed elements, where these are (ops/custom.cpp).
py::tuple make_update(const std::string& name, const std::vector<te::Tensor>& inputs, const py::sequence& extents,
                      const py::function& place, const py::function& value) {
  const te::Tensor& past = inputs.at(0);
  const std::vector<Expr> shape = shape_of(extents);
  std::vector<te::Tensor> stages;
  for (const py::function& each : {place, value}) {
    for (const te::Tensor& used : tensors_used(each, shape.size(), 0)) {
      const auto is_same = [&](const te::Tensor& other) { return other.buffer() == used.buffer(); };
      if (used.stage() && std::none_of(stages.begin(), stages.end(), is_same)) stages.push_back(used);
    }
  }
  te::Indices loops = variables(shape.size());
  Assumptions known;
  for (size_t d = 0; d < shape.size(); ++d) known.bind_range(Var::of(loops[d]), shape[d]);
  const py::object places = call_lambda(place, loops, {});
  std::vector<Expr> to;
  if (py::isinstance<py::tuple>(places)) {
    for (const py::handle each : places) to.push_back(expr_of(each, i64));
  } else {
    to.push_back(expr_of(places, i64));
  }
  if (to.size() != past.shape().size())
    refuse("the place is of " + std::to_string(to.size()) + " indices, " + past.buffer()->name + " has " +
           std::to_string(past.rank()) + " dimensions");
  const Expr element = value_at(value, loops, {}, past.dtype());
  if (element.dtype() != past.dtype())
    refuse("the value is " + to_string(element.dtype()) + ", " + past.buffer()->name + " is " +
           to_string(past.dtype()) + "\nhelp: te.cast(dtype, value) converts");
  Expr within;
  std::vector<std::pair<Var, Expr>> places_found;  // once, of those that may lie outside
  for (size_t d = 0; d < to.size(); ++d) {
    const Expr place = cast(i64, to[d]), &extent = past.shape()[d];
    to[d] = place;
    if (can_prove(Expr(0) <= place, known) && can_prove(place < extent, known)) continue;
    places_found.emplace_back(Var("place" + std::to_string(d)), place);
    to[d] = places_found.back().first;
    const Expr is_within = Expr(0) <= to[d] && to[d] < extent;
    within = within.is_defined() ? within && is_within : is_within;
  }
  Func update{name, {}, 1, {}, {}, {}};
  for (const te::Tensor& input : inputs) update.buffers.push_back(input.buffer());
  const Buffer result("result", past.dtype(), past.shape());
  Stmt body = store(result, to, element);
  if (within.is_defined()) body = make_stmt<If>(within, body, Stmt());
  for (const auto& [var, found] : places_found) body = make_stmt<LetStmt>(var, found, body);
  for (size_t d = shape.size(); d-- > 0;) body = make_stmt<For>(Var::of(loops[d]), shape[d], LoopKind::serial, body);
  body = replace_buffer(body, past.buffer(), result);
  for (size_t i = 0; i < stages.size(); ++i) {
    const Buffer stage("stage" + std::to_string(i), stages[i].dtype(), stages[i].shape());
    body = replace_buffer(body, stages[i].buffer(), stage);
    update.buffers.push_back(stage);
  }
  update.buffers.push_back(result);
  update.body = body;
  py::object computed = py::none();
  if (!stages.empty()) computed = py::cast(te::make_func(name, inputs, stages));
  return py::make_tuple(computed, update);
}

te::Combiner combiner_named(const std::string& name) {
  static const std::map<std::string, te::Combiner> combiners = {
      {"sum", te::Combiner::sum}, {"product", te::Combiner::product},         {"min", te::Combiner::min},
      {"max", te::Combiner::max}, {"logical_and", te::Combiner::logical_and}, {"logical_or", te::Combiner::logical_or}};
  const auto found = combiners.find(name);
  if (found == combiners.end())
    refuse("there is no combiner " + name + "\nhelp: sum product min max logical_and logical_or");
  return found->second;
}

void run_oracle(const Func& func, const std::vector<py::array>& arrays) {
  if (arrays.size() != func.buffers.size()) {
    throw Error(ErrorCode::input, func.name + " has " + std::to_string(func.buffers.size()) + " buffers, " +
                                      std::to_string(arrays.size()) + " arrays were given");
  }
  interpret(func, views_of(arrays));
}

}  // namespace

Expr extent_of(const py::handle& extent) {
  return expr_of(extent, i64);
}

std::vector<Expr> shape_of(const py::sequence& extents) {
  std::vector<Expr> shape;
  for (const py::handle extent : extents) shape.push_back(extent_of(extent));
  return shape;
}

void bind_tensor_expressions(py::module_& module) {
  py::class_<Expr> expr(
      module, "Expr",
      "A number that loops compute: an element, an index, or arithmetic on them.  Both sides are of one type, to which "
      "Python's numbers are converted; `==` compares the objects, `equal` what they are.");
  expr.def("__repr__", [](const Expr& e) { return to_text(e); })
      .def_property_readonly(
          "dtype", [](const Expr& e) { return to_string(e.dtype()); }, "\"f32\", \"i64\", …")
      .def("__neg__", [](const Expr& a) { return -a; });
  define_operator(expr, "__add__", "__radd__", "+", [](Expr a, Expr b) { return a + b; });
  define_operator(expr, "__sub__", "__rsub__", "-", [](Expr a, Expr b) { return a - b; });
  define_operator(expr, "__mul__", "__rmul__", "*", [](Expr a, Expr b) { return a * b; });
  define_operator(expr, "__truediv__", "__rtruediv__", "/", [](Expr a, Expr b) { return a / b; });
  define_operator(expr, "__floordiv__", "__rfloordiv__", "//", [](Expr a, Expr b) { return floor_div(a, b); });
  define_operator(expr, "__mod__", "__rmod__", "%", [](Expr a, Expr b) { return floor_mod(a, b); });
  define_operator(expr, "__lt__", nullptr, "<", [](Expr a, Expr b) { return a < b; });
  define_operator(expr, "__le__", nullptr, "<=", [](Expr a, Expr b) { return a <= b; });
  define_operator(expr, "__gt__", nullptr, ">", [](Expr a, Expr b) { return a > b; });
  define_operator(expr, "__ge__", nullptr, ">=", [](Expr a, Expr b) { return a >= b; });
  define_operator(expr, "__and__", nullptr, "&", [](Expr a, Expr b) { return a && b; });
  define_operator(expr, "__or__", nullptr, "|", [](Expr a, Expr b) { return a || b; });

  py::class_<te::Tensor>(module, "Tensor", "An array of a tensor expression; `tensor[i, j]` is an element.")
      .def("__getitem__", &index)
      .def_property_readonly(
          "name", [](const te::Tensor& t) { return t.buffer()->name; }, "As texts of loops have it.")
      .def_property_readonly(
          "dtype", [](const te::Tensor& t) { return to_string(t.dtype()); }, "Of its elements: \"f32\", \"i64\", …")
      .def_property_readonly(
          "shape",
          [](const te::Tensor& t) {
            py::list extents;
            for (const Expr& extent : t.shape()) {
              if (const auto constant = as_int(extent))
                extents.append(*constant);
              else
                extents.append(extent);
            }
            return py::tuple(extents);
          },
          "An extent a dimension: a number, or the Expr of one that is open.");

  py::class_<Func>(module, "Func", "A program: loops, blocks and buffers.  `str` gives its text, which `parse` reads.")
      .def_readonly("name", &Func::name, "As kernels are named after it.")
      .def("__str__", [](const Func& f) { return to_text(f); })
      .def_property_readonly("text", [](const Func& f) { return to_text(f); }, "What `str` gives.");

  module.def("placeholder", [](const std::string& name, const py::sequence& shape, const std::string& dtype) {
    return te::placeholder(name, shape_of(shape), dtype_named(dtype));
  });
  module.def("compute", [](const std::string& name, const py::sequence& shape, const py::function& value) {
    return te::compute(name, shape_of(shape), tensors_used(value, shape.size(), 0),
                       [&](const te::Indices& spatial) { return value_at(value, spatial, {}); });
  });
  module.def("reduce", [](const std::string& name, const py::sequence& shape, const py::sequence& extents,
                          const py::function& value, const std::string& combiner) {
    return te::reduce(
        name, shape_of(shape), shape_of(extents), combiner_named(combiner),
        tensors_used(value, shape.size(), extents.size()),
        [&](const te::Indices& spatial, const te::Indices& reduce) { return value_at(value, spatial, reduce); });
  });
  module.def("make_func", [](const std::string& name, const std::vector<te::Tensor>& inputs,
                             const std::vector<te::Tensor>& outputs) { return te::make_func(name, inputs, outputs); });
  module.def("make_update", &make_update);
  module.def("call", [](const std::string& name, const py::args& arguments) {
    DType dtype = f32;
    for (const py::handle argument : arguments) {
      if (py::isinstance<Expr>(argument)) dtype = argument.cast<Expr>().dtype();
    }
    std::vector<Expr> exprs;
    for (const py::handle argument : arguments) exprs.push_back(expr_of(argument, dtype));
    return call(intrinsic_named(name), std::move(exprs));
  });
  py::options options;
  options.disable_function_signatures();  // of those that te offers as they are, ours are in the texts
  module.def(
      "minimum", [](const Expr& a, const py::object& b) { return min(a, expr_of(b, a.dtype())); },
      "minimum(a, b, /) -> Expr\n\nThe smaller one.");
  module.def(
      "maximum", [](const Expr& a, const py::object& b) { return max(a, expr_of(b, a.dtype())); },
      "maximum(a, b, /) -> Expr\n\nThe larger one.");
  module.def(
      "select",
      [](const Expr& condition, const Expr& a, const py::object& b) {
        return select(condition, a, expr_of(b, a.dtype()));
      },
      "select(condition, a, b, /) -> Expr\n\n`a` where the condition holds, else `b`; both are computed.");
  // 0 where the condition is false; the element need not be there then.
  module.def("load_if", [](const Expr& condition, const te::Tensor& tensor, const py::object& indices) {
    const Expr element = index(tensor, indices);
    return load(tensor.buffer(), element.as<Load>()->indices, condition);
  });
  module.def(
      "equal", [](const Expr& a, const py::object& b) { return equal(a, expr_of(b, a.dtype())); },
      "equal(a, b, /) -> Expr\n\nWhether they are equal, as a bool of the program.");
  module.def(
      "cast", [](const std::string& dtype, const Expr& value) { return cast(dtype_named(dtype), value); },
      "cast(dtype, value, /) -> Expr\n\nThe number as another type: cast(\"f32\", x).");
  module.def("parse_func", [](const std::string& text) { return parse_func(text); });
  module.def("interpret", &run_oracle);
  module.def(
      "build_func", [](const Func& func, const std::string& target) { return build_func(func, parse_target(target)); },
      py::call_guard<py::gil_scoped_release>());
}

}  // namespace tw::python
