// [batch, seq] with batch=1, seq=8..64   ⇒   [1, seq] where 8 ≤ seq ≤ 64
#include "relay_ir/compile/profile.h"

#include <algorithm>

#include "relay_ir/op.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"
#include "tensor_ir/text/printer.h"

namespace tw::relay {
namespace {

constexpr int64_t no_end = DimensionBounds{}.high;

// A size is at least 1 where nobody says that it may be 0.
DimensionBounds sizes_of(const Var& symbol) {
  DimensionBounds bounds = dimension_bounds(symbol);
  if (bounds.low < 0) bounds.low = 1;
  return bounds;
}

// What a dimension is usually: by its place in the model's inputs a batch of one, a side of an image, or a length of a
// text.
std::optional<int64_t> usual_size(const Graph& model, const Var& symbol) {
  constexpr int64_t side = 224, length = 128;
  for (const ValueId input : model.inputs) {
    const std::vector<Expr>& shape = model.values[input].type.shape;
    const auto found = std::find_if(shape.begin(), shape.end(), [&](const Expr& dim) { return dim.is_same(symbol); });
    if (found == shape.end()) continue;
    const bool is_batch = found == shape.begin() && shape.size() > 1;
    return is_batch ? 1 : shape.size() >= 4 ? side : length;
  }
  return std::nullopt;
}

// The model's symbol for these of its sizes that have an element, of which nobody may say which is typical.
Var from_one(const Graph& model, const Var& symbol, DimensionBounds sizes, std::optional<int64_t> typical) {
  if (sizes.low == 0) sizes.low = 1;
  if (const auto usual = typical ? std::nullopt : usual_size(model, symbol))
    typical = std::clamp<int64_t>(*usual, std::max<int64_t>(sizes.low, 1), sizes.high);
  return dimension(symbol.name(), sizes, bounds_demanded_by(symbol), typical);
}

std::string text_of(int64_t low, int64_t high) {
  if (low == high) return std::to_string(low);
  return std::to_string(low) + ".." + (high == no_end ? "" : std::to_string(high));
}

// Holds the model's dimensions to a profile.
class Specialiser {
 public:
  Specialiser(const Graph& model, const Profile& profile, bool others_may_be_empty) : model_(model), profile_(profile) {
    for (const Var& symbol : model.symbols)
      values_[symbol] =
          others_may_be_empty ? symbol : from_one(model, symbol, dimension_bounds(symbol), typical_size(*symbol.get()));
    for (const Var& symbol : model.symbols)
      if (const auto wanted = profile.find(symbol.name()); wanted != profile.end()) hold(symbol, wanted->second);
  }

  void require_known_dimensions() const {
    std::string known;
    for (const Var& symbol : model_.symbols) {
      const auto [low, high] = sizes_of(symbol);
      known += (known.empty() ? "`" : ", `") + symbol.name() + "` " + text_of(low, high);
    }
    if (known.empty())
      refuse("the model has no open dimensions",
             "leave profiles out, or open dimensions with shapes={\"x\": (\"batch\", …)}");
    if (profile_.empty()) refuse("it names no dimension", "the model's open dimensions are " + known);
    for (const auto& [name, sizes] : profile_) {
      const auto is_named = [&name = name](const Var& symbol) { return symbol.name() == name; };
      if (std::none_of(model_.symbols.begin(), model_.symbols.end(), is_named))
        refuse("the model has no open dimension `" + name + "`", "its open dimensions are " + known);
    }
  }

  void follow_equalities() {
    while (follow_equality()) {
    }
  }

  SpecialGraph finish() const {
    SpecialGraph result{model_, {}};
    Graph& graph = result.graph;
    graph.symbols.clear();
    for (const Var& symbol : model_.symbols) {
      const Expr& value = values_.at(symbol);
      const auto number = as_int(value);
      result.sizes.push_back(number ? DimensionBounds{*number, *number} : sizes_of(Var::of(value)));
      if (!number) graph.symbols.push_back(Var::of(value));
    }
    replace_all(graph);
    return result;
  }

