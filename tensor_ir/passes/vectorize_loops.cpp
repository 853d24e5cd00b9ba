// Loops of kind vectorized become vector statements.
//
//   for j in 0..16 vectorized { C[i, j] = A[i] * B[j] }
//     ⇒   C[i, ramp(0, 1, 16)] = broadcast(A[i], 16) * B[ramp(0, 1, 16)]
//
//   * Extents above the machine's vectors (Func attribute "vector_bits"; absent: one vector) become several vectors,
//     statement by statement, inside whatever serial loops the body has.
//   * An If whose condition depends on the lane becomes a predicate of the Loads and Stores in it; its parts that do
//   not
//     depend on the lane stay an If.
//   * `S = S op value`, where S does not depend on the lane, becomes `S = S op reduce_op(value)`, of several vectors
//     `S = S op reduce_op(value₀ op value₁ …)`.  Only a schedule that knows that op may be reordered vectorizes such a
//     loop.
//   * What the body allocates holds all lanes, innermost: element i becomes [i * lanes, (i + 1) * lanes).  Buffers are
//   flat (flatten_buffers), and stay so.
#include <algorithm>

#include "tensor_ir/match.h"
#include "tensor_ir/passes/conjunction.h"
#include "tensor_ir/passes/folding.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/passes/target_facts.h"

namespace tw {
namespace {

[[noreturn]] void refuse(const For& loop, const std::string& why, const std::string& help) {
  throw Error(ErrorCode::lower, "loop `" + loop.var.name() + "` cannot be vectorized: " + why + "\n  help: " + help);
}

Expr conjunction(const Expr& a, const Expr& b) {
  if (!a.is_defined()) return b;
  if (!b.is_defined()) return a;
  return a && b;
}

bool is_same_index(const std::vector<Expr>& a, const std::vector<Expr>& b);
bool is_same_expr(const Expr& a, const Expr& b) {  // of index expressions: sound, not complete
  if (a.is_same(b)) return true;
  if (a.kind() != b.kind() || a.dtype() != b.dtype()) return false;
  if (const auto x = as_int(a), y = as_int(b); x && y) return *x == *y;
  if (const auto *x = a.as<Binary>(), *y = b.as<Binary>(); x && y)
    return x->op == y->op && is_same_expr(x->a, y->a) && is_same_expr(x->b, y->b);
  if (const auto *x = a.as<Load>(), *y = b.as<Load>(); x && y)
    return x->buffer == y->buffer && !x->predicate.is_defined() && !y->predicate.is_defined() &&
           is_same_index(x->indices, y->indices);
  return false;
}
bool is_same_index(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), is_same_expr);
}

// One vector of the loop's iterations: those from `first`, `lanes` of them.
struct Piece {
  int64_t first;
  int lanes;
};

// What several pieces make of the things that the body binds.
struct PieceBindings {
  std::unordered_map<const ExprNode*, Expr> values;  // let variables that depend on the lane
};

class LoopVectorizer {
 public:
  LoopVectorizer(const For& loop, int native_bits) : loop_(loop) {
    const auto extent = as_int(loop.extent);
    if (!extent) refuse(loop, "its extent is not a constant", "split it by a multiple of the vector width");
    extent_ = *extent;
    if (extent_ > 1024) refuse(loop, "it has " + std::to_string(extent_) + " iterations", "split it first");
    const auto refuse_vectors = [&](DType dtype) {
      if (dtype.is_vector())
        refuse(loop, "a loop inside it is vectorized as well", "fuse the two loops, or vectorize only one");
    };
    visit(
        loop.body, [&](const Ramp& r) { refuse_vectors(r.dtype); },
        [&](const Broadcast& b) { refuse_vectors(b.dtype); });
    const int native = native_bits > 0 ? std::max(1, native_bits / widest_element(loop.body)) : 1024;
    for (int64_t first = 0; first < extent_; first += native)
      pieces_.push_back({first, static_cast<int>(std::min<int64_t>(native, extent_ - first))});
    bindings_.resize(pieces_.size());
  }

