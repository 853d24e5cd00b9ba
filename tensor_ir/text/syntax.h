// Words and operators of the text form, shared by printer and parser, so that the two cannot disagree.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "tensor_ir/dimension.h"

namespace tw::syntax {

struct BinarySyntax {
  BinaryOp op;
  const char* word;    // in structural hashes and messages
  const char* symbol;  // infix; null: written as a call, word(a, b)
  int precedence;      // a larger one binds tighter
};

inline constexpr int or_precedence = 1, comparison_precedence = 3, unary_precedence = 10;

inline constexpr BinarySyntax binary_table[] = {
    {BinaryOp::add, "add", "+", 8},
    {BinaryOp::sub, "sub", "-", 8},
    {BinaryOp::mul, "mul", "*", 9},
    {BinaryOp::div, "div", nullptr, 0},  // of floats: a / b, precedence 9
    {BinaryOp::mod, "mod", nullptr, 0},
    {BinaryOp::floor_div, "floor_div", "//", 9},
    {BinaryOp::floor_mod, "floor_mod", "%", 9},
    {BinaryOp::min, "min", nullptr, 0},
    {BinaryOp::max, "max", nullptr, 0},
    {BinaryOp::eq, "eq", "==", 3},
    {BinaryOp::ne, "ne", "!=", 3},
    {BinaryOp::lt, "lt", "<", 3},
    {BinaryOp::le, "le", "<=", 3},
    {BinaryOp::logical_and, "and", "&&", 2},
    {BinaryOp::logical_or, "or", "||", 1},
    {BinaryOp::bit_and, "bit_and", "&", 6},
    {BinaryOp::bit_or, "bit_or", "|", 4},
    {BinaryOp::bit_xor, "bit_xor", "^", 5},
    {BinaryOp::shift_left, "shift_left", "<<", 7},
    {BinaryOp::shift_right, "shift_right", ">>", 7},
};
inline constexpr BinarySyntax float_division{BinaryOp::div, "div", "/", 9};

inline const BinarySyntax& syntax_of(BinaryOp op, DType operand) {
  if (op == BinaryOp::div && operand.is_float()) return float_division;
  return binary_table[static_cast<size_t>(op)];
}

struct UnarySyntax {
  UnaryOp op;
  const char* word;
  const char* symbol;
};
inline constexpr UnarySyntax unary_table[] = {
    {UnaryOp::negate, "negate", "-"},
    {UnaryOp::logical_not, "not", "!"},
    {UnaryOp::bit_not, "bit_not", "~"},
};

inline constexpr const char* loop_kind_words[] = {"serial",   "parallel",   "vectorized",
                                                  "unrolled", "tensorized", "thread"};
inline constexpr const char* thread_axis_words[] = {"thread.none", "block.x",  "block.y", "block.z",
                                                    "thread.x",    "thread.y", "thread.z"};
inline constexpr const char* scope_words[] = {"global", "stack", "local", "register", "shared", "fragment"};
inline constexpr const char* intrinsic_words[] = {
#define INTRINSIC(name, arity, kind) #name,
#include "tensor_ir/intrinsics.def"
};
inline constexpr const char* node_words[] = {
#define EXPR_NODE(Name) #Name,
#define STMT_NODE(Name) #Name,
#include "tensor_ir/nodes.def"
};

// What a word of one of these tables stands for.
template <class Enum, size_t n>
std::optional<Enum> find_word(const char* const (&words)[n], std::string_view word) {
  const auto found = std::find(std::begin(words), std::end(words), word);
  return found == std::end(words) ? std::optional<Enum>() : static_cast<Enum>(found - std::begin(words));
}

inline const char* word(Scope scope) {
  return scope_words[static_cast<size_t>(scope)];
}
inline const char* word(LoopKind kind) {
  return loop_kind_words[static_cast<size_t>(kind)];
}
inline const char* word(ThreadAxis axis) {
  return thread_axis_words[static_cast<size_t>(axis)];
}
inline const char* word(Intrinsic intrinsic) {
  return intrinsic_words[static_cast<size_t>(intrinsic)];
}
inline const char* word(NodeKind kind) {
  return node_words[static_cast<size_t>(kind)];
}
inline const char* word(UnaryOp op) {
  return unary_table[static_cast<size_t>(op)].word;
}
inline const char* word(BinaryOp op) {
  return binary_table[static_cast<size_t>(op)].word;
}

// What plain names are made of, with inner dots.
inline bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
inline bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Words that cannot be plain names; a name that is one of them is written in backticks.
inline constexpr std::string_view reserved_words[] = {"func",  "for",  "in",    "block",    "alloc",
                                                      "let",   "if",   "else",  "init",     "seq",
                                                      "where", "true", "false", "evaluate", "strides"};
bool is_reserved(std::string_view name);                 // also inf_f32, nan_f64, …
bool is_plain_name(std::string_view name);               // letters, digits, _ and inner dots
std::string quote_name(std::string_view name);           // as it is, or in backticks
std::string quote_key(std::string_view key);             // of an attribute: word or word:word, else in backticks
std::string quote_string(std::string_view value);        // in double quotes
std::string bounds_text(const DimensionBounds& bounds);  // ": 1..64", ": 1.." or nothing
// The dtype of inf_f32 and nan_f32; nothing when the word is not of that form.
std::optional<DType> special_float(std::string_view word, bool& is_nan);

// Of the shortest form that reads back as the same number, always with a point or an exponent: 0.5, 1.0, 1e+20.
std::string float_digits(DType dtype, double value);

}  // namespace tw::syntax
