#include "relay_ir/text/parser.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "relay_ir/op.h"
#include "tensor_ir/diagnostic.h"
#include "tensor_ir/text/parser_base.h"

namespace tw::relay {
namespace {

constexpr int64_t max_zero_filled_elements = 1 << 20;

class GraphParser : public ParserBase {
 public:
  GraphParser(std::string_view text, const std::string& file, const ConstantTable& constants)
      : ParserBase(text, file), constants_(constants) {}

  Graph run() {
    expect("graph", "at the beginning of a graph");
    graph_.name = expect_name("the graph's name").text;
    parse_body();
    if (token().kind != TokenKind::end) fail_expected("the end of the text: a file holds one graph");
    return std::move(graph_);
  }

 private:
  // From the symbols to the end.
  void parse_body() {
    if (accept("[")) {
      do {
        const Name name = expect_name("a symbol");
        expect(":", "before its bounds");
        const Var symbol = dimension(name.text, parse_bounds());
        if (!symbols_.emplace(name.text, symbol).second) fail(name.span, "the symbol stands twice in the list");
        graph_.symbols.push_back(symbol);
      } while (accept(","));
      expect("]", "after the symbols");
    }
    expect("(", "before the inputs");
    while (!at(")")) {
      parse_input();
      if (!accept(",")) break;
    }
    expect(")", "after the inputs");
    parse_equalities();
    expect("{", "before the body");
    while (!at("return")) parse_statement();
    parse_return();
    expect("}", "after the return");
  }

  // where n == m, n * 2 == k: before the body, or after a statement that reads numbers.
  void parse_equalities() {
    if (!accept("where")) return;
    do {
      const Expr a = parse_dimension();
      expect("==", "between what is equal");
      graph_.equalities.push_back({a, parse_dimension(), ""});
    } while (accept(","));
  }

  // x: f32[2], y = sequence(y0: f32[2], y1: f32[3]), or z = optional(); the last one may be state: u64[2] random.
  void parse_input() {
    const Name name = expect_name("an input's name");
    if (graph_.has_random_state) fail(name.span, "the random state is the last input");
    if (accept("=")) {
      ListInfo list{name.text, parse_list_kind(), static_cast<uint32_t>(graph_.inputs.size())};
      expect("(", "before its tensors");
      while (!at(")")) {
        if (!parse_keys(list)) parse_input();
        if (!accept(",")) break;
      }
      expect(")", "after its tensors");
      list.count = static_cast<uint32_t>(graph_.inputs.size()) - list.first;
      graph_.input_lists.push_back(list);
      return;
    }
    expect(":", "before the type");
    const TensorType type = parse_type();
    const ValueId id = define(name, graph_.add_value(name.text, type));
    graph_.values[id].channel_block = parse_layout();
    graph_.inputs.push_back(id);
    graph_.has_random_state = accept("random");
  }

  // words = ["a", "b"] or numbers = [1, 2]; false: what comes is something else.
  bool parse_keys(ListInfo& list) {
    if (!ahead().is("=") || (token().value != "words" && token().value != "numbers")) return false;
    const bool are_words = token().value == "words";
    advance(), advance();
    expect("[", "before the list");
    while (!at("]")) {
      if (are_words)
        list.words.push_back(parse_string());
      else
        list.numbers.push_back(parse_int());
      if (!accept(",")) break;
    }
    expect("]", "after the list");
    return true;
  }

  ListKind parse_list_kind() {
    const Name name = expect_name("a kind of list");
    for (const ListKind kind : {ListKind::sequence, ListKind::packed, ListKind::stacked, ListKind::optional,
                                ListKind::ragged, ListKind::text, ListKind::map})
      if (name.text == to_string(kind)) return kind;
    fail(name.span, "there is no list of this kind");
  }

  using Symbols = std::unordered_map<std::string, Var>;

