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

// The only axis along which they differ; nothing: they are of one shape.
std::optional<int> axis_of_differences(const Builder& b, const std::vector<TensorType>& types) {
  std::optional<int> axis;
  for (const TensorType& type : types) {
    if (type.rank() != types[0].rank()) b.refuse("tensors of different ranks, in a sequence whose length a run says");
    for (int d = 0; d < type.rank(); ++d) {
      if (is_same_dim(type.shape[d], types[0].shape[d])) continue;
      if (axis.value_or(d) != d)
        b.refuse("tensors that differ in more than one dimension, in a sequence whose length or places a run says");
      axis = d;
    }
  }
  return axis;
}

std::vector<TensorType> types_of(const Builder& b, const std::vector<ValueId>& ids) {
  std::vector<TensorType> types;
  for (const ValueId id : ids) types.push_back(b.type(id));
  return types;
}

// Of what is stacked or packed: of its parts; along the axis of those that are packed it is the whole's.
TensorType part_type(const TensorType& whole, const List& list) {
  TensorType type = whole;
  if (list.kind == ListKind::stacked) type.shape.erase(type.shape.begin() + list.axis);
  return type;
}

// A sequence that is one tensor.
class Parts {
 public:
  Parts(Builder& b, const List& list)
      : b_(b), n_(b), list_(list), whole_(list.values[0]), sizes_(list.values.size() > 1 ? list.values[1] : no_value) {}

  bool is_stacked() const { return list_.kind == ListKind::stacked; }
  int axis() const { return list_.axis; }
  ValueId whole() const { return whole_; }
  const Expr& extent() const { return b_.type(whole_).shape[axis()]; }
  Expr length() const { return is_stacked() ? extent() : b_.type(sizes_).shape[0]; }

  Expr place(const Position& position) {
    if (position.known) return *position.known < 0 ? simplify(length() + *position.known) : Expr(*position.known);
    const ValueId at = emit_reshape(b_, emit_cast(b_, position.computed, i64), {});
    const ValueId from_end = n_("add", at, n_.size(length()));
    return b_.emit_item(n_.where(n_("less", at, n_.number(0)), from_end, at), {0});
  }

  ValueId at(const Expr& place) {
    if (is_stacked()) return emit_without_axis(b_, emit_slice(b_, whole_, axis(), place, Expr(1)), axis());
    return emit_slice(b_, whole_, axis(), cut(place), size(place));
  }

  ValueId insert(const Expr& place, ValueId x) {
    const Expr begin = cut(place);
    if (is_stacked()) x = emit_new_axis(b_, x, axis());
    return with(inserted(whole_, axis(), begin, x),
                is_stacked() ? no_value : inserted(sizes_, 0, place, b_.emit_sizes({b_.type(x).shape[axis()]}, {1})));
  }

  ValueId erase(const Expr& place) {
    const Expr begin = cut(place);
    if (!is_stacked()) return with(erased(whole_, axis(), begin, size(place)), erased(sizes_, 0, place, Expr(1)));
    emit_slice(b_, whole_, axis(), place, Expr(1));  // there is one
    return with(erased(whole_, axis(), begin, Expr(1)), no_value);
  }

  // All of one shape, or the run ends.
  ValueId stacked() {
    if (is_stacked()) return moved(whole_, axis(), 0);
    const ValueId largest =
        emit_reduce(b_, "reduce_max", emit_concat(b_, {emit_ints(b_, {0}, {1}, i64), sizes_}, 0), {0}, false);
    const Expr size = b_.emit_item(largest, {0});
    std::vector<Expr> shape = b_.type(whole_).shape;
    shape[axis()] = length();
    shape.insert(shape.begin() + axis() + 1, size);
    return moved(emit_reshape_open(b_, whole_, shape), axis(), 0);
  }

  // Along that axis of the parts.
  List packed(int along) {
    if (!is_stacked() && along == axis()) return list_;
    const ValueId stack = stacked();
    std::vector<Expr> shape = b_.type(stack).shape;
    const ValueId sizes = emit_broadcast_open(b_, b_.emit_sizes({shape[along + 1]}, {1}), {shape[0]});
    const ValueId beside = moved(stack, 0, along);
    shape = b_.type(beside).shape;
    shape[along] = simplify(shape[along] * shape[along + 1]);
    shape.erase(shape.begin() + along + 1);
    return {ListKind::packed, {emit_reshape_open(b_, beside, shape), sizes}, along};
  }

 private:
  // Where the part begins, or the end.
  Expr cut(const Expr& place) {
    if (is_stacked() || is_const_int(place, 0)) return place;
    if (is_same_dim(place, length())) return extent();
    const ValueId ends = b_.emit("cumulate", {sizes_}, attributes_of({{"axis", int64_t{0}}}));
    const ValueId cuts = emit_concat(b_, {emit_ints(b_, {0}, {1}, i64), ends}, 0);
    return b_.emit_item(emit_slice(b_, cuts, 0, place, Expr(1)), {0});
  }
  Expr size(const Expr& place) { return b_.emit_item(emit_slice(b_, sizes_, 0, place, Expr(1)), {0}); }

