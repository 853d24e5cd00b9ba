// Index maps as text: (n, c, h) -> (n, c // 16, h, c % 16)
#include "schedule/schedule.h"
#include "tensor_ir/text/parser_base.h"
#include "tensor_ir/text/printer.h"

namespace tw {
namespace {

class IndexMapParser : public ExprParser {
 public:
  explicit IndexMapParser(std::string_view text) : ExprParser(text, "<index map>") {}

  IndexMap parse() {
    IndexMap map;
    expect("(", "before the old indices");
    parse_items(")", "or `)` after an index", "an index", [&] {
      const Name name = expect_name("an index");
      map.from.emplace_back(name.text);
      declare(name, map.from.back());
    });
    expect("->", "between old and new indices");
    expect("(", "before the new indices");
    parse_items(")", "or `)` after an index", "an index", [&] { map.to.push_back(parse_i64("an index")); });
    if (token().kind != TokenKind::end) fail_expected("the end", "as in (n, c, h) -> (n, c // 16, h, c % 16)");
    return map;
  }
};

std::string list_text(const auto& indices) {
  std::string text;
  for (const Expr& index : indices) text += (text.empty() ? "(" : ", ") + to_text(index);
  return (text.empty() ? "(" : text) + ")";
}

}  // namespace

std::string to_text(const IndexMap& map) {
  return list_text(map.from) + " -> " + list_text(map.to);
}

IndexMap parse_index_map(std::string_view text) {
  return IndexMapParser(text).parse();
}

}  // namespace tw