  Stmt run() { return statement(loop_.body, std::vector<Expr>(pieces_.size())); }

 private:
  // Bits of the widest element that the body computes with: all its vectors then have one number of lanes.  16-bit
  // floats count as the f32 that they are computed in, unless they are only moved.
  static int widest_element(const Stmt& body) {
    int bits = 8;
    bool only_moves = true;
    visit(body, [&](const Store& s) { only_moves &= s.value.as<Load>() != nullptr; });
    auto see = [&](DType dtype) {
      if (dtype.is_bool()) return;
      bits = std::max<int>(bits, dtype.is_float() && !only_moves ? std::max<int>(dtype.bits, 32) : dtype.bits);
    };
    visit(
        body,
        [&](const Load& l) {
          see(l.dtype);
          return Walk::skip;
        },
        [&](const Cast& c) {
          if (c.dtype.is_float()) see(c.dtype);
        },
        [&](const Store& s) { see(s.buffer->dtype); });
    return bits;
  }

  // ---- expressions: scalar when they do not depend on the lane, otherwise of the piece's lanes

  Expr lane_values(const Piece& piece) const {
    if (piece.lanes == 1) return Expr(piece.first);
    return ramp(Expr(piece.first), 1, piece.lanes);
  }

  bool depends_on_lane(const Expr& e) const {
    bool found = false;
    visit(
        e, [&](const VarNode& v) { found |= &v == loop_.var.get() || bindings_[0].values.count(&v) > 0; },
        [&](const Load& l) { found |= lane_buffers_.count(l.buffer) > 0; });
    return found;
  }

  Expr widen(const Expr& e, int lanes) const { return e.dtype().lanes == lanes ? e : broadcast(e, lanes); }

  Expr expression(const Expr& e, size_t p, const Expr& mask) {
    const Piece& piece = pieces_[p];
    if (e.kind() == NodeKind::Var) {
      if (e.get() == loop_.var.get()) return lane_values(piece);
      const auto found = bindings_[p].values.find(e.get());
      return found == bindings_[p].values.end() ? e : found->second;
    }
    if (const auto* l = e.as<Load>()) return load_of(*l, p, mask);
    if (const auto* let = e.as<Let>()) {
      Expr value = expression(let->value, p, mask);
      const Var var(let->var.name(), value.dtype());
      bindings_[p].values[let->var.get()] = var;
      Expr body = expression(let->body, p, mask);
      bindings_[p].values.erase(let->var.get());
      const DType dtype = body.dtype();
      return make_expr<Let>(dtype, var, value, body);
    }
    std::vector<Expr> children;
    int lanes = 1;
    bool changed = false;
    for_each_child(e, [&](const Expr& child) {
      children.push_back(expression(child, p, mask));
      lanes = std::max<int>(lanes, children.back().dtype().lanes);
      changed |= !children.back().is_same(child);
    });
    if (!changed) return e;
    return rebuild(e, children, lanes);
  }

  Expr rebuild(const Expr& e, std::vector<Expr>& children, int lanes) {
    if (const auto* b = e.as<Binary>()) {
      if (!children[0].dtype().is_float()) return vector_binary(b->op, children[0], children[1]);
      return binary(b->op, children[0], children[1]);
    }
    for (Expr& child : children) child = widen(child, lanes);
    const DType dtype = e.dtype().with_lanes(lanes);
    if (const auto* u = e.as<Unary>()) return make_expr<Unary>(dtype, u->op, children[0]);
    if (e.kind() == NodeKind::Cast) return cast(dtype, children[0]);
    if (e.kind() == NodeKind::Select) return select(children[0], children[1], children[2]);
    if (const auto* c = e.as<Call>()) return make_expr<Call>(dtype, c->intrinsic, children);
    internal_error("vectorize_loops: an expression that has no vector form");
  }

