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

// What stands for an expression, and for places in a tensor.
using Scalar = py::typing::Union<Expr, py::float_>;
using ValueFunction = py::typing::Callable<Scalar(py::ellipsis)>;
using PlaceFunction = py::typing::Callable<py::object(py::ellipsis)>;
using Index = py::typing::Union<Expr, py::int_>;
using Indices = py::typing::Union<Index, py::typing::Tuple<Index, py::ellipsis>>;

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
      method, [apply](const Expr& a, const Scalar& b) { return apply(a, expr_of(b, a.dtype())); }, py::is_operator(),
      py::arg("other"));
  if (reflected) {
    expr.def(
        reflected, [apply](const Expr& a, const Scalar& b) { return apply(expr_of(b, a.dtype()), a); },
        py::is_operator(), py::arg("other"));
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

Expr index(const te::Tensor& tensor, const Indices& indices) {
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
py::typing::Tuple<py::typing::Optional<Func>, Func> make_update(const std::string& name,
                                                                const std::vector<te::Tensor>& inputs,
                                                                const Extents& extents, const PlaceFunction& place,
                                                                const ValueFunction& value) {
  const te::Tensor& past = inputs.at(0);
  const std::vector<Expr> shape = shape_of(extents);
  std::vector<te::Tensor> stages;
  for (const py::function& each : std::initializer_list<py::function>{place, value}) {
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
      "A scalar expression of loops: operators work on it and on numbers, which take its element type.\n"
      "Operands of different element types raise Error (TW1402).");
  expr.def("__repr__", [](const Expr& e) { return to_text(e); })
      .def_property_readonly(
          "dtype", [](const Expr& e) { return to_string(e.dtype()); },
          "Its element type: \"f32\", \"i64\", \"bool\", …")
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

  using Shape = py::typing::Tuple<Index, py::ellipsis>;
  py::class_<te::Tensor>(module, "Tensor", "What a tensor expression computes or takes; tensor[i, j] is an element.")
      .def("__getitem__", &index, py::arg("indices"))
      .def_property_readonly(
          "name", [](const te::Tensor& t) { return t.buffer()->name; }, "Its name in the loops.")
      .def_property_readonly(
          "dtype", [](const te::Tensor& t) { return to_string(t.dtype()); }, "Its element type, such as \"f32\".")
      .def_property_readonly(
          "shape",
          [](const te::Tensor& t) -> Shape {
            py::list extents;
            for (const Expr& extent : t.shape()) {
              if (const auto constant = as_int(extent))
                extents.append(*constant);
              else
                extents.append(extent);
            }
            return py::tuple(extents);
          },
          "An extent a dimension: a number, or an expression where it is open.");

  py::class_<Func>(module, "Func", "Loops over buffers.  `str()` of it is its text form (tensor_ir/SYNTAX.md).")
      .def_readonly("name", &Func::name, "As its text calls it.")
      .def("__str__", [](const Func& f) { return to_text(f); })
      .def_property_readonly(
          "text", [](const Func& f) { return to_text(f); }, "Its text form, which `parse_func` takes.");

  module.def(
      "placeholder",
      [](const std::string& name, const Extents& shape, const std::string& dtype) {
        return te::placeholder(name, shape_of(shape), dtype_named(dtype));
      },
      py::arg("name"), py::arg("shape"), py::arg("dtype"), "An input of this shape and element type.");
  module.def(
      "compute",
      [](const std::string& name, const Extents& shape, const ValueFunction& value) {
        return te::compute(name, shape_of(shape), tensors_used(value, shape.size(), 0),
                           [&](const te::Indices& spatial) { return value_at(value, spatial, {}); });
      },
      py::arg("name"), py::arg("shape"), py::arg("value"),
      "A tensor of this shape; `value` takes an index a dimension and gives the element.");
  module.def(
      "reduce",
      [](const std::string& name, const Extents& shape, const Extents& over, const ValueFunction& value,
         const std::string& combiner) {
        return te::reduce(
            name, shape_of(shape), shape_of(over), combiner_named(combiner),
            tensors_used(value, shape.size(), over.size()),
            [&](const te::Indices& spatial, const te::Indices& reduce) { return value_at(value, spatial, reduce); });
      },
      py::arg("name"), py::arg("shape"), py::arg("over"), py::arg("value"), py::arg("combiner"),
      "A tensor of this shape, each element of which combines the values over the extents `over`.  `value` takes an\n"
      "index a dimension, then one for each of `over`.  Combiners: sum, product, min, max, logical_and, logical_or.");
  module.def(
      "make_func",
      [](const std::string& name, const std::vector<te::Tensor>& inputs, const std::vector<te::Tensor>& outputs) {
        return te::make_func(name, inputs, outputs);
      },
      py::arg("name"), py::arg("inputs"), py::arg("outputs"), "The loops that compute `outputs` from `inputs`.");
  module.def(
      "make_update", &make_update, py::arg("name"), py::arg("inputs"), py::arg("shape"), py::arg("place"),
      py::arg("value"),
      "The first input with the element at `place` replaced by `value`, for each index of `shape`: the Func that\n"
      "computes the tensors between, or None, and the Func that writes.");
  module.def(
      "call",
      [](const std::string& name, const py::Args<Scalar>& arguments) {
        DType dtype = f32;
        for (const py::handle argument : arguments) {
          if (py::isinstance<Expr>(argument)) dtype = argument.cast<Expr>().dtype();
        }
        std::vector<Expr> exprs;
        for (const py::handle argument : arguments) exprs.push_back(expr_of(argument, dtype));
        return call(intrinsic_named(name), std::move(exprs));
      },
      py::arg("name"), "A function of tensor_ir/intrinsics.def: call(\"exp\", x).");
  module.def(
      "minimum", [](const Expr& a, const Scalar& b) { return min(a, expr_of(b, a.dtype())); }, py::arg("a"),
      py::arg("b"), "The smaller of the two.");
  module.def(
      "maximum", [](const Expr& a, const Scalar& b) { return max(a, expr_of(b, a.dtype())); }, py::arg("a"),
      py::arg("b"), "The larger of the two.");
  module.def(
      "select",
      [](const Expr& condition, const Expr& a, const Scalar& b) { return select(condition, a, expr_of(b, a.dtype())); },
      py::arg("condition"), py::arg("a"), py::arg("b"), "`a` where the condition holds, else `b`; both are computed.");
  module.def(
      "load_if",
      [](const Expr& condition, const te::Tensor& tensor, const Indices& indices) {
        const Expr element = index(tensor, indices);
        return load(tensor.buffer(), element.as<Load>()->indices, condition);
      },
      py::arg("condition"), py::arg("tensor"), py::arg("indices"),
      "tensor[indices] where the condition holds, else 0; the element need not exist then.");
  module.def(
      "equal", [](const Expr& a, const Scalar& b) { return equal(a, expr_of(b, a.dtype())); }, py::arg("a"),
      py::arg("b"), "Whether the two are equal, as an expression of bool.");
  module.def(
      "cast", [](const std::string& dtype, const Expr& value) { return cast(dtype_named(dtype), value); },
      py::arg("dtype"), py::arg("value"), "The value in another element type.");
  module.def(
      "parse_func", [](const std::string& text) { return parse_func(text); }, py::arg("text"),
      "A Func from its text form (tensor_ir/SYNTAX.md).  Error (TW1402) says where the text is wrong.");
  module.def("interpret", &run_oracle, py::arg("func"), py::arg("arrays"),
             "The oracle: runs a Func on C-contiguous arrays for all its buffers, and writes its outputs in place.");
  module.def(
      "build_func", [](const Func& func, const std::string& target) { return build_func(func, parse_target(target)); },
      py::arg("func"), py::arg("target"), py::call_guard<py::gil_scoped_release>(),
      "Machine code of a Func as it stands, whose extents are constants.");
}

}  // namespace tw::python
