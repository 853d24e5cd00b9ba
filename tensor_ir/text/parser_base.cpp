#include "tensor_ir/text/parser_base.h"

#include <charconv>

#include "tensor_ir/text/syntax.h"

namespace tw {

ParserBase::ParserBase(std::string_view text, const std::string& file) : text_(text), file_(file), lexer_(text) {
  if (text.size() > max_text_bytes) {
    throw Error(ErrorCode::text, "text of " + std::to_string(text.size()) + " bytes is longer than the limit of " +
                                     std::to_string(max_text_bytes) + "\n  help: split it into several files");
  }
  token_ = lexer_.next();
  ahead_ = lexer_.next();
}

DimensionBounds ParserBase::parse_bounds() {
  const auto number = [&] {
    int64_t value = 0;
    const std::string_view text = token().text;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) fail_expected("a bound of the dimension");
    advance();
    return value;
  };
  const Span span = token().span;
  DimensionBounds bounds{number()};
  expect("..", "between the bounds");
  if (token().kind == TokenKind::number) bounds.high = number();
  if (bounds.high < bounds.low) fail(span, "no size lies within these bounds");
  return bounds;
}

void ParserBase::advance() {
  token_ = std::move(ahead_);
  ahead_ = lexer_.next();
}

bool ParserBase::accept(std::string_view symbol_or_word) {
  if (!at(symbol_or_word)) return false;
  advance();
  return true;
}

Span ParserBase::expect(std::string_view symbol_or_word, const char* where) {
  Span span = token_.span;
  if (!accept(symbol_or_word)) fail_expected("`" + std::string(symbol_or_word) + "` " + where);
  return span;
}

bool ParserBase::at_name() const {
  return token_.kind == TokenKind::name && (token_.is_quoted || !syntax::is_reserved(token_.text));
}

ParserBase::Name ParserBase::expect_name(const char* what) {
  if (!at_name()) {
    bool is_word = token_.kind == TokenKind::name;
    fail_expected(
        what, is_word ? "`" + std::string(token_.text) + "` is a word of the language; in backticks it is a name" : "");
  }
  Name name{token_.value, token_.span};
  advance();
  return name;
}

std::string ParserBase::describe_token() const {
  if (token_.kind == TokenKind::end) return "the end of the text";
  if (token_.kind == TokenKind::unknown && token_.is_quoted) {
    return token_.text[0] == '"' ? "a string that does not end, or has an unknown escape"
                                 : "a name in backticks that does not end, or has an unknown escape";
  }
  std::string shown(token_.text.substr(0, 40));
  return "`" + shown + (token_.text.size() > 40 ? "…`" : "`");
}

void ParserBase::fail(Span span, std::string message, std::string help, std::string note) const {
  constexpr size_t longest = 400;  // a name may be megabytes long
  for (std::string* part : {&message, &help}) {
    if (part->size() > longest) *part = part->substr(0, longest) + "…";
  }
  Diagnostic diagnostic{"parse", std::move(message), std::move(note), std::move(help), span};
  throw Error(ErrorCode::text, render(diagnostic, file_, text_));
}

void ParserBase::fail_expected(const std::string& what, std::string help) const {
  fail(token_.span, "expected " + what + ", found " + describe_token(), std::move(help));
}

void ParserBase::declare(const Name& name, Entity entity) {
  auto [it, is_new] = names_.try_emplace(name.text, Named{std::move(entity), name.span});
  if (!is_new) {
    fail(name.span, "`" + name.text + "` is already defined here",
         "line " + std::to_string(it->second.span.line) + " defines it; choose another name");
  }
  order_.push_back(name.text);
}

void ParserBase::leave_scope(size_t size) {
  for (; order_.size() > size; order_.pop_back()) names_.erase(order_.back());
}

const ParserBase::Named* ParserBase::find(const std::string& name) const {
  auto it = names_.find(name);
  return it == names_.end() ? nullptr : &it->second;
}

std::vector<std::string> ParserBase::known_names() const {
  return order_;
}

void ParserBase::enter() {
  if (++depth_ > max_nesting) {
    --depth_;  // the scope that counts itself was not made
    fail(token_.span, "nested more than " + std::to_string(max_nesting) + " levels deep");
  }
}

}  // namespace tw
