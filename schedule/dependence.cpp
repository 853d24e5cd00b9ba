#include "schedule/dependence.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "tensor_ir/match.h"
#include "tensor_ir/structural.h"

namespace tw {
namespace {

// Walks statements with the loops around and the values of bound variables.
class AccessWalk {
 public:
  explicit AccessWalk(std::vector<const For*> outer) : loops_(std::move(outer)) {}
  std::vector<Access> result;

  void walk(const Stmt& s) {
    if (!s.is_defined()) return;
    if (const auto* loop = s.as<For>()) {
      read(loop->extent, s);
      loops_.push_back(loop);
      walk(loop->body);
      loops_.pop_back();
    } else if (const auto* block = s.as<Block>()) {
      for (const IterVar& iter : block->iters) {
        read(iter.binding, s);
        values_[iter.var] = substitute(iter.binding, values_);
      }
      read(block->predicate, s);
      block_ = block;
      walk(block->init);
      walk(block->body);
      block_ = nullptr;
    } else if (const auto* st = s.as<Store>()) {
      for (const Expr& index : st->indices) read(index, s);
      read(st->predicate, s);
      read(st->value, s);
      add(st->buffer, st->indices, true, s);
    } else if (const auto* let = s.as<LetStmt>()) {
      read(let->value, s);
      values_[let->var] = substitute(let->value, values_);
      walk(let->body);
    } else {
      for_each_child(s, [&](const Expr& e) { read(e, s); }, [&](const Stmt& child) { walk(child); });
    }
  }

 private:
  void add(const Buffer& buffer, const std::vector<Expr>& indices, bool is_write, const Stmt& s) {
    Access access;
    access.buffer = buffer;
    for (const Expr& index : indices) access.indices.push_back(substitute(index, values_));
    access.is_write = is_write;
    access.loops = loops_;
    access.block = block_;
    access.statement = block_ ? static_cast<const StmtNode*>(block_) : s.get();
    access.position = static_cast<int>(result.size());
    result.push_back(std::move(access));
  }

  void read(const Expr& e, const Stmt& s) {
    if (!e.is_defined()) return;
    if (const auto* let = e.as<Let>()) {
      read(let->value, s);
      values_[let->var] = substitute(let->value, values_);
      return read(let->body, s);
    }
    for_each_child(e, [&](const Expr& child) { read(child, s); });
    if (const auto* l = e.as<Load>()) add(l->buffer, l->indices, false, s);
  }

  std::vector<const For*> loops_;
  Substitution values_;
  const Block* block_ = nullptr;
};

bool contains(const std::vector<Var>& vars, const Var& v) {
  return std::find(vars.begin(), vars.end(), v) != vars.end();
}

// One proof that two accesses meet only where some variables agree.
class EqualityProof {
 public:
  EqualityProof(const Access& a, const Access& b, const std::vector<Var>& fixed) {
    for (const Var& v : fixed) proven_.push_back(v);
    // What holds on both sides holds of one variable, which can stand for its values in a and in b.
    for (const For* loop : a.loops) bind(*loop);
    for (const For* loop : b.loops) {
      bind(*loop);
      if (!contains(fixed, loop->var) && !is_const_int(loop->extent, 1)) differing_.push_back(loop->var);
    }
    const auto facts_of = [](const Access& x) { return conjuncts(x.block ? x.block->predicate : Expr()); };
    const std::vector<Expr> facts_of_b = facts_of(b);
    for (const Expr& fact : facts_of(a)) {
      if (std::any_of(facts_of_b.begin(), facts_of_b.end(), [&](const Expr& e) { return structural_equal(e, fact); }))
        predicates_.push_back(fact);
    }
    for (size_t d = 0; d < std::min(a.indices.size(), b.indices.size()); ++d) {
      equations_.push_back({simplify(a.indices[d], assumptions_), simplify(b.indices[d], assumptions_)});
    }
    use_equations();
    // Equal indices are equal offsets, too: of axes that were fused and split where none ends, they alone are simple.
    if (a.indices.size() < 2 || a.buffer != b.buffer ||
        std::all_of(differing_.begin(), differing_.end(), [&](const Var& v) { return is_equal(v); })) {
      return;
    }
    Expr left(0), right(0);
    for (size_t d = 0; d < a.indices.size(); ++d) {
      left = left * a.buffer->shape[d] + a.indices[d];
      right = right * a.buffer->shape[d] + b.indices[d];
    }
    equations_.push_back({simplify(left, assumptions_), simplify(right, assumptions_)});
    use_equations();
  }

