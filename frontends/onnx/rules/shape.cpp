// Operators that move elements.
#include <algorithm>
#include <cmath>
#include <utility>

#include "frontends/computed.h"
#include "frontends/onnx/rules.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/text/printer.h"

namespace tw::frontends::onnx {

namespace {

[[noreturn]] void bad_shape(const Context& c, const std::string& what) {
  throw Error(ErrorCode::shape, c.op() + ": " + what + "\n  help: onnx.checker.check_model(model, full_check=True)");
}

// The shape that a run computes, of which elements say to copy or to infer one.
ValueId computed_shape(Context& c, ValueId x, bool zero_is_zero) {
  Integers n(c);
  const std::vector<Expr> from = c.type(x).shape;
  ValueId shape = emit_cast(c, c.input(1), i64);
  if (c.type(shape).rank() != 1) c.refuse("a shape of " + to_string(c.type(shape)));
  const int count = c.count_items(shape);
  if (!zero_is_zero) {
    std::vector<Expr> copied = from;
    copied.resize(static_cast<size_t>(count), Expr(0));
    shape = n.where(n("equal", shape, n.number(0)), c.emit_sizes(copied, {count}), shape);
  }
  const ValueId is_inferred = n("equal", shape, n.number(-1));
  const ValueId others = emit_reduce(c, "reduce_prod", n.where(is_inferred, n.number(1), shape), {0}, false);
  const ValueId inferred = n("divide", n.size(simplify(product_of(from))), n("maximum", others, n.number(1)));
  return n.where(is_inferred, inferred, shape);
}

// 0: as in x, unless it stands for itself; one -1: what is left.
ValueId emit_in_shape(Context& c, ValueId x, std::vector<Expr> shape, bool zero_is_zero) {
  const std::vector<Expr> from = c.type(x).shape;
  int inferred = 0;
  Expr rest(1);
  for (size_t i = 0; i < shape.size(); ++i) {
    const auto dim = as_int(shape[i]);
    if (dim && *dim < -1) bad_shape(c, "a dimension of " + std::to_string(*dim));
    if (dim == 0 && !zero_is_zero) {
      if (i >= from.size()) bad_shape(c, "a dimension to copy that the input lacks");
      shape[i] = from[i];
    }
    if (dim == -1) {
      ++inferred;
    } else {
      rest = rest * shape[i];
    }
  }
  const auto known = static_shape(c.type(x));
  const auto known_rest = as_int(rest);
  if (known && known_rest && inferred == 1) {
    if (*known_rest == 0 || element_count(*known) % *known_rest != 0) {
      bad_shape(c, std::to_string(element_count(*known)) + " elements do not divide into the new shape");
    }
    for (Expr& dim : shape) {
      if (is_const_int(dim, -1)) dim = Expr(element_count(*known) / *known_rest);
    }
  }
  return emit_reshape_open(c, x, shape);
}

ValueId import_reshape(Context& c) {
  const ValueId x = c.input(0);
  const std::vector<Expr> from = c.type(x).shape;
  // To one dimension, whatever is said of it: it has all elements.
  const std::vector<Expr>& wanted = c.type(c.input(1)).shape;
  if (!c.is_known(1) && wanted.size() == 1 && is_const_int(wanted[0], 1))
    return emit_reshape_open(c, x, {simplify(product_of(from))});
  const bool zero_is_zero = c.attribute_int("allowzero", 0) != 0;
  if (!c.is_known(1)) return emit_reshape_open(c, x, c.emit_items(computed_shape(c, x, zero_is_zero)));
  return emit_in_shape(c, x, c.known_dims(1), zero_is_zero);
}

ValueId import_flatten(Context& c) {
  const ValueId x = c.input(0);
  const std::vector<Expr> dims = c.type(x).shape;
  int64_t axis = c.attribute_int("axis", 1);
  const auto rank = static_cast<int64_t>(dims.size());
  if (axis < -rank || axis > rank) bad_shape(c, "axis " + std::to_string(axis) + " is outside the rank");
  if (axis < 0) axis += rank;
  Expr rows(1), columns(1);
  for (int64_t i = 0; i < rank; ++i) (i < axis ? rows : columns) = (i < axis ? rows : columns) * dims[i];
  return emit_reshape_open(c, x, {simplify(rows), simplify(columns)});
}

ValueId import_squeeze(Context& c) {
  const ValueId x = c.input(0);
  const std::vector<Expr> dims = c.type(x).shape;
  // As many axes as dimensions of 1: these, where all others are known to be larger.
  const auto is_one = [](const Expr& dim) { return is_const_int(dim, 1); };
  const bool is_clear = std::all_of(dims.begin(), dims.end(), [&](const Expr& dim) { return as_int(dim).has_value(); });
  const bool has_all =
      c.has_input(1) && is_clear && !c.is_known(1) &&
      is_const_int(product_of(c.type(c.input(1)).shape), std::count_if(dims.begin(), dims.end(), is_one));
  const bool all = has_all || (!c.has_input(1) && !c.has_attribute("axes"));
  if (!all && c.has_input(1) && !c.is_known(1))
    return emit_squeeze(c, x, emit_is_chosen(c, c.input(1), rank_of(c, x)), c.count_items(c.input(1)));
  const std::vector<int> axes = all ? std::vector<int>() : rule_axes(c, axes_of(c, 1), rank_of(c, x));
  std::vector<Expr> shape;
  for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
    const bool is_named = all ? is_one(dims[i]) : contains(axes, i);
    if (is_named) c.require_equal(dims[i], Expr(1), "axis " + std::to_string(i) + " has another extent than 1");
    if (!is_named) shape.push_back(dims[i]);
  }
  return emit_reshape_open(c, x, shape);
}

ValueId import_unsqueeze(Context& c) {
  const ValueId x = c.input(0);
  const std::vector<Expr> dims = c.type(x).shape;
  if (c.has_input(1) && !c.is_known(1)) {
    const int rank = static_cast<int>(dims.size()) + c.count_items(c.input(1));
    return emit_unsqueeze(c, x, emit_is_chosen(c, c.input(1), rank), rank);
  }
  const Ints given = axes_of(c, 1);
  const int rank = static_cast<int>(dims.size() + given.size());
  const std::vector<int> axes = rule_axes(c, given, rank);
  std::vector<Expr> shape;
  size_t next = 0;
  for (int i = 0; i < rank; ++i) {
    if (!contains(axes, i) && next == dims.size()) bad_shape(c, "an axis is named twice");
    shape.push_back(contains(axes, i) ? Expr(1) : dims[next++]);
  }
  return emit_reshape_open(c, x, shape);
}

ValueId import_transpose(Context& c) {
  const int rank = rank_of(c, c.input(0));
  Ints reversed;
  for (int i = rank; i-- > 0;) reversed.push_back(i);
  const Ints perm = c.attribute_ints("perm", reversed);
  Ints sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != Ints(reversed.rbegin(), reversed.rend())) bad_shape(c, "perm is no permutation of the axes");
  return emit_transpose(c, c.input(0), perm);
}

