// From a handle to the struct of its row in nodes.def, for code that works on fields().
#pragma once

#include "tensor_ir/ir.h"

namespace tw::detail {

namespace structs {
using namespace tw;
using Var = VarNode;
}  // namespace structs

template <class F>
decltype(auto) with_node(const Expr& e, F&& f) {
  switch (e.kind()) {
#define EXPR_NODE(Name) \
  case NodeKind::Name:  \
    return f(static_cast<const structs::Name&>(*e));
#define STMT_NODE(Name)
#include "tensor_ir/nodes.def"
    default:
      break;
  }
  internal_error("an expression handle holds a statement");
}

template <class F>
decltype(auto) with_node(const Stmt& s, F&& f) {
  switch (s.kind()) {
#define STMT_NODE(Name) \
  case NodeKind::Name:  \
    return f(static_cast<const structs::Name&>(*s.get()));
#define EXPR_NODE(Name)
#include "tensor_ir/nodes.def"
    default:
      break;
  }
  internal_error("a statement handle holds an expression");
}

}  // namespace tw::detail
