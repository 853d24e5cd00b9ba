#include "tensor_ir/type_rules.h"

#include <algorithm>
#include <cmath>

#include "tensor_ir/scalar_meaning.h"
#include "tensor_ir/text/syntax.h"

namespace tw {
namespace {

using Problem = std::optional<TypeProblem>;

Problem problem(std::string message, std::string help = {}) {
  return TypeProblem{std::move(message), std::move(help)};
}
std::string text(DType dtype) {
  return to_string(dtype);
}
DType bool_of(DType dtype) {
  return boolean.with_lanes(dtype.lanes);
}
bool is_scalar(const Expr& e, DType dtype) {
  return e.is_defined() && e.dtype() == dtype;
}
bool is_number(DType dtype) {
  return dtype.is_float() || dtype.is_integer();
}

std::string conversion_help(DType from, DType to) {
  if (from.lanes == 1 && to.lanes > 1 && from == to.element())
    return "write broadcast(…, " + std::to_string(to.lanes) + ")";
  if (from.lanes != to.lanes) return "both sides need the same number of lanes";
  return "convert one side, as in " + text(to) + "(…)";
}

Problem mismatch(const std::string& what, DType a, DType b) {
  return problem(what + " have different types, " + text(a) + " and " + text(b), conversion_help(b, a));
}

Problem check_access(const Buffer& buffer, const std::vector<Expr>& indices, const Expr& predicate) {
  if (!buffer.is_defined()) return problem("a buffer is missing");
  int rank = buffer.rank(), count = static_cast<int>(indices.size());
  if (count != rank && count != 1) {  // one index: a flat offset
    return problem("`" + buffer->name + "` has " + std::to_string(rank) + (rank == 1 ? " dimension" : " dimensions") +
                       " but " + std::to_string(count) + (count == 1 ? " index is" : " indices are") + " given",
                   rank == 0 ? "write " + buffer->name + "[]" : "give one index a dimension");
  }
  int lanes = 1;
  for (const Expr& index : indices) {
    if (!index.is_defined()) return problem("an index is missing");
    if (index.dtype().element() != i64) {
      return problem("an index has type " + text(index.dtype()) + ", not i64", "write i64(…)");
    }
    if (index.dtype().lanes == 1) continue;
    if (lanes != 1 && lanes != index.dtype().lanes) return problem("vector indices have different numbers of lanes");
    lanes = index.dtype().lanes;
  }
  if (buffer->dtype.lanes > 1 && lanes > 1) return problem("a buffer of vectors takes scalar indices");
  DType expected = bool_of(access_dtype(buffer, indices, predicate));
  if (predicate.is_defined() && predicate.dtype() != expected) {
    return problem("the predicate has type " + text(predicate.dtype()) + ", not " + text(expected),
                   "one bool a lane of the value");
  }
  return {};
}

Problem check_binary(const Binary& n) {
  if (!n.a.is_defined() || !n.b.is_defined()) return problem("an operand is missing");
  DType a = n.a.dtype(), b = n.b.dtype();
  const syntax::BinarySyntax& row = syntax::syntax_of(n.op, a);
  std::string name = row.symbol ? row.symbol : row.word;
  if (a != b) return mismatch("the operands of `" + name + "`", a, b);
  bool fits = true;
  switch (n.op) {
    case BinaryOp::logical_and:
    case BinaryOp::logical_or:
      fits = a.is_bool();
      break;
    case BinaryOp::shift_left:
    case BinaryOp::shift_right:
      fits = a.is_integer();
      break;
    case BinaryOp::bit_and:
    case BinaryOp::bit_or:
    case BinaryOp::bit_xor:
      fits = !a.is_float();
      break;
    default:
      fits = is_comparison(n.op) || is_number(a);
  }
  if (!fits) return problem("`" + name + "` does not take operands of type " + text(a));
  DType result = is_comparison(n.op) ? bool_of(a) : a;
  if (n.dtype != result)
    return problem("`" + name + "` of " + text(a) + " is " + text(result) + ", not " + text(n.dtype));
  return {};
}

Problem check_convert(const Call& n) {
  const std::vector<Expr>& arguments = n.arguments;
  DType from = arguments.empty() ? n.dtype : arguments[0].dtype();
  if (n.intrinsic == Intrinsic::reinterpret) {
    if (from.bits * from.lanes == n.dtype.bits * n.dtype.lanes && !from.is_bool() && !n.dtype.is_bool()) return {};
    return problem("reinterpret from " + text(from) + " to " + text(n.dtype) + ": the widths differ");
  }
  if (n.intrinsic == Intrinsic::lane_slice) {
    std::optional<int64_t> first = as_int(arguments[1]);
    if (!first) return problem("lane_slice needs a constant first lane");
    if (n.dtype.element() != from.element() || *first < 0 || *first + n.dtype.lanes > from.lanes) {
      return problem("lane_slice to " + text(n.dtype) + " at lane " + std::to_string(*first) + " does not fit in " +
                     text(from));
    }
    return {};
  }
  if (n.intrinsic == Intrinsic::word_at) {
    if (!arguments[0].as<Load>())
      return problem("word_at takes a load that names the first element", "as in word_at:u32(A[i])");
    if (n.dtype.is_unsigned_integer() && !from.is_bool() && from.lanes == n.dtype.lanes &&
        n.dtype.bits % from.bits == 0) {
      return {};
    }
    return problem("elements of type " + text(from) + " make no words of type " + text(n.dtype));
  }
  if (n.intrinsic == Intrinsic::tile_at) {
    for (const Expr& argument : arguments)
      if (argument.dtype() != i64) return mismatch("an argument of tile_at", i64, argument.dtype());
    const auto rows = as_int(arguments[2]), columns = as_int(arguments[4]);
    if (!rows || !columns || !as_int(arguments[3]) || *rows < 1 || *columns < 1)
      return problem("the rows, column stride and columns of tile_at are constants");
    if (n.dtype.element() != i64 || n.dtype.lanes != *rows * *columns)
      return problem("tile_at gives " + std::to_string(*rows * *columns) + " places, not " + text(n.dtype));
    return {};
  }
  if (n.intrinsic == Intrinsic::tile_within) {
    for (const Expr& argument : arguments)
      if (argument.dtype() != i64) return mismatch("an argument of tile_within", i64, argument.dtype());
    const auto rows = as_int(arguments[1]), columns = as_int(arguments[3]);
    if (!rows || !columns || *rows < 1 || *columns < 1)
      return problem("the rows and columns of tile_within are constants");
    if (!n.dtype.is_bool() || n.dtype.lanes != *rows * *columns)
      return problem("tile_within gives " + std::to_string(*rows * *columns) + " conditions, not " + text(n.dtype));
    return {};
  }
  int lanes = 0;
  for (const Expr& argument : arguments) {
    if (argument.dtype().element() != n.dtype.element())
      return mismatch("the parts of lane_concat", from, argument.dtype());
    lanes += argument.dtype().lanes;
  }
  if (lanes != n.dtype.lanes || arguments.empty())
    return problem("lane_concat gives " + std::to_string(lanes) + " lanes, not " + text(n.dtype));
  return {};
}

Problem check_dot(const Call& n) {
  const DType accumulator = n.arguments[0].dtype();
  const DType sum = n.intrinsic == Intrinsic::dot_bf16 ? f32 : i32;
  if (accumulator.element() != sum)
    return problem(std::string(syntax::word(n.intrinsic)) + " adds to " + text(sum) + ", not to " + text(accumulator));
  for (size_t i = 1; i < n.arguments.size(); ++i) {
    if (n.arguments[i].dtype() != u32.with_lanes(accumulator.lanes))
      return mismatch("the words of a dot product", u32.with_lanes(accumulator.lanes), n.arguments[i].dtype());
  }
  if (n.dtype != accumulator) return mismatch("a dot product and its accumulator", n.dtype, accumulator);
  return {};
}

// Of the accumulator and what is multiplied: words of a tile, elements of a fragment.
struct ProductTypes {
  DType sum, a, b;
};
ProductTypes types_of_product(Intrinsic intrinsic) {
  switch (intrinsic) {
    case Intrinsic::tile_dot_bf16:
      return {f32, u32, u32};
    case Intrinsic::mma_bf16:
    case Intrinsic::wgmma_bf16:
      return {f32, bf16, bf16};
    case Intrinsic::mma_f16:
    case Intrinsic::wgmma_f16:
      return {f32, f16, f16};
    case Intrinsic::mma_tf32:
      return {f32, f32, f32};
    case Intrinsic::mma_s8s8:
    case Intrinsic::wgmma_s8s8:
      return {i32, i8, i8};
    case Intrinsic::mma_u8s8:
    case Intrinsic::wgmma_u8s8:
      return {i32, u8, i8};
    case Intrinsic::mma_s8u8:
    case Intrinsic::wgmma_s8u8:
      return {i32, i8, u8};
    case Intrinsic::mma_u8u8:
    case Intrinsic::wgmma_u8u8:
      return {i32, u8, u8};
    case Intrinsic::mma_e4m3e4m3:
    case Intrinsic::wgmma_e4m3e4m3:
    case Intrinsic::mma_e4m3e5m2:
    case Intrinsic::wgmma_e4m3e5m2:
    case Intrinsic::mma_e5m2e4m3:
    case Intrinsic::wgmma_e5m2e4m3:
    case Intrinsic::mma_e5m2e5m2:
    case Intrinsic::wgmma_e5m2e5m2:
      return {f32, u8, u8};
    default:
      return {i32, u32, u32};
  }
}

// Of tiles of words, and of fragments of elements.
Problem check_tile(const Call& n) {
  const std::string name = syntax::word(n.intrinsic);
  const bool has_words = kind_of(n.intrinsic) == IntrinsicKind::tile;
  const DType accumulator = n.arguments[0].dtype();
  const auto [sum, a, b] = types_of_product(n.intrinsic);
  if (accumulator.element() != sum) return problem(name + " adds to " + text(sum) + ", not to " + text(accumulator));
  for (const auto& [operand, wanted] : {std::pair(n.arguments[1], a), std::pair(n.arguments[2], b)}) {
    const DType element = operand.dtype().element();
    if (element != wanted)
      return mismatch(has_words ? "the words of a tile" : "the elements of a fragment", wanted, element);
  }
  if (!tile_sizes(accumulator, n.arguments[1].dtype(), n.arguments[2].dtype())) {
    return problem(name + " of " + text(accumulator) + ", " + text(n.arguments[1].dtype()) + " and " +
                   text(n.arguments[2].dtype()) + ": no m × n, m × k and k × n have so many lanes");
  }
  if (n.dtype != accumulator) return mismatch("a product of tiles and its accumulator", n.dtype, accumulator);
  return {};
}

Problem check_matrix(const Call& n) {
  const std::string name = syntax::word(n.intrinsic);
  const auto [m, columns, k] = matrix_sizes;
  const DType sum = i32.with_lanes(m * columns), accumulator = n.arguments[0].dtype();
  if (accumulator != sum) return problem(name + " adds to " + text(sum) + ", not to " + text(accumulator));
  const DType words[] = {u32.with_lanes(m * k), u32.with_lanes(columns * k)};
  for (size_t i = 0; i < 2; ++i) {
    if (n.arguments[i + 1].dtype() != words[i])
      return mismatch("the words of a product of matrices", words[i], n.arguments[i + 1].dtype());
  }
  if (n.dtype != accumulator) return mismatch("a product of matrices and its accumulator", n.dtype, accumulator);
  return {};
}

bool takes_integers(Intrinsic intrinsic) {
  return intrinsic == Intrinsic::abs || intrinsic == Intrinsic::sign || intrinsic == Intrinsic::minimum ||
         intrinsic == Intrinsic::maximum;
}

Problem check_call(const Call& n) {
  std::string name = syntax::word(n.intrinsic);
  int arity = arity_of(n.intrinsic), count = static_cast<int>(n.arguments.size());
  if (arity >= 0 && arity != count) {
    return problem(name + " takes " + std::to_string(arity) + (arity == 1 ? " argument" : " arguments") + ", not " +
                   std::to_string(count));
  }
  for (const Expr& argument : n.arguments) {
    if (!argument.is_defined()) return problem("an argument of " + name + " is missing");
  }
  IntrinsicKind kind = kind_of(n.intrinsic);
  if (kind == IntrinsicKind::convert) return check_convert(n);
  if (kind == IntrinsicKind::dot) return check_dot(n);
  if (kind == IntrinsicKind::tile || kind == IntrinsicKind::fragment) return check_tile(n);
  if (kind == IntrinsicKind::matrix) return check_matrix(n);
  if (kind == IntrinsicKind::effect) {
    if (n.intrinsic == Intrinsic::prefetch) {
      if (!n.arguments[0].as<Load>())
        return problem("prefetch takes a load that names the address", "as in prefetch(A[i], 3)");
      std::optional<int64_t> locality = as_int(n.arguments[1]);
      if (!locality || *locality < 0 || *locality > 3)
        return problem("the locality of prefetch is a constant from 0 to 3");
    }
    if (n.intrinsic == Intrinsic::wait_copies || n.intrinsic == Intrinsic::wait_products) {
      const auto left = as_int(n.arguments[0]);
      if (!left || *left < 0) return problem("the argument of " + name + " is a constant, how many may be left");
    }
    return {};
  }
  for (const Expr& argument : n.arguments) {
    DType dtype = argument.dtype();
    if (dtype != n.arguments[0].dtype()) return mismatch("the arguments of " + name, n.arguments[0].dtype(), dtype);
    bool fits = n.intrinsic == Intrinsic::philox                                        ? dtype.element() == u64
                : n.intrinsic == Intrinsic::round_tf32 || kind == IntrinsicKind::encode ? dtype.element() == f32
                : kind == IntrinsicKind::decode                                         ? dtype.element() == u8
                : kind == IntrinsicKind::bits ? dtype.is_integer()
                                              : dtype.is_float() || (dtype.is_integer() && takes_integers(n.intrinsic));
    if (!fits) return problem(name + " does not take an argument of type " + text(dtype));
  }
  std::optional<DType> result = call_dtype(n.intrinsic, n.arguments);
  if (result && *result != n.dtype) return problem(name + " gives " + text(*result) + ", not " + text(n.dtype));
  return {};
}

Problem check_reduce(const VectorReduce& n) {
  if (!n.value.is_defined()) return problem("an operand is missing");
  DType dtype = n.value.dtype();
  bool is_logical = n.op == BinaryOp::logical_and || n.op == BinaryOp::logical_or;
  bool is_known =
      is_logical || n.op == BinaryOp::add || n.op == BinaryOp::mul || n.op == BinaryOp::min || n.op == BinaryOp::max;
  std::string name = std::string("reduce_") + syntax::word(n.op);
  if (!is_known) return problem("there is no " + name);
  if (dtype.lanes == 1) return problem(name + " takes a vector, not " + text(dtype));
  if (dtype.is_bool() != is_logical) return problem(name + " does not take a vector of type " + text(dtype));
  if (n.dtype != dtype.element()) return problem(name + " of " + text(dtype) + " is " + text(dtype.element()));
  return {};
}

Problem check_for(const For& n) {
  if (!n.var.is_defined() || !n.extent.is_defined() || !n.body.is_defined())
    return problem("a loop lacks its variable, extent or body");
  DType dtype = n.extent.dtype();
  if (!dtype.is_integer() || dtype.lanes != 1)
    return problem("a loop extent has type " + text(dtype) + ", not an integer");
  if (n.var.dtype() != dtype) return mismatch("the loop variable and its extent", n.var.dtype(), dtype);
  if ((n.loop_kind == LoopKind::thread) != (n.thread != ThreadAxis::none)) {
    return problem("a loop names a hardware axis exactly when it is thread-bound");
  }
  return {};
}

Problem check_block(const Block& n) {
  if (!n.body.is_defined()) return problem("a block lacks its body");
  for (const IterVar& iter : n.iters) {
    if (!iter.var.is_defined() || !iter.extent.is_defined() || !iter.binding.is_defined()) {
      return problem("an iteration variable lacks its extent or binding");
    }
    for (const Expr& e : {static_cast<const Expr&>(iter.var), iter.extent, iter.binding}) {
      if (e.dtype() != i64)
        return problem("iteration variable `" + iter.var.name() + "`: its type, extent and binding are i64, not " +
                       text(e.dtype()));
    }
  }
  if (n.predicate.is_defined() && !is_scalar(n.predicate, boolean)) {
    return problem("the predicate of a block has type " + text(n.predicate.dtype()) + ", not bool");
  }
  return {};
}

}  // namespace

std::optional<TileSizes> tile_sizes(DType accumulator, DType a, DType b) {
  // m·n, m·k and k·n give m² = mn · mk / kn.
  const int64_t mn = accumulator.lanes, mk = a.lanes, kn = b.lanes;
  for (int64_t m = 1; m <= std::min(mn, mk); ++m) {
    if (mn % m == 0 && mk % m == 0 && (mk / m) * (mn / m) == kn)
      return TileSizes{static_cast<int>(m), static_cast<int>(mn / m), static_cast<int>(mk / m)};
  }
  return std::nullopt;
}

IntrinsicKind kind_of(Intrinsic intrinsic) {
  static constexpr IntrinsicKind kinds[] = {
#define INTRINSIC(name, arity, kind) IntrinsicKind::kind,
#include "tensor_ir/intrinsics.def"
  };
  return kinds[static_cast<size_t>(intrinsic)];
}

bool is_asynchronous(Intrinsic intrinsic) {
  return intrinsic >= Intrinsic::wgmma_bf16 && intrinsic <= Intrinsic::wgmma_e5m2e5m2;
}

DType code_format(Intrinsic intrinsic) {
  return intrinsic == Intrinsic::decode_e4m3 || intrinsic == Intrinsic::encode_e4m3 ? f8e4m3fn : f8e5m2;
}

int arity_of(Intrinsic intrinsic) {
  static constexpr int arities[] = {
#define INTRINSIC(name, arity, kind) arity,
#include "tensor_ir/intrinsics.def"
  };
  return arities[static_cast<size_t>(intrinsic)];
}

std::optional<DType> call_dtype(Intrinsic intrinsic, const std::vector<Expr>& arguments) {
  switch (kind_of(intrinsic)) {
    case IntrinsicKind::math:
    case IntrinsicKind::bits:
    case IntrinsicKind::dot:
    case IntrinsicKind::tile:
    case IntrinsicKind::matrix:
    case IntrinsicKind::fragment:
      return arguments.empty() ? std::optional<DType>() : arguments[0].dtype();
    case IntrinsicKind::predicate:
      return arguments.empty() ? std::optional<DType>() : bool_of(arguments[0].dtype());
    case IntrinsicKind::effect:
      return arguments.empty() ? boolean : arguments[0].dtype();
    case IntrinsicKind::decode:
      return arguments.empty() ? f32 : f32.with_lanes(arguments[0].dtype().lanes);
    case IntrinsicKind::encode:
      return arguments.empty() ? u8 : u8.with_lanes(arguments[0].dtype().lanes);
    case IntrinsicKind::convert:
      break;
  }
  if (intrinsic != Intrinsic::lane_concat || arguments.empty()) return std::nullopt;
  int lanes = 0;
  for (const Expr& argument : arguments) lanes += argument.dtype().lanes;
  return lanes <= UINT16_MAX ? std::optional<DType>(arguments[0].dtype().with_lanes(lanes)) : std::nullopt;
}

DType access_dtype(const Buffer& buffer, const std::vector<Expr>& indices, const Expr& predicate) {
  int lanes = buffer->dtype.lanes;
  if (predicate.is_defined()) lanes = std::max<int>(lanes, predicate.dtype().lanes);
  for (const Expr& index : indices) lanes = std::max<int>(lanes, index.dtype().lanes);
  return buffer->dtype.with_lanes(lanes);
}

std::optional<TypeProblem> type_problem(const Buffer& buffer) {
  std::string name = "`" + buffer->name + "`";
  if (buffer->dtype.is_narrow())
    return problem(name + " has the narrow type " + text(buffer->dtype) + "; loops see its bytes");
  for (const Expr& extent : buffer->shape) {
    if (!is_scalar(extent, i64)) return problem("a dimension of " + name + " is not of type i64");
  }
  if (!buffer->strides.empty() && buffer->strides.size() != buffer->shape.size()) {
    return problem(name + " has " + std::to_string(buffer->shape.size()) + " dimensions but " +
                   std::to_string(buffer->strides.size()) + " strides");
  }
  for (const Expr& stride : buffer->strides) {
    if (!is_scalar(stride, i64)) return problem("a stride of " + name + " is not of type i64");
  }
  if (buffer->alignment <= 0 || (buffer->alignment & (buffer->alignment - 1)) != 0) {
    return problem("the alignment of " + name + " is not a power of two");
  }
  return {};
}

std::optional<TypeProblem> type_problem(const Expr& e) {
  switch (e.kind()) {
    case NodeKind::IntImm: {
      auto& n = *e.as<IntImm>();
      if (n.dtype.is_float() || n.dtype.lanes != 1) return problem("an integer constant of type " + text(n.dtype));
      if (meaning::wrap(n.dtype, n.value) != n.value)
        return problem("the constant " + std::to_string(n.value) + " does not fit in " + text(n.dtype));
      return {};
    }
    case NodeKind::FloatImm: {
      auto& n = *e.as<FloatImm>();
      if (!n.dtype.is_float() || n.dtype.lanes != 1) return problem("a floating constant of type " + text(n.dtype));
      if (!std::isnan(n.value) && meaning::round_to(n.dtype, n.value) != n.value) {
        return problem("the constant " + std::to_string(n.value) + " is not a value of " + text(n.dtype));
      }
      return {};
    }
    case NodeKind::Var:
      return {};
    case NodeKind::Unary: {
      auto& n = *e.as<Unary>();
      if (!n.a.is_defined()) return problem("an operand is missing");
      DType a = n.a.dtype();
      bool fits = n.op == UnaryOp::negate ? is_number(a) : n.op == UnaryOp::logical_not ? a.is_bool() : a.is_integer();
      if (!fits)
        return problem(std::string("`") + syntax::unary_table[static_cast<size_t>(n.op)].symbol +
                       "` does not take an operand of type " + text(a));
      if (n.dtype != a) return mismatch("an operand and its result", a, n.dtype);
      return {};
    }
    case NodeKind::Binary:
      return check_binary(*e.as<Binary>());
    case NodeKind::Cast: {
      auto& n = *e.as<Cast>();
      if (!n.value.is_defined()) return problem("an operand is missing");
      if (n.dtype.lanes != n.value.dtype().lanes)
        return problem(
            "a conversion from " + text(n.value.dtype()) + " to " + text(n.dtype) + " changes the number of lanes",
            "use broadcast(…) first");
      return {};
    }
    case NodeKind::Select: {
      auto& n = *e.as<Select>();
      if (!n.condition.is_defined() || !n.then_value.is_defined() || !n.else_value.is_defined())
        return problem("an operand is missing");
      DType condition = n.condition.dtype(), value = n.then_value.dtype();
      if (value != n.else_value.dtype()) return mismatch("the two values of select", value, n.else_value.dtype());
      if (!condition.is_bool() || (condition.lanes != 1 && condition.lanes != value.lanes)) {
        return problem("the condition of select has type " + text(condition) + ", not " + text(bool_of(value)));
      }
      if (n.dtype != value) return mismatch("select and its values", n.dtype, value);
      return {};
    }
    case NodeKind::Call:
      return check_call(*e.as<Call>());
    case NodeKind::Load: {
      auto& n = *e.as<Load>();
      if (Problem p = check_access(n.buffer, n.indices, n.predicate)) return p;
      DType dtype = access_dtype(n.buffer, n.indices, n.predicate);
      if (n.dtype != dtype)
        return problem("a load from `" + n.buffer->name + "` gives " + text(dtype) + ", not " + text(n.dtype));
      return {};
    }
    case NodeKind::Ramp: {
      auto& n = *e.as<Ramp>();
      if (!n.base.is_defined() || !n.stride.is_defined()) return problem("an operand is missing");
      DType base = n.base.dtype();
      if (base != n.stride.dtype()) return mismatch("base and stride of ramp", base, n.stride.dtype());
      if (!base.is_integer() || base.lanes != 1)
        return problem("the base of ramp has type " + text(base) + ", not a scalar integer");
      if (n.dtype.element() != base || n.dtype.lanes < 2)
        return problem("ramp from " + text(base) + " gives a vector of at least 2 lanes, not " + text(n.dtype));
      return {};
    }
    case NodeKind::Broadcast: {
      auto& n = *e.as<Broadcast>();
      if (!n.value.is_defined()) return problem("an operand is missing");
      DType value = n.value.dtype();
      if (value.lanes != 1) return problem("broadcast takes a scalar, not " + text(value));
      if (n.dtype.element() != value || n.dtype.lanes < 2)
        return problem("broadcast of " + text(value) + " gives a vector of at least 2 lanes, not " + text(n.dtype));
      return {};
    }
    case NodeKind::VectorReduce:
      return check_reduce(*e.as<VectorReduce>());
    case NodeKind::Let: {
      auto& n = *e.as<Let>();
      if (!n.var.is_defined() || !n.value.is_defined() || !n.body.is_defined()) return problem("an operand is missing");
      if (n.var.dtype() != n.value.dtype())
        return mismatch("the variable and value of let", n.var.dtype(), n.value.dtype());
      if (n.dtype != n.body.dtype()) return mismatch("let and its body", n.dtype, n.body.dtype());
      return {};
    }
    default:
      return problem("a node of unknown kind");
  }
}

std::optional<TypeProblem> type_problem(const Stmt& s) {
  switch (s.kind()) {
    case NodeKind::For:
      return check_for(*s.as<For>());
    case NodeKind::Block:
      return check_block(*s.as<Block>());
    case NodeKind::Store: {
      auto& n = *s.as<Store>();
      if (Problem p = check_access(n.buffer, n.indices, n.predicate)) return p;
      if (!n.value.is_defined()) return problem("a stored value is missing");
      DType dtype = access_dtype(n.buffer, n.indices, n.predicate);
      if (n.value.dtype() != dtype) {
        return problem("a value of type " + text(n.value.dtype()) + " is stored where `" + n.buffer->name + "` holds " +
                           text(dtype),
                       n.value.dtype().lanes == dtype.lanes ? "write " + text(dtype) + "(…)"
                                                            : conversion_help(n.value.dtype(), dtype));
      }
      return {};
    }
    case NodeKind::Seq: {
      for (const Stmt& statement : s.as<Seq>()->statements) {
        if (!statement.is_defined()) return problem("a statement is missing");
      }
      return {};
    }
    case NodeKind::If: {
      auto& n = *s.as<If>();
      if (!n.then_body.is_defined() || !n.condition.is_defined()) return problem("an if lacks its condition or body");
      if (!is_scalar(n.condition, boolean))
        return problem("the condition of if has type " + text(n.condition.dtype()) + ", not bool");
      return {};
    }
    case NodeKind::LetStmt: {
      auto& n = *s.as<LetStmt>();
      if (!n.var.is_defined() || !n.value.is_defined() || !n.body.is_defined())
        return problem("a let lacks its variable, value or body");
      if (n.var.dtype() != n.value.dtype())
        return mismatch("the variable and value of let", n.var.dtype(), n.value.dtype());
      return {};
    }
    case NodeKind::Allocate: {
      auto& n = *s.as<Allocate>();
      if (!n.buffer.is_defined() || !n.body.is_defined()) return problem("an alloc lacks its buffer or body");
      return type_problem(n.buffer);
    }
    case NodeKind::Evaluate:
      return s.as<Evaluate>()->call.is_defined() ? Problem() : problem("an expression is missing");
    default:
      return problem("a node of unknown kind");
  }
}

}  // namespace tw