  bool is_equal(const Expr& atom) const {
    for (const Expr& e : proven_) {
      if (structural_equal(e, atom)) return true;
    }
    const auto vars = free_vars(atom);
    return std::all_of(vars.begin(), vars.end(), [&](const Var& v) {
      return !contains(differing_, v) ||
             std::any_of(proven_.begin(), proven_.end(), [&](const Expr& e) { return e.is_same(v); });
    });
  }

 private:
  void bind(const For& loop) {
    if (as_int(loop.extent))
      assumptions_.bind_range(loop.var, loop.extent);
    else
      assumptions_.bind(loop.var, Interval{0, std::nullopt});
  }

  void use_equations() {
    bool changed = true;
    while (changed) {
      changed = false;
      for (size_t i = 0; i < equations_.size(); ++i) changed |= use(equations_[i].first, equations_[i].second);
    }
  }

  using Term = std::pair<Expr, int64_t>;

  // How far the values of a sum in a and in b can be from each other.
  std::optional<int64_t> swing_of(const std::vector<Term>& terms) const {
    int64_t factor = 0;  // predicates are about sums without it
    for (const auto& [atom, coefficient] : terms) factor = std::gcd(factor, coefficient);
    Expr sum(0);
    for (const auto& [atom, coefficient] : terms) sum = sum + atom * (coefficient / factor);
    Interval range = bounds_of(sum, assumptions_);
    if (!range.low || !range.high) return std::nullopt;
    for (const Expr& predicate : predicates_) {
      const auto* comparison = predicate.as<Binary>();
      if (!comparison || comparison->op != BinaryOp::lt) continue;
      // From a < b follows sum < sum + b - a.
      const auto end = bounds_of(simplify(sum + comparison->b - comparison->a, assumptions_), assumptions_).high;
      if (end) range.high = std::min(*range.high, *end - 1);
    }
    return factor * (*range.high - *range.low);
  }

  // left (of a) = right (of b): whether something new follows.
  bool use(const Expr& left, const Expr& right) {
    LinearForm l = linear_form(left), r = linear_form(right);
    int64_t low = l.constant - r.constant, high = low;
    bool is_bounded = true;
    std::vector<Term> candidates, rest;
    for (const auto& [atom, coefficient] : l.terms) {
      const auto twin = std::find_if(r.terms.begin(), r.terms.end(), [&](const auto& term) {
        return term.second == coefficient && structural_equal(term.first, atom);
      });
      if (twin != r.terms.end()) {
        if (!is_equal(atom)) candidates.push_back({atom, coefficient});
        r.terms.erase(twin);
      } else {
        rest.push_back({atom, coefficient});
      }
    }
    for (const auto& [atom, coefficient] : r.terms) rest.push_back({atom, -coefficient});
    auto widen = [&](const Expr& atom, int64_t coefficient) {
      const Interval range = bounds_of(atom, assumptions_);
      if (!range.low || !range.high) {
        is_bounded = false;
        return;
      }
      low += coefficient * (coefficient > 0 ? *range.low : *range.high);
      high += coefficient * (coefficient > 0 ? *range.high : *range.low);
    };
    for (const auto& [atom, coefficient] : rest) widen(atom, coefficient);
    if (!is_bounded) return false;
    // The largest coefficient first: what is proven leaves the rest.
    std::sort(candidates.begin(), candidates.end(),
              [](const Term& x, const Term& y) { return std::abs(x.second) > std::abs(y.second); });
    bool changed = false;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const auto swing = swing_of({candidates.begin() + static_cast<std::ptrdiff_t>(i) + 1, candidates.end()});
      const int64_t c = std::abs(candidates[i].second);
      if (!swing || low - *swing <= -c || high + *swing >= c) break;
      prove(candidates[i].first);
      changed = true;
    }
    return changed;
  }

