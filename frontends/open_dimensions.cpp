#include "frontends/open_dimensions.h"

#include <algorithm>

#include "tensor_ir/arith/region.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"
#include "tensor_ir/structural.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/text/syntax.h"

namespace tw::frontends {
namespace {

int64_t round_down(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

// Whether no dimension in it makes it smaller by being larger.
bool is_increasing(const Expr& e) {
  if (as_int(e) || e.as<VarNode>()) return true;
  const auto* binary = e.as<Binary>();
  if (!binary) return false;
  switch (binary->op) {
    case BinaryOp::add:
    case BinaryOp::min:
    case BinaryOp::max:
      return is_increasing(binary->a) && is_increasing(binary->b);
    case BinaryOp::mul:
      return is_increasing(binary->a) && is_increasing(binary->b) && can_prove(binary->a >= Expr(0)) &&
             can_prove(binary->b >= Expr(0));
    case BinaryOp::floor_div:
      return is_increasing(binary->a) && as_int(binary->b).value_or(0) > 0;
    default:
      return false;
  }
}

constexpr int64_t largest_tried = int64_t{1} << 20;  // no square of which overflows

// The least value of the one dimension in what grows with it that makes it as large as the number.
int64_t least_with(const Expr& e, const Var& var, int64_t number) {
  const DimensionBounds bounds = dimension_bounds(var);
  int64_t low = bounds.low, high = std::max(low, std::min(bounds.high, largest_tried) + 1);
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    const auto value = as_int(simplify(substitute(e, {{var, Expr(middle)}})));
    if (!value || *value >= number) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// What has to be 0 or less so that both are equal; empty: no such is known.
std::vector<Expr> not_positive(const Expr& a, const Expr& b) {
  // A minimum or maximum is one of its operands, than which the other is not smaller or not larger.
  std::vector<Binary> choices;
  for (const Expr& side : {a, b}) {
    visit(side, [&](const Binary& e) {
      if (e.op == BinaryOp::min || e.op == BinaryOp::max) choices.push_back(e);
    });
  }
  for (const Binary& choice : choices) {
    for (const auto& [taken, other] : {std::pair(choice.a, choice.b), std::pair(choice.b, choice.a)}) {
      const auto decided = [&, taken = taken](const Expr& side) {
        return rewrite_bottom_up(side, [&](const Binary& e) -> Expr {
          const bool is_choice =
              e.op == choice.op && structural_equal(e.a, choice.a) && structural_equal(e.b, choice.b);
          return is_choice ? taken : Expr();
        });
      };
      if (is_known_equal(decided(a), decided(b))) return {choice.op == BinaryOp::min ? taken - other : other - taken};
    }
  }
  // What grows with a dimension is a number.
  for (const auto& [e, other] : {std::pair(a, b), std::pair(b, a)}) {
    const auto number = as_int(other);
    const auto vars = free_vars(e);
    if (!number || vars.size() != 1 || !is_increasing(e)) continue;
    const Var& var = *vars.begin();
    const int64_t low = least_with(e, var, *number), high = least_with(e, var, *number + 1) - 1;
    if (low > high) continue;
    std::vector<Expr> bounds{Expr(low) - var};
    if (high < largest_tried) bounds.push_back(var - Expr(high));  // else it may stay the number
    return bounds;
  }
  return {};
}

}  // namespace

// One entry a name: what it is called, as a variable: letters, digits and underscores.
Expr OpenDimensions::value_of(const std::string& wanted, DimensionBounds bounds, Source source,
                              std::vector<Var>& symbols) {
  auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.wanted == wanted; });
  if (found == entries_.end()) {
    std::string name;
    for (const char c : wanted) name += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) name = "n" + name;
    const auto is_taken = [&](const Entry& e) { return e.var.name() == name; };
    while (std::any_of(entries_.begin(), entries_.end(), is_taken)) name += "_";
    found = entries_.insert(entries_.end(), {wanted, source, tw::dimension(name, bounds), Expr(), ""});
  }
  const Expr value = found->value.is_defined() ? found->value : Expr(found->var);
  for (const Var& var : free_vars(value)) {
    if (std::find(symbols.begin(), symbols.end(), var) == symbols.end()) symbols.push_back(var);
  }
  return value;
}

Expr OpenDimensions::number(const std::string& wanted, DimensionBounds bounds) {
  std::vector<Var> used;  // what it is made of is known where it is read
  return value_of(wanted, bounds, Source::run, used);
}