  Expr load_of(const Load& l, size_t p, const Expr& mask) {
    std::vector<Expr> indices;
    for (const Expr& index : l.indices) indices.push_back(expression(index, p, mask));
    add_lane_index(l.buffer, indices, p);
    Expr predicate = l.predicate.is_defined() ? expression(l.predicate, p, mask) : Expr();
    int lanes = predicate.is_defined() ? predicate.dtype().lanes : 1;
    for (const Expr& index : indices) lanes = std::max<int>(lanes, index.dtype().lanes);
    const Buffer buffer = renamed(l.buffer);
    if (mask.is_defined()) {
      bool varies = lanes > 1 || lane_buffers_.count(l.buffer) > 0;  // one lane may be all that a piece has
      for (const Expr& index : l.indices) varies |= depends_on_lane(index);
      if (varies) {
        predicate = conjunction(predicate, mask);
      } else if (l.buffer->scope != Scope::register_ && shares_variables(indices, mask)) {
        // Registers are no memory: an element of them is always there.
        predicate = conjunction(predicate, any_lane(mask));
      }
    }
    if (predicate.is_defined() && lanes > 1) predicate = widen(predicate, lanes);
    return make_expr<Load>(l.buffer->dtype.with_lanes(lanes), buffer, indices, predicate);
  }

  static Expr any_lane(const Expr& mask) {
    return mask.dtype().is_vector() ? make_expr<VectorReduce>(boolean, BinaryOp::logical_or, mask) : mask;
  }

  // Whether the mask may decide that this lane-invariant load is in bounds.  Where it reads none of the mask's
  // variables, it is executed for some value of them, so it is in bounds for all.
  static bool shares_variables(const std::vector<Expr>& indices, const Expr& mask) {
    for (const Var& var : free_vars(mask))
      for (const Expr& index : indices)
        if (uses_var(index, var)) return true;
    return false;
  }

  // ---- statements, with one mask a piece

  using Masks = std::vector<Expr>;

  Stmt statement(const Stmt& s, const Masks& masks) {
    switch (s.kind()) {
      case NodeKind::Seq: {
        std::vector<Stmt> statements;
        for (const Stmt& child : s.as<Seq>()->statements) statements.push_back(statement(child, masks));
        return seq(std::move(statements));
      }
      case NodeKind::For: {
        const For& inner = *s.as<For>();
        if (depends_on_lane(inner.extent))
          refuse(loop_, "the extent of loop `" + inner.var.name() + "` in it depends on it", "reorder the loops");
        return make_stmt<For>(inner.var, inner.extent, inner.loop_kind, statement(inner.body, masks), inner.thread,
                              inner.attributes, inner.span);
      }
      case NodeKind::If:
        return branch(*s.as<If>(), masks);
      case NodeKind::LetStmt:
        return let(*s.as<LetStmt>(), masks);
      case NodeKind::Allocate: {
        const Buffer& buffer = s.as<Allocate>()->buffer;
        BufferNode wide = *buffer.get();
        check(wide.strides.empty(), "vectorize_loops: allocated buffers are compact");
        check(wide.shape.size() == 1, "vectorize_loops: allocated buffers are flat");
        wide.shape[0] = vector_binary(BinaryOp::mul, wide.shape[0], Expr(extent_));
        lane_buffers_[buffer] = Buffer(std::move(wide));
        Stmt body = statement(s.as<Allocate>()->body, masks);
        return make_stmt<Allocate>(lane_buffers_[buffer], body);
      }
      case NodeKind::Store: {
        std::vector<Stmt> statements;
        const Store& st = *s.as<Store>();
        const bool is_invariant = !depends_on_lane_store(st);
        const bool is_update = reads_itself(st);
        if (is_update && may_join_pieces(st, masks)) return store_of(st, 0, {}, pieces_.size());
        for (size_t p = 0; p < pieces_.size(); ++p) {
          statements.push_back(store_of(st, p, masks[p]));
          // The same value into the same place from every lane: once is enough.
          if (is_invariant && !is_update && !masks[p].is_defined()) break;
        }
        return seq(std::move(statements));
      }
      case NodeKind::Evaluate: {  // a hint, given for the first lane
        const Substitution first = {{loop_.var, Expr(0)}};
        return fold_substitute(s, first);
      }
      default:
        internal_error("vectorize_loops: blocks are lowered before");
    }
  }

