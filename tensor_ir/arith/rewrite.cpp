// Applying the rewrite rows of rules.cpp.
#include <bit>

#include "tensor_ir/arith/simplifier.h"

namespace tw::arith {
namespace {

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

}  // namespace tw::arith
