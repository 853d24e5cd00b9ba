// Functions of mathematics become arithmetic, the same for scalars and vectors; no call of a library is left in a loop.
//
//   exp(x)   ⇒   let t = x * log2e + 1.5·2²³ in let n = t - 1.5·2²³ in let r = x - n * ln2 in … 2ⁿ · P(r)
//
// f32 within 2 units in the last place (sigmoid: 3; erf, pow: 4; normal_cdf: 4 of the largest it can be nearby, 1/2 or
// 1), f64 within 4, over all arguments; 16-bit floats by way of f32. The methods and their sources stand at the
// functions, in math_*.cpp; tests compare them with the C library.  In f32 only pow, fmod, asinh, acosh, atanh and the
// reduction of sin, cos and tan use f64.
#include "tensor_ir/match.h"
#include "tensor_ir/minifloat.h"
#include "tensor_ir/passes/math_builder.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/passes/target_facts.h"
#include "tensor_ir/type_rules.h"

namespace tw {
namespace {

using math::Builder;

Expr expansion(Builder& b, Intrinsic intrinsic, const std::vector<Expr>& x) {
  auto in_double = [&](Expr (*function)(Builder&, const Expr&)) {
    if (!b.is_single()) return function(b, x[0]);
    const DType dtype = b.dtype;
    b.dtype = f64.with_lanes(dtype.lanes);
    const Expr value = function(b, b.name("x", cast(b.dtype, x[0])));
    b.dtype = dtype;
    return cast(dtype, value);
  };
  switch (intrinsic) {
    case Intrinsic::exp:
      return math::exp(b, x[0]);
    case Intrinsic::exp_nonpositive:
      return math::exp_nonpositive(b, x[0]);
    case Intrinsic::exp2:
      return math::exp2(b, x[0]);
    case Intrinsic::log:
      return math::log(b, x[0]);
    case Intrinsic::log2:
      return math::log2(b, x[0]);
    case Intrinsic::rsqrt:
      return b.real(1) / call(Intrinsic::sqrt, {x[0]});
    case Intrinsic::tanh:
      return math::tanh(b, x[0]);
    case Intrinsic::erf:
      return math::erf(b, x[0]);
    case Intrinsic::normal_cdf:
      return math::normal_cdf(b, x[0]);
    case Intrinsic::sigmoid:
      return math::sigmoid(b, x[0]);
    case Intrinsic::sin:
      return math::sin(b, x[0]);
    case Intrinsic::cos:
      return math::cos(b, x[0]);
    case Intrinsic::tan:
      return math::tan(b, x[0]);
    case Intrinsic::asin:
      return math::asin(b, x[0]);
    case Intrinsic::acos:
      return math::acos(b, x[0]);
    case Intrinsic::atan:
      return math::atan(b, x[0]);
    case Intrinsic::sinh:
      return math::sinh(b, x[0]);
    case Intrinsic::cosh:
      return math::cosh(b, x[0]);
    case Intrinsic::asinh:
      return in_double(math::asinh);
    case Intrinsic::acosh:
      return in_double(math::acosh);
    case Intrinsic::atanh:
      return in_double(math::atanh);
    case Intrinsic::pow:
      return math::pow(b, x[0], x[1]);
    case Intrinsic::fmod:
      return math::fmod(b, x[0], x[1]);
    case Intrinsic::sign:
      return select(b.real(0) < x[0], b.real(1), select(x[0] < b.real(0), b.real(-1), x[0]));
    case Intrinsic::round_tf32: {
      constexpr int64_t dropped = 0x1fff, half = 0x1000;  // of the mantissa's bits
      const Expr bits = binary(BinaryOp::bit_and, b.bits_of(x[0]) + b.integer(half), b.integer(~dropped));
      return select(call(Intrinsic::is_nan, {x[0]}), x[0], b.from_bits(bits));
    }
    case Intrinsic::philox:
      return math::philox(b, x[0], x[1], x[2]);
    default:
      return {};
  }
}

Expr expand(const Call& node, const math::MathFeatures& features) {
  const IntrinsicKind kind = kind_of(node.intrinsic);
  if (kind == IntrinsicKind::decode || kind == IntrinsicKind::encode) {
    Builder b(f32.with_lanes(node.dtype.lanes), features);
    const Expr x = b.name("x", node.arguments[0]);
    const DType format = code_format(node.intrinsic);
    return b.finish(kind == IntrinsicKind::decode ? decoded_minifloat(x, format) : encoded_minifloat(x, format));
  }
  if (!node.dtype.is_float() && node.intrinsic != Intrinsic::philox) return {};
  // The remainders of numbers near the largest would overflow in a product without the instruction: left to be refused.
  if (node.intrinsic == Intrinsic::fmod && node.dtype.bits == 64 && !features.has_fma) return {};
  const bool is_narrow = node.dtype.bits == 16;
  Builder b(is_narrow ? f32.with_lanes(node.dtype.lanes) : node.dtype, features);
  std::vector<Expr> arguments;
  for (const Expr& argument : node.arguments) {
    if (argument.dtype() != node.dtype) return {};
    Expr value = cast(b.dtype, argument);
    const bool is_plain = value.kind() == NodeKind::Var || as_float(value) || as_int(value);
    arguments.push_back(is_plain ? value : b.name("x", value));
  }
  Expr value = expansion(b, node.intrinsic, arguments);
  return value.is_defined() ? cast(node.dtype, b.finish(std::move(value))) : Expr();
}

}  // namespace

Func expand_math(const Func& f) {
  Func result = f;
  const math::MathFeatures features{target_fact(f, "has_fma", 1) != 0, target_fact(f, "has_power_scaling", 0) != 0};
  result.body = rewrite_bottom_up(f.body, [&](const Call& node) { return expand(node, features); });
  return result;
}

}  // namespace tw