ValueId import_expand(Context& c) {
  const ValueId x = c.input(0);
  const std::vector<Expr> dims = c.type(x).shape;
  std::vector<Expr> shape;
  if (c.is_known(1)) {
    shape = c.known_dims(1);
  } else {
    // Where it says 1, the dimension stays.
    Integers n(c);
    const ValueId wanted = emit_cast(c, c.input(1), i64);
    if (c.type(wanted).rank() != 1) c.refuse("a shape of " + to_string(c.type(wanted)));
    const int count = c.count_items(wanted);
    std::vector<Expr> own(dims.end() - std::min<int64_t>(count, std::ssize(dims)), dims.end());
    own.insert(own.begin(), static_cast<size_t>(count) - own.size(), Expr(1));
    shape = c.emit_items(n.where(n("equal", wanted, n.number(1)), c.emit_sizes(own, {count}), wanted));
  }
  for (size_t i = shape.size(); i < dims.size(); ++i) shape.insert(shape.begin(), dims[dims.size() - 1 - i]);
  for (size_t i = 0; i < dims.size(); ++i) {
    Expr& dim = shape[shape.size() - dims.size() + i];
    if (is_const_int(dim, 1)) dim = dims[i];
    if (!is_const_int(dims[i], 1))
      c.require_equal(dims[i], dim, "dimensions " + to_text(dims[i]) + " and " + to_text(dim));
  }
  return emit_broadcast_open(c, x, shape);
}

