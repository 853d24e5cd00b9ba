#include "tensor_ir/ir.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor_ir/scalar_meaning.h"
#include "tensor_ir/type_rules.h"

namespace tw {
namespace {

// The constant result of an integer operation; nothing where it is an error, which is the program's to meet.
std::optional<int64_t> fold_int(BinaryOp op, DType dtype, int64_t a, int64_t b) {
  const bool is_division =
      op == BinaryOp::div || op == BinaryOp::mod || op == BinaryOp::floor_div || op == BinaryOp::floor_mod;
  const bool is_shift = op == BinaryOp::shift_left || op == BinaryOp::shift_right;
  if ((is_division && b == 0) || (is_shift && (b < 0 || b >= dtype.bits))) return std::nullopt;
  return meaning::apply(op, dtype, a, b);
}

// Gives both operands one dtype: untyped (i64) literals take the other's element type, scalars its lanes.
void unify(Expr& a, Expr& b) {
  check(a.is_defined() && b.is_defined(), "binary: operands are defined");
  auto adopt = [](Expr& literal, const Expr& other) {
    if (literal.dtype().element() != i64 || other.dtype().element() == i64) return;
    if (const auto value = as_int(literal)) {
      literal = other.dtype().is_float() ? float_imm(other.dtype().element(), static_cast<double>(*value))
                                         : int_imm(other.dtype().element(), *value);
    }
  };
  if (a.kind() == NodeKind::IntImm) adopt(a, b);
  if (b.kind() == NodeKind::IntImm) adopt(b, a);
  if (a.dtype().lanes != b.dtype().lanes) {
    if (a.dtype().lanes == 1)
      a = broadcast(a, b.dtype().lanes);
    else if (b.dtype().lanes == 1)
      b = broadcast(b, a.dtype().lanes);
  }
  if (a.dtype() != b.dtype()) {
    throw Error(ErrorCode::verify, "operands have different types: " + to_string(a.dtype()) + " and " +
                                       to_string(b.dtype()) + "\n  help: convert one of them with cast()");
  }
}

}  // namespace

bool is_comparison(BinaryOp op) {
  return op == BinaryOp::eq || op == BinaryOp::ne || op == BinaryOp::lt || op == BinaryOp::le;
}

Expr::Expr(int value) : Expr(static_cast<int64_t>(value)) {}
Expr::Expr(int64_t value) : node_(std::make_shared<const IntImm>(i64, value)) {}

Buffer::Buffer(std::string name, DType dtype, std::vector<Expr> shape, Scope scope) {
  BufferNode node;
  node.name = std::move(name);
  node.dtype = dtype;
  node.shape = std::move(shape);
  node.scope = scope;
  node_ = std::make_shared<const BufferNode>(std::move(node));
}

bool Func::is_parameter(const Buffer& buffer) const {
  return std::find(buffers.begin(), buffers.end(), buffer) != buffers.end();
}

bool Func::is_output(const Buffer& buffer) const {
  return std::find(buffers.end() - output_count, buffers.end(), buffer) != buffers.end();
}

Expr int_imm(DType dtype, int64_t value) {
  check(dtype.is_integer() || dtype.is_bool(), "int_imm: an integer or bool dtype");
  Expr scalar = make_expr<IntImm>(dtype.element(), meaning::wrap(dtype, value));
  return dtype.is_vector() ? broadcast(scalar, dtype.lanes) : scalar;
}

Expr float_imm(DType dtype, double value) {
  check(dtype.is_float(), "float_imm: a float dtype");
  Expr scalar = make_expr<FloatImm>(dtype.element(), meaning::round_to(dtype, value));
  return dtype.is_vector() ? broadcast(scalar, dtype.lanes) : scalar;
}

Expr const_of(DType dtype, double value) {
  return dtype.is_float() ? float_imm(dtype, value) : int_imm(dtype, static_cast<int64_t>(value));
}

Expr zero_of(DType dtype) {
  return const_of(dtype, 0);
}
Expr bool_imm(bool value) {
  return int_imm(boolean, value);
}

Expr lowest_of(DType dtype) {
  if (dtype.is_float()) return float_imm(dtype, -std::numeric_limits<double>::infinity());
  if (dtype.is_signed_integer()) return int_imm(dtype, static_cast<int64_t>(~uint64_t{0} << (dtype.bits - 1)));
  return int_imm(dtype, 0);
}

Expr highest_of(DType dtype) {
  if (dtype.is_float()) return float_imm(dtype, std::numeric_limits<double>::infinity());
  if (dtype.is_signed_integer()) return int_imm(dtype, static_cast<int64_t>(~(~uint64_t{0} << (dtype.bits - 1))));
  return int_imm(dtype, -1);
}

std::optional<int64_t> as_int(const Expr& e) {
  if (const auto* imm = e.as<IntImm>()) return imm->value;
  if (const auto* b = e.as<Broadcast>()) return as_int(b->value);
  return std::nullopt;
}

std::optional<double> as_float(const Expr& e) {
  if (const auto* imm = e.as<FloatImm>()) return imm->value;
  if (const auto* b = e.as<Broadcast>()) return as_float(b->value);
  return std::nullopt;
}

bool is_const_int(const Expr& e, int64_t value) {
  const auto constant = e.is_defined() ? as_int(e) : std::nullopt;
  return constant && *constant == value;
}

std::optional<std::vector<int64_t>> const_shape(const Buffer& buffer) {
  std::vector<int64_t> shape;
  for (const Expr& extent : buffer->shape) {
    const auto value = as_int(extent);
    if (!value) return std::nullopt;
    shape.push_back(*value);
  }
  return shape;
}

Expr binary(BinaryOp op, Expr a, Expr b) {
  unify(a, b);
  const DType dtype = a.dtype();
  const bool is_bool_result = is_comparison(op) || op == BinaryOp::logical_and || op == BinaryOp::logical_or;
  const DType result = is_bool_result ? boolean.with_lanes(dtype.lanes) : dtype;
  const bool is_integral = !dtype.is_float();
  if (const auto x = as_int(a), y = as_int(b); is_integral && x && y) {
    if (const auto value = fold_int(op, dtype, *x, *y)) return int_imm(result, *value);
  }
  const bool is_arithmetic = op == BinaryOp::add || op == BinaryOp::sub || op == BinaryOp::mul || op == BinaryOp::div;
  if (const auto x = as_float(a), y = as_float(b); x && y && is_arithmetic && dtype.bits >= 32)
    return float_imm(result, meaning::apply(op, dtype.element(), *x, *y));
  if (is_integral) {  // the identities that keep index expressions small while they are built
    if (is_const_int(b, 0) && (op == BinaryOp::add || op == BinaryOp::sub)) return a;
    if (is_const_int(a, 0) && op == BinaryOp::add) return b;
    if (is_const_int(b, 1) && (op == BinaryOp::mul || op == BinaryOp::floor_div || op == BinaryOp::div)) return a;
    if (is_const_int(a, 1) && op == BinaryOp::mul) return b;
    if ((is_const_int(a, 0) || is_const_int(b, 0)) && op == BinaryOp::mul) return zero_of(dtype);
    if (is_const_int(b, 1) && op == BinaryOp::floor_mod) return zero_of(dtype);
  }
  if (dtype.is_bool()) {
    if (op == BinaryOp::logical_and) {
      if (is_const_int(a, 1)) return b;
      if (is_const_int(b, 1)) return a;
      if (is_const_int(a, 0) || is_const_int(b, 0)) return int_imm(result, 0);
    }
    if (op == BinaryOp::logical_or) {
      if (is_const_int(a, 0)) return b;
      if (is_const_int(b, 0)) return a;
      if (is_const_int(a, 1) || is_const_int(b, 1)) return int_imm(result, 1);
    }
  }
  return make_expr<Binary>(result, op, std::move(a), std::move(b));
}

Expr operator+(Expr a, Expr b) {
  return binary(BinaryOp::add, std::move(a), std::move(b));
}
Expr operator-(Expr a, Expr b) {
  return binary(BinaryOp::sub, std::move(a), std::move(b));
}
Expr operator*(Expr a, Expr b) {
  return binary(BinaryOp::mul, std::move(a), std::move(b));
}
Expr operator/(Expr a, Expr b) {
  return binary(BinaryOp::div, std::move(a), std::move(b));
}
Expr operator<(Expr a, Expr b) {
  return binary(BinaryOp::lt, std::move(a), std::move(b));
}
Expr operator<=(Expr a, Expr b) {
  return binary(BinaryOp::le, std::move(a), std::move(b));
}
Expr operator>(Expr a, Expr b) {
  return binary(BinaryOp::lt, std::move(b), std::move(a));
}
Expr operator>=(Expr a, Expr b) {
  return binary(BinaryOp::le, std::move(b), std::move(a));
}
Expr operator&&(Expr a, Expr b) {
  return binary(BinaryOp::logical_and, std::move(a), std::move(b));
}
Expr operator||(Expr a, Expr b) {
  return binary(BinaryOp::logical_or, std::move(a), std::move(b));
}
Expr equal(Expr a, Expr b) {
  return binary(BinaryOp::eq, std::move(a), std::move(b));
}
Expr not_equal(Expr a, Expr b) {
  return binary(BinaryOp::ne, std::move(a), std::move(b));
}
Expr floor_div(Expr a, Expr b) {
  return binary(BinaryOp::floor_div, std::move(a), std::move(b));
}
Expr floor_mod(Expr a, Expr b) {
  return binary(BinaryOp::floor_mod, std::move(a), std::move(b));
}
Expr min(Expr a, Expr b) {
  return binary(BinaryOp::min, std::move(a), std::move(b));
}
Expr max(Expr a, Expr b) {
  return binary(BinaryOp::max, std::move(a), std::move(b));
}

Expr operator-(Expr a) {
  const DType dtype = a.dtype();
  if (const auto value = as_int(a)) return int_imm(dtype, static_cast<int64_t>(-static_cast<uint64_t>(*value)));
  if (const auto value = as_float(a)) return float_imm(dtype, -*value);
  return make_expr<Unary>(dtype, UnaryOp::negate, std::move(a));
}

Expr operator!(Expr a) {
  check(a.dtype().is_bool(), "operator!: a bool");
  const DType dtype = a.dtype();
  if (const auto value = as_int(a)) return int_imm(dtype, !*value);
  return make_expr<Unary>(dtype, UnaryOp::logical_not, std::move(a));
}

Expr select(Expr condition, Expr then_value, Expr else_value) {
  unify(then_value, else_value);
  check(condition.dtype().is_bool(), "select: a bool condition");
  const int lanes = std::max(condition.dtype().lanes, then_value.dtype().lanes);
  if (then_value.dtype().lanes < lanes)
    then_value = broadcast(then_value, lanes), else_value = broadcast(else_value, lanes);
  if (condition.dtype().lanes < lanes) condition = broadcast(condition, lanes);
  if (const auto known = as_int(condition)) return *known ? then_value : else_value;
  const DType dtype = then_value.dtype();
  return make_expr<Select>(dtype, std::move(condition), std::move(then_value), std::move(else_value));
}

Expr cast(DType dtype, Expr value) {
  dtype = dtype.with_lanes(value.dtype().lanes);
  if (value.dtype() == dtype) return value;
  if (const auto v = as_int(value)) {
    if (dtype.is_bool()) return int_imm(dtype, *v != 0);
    if (dtype.is_integer()) return int_imm(dtype, *v);
    const double wide =
        value.dtype().is_unsigned_integer() ? static_cast<double>(static_cast<uint64_t>(*v)) : static_cast<double>(*v);
    if (dtype.element() == f64 || (dtype.element() == f32 && std::abs(wide) < 9007199254740992.0)) {
      return float_imm(dtype, wide);
    }
  }
  if (const auto v = as_float(value); v && dtype.is_float()) return float_imm(dtype, *v);
  return make_expr<Cast>(dtype, std::move(value));
}

Expr call(Intrinsic intrinsic, std::vector<Expr> arguments) {
  const int arity = arity_of(intrinsic);
  const IntrinsicKind kind = kind_of(intrinsic);
  check(arity < 0 || arity == static_cast<int>(arguments.size()), "call: the intrinsic's number of arguments");
  check(kind != IntrinsicKind::convert, "call: a conversion is made with make_expr<Call> and its dtype");
  if (kind == IntrinsicKind::math || kind == IntrinsicKind::predicate || kind == IntrinsicKind::bits) {
    for (size_t i = 1; i < arguments.size(); ++i) unify(arguments[0], arguments[i]);
    for (size_t i = 1; i + 1 < arguments.size(); ++i) unify(arguments[0], arguments[i]);
  }
  const DType dtype = *call_dtype(intrinsic, arguments);
  return make_expr<Call>(dtype, intrinsic, std::move(arguments));
}

namespace {
int lanes_of(const std::vector<Expr>& indices, const Expr& predicate) {
  int lanes = predicate.is_defined() ? predicate.dtype().lanes : 1;
  for (const Expr& index : indices) lanes = std::max<int>(lanes, index.dtype().lanes);
  return lanes;
}
}  // namespace

Expr load(Buffer buffer, std::vector<Expr> indices, Expr predicate) {
  check(static_cast<int>(indices.size()) == buffer.rank() || indices.size() == 1,
        "load: as many indices as dimensions");
  const DType dtype = buffer->dtype.with_lanes(lanes_of(indices, predicate));
  return make_expr<Load>(dtype, std::move(buffer), std::move(indices), std::move(predicate));
}

Expr ramp(Expr base, Expr stride, int lanes) {
  check(base.dtype() == stride.dtype() && !base.dtype().is_vector() && lanes > 1,
        "ramp: scalar base and stride, several lanes");
  const DType dtype = base.dtype().with_lanes(lanes);
  return make_expr<Ramp>(dtype, std::move(base), std::move(stride));
}

Expr broadcast(Expr value, int lanes) {
  if (lanes == 1) return value;
  check(!value.dtype().is_vector(), "broadcast: a scalar");
  const DType dtype = value.dtype().with_lanes(lanes);
  return make_expr<Broadcast>(dtype, std::move(value));
}

Stmt store(Buffer buffer, std::vector<Expr> indices, Expr value, Expr predicate) {
  check(static_cast<int>(indices.size()) == buffer.rank() || indices.size() == 1,
        "store: as many indices as dimensions");
  const int lanes = std::max<int>(lanes_of(indices, predicate), value.dtype().lanes);
  if (value.dtype().lanes < lanes) value = broadcast(value, lanes);
  if (value.dtype().element() != buffer->dtype) {
    throw Error(ErrorCode::verify, "store of " + to_string(value.dtype()) + " into " + buffer->name + ", which holds " +
                                       to_string(buffer->dtype) + "\n  help: convert the value with cast()");
  }
  return make_stmt<Store>(std::move(buffer), std::move(indices), std::move(value), std::move(predicate));
}

Stmt seq(std::vector<Stmt> statements) {
  std::vector<Stmt> flat;
  for (Stmt& s : statements) {
    if (!s.is_defined()) continue;
    if (const auto* inner = s.as<Seq>())
      flat.insert(flat.end(), inner->statements.begin(), inner->statements.end());
    else
      flat.push_back(std::move(s));
  }
  if (flat.size() == 1) return flat[0];
  return make_stmt<Seq>(std::move(flat));
}

}  // namespace tw
