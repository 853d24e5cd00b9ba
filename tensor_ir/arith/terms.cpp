// The table of terms, and the making of scalar ones by rows and ranges.
#include <algorithm>
#include <bit>

#include "tensor_ir/arith/simplifier.h"

namespace tw::arith {
namespace {

uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdu;
}

uint64_t bits_of(DType dtype) {
  return static_cast<uint64_t>(dtype.kind) | static_cast<uint64_t>(dtype.bits) << 8 |
         static_cast<uint64_t>(dtype.lanes) << 16;
}

uint64_t hash_of(NodeKind kind, uint16_t op, DType dtype, uint64_t extra, std::span<const TermId> children) {
  uint64_t h = mix(static_cast<uint64_t>(kind) << 16 | op, bits_of(dtype));
  h = mix(h, extra);
  for (const TermId child : children) h = mix(h, static_cast<uint64_t>(child));
  h ^= h >> 29;
  return h | 1;
}

uint64_t hash_of(const Linear& sum) {
  uint64_t h = mix(0, static_cast<uint64_t>(sum.constant));
  for (const auto& [atom, factor] : sum.terms)
    h = mix(mix(h, static_cast<uint64_t>(atom)), static_cast<uint64_t>(factor));
  return h;
}

// Sums are rebuilt from their linear form; an input that already looks so is kept.
bool is_same_sum(const Expr& a, const Expr& b) {
  if (a.is_same(b)) return true;
  if (a.kind() != b.kind() || a.dtype() != b.dtype()) return false;
  if (const auto* x = a.as<IntImm>()) return x->value == b.as<IntImm>()->value;
  if (const auto* x = a.as<Unary>()) return x->op == b.as<Unary>()->op && is_same_sum(x->a, b.as<Unary>()->a);
  const auto* x = a.as<Binary>();
  const auto* y = b.as<Binary>();
  return x && x->op == y->op && is_same_sum(x->a, y->a) && is_same_sum(x->b, y->b);
}

// Rows with every order of commutative operands, by the operator of their root.
struct Variant {
  const Row* row;
  Pattern before;
};

std::vector<Pattern> orders_of(const Pattern& p) {
  if (p->children.empty()) return {p};
  std::vector<std::vector<Pattern>> lists{{}};
  for (const Pattern& child : p->children) {
    std::vector<std::vector<Pattern>> longer;
    for (const Pattern& order : orders_of(child)) {
      for (const auto& list : lists) {
        longer.push_back(list);
        longer.back().push_back(order);
      }
    }
    lists = std::move(longer);
  }
  std::vector<Pattern> result;
  for (auto& list : lists) {
    PatternNode node = *p;
    node.children = list;
    result.push_back(std::make_shared<const PatternNode>(node));
    if (p->kind == PatternKind::binary && is_commutative(p->binary_op)) {
      std::swap(node.children[0], node.children[1]);
      result.push_back(std::make_shared<const PatternNode>(node));
    }
  }
  return result;
}

std::span<const Variant> variants_of(NodeKind kind, uint16_t op) {
  static const auto table = [] {
    std::array<std::vector<Variant>, 64> lists;
    for (const Row& row : rewrite_rows()) {
      size_t index = 0;
      switch (row.before->kind) {
        case PatternKind::unary:
          index = 32 + static_cast<size_t>(row.before->unary_op);
          break;
        case PatternKind::binary:
          index = static_cast<size_t>(row.before->binary_op);
          break;
        default:
          index = 40;
          break;
      }
      for (Pattern& order : orders_of(row.before)) lists[index].push_back({&row, std::move(order)});
    }
    return lists;
  }();
  switch (kind) {
    case NodeKind::Unary:
      return table[32 + op];
    case NodeKind::Binary:
      return table[op];
    case NodeKind::Select:
      return table[40];
    default:
      return {};
  }
}

Types type_class(DType dtype) {
  return dtype.is_float() ? floats : dtype.is_bool() ? bools : integers;
}

}  // namespace

// ---------------------------------------------------------------------------------------------------------------
// The table

