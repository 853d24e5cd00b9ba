#include "tensor_ir/passes/redirect.h"

#include "tensor_ir/match.h"

namespace tw {

Stmt redirect_accesses(const Stmt& s, const Buffer& from, const Buffer& to,
                       const std::function<std::vector<Expr>(const std::vector<Expr>&)>& map) {
  return rewrite_bottom_up(
      s,
      [&](const Load& n) -> Expr {
        return n.buffer == from ? make_expr<Load>(n.dtype, to, map(n.indices), n.predicate) : Expr();
      },
      [&](const Store& n) -> Stmt {
        return n.buffer == from ? make_stmt<Store>(to, map(n.indices), n.value, n.predicate, n.span) : Stmt();
      });
}

}  // namespace tw
