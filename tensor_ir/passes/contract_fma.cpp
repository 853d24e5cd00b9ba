// Multiplications whose only use is an addition become one operation with one rounding.
//
//   c + a * b   ⇒   fma(a, b, c)          c - a * b   ⇒   fma(-a, b, c)          a * b - c   ⇒   fma(a, b, -c)
//
// For f32 and f64 of targets with the instruction; it is more exact, but not bit-identical.
#include "tensor_ir/match.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/passes/target_facts.h"

namespace tw {
namespace {

const Binary* as_product(const Expr& e) {
  const auto* b = e.as<Binary>();
  return b && b->op == BinaryOp::mul ? b : nullptr;
}

}  // namespace

Func contract_fma(const Func& f) {
  Func result = f;
  if (target_fact(f, "has_fma", 1) == 0) return result;
  result.body = rewrite_bottom_up(f.body, [](const Binary& e) -> Expr {
    const DType element = e.dtype.element();
    if (element != f32 && element != f64) return {};
    if (e.op == BinaryOp::add) {
      if (const auto* p = as_product(e.b)) return call(Intrinsic::fma, {p->a, p->b, e.a});
      if (const auto* p = as_product(e.a)) return call(Intrinsic::fma, {p->a, p->b, e.b});
    }
    if (e.op == BinaryOp::sub) {
      if (const auto* p = as_product(e.b)) return call(Intrinsic::fma, {-p->a, p->b, e.a});
      if (const auto* p = as_product(e.a)) return call(Intrinsic::fma, {p->a, p->b, -e.b});
    }
    return {};
  });
  return result;
}

}  // namespace tw
