// The expression simplifier: rewrite rows (rules.cpp) with bounds.
#pragma once

#include <unordered_map>

#include "tensor_ir/ir.h"

namespace tw {

// Inclusive integer bounds; an end that is not known is not set.
struct Interval {
  std::optional<int64_t> low, high;
};

// What is known of variables, and of facts that hold here.
class Assumptions {
 public:
  // 0 ≤ var < extent (extent may be symbolic: then var < extent is kept as a fact)
  void bind_range(const Var& var, const Expr& extent);
  void bind(const Var& var, Interval interval);
  void assume(const Expr& condition);  // a condition known to be true (as inside an If)
  const Interval* find(const Var& var) const;
  const std::unordered_map<Var, Interval>& intervals() const { return intervals_; }
  const std::vector<Expr>& facts() const { return facts_; }

 private:
  std::unordered_map<Var, Interval> intervals_;
  std::vector<Expr> facts_;
};

// Semantics are kept for every value that the assumptions allow.  Integer expressions come out in a canonical sum-of-
// products form with floor_div and floor_mod of split indices resolved: (i*16 + j) floor_div 16 → i when 0 ≤ j < 16.
// Index arithmetic (i64) is taken not to overflow; an i64 from memory may be anything, and then is taken to wrap.
// Floats are only folded where the result is bit-identical (no reassociation).
Expr simplify(const Expr& e, const Assumptions& assumptions = {});
// Simplifies every expression with the ranges of the loops, lets and block iterations around it, and what Ifs assure;
// removes Ifs and loops that are known, empty Seqs, and loops of extent 1 (their variable becomes 0) unless
// thread-bound.
Stmt simplify(const Stmt& s, const Assumptions& assumptions = {});

Interval bounds_of(const Expr& e, const Assumptions& assumptions = {});
bool can_prove(const Expr& condition, const Assumptions& assumptions = {});
bool is_known_equal(const Expr& a, const Expr& b, const Assumptions& assumptions = {});

// e as constant + Σ coefficientᵢ·varᵢ with constant integer coefficients; nothing when it is not of that form.
struct Affine {
  int64_t constant = 0;
  std::vector<std::pair<Var, int64_t>> terms;  // each var once, coefficient not 0
  int64_t coefficient(const Var& var) const;
};
std::optional<Affine> as_affine(const Expr& e);

}  // namespace tw
