// Rewrite rows as data: patterns over expressions, so that the simplifier applies a row and a test checks it.
//
//   {min(x, max(x, y)), x}          a row: before, after
//   {min(max(x, c0), c1), c1, c1 <= c0}      with a condition on constants
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "tensor_ir/ir.h"

namespace tw::arith {

enum class PatternKind : uint8_t {
  value,      // any expression of the row's types
  constant,   // a constant of the row's types
  condition,  // any bool expression
  integer,    // a literal number (of integers or floats)
  truth,      // the literal true or false
  unary,
  binary,
  select,
};

struct PatternNode {
  PatternKind kind;
  int slot = -1;       // of value, constant and condition: equal slots match equal expressions
  double literal = 0;  // of integer and truth
  UnaryOp unary_op{};
  BinaryOp binary_op{};
  std::vector<std::shared_ptr<const PatternNode>> children = {};
};

using Pattern = std::shared_ptr<const PatternNode>;

// Slots: x y z = 0 1 2, c0 c1 = 3 4, p q r = 5 6 7.
inline constexpr int pattern_slots = 8;

enum Types : uint8_t { integers = 1, floats = 2, bools = 4, numbers = integers | floats, everything = 7 };

struct Row {
  Types types;  // of the values and constants
  Pattern before, after;
  Pattern condition;  // null: always; otherwise an expression of constants
};

const std::vector<Row>& rewrite_rows();  // rules.cpp

bool is_commutative(BinaryOp op);
// The expression that a pattern stands for: `slots` gives its parts, dtype that of values and constants.
Expr instantiate(const Pattern& pattern, const std::array<Expr, pattern_slots>& slots, DType dtype);

}  // namespace tw::arith