TermId Simplifier::find(NodeKind kind, uint16_t op, DType dtype, uint64_t extra,
                        std::span<const TermId> children) const {
  if (slots_.empty()) return -1;
  const uint64_t hash = hash_of(kind, op, dtype, extra, children);
  const size_t mask = slots_.size() - 1;
  for (size_t i = hash & mask; slots_[i] >= 0; i = (i + 1) & mask) {
    const TermId id = slots_[i];
    if (hashes_[id] != hash) continue;
    const Term& term = terms_[id];
    if (term.kind == kind && term.op == op && term.dtype == dtype && term.extra == extra && term.linear < 0 &&
        std::equal(children.begin(), children.end(), term.children.begin(), term.children.end())) {
      return id;
    }
  }
  return -1;
}

TermId Simplifier::intern(NodeKind kind, uint16_t op, DType dtype, uint64_t extra, std::vector<TermId> children,
                          const Expr* hint) {
  if (const TermId found = find(kind, op, dtype, extra, children); found >= 0) return found;
  if ((terms_.size() + 1) * 2 > slots_.size()) {
    slots_.assign(std::max<size_t>(64, slots_.size() * 4), -1);
    for (size_t id = 0; id < terms_.size(); ++id) {
      if (terms_[id].linear >= 0) continue;
      size_t i = hashes_[id] & (slots_.size() - 1);
      while (slots_[i] >= 0) i = (i + 1) & (slots_.size() - 1);
      slots_[i] = static_cast<TermId>(id);
    }
  }
  const uint64_t hash = hash_of(kind, op, dtype, extra, children);
  size_t i = hash & (slots_.size() - 1);
  while (slots_[i] >= 0) i = (i + 1) & (slots_.size() - 1);
  const auto id = static_cast<TermId>(terms_.size());
  slots_[i] = id;
  hashes_.push_back(hash);
  Term term{{}, kind, op, dtype, extra, std::move(children)};
  term.has_load = kind == NodeKind::Load;
  for (const TermId child : term.children) term.has_load |= child >= 0 && terms_[child].has_load;
  // The hint stands for the term when it has the same operands.
  bool keeps_hint = false;
  if (hint && hint->kind() == kind && hint->dtype() == dtype) {
    auto is_child = [&](size_t index, const Expr& e) {
      return index < term.children.size() && terms_[term.children[index]].expr.is_same(e);
    };
    switch (kind) {
      case NodeKind::IntImm:
      case NodeKind::FloatImm:
      case NodeKind::Var:
        keeps_hint = true;
        break;
      case NodeKind::Unary:
        keeps_hint = is_child(0, hint->as<Unary>()->a);
        break;
      case NodeKind::Binary: {
        const auto* b = hint->as<Binary>();
        keeps_hint =
            static_cast<uint16_t>(b->op) == op && term.children.size() == 2 && is_child(0, b->a) && is_child(1, b->b);
        break;
      }
      case NodeKind::Cast:
        keeps_hint = is_child(0, hint->as<Cast>()->value);
        break;
      case NodeKind::Broadcast:
        keeps_hint = is_child(0, hint->as<Broadcast>()->value);
        break;
      case NodeKind::Ramp:
        keeps_hint = is_child(0, hint->as<Ramp>()->base) && is_child(1, hint->as<Ramp>()->stride);
        break;
      case NodeKind::Select: {
        const auto* s = hint->as<Select>();
        keeps_hint = is_child(0, s->condition) && is_child(1, s->then_value) && is_child(2, s->else_value);
        break;
      }
      case NodeKind::VectorReduce:
        keeps_hint = is_child(0, hint->as<VectorReduce>()->value);
        break;
      default:
        break;  // Load, Call, Let: their makers look themselves
    }
  }
  if (keeps_hint)
    term.expr = *hint;
  else if (kind != NodeKind::Load && kind != NodeKind::Call && kind != NodeKind::Let)
    term.expr = build(term);
  terms_.push_back(std::move(term));
  return id;
}

