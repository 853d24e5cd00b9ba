#include "frontends/sequences.h"

#include <algorithm>

#include "frontends/computed.h"
#include "frontends/emit.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"

namespace tw::frontends {
namespace {

constexpr int64_t most_known = 1 << 12;  // parts of a tensor that are tensors of their own

[[noreturn]] void bad_sequence(const Builder& b, const std::string& what) {
  throw Error(ErrorCode::shape, b.op() + ": " + what + "\n  help: a checker of the model's format says more");
}

const List& list_of(Builder& b, ValueId id) {
  return b.import().lists[id];
}

std::vector<TensorType> types_of(const Builder& b, const std::vector<ValueId>& ids) {
  std::vector<TensorType> types;
  for (const ValueId id : ids) types.push_back(b.type(id));
  return types;
}

// Known tensors as one, together with others that are to go into it.
List as_one(Builder& b, const std::vector<ValueId>& tensors, std::vector<TensorType> others = {}) {
  if (tensors.empty()) bad_sequence(b, "an empty sequence");
  for (const TensorType& type : types_of(b, tensors)) others.push_back(type);
  return Parts::of(b, tensors, form_of(others));
}

bool is_known(const List& list) {
  return list.kind == ListKind::sequence;
}

Parts parts_of(Builder& b, const List& list) {
  return {b, is_known(list) ? as_one(b, list.values) : list};
}

// Of `count` places.
ptrdiff_t known_place(const Builder& b, int64_t given, int64_t count, int64_t length) {
  if (given < -length || given >= count)
    bad_sequence(b, "position " + std::to_string(given) + " in a sequence of " + std::to_string(length));
  return given < 0 ? given + length : given;
}

}  // namespace

ValueId emit_sequence(Builder& b, const std::vector<ValueId>& tensors) {
  for (const ValueId id : tensors)
    if (dtype_of(b, id) != dtype_of(b, tensors[0])) bad_sequence(b, "tensors of different types in a sequence");
  return b.emit_list(ListKind::sequence, tensors);
}

ValueId emit_sequence_at(Builder& b, ValueId sequence, const Position& position) {
  const List list = list_of(b, sequence);
  if (is_known(list) && position.known) {
    const auto length = std::ssize(list.values);
    return list.values[known_place(b, *position.known, length, length)];
  }
  Parts parts = parts_of(b, list);
  return parts.at(parts.place(position));
}

ValueId emit_sequence_insert(Builder& b, ValueId sequence, ValueId x, const std::optional<Position>& position) {
  List list = list_of(b, sequence);
  const auto length = std::ssize(list.values);
  if (!list.values.empty() && dtype_of(b, list.values[0]) != dtype_of(b, x))
    bad_sequence(b, "tensors of different types in a sequence");
  if (is_known(list) && (!position || position->known)) {
    const ptrdiff_t place = position ? known_place(b, *position->known, length + 1, length) : length;
    list.values.insert(list.values.begin() + place, x);
    return emit_sequence(b, list.values);
  }
  if (is_known(list)) list = as_one(b, list.values, {b.type(x)});
  Parts parts(b, list);
  return parts.insert(position ? parts.place(*position) : parts.length(), x);
}

ValueId emit_sequence_erase(Builder& b, ValueId sequence, const std::optional<Position>& position) {
  List list = list_of(b, sequence);
  if (is_known(list) && list.values.empty()) bad_sequence(b, "an empty sequence");
  const Position which = position.value_or(Position{-1});
  if (is_known(list) && which.known) {
    const auto length = std::ssize(list.values);
    list.values.erase(list.values.begin() + known_place(b, *which.known, length, length));
    return emit_sequence(b, list.values);
  }
  Parts parts = parts_of(b, list);
  return parts.erase(parts.place(which));
}

Expr sequence_length(Builder& b, ValueId sequence) {
  const List& list = list_of(b, sequence);
  return is_known(list) ? Expr(static_cast<int64_t>(list.values.size())) : Parts(b, list).length();
}

ValueId emit_joined(Builder& b, ValueId sequence, int64_t given_axis, bool is_new) {
  const List list = list_of(b, sequence);
  if (list.values.empty()) bad_sequence(b, "an empty sequence");
  const int rank = list.kind == ListKind::ragged ? list.rank : part_type(b.type(list.values[0]), list).rank();
  const int axis = rule_axis(b, given_axis, rank + (is_new ? 1 : 0));
  if (is_known(list)) {
    for (const ValueId part : list.values)
      if (rank_of(b, part) != rank) bad_sequence(b, "tensors of different ranks");
    return is_new ? emit_stack(b, list.values, axis) : emit_concat(b, list.values, axis);
  }
  Parts parts(b, list);
  if (!is_new) return parts.packed(axis).values[0];
  std::vector<int64_t> order;
  for (int d = 1; d <= rank; ++d) order.push_back(d);
  order.insert(order.begin() + axis, 0);
  return emit_transpose(b, parts.stacked(), order);
}

ValueId emit_parts(Builder& b, ValueId x, int axis, ValueId size, bool keeps) {
  const Expr extent = b.type(x).shape[axis];
  const Expr of_part = size == no_value ? Expr(1) : b.emit_item(size, {1});
  const auto known_extent = as_int(extent), known_size = as_int(of_part);
  if (known_size.value_or(1) < 1) bad_sequence(b, "parts of size " + std::to_string(*known_size));
  if (known_extent && known_size && (*known_extent - 1) / *known_size < most_known) {
    std::vector<Expr> sizes;
    for (int64_t begin = 0; begin < *known_extent; begin += *known_size)
      sizes.emplace_back(std::min(*known_size, *known_extent - begin));
    std::vector<ValueId> parts = emit_split(b, x, axis, sizes);
    if (!keeps)
      for (ValueId& part : parts) part = emit_without_axis(b, part, axis);
    return emit_sequence(b, parts);
  }
  if (!keeps) return b.import().lists.add({ListKind::stacked, {x}, axis});
  Integers n(b);
  const ValueId all = n.size(extent), one = n.size(of_part);
  const Expr count = b.emit_item(n("divide", n("add", all, n.size(simplify(of_part - 1))), one), {0});
  const ValueId begins = n("multiply", emit_range(b, count, {count}), one);
  return b.import().lists.add({ListKind::packed, {x, n("minimum", n("subtract", all, begins), one)}, axis});
}

ValueId emit_parts_of(Builder& b, ValueId x, int axis, ValueId sizes) {
  if (static_shape(b.type(sizes))) return emit_sequence(b, emit_split(b, x, axis, b.emit_items(sizes, {0})));
  sizes = emit_cast(b, sizes, i64);
  Integers n(b);
  // With a size below 0 these are not the same.
  for (const ValueId counted : {sizes, n("maximum", sizes, n.number(0))}) {
    const Expr total = b.emit_item(emit_reduce(b, "reduce_sum", counted, {0}, false), {0});
    b.require_equal(total, b.type(x).shape[axis], "sizes that are not those of the axis");
  }
  return b.import().lists.add({ListKind::packed, {x, sizes}, axis});
}

ValueId emit_stacked(Builder& b, ValueId sequence) {
  return parts_of(b, list_of(b, sequence)).stacked();
}

namespace {

// What both of two sequences can be together; nothing: there is no such form.
class CommonForm {
 public:
  explicit CommonForm(const std::function<bool(const Expr&)>& is_fixed) : is_fixed_(is_fixed) {}

