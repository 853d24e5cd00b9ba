#include "relay_ir/compile/over_steps.h"

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"
#include "tensor_ir/text/printer.h"

namespace tw::relay {
namespace {

// An end of the interval of an expression, as interval arithmetic has it.
class Ends {
 public:
  Ends(const Var& var, const Expr& last) : var_(var), last_(last) {}

  Expr of(const Expr& e, bool is_high) const {
    if (!depends(e)) return e;
    if (e.kind() == NodeKind::Var) return is_high ? last_ : Expr(0);
    if (const auto* negated = e.as<Unary>(); negated && negated->op == UnaryOp::negate)
      return -of(negated->a, !is_high);
    const auto* binary = e.as<Binary>();
    if (!binary) return refuse(e);
    const Expr &a = binary->a, &b = binary->b;
    switch (binary->op) {
      case BinaryOp::add:
      case BinaryOp::min:
      case BinaryOp::max:
        return tw::binary(binary->op, of(a, is_high), of(b, is_high));
      case BinaryOp::sub:
        return of(a, is_high) - of(b, !is_high);
      case BinaryOp::mul:
        return product(a, b, is_high);
      case BinaryOp::floor_div:
        if (!depends(b) && can_prove(b > 0)) return floor_div(of(a, is_high), b);
        return refuse(e);
      case BinaryOp::floor_mod:
        if (!depends(b) && can_prove(b > 0)) return is_high ? b - 1 : Expr(0);
        return refuse(e);
      default:
        return refuse(e);
    }
  }

 private:
  bool depends(const Expr& e) const { return uses_var(e, var_); }

  Expr product(const Expr& a, const Expr& b, bool is_high) const {
    if (!depends(b)) {
      if (can_prove(b >= 0)) return of(a, is_high) * b;
      if (can_prove(b <= 0)) return of(a, !is_high) * b;
      const Expr x = of(a, is_high) * b, y = of(a, !is_high) * b;
      return is_high ? max(x, y) : min(x, y);
    }
    if (!depends(a)) return product(b, a, is_high);
    // Of sizes.
    const Expr x = of(a, is_high), y = of(b, is_high);
    return max(x, Expr(0)) * max(y, Expr(0));
  }

  [[noreturn]] static Expr refuse(const Expr& e) {
    throw Error(ErrorCode::unsupported, "`" + to_text(e) +
                                            "`, a size in a step of a loop, has no bound that is known before the loop"
                                            "\n  help: a size that is a sum of products of the number of the step has");
  }

  const Var& var_;
  const Expr& last_;
};

}  // namespace

Expr most_over(const Expr& e, const Var& var, const Expr& last) {
  return simplify(Ends(var, last).of(simplify(e), true));
}

}  // namespace tw::relay