Expr Simplifier::build(const Term& term) const {
  auto child = [&](size_t i) -> const Expr& { return terms_[term.children[i]].expr; };
  switch (term.kind) {
    case NodeKind::IntImm:
      return make_expr<IntImm>(term.dtype, static_cast<int64_t>(term.extra));
    case NodeKind::FloatImm:
      return make_expr<FloatImm>(term.dtype, std::bit_cast<double>(term.extra));
    case NodeKind::Unary:
      return make_expr<Unary>(term.dtype, static_cast<UnaryOp>(term.op), child(0));
    case NodeKind::Binary: {
      Expr result = child(0);
      for (size_t i = 1; i < term.children.size(); ++i) {
        result = make_expr<Binary>(term.dtype, static_cast<BinaryOp>(term.op), std::move(result), child(i));
      }
      return result;
    }
    case NodeKind::Cast:
      return make_expr<Cast>(term.dtype, child(0));
    case NodeKind::Broadcast:
      return make_expr<Broadcast>(term.dtype, child(0));
    case NodeKind::Ramp:
      return make_expr<Ramp>(term.dtype, child(0), child(1));
    case NodeKind::Select:
      return make_expr<Select>(term.dtype, child(0), child(1), child(2));
    case NodeKind::VectorReduce:
      return make_expr<VectorReduce>(term.dtype, static_cast<BinaryOp>(term.op), child(0));
    default:
      internal_error("Simplifier::build: a node made elsewhere");
  }
}

TermId Simplifier::intern_linear(Linear sum, const Expr* hint) {
  auto& bucket = linear_index_[hash_of(sum)];
  for (const TermId id : bucket) {
    const Linear& other = linears_[terms_[id].linear];
    if (other.constant == sum.constant && other.terms == sum.terms) return id;
  }
  // Positive terms first, then what is taken off: i*16 + j - k - 3.
  Expr result;
  auto append = [&](BinaryOp op, Expr e) {
    result = result.is_defined() ? make_expr<Binary>(i64, op, std::move(result), std::move(e)) : std::move(e);
  };
  auto product = [&](const Expr& e, int64_t factor) {
    return factor == 1 ? e : make_expr<Binary>(i64, BinaryOp::mul, e, Expr(factor));
  };
  for (const auto& [atom, factor] : sum.terms) {
    if (factor > 0) append(BinaryOp::add, product(terms_[atom].expr, factor));
  }
  const bool constant_first = !result.is_defined() && sum.constant != 0;
  if (constant_first) result = Expr(sum.constant);
  for (const auto& [atom, factor] : sum.terms) {
    if (factor > 0) continue;
    const bool is_least = factor == minus_infinity;
    if (!result.is_defined()) {
      result =
          factor == -1 ? make_expr<Unary>(i64, UnaryOp::negate, terms_[atom].expr) : product(terms_[atom].expr, factor);
    } else if (is_least) {
      append(BinaryOp::add, product(terms_[atom].expr, factor));
    } else {
      append(BinaryOp::sub, product(terms_[atom].expr, -factor));
    }
  }
  if (sum.constant != 0 && !constant_first) {
    if (sum.constant > 0 || sum.constant == minus_infinity)
      append(BinaryOp::add, Expr(sum.constant));
    else
      append(BinaryOp::sub, Expr(-sum.constant));
  }
  Term term{hint && is_same_sum(*hint, result) ? *hint : result,
            NodeKind::Binary,
            static_cast<uint16_t>(BinaryOp::add),
            i64,
            0,
            {}};
  term.linear = static_cast<int32_t>(linears_.size());
  for (const auto& [atom, factor] : sum.terms) term.has_load |= terms_[atom].has_load;
  const auto id = static_cast<TermId>(terms_.size());
  linears_.push_back(std::move(sum));
  terms_.push_back(std::move(term));
  hashes_.push_back(0);
  bucket.push_back(id);
  return id;
}