size_t OpenDimensions::last_read(const Expr& e) {
  size_t last = 0;
  for (const Var& var : free_vars(e)) {
    const Entry* entry = find(var);
    if (entry && entry->source == Source::run) last = std::max<size_t>(last, entry - entries_.data() + 1);
  }
  return last;
}

OpenDimensions::Entry* OpenDimensions::find(const Var& var) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.var == var; });
  return found == entries_.end() ? nullptr : &*found;
}

bool OpenDimensions::is_of_dimensions(const Expr& e) const {
  const auto vars = free_vars(e);
  return std::all_of(vars.begin(), vars.end(), [&](const Var& var) {
    return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.var == var; });
  });
}

void OpenDimensions::replace(const Var& var, const Expr& by) {
  for (Entry& entry : entries_) {
    if (entry.value.is_defined()) entry.value = simplify(substitute(entry.value, {{var, by}}));
  }
  for (auto& [branch, equalities] : equalities_) {
    for (Equality& equality : equalities) {
      equality.a = simplify(substitute(equality.a, {{var, by}}));
      equality.b = simplify(substitute(equality.b, {{var, by}}));
    }
  }
}

// e ≤ 0 bounds the one variable that it is a multiple of, and a number.
bool OpenDimensions::hold_to(const Expr& condition, const std::string& node) {
  const Expr e = simplify(condition);
  for (const auto& [atom, factor] : linear_form(e).terms) {
    const auto* term = atom.as<Binary>();
    if (!term) continue;
    const Expr rest = e - atom * factor;
    // Of the larger of two, both are.
    if (term->op == (factor > 0 ? BinaryOp::max : BinaryOp::min)) {
      const bool is_new = hold_to(rest + term->a * factor, node);
      return hold_to(rest + term->b * factor, node) || is_new;
    }
    // x // c ≤ k where x ≤ c·k + c - 1, and x // c ≥ k where x ≥ c·k.
    const auto number = as_int(simplify(rest)), divisor = as_int(term->b);
    if (term->op != BinaryOp::floor_div || !number || !divisor || *divisor < 1) continue;
    if (factor > 0) return hold_to(term->a - Expr(round_down(-*number, factor) * *divisor + *divisor - 1), node);
    return hold_to(Expr(-round_down(-*number, -factor) * *divisor) - term->a, node);
  }
  const auto sum = as_affine(e);
  Entry* entry = sum && sum->terms.size() == 1 ? find(sum->terms[0].first) : nullptr;
  if (!entry) return false;
  const int64_t factor = sum->terms[0].second;
  DimensionBounds bounds = dimension_bounds(entry->var);
  if (factor > 0) bounds.high = std::min(bounds.high, round_down(-sum->constant, factor));
  if (factor < 0) bounds.low = std::max(bounds.low, -round_down(-sum->constant, -factor));
  if (bounds.low > bounds.high || bounds == dimension_bounds(entry->var)) return false;
  const Var narrowed = tw::dimension(entry->var.name(), bounds, node);
  replace(entry->var, narrowed);
  entry->var = narrowed;
  entry->node = node;
  return true;
}

bool OpenDimensions::hold_to_one(const std::vector<Expr>& of_node, const std::string& node) {
  const auto hold = [&](const auto& is_meant) {
    std::vector<Expr> conditions;
    for (const Entry& entry : entries_) {
      const bool may_be_0 = entry.source == Source::inputs && !entry.value.is_defined();
      if (may_be_0 && dimension_bounds(entry.var).low == 0 && is_meant(entry.var))
        conditions.push_back(Expr(1) - entry.var);
    }
    bool is_new = false;
    for (const Expr& condition : conditions) is_new = hold_to(condition, node) || is_new;
    return is_new;
  };
  const auto is_of_node = [&](const Var& var) {
    return std::any_of(of_node.begin(), of_node.end(), [&](const Expr& e) { return uses_var(e, var); });
  };
  return hold(is_of_node) || hold([](const Var&) { return true; });
}

// The dimension is this.
bool OpenDimensions::set(const Var& var, const Expr& value, const std::string& node) {
  Entry* entry = find(var);
  const DimensionBounds bounds = dimension_bounds(var);
  const bool is_within = can_prove(value >= Expr(bounds.low)) &&
                         (bounds.high == DimensionBounds{}.high || can_prove(value <= Expr(bounds.high)));
  if (!entry || entry->value.is_defined() || !is_within) return false;
  const size_t own = entry->source == Source::inputs ? 0 : static_cast<size_t>(entry - entries_.data());
  if (last_read(value) > own) return false;  // it is there first
  replace(var, value);
  entry->value = value;
  entry->node = node;
  return true;
}

