// Loops of kind unrolled are copied out, with their variable a constant in each copy.
//
//   for i in 0..2 unrolled { C[i] = A[i] }   ⇒   C[0] = A[0]; C[1] = A[1]
#include "tensor_ir/match.h"
#include "tensor_ir/passes/folding.h"
#include "tensor_ir/passes/passes.h"

namespace tw {
namespace {

// More stores than this copied out of one loop are a schedule gone wrong: no inner loop has so many instructions.
constexpr int64_t most_stores = 16384;

class Unroller {
 public:
  Stmt operator()(const Stmt& s) {
    const auto* loop = s.as<For>();
    if (!loop || loop->loop_kind != LoopKind::unrolled) {
      return map_children(s, [](const Expr& e) { return e; }, [this](const Stmt& child) { return (*this)(child); });
    }
    const auto extent = as_int(loop->extent);
    if (!extent) {
      throw Error(ErrorCode::lower, "loop `" + loop->var.name() +
                                        "` is to be unrolled but its extent is not a constant\n"
                                        "  help: split it by a constant and unroll the inner loop");
    }
    // The body first: what is in it is copied out once and then taken as it is.
    const Stmt body = (*this)(loop->body);
    int64_t stores = 0;
    visit(body, [&](const Store&) { ++stores; });
    if (stores * *extent > most_stores) {
      throw Error(ErrorCode::lower, "unrolling loop `" + loop->var.name() + "` makes " +
                                        std::to_string(stores * *extent) + " stores, more than " +
                                        std::to_string(most_stores) + "\n  help: unroll smaller loops");
    }
    bool has_bindings = false;
    visit(
        body, [&](const For&) { has_bindings = true; }, [&](const Allocate&) { has_bindings = true; },
        [&](const LetStmt&) { has_bindings = true; }, [&](const Let&) { has_bindings = true; });
    std::vector<Stmt> statements;
    for (int64_t i = 0; i < *extent; ++i) {
      Stmt copy = fold_substitute(body, {{loop->var, int_imm(loop->var.dtype(), i)}});
      statements.push_back(has_bindings && i > 0 ? with_fresh_names(copy) : copy);
    }
    return seq(std::move(statements));
  }
};

}  // namespace

Func unroll_loops(const Func& f) {
  Func result = f;
  result.body = Unroller()(f.body);
  return result;
}

}  // namespace tw
