// Index maps as text: (n, c, h) -> (n, c // 16, h, c % 16)
#include <cctype>

#include "schedule/schedule.h"
#include "tensor_ir/text/printer.h"

namespace tw {
namespace {

std::string expr_text(const Expr& e, int level) {
  const auto* b = e.as<Binary>();
  if (!b) return to_text(e);
  const bool is_sum = b->op == BinaryOp::add || b->op == BinaryOp::sub;
  const char* word = b->op == BinaryOp::add         ? " + "
                     : b->op == BinaryOp::sub       ? " - "
                     : b->op == BinaryOp::mul       ? " * "
                     : b->op == BinaryOp::floor_div ? " // "
                     : b->op == BinaryOp::floor_mod ? " % "
                                                    : nullptr;
  if (!word)
    throw Error(ErrorCode::schedule, "error[layout]: the index " + to_text(e) +
                                         " is not made of + - * // %\n  help: use only these in an index map");
  const int own = is_sum ? 1 : 2;
  const std::string text = expr_text(b->a, own) + word + expr_text(b->b, own + 1);
  return own < level ? "(" + text + ")" : text;
}

class IndexMapParser {
 public:
  explicit IndexMapParser(std::string_view text) : text_(text) {}

  IndexMap parse() {
    IndexMap map;
    expect("(");
    while (!take(")")) {
      if (!map.from.empty()) expect(",");
      map.from.push_back(Var(word()));
    }
    expect("->");
    expect("(");
    map_ = &map;
    while (!take(")")) {
      if (!map.to.empty()) expect(",");
      map.to.push_back(sum(0));
    }
    skip();
    if (place_ != text_.size()) fail("the end");
    return map;
  }

 private:
  void skip() {
    while (place_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[place_]))) ++place_;
  }
  bool take(std::string_view token) {
    skip();
    if (text_.substr(place_, token.size()) != token) return false;
    place_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!take(token)) fail("`" + std::string(token) + "`");
  }
  [[noreturn]] void fail(const std::string& wanted) const {
    throw Error(ErrorCode::text, "error[layout]: " + wanted + " is expected at column " + std::to_string(place_ + 1) +
                                     " of \"" + std::string(text_) +
                                     "\"\n  help: as in \"(n, c, h) -> (n, c // 16, h, c % 16)\"");
  }
  std::string word() {
    skip();
    const size_t start = place_;
    while (place_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[place_])) || text_[place_] == '_'))
      ++place_;
    if (start == place_ || std::isdigit(static_cast<unsigned char>(text_[start]))) fail("a name");
    return std::string(text_.substr(start, place_ - start));
  }
  Expr sum(int depth) {
    Expr result = product(depth);
    while (true) {
      skip();
      if (text_.substr(place_, 2) == "->") return result;
      if (take("+"))
        result = result + product(depth);
      else if (take("-"))
        result = result - product(depth);
      else
        return result;
    }
  }
  Expr product(int depth) {
    Expr result = atom(depth);
    while (true) {
      if (take("//"))
        result = floor_div(result, divisor(depth));
      else if (take("%"))
        result = floor_mod(result, divisor(depth));
      else if (take("*"))
        result = result * atom(depth);
      else
        return result;
    }
  }
  Expr divisor(int depth) {
    const Expr e = atom(depth);
    if (as_int(e).value_or(0) <= 0) fail("a positive constant divisor");
    return e;
  }
  Expr atom(int depth) {
    if (depth > 50) fail("less nesting");
    if (take("(")) {
      const Expr inner = sum(depth + 1);
      expect(")");
      return inner;
    }
    skip();
    if (place_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[place_]))) {
      int64_t value = 0;
      while (place_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[place_]))) {
        value = value * 10 + (text_[place_++] - '0');
        if (value > (int64_t{1} << 40)) fail("a smaller number");
      }
      return value;
    }
    const std::string name = word();
    for (const Var& v : map_->from) {
      if (v.name() == name) return v;
    }
    fail("an index of the left side, not `" + name + "`,");
  }

  std::string_view text_;
  size_t place_ = 0;
  IndexMap* map_ = nullptr;
};

}  // namespace

std::string to_text(const IndexMap& map) {
  std::string text = "(";
  for (size_t i = 0; i < map.from.size(); ++i) text += (i ? ", " : "") + map.from[i].name();
  text += ") -> (";
  for (size_t i = 0; i < map.to.size(); ++i) text += (i ? ", " : "") + expr_text(map.to[i], 0);
  return text + ")";
}

IndexMap parse_index_map(std::string_view text) {
  return IndexMapParser(text).parse();
}

}  // namespace tw
