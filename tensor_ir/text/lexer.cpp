#include "tensor_ir/text/lexer.h"

#include "tensor_ir/text/syntax.h"

namespace tw {
namespace {

using syntax::is_digit;
using syntax::is_letter;

// Longest first.
constexpr std::string_view symbols[] = {"..", "->", "//", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||",
                                        "(",  ")",  "[",  "]",  "{",  "}",  ",",  ":",  "=",  "+",  "-",
                                        "*",  "/",  "%",  "<",  ">",  "!",  "&",  "|",  "^",  "~"};

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

}  // namespace

void Lexer::skip_space() {
  for (; at_ < source_.size(); ++at_) {
    char c = source_[at_];
    if (c == '#') {
      while (at_ < source_.size() && source_[at_] != '\n') ++at_;
      if (at_ == source_.size()) return;
      c = '\n';
    }
    if (c == '\n') {
      ++line_;
      line_begin_ = at_ + 1;
    } else if (c != ' ' && c != '\t' && c != '\r') {
      return;
    }
  }
}

void Lexer::lex_number(Token& token) {
  token.kind = TokenKind::number;
  while (is_digit(peek())) ++at_;
  if (peek() == '.' && is_digit(peek(1))) {
    token.is_float = true;
    ++at_;
    while (is_digit(peek())) ++at_;
  }
  if (peek() == 'e' && (is_digit(peek(1)) || ((peek(1) == '-' || peek(1) == '+') && is_digit(peek(2))))) {
    token.is_float = true;
    at_ += 2;
    while (is_digit(peek())) ++at_;
  }
}

void Lexer::lex_quoted(Token& token) {
  char quote = peek();
  token.kind = TokenKind::unknown;  // until its end is found
  token.is_quoted = true;
  for (++at_; at_ < source_.size() && peek() != '\n'; ++at_) {
    char c = peek();
    if (c == quote) {
      ++at_;
      token.kind = quote == '"' ? TokenKind::string : TokenKind::name;
      return;
    }
    if (c != '\\') {
      token.value += c;
      continue;
    }
    c = peek(1);
    if (c == 'n') {
      token.value += '\n';
    } else if (c == 'x' && hex_value(peek(2)) >= 0 && hex_value(peek(3)) >= 0) {
      token.value += static_cast<char>(hex_value(peek(2)) * 16 + hex_value(peek(3)));
      at_ += 2;
    } else if (c == '\\' || c == quote) {
      token.value += c;
    } else {
      return;
    }
    ++at_;
  }
}

Token Lexer::next() {
  skip_space();
  Token token;
  token.span = {line_, static_cast<int32_t>(at_ - line_begin_) + 1};
  size_t begin = at_;
  char c = peek();
  if (at_ >= source_.size()) {
    token.kind = TokenKind::end;
  } else if (is_letter(c)) {
    token.kind = TokenKind::name;
    // A dot inside a name is part of it (C.local, block.x); two dots are the range symbol.
    while (is_letter(peek()) || is_digit(peek()) || (peek() == '.' && (is_letter(peek(1)) || is_digit(peek(1))))) ++at_;
    token.value = source_.substr(begin, at_ - begin);
  } else if (is_digit(c)) {
    lex_number(token);
    token.digits = at_ - begin;
    while (is_letter(peek()) || is_digit(peek())) ++at_;
  } else if (c == '"' || c == '`') {
    lex_quoted(token);
  } else {
    token.kind = TokenKind::unknown;
    for (std::string_view symbol : symbols) {
      if (source_.substr(at_, symbol.size()) == symbol) {
        token.kind = TokenKind::symbol;
        at_ += symbol.size();
        break;
      }
    }
    if (token.kind == TokenKind::unknown) {
      ++at_;
      while ((static_cast<unsigned char>(peek()) & 0xc0) == 0x80) ++at_;  // the rest of a UTF-8 character
    }
  }
  token.text = source_.substr(begin, at_ - begin);
  return token;
}

}  // namespace tw