TermId Simplifier::constant(DType dtype, int64_t value) {
  const Expr e = int_imm(dtype.element(), value);
  const TermId scalar =
      intern(NodeKind::IntImm, 0, dtype.element(), static_cast<uint64_t>(e.as<IntImm>()->value), {}, &e);
  return dtype.is_vector() ? make_broadcast(scalar, dtype.lanes) : scalar;
}

TermId Simplifier::constant(DType dtype, double value) {
  const Expr e = float_imm(dtype.element(), value);
  const TermId scalar =
      intern(NodeKind::FloatImm, 0, dtype.element(), std::bit_cast<uint64_t>(e.as<FloatImm>()->value), {}, &e);
  return dtype.is_vector() ? make_broadcast(scalar, dtype.lanes) : scalar;
}

TermId Simplifier::truth(bool value, int lanes) {
  return constant(boolean.with_lanes(lanes), int64_t{value});
}

std::optional<int64_t> Simplifier::int_value(TermId id) const {
  const Term* term = &terms_[id];
  if (term->kind == NodeKind::Broadcast) term = &terms_[term->children[0]];
  if (term->kind == NodeKind::IntImm) return static_cast<int64_t>(term->extra);
  return std::nullopt;
}

std::optional<double> Simplifier::float_value(TermId id) const {
  const Term* term = &terms_[id];
  if (term->kind == NodeKind::Broadcast) term = &terms_[term->children[0]];
  if (term->kind == NodeKind::FloatImm) return std::bit_cast<double>(term->extra);
  return std::nullopt;
}

// ---------------------------------------------------------------------------------------------------------------
// Rows

bool Simplifier::match(const PatternNode& pattern, TermId id, Types types,
                       std::array<TermId, pattern_slots>& slots) const {
  const Term& term = terms_[id];
  auto bind_slot = [&] {
    TermId& slot = slots[pattern.slot];
    if (slot < 0) slot = id;
    return slot == id;
  };
  auto match_children = [&](NodeKind kind, uint16_t op) {
    if (term.kind != kind || term.op != op || term.linear >= 0 || term.children.size() != pattern.children.size()) {
      return false;
    }
    for (size_t i = 0; i < pattern.children.size(); ++i) {
      if (!match(*pattern.children[i], term.children[i], types, slots)) return false;
    }
    return true;
  };
  switch (pattern.kind) {
    case PatternKind::value:
      return (type_class(term.dtype) & types) && bind_slot();
    case PatternKind::constant:
      return (type_class(term.dtype) & types) && int_value(id) && bind_slot();
    case PatternKind::condition:
      return term.dtype.is_bool() && bind_slot();
    case PatternKind::integer:
      if (term.dtype.is_float()) {
        const auto value = float_value(id);
        return (types & floats) && value && std::bit_cast<uint64_t>(*value) == std::bit_cast<uint64_t>(pattern.literal);
      }
      return (types & type_class(term.dtype)) && int_value(id) == static_cast<int64_t>(pattern.literal);
    case PatternKind::truth:
      return term.dtype.is_bool() && int_value(id) == static_cast<int64_t>(pattern.literal);
    case PatternKind::unary:
      return match_children(NodeKind::Unary, static_cast<uint16_t>(pattern.unary_op));
    case PatternKind::binary:
      return match_children(NodeKind::Binary, static_cast<uint16_t>(pattern.binary_op));
    case PatternKind::select:
      return match_children(NodeKind::Select, 0);
  }
  return false;
}

TermId Simplifier::build_pattern(const PatternNode& pattern, const std::array<TermId, pattern_slots>& slots,
                                 DType dtype) {
  auto child = [&](int i) { return build_pattern(*pattern.children[i], slots, dtype); };
  switch (pattern.kind) {
    case PatternKind::value:
    case PatternKind::constant:
    case PatternKind::condition:
      return slots[pattern.slot];
    case PatternKind::integer:
      return dtype.is_float() ? constant(dtype, pattern.literal)
                              : constant(dtype, static_cast<int64_t>(pattern.literal));
    case PatternKind::truth:
      return truth(pattern.literal != 0, dtype.lanes);
    case PatternKind::unary:
      return make_unary(pattern.unary_op, child(0));
    case PatternKind::binary: {
      const TermId a = child(0);
      return make_binary(pattern.binary_op, a, child(1));
    }
    case PatternKind::select: {
      const TermId condition = child(0), a = child(1);
      return make_select(condition, a, child(2));
    }
  }
  internal_error("build_pattern: a pattern kind");
}