  Stmt branch(const If& branch, const Masks& masks) {
    std::vector<Expr> parts;
    split_conjunction(branch.condition, parts);
    Expr uniform, varying;
    for (const Expr& part : parts) {
      Expr& side = depends_on_lane(part) ? varying : uniform;
      side = conjunction(side, part);
    }
    if (!varying.is_defined()) {
      Expr condition = expression(branch.condition, 0, {});
      Stmt else_body = branch.else_body.is_defined() ? statement(branch.else_body, masks) : Stmt();
      return make_stmt<If>(condition, statement(branch.then_body, masks), else_body);
    }
    // A condition that reads memory is decided once, before the body may change what it read.
    std::vector<std::pair<Var, Expr>> decided;
    auto decide = [&](const Expr& condition) -> Expr {
      bool reads = false;
      visit(condition, [&](const Load&) { reads = true; });
      if (!reads) return condition;
      const Var var("condition", condition.dtype());
      decided.emplace_back(var, condition);
      return var;
    };
    if (uniform.is_defined()) uniform = decide(expression(uniform, 0, {}));
    Masks then_masks, else_masks;
    for (size_t p = 0; p < pieces_.size(); ++p) {
      // Where the uniform part guards the other, the other may read nothing without it.
      const Expr outer = uniform.is_defined() ? conjunction(masks[p], widen(uniform, pieces_[p].lanes)) : masks[p];
      const Expr condition = decide(widen(expression(varying, p, outer), pieces_[p].lanes));
      then_masks.push_back(conjunction(masks[p], condition));
      if (!branch.else_body.is_defined()) continue;
      Expr whole = uniform.is_defined() ? widen(uniform, pieces_[p].lanes) && condition : condition;
      else_masks.push_back(conjunction(masks[p], !whole));
    }
    Stmt body = statement(branch.then_body, then_masks);
    if (uniform.is_defined()) body = make_stmt<If>(uniform, body);
    if (branch.else_body.is_defined()) body = seq({body, statement(branch.else_body, else_masks)});
    for (size_t i = decided.size(); i-- > 0;) body = make_stmt<LetStmt>(decided[i].first, decided[i].second, body);
    return body;
  }

  Stmt let(const LetStmt& let, const Masks& masks) {
    if (!depends_on_lane(let.value))
      return make_stmt<LetStmt>(let.var, expression(let.value, 0, masks[0]), statement(let.body, masks));
    std::vector<std::pair<Var, Expr>> bound;
    for (size_t p = 0; p < pieces_.size(); ++p) {
      Expr value = expression(let.value, p, masks[p]);
      const Var var(let.var.name(), value.dtype());
      bound.emplace_back(var, value);
      bindings_[p].values[let.var.get()] = var;
    }
    Stmt body = statement(let.body, masks);
    for (size_t p = pieces_.size(); p-- > 0;) {
      body = make_stmt<LetStmt>(bound[p].first, bound[p].second, body);
      bindings_[p].values.erase(let.var.get());
    }
    return body;
  }

  bool depends_on_lane_store(const Store& st) const {
    bool result = depends_on_lane(st.value) || lane_buffers_.count(st.buffer) > 0;
    for (const Expr& index : st.indices) result |= depends_on_lane(index);
    return result || (st.predicate.is_defined() && depends_on_lane(st.predicate));
  }

