// Statements and Funcs; expressions are in parser_expr.cpp.
#include "tensor_ir/text/parser.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "tensor_ir/text/parser_base.h"
#include "tensor_ir/text/syntax.h"
#include "tensor_ir/type_rules.h"

namespace tw {
namespace {

template <class Enum, size_t n>
std::optional<Enum> find_word(const char* const (&words)[n], const Token& token) {
  const bool is_word = token.kind == TokenKind::name && !token.is_quoted;
  return is_word ? syntax::find_word<Enum>(words, token.text) : std::nullopt;
}

class Parser : public ExprParser {
 public:
  using ExprParser::ExprParser;

  std::vector<Func> parse_all() {
    std::vector<Func> funcs;
    while (token().kind != TokenKind::end) funcs.push_back(parse_func());
    return funcs;
  }

  Func parse_only() {
    Func f = parse_func();
    if (token().kind != TokenKind::end)
      fail_expected("the end of the text after the func", "parse_funcs reads several");
    return f;
  }

 private:
  Func parse_func() {
    expect("func", "to begin a func");
    Func f;
    f.name = expect_name("the name of the func").text;
    size_t outer = scope_size();
    if (accept("[")) parse_parameters(f);
    expect("(", "before the inputs");
    parse_buffers(f);
    size_t inputs = f.buffers.size();
    expect("->", "before the outputs");
    expect("(", "before the outputs");
    parse_buffers(f);
    f.output_count = static_cast<int>(f.buffers.size() - inputs);
    f.attributes = parse_attributes();
    f.body = parse_body();
    leave_scope(outer);
    return f;
  }

  void parse_parameters(Func& f) {
    do {
      Name name = expect_name("the name of a symbolic integer");
      Var var(name.text);
      if (accept(":")) {
        var = token().kind == TokenKind::number
                  ? dimension(name.text, parse_bounds())
                  : Var(name.text, parse_dtype_name("bounds or the type of the parameter"));
      }
      declare(name, var);
      f.parameters.push_back(var);
    } while (accept(","));
    expect("]", "after the parameters");
  }

  void parse_buffers(Func& f) {
    parse_items(")", "or `)` after a buffer", "a buffer", [&] { f.buffers.push_back(parse_declaration(true)); });
  }

  // name: type[shape] strides [..] in scope align bytes, of a parameter also constant streamed
  Buffer parse_declaration(bool is_parameter) {
    BufferNode node;
    Name name = expect_name("the name of a buffer");
    node.name = name.text;
    expect(":", "and a type after the name of a buffer");
    node.dtype = parse_dtype_name("the type of the buffer");
    expect("[", "and the shape after the type of a buffer");
    node.shape = parse_i64_list("a dimension");
    if (at("strides") && ahead().is("[")) {
      advance(), advance();
      node.strides = parse_i64_list("a stride");
      if (node.strides.empty() && !node.shape.empty())
        fail(name.span, "the strides are empty", "leave them out for a compact buffer");
    }
    if (accept("in")) {
      std::optional<Scope> scope = find_word<Scope>(syntax::scope_words, token());
      if (!scope) {
        fail(token().span, "unknown scope " + describe_token(),
             suggest_name(token().text, {std::begin(syntax::scope_words), std::end(syntax::scope_words)}));
      }
      node.scope = *scope;
      advance();
    }
    if (at("align") && ahead().kind == TokenKind::number) {
      advance();
      std::string_view digits = token().text;
      auto result = std::from_chars(digits.data(), digits.data() + digits.size(), node.alignment);
      if (result.ec != std::errc() || result.ptr != digits.data() + digits.size())
        fail_expected("a number of bytes after `align`");
      advance();
    }
    node.is_constant = is_parameter && accept("constant");
    node.is_cached = is_parameter && accept("cached");
    node.is_streamed = is_parameter && accept("streamed");
    Buffer buffer(std::move(node));
    if (auto problem = type_problem(buffer)) fail(name.span, problem->message, problem->help);
    declare(name, buffer);
    return buffer;
  }

  Attributes parse_attributes() {
    Attributes attributes;
    if (!at("attrs")) return attributes;
    advance();
    expect("{", "after `attrs`");
    parse_items("}", "or `}` after an attribute", "an attribute", [&] {
      Span span = token().span;
      std::string key = parse_attribute_key();
      expect("=", "after the name of an attribute");
      if (!attributes.emplace(key, parse_attribute_value()).second)
        fail(span, "attribute `" + key + "` is given twice");
    });
    return attributes;
  }

  std::string parse_attribute_key() {
    if (token().kind != TokenKind::name) fail_expected("the name of an attribute");
    std::string key = token().value;
    bool is_quoted = token().is_quoted;
    advance();
    if (!is_quoted && accept(":")) {
      if (token().kind != TokenKind::name || token().is_quoted)
        fail_expected("a word after `" + key + ":`", "write the whole name in backticks");
      key += ":" + token().value;
      advance();
    }
    return key;
  }

