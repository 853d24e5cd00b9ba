#include "tensor_ir/passes/conjunction.h"

namespace tw {

void split_conjunction(const Expr& e, std::vector<Expr>& parts) {
  if (const auto* b = e.as<Binary>(); b && b->op == BinaryOp::logical_and) {
    split_conjunction(b->a, parts);
    split_conjunction(b->b, parts);
  } else {
    parts.push_back(e);
  }
}

}  // namespace tw