TermId Simplifier::apply_rows(NodeKind kind, uint16_t op, std::span<const TermId> children) {
  for (const Variant& variant : variants_of(kind, op)) {
    std::array<TermId, pattern_slots> slots;
    slots.fill(-1);
    bool matches = true;
    for (size_t i = 0; matches && i < children.size(); ++i) {
      matches = match(*variant.before->children[i], children[i], variant.row->types, slots);
    }
    if (!matches) continue;
    DType dtype = boolean.with_lanes(terms_[children[0]].dtype.lanes);
    for (int i = 0; i < 5; ++i) {
      if (slots[i] >= 0) {
        dtype = terms_[slots[i]].dtype;
        break;
      }
    }
    if (variant.row->condition && !is_true(build_pattern(*variant.row->condition, slots, dtype))) continue;
    return build_pattern(*variant.row->after, slots, dtype);
  }
  return -1;
}

// ---------------------------------------------------------------------------------------------------------------
// Making scalars

TermId Simplifier::make_unary(UnaryOp op, TermId a, const Expr* hint) {
  const DType dtype = terms_[a].dtype;
  if (op == UnaryOp::negate && dtype == i64) {
    Linear sum;
    add_term(sum, a, -1);
    return make_linear(std::move(sum), hint);
  }
  if (terms_[a].kind == NodeKind::Broadcast) return make_broadcast(make_unary(op, terms_[a].children[0]), dtype.lanes);
  if (op == UnaryOp::negate && terms_[a].kind == NodeKind::Ramp) {
    const std::vector<TermId> parts = terms_[a].children;
    const TermId base = make_unary(op, parts[0]);
    return make_ramp(base, make_unary(op, parts[1]), dtype.lanes);
  }
  if (const auto value = int_value(a)) {
    if (op == UnaryOp::negate) return constant(dtype, static_cast<int64_t>(-static_cast<uint64_t>(*value)));
    if (op == UnaryOp::bit_not) return constant(dtype, ~*value);
    return truth(*value == 0);
  }
  if (const auto value = float_value(a); value && op == UnaryOp::negate) return constant(dtype, -*value);
  const TermId operands[] = {a};
  if (const TermId rewritten = apply_rows(NodeKind::Unary, static_cast<uint16_t>(op), operands); rewritten >= 0) {
    return rewritten;
  }
  return intern(NodeKind::Unary, static_cast<uint16_t>(op), dtype, 0, {a}, hint);
}

TermId Simplifier::make_binary(BinaryOp op, TermId a, TermId b, const Expr* hint) {
  const uint64_t key = static_cast<uint64_t>(op) << 58 ^ static_cast<uint64_t>(a) << 29 ^ static_cast<uint64_t>(b);
  if (const auto found = binary_memo_.find(key); found != binary_memo_.end() && found->second.epoch == epoch_) {
    return found->second.result;
  }
  TermId result = make_binary_uncached(op, a, b, hint);
  if (terms_[result].dtype == boolean && !known_.empty()) {
    if (const auto known = known_.find(result); known != known_.end()) result = truth(known->second);
  }
  binary_memo_[key] = {result, epoch_};
  return result;
}