  ValueId with(ValueId whole, ValueId sizes) {
    std::vector<ValueId> values{whole};
    if (sizes != no_value) values.push_back(sizes);
    return b_.import().lists.add({list_.kind, values, axis()});
  }
  Expr rest(ValueId x, int axis, const Expr& begin) { return simplify(b_.type(x).shape[axis] - begin); }
  ValueId inserted(ValueId x, int axis, const Expr& begin, ValueId y) {
    std::vector<ValueId> all{emit_slice(b_, x, axis, Expr(0), begin), y};
    if (!is_const_int(rest(x, axis, begin), 0)) all.push_back(emit_slice(b_, x, axis, begin, rest(x, axis, begin)));
    if (is_const_int(begin, 0)) all.erase(all.begin());
    return emit_concat(b_, all, axis);
  }
  ValueId erased(ValueId x, int axis, const Expr& begin, const Expr& size) {
    const Expr behind = simplify(begin + size);
    return emit_concat(
        b_, {emit_slice(b_, x, axis, Expr(0), begin), emit_slice(b_, x, axis, behind, rest(x, axis, behind))}, axis);
  }
  ValueId moved(ValueId x, int from, int to) {
    std::vector<int64_t> order;
    for (int d = 0; d < rank_of(b_, x); ++d)
      if (d != from) order.push_back(d);
    order.insert(order.begin() + to, from);
    return emit_transpose(b_, x, order);
  }

  Builder& b_;
  Integers n_;
  List list_;
  ValueId whole_, sizes_;
};

// Known tensors as one, together with others that are to go into it.
List as_one(Builder& b, const std::vector<ValueId>& tensors, std::vector<TensorType> others = {}) {
  if (tensors.empty()) bad_sequence(b, "an empty sequence");
  for (const TensorType& type : types_of(b, tensors)) others.push_back(type);
  const std::optional<int> axis = axis_of_differences(b, others);
  if (!axis) return {ListKind::stacked, {emit_stack(b, tensors, 0)}, 0};
  std::vector<Expr> sizes;
  for (const ValueId id : tensors) sizes.push_back(b.type(id).shape[*axis]);
  const auto count = static_cast<int64_t>(sizes.size());
  return {ListKind::packed, {emit_concat(b, tensors, *axis), b.emit_sizes(sizes, {count})}, *axis};
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
  if (list.kind == ListKind::stacked) {
    const TensorType own = part_type(b.type(list.values[0]), list);
    if (const auto axis = axis_of_differences(b, {own, b.type(x)})) list = Parts(b, list).packed(*axis);
  }
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
  const int rank = part_type(b.type(list.values[0]), list).rank();
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

// What `unite` looks at: the types of the parts of both, and whether there is a common form.
struct PartTypes {
  std::vector<TensorType> types;
  std::optional<int> axis;  // along which they differ, or are packed
  bool fits = true;

  void need(int d) {
    fits = fits && axis.value_or(d) == d;
    axis = d;
  }
  void add(const Lists& lists, const Graph& graph, ValueId id) {
    const List& list = lists[id];
    const size_t count = is_known(list) ? list.values.size() : 1;
    for (size_t i = 0; i < count; ++i) types.push_back(part_type(graph.values[list.values[i]].type, list));
    if (list.kind == ListKind::packed) need(list.axis);
  }
  void compare() {
    for (const TensorType& type : types) {
      fits = fits && type.dtype == types[0].dtype && type.rank() == types[0].rank();
      for (int d = 0; fits && d < type.rank(); ++d)
        if (!is_same_dim(type.shape[d], types[0].shape[d]) && axis.value_or(-1) != d) need(d);
    }
  }
};

United as_it_is(const Lists& lists, const Graph& graph, ValueId id) {
  if (!is_list(id)) return {.kind = {}, .type = graph.values[id].type};
  const List& list = lists[id];
  United form{.kind = list.kind, .is_decided = list.is_decided()};
  if (list.kind == ListKind::packed) form.axis = list.axis;  // emit_united stacks along axis 0
  if (list.is_sequence() && !is_known(list)) form.type = part_type(graph.values[list.values[0]].type, list);
  const size_t first = list.is_decided() ? 1 : 0;
  if (is_known(list) || !list.is_sequence())
    for (size_t i = first; i < list.values.size(); ++i) form.parts.push_back(as_it_is(lists, graph, list.values[i]));
  return form;
}

}  // namespace

std::optional<United> unite(const Lists& lists, const Graph& of_a, ValueId a, const Graph& of_b, ValueId b) {
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
    const auto part = unite(lists, of_a, x.values.back(), of_b, y.values.back());
    if (!part) return std::nullopt;
    form.parts.push_back(*part);
    return form;
  }
  PartTypes parts;
  parts.add(lists, of_a, a);
  parts.add(lists, of_b, b);
  parts.compare();
  if (!parts.fits || parts.types.empty()) return std::nullopt;
  return United{.kind = parts.axis ? ListKind::packed : ListKind::stacked,
                .axis = parts.axis.value_or(0),
                .type = parts.types[0]};
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
  if (list.values.empty()) {
    TensorType none = form.type;
    if (form.kind == ListKind::stacked) none.shape.insert(none.shape.begin() + form.axis, Expr(0));
    none.shape[form.axis] = 0;
    std::vector<ValueId> values{emit_nothing(b, none)};
    if (form.kind == ListKind::packed) values.push_back(emit_ints(b, {}, {0}, i64));
    return b.import().lists.add({*form.kind, values, form.axis});
  }
  if (form.kind == ListKind::packed && is_known(list)) {
    std::vector<Expr> sizes;
    for (const ValueId id : list.values) sizes.push_back(b.type(id).shape[form.axis]);
    const auto count = static_cast<int64_t>(sizes.size());
    return b.import().lists.add(
        {ListKind::packed, {emit_concat(b, list.values, form.axis), b.emit_sizes(sizes, {count})}, form.axis});
  }
  Parts parts = parts_of(b, list);
  if (form.kind == ListKind::packed) return b.import().lists.add(parts.packed(form.axis));
  return b.import().lists.add({ListKind::stacked, {parts.stacked()}, 0});
}

}  // namespace tw::frontends
