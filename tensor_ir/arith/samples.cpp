#include "tensor_ir/arith/samples.h"

#include <algorithm>
#include <unordered_map>

#include "tensor_ir/arith/simplifier.h"
#include "tensor_ir/digest.h"
#include "tensor_ir/dimension.h"
#include "tensor_ir/scalar_meaning.h"

namespace tw {
namespace {

using Value = std::optional<int64_t>;

Value combined(BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOp::add:
      return __builtin_add_overflow(a, b, &result) ? std::nullopt : Value(result);
    case BinaryOp::sub:
      return __builtin_sub_overflow(a, b, &result) ? std::nullopt : Value(result);
    case BinaryOp::mul:
      return __builtin_mul_overflow(a, b, &result) ? std::nullopt : Value(result);
    case BinaryOp::div:
    case BinaryOp::mod:
    case BinaryOp::floor_div:
    case BinaryOp::floor_mod:
      if (b == 0 || b == -1) return std::nullopt;  // an error, or what may overflow
      break;
    case BinaryOp::bit_and:
    case BinaryOp::bit_or:
    case BinaryOp::bit_xor:
    case BinaryOp::shift_left:
    case BinaryOp::shift_right:
      return std::nullopt;  // sizes have none
    default:
      break;
  }
  return meaning::apply(op, i64, a, b);
}

class Sampling {
 public:
  Samples of(const Expr& e, const Assumptions& assumptions) {
    if (e.dtype() != i64 && e.dtype() != boolean) return {};
    Samples result;
    switch (e.kind()) {
      case NodeKind::IntImm:
        result.fill(e.as<IntImm>()->value);
        return result;
      case NodeKind::Var:
        return of_variable(Var::of(e), assumptions);
      default:
        break;
    }
    if (const auto found = memo_.find(e.get()); found != memo_.end()) return found->second.samples;
    if (const auto* unary = e.as<Unary>(); unary && unary->op != UnaryOp::bit_not) {
      const bool is_negation = unary->op == UnaryOp::negate;
      result = combine(is_negation ? BinaryOp::sub : BinaryOp::eq, of(Expr(0), assumptions), of(unary->a, assumptions));
    } else if (const auto* binary = e.as<Binary>()) {
      const Samples a = of(binary->a, assumptions);
      if (a != Samples{}) result = combine(binary->op, a, of(binary->b, assumptions));
    }
    if (memo_.size() >= most_remembered) memo_.clear();
    memo_.emplace(e.get(), Remembered{e, result});
    return result;
  }

 private:
  static Samples combine(BinaryOp op, const Samples& a, const Samples& b) {
    Samples result;
    for (size_t i = 0; i < result.size(); ++i) {
      if (a[i] && b[i]) result[i] = combined(op, *a[i], *b[i]);
    }
    return result;
  }

  // Numbers of usual sizes, by the name alone, so that every run asks the same.
  static Samples of_variable(const Var& var, const Assumptions& assumptions) {
    if (var.dtype() != i64) return {};
    constexpr int64_t usual = 997;
    DimensionBounds bounds = dimension_bounds(var);
    if (const Interval* interval = assumptions.find(var)) {
      bounds = {interval->low.value_or(arith::minus_infinity), interval->high.value_or(arith::plus_infinity)};
    }
    Samples result;
    const int64_t first = std::max<int64_t>(bounds.low, 0);
    if (first > bounds.high) return result;
    const auto count = static_cast<uint64_t>(std::min(bounds.high - first, usual)) + 1;
    uint64_t seed = hash_of(var.name());
    for (auto& value : result) {
      value = first + static_cast<int64_t>(seed % count);
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      seed ^= seed >> 32;
    }
    // Roundings up and down differ where something is left over, and are alike elsewhere: one point where nothing is.
    const int64_t whole = arith::floor_divide(*result[0], 64) * 64;
    if (whole >= first) result[0] = whole;
    return result;
  }

  static constexpr size_t most_remembered = 1 << 14;
  struct Remembered {
    Expr e;  // lives as long as its address is a key
    Samples samples;
  };
  std::unordered_map<const ExprNode*, Remembered> memo_;
};

}  // namespace

Samples samples_of(const Expr& e, const Assumptions& assumptions) {
  if (assumptions.intervals().empty() && assumptions.facts().empty()) {
    thread_local Sampling sampling;  // what sizes are made of is asked again and again
    return sampling.of(e, assumptions);
  }
  Sampling sampling;
  Samples result = sampling.of(e, assumptions);
  for (const Expr& fact : assumptions.facts()) {
    if (result == Samples{}) break;
    const Samples holds = sampling.of(fact, assumptions);
    for (size_t i = 0; i < result.size(); ++i) {
      if (holds[i] != 1) result[i].reset();
    }
  }
  return result;
}

bool may_be_equal(const Samples& a, const Samples& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] && b[i] && *a[i] != *b[i]) return false;
  }
  return true;
}

Samples product_of(const Samples& a, const Samples& b) {
  Samples result;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] && b[i]) result[i] = static_cast<int64_t>(static_cast<uint64_t>(*a[i]) * static_cast<uint64_t>(*b[i]));
  }
  return result;
}

}  // namespace tw