// [d…] → [1, d, 1, d …] → [r, d, r, d …] → [r·d …]
// An extent so many times; one that no number holds would come out small.
Expr times_extent(Context& c, const Expr& extent, const Expr& times) {
  int64_t product;
  if (as_int(extent) && as_int(times) && __builtin_mul_overflow(*as_int(extent), *as_int(times), &product))
    bad_shape(c, to_text(times) + " repeats of " + to_text(extent) + " elements are more than memory can hold");
  return simplify(extent * times);
}

ValueId import_tile(Context& c) {
  const ValueId x = c.input(0);
  const std::vector<Expr> dims = c.type(x).shape;
  const std::vector<Expr> repeats = c.read_dims(1);
  if (repeats.size() != dims.size()) bad_shape(c, "repeats has another length than the input's rank");
  std::vector<Expr> spread, repeated, result;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (as_int(repeats[i]).value_or(0) < 0) bad_shape(c, "a negative number of repeats");
    if (!is_const_int(repeats[i], 1)) spread.emplace_back(1), repeated.push_back(repeats[i]);
    spread.push_back(dims[i]), repeated.push_back(dims[i]);
    result.push_back(times_extent(c, dims[i], repeats[i]));
  }
  return emit_reshape_open(c, emit_broadcast_open(c, emit_reshape_open(c, x, spread), repeated), result);
}

// The first opset's: so many times along one axis, each a single number.
ValueId import_tile_of_axis(Context& c) {
  const ValueId x = c.input(0);
  std::vector<Expr> dims = c.type(x).shape;
  const auto number = [&](size_t input) { return emit_reshape(c, emit_cast(c, c.input(input), i64), {}); };
  const Expr times = c.emit_item(number(1), {0}), along = c.known_number(number(2));
  if (!along.is_defined() || !as_int(along)) c.refuse("an axis that is not known");
  const int axis = rule_axis(c, *as_int(along), rank_of(c, x));
  std::vector<Expr> spread = dims, repeated = dims;
  spread.insert(spread.begin() + axis, Expr(1)), repeated.insert(repeated.begin() + axis, times);
  dims[axis] = times_extent(c, dims[axis], times);
  return emit_reshape_open(c, emit_broadcast_open(c, emit_reshape_open(c, x, spread), repeated), dims);
}

ValueId import_concat(Context& c) {
  std::vector<ValueId> parts;
  for (size_t i = 0; i < c.input_count(); ++i) parts.push_back(c.input(i));
  if (parts.empty()) bad_shape(c, "no inputs");
  if (!c.has_attribute("axis") && c.opset() >= 4) bad_shape(c, "no axis");
  return emit_concat(c, parts, rule_axis(c, c.attribute_int("axis", 1), rank_of(c, parts[0])));
}

