// Traces as text: printing, parsing.
#include "schedule/trace.h"

#include <charconv>

#include "tensor_ir/text/parser_base.h"
#include "tensor_ir/text/syntax.h"

namespace tw {
namespace {

std::string list_text(const TraceList& list);

std::string value_text(const TraceValue& v) {
  struct Printer {
    std::string operator()(std::monostate) const { return "None"; }
    std::string operator()(const TraceName& name) const { return name.name; }
    std::string operator()(int64_t value) const { return std::to_string(value); }
    std::string operator()(double value) const { return syntax::float_digits(f64, value); }
    std::string operator()(const std::string& text) const { return syntax::quote_string(text); }
    std::string operator()(const TraceList& list) const { return "[" + list_text(list) + "]"; }
  };
  return std::visit(Printer{}, v.value);
}

std::string list_text(const TraceList& list) {
  std::string text;
  for (const TraceValue& value : list) text += (text.empty() ? "" : ", ") + value_text(value);
  return text;
}

// One instruction a line; brackets may span lines.
class TraceParser : public ParserBase {
 public:
  using ParserBase::ParserBase;

  Trace parse() {
    Trace trace;
    for (int32_t line = 0; token().kind != TokenKind::end; line = last_.line) {
      if (token().span.line == line) fail_expected("one instruction a line", "break the line here");
      trace.instructions.push_back(instruction());
    }
    return trace;
  }

 private:
  std::string word() {
    if (token().kind != TokenKind::name) fail_expected("a name", "as in: i0, i1 = split(i, [None, 8])");
    std::string name = token().value;
    advance();
    return name;
  }

  Instruction instruction() {
    Instruction result;
    std::vector<std::string> words{word()};
    while (accept(",")) words.push_back(word());
    if (words.size() > 1 || at("=")) {
      expect("=", "after the names of the results");
      result.results = std::move(words);
      result.primitive = word();
    } else {
      result.primitive = words[0];
    }
    expect("(", "after the primitive's name");
    result.arguments = list(")");
    return result;
  }

  TraceList list(std::string_view close) {
    TraceList values;
    while (!at(close)) {
      values.push_back(value());
      if (!accept(",") && !at(close)) fail_expected("`,` or `" + std::string(close) + "` after an argument");
    }
    last_ = expect(close, "after the arguments");
    return values;
  }

  TraceValue value() {
    const Nesting nesting(*this);
    if (accept("[")) return {list("]")};
    if (token().kind == TokenKind::string) {
      std::string text = token().value;
      advance();
      return {text};
    }
    if (token().kind == TokenKind::name) {
      std::string name = word();
      return name == "None" ? TraceValue() : TraceValue{TraceName{std::move(name)}};
    }
    return number();
  }

  TraceValue number() {
    std::string text = accept("-") ? "-" : "";
    text += token().text;
    const auto read = [&]<class Number>(Number value) {
      const char* end = text.data() + text.size();
      const auto [last, error] = std::from_chars(text.data(), end, value);
      return error == std::errc() && last == end ? std::optional(TraceValue{value}) : std::nullopt;
    };
    auto result = read(int64_t{});
    if (!result) result = read(double{});
    if (!result || token().kind != TokenKind::number) fail_expected("a number, a text, a name or a list");
    advance();
    return *result;
  }

  Span last_;  // the closing bracket of the last instruction
};

}  // namespace

std::string to_text(const Trace& trace) {
  std::string text;
  for (const Instruction& instruction : trace.instructions) {
    for (size_t i = 0; i < instruction.results.size(); ++i) text += (i ? ", " : "") + instruction.results[i];
    if (!instruction.results.empty()) text += " = ";
    text += instruction.primitive + "(" + list_text(instruction.arguments) + ")\n";
  }
  return text;
}

Trace parse_trace(std::string_view text, const std::string& file) {
  return TraceParser(text, file).parse();
}

}  // namespace tw
