// Traces as text: printing, parsing.
#include "schedule/trace.h"

#include <cctype>
#include <charconv>
#include <cmath>

#include "runtime/error.h"
#include "schedule/schedule.h"
#include "tensor_ir/text/printer.h"

namespace tw {
namespace {

std::string number_text(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string value_text(const TraceValue& v) {
  struct Printer {
    std::string operator()(std::monostate) const { return "None"; }
    std::string operator()(const TraceName& name) const { return name.name; }
    std::string operator()(int64_t value) const { return std::to_string(value); }
    std::string operator()(double value) const { return number_text(value); }
    std::string operator()(const std::string& text) const {
      std::string result = "\"";
      for (const char c : text) {
        if (c == '"' || c == '\\') result += '\\';
        if (c == '\n')
          result += "\\n";
        else
          result += c;
      }
      return result + "\"";
    }
    std::string operator()(const TraceList& list) const {
      std::string result = "[";
      for (size_t i = 0; i < list.size(); ++i) result += (i ? ", " : "") + value_text(list[i]);
      return result + "]";
    }
  };
  return std::visit(Printer{}, v.value);
}

// A line-oriented reader: one instruction a line, # begins a comment, brackets may span lines.
class TraceParser {
 public:
  TraceParser(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Trace parse() {
    Trace trace;
    while (true) {
      skip_space(true);
      if (at_end()) return trace;
      trace.instructions.push_back(instruction());
      skip_space(false);
      if (!at_end() && peek() != '\n' && peek() != ';') fail("one instruction a line", "break the line here");
      if (!at_end()) advance();
    }
  }

 private:
  bool at_end() const { return place_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[place_]; }
  void advance() {
    if (text_[place_] == '\n') ++line_, line_start_ = place_ + 1;
    ++place_;
  }

  void skip_space(bool lines) {
    while (!at_end()) {
      if (peek() == '#') {
        while (!at_end() && peek() != '\n') advance();
      } else if (peek() == ' ' || peek() == '\t' || peek() == '\r' || (lines && (peek() == '\n' || peek() == ';'))) {
        advance();
      } else {
        return;
      }
    }
  }

  [[noreturn]] void fail(const std::string& message, const std::string& help) const {
    const size_t end = std::min(text_.find('\n', line_start_), text_.size());
    const std::string line(text_.substr(line_start_, end - line_start_));
    throw Error(ErrorCode::text,
                "error[trace]: " + message + "\n  " + file_ + ":" + std::to_string(line_) + "  " + line + "\n  " +
                    std::string(file_.size() + std::to_string(line_).size() + 3 + (place_ - line_start_), ' ') +
                    "^\n  help: " + help);
  }

  std::string word() {
    const size_t start = place_;
    while (std::isalnum(static_cast<unsigned char>(peek())) || peek() == '_' || (peek() == '.' && place_ > start))
      advance();
    if (start == place_ || std::isdigit(static_cast<unsigned char>(text_[start])))
      fail("a name is expected", "as in: i0, i1 = split(i, [None, 8])");
    return std::string(text_.substr(start, place_ - start));
  }

  Instruction instruction() {
    Instruction result;
    std::vector<std::string> words{word()};
    skip_space(false);
    while (peek() == ',') {
      advance();
      skip_space(false);
      words.push_back(word());
      skip_space(false);
    }
    if (peek() == '=') {
      advance();
      skip_space(false);
      result.results = std::move(words);
      result.primitive = word();
      skip_space(false);
    } else if (words.size() == 1) {
      result.primitive = words[0];
    } else {
      fail("`=` is expected after the names of the results", "as in: i0, i1 = split(i, [None, 8])");
    }
    if (peek() != '(') fail("`(` is expected after " + result.primitive, "as in: parallel(i)");
    result.arguments = list('(', ')', 0);
    return result;
  }

  TraceList list(char, char close, int depth) {
    TraceList values;
    advance();
    skip_space(true);
    while (peek() != close) {
      if (at_end()) fail(std::string("`") + close + "` is missing", "close the bracket");
      values.push_back(value(depth + 1));
      skip_space(true);
      if (peek() == ',') {
        advance();
        skip_space(true);
      } else if (peek() != close && !at_end()) {
        fail("`,` is expected between arguments", "separate them by commas");
      }
    }
    advance();
    return values;
  }

  TraceValue value(int depth) {
    if (depth > 16) fail("lists are nested too deeply", "no primitive takes such lists");
    const char c = peek();
    if (c == '[') return {list('[', ']', depth)};
    if (c == '"') return {quoted_text()};
    if (c == '-' || c == '+' || std::isdigit(static_cast<unsigned char>(c))) return number();
    std::string name = word();
    if (name == "None") return {};
    return {TraceName{std::move(name)}};
  }

  std::string quoted_text() {
    std::string result;
    advance();
    while (peek() != '"') {
      if (at_end() || peek() == '\n') fail("the text is not closed", "add \"");
      if (peek() == '\\') {
        advance();
        if (at_end()) fail("the text is not closed", "add \"");
        result += peek() == 'n' ? '\n' : peek();
      } else {
        result += peek();
      }
      advance();
    }
    advance();
    return result;
  }

  TraceValue number() {
    const size_t start = place_;
    size_t end = place_;
    while (end < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[end])) || text_[end] == '.' ||
                                  text_[end] == '-' || text_[end] == '+'))
      ++end;
    const char *first = text_.data() + start + (text_[start] == '+'), *last = text_.data() + end;
    int64_t integer = 0;
    double real = 0;
    TraceValue result;
    if (const auto r = std::from_chars(first, last, integer); r.ec == std::errc() && r.ptr == last) {
      result = {integer};
    } else if (const auto f = std::from_chars(first, last, real); f.ec == std::errc() && f.ptr == last) {
      result = {real};
    } else {
      fail("this is no number", "write numbers as 8, -1 or 0.5");
    }
    while (place_ < end) advance();
    return result;
  }

  std::string_view text_;
  std::string file_;
  size_t place_ = 0, line_start_ = 0;
  int line_ = 1;
};

}  // namespace

std::string to_text(const Trace& trace) {
  std::string text;
  for (const Instruction& instruction : trace.instructions) {
    for (size_t i = 0; i < instruction.results.size(); ++i) text += (i ? ", " : "") + instruction.results[i];
    if (!instruction.results.empty()) text += " = ";
    text += instruction.primitive + "(";
    for (size_t i = 0; i < instruction.arguments.size(); ++i)
      text += (i ? ", " : "") + value_text(instruction.arguments[i]);
    text += ")\n";
  }
  return text;
}

Trace parse_trace(std::string_view text, const std::string& file) {
  if (text.size() > (size_t{16} << 20))
    throw Error(ErrorCode::text,
                "error[trace]: the text is longer than 16 MiB\n  help: traces have some dozens of lines");
  return TraceParser(text, file).parse();
}

}  // namespace tw