  AttributeValue parse_attribute_value() {
    if (token().kind == TokenKind::string) {
      std::string value = token().value;
      advance();
      return value;
    }
    if (at("{")) return parse_buffer_bytes();
    Span span = token().span;
    bool is_negative = accept("-");
    if (at("inf_f64") || at("nan_f64")) {
      double value = at("inf_f64") ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
      advance();
      return is_negative ? -value : value;
    }
    if (token().kind != TokenKind::number || token().digits != token().text.size()) {
      fail_expected("the value of an attribute",
                    "an integer, a number such as 0.5, \"text\", or bytes of buffers such as {A: 64}");
    }
    std::string digits = (is_negative ? "-" : "") + std::string(token().text);
    bool is_float = token().is_float;
    advance();
    if (is_float) {
      double value = 0;
      if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec != std::errc())
        fail(span, "the number does not fit in f64");
      return value;
    }
    int64_t value = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ec != std::errc())
      fail(span, "the number does not fit in i64");
    return value;
  }

  BufferBytes parse_buffer_bytes() {
    BufferBytes bytes;
    advance();
    while (!at("}")) {
      const Name name = expect_name("the name of a buffer");
      expect(":", "and its bytes after the name of a buffer");
      const AttributeValue value = parse_attribute_value();
      if (!std::holds_alternative<int64_t>(value)) fail(name.span, "bytes are an integer");
      if (!bytes.emplace(name.text, std::get<int64_t>(value)).second) fail(name.span, "the buffer is named twice");
      if (at("}")) break;
      expect(",", "or `}` after the bytes of a buffer");
    }
    expect("}", "after the bytes of buffers");
    return bytes;
  }

  // ---- statements

  // Statements up to a closing brace, with one Seq around several.
  Stmt parse_list() {
    Nesting nesting(*this);
    return gathered(parse_statements());
  }

  static Stmt gathered(std::vector<Stmt> statements) {
    if (statements.size() == 1) return statements[0];
    return make_stmt<Seq>(std::move(statements));
  }

  // let and alloc hold what follows them, so the list is put together from its end.
  std::vector<Stmt> parse_statements() {
    struct Open {
      std::vector<Stmt> before;
      std::variant<std::pair<Var, Expr>, Buffer> declared;
    };
    std::vector<Open> open;
    std::vector<Stmt> statements;
    size_t outer = scope_size();
    while (!at("}")) {
      if (token().kind == TokenKind::end) fail_expected("a statement or `}`");
      if (at("let")) {
        advance();
        Name name = expect_name("the name of the variable after `let`");
        expect("=", "after the name");
        Expr value = parse_expr();
        if (at("in"))
          fail(token().span, "`in` after a let statement", "inside an expression a let stands in parentheses");
        Var var(name.text, value.dtype());
        declare(name, var);
        open.push_back({std::move(statements), std::pair(var, value)});
        statements.clear();
        ++declarations_;
      } else if (accept("alloc")) {
        Buffer buffer = parse_declaration(false);
        open.push_back({std::move(statements), buffer});
        statements.clear();
        ++declarations_;
      } else {
        statements.push_back(parse_statement());
      }
      if (declarations_ > max_declarations) {
        fail(token().span, "more than " + std::to_string(max_declarations) + " let and alloc around one statement");
      }
    }
    leave_scope(outer);
    declarations_ -= static_cast<int>(open.size());
    for (; !open.empty(); open.pop_back()) {
      Stmt body = gathered(std::move(statements));
      statements = std::move(open.back().before);
      if (auto* let = std::get_if<std::pair<Var, Expr>>(&open.back().declared)) {
        statements.push_back(make_stmt<LetStmt>(let->first, let->second, body));
      } else {
        statements.push_back(make_stmt<Allocate>(std::get<Buffer>(open.back().declared), body));
      }
    }
    return statements;
  }

  Stmt parse_body() {
    expect("{", "to begin a body");
    Stmt body = parse_list();
    expect("}", "to end the body");
    return body;
  }

  Stmt parse_statement() {
    if (at("for")) return parse_for();
    if (at("block")) return parse_block();
    if (at("if")) return parse_if();
    if (at("{")) return parse_body();
    if (accept("seq")) {
      expect("{", "after `seq`");
      Nesting nesting(*this);
      std::vector<Stmt> statements = parse_statements();
      expect("}", "to end the seq");
      return make_stmt<Seq>(std::move(statements));
    }
    if (accept("evaluate")) return make_stmt<Evaluate>(parse_expr());
    if (at("else")) fail(token().span, "`else` without an if before it");
    if (at("init")) fail(token().span, "`init` stands first in a block");
    if (!at_name()) {
      fail_expected("a statement", "a store A[i] = x, or one of for, block, if, let, alloc, seq, evaluate");
    }
    if (ahead().is("[")) return parse_store();
    if (ahead().is("(") || ahead().is(":")) return make_stmt<Evaluate>(parse_call_statement().e);
    std::string word(token().text.substr(0, 40));
    std::string help = suggest_name(word, {"for", "block", "if", "let", "alloc", "seq", "evaluate"});
    fail(token().span, "`" + word + "` begins no statement", help);
  }