  void add(const Lists& lists, const Graph& graph, ValueId id) {
    const List& list = lists[id];
    const size_t count = is_known(list) ? list.values.size() : 1;
    for (size_t i = 0; i < count; ++i) {
      const TensorType& type = graph.values[list.values[i]].type;
      fits_ = fits_ && (dtypes_.empty() || dtypes_[0] == type.dtype);
      dtypes_.push_back(type.dtype);
      if (list.kind != ListKind::ragged) types_.push_back(part_type(type, list));
    }
    if (!is_known(list)) forms_.push_back({list.kind, list.axis, list.kind == ListKind::ragged ? list.rank : -1});
  }

  std::optional<United> form() const {
    if (!fits_ || dtypes_.empty()) return std::nullopt;
    PartsForm form = types_.empty() ? PartsForm{ListKind::stacked, 0, -1} : form_of(types_, is_fixed_);
    for (const PartsForm& other : forms_) form = joined(form, other);
    TensorType type = types_.empty() ? TensorType{dtypes_[0], {}} : types_[0];
    return United{.kind = form.kind, .axis = form.axis, .rank = form.rank, .type = std::move(type)};
  }

 private:
  static PartsForm joined(const PartsForm& a, const PartsForm& b) {
    const auto least = [&](const PartsForm& form) { return form.kind == ListKind::ragged ? form.axis : form.rank; };
    const int rank = std::max(a.rank, b.rank);
    if (b.kind == ListKind::stacked) return a;
    if (a.kind == ListKind::stacked && b.kind == ListKind::packed) return {ListKind::packed, b.axis, rank};
    if (a.kind == b.kind && a.axis == b.axis) return {a.kind, a.axis, rank};
    const int of_a = least(a), of_b = b.kind == ListKind::ragged ? b.axis : of_a;
    return {ListKind::ragged, of_a < 0 ? of_b : std::min(of_a, of_b), rank};
  }