  static bool reads_itself(const Store& st) {
    bool found = false;
    visit(st.value, [&](const Load& l) { found |= l.buffer == st.buffer && is_same_index(l.indices, st.indices); });
    return found;
  }

  // A reduction's whole vectors meet lane by lane before their lanes do.
  bool may_join_pieces(const Store& st, const Masks& masks) const {
    bool may = pieces_.size() > 1 && !st.predicate.is_defined() && lane_buffers_.count(st.buffer) == 0;
    for (const Expr& index : st.indices) may &= !depends_on_lane(index);
    for (size_t p = 0; p < pieces_.size(); ++p)
      may &= pieces_[p].lanes > 1 && pieces_[p].lanes == pieces_[0].lanes && !masks[p].is_defined();
    return may;
  }

  // Of piece `p`; of a reduction, which overwrites one element, of as many pieces as `joined` from there on.
  Stmt store_of(const Store& st, size_t p, const Expr& mask, size_t joined = 1) {
    const int lanes = pieces_[p].lanes;
    std::vector<Expr> indices;
    bool is_lane_invariant = true;
    for (const Expr& index : st.indices) {
      indices.push_back(expression(index, p, mask));
      is_lane_invariant &= !depends_on_lane(index);
    }
    is_lane_invariant &= lane_buffers_.count(st.buffer) == 0;
    add_lane_index(st.buffer, indices, p);
    Expr predicate = st.predicate.is_defined() ? expression(st.predicate, p, mask) : Expr();
    predicate = conjunction(predicate, mask);
    if (!is_lane_invariant || lanes == 1) {
      Expr value = widen(expression(st.value, p, mask), lanes);
      if (predicate.is_defined()) predicate = widen(predicate, lanes);
      return make_stmt<Store>(renamed(st.buffer), indices, value, predicate, st.span);
    }
    if (reads_itself(st)) return reduction(st, indices, p, joined, predicate);
    Expr value = expression(st.value, p, mask);
    if (value.dtype().is_vector())
      refuse(loop_, "each iteration overwrites the same element of " + st.buffer->name, "vectorize another loop");
    if (predicate.is_defined()) predicate = any_lane(predicate);
    return make_stmt<Store>(renamed(st.buffer), indices, value, predicate, st.span);
  }

  // S = S op value  ⇒  S = S op reduce_op(value), with op's identity where the mask is off.
  Stmt reduction(const Store& st, const std::vector<Expr>& indices, size_t p, size_t joined, const Expr& mask) {
    const int lanes = pieces_[p].lanes;
    auto is_self = [&](const Expr& e) {
      const auto* l = e.as<Load>();
      return l && l->buffer == st.buffer && is_same_index(l->indices, st.indices);
    };
    const Expr self = make_expr<Load>(st.buffer->dtype, renamed(st.buffer), indices, Expr());
    Expr value, identity;
    std::function<Expr(Expr)> combine;
    std::function<Expr(Expr, Expr)> meet;
    auto unsupported = [&]() {
      refuse(loop_,
             "the update of " + st.buffer->name + " is not of the form `x = x op value` with op +, *, min, max, &&, ||",
             "split the reduction with rfactor and vectorize the new dimension");
    };
    if (const auto* b = st.value.as<Binary>()) {
      if (is_self(b->a))
        value = b->b;
      else if (is_self(b->b))
        value = b->a;
      else
        unsupported();
      const DType dtype = st.buffer->dtype;
      switch (b->op) {
        case BinaryOp::add:
          identity = dtype.is_float() ? float_imm(dtype, -0.0) : zero_of(dtype);
          break;
        case BinaryOp::mul:
          identity = const_of(dtype, 1);
          break;
        case BinaryOp::min:
          identity = highest_of(dtype);
          break;
        case BinaryOp::max:
          identity = lowest_of(dtype);
          break;
        case BinaryOp::logical_and:
          identity = bool_imm(true);
          break;
        case BinaryOp::logical_or:
          identity = bool_imm(false);
          break;
        default:
          unsupported();
      }
      combine = [self, op = b->op, dtype](Expr v) { return binary(op, self, make_expr<VectorReduce>(dtype, op, v)); };
      meet = [op = b->op](Expr x, Expr y) { return binary(op, x, y); };
    } else if (const auto* c = st.value.as<Call>();
               c && (c->intrinsic == Intrinsic::minimum || c->intrinsic == Intrinsic::maximum)) {
      if (is_self(c->arguments[0]))
        value = c->arguments[1];
      else if (is_self(c->arguments[1]))
        value = c->arguments[0];
      else
        unsupported();
      identity = c->intrinsic == Intrinsic::minimum ? highest_of(st.buffer->dtype) : lowest_of(st.buffer->dtype);
      combine = [self, c](Expr v) { return call(c->intrinsic, {self, reduce_by_halves(c->intrinsic, v)}); };
      meet = [c](Expr x, Expr y) { return call(c->intrinsic, {x, y}); };
    } else {
      unsupported();
    }
    visit(value, [&](const Load& l) {
      if (l.buffer == st.buffer && lane_buffers_.count(l.buffer) == 0) unsupported();
    });
    Expr vector = widen(expression(value, p, mask), lanes);
    for (size_t q = p + 1; q < p + joined; ++q) vector = meet(vector, widen(expression(value, q, mask), lanes));
    if (mask.is_defined()) vector = select(widen(mask, lanes), vector, widen(identity, lanes));
    return make_stmt<Store>(renamed(st.buffer), indices, combine(vector), Expr(), st.span);
  }