  void prove(const Expr& atom) {
    proven_.push_back(atom);
    // x // b and x % b together make x; the quotient may have been simplified: (f // 6) // 6 stands as f // 36.
    for (const Expr& known : std::vector<Expr>(proven_)) {
      const auto* remainder = known.as<Binary>();
      if (!remainder || remainder->op != BinaryOp::floor_mod) continue;
      const Expr quotient = simplify(floor_div(remainder->a, remainder->b), assumptions_);
      if (!is_equal(remainder->a) && is_equal(quotient)) equations_.push_back({remainder->a, remainder->a});
      for (const Expr& other : std::vector<Expr>(proven_)) {
        const Expr dividend = dividend_of(other, *remainder);
        if (dividend.is_defined() && !is_equal(dividend)) equations_.push_back({dividend, dividend});
      }
    }
  }

  // y of the quotient and the remainder of y by b, which may stand otherwise: y // b as z // bc with y = z // c, as
  // (240·f + g) // 300 of y = (240·f + g) // 4 and b = 75; and y % b without multiples of b, as (255·f + v) % 4 of
  // y = 255·(f % 4) + v and b = 4.
  Expr dividend_of(const Expr& known, const Binary& remainder) const {
    const auto* quotient = known.as<Binary>();
    if (!quotient || quotient->op != BinaryOp::floor_div) return Expr();
    const auto divisor = as_int(quotient->b), b = as_int(remainder.b);
    if (!divisor || !b || *divisor <= 0 || *b <= 0 || *divisor % *b != 0) return Expr();
    const Expr dividend = simplify(floor_div(quotient->a, Expr(*divisor / *b)), assumptions_);
    const Expr lost = simplify(floor_mod(remainder.a - dividend, remainder.b), assumptions_);
    return is_const_int(lost, 0) ? dividend : Expr();
  }

  Assumptions assumptions_;
  std::vector<Expr> predicates_;  // that both blocks ask for
  std::vector<Var> differing_;    // variables that may have another value in b than in a
  std::vector<Expr> proven_;      // atoms whose values agree
  std::vector<std::pair<Expr, Expr>> equations_;
};

}  // namespace

std::vector<Access> accesses_in(const Stmt& root, const std::vector<const For*>& outer) {
  AccessWalk walk(outer);
  walk.walk(root);
  return std::move(walk.result);
}

Assumptions ranges_of(const std::vector<const For*>& loops) {
  Assumptions assumptions;
  for (const For* loop : loops) assumptions.bind_range(loop->var, loop->extent);
  return assumptions;
}

InnerExtents extents_of(const std::vector<const For*>& loops) {
  InnerExtents extents;
  for (const For* loop : loops) extents[loop->var] = loop->extent;
  return extents;
}

std::vector<const For*> common_loops(const Access& a, const Access& b) {
  std::vector<const For*> common;
  for (size_t i = 0; i < std::min(a.loops.size(), b.loops.size()) && a.loops[i]->var == b.loops[i]->var; ++i) {
    common.push_back(a.loops[i]);
  }
  return common;
}

std::vector<Var> proven_equal(const Access& a, const Access& b, const std::vector<const For*>& common,
                              const std::vector<Var>& fixed) {
  const EqualityProof proof(a, b, fixed);
  std::vector<Var> result;
  for (const For* loop : common) {
    if (proof.is_equal(loop->var)) result.push_back(loop->var);
  }
  return result;
}