  // A graph within a node, which knows the symbols around it and values of its own.  `numbers`: that the region before
  // it reads, then those that this one does; of one name they are one.
  Graph parse_region(Symbols& numbers) {
    const Nesting nesting(*this);
    expect("region", "before a graph within a node");
    Graph region;
    region.name = graph_.name;
    region.symbols = variables_of(graph_);
    region.equalities = graph_.equalities;
    std::unordered_map<std::string, ValueId> values;
    auto symbols = symbols_;
    auto before = std::exchange(before_, numbers), read = std::exchange(read_, {});
    std::swap(graph_, region);
    std::swap(values_, values);
    parse_body();
    std::swap(graph_, region);
    std::swap(values_, values);
    std::swap(symbols_, symbols);
    before_ = std::move(before);
    numbers = std::exchange(read_, std::move(read));
    return region;
  }

  ValueId define(const Name& name, ValueId id) {
    if (!values_.emplace(name.text, id).second) fail(name.span, "the name `" + name.text + "` is defined twice");
    graph_.rename_value(id, name.text);
    return id;
  }

  ValueId use() {
    const Name name = expect_name("a value's name");
    if (name.text == "_") return no_value;
    const auto found = values_.find(name.text);
    if (found == values_.end()) fail(name.span, "nothing is called `" + name.text + "` here");
    return found->second;
  }

  DType parse_dtype_word() {
    const Span span = token().span;
    const std::string word(token().text);
    const auto dtype = token().kind == TokenKind::name ? parse_element_type(word) : std::nullopt;
    if (!dtype) fail(span, "expected an element type, such as f32", "", "not one");
    advance();
    return *dtype;
  }

  // f32[1, n, 8].  Symbols are declared where they are first used.
  TensorType parse_type() {
    TensorType type{parse_dtype_word(), {}};
    expect("[", "before the dimensions");
    while (!at("]")) {
      const Span span = token().span;
      if (token().kind == TokenKind::name && (ahead().is(",") || ahead().is("]"))) {
        const Name name = expect_name("a dimension");
        auto [found, is_new] = symbols_.emplace(name.text, Var());
        if (is_new) graph_.symbols.push_back(found->second = Var(name.text));
        type.shape.push_back(found->second);
      } else {
        type.shape.push_back(parse_dimension());
        if (as_int(type.shape.back()).value_or(0) < 0) fail(span, "a dimension is not negative");
      }
      if (type.shape.size() > 32) fail(token().span, "more than 32 dimensions");
      if (!accept(",")) break;
    }
    expect("]", "after the dimensions");
    return type;
  }

  // The text of a result's type up to its end, for comparison: dimensions there may be expressions.
  std::string type_as_written() {
    std::string text = to_string(parse_dtype_word());
    expect("[", "before the dimensions");
    int depth = 1;
    for (text += "["; depth > 0; advance()) {
      if (token().kind == TokenKind::end) fail_expected("`]`");
      if (at("[")) ++depth;
      if (at("]")) --depth;
      text += token().text;
    }
    return text;
  }

  int64_t parse_layout() {
    if (!accept("in")) return 0;
    const Name name = expect_name("a layout, such as c16");
    int64_t block = 0;
    const char* end = name.text.data() + name.text.size();
    if (name.text.size() < 2 || name.text[0] != 'c' || std::from_chars(name.text.data() + 1, end, block).ptr != end ||
        block < 1 || block > 1024) {
      fail(name.span, "`" + name.text + "` is no layout", "c16: axis 1 in blocks of sixteen");
    }
    return block;
  }

  std::string number_text() {
    std::string text;
    if (accept("-")) text = "-";
    const bool is_word = token().kind == TokenKind::name && !token().is_quoted;
    if (token().kind != TokenKind::number && !(is_word && (at("inf") || at("nan") || at("true") || at("false")))) {
      fail_expected("a number");
    }
    if (token().kind == TokenKind::number && token().digits != token().text.size())
      fail_expected("a number without suffix");
    text += token().text;
    advance();
    return text;
  }

  int64_t parse_int() {
    const Span span = token().span;
    return to_int(number_text(), span);
  }
  int64_t to_int(const std::string& text, Span span) const {
    if (text == "true" || text == "false") return text == "true";
    int64_t value = 0;
    const char* end = text.data() + text.size();
    if (const auto [at, error] = std::from_chars(text.data(), end, value); error == std::errc() && at == end)
      return value;
    uint64_t large = 0;  // u64 beyond i64, by its bits
    if (const auto [at, error] = std::from_chars(text.data(), end, large); error == std::errc() && at == end) {
      return static_cast<int64_t>(large);
    }
    fail(span, "`" + text + "` is no integer");
  }
  static double to_float(const std::string& text) {
    if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (text == "inf" || text == "-inf") return text[0] == '-' ? -INFINITY : INFINITY;
    return std::strtod(text.c_str(), nullptr);
  }

