// Expressions, by precedence climbing.  Nodes are made as written: the parser folds nothing, so that text and tree
// correspond one to one.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "tensor_ir/scalar_meaning.h"
#include "tensor_ir/text/parser_base.h"
#include "tensor_ir/text/syntax.h"
#include "tensor_ir/type_rules.h"

namespace tw {
namespace {

using syntax::BinarySyntax;

const BinarySyntax* find_infix(std::string_view symbol) {
  for (const BinarySyntax& row : syntax::binary_table) {
    if (row.symbol && row.symbol == symbol) return &row;
  }
  return symbol == syntax::float_division.symbol ? &syntax::float_division : nullptr;
}

const BinarySyntax* find_binary_word(std::string_view word) {
  for (const BinarySyntax& row : syntax::binary_table) {
    if (!row.symbol && row.word == word) return &row;
  }
  return nullptr;
}

constexpr BinaryOp reductions[] = {BinaryOp::add, BinaryOp::mul,         BinaryOp::min,
                                   BinaryOp::max, BinaryOp::logical_and, BinaryOp::logical_or};

std::optional<BinaryOp> find_reduction(std::string_view word) {
  if (!word.starts_with("reduce_")) return std::nullopt;
  for (BinaryOp op : reductions) {
    if (word.substr(7) == syntax::word(op)) return op;
  }
  return std::nullopt;
}

std::vector<std::string> function_names() {
  std::vector<std::string> names{"select", "ramp", "broadcast"};
  for (const BinarySyntax& row : syntax::binary_table) {
    if (!row.symbol) names.emplace_back(row.word);
  }
  for (BinaryOp op : reductions) names.push_back(std::string("reduce_") + syntax::word(op));
  names.insert(names.end(), std::begin(syntax::intrinsic_words), std::end(syntax::intrinsic_words));
  return names;
}

// What to write instead of an i64 literal beside a value of another type.
std::string literal_help(const Expr& a, const Expr& b) {
  for (auto [literal, other] : {std::pair(a, b), std::pair(b, a)}) {
    const auto* imm = literal.as<IntImm>();
    if (!imm || imm->dtype != i64 || other.dtype().is_bool()) continue;
    DType element = other.dtype().element();
    std::string number = element.is_float() ? std::to_string(imm->value) + ".0" : std::to_string(imm->value);
    number += element == f32 ? "f" : to_string(element);
    return "write " + (other.dtype().lanes == 1
                           ? number
                           : "broadcast(" + number + ", " + std::to_string(other.dtype().lanes) + ")");
  }
  return {};
}

}  // namespace

ExprParser::Parsed ExprParser::finish(Expr e, int depth, Span span) const {
  if (auto problem = type_problem(e)) {
    std::string help = problem->help;
    if (const auto* n = e.as<Binary>()) {
      if (std::string better = literal_help(n->a, n->b); !better.empty()) help = better;
    }
    fail(span, problem->message, help);
  }
  if (depth > max_tree_depth)
    fail(span, "an expression of more than " + std::to_string(max_tree_depth) + " levels", "name parts of it by let");
  return {std::move(e), depth, span};
}

ExprParser::Parsed ExprParser::parse_any() {
  Nesting nesting(*this);
  return at("let") ? parse_let() : parse_binary(syntax::or_precedence);
}

ExprParser::Parsed ExprParser::parse_let() {
  Span span = expect("let", "");
  Name name = expect_name("the name of the variable after `let`");
  expect("=", "after the name");
  Parsed value = parse_any();
  expect("in", "after the value of a let inside an expression");
  size_t outer = scope_size();
  Var var(name.text, value.e.dtype());
  declare(name, var);
  Parsed body = parse_any();
  leave_scope(outer);
  DType dtype = body.e.dtype();
  return finish(make_expr<Let>(dtype, var, value.e, body.e), std::max(value.depth, body.depth) + 1, span);
}

ExprParser::Parsed ExprParser::parse_binary(int lowest) {
  Parsed left = parse_unary();
  for (bool is_compared = false;;) {
    bool is_swapped = at(">") || at(">=");
    std::string_view symbol = at(">") ? "<" : at(">=") ? "<=" : token().text;
    const BinarySyntax* row = token().kind == TokenKind::symbol ? find_infix(symbol) : nullptr;
    if (!row || row->precedence < lowest) return left;
    Span span = token().span;
    bool is_comparison = row->precedence == syntax::comparison_precedence;
    if (is_comparison && is_compared) fail(span, "comparisons do not chain", "write a < b && b < c");
    is_compared = is_comparison;
    advance();
    Parsed right = parse_binary(row->precedence + 1);
    if (row == &syntax::float_division && left.e.dtype() == right.e.dtype() && !left.e.dtype().is_float()) {
      fail(span, "`/` divides floats, not " + to_string(left.e.dtype()),
           "write a // b to round down, div(a, b) to truncate");
    }
    Expr a = left.e, b = right.e;
    if (is_swapped) std::swap(a, b);
    DType dtype = is_comparison ? boolean.with_lanes(a.dtype().lanes) : a.dtype();
    left = finish(make_expr<Binary>(dtype, row->op, a, b), std::max(left.depth, right.depth) + 1, span);
  }
}

ExprParser::Parsed ExprParser::parse_unary() {
  for (const syntax::UnarySyntax& row : syntax::unary_table) {
    if (!at(row.symbol)) continue;
    Nesting nesting(*this);
    Span span = token().span;
    advance();
    bool is_nan;
    bool is_number = token().kind == TokenKind::number || (token().kind == TokenKind::name && !token().is_quoted &&
                                                           syntax::special_float(token().text, is_nan));
    if (row.op == UnaryOp::negate && is_number) return parse_number(true, span);
    Parsed operand = parse_unary();
    DType dtype = operand.e.dtype();
    return finish(make_expr<Unary>(dtype, row.op, operand.e), operand.depth + 1, span);
  }
  return parse_primary();
}

ExprParser::Parsed ExprParser::parse_number(bool is_negative, Span span) {
  Token number = token();
  advance();
  bool is_nan = false;
  if (number.kind == TokenKind::name) {
    DType dtype = *syntax::special_float(number.text, is_nan);
    double value = is_nan ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
    return finish(make_expr<FloatImm>(dtype, is_negative ? -value : value), 1, span);
  }
  std::string_view digits = number.text.substr(0, number.digits), suffix = number.text.substr(number.digits);
  DType dtype = number.is_float ? f32 : i64;
  if (suffix == "f") {
    dtype = f32;
  } else if (!suffix.empty()) {
    std::optional<DType> named = parse_dtype(suffix);
    if (!named || named->lanes != 1 || named->is_bool()) {
      fail(span, "`" + std::string(suffix.substr(0, 40)) + "` is no type of a number", "as in 7, 7i32, 0.5f, 0.5f64");
    }
    dtype = *named;
  }
  if (dtype.is_float()) {
    double value = 0;
    float narrow = 0;
    // Straight to the nearest f32 where that is the type: rounding twice could miss it.
    auto result = dtype.bits == 64 ? std::from_chars(digits.data(), digits.data() + digits.size(), value)
                                   : std::from_chars(digits.data(), digits.data() + digits.size(), narrow);
    if (dtype.bits != 64) value = meaning::round_to(dtype, narrow);
    // from_chars leaves what is too small or too large; a number so small that it rounds to zero is no mistake.
    bool is_out = result.ec == std::errc::result_out_of_range;
    if (is_out) value = std::strtod(std::string(digits).c_str(), nullptr);
    if (is_out && std::abs(value) < 1) value = dtype.bits == 64 ? value : 0;
    if (std::isinf(value) || (is_out && std::abs(value) >= 1)) {
      fail(span, "the number does not fit in " + to_string(dtype), "infinity is written inf_" + to_string(dtype));
    }
    return finish(make_expr<FloatImm>(dtype, is_negative ? -value : value), 1, span);
  }
  if (number.is_float) fail(span, "a fraction is not of type " + to_string(dtype), "write it without a point");
  uint64_t magnitude = 0;
  auto result = std::from_chars(digits.data(), digits.data() + digits.size(), magnitude);
  uint64_t limit = dtype == u64 ? UINT64_MAX : uint64_t{1} << 63;
  bool fits = result.ec == std::errc() && magnitude <= limit &&
              (dtype == u64 ? !is_negative || magnitude == 0 : is_negative || magnitude < limit);
  auto value = static_cast<int64_t>(is_negative ? -magnitude : magnitude);
  if (!fits || meaning::wrap(dtype, value) != value) fail(span, "the number does not fit in " + to_string(dtype));
  return finish(make_expr<IntImm>(dtype, value), 1, span);
}

ExprParser::Parsed ExprParser::parse_primary() {
  Span span = token().span;
  bool is_nan;
  if (token().kind == TokenKind::number) return parse_number(false, span);
  if (accept("(")) {
    Parsed inner = parse_any();
    expect(")", "to close the parenthesis");
    return inner;
  }
  if (at("true") || at("false")) {
    bool value = at("true");
    advance();
    return finish(make_expr<IntImm>(boolean, value), 1, span);
  }
  if (token().kind == TokenKind::name && !token().is_quoted && syntax::special_float(token().text, is_nan)) {
    return parse_number(false, span);
  }
  if (!at_name()) fail_expected("an expression");
  return parse_named();
}

// name, name(…), name[…], name:type(…), name:type[…]
ExprParser::Parsed ExprParser::parse_named() {
  Token name = token();
  advance();
  std::optional<DType> dtype;
  if (at(":") && ahead().kind == TokenKind::name && parse_dtype(ahead().text)) {
    advance();
    dtype = parse_dtype_name("a type");
    if (!at("(") && !at("[")) fail_expected("`(` or `[` after the type");
  }
  if (at("(") && !name.is_quoted) return parse_function(name, dtype);

  const Named* found = find(name.value);
  if (!found) fail(name.span, "unknown name `" + name.value + "`", suggest_name(name.value, known_names()));
  if (const auto* buffer = std::get_if<Buffer>(&found->entity)) {
    if (!accept("["))
      fail(name.span, "`" + name.value + "` is a buffer", "give its indices, as in " + name.value + "[…]");
    Access access = parse_access();
    DType natural = access_dtype(*buffer, access.indices, access.predicate);
    return finish(make_expr<Load>(dtype.value_or(natural), *buffer, access.indices, access.predicate), access.depth,
                  name.span);
  }
  if (at("[")) fail(name.span, "`" + name.value + "` is a variable, not a buffer");
  return {std::get<Var>(found->entity), 1, name.span};
}

ExprParser::Access ExprParser::parse_access() {
  Access access;
  while (!at("]")) {
    if (accept("where")) {
      Parsed predicate = parse_any();
      access.predicate = predicate.e;
      access.depth = std::max(access.depth, predicate.depth + 1);
      break;
    }
    Parsed index = parse_any();
    access.indices.push_back(index.e);
    access.depth = std::max(access.depth, index.depth + 1);
    if (at("]") || at("where")) continue;
    expect(",", "or `]` after an index");
    if (at("]") || at("where")) fail_expected("an index");
  }
  expect("]", "after the indices");
  return access;
}

int ExprParser::expect_lanes(const Token& name, const std::vector<Expr>& arguments) const {
  const auto* lanes = arguments.back().as<IntImm>();
  if (!lanes || lanes->dtype != i64 || lanes->value < 2 || lanes->value > UINT16_MAX) {
    fail(name.span, "the last argument of " + name.value + " is its number of lanes, a constant from 2 to 65535");
  }
  return static_cast<int>(lanes->value);
}

Expr ExprParser::make_function(const Token& name, std::optional<DType> dtype, std::vector<Expr> arguments) {
  std::string_view word = name.text;
  auto need = [&](size_t count) {
    if (arguments.size() == count) return;
    fail(name.span, std::string(word) + " takes " + std::to_string(count) +
                        (count == 1 ? " argument, not " : " arguments, not ") + std::to_string(arguments.size()));
  };
  if (std::optional<Intrinsic> intrinsic = syntax::find_word<Intrinsic>(syntax::intrinsic_words, word)) {
    if (arity_of(*intrinsic) >= 0) need(arity_of(*intrinsic));
    std::optional<DType> result = dtype ? dtype : call_dtype(*intrinsic, arguments);
    if (!result) {
      fail(name.span, "the type of " + name.value + " does not follow from its arguments",
           "write it, as in " + name.value + ":f32x4(…)");
    }
    return make_expr<Call>(*result, *intrinsic, std::move(arguments));
  }
  if (dtype) fail(name.span, "only intrinsics and loads take a type", "write " + to_string(*dtype) + "(…) to convert");
  if (std::optional<DType> target = parse_dtype(word)) {
    need(1);
    return make_expr<Cast>(*target, arguments[0]);
  }
  if (const BinarySyntax* row = find_binary_word(word)) {
    need(2);
    DType result = arguments[0].dtype();
    return make_expr<Binary>(result, row->op, arguments[0], arguments[1]);
  }
  if (std::optional<BinaryOp> op = find_reduction(word)) {
    need(1);
    DType element = arguments[0].dtype().element();
    return make_expr<VectorReduce>(element, *op, arguments[0]);
  }
  if (word == "select") {
    need(3);
    DType result = arguments[1].dtype();
    return make_expr<Select>(result, arguments[0], arguments[1], arguments[2]);
  }
  if (word == "ramp") {
    need(3);
    DType result = arguments[0].dtype().with_lanes(expect_lanes(name, arguments));
    return make_expr<Ramp>(result, arguments[0], arguments[1]);
  }
  if (word == "broadcast") {
    need(2);
    DType result = arguments[0].dtype().with_lanes(expect_lanes(name, arguments));
    return make_expr<Broadcast>(result, arguments[0]);
  }
  if (find(name.value))
    fail(name.span, "`" + name.value + "` is not a function", "a buffer takes its indices in brackets");
  fail(name.span, "unknown function `" + name.value + "`", suggest_name(name.value, function_names()));
}

ExprParser::Parsed ExprParser::parse_function(const Token& name, std::optional<DType> dtype) {
  expect("(", "after a function");
  std::vector<Expr> arguments;
  int depth = 1;
  parse_items(")", "or `)` after an argument", "an argument", [&] {
    Parsed argument = parse_any();
    depth = std::max(depth, argument.depth + 1);
    arguments.push_back(std::move(argument.e));
  });
  return finish(make_function(name, dtype, std::move(arguments)), depth, name.span);
}

ExprParser::Parsed ExprParser::parse_call_statement() {
  Span span = token().span;
  Parsed call = parse_named();
  if (!call.e.as<Call>()) fail(span, "a value alone does nothing", "store it, or write evaluate …");
  return call;
}

Expr ExprParser::parse_i64(const char* what) {
  Parsed parsed = parse_any();
  if (parsed.e.dtype() != i64)
    fail(parsed.span, std::string(what) + " has type " + to_string(parsed.e.dtype()) + ", not i64");
  return parsed.e;
}

std::vector<Expr> ExprParser::parse_i64_list(const char* what) {
  std::vector<Expr> list;
  parse_items("]", "or `]` in the list", what, [&] { list.push_back(parse_i64(what)); });
  return list;
}

DType ExprParser::parse_dtype_name(const char* what) {
  if (token().kind != TokenKind::name) fail_expected(what, "as in f32, i64, bf16, bool, f32x16");
  std::optional<DType> dtype = parse_dtype(token().text);
  if (!dtype) {
    fail(token().span, "unknown type `" + std::string(token().text.substr(0, 40)) + "`",
         suggest_name(token().text,
                      {"f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "u64", "u32", "u16", "u8", "bool"}));
  }
  advance();
  return *dtype;
}

}  // namespace tw