std::optional<Conflict> carried_conflict(const Stmt& root, const For& loop, bool are_threads) {
  const Path path = path_to_loop(root, loop.var);
  check(!path.empty(), "carried_conflict: the loop is in the tree");
  std::vector<const For*> outer = loops_of(path);
  std::vector<Var> fixed;
  for (const For* l : outer) {
    if (l->var != loop.var) fixed.push_back(l->var);
  }
  std::vector<Buffer> own;
  visit(loop.body, [&](const Allocate& a) {
    const bool is_shared = a.buffer->scope == Scope::shared || a.buffer->scope == Scope::global;
    if (!are_threads || !is_shared) own.push_back(a.buffer);
  });
  const std::vector<Access> accesses = accesses_in(loop.body, outer);
  for (size_t i = 0; i < accesses.size(); ++i) {
    const Access& a = accesses[i];
    if (std::find(own.begin(), own.end(), a.buffer) != own.end()) continue;
    for (size_t j = i; j < accesses.size(); ++j) {
      const Access& b = accesses[j];
      if (a.buffer != b.buffer || !(a.is_write || b.is_write)) continue;
      if (are_threads && a.buffer->scope == Scope::shared && a.statement != b.statement) continue;
      if (!contains(proven_equal(a, b, {outer.back()}, fixed), loop.var)) return Conflict{a, b};
    }
  }
  return std::nullopt;
}

std::optional<Reduction> as_reduction(const Block& block) {
  const auto* st = block.body.as<Store>();
  if (!st || st->predicate.is_defined()) return std::nullopt;
  auto is_accumulator = [&](const Expr& e) {
    const auto* l = e.as<Load>();
    if (!l || l->buffer != st->buffer || l->predicate.is_defined() || l->indices.size() != st->indices.size())
      return false;
    for (size_t i = 0; i < l->indices.size(); ++i) {
      if (!structural_equal(l->indices[i], st->indices[i])) return false;
    }
    return true;
  };
  Reduction result;
  Expr first, second;
  if (const auto* b = st->value.as<Binary>()) {
    const BinaryOp op = b->op;
    if (op != BinaryOp::add && op != BinaryOp::mul && op != BinaryOp::min && op != BinaryOp::max &&
        op != BinaryOp::logical_and && op != BinaryOp::logical_or) {
      return std::nullopt;
    }
    first = b->a, second = b->b;
    result.combine = [op](Expr x, Expr y) { return binary(op, std::move(x), std::move(y)); };
  } else if (const auto* c = st->value.as<Call>();
             c && (c->intrinsic == Intrinsic::minimum || c->intrinsic == Intrinsic::maximum)) {
    first = c->arguments[0], second = c->arguments[1];
    const Intrinsic intrinsic = c->intrinsic;
    result.combine = [intrinsic](Expr x, Expr y) { return call(intrinsic, {std::move(x), std::move(y)}); };
  } else {
    return std::nullopt;
  }
  if (!is_accumulator(first)) std::swap(first, second);
  if (!is_accumulator(first)) return std::nullopt;
  bool reads_itself = false;
  visit(second, [&](const Load& l) { reads_itself |= l.buffer == st->buffer; });
  if (reads_itself) return std::nullopt;
  result.buffer = st->buffer;
  result.indices = st->indices;
  result.value = second;
  if (block.init.is_defined()) {
    const auto* init = block.init.as<Store>();
    if (!init || init->buffer != st->buffer) return std::nullopt;
    result.identity = init->value;
  }
  return result;
}

namespace {
bool is_bound_to(const Block& block, const Var& loop, IterKind kind) {
  return std::any_of(block.iters.begin(), block.iters.end(),
                     [&](const IterVar& iter) { return iter.kind == kind && uses_var(iter.binding, loop); });
}
}  // namespace

bool is_reduce_loop(const Block& block, const Var& loop) {
  return is_bound_to(block, loop, IterKind::reduce);
}
bool is_spatial_loop(const Block& block, const Var& loop) {
  return is_bound_to(block, loop, IterKind::spatial);
}