  std::vector<std::pair<std::string, Span>> parse_numbers() {
    std::vector<std::pair<std::string, Span>> result;
    expect("[", "before the elements");
    while (!at("]")) {
      const Span span = token().span;
      result.emplace_back(number_text(), span);
      if (!accept(",")) break;
    }
    expect("]", "after the elements");
    return result;
  }

  // [1, 2]: i32[2], one number for all elements, or dense(`hash`): …
  NDArray parse_array() {
    const Span span = token().span;
    std::string hash;
    std::vector<std::pair<std::string, Span>> numbers;
    if (accept("dense")) {
      expect("(", "before the hash");
      hash = expect_name("the hash of a constant").text;
      expect(")", "after the hash");
    } else {
      numbers = parse_numbers();
    }
    expect(":", "before the type");
    const TensorType type = parse_type();
    const auto shape = static_shape(type);
    const DType dtype = type.dtype;
    if (!shape) fail(span, "a constant has no symbolic dimensions");
    if (!hash.empty()) {
      const auto found = constants_.find(hash);
      if (found == constants_.end()) fail(span, "the constant `" + hash + "` is not in the table beside the text");
      if (found->second.dtype() != dtype || found->second.shape() != *shape)
        fail(span, "the constant has another type");
      return found->second;
    }
    int64_t count = 1;
    for (const int64_t dim : *shape) {
      if (__builtin_mul_overflow(count, dim, &count) || count > max_zero_filled_elements) {
        fail(span, "a constant of that size is not written out");
      }
    }
    if (static_cast<int64_t>(numbers.size()) != count && numbers.size() != 1) {
      fail(span, std::to_string(numbers.size()) + " elements for a shape of " + std::to_string(count));
    }
    NDArray array(dtype, *shape);
    for (int64_t i = 0; i < count; ++i) {
      const auto& [text, where] = numbers[numbers.size() == 1 ? 0 : i];
      if (dtype.is_float() || dtype.is_minifloat()) {
        array.set_float(i, to_float(text));
      } else {
        array.set_int(i, to_int(text, where));
      }
    }
    return array;
  }

