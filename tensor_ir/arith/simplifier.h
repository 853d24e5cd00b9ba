// The simplifier's inside: interned canonical terms.
//
// Every simplified expression is a Term in a table, equal expressions being one Term; so equality is a comparison of
// numbers, results of rewriting are remembered by operands, and copies made by unrolling cost a lookup.
// A scalar i64 sum is held as Linear: constant + Σ coefficient·atom, atoms in the order in which they were first met.
// Products of atoms (n*i with a symbolic n) are atoms too, with their factors in order.
//
// What is known of variables (ranges, facts of Ifs and symbolic extents) is scoped; results that may depend on it carry
// the epoch of the scope that they were made in, and are not used in another.
//
// Law of i64: indices do not overflow.  An i64 that comes from memory, a call or a cast may be anything, so
// Range::may_wrap marks what could wrap, and only rules of rings apply to it.
#pragma once

#include <deque>
#include <limits>
#include <span>
#include <unordered_map>
#include <unordered_set>

#include "tensor_ir/arith/pattern.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::arith {

using TermId = int32_t;

inline constexpr int64_t minus_infinity = std::numeric_limits<int64_t>::min();
inline constexpr int64_t plus_infinity = std::numeric_limits<int64_t>::max();

struct Range {  // inclusive; of all lanes of a vector
  int64_t low = minus_infinity, high = plus_infinity;
  bool may_wrap = false;
  bool is_bounded() const { return low != minus_infinity && high != plus_infinity; }
  bool is_within(int64_t a, int64_t b) const { return low >= a && high <= b; }
  bool operator==(const Range&) const = default;
};

Range add(Range a, Range b);
Range scale(Range a, int64_t factor);
Range multiply(Range a, Range b);
Range unite(Range a, Range b);
Range intersect(Range a, Range b);
Range range_of_type(DType dtype);
int64_t floor_divide(int64_t a, int64_t b);
int64_t floor_modulo(int64_t a, int64_t b);

struct Linear {
  int64_t constant = 0;
  std::vector<std::pair<TermId, int64_t>> terms;  // sorted by id once normalised
  int64_t coefficient(TermId id) const;
};

// Too large constants are left alone by rules of division and comparison.
bool is_moderate(const Linear& sum);

struct Term {
  Expr expr;
  NodeKind kind;
  uint16_t op = 0;  // UnaryOp, BinaryOp or Intrinsic; for Load: whether it has a predicate
  DType dtype = {};
  uint64_t extra = 0;  // the value of an immediate, the identity of a variable or buffer
  std::vector<TermId> children = {};
  int32_t linear = -1;  // into linears_, for sums
  bool has_load = false;
  uint32_t range_epoch = 0;
  Range range = {};
};

class Simplifier {
 public:
  explicit Simplifier(const Assumptions& assumptions = {});

  Expr run(const Expr& e) { return expr(simplify(e)); }
  Stmt run(const Stmt& s);

  TermId simplify(const Expr& e);
  const Expr& expr(TermId id) const { return terms_[id].expr; }
  const Range& range(TermId id);
  bool is_true(TermId id) const { return int_value(id) == 1 && terms_[id].dtype.is_bool(); }
  void assume(TermId condition, bool truth);
  Linear difference(TermId a, TermId b);  // a − b
  bool is_equal(TermId a, TermId b);

 private:
  // Terms.
  TermId intern(NodeKind kind, uint16_t op, DType dtype, uint64_t extra, std::vector<TermId> children,
                const Expr* hint);
  TermId find(NodeKind kind, uint16_t op, DType dtype, uint64_t extra, std::span<const TermId> children) const;
  Expr build(const Term& term) const;
  TermId intern_linear(Linear linear, const Expr* hint);
  TermId constant(DType dtype, int64_t value);
  TermId constant(DType dtype, double value);
  TermId truth(bool value, int lanes = 1);
  std::optional<int64_t> int_value(TermId id) const;  // also of a Broadcast
  std::optional<double> float_value(TermId id) const;
  bool is_index(TermId id) const { return terms_[id].dtype == i64; }