std::vector<SymbolicRange> region_of(const std::vector<Access>& accesses, const Buffer& buffer,
                                     const std::vector<Var>& outer, const Assumptions& assumptions) {
  std::vector<SymbolicRange> region;
  for (int d = 0; d < buffer.rank(); ++d) {
    const SymbolicRange whole{0, buffer->shape[d]};
    std::optional<SymbolicRange> range;
    bool is_known = true;
    for (const Access& access : accesses) {
      if (access.buffer != buffer || !is_known) continue;
      InnerExtents inner;
      for (const For* loop : access.loops) {
        if (!contains(outer, loop->var)) inner[loop->var] = loop->extent;
      }
      auto found = range_of(access.indices[d], inner, assumptions);
      if (found && range) found = union_of(*range, *found, assumptions);
      is_known = found.has_value();
      range = found;
    }
    if (!is_known || !range) {
      region.push_back(whole);
      continue;
    }
    const auto extent = as_int(range->extent), full = as_int(buffer->shape[d]);
    const bool is_whole = (extent && full && *extent >= *full) || (!extent && !as_int(range->base));
    region.push_back(is_whole ? whole : *range);
  }
  return region;
}

bool covers_domain(const Block& block, const std::vector<const For*>& loops) {
  const Assumptions assumptions = ranges_of(loops);
  std::vector<Var> used;
  std::vector<Expr> allowed;
  for (const IterVar& iter : block.iters) {
    const auto affine = as_affine(simplify(iter.binding, assumptions));
    if (!affine || affine->constant != 0) return false;
    auto terms = affine->terms;
    std::sort(terms.begin(), terms.end(), [](const auto& x, const auto& y) { return x.second < y.second; });
    int64_t next = 1;
    bool is_symbolic = false;
    for (const auto& [var, coefficient] : terms) {
      const auto loop = std::find_if(loops.begin(), loops.end(), [&](const For* l) { return l->var == var; });
      if (loop == loops.end() || contains(used, var) || is_symbolic || coefficient != next) return false;
      used.push_back(var);
      const auto extent = as_int((*loop)->extent);
      if (extent)
        next *= *extent;
      else
        is_symbolic = true;
    }
    const auto extent = as_int(iter.extent);
    if (is_symbolic) {
      if (terms.size() != 1 || block.predicate.is_defined()) return false;
      continue;
    }
    if (!extent || next < *extent) return false;
    if (next > *extent) allowed.push_back(iter.binding < iter.extent);
  }
  size_t found = 0;
  for (const Expr& c : conjuncts(block.predicate)) {
    const bool is_known = std::any_of(allowed.begin(), allowed.end(),
                                      [&](const Expr& a) { return is_known_equal(a, c) || structural_equal(a, c); });
    if (!is_known) return false;
    ++found;
  }
  return found >= allowed.size();
}

bool is_maximum(const Block& reduction) {
  const Expr& value = reduction.body.as<Store>()->value;
  const auto* binary = value.as<Binary>();
  const auto* call = value.as<Call>();
  return (binary && binary->op == BinaryOp::max) || (call && call->intrinsic == Intrinsic::maximum);
}

bool is_addition(const Block& reduction) {
  const auto* binary = reduction.body.as<Store>()->value.as<Binary>();
  return binary && binary->op == BinaryOp::add;
}

std::vector<const Load*> factors_of(const Block& block) {
  const auto* store = block.body.as<Store>();
  const auto* sum = store ? store->value.as<Binary>() : nullptr;
  if (!sum || sum->op != BinaryOp::add) return {};
  const auto* accumulator = sum->a.as<Load>();
  const auto* product = sum->b.as<Binary>();
  if (!accumulator || accumulator->buffer != store->buffer || !product || product->op != BinaryOp::mul) return {};
  std::vector<const Load*> factors;
  for (const Expr& side : {product->a, product->b}) {
    const auto* load = without_conversion(side).as<Load>();
    if (!load) return {};
    factors.push_back(load);
  }
  return factors;
}

}  // namespace tw
