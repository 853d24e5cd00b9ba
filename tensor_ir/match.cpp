// Children and copies of nodes, derived from fields(); and the uses of them that everybody needs.
#include "tensor_ir/match.h"

#include <algorithm>

#include "tensor_ir/node_dispatch.h"
#include "tensor_ir/type_rules.h"

namespace tw {
namespace {

using detail::with_node;

// The Exprs and Stmts among the fields, however they are held.  A Var field is a binding site, not a use.
template <class E, class S>
struct FieldWalker {
  const E& on_expr;
  const S& on_stmt;
  void operator()(const Expr& e) const {
    if (e.is_defined()) on_expr(e);
  }
  void operator()(const Stmt& s) const {
    if (s.is_defined()) on_stmt(s);
  }
  void operator()(const Var&) const {}
  void operator()(const std::vector<Expr>& es) const {
    for (const Expr& e : es) (*this)(e);
  }
  void operator()(const std::vector<Stmt>& ss) const {
    for (const Stmt& s : ss) (*this)(s);
  }
  void operator()(const std::vector<IterVar>& iters) const {
    for (const IterVar& iter : iters) (*this)(iter.extent), (*this)(iter.binding);
  }
  template <class T>
  void operator()(const T&) const {}  // plain data
};

struct FieldMapper {
  const std::function<Expr(const Expr&)>& on_expr;
  const std::function<Stmt(const Stmt&)>& on_stmt;
  bool changed = false;

  Expr operator()(const Expr& e) { return one(e, on_expr); }
  Stmt operator()(const Stmt& s) { return one(s, on_stmt); }
  Var operator()(const Var& v) { return v; }
  std::vector<Expr> operator()(const std::vector<Expr>& es) { return each(es); }
  std::vector<Stmt> operator()(const std::vector<Stmt>& ss) { return each(ss); }
  std::vector<IterVar> operator()(const std::vector<IterVar>& iters) {
    std::vector<IterVar> result;
    for (const IterVar& i : iters) result.push_back({i.var, (*this)(i.extent), i.kind, (*this)(i.binding)});
    return result;
  }
  template <class T>
  T operator()(const T& value) {
    return value;
  }