  // NaN-propagating minimum and maximum are no VectorReduce: halves of the vector meet until one lane is left.
  static Expr reduce_by_halves(Intrinsic intrinsic, Expr v) {
    auto slice = [](const Expr& vector, int first, int lanes) {
      return make_expr<Call>(vector.dtype().with_lanes(lanes), Intrinsic::lane_slice,
                             std::vector<Expr>{vector, Expr(first)});
    };
    Expr odd;  // what is left over when the lanes are an odd number
    while (v.dtype().lanes > 1) {
      const int lanes = v.dtype().lanes, half = lanes / 2;
      if (lanes % 2) {
        const Expr last = slice(v, lanes - 1, 1);
        odd = odd.is_defined() ? call(intrinsic, {odd, last}) : last;
      }
      v = call(intrinsic, {slice(v, 0, half), slice(v, half, half)});
    }
    return odd.is_defined() ? call(intrinsic, {v, odd}) : v;
  }

  Buffer renamed(const Buffer& buffer) const {
    const auto found = lane_buffers_.find(buffer);
    return found == lane_buffers_.end() ? buffer : found->second;
  }
  void add_lane_index(const Buffer& buffer, std::vector<Expr>& indices, size_t p) const {
    if (!lane_buffers_.count(buffer)) return;
    const Expr first = vector_binary(BinaryOp::mul, indices[0], Expr(extent_));
    indices[0] = vector_binary(BinaryOp::add, first, lane_values(pieces_[p]));
  }

  const For& loop_;
  int64_t extent_ = 0;
  std::vector<Piece> pieces_;
  std::vector<PieceBindings> bindings_;
  std::unordered_map<Buffer, Buffer> lane_buffers_;
};

}  // namespace

Func vectorize_loops(const Func& f) {
  Func result = f;
  const auto bits = static_cast<int>(target_fact(f, "vector_bits", 0));
  result.body = rewrite_bottom_up(f.body, [&](const For& loop) -> Stmt {
    if (loop.loop_kind != LoopKind::vectorized) return {};
    if (is_const_int(loop.extent, 1)) return fold_substitute(loop.body, {{loop.var, Expr(0)}});
    return LoopVectorizer(loop, bits).run();
  });
  return result;
}

}  // namespace tw