std::vector<ValueId> import_split(Context& c) {
  const ValueId x = c.input(0);
  const int axis = rule_axis(c, c.attribute_int("axis", 0), rank_of(c, x));
  const Expr extent = c.type(x).shape[axis];
  const Ints stated = c.attribute_ints("split", {});
  std::vector<Expr> sizes = c.has_input(1) ? c.read_dims(1) : std::vector<Expr>(stated.begin(), stated.end());
  if (sizes.empty()) {
    const int64_t parts = c.attribute_int("num_outputs", static_cast<int64_t>(c.output_count()));
    if (parts < 1 || parts > as_int(extent).value_or(parts) + 1)
      bad_shape(c, std::to_string(parts) + " parts of " + to_text(extent));
    const Expr size = simplify(floor_div(extent + (parts - 1), parts));
    for (int64_t i = 0; i < parts; ++i) sizes.push_back(simplify(max(min(extent - size * i, size), Expr(0))));
  }
  if (sizes.size() < c.output_count()) bad_shape(c, "fewer sizes than outputs");
  return emit_split(c, x, axis, sizes);
}

struct Cut {
  Expr start, size;
};

// Of the number of a step, which may be any.
bool is_of_step(Context& c, const Expr& e) {
  if (!c.import().region) return false;
  const std::vector<Var> steps = c.import().region->steps();
  return std::ranges::any_of(steps, [&](const Var& step) { return uses_var(e, step); });
}

// A slice where the extent or a bound is open.  It begins within the extent: a run makes sure, but of what begins at
// the number of a step: that has nothing where it would begin behind.
Cut open_cut(Context& c, const Expr& extent, const Expr& given_start, const Expr& given_end, int64_t step) {
  if (step == 0 || step == INT64_MIN) bad_shape(c, "a step of 0");
  const bool forward = step > 0;
  const Expr before = forward ? Expr(0) : Expr(-1), behind = forward ? extent : simplify(extent - 1);
  const auto at_least = [](const Expr& e, const Expr& low) { return can_prove(e >= low) ? e : simplify(max(e, low)); };
  const auto at_most = [](const Expr& e, const Expr& high) {
    return can_prove(e <= high) ? e : simplify(min(e, high));
  };
  const auto from_front = [&](const Expr& index) {
    constexpr int64_t far = int64_t{1} << 30;  // as all that there is is written
    if (as_int(index).value_or(0) > far) return behind;
    if (as_int(index).value_or(0) < -far) return before;
    if (can_prove(index >= 0)) return index;
    if (can_prove(index < 0)) return simplify(extent + index);
    const Expr is_negative = min(max(-index, Expr(0)), Expr(1));  // as a number
    return simplify(index + extent * is_negative);
  };
  const Expr first = at_least(from_front(given_start), Expr(0)), end_given = at_least(from_front(given_end), before);
  const bool is_cut = !forward || is_of_step(c, first);
  const Expr start = is_cut ? at_most(first, behind) : first;
  const Expr end = forward ? at_most(end_given, behind) : end_given;
  const int64_t stride = std::abs(step);
  const Expr size = simplify(floor_div((forward ? end - start : start - end) + (stride - 1), stride));
  // Where both are cut, it is at the same place, so their order stays.
  const bool is_ordered = forward && is_cut && can_prove(end_given >= first);
  return {at_least(start, Expr(0)), is_ordered ? size : at_least(size, Expr(0))};
}

// By bounds, axes or steps of which some are known only in a run.
ValueId import_computed_slice(Context& c) {
  Integers n(c);
  ValueId x = c.input(0);
  const int rank = rank_of(c, x);
  const ValueId starts = emit_cast(c, c.input(1), i64), ends = emit_cast(c, c.input(2), i64);
  const int count = c.count_items(starts);
  const bool has_steps = c.has_input(4), has_known_axes = !c.has_input(3) || c.constant(c.input(3));
  Ints axes;
  for (int i = 0; i < count; ++i) axes.push_back(i);
  if (c.has_input(3) && has_known_axes) axes = c.constant_ints(3);
  if (has_known_axes) {
    if (std::ssize(axes) != count) bad_shape(c, "starts and axes differ in length");
    for (int i = 0; i < count; ++i) {
      const ValueId step = has_steps ? n.at(emit_cast(c, c.input(4), i64), i) : n.number(1);
      x = emit_computed_slice(c, x, rule_axis(c, axes[i], rank), n.at(starts, i), n.at(ends, i), step);
    }
    return x;
  }
  const ValueId by_start = emit_by_axis(c, starts, c.input(3), rank, 0);
  const ValueId by_end = emit_by_axis(c, ends, c.input(3), rank, int64_t{1} << 40);
  const ValueId by_step = has_steps ? emit_by_axis(c, c.input(4), c.input(3), rank, 1) : no_value;
  for (int axis = 0; axis < rank; ++axis) {
    const ValueId step = has_steps ? n.at(by_step, axis) : n.number(1);
    x = emit_computed_slice(c, x, axis, n.at(by_start, axis), n.at(by_end, axis), step);
  }
  return x;
}