  Stmt parse_for() {
    Span span = expect("for", "");
    Name name = expect_name("the loop variable");
    expect("in", "after the loop variable");
    if (token().kind != TokenKind::number || token().text != "0")
      fail_expected("`0..extent`: loops start at 0", "add the start to the uses of the variable");
    advance();
    expect("..", "after the 0 of a loop");
    Expr extent = parse_expr();
    LoopKind kind = LoopKind::serial;
    ThreadAxis axis = ThreadAxis::none;
    if (!at("{") && !at("attrs")) {
      if (auto named = find_word<ThreadAxis>(syntax::thread_axis_words, token()); named && *named != ThreadAxis::none) {
        kind = LoopKind::thread;
        axis = *named;
      } else if (auto named_kind = find_word<LoopKind>(syntax::loop_kind_words, token());
                 named_kind && *named_kind != LoopKind::thread) {
        kind = *named_kind;
      } else {
        fail(token().span, "unknown kind of loop " + describe_token(), suggest_name(token().text, loop_words()));
      }
      advance();
    }
    Attributes attributes = parse_attributes();
    size_t outer = scope_size();
    Var var(name.text, extent.dtype());
    declare(name, var);
    Stmt body = parse_body();
    leave_scope(outer);
    return checked(make_stmt<For>(var, extent, kind, body, axis, std::move(attributes), span), span);
  }

  static std::vector<std::string> loop_words() {
    std::vector<std::string> words(std::begin(syntax::loop_kind_words), std::end(syntax::loop_kind_words) - 1);
    words.insert(words.end(), std::begin(syntax::thread_axis_words) + 1, std::end(syntax::thread_axis_words));
    return words;
  }

  Stmt parse_block() {
    Span span = expect("block", "");
    std::string block_name = expect_name("the name of the block").text;
    expect("(", "before the iteration variables");
    std::vector<IterVar> iters;
    std::vector<Name> names;
    parse_items(")", "or `)` after an iteration variable", "an iteration variable", [&] {
      IterVar iter;
      if (!at("spatial") && !at("reduce")) fail_expected("`spatial` or `reduce`");
      iter.kind = at("reduce") ? IterKind::reduce : IterKind::spatial;
      advance();
      names.push_back(expect_name("the name of the iteration variable"));
      iter.var = Var(names.back().text, i64);
      expect(":", "and the extent after an iteration variable");
      iter.extent = parse_i64("the extent of an iteration variable");
      expect("=", "and the binding after the extent");
      iter.binding = parse_i64("the binding of an iteration variable");
      iters.push_back(std::move(iter));
    });
    Expr predicate;
    if (accept("where")) predicate = parse_expr();
    Attributes attributes = parse_attributes();
    size_t outer = scope_size();
    for (size_t i = 0; i < iters.size(); ++i) declare(names[i], iters[i].var);
    expect("{", "to begin the body of a block");
    Stmt init;
    if (accept("init")) init = parse_body();
    Stmt body = parse_list();
    expect("}", "to end the block");
    leave_scope(outer);
    return checked(make_stmt<Block>(block_name, std::move(iters), predicate, init, body, std::move(attributes), span),
                   span);
  }

  Stmt parse_if() {
    // else-if chains are as deep a tree as nested ifs
    Nesting nesting(*this);
    Span span = expect("if", "");
    Expr condition = parse_expr();
    Stmt then_body = parse_body(), else_body;
    if (accept("else")) else_body = at("if") ? parse_if() : parse_body();
    return checked(make_stmt<If>(condition, then_body, else_body), span);
  }

  Stmt parse_store() {
    Name name = expect_name("a buffer");
    const Named* found = find(name.text);
    if (!found) fail(name.span, "unknown buffer `" + name.text + "`", suggest_name(name.text, known_names()));
    const auto* buffer = std::get_if<Buffer>(&found->entity);
    if (!buffer) fail(name.span, "`" + name.text + "` is a variable, not a buffer", "variables are bound by let, once");
    Buffer target = *buffer;
    expect("[", "after a buffer");
    Access access = parse_access();
    expect("=", "and a value to store");
    Expr value = parse_expr();
    return checked(make_stmt<Store>(target, std::move(access.indices), value, access.predicate, name.span), name.span);
  }

  Stmt checked(Stmt s, Span span) const {
    if (auto problem = type_problem(s)) fail(span, problem->message, problem->help);
    return s;
  }

  int declarations_ = 0;  // let and alloc in scope
};

}  // namespace

Func parse_func(std::string_view text, const std::string& file) {
  return Parser(text, file).parse_only();
}

std::vector<Func> parse_funcs(std::string_view text, const std::string& file) {
  return Parser(text, file).parse_all();
}

}  // namespace tw
