#include "frontends/computed.h"

#include "tensor_ir/arith/simplify.h"

namespace tw::frontends {
namespace {

ValueId list(Builder& b, ValueId x) {
  x = emit_cast(b, x, i64);
  return rank_of(b, x) == 0 ? emit_reshape(b, x, {1}) : x;
}

ValueId inverted(Builder& b, ValueId x) {
  return b.emit("equal", {x, emit_scalar(b, boolean, 0)});
}

// x's elements in the order of i64[n], as sizes.
ValueId reshaped(Builder& b, ValueId x, ValueId dims) {
  return emit_reshape_open(b, x, b.emit_items(dims));
}

std::vector<Expr> row_of(Builder& b, ValueId list) {
  return {Expr(1), b.type(list).shape[0]};
}

// Which of `rank` axes each of them is, where they are -rank … rank-1: bool[rank, axes].
ValueId emit_hits(Builder& b, ValueId axes, int rank) {
  Integers n(b);
  axes = list(b, axes);
  const ValueId from_front = n.where(n("less", axes, n.number(0)), n("add", axes, n.number(rank)), axes);
  return b.emit("equal", {emit_range(b, Expr(rank), {Expr(rank), Expr(1)}),
                          emit_reshape_open(b, from_front, row_of(b, from_front))});
}

}  // namespace

ValueId emit_is_chosen(Builder& b, ValueId axes, int rank) {
  return emit_reduce(b, "reduce_any", emit_hits(b, axes, rank), {1}, false);
}

ValueId emit_by_axis(Builder& b, ValueId values, ValueId axes, int rank, int64_t otherwise) {
  Integers n(b);
  const ValueId hits = emit_hits(b, axes, rank);
  values = list(b, values);
  const ValueId chosen = n.where(hits, emit_reshape_open(b, values, row_of(b, values)), n.number(0));
  const ValueId is_named = emit_reduce(b, "reduce_any", hits, {1}, false);
  return n.where(is_named, emit_reduce(b, "reduce_sum", chosen, {1}, false), n.number(otherwise));
}

ValueId emit_unsqueeze(Builder& b, ValueId x, ValueId is_new, int rank) {
  Integers n(b);
  const std::vector<Expr> dims = b.type(x).shape;
  if (dims.empty()) return emit_reshape(b, x, std::vector<int64_t>(rank, 1));
  const ValueId known = b.emit_sizes(dims, {static_cast<int64_t>(dims.size())});
  const ValueId is_old = emit_cast(b, inverted(b, is_new), i64);
  const ValueId place = n("subtract", b.emit("cumulate", {is_old}, attributes_of({{"axis", int64_t{0}}})), n.number(1));
  const ValueId old =
      b.emit("gather", {known, n("maximum", place, n.number(0))}, attributes_of({{"axis", int64_t{0}}}));
  return reshaped(b, x, n.where(is_new, n.number(1), old));
}

ValueId emit_squeeze(Builder& b, ValueId x, ValueId is_gone, int gone) {
  const std::vector<Expr> dims = b.type(x).shape;
  const int64_t left = static_cast<int64_t>(dims.size()) - gone;
  if (left < 0) b.refuse("more axes than there are");
  const ValueId known = b.emit_sizes(dims, {static_cast<int64_t>(dims.size())});
  const ValueId places =
      b.emit_all("positions", {inverted(b, is_gone)}, attributes_of({{"count", std::vector<Expr>{Expr(left)}}}))[0];
  return reshaped(b, x, b.emit("gather", {known, places}, attributes_of({{"axis", int64_t{0}}})));
}

ValueId emit_along(Builder& b, ValueId x, ValueId axis, int kept, const std::function<ValueId(ValueId)>& f) {
  Integers n(b);
  const std::vector<Expr> dims = b.type(x).shape;
  const int rank = static_cast<int>(dims.size()), count = rank - kept;
  if (count < 1) b.refuse("an axis of data of rank " + std::to_string(rank));
  const std::vector<Expr> taken(dims.begin(), dims.begin() + count);
  const ValueId sizes = b.emit_sizes(taken, {count});
  const ValueId is_axis = emit_slice(b, emit_is_chosen(b, axis, rank), 0, Expr(0), Expr(count));
  const ValueId at_axis = emit_cast(b, is_axis, i64);
  const ValueId reached = b.emit("cumulate", {at_axis}, attributes_of({{"axis", int64_t{0}}}));
  const ValueId part = n("subtract", n("add", reached, reached), at_axis);  // 0: before the axis, 1: it, 2: behind it
  const auto product = [&](int64_t of) {
    const ValueId chosen = n.where(n("equal", part, n.number(of)), sizes, n.number(1));
    return b.emit_item(emit_reduce(b, "reduce_prod", chosen, {0}, false));
  };
  const Expr before = product(0), behind = product(2);
  // An axis that is none of them has no extent, which ends the run.
  const Expr extent = b.emit_item(emit_reduce(b, "reduce_sum", n("multiply", at_axis, sizes), {0}, false), {1});
  std::vector<Expr> as_three{before, extent, behind};
  as_three.insert(as_three.end(), dims.begin() + count, dims.end());
  const ValueId y = f(emit_reshape_open(b, x, as_three));
  const std::vector<Expr> have = b.type(y).shape;
  std::vector<Expr> result =
      is_same_dim(have[1], extent) ? taken : b.emit_items(n.where(is_axis, n.size(have[1]), sizes));
  result.insert(result.end(), have.begin() + 3, have.end());
  return emit_reshape_open(b, y, result);
}

ValueId emit_computed_slice(Builder& b, ValueId x, int axis, ValueId start, ValueId end, ValueId step) {
  Integers n(b);
  const Expr extent = b.type(x).shape[axis];
  const ValueId count = n.size(extent), last = n("subtract", count, n.number(1)),
                is_forward = n("less", n.number(0), step);
  const auto from_front = [&](ValueId i) { return n.where(n("less", i, n.number(0)), n("add", i, count), i); };
  const ValueId high = n.where(is_forward, count, last), low = n.where(is_forward, n.number(0), n.number(-1));
  const ValueId first = n.clamp(from_front(start), n.number(0), high), behind = n.clamp(from_front(end), low, high);
  const ValueId room = n.where(is_forward, n("subtract", behind, first), n("subtract", first, behind));
  const ValueId stride = n.where(is_forward, step, n("subtract", n.number(0), step));
  const ValueId elements = n("divide", n("add", room, n("subtract", stride, n.number(1))), stride);
  const Expr size =
      b.emit_item(n("maximum", elements, n.number(0)), {0, as_int(extent).value_or(DimensionBounds{}.high)});
  const ValueId positions = n("add", first, n("multiply", step, emit_range(b, size, {size})));
  return b.emit("gather", {x, positions}, attributes_of({{"axis", int64_t{axis}}}));
}

}  // namespace tw::frontends