ValueId import_slice(Context& c) {
  const ValueId x = c.input(0);
  const int rank = rank_of(c, x);
  const bool by_input = c.opset() >= 10;
  const auto is_computed = [&](size_t input) { return c.has_input(input) && !c.is_known(input); };
  if (by_input && (is_computed(1) || is_computed(2) || is_computed(3) || is_computed(4)))
    return import_computed_slice(c);
  const auto bounds = [&](size_t input, const char* name) {
    const Ints stated = by_input ? Ints() : c.attribute_ints(name, {});
    return by_input ? c.known_dims(input) : std::vector<Expr>(stated.begin(), stated.end());
  };
  const std::vector<Expr> starts = bounds(1, "starts"), ends = bounds(2, "ends");
  Ints axes, steps(starts.size(), 1);
  for (size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  if (by_input && c.has_input(3)) axes = c.constant_ints(3);
  if (!by_input) axes = c.attribute_ints("axes", axes);
  if (by_input && c.has_input(4)) steps = c.constant_ints(4);
  if (ends.size() != starts.size() || axes.size() != starts.size() || steps.size() != starts.size()) {
    bad_shape(c, "starts, ends, axes and steps differ in length");
  }
  Ints cut_axes, cut_steps;
  std::vector<Expr> cut_starts, cut_sizes;
  for (size_t i = 0; i < starts.size(); ++i) {
    const int axis = rule_axis(c, axes[i], rank);
    const auto extent = as_int(c.type(x).shape[axis]), known_start = as_int(starts[i]), known_end = as_int(ends[i]);
    if (!extent || !known_start || !known_end) {
      const Cut cut = open_cut(c, c.type(x).shape[axis], starts[i], ends[i], steps[i]);
      if (is_const_int(cut.start, 0) && steps[i] == 1 && is_same_dim(cut.size, c.type(x).shape[axis])) continue;
      cut_axes.push_back(axis);
      cut_starts.push_back(cut.start);
      cut_sizes.push_back(cut.size);
      cut_steps.push_back(steps[i]);
      continue;
    }
    if (steps[i] == 0 || steps[i] == INT64_MIN) bad_shape(c, "a step of 0");
    auto from_front = [&](int64_t index) { return index < 0 ? index + *extent : index; };
    const bool forward = steps[i] > 0;
    const int64_t low = forward ? 0 : -1, high = forward ? *extent : *extent - 1;
    const int64_t start =
        std::clamp(from_front(*known_start), forward ? 0 : std::min<int64_t>(0, high), std::max<int64_t>(high, low));
    const int64_t end = std::clamp(from_front(*known_end), low, std::max(high, low));
    const int64_t room = forward ? end - start : start - end, stride = forward ? steps[i] : -steps[i];
    const int64_t size = room <= 0 ? 0 : (room - 1) / stride + 1;
    if (start == 0 && size == *extent && (steps[i] == 1 || size <= 1)) continue;
    cut_axes.push_back(axis);
    cut_starts.emplace_back(size == 0 ? 0 : start);
    cut_sizes.emplace_back(size);
    cut_steps.push_back(size <= 1 ? 1 : steps[i]);
  }
  if (cut_axes.empty()) return x;
  return c.emit(
      "slice", {x},
      attributes_of({{"axes", cut_axes}, {"starts", cut_starts}, {"sizes", cut_sizes}, {"steps", cut_steps}}));
}

ValueId import_pad(Context& c) {
  const ValueId x = c.input(0);
  const int rank = rank_of(c, x);
  const std::string mode = c.attribute_string("mode", "constant");
  if (mode != "constant" && mode != "edge" && mode != "reflect" && mode != "wrap") c.refuse("mode=\"" + mode + "\"");
  const bool by_input = c.opset() >= 11;
  const Ints stated = c.attribute_ints(c.opset() < 2 ? "paddings" : "pads", {});
  const bool has_computed_axes = by_input && c.has_input(3) && !c.is_known(3);
  std::vector<Expr> given;
  if (has_computed_axes) {
    Integers n(c);
    const ValueId pads = emit_cast(c, c.input(1), i64);
    const int64_t count = c.count_items(c.input(3));
    for (const int64_t first : {int64_t{0}, count}) {
      const ValueId side = emit_slice(c, pads, 0, Expr(first), Expr(count));
      for (const Expr& pad : c.emit_items(emit_by_axis(c, side, c.input(3), rank, 0))) given.push_back(pad);
    }
  } else {
    given = by_input ? c.read_dims(1) : std::vector<Expr>(stated.begin(), stated.end());
  }
  if (by_input && c.has_input(3) && !has_computed_axes) {
    const std::vector<int> axes = rule_axes(c, c.constant_ints(3), rank);
    if (given.size() != 2 * axes.size()) bad_shape(c, "pads needs two numbers for each axis");
    std::vector<Expr> all(2 * rank, Expr(0));
    for (size_t i = 0; i < axes.size(); ++i) all[axes[i]] = given[i], all[rank + axes[i]] = given[axes.size() + i];
    given = all;
  }
  if (static_cast<int>(given.size()) != 2 * rank) bad_shape(c, "pads needs two numbers for each dimension");
  if (std::all_of(given.begin(), given.end(), [](const Expr& pad) { return is_const_int(pad, 0); })) return x;
  // Rows are cut off before others are repeated.
  if (mode != "constant" &&
      !std::all_of(given.begin(), given.end(), [](const Expr& pad) { return can_prove(pad >= 0); })) {
    c.refuse("pads that are negative, or may be, with mode=\"" + mode + "\"");
  }
  std::vector<ValueId> inputs{x};
  if (mode == "constant") {
    if (by_input && c.has_input(2)) {
      const NDArray* value = c.constant(c.input(2));
      const bool is_zero =
          value && value->size() == 1 && value->get_float(0) == 0 && !std::signbit(value->get_float(0));
      if (!is_zero) inputs.push_back(emit_reshape(c, c.input(2), {}));
    } else if (!by_input && c.attribute_float("value", 0) != 0) {
      inputs.push_back(emit_scalar(c, dtype_of(c, x), c.attribute_float("value", 0)));
    }
  }
  return c.emit("pad", inputs, attributes_of({{"pads", given}, {"mode", mode}}));
}

ValueId import_depth_to_space(Context& c) {
  const std::vector<Expr> d = c.type(c.input(0)).shape;
  const int64_t b = c.attribute_int("blocksize", 0);
  const std::string mode = c.attribute_string("mode", "DCR");
  if (d.size() != 4 || b < 1) bad_shape(c, "blocksize does not fit");
  if (mode != "DCR" && mode != "CRD") c.refuse("mode=\"" + mode + "\"");
  const Expr channels = simplify(floor_div(d[1], Expr(b * b))), block(b);
  c.require_equal(d[1], simplify(channels * (b * b)), "the channels are no multiple of blocksize squared");
  using Dims = std::vector<Expr>;
  ValueId x = emit_reshape_open(
      c, c.input(0),
      mode == "DCR" ? Dims{d[0], block, block, channels, d[2], d[3]} : Dims{d[0], channels, block, block, d[2], d[3]});
  x = emit_transpose(c, x, mode == "DCR" ? Ints{0, 3, 4, 1, 5, 2} : Ints{0, 1, 4, 2, 5, 3});
  return emit_reshape_open(c, x, {d[0], channels, simplify(d[2] * b), simplify(d[3] * b)});
}

ValueId import_space_to_depth(Context& c) {
  const std::vector<Expr> d = c.type(c.input(0)).shape;
  const int64_t b = c.attribute_int("blocksize", 0);
  const std::string mode = c.attribute_string("mode", "DCR");
  if (d.size() != 4 || b < 1) bad_shape(c, "blocksize does not fit");
  if (mode != "DCR" && mode != "CRD") c.refuse("mode=\"" + mode + "\"");
  const Expr height = simplify(floor_div(d[2], Expr(b))), width = simplify(floor_div(d[3], Expr(b))), block(b);
  c.require_equal(d[2], simplify(height * b), "the height is no multiple of blocksize");
  c.require_equal(d[3], simplify(width * b), "the width is no multiple of blocksize");
  ValueId x = emit_reshape_open(c, c.input(0), {d[0], d[1], height, block, width, block});
  x = emit_transpose(c, x, mode == "DCR" ? Ints{0, 3, 5, 1, 2, 4} : Ints{0, 1, 3, 5, 2, 4});
  return emit_reshape_open(c, x, {d[0], simplify(d[1] * (b * b)), height, width});
}

// Around the middle: what is too much is cut off, what is missing is zero.
ValueId import_center_crop_pad(Context& c) {
  ValueId x = c.input(0);
  const int rank = rank_of(c, x);
  const std::vector<int> axes = chosen_axes(c, x);
  const std::vector<Expr> wanted = c.read_dims(1);
  if (wanted.size() != axes.size()) bad_shape(c, "the wanted shape has another length than axes");
  std::vector<Expr> pads(2 * rank, Expr(0));
  for (size_t i = 0; i < axes.size(); ++i) {
    const Expr extent = c.type(x).shape[axes[i]], kept = simplify(min(extent, wanted[i]));
    x = emit_slice(c, x, axes[i], simplify(floor_div(extent - kept, 2)), kept);
    const Expr missing = simplify(wanted[i] - kept);
    pads[axes[i]] = simplify(floor_div(missing, 2));
    pads[rank + axes[i]] = simplify(missing - pads[axes[i]]);
  }
  if (std::all_of(pads.begin(), pads.end(), [](const Expr& pad) { return is_const_int(pad, 0); })) return x;
  return c.emit("pad", {x}, attributes_of({{"pads", pads}}));
}

}  // namespace