 private:
  template <class Handle>
  Handle one(const Handle& h, const std::function<Handle(const Handle&)>& f) {
    if (!h.is_defined()) return h;
    Handle result = f(h);
    changed |= !result.is_same(h);
    return result;
  }
  template <class T>
  std::vector<T> each(const std::vector<T>& items) {
    std::vector<T> result;
    result.reserve(items.size());
    for (const T& item : items) result.push_back((*this)(item));
    return result;
  }
};

const std::function<Stmt(const Stmt&)> no_statements;

// The dtype of an expression whose operands may have become vectors (vectorize_loops) is its own business: here it
// stays.
template <class T>
Expr remake(const T& node, auto&&... fields) {
  return make_expr<T>(node.dtype, std::move(fields)...);
}

}  // namespace

void for_each_child(const Expr& e, const std::function<void(const Expr&)>& on_expr) {
  const auto on_stmt = [](const Stmt&) {};
  with_node(e, [&](const auto& node) {
    const FieldWalker<std::function<void(const Expr&)>, decltype(on_stmt)> walk{on_expr, on_stmt};
    std::apply([&](const auto&... field) { (walk(field), ...); }, node.fields());
  });
}

void for_each_child(const Stmt& s, const std::function<void(const Expr&)>& on_expr,
                    const std::function<void(const Stmt&)>& on_stmt) {
  with_node(s, [&](const auto& node) {
    const FieldWalker<std::function<void(const Expr&)>, std::function<void(const Stmt&)>> walk{on_expr, on_stmt};
    std::apply([&](const auto&... field) { (walk(field), ...); }, node.fields());
  });
}

Expr map_children(const Expr& e, const std::function<Expr(const Expr&)>& on_expr) {
  return with_node(e, [&]<class T>(const T& node) -> Expr {
    if constexpr (std::is_same_v<T, IntImm> || std::is_same_v<T, FloatImm> || std::is_same_v<T, VarNode>) {
      return e;
    } else {
      FieldMapper map{on_expr, no_statements};
      return std::apply(
          [&](const auto&... field) {
            std::tuple mapped{map(field)...};  // braces: left to right
            if (!map.changed) return e;
            return std::apply([&](auto&... f) { return remake(node, f...); }, mapped);
          },
          node.fields());
    }
  });
}

Stmt map_children(const Stmt& s, const std::function<Expr(const Expr&)>& on_expr,
                  const std::function<Stmt(const Stmt&)>& on_stmt) {
  FieldMapper map{on_expr, on_stmt};
  if (const auto* loop = s.as<For>()) {  // its fields are not in the order of its constructor
    Expr extent = map(loop->extent);
    Stmt body = map(loop->body);
    if (!map.changed) return s;
    return make_stmt<For>(loop->var, extent, loop->loop_kind, body, loop->thread, loop->attributes, loop->span);
  }
  if (const auto* block = s.as<Block>()) {
    auto iters = map(block->iters);
    Expr predicate = map(block->predicate);
    Stmt init = map(block->init), body = map(block->body);
    if (!map.changed) return s;
    return make_stmt<Block>(block->name, std::move(iters), predicate, init, body, block->attributes, block->span);
  }
  if (const auto* list = s.as<Seq>()) {  // a child may have become a list: lists do not nest
    auto statements = map(list->statements);
    return map.changed ? seq(std::move(statements)) : s;
  }
  if (const auto* store = s.as<Store>()) {
    auto indices = map(store->indices);
    Expr value = map(store->value), predicate = map(store->predicate);
    if (!map.changed) return s;
    return make_stmt<Store>(store->buffer, std::move(indices), value, predicate, store->span);
  }
  return with_node(s, [&]<class T>(const T& node) -> Stmt {
    if constexpr (std::is_same_v<T, For> || std::is_same_v<T, Block> || std::is_same_v<T, Store>) {
      return s;
    } else {
      return std::apply(
          [&](const auto&... field) {
            std::tuple mapped{map(field)...};
            if (!map.changed) return s;
            return std::apply([&](auto&... f) { return make_stmt<T>(std::move(f)...); }, mapped);
          },
          node.fields());
    }
  });
}

const Call* as_conversion(const Expr& e) {
  const auto* call = e.as<Call>();
  const bool is_one =
      call && (call->intrinsic == Intrinsic::round_tf32 || kind_of(call->intrinsic) == IntrinsicKind::decode);
  return is_one ? call : nullptr;
}

Expr without_conversion(const Expr& e) {
  if (const auto* c = e.as<Cast>()) return c->value;
  const Call* call = as_conversion(e);
  return call ? call->arguments[0] : e;
}

Expr substitute(const Expr& e, const Substitution& values) {
  if (values.empty()) return e;
  return rewrite(e, [&](const VarNode& var) -> Expr {
    for (const auto& [from, to] : values)
      if (from.get() == &var) return to;
    return {};
  });
}

Stmt substitute(const Stmt& s, const Substitution& values) {
  if (values.empty()) return s;
  std::unordered_map<const ExprNode*, Expr> table;
  for (const auto& [from, to] : values) table.emplace(from.get(), to);
  return rewrite(s, [&](const VarNode& var) -> Expr {
    const auto found = table.find(&var);
    return found == table.end() ? Expr() : found->second;
  });
}

Stmt replace_buffer(const Stmt& s, const Buffer& from, const Buffer& to) {
  return rewrite_bottom_up(
      s,
      [&](const Load& l) -> Expr {
        if (l.buffer != from) return {};
        return make_expr<Load>(l.dtype, to, l.indices, l.predicate);
      },
      [&](const Store& st) -> Stmt {
        if (st.buffer != from) return {};
        return make_stmt<Store>(to, st.indices, st.value, st.predicate, st.span);
      },
      [&](const Allocate& a) -> Stmt {
        if (a.buffer != from) return {};
        return make_stmt<Allocate>(to, a.body);
      });
}

bool uses_var(const Expr& e, const Var& var) {
  bool found = false;
  visit(e, [&](const VarNode& v) { found |= &v == var.get(); });
  return found;
}

bool uses_var(const Stmt& s, const Var& var) {
  bool found = false;
  visit(s, [&](const VarNode& v) { found |= &v == var.get(); });
  return found;
}

std::vector<Var> free_vars(const Expr& e) {
  std::vector<Var> result, bound;
  std::function<void(const Expr&)> walk = [&](const Expr& x) {
    if (x.kind() == NodeKind::Var) {
      const Var v = Var::of(x);
      if (std::find(result.begin(), result.end(), v) == result.end() &&
          std::find(bound.begin(), bound.end(), v) == bound.end()) {
        result.push_back(v);
      }
      return;
    }
    if (const auto* let = x.as<Let>()) {
      walk(let->value);
      bound.push_back(let->var);
      walk(let->body);
      bound.pop_back();
      return;
    }
    for_each_child(x, walk);
  };
  if (e.is_defined()) walk(e);
  return result;
}

namespace {
void add_once(std::vector<Buffer>& list, const Buffer& buffer) {
  if (std::find(list.begin(), list.end(), buffer) == list.end()) list.push_back(buffer);
}
}  // namespace

std::vector<Buffer> buffers_read(const Stmt& s) {
  std::vector<Buffer> result;
  visit(s, [&](const Load& l) { add_once(result, l.buffer); });
  return result;
}

std::vector<Buffer> buffers_written(const Stmt& s) {
  std::vector<Buffer> result;
  visit(s, [&](const Store& st) { add_once(result, st.buffer); });
  return result;
}

Stmt with_fresh_names(const Stmt& s) {
  Substitution vars;
  std::unordered_map<Buffer, Buffer> buffers;
  auto fresh = [&](const Var& v) {
    Var copy(v.name(), v.dtype());
    vars[v] = copy;
    return copy;
  };
  std::function<Stmt(const Stmt&)> on_stmt;
  std::function<Expr(const Expr&)> on_expr = [&](const Expr& e) -> Expr {
    if (e.kind() == NodeKind::Var) {
      const auto found = vars.find(Var::of(e));
      return found == vars.end() ? e : found->second;
    }
    if (const auto* let = e.as<Let>()) {
      Expr value = on_expr(let->value);
      const Var var = fresh(let->var);
      return make_expr<Let>(let->dtype, var, value, on_expr(let->body));
    }
    Expr mapped = map_children(e, on_expr);
    if (const auto* l = mapped.as<Load>(); l && buffers.count(l->buffer)) {
      return make_expr<Load>(l->dtype, buffers[l->buffer], l->indices, l->predicate);
    }
    return mapped;
  };
  on_stmt = [&](const Stmt& stmt) -> Stmt {
    if (const auto* loop = stmt.as<For>()) {
      Expr extent = on_expr(loop->extent);
      const Var var = fresh(loop->var);
      return make_stmt<For>(var, extent, loop->loop_kind, on_stmt(loop->body), loop->thread, loop->attributes,
                            loop->span);
    }
    if (const auto* let = stmt.as<LetStmt>()) {
      Expr value = on_expr(let->value);
      const Var var = fresh(let->var);
      return make_stmt<LetStmt>(var, value, on_stmt(let->body));
    }
    if (const auto* block = stmt.as<Block>()) {
      std::vector<IterVar> iters;
      for (const IterVar& i : block->iters) iters.push_back({i.var, on_expr(i.extent), i.kind, on_expr(i.binding)});
      Expr predicate = block->predicate.is_defined() ? on_expr(block->predicate) : Expr();
      for (IterVar& i : iters) i.var = fresh(i.var);
      Stmt init = block->init.is_defined() ? on_stmt(block->init) : Stmt();
      return make_stmt<Block>(block->name, std::move(iters), predicate, init, on_stmt(block->body), block->attributes,
                              block->span);
    }
    if (const auto* allocate = stmt.as<Allocate>()) {
      BufferNode copy = *allocate->buffer.get();
      for (Expr& extent : copy.shape) extent = on_expr(extent);
      for (Expr& stride : copy.strides) stride = on_expr(stride);
      const Buffer buffer{std::move(copy)};
      buffers[allocate->buffer] = buffer;
      return make_stmt<Allocate>(buffer, on_stmt(allocate->body));
    }
    Stmt mapped = map_children(stmt, on_expr, on_stmt);
    if (const auto* st = mapped.as<Store>(); st && buffers.count(st->buffer)) {
      return make_stmt<Store>(buffers[st->buffer], st->indices, st->value, st->predicate, st->span);
    }
    return mapped;
  };
  return on_stmt(s);
}

}  // namespace tw
