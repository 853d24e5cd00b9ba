#include "frontends/parts.h"

#include <algorithm>

#include "tensor_ir/arith/simplify.h"

namespace tw::frontends {
namespace {

constexpr int64_t no_axis = -1;  // in the row of a shape that is shorter than others

ValueId flattened(Builder& b, ValueId x) {
  return emit_reshape_open(b, x, {simplify(product_of(b.type(x).shape))});
}

// Its sizes in a row of so many.
ValueId shape_row(Builder& b, ValueId x, int rank) {
  std::vector<Expr> sizes = b.type(x).shape;
  sizes.resize(static_cast<size_t>(rank), Expr(no_axis));
  return b.emit_sizes(sizes, {1, rank});
}

// Rows of shapes with as many columns.
ValueId widened(Builder& b, ValueId shapes, int rank) {
  const Expr rows = b.type(shapes).shape[0];
  const int64_t more = rank - *as_int(b.type(shapes).shape[1]);
  if (more == 0) return shapes;
  const ValueId none = emit_broadcast_open(b, emit_scalar(b, i64, static_cast<double>(no_axis)), {rows, Expr(more)});
  return emit_concat(b, {shapes, none}, 1);
}

}  // namespace

PartsForm form_of(const std::vector<TensorType>& types, const std::function<bool(const Expr&)>& is_fixed) {
  int least = types[0].rank(), most = least, differing = 0;
  for (const TensorType& type : types) least = std::min(least, type.rank()), most = std::max(most, type.rank());
  PartsForm form{ListKind::stacked, 0, most};
  for (int d = 0; d < least; ++d) {
    const bool is_one = std::ranges::all_of(types, [&](const TensorType& type) {
      return is_same_dim(type.shape[d], types[0].shape[d]) && is_fixed(type.shape[d]);
    });
    if (is_one) continue;
    form = {ListKind::packed, d, most};
    ++differing;
  }
  if (differing > 1 || least < most) return {ListKind::ragged, least, most};
  return form;
}

PartsForm form_of(const std::vector<TensorType>& types) {
  return form_of(types, [](const Expr&) { return true; });
}

TensorType part_type(const TensorType& whole, const List& list) {
  TensorType type = whole;
  if (list.kind == ListKind::stacked) type.shape.erase(type.shape.begin() + list.axis);
  return type;
}

List Parts::of(Builder& b, const std::vector<ValueId>& tensors, const PartsForm& form) {
  const auto count = static_cast<int64_t>(tensors.size());
  if (form.kind == ListKind::stacked) return {ListKind::stacked, {emit_stack(b, tensors, 0)}, 0};
  if (form.kind == ListKind::packed) {
    std::vector<Expr> sizes;
    for (const ValueId id : tensors) sizes.push_back(b.type(id).shape[form.axis]);
    return {ListKind::packed, {emit_concat(b, tensors, form.axis), b.emit_sizes(sizes, {count})}, form.axis};
  }
  std::vector<ValueId> flat;
  std::vector<Expr> rows;
  for (const ValueId id : tensors) {
    flat.push_back(flattened(b, id));
    std::vector<Expr> row = b.type(id).shape;
    row.resize(static_cast<size_t>(form.rank), Expr(no_axis));
    rows.insert(rows.end(), row.begin(), row.end());
  }
  return {ListKind::ragged, {emit_concat(b, flat, 0), b.emit_sizes(rows, {count, form.rank})}, form.axis, form.rank};
}

Expr Parts::place(const Position& position) {
  if (position.known) return *position.known < 0 ? simplify(length() + *position.known) : Expr(*position.known);
  const ValueId at = emit_reshape(b_, emit_cast(b_, position.computed, i64), {});
  const ValueId from_end = n_("add", at, n_.size(length()));
  return b_.emit_item(n_.where(n_("less", at, n_.number(0)), from_end, at), {0});
}

ValueId Parts::at(const Expr& place) {
  if (is_stacked()) return emit_without_axis(b_, emit_slice(b_, whole_, axis(), place, Expr(1)), axis());
  if (!is_ragged()) return emit_slice(b_, whole_, axis(), cut(place), size(place));
  if (list_.axis != list_.rank) b_.refuse("a part of a sequence whose parts are of different ranks");
  const ValueId row = emit_reshape(b_, emit_slice(b_, sizes_, 0, place, Expr(1)), {list_.rank});
  const std::vector<Expr> dims = b_.emit_items(row);
  return emit_reshape_open(b_, emit_slice(b_, whole_, 0, cut(place), simplify(product_of(dims))), dims);
}

bool Parts::takes(ValueId x) const {
  const TensorType& type = b_.type(x);
  if (is_ragged()) return type.rank() >= list_.axis && type.rank() <= list_.rank;
  const TensorType own = part_type(b_.type(whole_), list_);
  if (own.rank() != type.rank()) return false;
  for (int d = 0; d < own.rank(); ++d)
    if (!is_same_dim(own.shape[d], type.shape[d]) && (is_stacked() || d != axis())) return false;
  return true;
}

ValueId Parts::insert(const Expr& place, ValueId x) {
  if (!takes(x)) {
    std::vector<TensorType> types{b_.type(x)};
    if (!is_ragged()) types.push_back(part_type(b_.type(whole_), list_));
    PartsForm form = form_of(types);
    if (is_ragged()) form = {ListKind::ragged, std::min(list_.axis, form.rank), std::max(list_.rank, form.rank)};
    if (list_.kind == ListKind::packed && !(form.kind == ListKind::packed && form.axis == list_.axis))
      form = {ListKind::ragged, std::min(types[0].rank(), types[1].rank()), form.rank};
    List other = in(form);
    other.axis = form.axis;
    return Parts(b_, other).insert(place, x);
  }
  const Expr begin = cut(place);
  if (is_stacked()) return with(inserted(whole_, axis(), begin, emit_new_axis(b_, x, axis())), no_value);
  if (is_ragged())
    return with(inserted(whole_, 0, begin, flattened(b_, x)), inserted(sizes_, 0, place, shape_row(b_, x, list_.rank)));
  return with(inserted(whole_, axis(), begin, x),
              inserted(sizes_, 0, place, b_.emit_sizes({b_.type(x).shape[axis()]}, {1})));
}

ValueId Parts::erase(const Expr& place) {
  const Expr begin = cut(place);
  if (!is_stacked()) return with(erased(whole_, axis(), begin, size(place)), erased(sizes_, 0, place, Expr(1)));
  emit_slice(b_, whole_, axis(), place, Expr(1));  // there is one
  return with(erased(whole_, axis(), begin, Expr(1)), no_value);
}

// Of what is ragged: the sizes that all parts have.
std::vector<Expr> Parts::common_dims() {
  if (list_.axis != list_.rank) b_.refuse("one tensor of parts of different ranks");
  const ValueId none = emit_ints(b_, std::vector<int64_t>(static_cast<size_t>(list_.rank), 0), {1, list_.rank}, i64);
  const ValueId largest = emit_reduce(b_, "reduce_max", emit_concat(b_, {none, sizes_}, 0), {0}, false);
  return b_.emit_items(largest);
}

ValueId Parts::stacked() {
  if (is_stacked()) return moved(whole_, axis(), 0);
  if (is_ragged()) {
    std::vector<Expr> dims = common_dims();
    const ValueId all = b_.emit_sizes(dims, {1, list_.rank});
    const ValueId others = n_("subtract", n_.number(1), emit_cast(b_, b_.emit("equal", {sizes_, all}), i64));
    b_.emit_required(emit_reduce(b_, "reduce_sum", others, {0, 1}, false), 0);
    dims.insert(dims.begin(), length());
    return emit_reshape_open(b_, whole_, dims);
  }
  const ValueId largest =
      emit_reduce(b_, "reduce_max", emit_concat(b_, {emit_ints(b_, {0}, {1}, i64), sizes_}, 0), {0}, false);
  const Expr size = b_.emit_item(largest, {0});
  std::vector<Expr> shape = b_.type(whole_).shape;
  shape[axis()] = length();
  shape.insert(shape.begin() + axis() + 1, size);
  b_.rely_on_equal(simplify(product_of(b_.type(whole_).shape)), simplify(product_of(shape)));
  return moved(emit_reshape_open(b_, whole_, shape), axis(), 0);
}

List Parts::packed(int along) {
  if (list_.kind == ListKind::packed && along == axis()) return list_;
  if (is_ragged() && along == 0) {
    std::vector<Expr> dims = common_dims();
    const ValueId sizes = emit_reshape_open(b_, emit_slice(b_, sizes_, 1, Expr(0), Expr(1)), {length()});
    const ValueId row = b_.emit_sizes(dims, {1, list_.rank});
    const ValueId others = n_("subtract", n_.number(1), emit_cast(b_, b_.emit("equal", {sizes_, row}), i64));
    const ValueId behind = emit_slice(b_, others, 1, Expr(1), Expr(list_.rank - 1));
    if (list_.rank > 1) b_.emit_required(emit_reduce(b_, "reduce_sum", behind, {0, 1}, false), 0);
    dims[0] = b_.emit_item(emit_reduce(b_, "reduce_sum", sizes, {0}, false), {0});
    return {ListKind::packed, {emit_reshape_open(b_, whole_, dims), sizes}, 0};
  }
  const ValueId stack = stacked();
  std::vector<Expr> shape = b_.type(stack).shape;
  const ValueId sizes = emit_broadcast_open(b_, b_.emit_sizes({shape[along + 1]}, {1}), {shape[0]});
  const ValueId beside = moved(stack, 0, along);
  shape = b_.type(beside).shape;
  shape[along] = simplify(shape[along] * shape[along + 1]);
  shape.erase(shape.begin() + along + 1);
  return {ListKind::packed, {emit_reshape_open(b_, beside, shape), sizes}, along};
}

List Parts::ragged(int rank) {
  if (is_ragged()) return {ListKind::ragged, {whole_, widened(b_, sizes_, rank)}, list_.axis, rank};
  if (list_.kind == ListKind::packed && axis() != 0)
    b_.refuse("parts along an axis that is not the first, beside others that differ along another one");
  const ValueId whole = is_stacked() ? stacked() : whole_;
  const TensorType type = part_type(b_.type(whole), {list_.kind, {}, 0});
  const Expr count = length();
  std::vector<ValueId> columns;
  for (int d = 0; d < rank; ++d) {
    const bool is_size = list_.kind == ListKind::packed && d == 0;
    const ValueId of_all = b_.emit_sizes({d < type.rank() ? type.shape[d] : Expr(no_axis)}, {1, 1});
    columns.push_back(is_size ? emit_reshape_open(b_, sizes_, {count, Expr(1)})
                              : emit_broadcast_open(b_, of_all, {count, Expr(1)}));
  }
  return {ListKind::ragged, {flattened(b_, whole), emit_concat(b_, columns, 1)}, type.rank(), rank};
}

List Parts::in(const PartsForm& form) {
  if (form.kind == ListKind::ragged) {
    List list = ragged(form.rank);
    list.axis = form.axis;
    return list;
  }
  if (form.kind == ListKind::packed) return packed(form.axis);
  return {ListKind::stacked, {stacked()}, 0};
}

// Of what is ragged: the elements of each part.
ValueId Parts::counts() {
  if (!is_ragged()) return sizes_;
  const ValueId sizes = n_("maximum", sizes_, n_.where(n_("less", sizes_, n_.number(0)), n_.number(1), n_.number(0)));
  return emit_reduce(b_, "reduce_prod", sizes, {1}, false);
}

// Where the part begins, or the end.
Expr Parts::cut(const Expr& place) {
  if (is_stacked() || is_const_int(place, 0)) return place;
  if (is_same_dim(place, length())) return b_.type(whole_).shape[axis()];
  const ValueId ends = b_.emit("cumulate", {counts()}, attributes_of({{"axis", int64_t{0}}}));
  const ValueId cuts = emit_concat(b_, {emit_ints(b_, {0}, {1}, i64), ends}, 0);
  return b_.emit_item(emit_slice(b_, cuts, 0, place, Expr(1)), {0});
}

Expr Parts::size(const Expr& place) {
  return b_.emit_item(emit_slice(b_, counts(), 0, place, Expr(1)), {0});
}

ValueId Parts::with(ValueId whole, ValueId sizes) {
  List list = list_;
  list.values = {whole};
  if (sizes != no_value) list.values.push_back(sizes);
  return b_.import().lists.add(std::move(list));
}

ValueId Parts::inserted(ValueId x, int axis, const Expr& begin, ValueId y) {
  const Expr rest = simplify(b_.type(x).shape[axis] - begin);
  std::vector<ValueId> all{emit_slice(b_, x, axis, Expr(0), begin), y};
  if (!is_const_int(rest, 0)) all.push_back(emit_slice(b_, x, axis, begin, rest));
  if (is_const_int(begin, 0)) all.erase(all.begin());
  return emit_concat(b_, all, axis);
}

ValueId Parts::erased(ValueId x, int axis, const Expr& begin, const Expr& size) {
  const Expr behind = simplify(begin + size);
  const Expr rest = simplify(b_.type(x).shape[axis] - behind);
  return emit_concat(b_, {emit_slice(b_, x, axis, Expr(0), begin), emit_slice(b_, x, axis, behind, rest)}, axis);
}

ValueId Parts::moved(ValueId x, int from, int to) {
  std::vector<int64_t> order;
  for (int d = 0; d < rank_of(b_, x); ++d)
    if (d != from) order.push_back(d);
  order.insert(order.begin() + to, from);
  return emit_transpose(b_, x, order);
}

}  // namespace tw::frontends