OpenDimensions::Learned OpenDimensions::learn(const UnprovenDimensions& unproven, const std::string& node,
                                              const std::string& branch) {
  const Expr a = simplify(unproven.a), b = simplify(unproven.b);
  const auto relies_on = [&](const Expr& x, const Expr& y) {
    return relay::rely_on(x, y, node, equalities_[branch]) ? Learned::equality : Learned::nothing;
  };
  if (unproven.relation == UnprovenDimensions::Relation::at_most) {
    const bool is_held = branch.empty() && hold_to(a - b, node);
    return is_held ? Learned::dimension : relies_on(simplify(min(a, b)), a);
  }
  // What is known first stays, else what is shorter.
  const size_t read_a = last_read(a), read_b = last_read(b);
  const bool is_shorter = read_a != read_b ? read_a < read_b : to_text(a).size() < to_text(b).size();
  const auto relies_on_both = [&] { return relies_on(is_shorter ? b : a, is_shorter ? a : b); };
  if (!branch.empty()) return relies_on_both();
  if (const auto sum = as_affine(simplify(a - b))) {
    // factor·var + rest = 0; of several the one that came last, so that what inputs share is called as in the first.
    for (size_t i = entries_.size(); i-- > 0;) {
      const int64_t factor = sum->coefficient(entries_[i].var);
      if (factor == 0) continue;
      const Expr rest = simplify(a - b - entries_[i].var * factor);
      const auto number = as_int(rest);
      if (number ? *number % factor != 0 : factor != 1 && factor != -1) continue;
      if (set(entries_[i].var, number ? Expr(-*number / factor) : simplify(rest * -factor), node))
        return Learned::dimension;
    }
  }
  bool is_held = false;
  for (const Expr& e : not_positive(a, b)) is_held = hold_to(e, node) || is_held;
  return is_held ? Learned::dimension : relies_on_both();
}

std::string OpenDimensions::demanded_by(const std::string& wanted) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.wanted == wanted; });
  return found == entries_.end() ? "" : found->node;
}

std::vector<std::string> OpenDimensions::demands() const {
  std::vector<std::string> lines;
  for (const Entry& entry : entries_) {
    if (entry.node.empty()) continue;
    lines.push_back(in_quotes(entry.wanted) +
                    (entry.value.is_defined() ? " = " + to_text(entry.value)
                                              : syntax::bounds_text(dimension_bounds(entry.var)).replace(0, 1, " is")) +
                    ", as " + entry.node + " demands");
  }
  for (const auto& [branch, equalities] : equalities_) {
    const std::string where = branch.empty() ? "" : "where `" + branch + "` is taken: ";
    for (const Equality& equal : equalities)
      lines.push_back(where + to_string(equal) + ", as " + equal.demanded_by + " demands");
  }
  return lines;
}

namespace {

// What was demanded of numbers that no node reads any more, since it is known by now what they are.
void forget_unread(Graph& graph, std::vector<Var> known) {
  const std::vector<Var> own = variables_of(graph);
  known.insert(known.end(), own.begin(), own.end());
  std::erase_if(graph.equalities, [&](const Equality& equal) {
    return !relay::is_made_of(equal.a, known) || !relay::is_made_of(equal.b, known);
  });
  for (relay::Node& node : graph.nodes)
    for (Graph& region : node.regions) forget_unread(region, known);
}

}  // namespace

Import with_open_dimensions(const std::function<Import(OpenDimensions&)>& read) {
  // Each round learns of one dimension or equality; bounds that shrink by one a round would take for ever.
  constexpr int most_rounds = 256;
  OpenDimensions dimensions;
  for (int round = 0; round < most_rounds; ++round) {
    try {
      Import import = read(dimensions);
      import.dimensions = nullptr;
      forget_unread(import.graph, {});
      import.demands = dimensions.demands();
      return import;
    } catch (const BeginAnew&) {
    }
  }
  throw Error(ErrorCode::limit, "the model demands more than " + std::to_string(most_rounds) +
                                    " things of its open dimensions\n  help: fix some of them with shapes=");
}

}  // namespace tw::frontends