  void parse_statement() {
    if (at("where")) return parse_equalities();
    std::vector<Name> names;  // none of a node without results
    while (!ahead().is("(")) {
      names.push_back(expect_name("a result's name, or `return`"));
      if (accept("=")) break;
      expect(",", "between results, or `=` after them");
    }
    if (!names.empty() && accept("constant")) {
      NDArray array = parse_array();
      const ValueId id = define(names[0], graph_.add_constant(names[0].text, std::move(array)));
      graph_.values[id].channel_block = parse_layout();
      return;
    }
    const Name op_name = expect_name("an operator");
    const OpDef* op = find_op(op_name.text);
    if (!op) {
      std::vector<std::string> known;
      for (const OpDef* each : all_ops()) known.push_back(each->name);
      fail(op_name.span, "there is no operator `" + op_name.text + "`", suggest_name(op_name.text, known));
    }
    expect("(", "before the inputs");
    std::vector<ValueId> inputs;
    while (!at(")")) {
      inputs.push_back(use());
      if (!accept(",")) break;
    }
    expect(")", "after the inputs");
    NodeAttributes attributes;
    if (accept("{")) {
      while (!at("}")) {
        parse_attribute(*op, attributes);
        if (!accept(",")) break;
      }
      expect("}", "after the attributes");
    }
    const Span decided = token().span;
    const std::string decisions = accept("decided") ? parse_string() : "";
    const std::string node_name = accept("as")    ? expect_name("the node's name").text
                                  : names.empty() ? op->name
                                                  : names[0].text;
    struct Written {
      Span span;
      std::string type;
      int64_t layout;
    };
    std::vector<Written> types;
    if (accept(":")) {
      do {
        const Span span = token().span;
        std::string type = type_as_written();
        types.push_back({span, std::move(type), parse_layout()});
      } while (accept(","));
    }
    std::vector<Graph> regions;
    Symbols numbers;
    while (at("region")) regions.push_back(parse_region(numbers));
    if (regions.size() == 2) symbols_.insert(numbers.begin(), numbers.end());
    std::vector<ValueId> results;
    try {
      results = graph_.add_node(op->name, inputs, attributes, node_name, std::move(regions));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::shape) throw;
      fail(op_name.span, error.what());
    }
    try {
      graph_.nodes.back().decisions = parse_decisions(decisions);
      require_open(*op, graph_.nodes.back().decisions);
    } catch (const Error& error) {
      fail(decided, error.what());
    }
    if (results.size() != names.size()) {
      fail(op_name.span, "`" + op->name + "` has " + std::to_string(results.size()) + " results here, not " +
                             std::to_string(names.size()));
    }
    for (size_t i = 0; i < results.size(); ++i) {
      define(names[i], results[i]);
    }
    for (size_t i = 0; i < types.size(); ++i) {
      if (i == results.size()) fail(types[i].span, "there are as many types as results");
      const std::string inferred = to_string(graph_.values[results[i]].type);
      std::string compact;
      for (const char c : inferred) {
        if (c != ' ') compact += c;
      }
      if (types[i].type != compact) fail(types[i].span, "the result is " + inferred, "", "but this is written");
      graph_.values[results[i]].channel_block = types[i].layout;
    }
    if (!types.empty() && types.size() < results.size()) fail_expected("`,` and another type");
  }

  void parse_attribute(const OpDef& op, NodeAttributes& attributes) {
    const Name name = expect_name("an attribute");
    expect("=", "after the attribute's name");
    const AttributeDef* def = nullptr;
    for (const AttributeDef& each : op.attributes) {
      if (each.name == name.text) def = &each;
    }
    if (!def) fail(name.span, "`" + op.name + "` has no attribute `" + name.text + "`");
    const AttributeValue& like = def->default_value;
    if (std::holds_alternative<int64_t>(like)) {
      attributes.set(name.text, parse_int());
    } else if (std::holds_alternative<double>(like)) {
      attributes.set(name.text, to_float(number_text()));
    } else if (std::holds_alternative<std::string>(like)) {
      attributes.set(name.text, parse_string());
    } else if (std::holds_alternative<std::vector<Expr>>(like)) {
      std::vector<Expr> dims;
      expect("[", "before the dimensions");
      while (!at("]")) {
        dims.push_back(def->is_number ? parse_number() : parse_dimension());
        if (!accept(",")) break;
      }
      expect("]", "after the dimensions");
      attributes.set(name.text, dims);
    } else if (std::holds_alternative<std::vector<std::string>>(like)) {
      std::vector<std::string> list;
      expect("[", "before the strings");
      while (!at("]")) {
        list.push_back(parse_string());
        if (!accept(",")) break;
      }
      expect("]", "after the strings");
      attributes.set(name.text, list);
    } else {
      std::vector<int64_t> integers;
      for (const auto& [text, span] : parse_numbers()) integers.push_back(to_int(text, span));
      attributes.set(name.text, integers);
    }
  }

  // What a run says there: a variable that is new, with its bounds, or a dimension.
  Expr parse_number() {
    if (token().kind != TokenKind::name || symbols_.count(std::string(token().value))) {
      const Expr known = parse_dimension();
      if (accept(":")) parse_bounds();
      return known;
    }
    const Name name = expect_name("a symbol");
    const DimensionBounds bounds = accept(":") ? parse_bounds() : DimensionBounds{};
    const auto same = before_.find(name.text);
    const Var number = same == before_.end() ? dimension(name.text, bounds) : same->second;
    return symbols_[name.text] = read_[name.text] = number;
  }