 private:
  // In the graph and those within it.
  void replace_all(Graph& graph) const {
    for (Equality& equal : graph.equalities) equal.a = value_of(equal.a), equal.b = value_of(equal.b);
    std::erase_if(graph.equalities, [](const Equality& equal) { return is_known_equal(equal.a, equal.b); });
    for (Value& value : graph.values) replace(value.type.shape);
    for (Node& node : graph.nodes) {
      const NodeAttributes attributes = node.attributes;
      for (const auto& [name, attribute] : attributes.all()) {
        if (!std::holds_alternative<std::vector<Expr>>(attribute)) continue;
        std::vector<Expr> dims = attributes.get_dims(name);
        replace(dims);
        // Beside a 0 nobody can infer what is left.
        const auto has = [&](int64_t n) {
          return std::any_of(dims.begin(), dims.end(), [&](const Expr& e) { return is_const_int(e, n); });
        };
        if (node.op->kind == OpKind::view && has(-1) && has(0)) dims = graph.values[node.outputs[0]].type.shape;
        node.attributes.set(name, std::move(dims));
      }
      for (Graph& region : node.regions) {
        std::vector<Var> symbols = graph.symbols;
        for (const Var& symbol : region.symbols)
          if (!values_.count(symbol) && std::find(symbols.begin(), symbols.end(), symbol) == symbols.end())
            symbols.push_back(symbol);
        region.symbols = std::move(symbols);
        replace_all(region);
      }
    }
  }

  [[noreturn]] void refuse(const std::string& problem, const std::string& help) const {
    throw Error(ErrorCode::shape, "profile {" + to_string(profile_) + "}: " + problem + "\n  help: " + help);
  }

  void hold(const Var& symbol, const SizeRange& wanted) {
    const auto [low, high, typical] = wanted;
    const std::string name = "`" + symbol.name() + "`";
    const DimensionBounds sizes = sizes_of(symbol);
    if (low > high || typical.value_or(low) < low || typical.value_or(high) > high)
      refuse(name + " is " + std::to_string(low) + (typical ? ".." + std::to_string(*typical) : "") + ".." +
                 std::to_string(high),
             "write the smallest size first and the largest last");
    if (low < sizes.low || high > sizes.high) {
      const std::string& by = bounds_demanded_by(symbol);
      refuse(
          "sizes of " + name + " are " + text_of(sizes.low, sizes.high) + (by.empty() ? "" : ", as " + by + " demands"),
          by.empty() ? "choose others, or open it further with shapes=" : "choose others");
    }
    values_[symbol] = low == high ? Expr(low) : Expr(from_one(model_, symbol, {low, high}, typical));
  }

  Expr value_of(const Expr& e) const { return as_int(e) ? e : simplify(substitute(e, values_)); }
  void replace(std::vector<Expr>& dims) const {
    for (Expr& dim : dims) dim = value_of(dim);
  }

  // …of the model, and no number that a run reads.
  bool is_symbol(const Var& var) const {
    return std::any_of(values_.begin(), values_.end(), [&](const auto& entry) { return entry.second.is_same(var); });
  }

  // Whether one of them says a size.
  bool follow_equality() {
    for (const Equality& equal : model_.equalities) {
      const Expr difference = value_of(equal.a - equal.b);
      const Interval range = bounds_of(difference);
      if (range.low.value_or(0) > 0 || range.high.value_or(0) < 0) refuse(equal);
      const auto sum = as_affine(difference);
      if (!sum || sum->terms.size() != 1) continue;
      const auto& [var, factor] = sum->terms[0];
      if (!is_symbol(var)) continue;
      const int64_t size = -sum->constant / factor;
      const DimensionBounds sizes = sizes_of(var);
      if (size * factor != -sum->constant || size < sizes.low || size > sizes.high) refuse(equal);
      for (auto& [symbol, value] : values_)
        if (value.is_same(var)) value = Expr(size);
      return true;
    }
    return false;
  }

  [[noreturn]] void refuse(const Equality& equal) const {
    refuse("`" + to_text(equal.a) + "` and `" + to_text(equal.b) + "` are not equal there" +
               (equal.demanded_by.empty() ? "" : ", as " + equal.demanded_by + " demands"),
           "choose other sizes");
  }

  const Graph& model_;
  const Profile profile_;
  Substitution values_;  // of each symbol of the model: a number or a dimension
};

}  // namespace

std::string to_string(const Profile& profile) {
  std::string text;
  for (const auto& [name, sizes] : profile)
    text += (text.empty() ? "" : ", ") + name + "=" + text_of(sizes.low, sizes.high);
  return text;
}

SpecialGraph specialise(const Graph& model, const Profile& profile, bool others_may_be_empty) {
  Specialiser specialiser(model, profile, others_may_be_empty);
  specialiser.require_known_dimensions();
  specialiser.follow_equalities();
  return specialiser.finish();
}

Graph with_elements(const Graph& model) {
  return Specialiser(model, {}, false).finish().graph;
}

bool may_be_empty(const Var& symbol) {
  return dimension_bounds(symbol).low == 0;
}

}  // namespace tw::relay
