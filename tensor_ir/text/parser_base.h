// What the two halves of the parser (expressions, statements) stand on: tokens, names in scope, located errors.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "tensor_ir/diagnostic.h"
#include "tensor_ir/dimension.h"
#include "tensor_ir/text/lexer.h"

namespace tw {

// Recursive descent over hostile text: every recursion is counted, and so is the depth of the trees that loops build,
// because whoever walks a tree recurses too.
inline constexpr int max_nesting = 256;
inline constexpr int max_tree_depth = 1024;    // of an expression, such as a sum of many terms
inline constexpr int max_declarations = 2048;  // let and alloc around one statement
inline constexpr size_t max_text_bytes = 16 << 20;

class ParserBase {
 public:
  ParserBase(std::string_view text, const std::string& file);

 protected:
  using Entity = std::variant<Var, Buffer>;
  struct Named {
    Entity entity;
    Span span;
  };
  struct Name {
    std::string text;
    Span span;
  };

  // ---- tokens
  const Token& token() const { return token_; }
  const Token& ahead() const { return ahead_; }  // the one after token()
  void advance();
  bool at(std::string_view symbol_or_word) const { return token_.is(symbol_or_word); }
  bool accept(std::string_view symbol_or_word);
  Span expect(std::string_view symbol_or_word, const char* where);
  // Items with commas between them, through `closing`; errors name where a comma belongs, and an item.
  template <class ParseItem>
  void parse_items(std::string_view closing, const char* where, const char* item, ParseItem&& parse_item) {
    while (!at(closing)) {
      parse_item();
      if (at(closing)) break;
      expect(",", where);
      if (at(closing)) fail_expected(item);
    }
    advance();
  }
  bool at_name() const;  // a name that is no reserved word
  Name expect_name(const char* what);
  std::string describe_token() const;
  DimensionBounds parse_bounds();  // 1..64, or 1.. for no end

  // ---- errors
  [[noreturn]] void fail(Span span, std::string message, std::string help = {}, std::string note = {}) const;
  [[noreturn]] void fail_expected(const std::string& what, std::string help = {}) const;

  // ---- names in scope; no name hides another
  void declare(const Name& name, Entity entity);
  size_t scope_size() const { return order_.size(); }
  void leave_scope(size_t size);
  const Named* find(const std::string& name) const;
  std::vector<std::string> known_names() const;

  // ---- limits
  struct Nesting {
    explicit Nesting(ParserBase& parser) : parser(parser) { parser.enter(); }
    ~Nesting() { --parser.depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;
    ParserBase& parser;
  };

 private:
  void enter();

  std::string_view text_;
  std::string file_;
  Lexer lexer_;
  Token token_, ahead_;
  int depth_ = 0;
  std::unordered_map<std::string, Named> names_;
  std::vector<std::string> order_;
};

class ExprParser : public ParserBase {
 public:
  using ParserBase::ParserBase;

 protected:
  // An expression with the height of its tree and the place to point at.
  struct Parsed {
    Expr e;
    int depth = 1;
    Span span;
  };
  struct Access {
    std::vector<Expr> indices;
    Expr predicate;
    int depth = 1;
  };

  Expr parse_expr() { return parse_any().e; }
  Expr parse_i64(const char* what);
  std::vector<Expr> parse_i64_list(const char* what);  // [a, b], from after the opening bracket
  Access parse_access();                               // from after the opening bracket
  DType parse_dtype_name(const char* what);
  Parsed parse_call_statement();

 private:
  Parsed parse_any();
  Parsed parse_binary(int lowest);
  Parsed parse_unary();
  Parsed parse_primary();
  Parsed parse_let();
  Parsed parse_number(bool is_negative, Span span);
  Parsed parse_named();
  Parsed parse_function(const Token& name, std::optional<DType> dtype);
  Parsed finish(Expr e, int depth, Span span) const;
  Expr make_function(const Token& name, std::optional<DType> dtype, std::vector<Expr> arguments);
  int expect_lanes(const Token& name, const std::vector<Expr>& arguments) const;
};

}  // namespace tw