  const std::function<bool(const Expr&)>& is_fixed_;
  std::vector<TensorType> types_;
  std::vector<DType> dtypes_;
  std::vector<PartsForm> forms_;
  bool fits_ = true;
};

}  // namespace

United as_it_is(const Lists& lists, const Graph& graph, ValueId id) {
  if (!is_list(id)) return {.kind = {}, .type = graph.values[id].type};
  const List& list = lists[id];
  United form{.kind = list.kind, .is_decided = list.is_decided()};
  if (list.kind != ListKind::stacked) form.axis = list.axis;  // emit_united stacks along axis 0
  form.rank = list.rank;
  if (list.is_sequence() && !is_known(list)) form.type = part_type(graph.values[list.values[0]].type, list);
  const size_t first = list.is_decided() ? 1 : 0;
  if (is_known(list) || !list.is_sequence())
    for (size_t i = first; i < list.values.size(); ++i) form.parts.push_back(as_it_is(lists, graph, list.values[i]));
  return form;
}

bool is_same_form(const United& a, const United& b) {
  const bool is_ragged = a.kind == ListKind::ragged;
  return a.kind == b.kind && (a.axis == b.axis || a.kind == ListKind::stacked) && (a.rank == b.rank || !is_ragged) &&
         a.is_decided == b.is_decided && std::ranges::equal(a.parts, b.parts, is_same_form);
}

std::optional<United> unite(const Lists& lists, const Graph& of_a, ValueId a, const Graph& of_b, ValueId b,
                            const std::function<bool(const Expr&)>& is_fixed) {
  if (lists.is_alike(a, b)) return as_it_is(lists, of_a, a);
  if (!is_list(a) || !is_list(b) || lists[a].is_sequence() != lists[b].is_sequence()) return std::nullopt;
  const List &x = lists[a], &y = lists[b];
  if (!x.is_sequence()) {
    United form{.kind = ListKind::optional, .is_decided = x.values.size() != 1 || y.values.size() != 1};
    if (x.values.empty() || y.values.empty()) {
      form.parts.push_back(x.values.empty() ? as_it_is(lists, of_b, y.values.back())
                                            : as_it_is(lists, of_a, x.values.back()));
      return form;
    }
    const auto part = unite(lists, of_a, x.values.back(), of_b, y.values.back(), is_fixed);
    if (!part) return std::nullopt;
    form.parts.push_back(*part);
    return form;
  }
  CommonForm form(is_fixed);
  form.add(lists, of_a, a);
  form.add(lists, of_b, b);
  return form.form();
}

namespace {

// Of this type as far as sizes are known here, and empty otherwise.
ValueId emit_nothing(Builder& b, TensorType type) {
  const std::vector<Var> known = variables_of(b.import().graph);
  for (Expr& dim : type.shape) {
    const auto is_unknown = [&](const Var& var) { return std::find(known.begin(), known.end(), var) == known.end(); };
    const auto used = free_vars(dim);
    if (std::any_of(used.begin(), used.end(), is_unknown)) dim = 0;
  }
  return emit_broadcast_open(b, emit_scalar(b, type.dtype, 0), type.shape);
}

List no_parts(Builder& b, const PartsForm& form, TensorType type) {
  if (form.kind == ListKind::ragged)
    return {form.kind,
            {emit_nothing(b, {type.dtype, {Expr(0)}}), emit_ints(b, {}, {0, form.rank}, i64)},
            form.axis,
            form.rank};
  if (form.kind == ListKind::stacked) type.shape.insert(type.shape.begin(), Expr(0));
  type.shape[form.axis] = 0;
  std::vector<ValueId> values{emit_nothing(b, type)};
  if (form.kind == ListKind::packed) values.push_back(emit_ints(b, {}, {0}, i64));
  return {form.kind, values, form.axis};
}

}  // namespace

ValueId emit_united(Builder& b, ValueId value, const United& form) {
  if (!form.kind) return value == no_value ? emit_nothing(b, form.type) : value;
  const List list = value == no_value ? List{*form.kind, {}} : list_of(b, value);
  if (form.kind == ListKind::optional) {
    if (!form.is_decided && form.parts.empty()) return value;
    const ValueId content = emit_united(b, list.values.empty() ? no_value : list.values.back(), form.parts[0]);
    if (!form.is_decided) return b.emit_list(ListKind::optional, {content});
    const ValueId truth = list.is_decided() ? list.values[0] : emit_scalar(b, boolean, list.values.empty() ? 0 : 1);
    return b.emit_list(ListKind::optional, {truth, content});
  }
  if (form.kind == ListKind::sequence) {
    std::vector<ValueId> values = list.values;
    values.resize(form.parts.size(), no_value);
    for (size_t i = 0; i < values.size(); ++i) values[i] = emit_united(b, values[i], form.parts[i]);
    return b.emit_list(ListKind::sequence, values);
  }
  const PartsForm as{*form.kind, form.axis, form.rank};
  if (list.values.empty()) return b.import().lists.add(no_parts(b, as, form.type));
  if (is_known(list)) return b.import().lists.add(Parts::of(b, list.values, as));
  return b.import().lists.add(Parts(b, list).in(as));
}

}  // namespace tw::frontends
