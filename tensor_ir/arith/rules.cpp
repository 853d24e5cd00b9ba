// The rewrite rows of the simplifier, apart from what affine arithmetic does (sums, floor_div, comparisons by bounds).
//
// Laws, each checked by the tests for every row:
//   1. Both sides have the same value for every value of the slots, of every type that the row names; for floats, the
//      same bits (so nothing is reassociated, and NaN and the sign of zero are kept).
//   2. The right side has fewer nodes than the left, or as many with constants nearer to the root or a simpler
//   operator;
//      so rewriting ends.
//   3. A row is written for one order of the operands of commutative operators (integer and bool ones); the others
//   follow.
#include "tensor_ir/arith/pattern.h"

namespace tw::arith {
namespace {

struct P {
  Pattern node;
  P(Pattern node) : node(std::move(node)) {}  // NOLINT
  P(int literal) {                            // NOLINT
    PatternNode n{PatternKind::integer};
    n.literal = literal;
    node = std::make_shared<const PatternNode>(n);
  }
  P(bool literal) {  // NOLINT
    PatternNode n{PatternKind::truth};
    n.literal = literal;
    node = std::make_shared<const PatternNode>(n);
  }
};

P slot(PatternKind kind, int index) {
  PatternNode n{kind};
  n.slot = index;
  return P(std::make_shared<const PatternNode>(n));
}

P node(BinaryOp op, P a, P b) {
  PatternNode n{PatternKind::binary};
  n.binary_op = op;
  n.children = {a.node, b.node};
  return P(std::make_shared<const PatternNode>(n));
}

P node(UnaryOp op, P a) {
  PatternNode n{PatternKind::unary};
  n.unary_op = op;
  n.children = {a.node};
  return P(std::make_shared<const PatternNode>(n));
}

P operator+(P a, P b) {
  return node(BinaryOp::add, a, b);
}
P operator-(P a, P b) {
  return node(BinaryOp::sub, a, b);
}
P operator*(P a, P b) {
  return node(BinaryOp::mul, a, b);
}
P operator/(P a, P b) {
  return node(BinaryOp::div, a, b);
}
P operator%(P a, P b) {
  return node(BinaryOp::mod, a, b);
}
P operator<(P a, P b) {
  return node(BinaryOp::lt, a, b);
}
P operator<=(P a, P b) {
  return node(BinaryOp::le, a, b);
}
P operator==(P a, P b) {
  return node(BinaryOp::eq, a, b);
}
P operator!=(P a, P b) {
  return node(BinaryOp::ne, a, b);
}
P operator&&(P a, P b) {
  return node(BinaryOp::logical_and, a, b);
}
P operator||(P a, P b) {
  return node(BinaryOp::logical_or, a, b);
}
P operator&(P a, P b) {
  return node(BinaryOp::bit_and, a, b);
}
P operator|(P a, P b) {
  return node(BinaryOp::bit_or, a, b);
}
P operator^(P a, P b) {
  return node(BinaryOp::bit_xor, a, b);
}
P operator<<(P a, P b) {
  return node(BinaryOp::shift_left, a, b);
}
P operator>>(P a, P b) {
  return node(BinaryOp::shift_right, a, b);
}
P operator-(P a) {
  return node(UnaryOp::negate, a);
}
P operator!(P a) {
  return node(UnaryOp::logical_not, a);
}
P operator~(P a) {
  return node(UnaryOp::bit_not, a);
}
P min(P a, P b) {
  return node(BinaryOp::min, a, b);
}
P max(P a, P b) {
  return node(BinaryOp::max, a, b);
}
P floor_div(P a, P b) {
  return node(BinaryOp::floor_div, a, b);
}
P floor_mod(P a, P b) {
  return node(BinaryOp::floor_mod, a, b);
}
P select(P c, P a, P b) {
  PatternNode n{PatternKind::select};
  n.children = {c.node, a.node, b.node};
  return P(std::make_shared<const PatternNode>(n));
}

struct Rows {
  std::vector<Row> rows;
  Types types = everything;
  void operator()(P before, P after) { rows.push_back({types, before.node, after.node, nullptr}); }
  void operator()(P before, P after, P condition) { rows.push_back({types, before.node, after.node, condition.node}); }
};

std::vector<Row> build_rows() {
  const P x = slot(PatternKind::value, 0), y = slot(PatternKind::value, 1), z = slot(PatternKind::value, 2);
  const P c0 = slot(PatternKind::constant, 3), c1 = slot(PatternKind::constant, 4);
  const P p = slot(PatternKind::condition, 5), q = slot(PatternKind::condition, 6), r = slot(PatternKind::condition, 7);
  Rows row;

  row.types = everything;
  row(select(p, x, x), x);
  row(select(!p, x, y), select(p, y, x));
  row(select(p, select(p, x, y), z), select(p, x, z));
  row(select(p, x, select(p, y, z)), select(p, x, z));
  row(select(p, select(q, x, y), y), select(p && q, x, y));
  row(select(p, x, select(q, x, y)), select(p || q, x, y));
  row(!(x == y), x != y);
  row(!(x != y), x == y);

  row.types = numbers;
  row(min(x, x), x);
  row(max(x, x), x);
  row(-(-x), x);
  row(x * 1, x);
  row(x / 1, x);
  row(x - 0, x);

  row.types = integers;
  row(x + 0, x);
  row(x * 0, 0);
  row(x - x, 0);
  row(x % 1, 0);
  row(floor_div(x, 1), x);
  row(floor_mod(x, 1), 0);
  row(0 - x, -x);
  row(x + -y, x - y);
  row(x - -y, x + y);
  row((x + y) - y, x);
  row((x - y) + y, x);
  row((x + c0) + c1, x + (c0 + c1));
  row((x - c0) + c1, x + (c1 - c0));
  row((x * c0) * c1, x * (c0 * c1));
  row(x & x, x);
  row(x | x, x);
  row(x ^ x, 0);
  row(x & 0, 0);
  row(x | 0, x);
  row(x ^ 0, x);
  row((x & c0) & c1, x & (c0 & c1));
  row((x | c0) | c1, x | (c0 | c1));
  row((x ^ c0) ^ c1, x ^ (c0 ^ c1));
  row(x << 0, x);
  row(x >> 0, x);
  row(~~x, x);

  row(x == x, true);
  row(x != x, false);
  row(x < x, false);
  row(x <= x, true);
  row(!(x < y), y <= x);
  row(!(x <= y), y < x);

  row(min(x, max(x, y)), x);
  row(max(x, min(x, y)), x);
  row(min(x, min(x, y)), min(x, y));
  row(max(x, max(x, y)), max(x, y));
  row(min(min(x, c0), c1), min(x, min(c0, c1)));
  row(max(max(x, c0), c1), max(x, max(c0, c1)));
  row(min(max(x, c0), c1), c1, c1 <= c0);
  row(max(min(x, c0), c1), c1, c0 <= c1);
  row(min(max(x, y), max(x, z)), max(x, min(y, z)));
  row(max(min(x, y), min(x, z)), min(x, max(y, z)));
  row(select(x < y, x, y), min(x, y));
  row(select(x < y, y, x), max(x, y));
  row(select(x <= y, x, y), min(x, y));
  row(select(x <= y, y, x), max(x, y));
  row(select(x == y, x, y), y);
  row(select(x == y, y, x), x);
  row(min(x, y) <= x, true);
  row(x < min(x, y), false);
  row(x <= max(x, y), true);
  row(max(x, y) < x, false);

  row.types = bools;
  row(!!p, p);
  row(p && p, p);
  row(p || p, p);
  row(p && !p, false);
  row(p || !p, true);
  row(p && (p || q), p);
  row(p || (p && q), p);
  row(p && (p && q), p && q);
  row(p || (p || q), p || q);
  row((p && q) && (p && r), p && (q && r));
  row((p || q) || (p || r), p || (q || r));
  row(p && true, p);
  row(p && false, false);
  row(p || true, true);
  row(p || false, p);
  row(p == p, true);
  row(p != p, false);
  row(p == true, p);
  row(p == false, !p);
  row(p != false, p);
  row(p != true, !p);
  row(select(p, true, false), p);
  row(select(p, false, true), !p);
  row(select(p, q, false), p && q);
  row(select(p, true, q), p || q);
  return row.rows;
}

}  // namespace

const std::vector<Row>& rewrite_rows() {
  static const std::vector<Row> rows = build_rows();
  return rows;
}

bool is_commutative(BinaryOp op) {
  switch (op) {
    case BinaryOp::add:
    case BinaryOp::mul:
    case BinaryOp::min:
    case BinaryOp::max:
    case BinaryOp::eq:
    case BinaryOp::ne:
    case BinaryOp::logical_and:
    case BinaryOp::logical_or:
    case BinaryOp::bit_and:
    case BinaryOp::bit_or:
    case BinaryOp::bit_xor:
      return true;
    default:
      return false;
  }
}

Expr instantiate(const Pattern& pattern, const std::array<Expr, pattern_slots>& slots, DType dtype) {
  auto child = [&](int i) { return instantiate(pattern->children[i], slots, dtype); };
  switch (pattern->kind) {
    case PatternKind::value:
    case PatternKind::constant:
    case PatternKind::condition:
      return slots[pattern->slot];
    case PatternKind::integer:
      return const_of(dtype, pattern->literal);
    case PatternKind::truth:
      return int_imm(boolean.with_lanes(dtype.lanes), pattern->literal != 0);
    case PatternKind::unary: {
      Expr a = child(0);
      const DType type = a.dtype();
      return make_expr<Unary>(type, pattern->unary_op, std::move(a));
    }
    case PatternKind::binary: {
      Expr a = child(0), b = child(1);
      const DType type = is_comparison(pattern->binary_op) ? boolean.with_lanes(a.dtype().lanes) : a.dtype();
      return make_expr<Binary>(type, pattern->binary_op, std::move(a), std::move(b));
    }
    case PatternKind::select: {
      Expr a = child(1), b = child(2);
      const DType type = a.dtype();
      return make_expr<Select>(type, child(0), std::move(a), std::move(b));
    }
  }
  internal_error("instantiate: a pattern kind");
}

}  // namespace tw::arith
