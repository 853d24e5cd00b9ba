// Walking and rewriting tensor_ir with lambdas.  Nodes that no lambda names recurse; unchanged subtrees keep identity.
//
//   visit(stmt, [&](const Load& load) { … return Walk::into; }, [&](const Store& store) { … });
//   stmt = rewrite(stmt, [&](const Load& load) -> Expr { … });
#pragma once

#include <concepts>
#include <functional>
#include <type_traits>
#include <unordered_map>

#include "tensor_ir/ir.h"

namespace tw {

// What a visiting lambda may return: go on into the node's children (also when it returns nothing), or not.
enum class Walk { into, skip };

// Children of a node, in the order of fields().
void for_each_child(const Expr& e, const std::function<void(const Expr&)>& on_expr);
void for_each_child(const Stmt& s, const std::function<void(const Expr&)>& on_expr,
                    const std::function<void(const Stmt&)>& on_stmt);

// A copy of the node with its children replaced; the same node when no child changed.
Expr map_children(const Expr& e, const std::function<Expr(const Expr&)>& on_expr);
Stmt map_children(const Stmt& s, const std::function<Expr(const Expr&)>& on_expr,
                  const std::function<Stmt(const Stmt&)>& on_stmt);

// The call that an expression is, where it only converts a number and keeps 0: round_tf32, decode_e4m3, …; or null.
const Call* as_conversion(const Expr& e);
// What such a call or a Cast is of; another expression itself.
Expr without_conversion(const Expr& e);

namespace detail {

template <class F>
struct argument_of : argument_of<decltype(&F::operator())> {};
template <class C, class R, class A>
struct argument_of<R (C::*)(const A&) const> {
  using type = A;
  using result = R;
};
template <class C, class R, class A>
struct argument_of<R (C::*)(const A&)> {
  using type = A;
  using result = R;
};

template <class F>
using node_of = typename argument_of<std::remove_cvref_t<F>>::type;
template <class F>
inline constexpr bool is_expr_lambda = std::is_base_of_v<ExprNode, node_of<F>>;

// Calls the lambda when the node is of its kind.  True: the node was matched, and `walk` says how to go on.
template <class F, class Handle>
bool try_visit(F& f, const Handle& h, Walk& walk) {
  const auto* node = h.template as<node_of<F>>();
  if (!node) return false;
  if constexpr (std::is_same_v<typename argument_of<std::remove_cvref_t<F>>::result, Walk>)
    walk = f(*node);
  else
    f(*node);
  return true;
}

template <class Handle, class... F>
Walk dispatch_visit(const Handle& h, F&... fs) {
  Walk walk = Walk::into;
  auto one = [&](auto& f) {
    if constexpr (is_expr_lambda<decltype(f)> == std::is_same_v<Handle, Expr>)
      return try_visit(f, h, walk);
    else
      return false;
  };
  (void)(one(fs) || ...);
  return walk;
}

template <class F, class Handle>
bool try_rewrite(F& f, const Handle& h, Handle& result) {
  const auto* node = h.template as<node_of<F>>();
  if (!node) return false;
  Handle replaced = f(*node);
  if (!replaced.is_defined()) return false;  // the lambda declined: recurse
  result = std::move(replaced);
  return true;
}

template <class Handle, class... F>
bool dispatch_rewrite(const Handle& h, Handle& result, F&... fs) {
  auto one = [&](auto& f) {
    if constexpr (is_expr_lambda<decltype(f)> == std::is_same_v<Handle, Expr>)
      return try_rewrite(f, h, result);
    else
      return false;
  };
  return (one(fs) || ...);
}

}  // namespace detail

// Pre-order.  Each lambda takes `const SomeNode&` and returns Walk or nothing; the first that fits is called.
template <class... F>
void visit(const Expr& e, F&&... fs) {
  if (!e.is_defined()) return;
  if (detail::dispatch_visit(e, fs...) == Walk::skip) return;
  for_each_child(e, [&](const Expr& child) { visit(child, fs...); });
}
template <class... F>
void visit(const Stmt& s, F&&... fs) {
  if (!s.is_defined()) return;
  if (detail::dispatch_visit(s, fs...) == Walk::skip) return;
  for_each_child(s, [&](const Expr& child) { visit(child, fs...); }, [&](const Stmt& child) { visit(child, fs...); });
}

// Pre-order: a lambda (const SomeNode&) -> Expr (for expressions) or -> Stmt (for statements) that returns something
// defined replaces the node, and its result is not visited again (call rewrite on children yourself, or use
// rewrite_children); returning an undefined handle means "not this one": its children are rewritten.
template <class... F>
Expr rewrite(const Expr& e, F&&... fs) {
  if (!e.is_defined()) return e;
  Expr result;
  if (detail::dispatch_rewrite(e, result, fs...)) return result;
  return map_children(e, [&](const Expr& child) { return rewrite(child, fs...); });
}
template <class... F>
Stmt rewrite(const Stmt& s, F&&... fs) {
  if (!s.is_defined()) return s;
  Stmt result;
  if (detail::dispatch_rewrite(s, result, fs...)) return result;
  return map_children(
      s, [&](const Expr& child) { return rewrite(child, fs...); },
      [&](const Stmt& child) { return rewrite(child, fs...); });
}

// Post-order: children first, then the lambda sees the node with new children.
template <class... F>
Expr rewrite_bottom_up(const Expr& e, F&&... fs) {
  if (!e.is_defined()) return e;
  Expr node = map_children(e, [&](const Expr& child) { return rewrite_bottom_up(child, fs...); });
  Expr result;
  return detail::dispatch_rewrite(node, result, fs...) ? result : node;
}
template <class... F>
Stmt rewrite_bottom_up(const Stmt& s, F&&... fs) {
  if (!s.is_defined()) return s;
  Stmt node = map_children(
      s, [&](const Expr& child) { return rewrite_bottom_up(child, fs...); },
      [&](const Stmt& child) { return rewrite_bottom_up(child, fs...); });
  Stmt result;
  return detail::dispatch_rewrite(node, result, fs...) ? result : node;
}

// Common uses.
using Substitution = std::unordered_map<Var, Expr>;
Expr substitute(const Expr& e, const Substitution& values);
Stmt substitute(const Stmt& s, const Substitution& values);
Stmt replace_buffer(const Stmt& s, const Buffer& from, const Buffer& to);
bool uses_var(const Expr& e, const Var& var);
bool uses_var(const Stmt& s, const Var& var);
std::vector<Var> free_vars(const Expr& e);        // in order of first use
std::vector<Buffer> buffers_read(const Stmt& s);  // in order of first use
std::vector<Buffer> buffers_written(const Stmt& s);
// A copy in which every bound Var (loops, lets, block iterations) and allocated Buffer is new, with the same names.
Stmt with_fresh_names(const Stmt& s);

}  // namespace tw