  // A sum of products of numbers and symbols.
  Expr parse_dimension() {
    const Nesting nesting(*this);
    Expr sum = parse_product();
    while (at("+") || at("-")) sum = accept("+") ? sum + parse_product() : (expect("-", ""), sum - parse_product());
    return sum;
  }
  Expr parse_product() {
    Expr product = parse_factor();
    while (at("*") || at("//") || at("%")) {
      if (accept("*")) {
        product = product * parse_factor();
      } else if (accept("//")) {
        product = floor_div(product, parse_factor());
      } else {
        expect("%", "");
        product = floor_mod(product, parse_factor());
      }
    }
    return product;
  }
  Expr parse_factor() {
    if (accept("(")) {
      const Expr inner = parse_dimension();
      expect(")", "after the sum");
      return inner;
    }
    if (at("-") && ahead().kind != TokenKind::number) {
      advance();
      return -parse_factor();
    }
    if (token().kind == TokenKind::number || at("-")) return Expr(parse_int());
    if ((at("min") || at("max")) && ahead().is("(")) {
      const bool is_minimum = accept("min") || (expect("max", ""), false);
      expect("(", "before the first");
      const Expr a = parse_dimension();
      expect(",", "between the two");
      const Expr b = parse_dimension();
      expect(")", "after the second");
      return is_minimum ? min(a, b) : max(a, b);
    }
    const Name name = expect_name("a number or a symbol");
    const auto found = symbols_.find(name.text);
    if (found == symbols_.end()) fail(name.span, "no input has a dimension `" + name.text + "`");
    return found->second;
  }

  std::string parse_string() {
    if (token().kind != TokenKind::string) fail_expected("a string");
    std::string value = token().value;
    advance();
    return value;
  }

  // sequence(a, b), packed(x, sizes, axis = 0), stacked(x, axis = 0), ragged(x, shapes), optional(truth, x),
  // optional(truth, sequence(a)), text(codes, words = ["a"]), map(x, numbers = [1, 2]).
  void parse_list(const std::string& name) {
    ListInfo list{name, parse_list_kind(), static_cast<uint32_t>(graph_.outputs.size())};
    const size_t place = graph_.output_lists.size();
    graph_.output_lists.push_back(list);
    expect("(", "before its tensors");
    bool is_first = true;
    for (; !at(")"); is_first = false) {
      if (!is_first) expect(",", "between tensors");
      if (parse_keys(list)) continue;
      if (token().value == "axis" && ahead().is("=")) {
        advance(), advance();
        const int64_t axis = parse_int();
        list.axis = static_cast<uint32_t>(std::clamp<int64_t>(axis, 0, 64));
      } else if (list.kind == ListKind::optional && !is_first && ahead().is("(")) {
        parse_list(name);
      } else {
        const Span span = token().span;
        graph_.outputs.push_back(use());
        if (graph_.outputs.back() == no_value) fail(span, "an output is a value");
        graph_.output_names.push_back(name);
      }
    }
    expect(")", "after its tensors");
    list.count = static_cast<uint32_t>(graph_.outputs.size()) - list.first;
    graph_.output_lists[place] = list;
    const std::vector<std::string> names = tensor_names(name, list.kind, list.count);
    for (size_t i = 0; i < names.size() && i < list.count; ++i) graph_.output_names[list.first + i] = names[i];
  }

  void parse_return() {
    expect("return", "at the end of the body");
    bool is_renamed = false;
    do {
      const Span span = token().span;
      const std::string name = token().value;
      if (ahead().is("=")) {
        expect_name("an output's name");
        advance();
        is_renamed = true;
      }
      if (ahead().is("(")) {
        parse_list(name);
        continue;
      }
      const ValueId id = use();
      if (id == no_value) fail(span, "an output is a value");
      graph_.outputs.push_back(id);
      graph_.output_names.push_back(name);
    } while (accept(","));
    if (!is_renamed) graph_.output_names.clear();
  }

  const ConstantTable& constants_;
  Graph graph_;
  std::unordered_map<std::string, ValueId> values_;
  Symbols symbols_;
  Symbols before_, read_;  // numbers that items read: of the region before, and of this one
};

}  // namespace

Graph parse_graph(std::string_view text, const std::string& file, const ConstantTable& constants) {
  return GraphParser(text, file, constants).run();
}

}  // namespace tw::relay