TermId Simplifier::make_binary_uncached(BinaryOp op, TermId a, TermId b, const Expr* hint) {
  const DType dtype = terms_[a].dtype;
  const bool is_integral = !dtype.is_float();
  if (is_integral ? int_value(a) && int_value(b) : float_value(a) && float_value(b)) {
    const Expr folded = tw::binary(op, terms_[a].expr, terms_[b].expr);
    if (const auto value = as_int(folded); value && !folded.dtype().is_float()) return constant(folded.dtype(), *value);
    if (const auto value = as_float(folded)) return constant(folded.dtype(), *value);
  }
  if (dtype.is_vector()) {
    if (const TermId vector = make_vector_binary(op, a, b); vector >= 0) return vector;
  } else if (dtype == i64) {
    switch (op) {
      case BinaryOp::add:
      case BinaryOp::sub: {
        Linear sum;
        add_term(sum, a, 1);
        add_term(sum, b, op == BinaryOp::add ? 1 : -1);
        return make_linear(std::move(sum), hint);
      }
      case BinaryOp::mul:
        return make_product(a, b);
      case BinaryOp::div:
      case BinaryOp::mod:
        if (range(a).low >= 0 && range(b).low > 0) {
          return make_binary(op == BinaryOp::div ? BinaryOp::floor_div : BinaryOp::floor_mod, a, b);
        }
        break;
      case BinaryOp::floor_div:
        return make_floor_div(a, b);
      case BinaryOp::floor_mod:
        return make_floor_mod(a, b);
      case BinaryOp::eq:
      case BinaryOp::ne:
      case BinaryOp::lt:
      case BinaryOp::le:
        return make_index_comparison(op, a, b);
      case BinaryOp::min:
      case BinaryOp::max:
        return make_index_min_max(op, a, b);
      default:
        break;
    }
  } else if (dtype.is_integer() && (is_comparison(op) || op == BinaryOp::min || op == BinaryOp::max)) {
    const Range x = range(a), y = range(b);
    const bool is_known_less = x.high<y.low, is_known_greater = x.low> y.high;
    if (dtype != u64 || (x.low >= 0 && y.low >= 0)) {
      if (is_known_less || is_known_greater) {
        switch (op) {
          case BinaryOp::eq:
            return truth(false);
          case BinaryOp::ne:
            return truth(true);
          case BinaryOp::lt:
          case BinaryOp::le:
            return truth(is_known_less);
          default:
            return (op == BinaryOp::min) == is_known_less ? a : b;
        }
      }
    }
  }
  if (dtype.is_bool() && (op == BinaryOp::logical_and || op == BinaryOp::logical_or)) {
    if (const TermId result = make_logical(op, a, b); result >= 0) return result;
  }
  if (is_integral && is_commutative(op) && (int_value(a) || (!int_value(b) && a > b && !dtype.is_bool())))
    std::swap(a, b);
  const TermId operands[] = {a, b};
  if (const TermId rewritten = apply_rows(NodeKind::Binary, static_cast<uint16_t>(op), operands); rewritten >= 0) {
    return rewritten;
  }
  const bool is_bool_result = is_comparison(op) || op == BinaryOp::logical_and || op == BinaryOp::logical_or;
  return intern(NodeKind::Binary, static_cast<uint16_t>(op), is_bool_result ? boolean.with_lanes(dtype.lanes) : dtype,
                0, {a, b}, hint);
}