  // Construction, with all rules applied.  `hint` is an expression that may be of the same form: then it is kept.
  TermId make_unary(UnaryOp op, TermId a, const Expr* hint = nullptr);
  TermId make_binary(BinaryOp op, TermId a, TermId b, const Expr* hint = nullptr);
  TermId make_binary_uncached(BinaryOp op, TermId a, TermId b, const Expr* hint);
  TermId make_vector_binary(BinaryOp op, TermId a, TermId b);
  TermId make_ramp_division(BinaryOp op, TermId a, TermId b);
  TermId make_vector_comparison(BinaryOp op, TermId a, TermId b);
  TermId make_select(TermId condition, TermId a, TermId b, const Expr* hint = nullptr);
  TermId make_cast(DType dtype, TermId a, const Expr* hint = nullptr);
  TermId make_ramp(TermId base, TermId stride, int lanes, const Expr* hint = nullptr);
  TermId make_broadcast(TermId value, int lanes, const Expr* hint = nullptr);
  TermId make_logical(BinaryOp op, TermId a, TermId b);
  std::optional<std::pair<TermId, TermId>> as_ramp(TermId id);  // base and stride, of a Ramp or a Broadcast
  TermId simplify_call(const Call& node, const Expr& e);
  TermId simplify_load(const Load& node, const Expr& e);
  TermId simplify_reduce(const VectorReduce& node, const Expr& e);
  TermId simplify_let(const Let& node, const Expr& e);
  TermId simplify_node(const Expr& e);

  // Rows.
  TermId apply_rows(NodeKind kind, uint16_t op, std::span<const TermId> children);
  bool match(const PatternNode& pattern, TermId id, Types types, std::array<TermId, pattern_slots>& slots) const;
  TermId build_pattern(const PatternNode& pattern, const std::array<TermId, pattern_slots>& slots, DType dtype);

  // affine.cpp: sums, and division of them.
  void accumulate(const Expr& e, int64_t factor, Linear& sum, int& budget);
  void add_term(Linear& sum, TermId id, int64_t factor) const;
  void normalise(Linear& sum);
  bool recombine(Linear& sum);
  bool open_remainders(Linear& sum);
  TermId quotient_of_sum(TermId dividend, int64_t divisor);
  TermId make_linear(Linear sum, const Expr* hint = nullptr);
  Linear linear_of(TermId id) const;
  TermId make_product(TermId a, TermId b);
  TermId monomial(TermId a, TermId b);
  TermId make_floor_div(TermId a, TermId b);
  TermId make_floor_mod(TermId a, TermId b);
  bool is_worth_reducing(Linear rest, int64_t constant, int64_t divisor);
  TermId divide_by_constant(const Linear& sum, int64_t divisor);
  TermId modulo_constant(const Linear& sum, int64_t divisor);
  bool split_by_symbol(const Linear& sum, TermId divisor, Linear& quotient, Linear& remainder);
  bool factor_out(const Linear& sum, int64_t factor, Linear& multiple, Linear& rest);
  TermId make_index_comparison(BinaryOp op, TermId a, TermId b);
  TermId make_index_min_max(BinaryOp op, TermId a, TermId b);

  // bounds.cpp: ranges and proofs.
  Range compute_range(TermId id);
  Range range(const Linear& sum);
  bool is_exact(const Linear& sum);  // computing it in i64 cannot wrap
  bool prove_nonnegative(const Linear& sum, int depth = 3);
  bool prove_positive(Linear sum);
  void add_fact(Linear sum);  // sum ≥ 0 holds here
  void override_range(TermId id, Range range);

  // Statements.
  struct Scope;  // restores what is known
  Stmt simplify_for(const Stmt& s);
  Stmt simplify_block(const Stmt& s);
  Stmt simplify_if(const Stmt& s);
  Stmt simplify_let(const Stmt& s);
  Stmt simplify_store(const Stmt& s);
  Stmt simplify_seq(const Stmt& s);
  void bind(const Var& var, Range range);
  void bind_loop(const Var& var, TermId extent);
  bool is_trivial(TermId value) const;  // fit to replace a variable that is bound to it

  std::deque<Term> terms_;
  std::deque<Linear> linears_;
  std::vector<int32_t> slots_;  // hash table of terms_
  std::vector<uint64_t> hashes_;
  std::unordered_map<const ExprNode*, TermId> substitutions_;
  std::unordered_map<const ExprNode*, Range> variables_;
  std::unordered_set<const ExprNode*> used_;  // variables met since they were bound
  std::unordered_map<uint64_t, std::vector<TermId>> linear_index_;

  struct Memo {
    TermId result;
    uint32_t epoch;
  };
  std::unordered_map<const ExprNode*, Memo> memo_;  // of input nodes, which outlive the run
  std::unordered_map<uint64_t, Memo> binary_memo_;

  bool is_opening_ = false;  // within open_remainders
  // Sums that are being put into a minimum or maximum, each for another one: comparing its sides may ask for the next.
  static constexpr int most_pushes = 8;
  int pushes_ = 0;
  uint32_t epoch_ = 1, next_epoch_ = 2;
  std::vector<Linear> facts_;
  std::unordered_map<TermId, Range> overrides_;
  std::unordered_map<TermId, bool> known_;
  std::vector<std::pair<TermId, std::optional<Range>>> override_log_;
  std::vector<TermId> known_log_;
};

}  // namespace tw::arith