std::vector<Rule> shape_rules() {
  return {
      with_text(rule("Reshape", 5, import_reshape), TextUse::moved),
      rule("Reshape", 1,
           [](Context& c) {
             const Ints shape = c.attribute_ints("shape", {});
             return emit_in_shape(c, c.input(0), {shape.begin(), shape.end()}, false);
           }),
      with_text(rule("Flatten", 1, import_flatten), TextUse::moved),
      with_text(rule("Squeeze", 1, import_squeeze), TextUse::moved),
      with_text(rule("Unsqueeze", 1, import_unsqueeze), TextUse::moved),
      with_text(rule("Transpose", 1, import_transpose), TextUse::moved),
      with_text(rule("Expand", 8, import_expand), TextUse::moved),
      rule("Tile", 6, import_tile),
      rule("Tile", 1, import_tile_of_axis),
      with_text(rule("Concat", 1, import_concat), TextUse::joined),
      {"Split", "", 1, import_split},
      with_text(rule("Slice", 1, import_slice), TextUse::moved),
      rule("Pad", 1, import_pad),
      rule("DepthToSpace", 1, import_depth_to_space),
      rule("SpaceToDepth", 1, import_space_to_depth),
      rule("CenterCropPad", 18, import_center_crop_pad),
  };
}

}  // namespace tw::frontends::onnx