// Index comparisons of the same sum in a conjunction or disjunction: one may imply or contradict another.
TermId Simplifier::make_logical(BinaryOp op, TermId a, TermId b) {
  const bool is_and = op == BinaryOp::logical_and;
  if (a == b) return a;
  std::vector<TermId> parts;
  auto collect = [&](auto& self, TermId id) -> void {
    const Term& term = terms_[id];
    if (term.kind == NodeKind::Binary && term.op == static_cast<uint16_t>(op) && parts.size() < 12) {
      self(self, term.children[0]);
      self(self, term.children[1]);
    } else {
      parts.push_back(id);
    }
  };
  collect(collect, a);
  const size_t first_of_b = parts.size();
  collect(collect, b);
  auto is_index_order = [&](TermId id) {
    const Term& term = terms_[id];
    return term.kind == NodeKind::Binary && is_index(term.children[0]) &&
           (term.op == static_cast<uint16_t>(BinaryOp::lt) || term.op == static_cast<uint16_t>(BinaryOp::le));
  };
  auto gap_of = [&](TermId id) {  // the order holds: gap > 0
    Linear gap = difference(terms_[id].children[1], terms_[id].children[0]);
    gap.constant += terms_[id].op == static_cast<uint16_t>(BinaryOp::le);
    return gap;
  };
  bool any_dropped = false;
  for (size_t i = 0; i < first_of_b; ++i) {
    if (parts[i] < 0 || !is_index_order(parts[i])) continue;
    const Linear x = gap_of(parts[i]);
    for (size_t j = first_of_b; j < parts.size(); ++j) {
      if (parts[j] < 0 || !is_index_order(parts[j])) continue;
      const Linear y = gap_of(parts[j]);
      if (!is_exact(x) || !is_exact(y) || x.terms.size() != y.terms.size()) continue;
      if (x.terms == y.terms) {
        const bool x_follows = x.constant >= y.constant;  // from y
        const size_t dropped = x_follows == is_and ? i : j;
        parts[dropped] = -1;
        any_dropped = true;
        if (dropped == i) break;
        continue;
      }
      bool is_opposite = true;
      for (size_t t = 0; t < x.terms.size(); ++t) {
        is_opposite &= x.terms[t].first == y.terms[t].first && x.terms[t].second == -y.terms[t].second;
      }
      if (!is_opposite) continue;
      if (is_and && x.constant + y.constant < 2) return truth(false);
      if (!is_and && x.constant + y.constant >= 1) return truth(true);
    }
  }
  if (!any_dropped) return -1;
  TermId result = -1;
  for (const TermId part : parts) {
    if (part < 0) continue;
    result = result < 0 ? part : make_binary(op, result, part);
  }
  return result;
}

TermId Simplifier::make_select(TermId condition, TermId a, TermId b, const Expr* hint) {
  if (const auto known = int_value(condition)) return *known ? a : b;
  if (a == b) return a;
  const DType dtype = terms_[a].dtype;
  auto is_broadcast = [&](TermId id) { return terms_[id].kind == NodeKind::Broadcast; };
  if (is_broadcast(condition) && is_broadcast(a) && is_broadcast(b)) {
    return make_broadcast(make_select(terms_[condition].children[0], terms_[a].children[0], terms_[b].children[0]),
                          dtype.lanes);
  }
  const TermId operands[] = {condition, a, b};
  if (const TermId rewritten = apply_rows(NodeKind::Select, 0, operands); rewritten >= 0) return rewritten;
  return intern(NodeKind::Select, 0, dtype, 0, {condition, a, b}, hint);
}

TermId Simplifier::make_cast(DType dtype, TermId a, const Expr* hint) {
  const DType from = terms_[a].dtype;
  if (from == dtype) return a;
  if (terms_[a].kind == NodeKind::Broadcast) {
    return make_broadcast(make_cast(dtype.element(), terms_[a].children[0]), dtype.lanes);
  }
  if (int_value(a) || float_value(a)) {
    const Expr folded = tw::cast(dtype, terms_[a].expr);
    if (const auto value = as_int(folded); value && !dtype.is_float()) return constant(dtype, *value);
    if (const auto value = as_float(folded)) return constant(dtype, *value);
  }
  if (terms_[a].kind == NodeKind::Cast) {  // an exact conversion in between does nothing
    const TermId inner = terms_[a].children[0];
    const DType source = terms_[inner].dtype;
    if (source.is_integer() && from.is_integer()) {
      const Range r = range(inner), middle = range_of_type(from);
      const bool source_known = source.element() != u64 || r.low >= 0;
      if (source_known && r.is_within(middle.low, middle.high) && (from.element() != u64 || r.low >= 0)) {
        return make_cast(dtype, inner, nullptr);
      }
      if (dtype.is_integer() && dtype.bits <= from.bits)
        return make_cast(dtype, inner, nullptr);  // only low bits matter
    }
    if (source == dtype && source.element() == f32 && from.element() == f64) return inner;
  }
  return intern(NodeKind::Cast, 0, dtype, 0, {a}, hint);
}

}  // namespace tw::arith
