// Tokens of the text form.  The lexer never fails: what it does not know becomes a token of kind `unknown`, which the
// parser reports where it meets it.
#pragma once

#include <string>
#include <string_view>

#include "tensor_ir/text/span.h"

namespace tw {

enum class TokenKind : uint8_t { name, number, string, symbol, unknown, end };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string_view text;  // as written
  std::string value;      // of strings and of names in backticks: what they stand for
  bool is_quoted = false;
  bool is_float = false;  // a number with a point or an exponent
  size_t digits = 0;      // of a number: where its suffix begins in `text`
  Span span;

  bool is(std::string_view symbol_or_word) const {
    return (kind == TokenKind::symbol || (kind == TokenKind::name && !is_quoted)) && text == symbol_or_word;
  }
};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}
  Token next();

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0'; }
  void skip_space();
  void lex_number(Token& token);
  void lex_quoted(Token& token);

  std::string_view source_;
  size_t at_ = 0, line_begin_ = 0;
  int32_t line_ = 1;
};

}  // namespace tw
