// Images read between their elements, at places that data says: grids of positions, and boxes.
#include <algorithm>

#include "relay_ir/ops/common.h"
#include "relay_ir/ops/loops.h"

namespace tw::relay {
namespace {

using Ints = std::vector<int64_t>;

Expr floor_of(const Expr& x) {
  return call(Intrinsic::floor, {x});
}

// A whole number as an index into `extent` elements, those outside moved to its ends and NaN to the first.
Expr nearest_index(const Expr& x, const Expr& extent) {
  const Expr zero = const_of(x.dtype(), 0), last = cast(x.dtype(), extent - 1);
  return max(cast(i64, select(x >= zero, select(x <= last, x, last), zero)), Expr(0));
}

// Elements of an axis that a position lies among, by how much each counts; some may be outside.
struct Tap {
  Expr at, weight;  // floats; the weight undefined: 1
};

std::vector<Tap> taps_around(const std::string& mode, const Expr& position, double cubic_a) {
  const DType dtype = position.dtype();
  const auto number = [&](double value) { return const_of(dtype, value); };
  if (mode == "nearest") return {{call(Intrinsic::round_even, {position}), Expr()}};
  const Expr first = floor_of(position), along = position - first;
  if (mode == "linear") return {{first, number(1) - along}, {first + number(1), along}};
  const double a = cubic_a;
  const auto near = [&](const Expr& d) { return (number(a + 2) * d - number(a + 3)) * d * d + number(1); };
  const auto far = [&](const Expr& d) {
    return ((number(a) * d - number(5 * a)) * d + number(8 * a)) * d - number(4 * a);
  };
  return {{first - number(1), far(along + number(1))},
          {first, near(along)},
          {first + number(1), near(number(1) - along)},
          {first + number(2), far(number(2) - along)}};
}

// A whole number outside 0 … extent - 1, turned back at the ends: at the middle of the last element, or its edge.
Expr reflected(const Expr& x, const Expr& extent, bool align_corners) {
  const auto number = [&](const Expr& value) { return cast(x.dtype(), value); };
  const Expr period = number(max(align_corners ? 2 * extent - 2 : 2 * extent, 1));
  const Expr along = x - floor_of(x / period) * period;
  return min(along, (align_corners ? period : period - number(Expr(1))) - along);
}

AxisUses grid_sample_axes(const OpCall& c) {
  AxisUses uses = unknown_axes(c);
  for (const int axis : {0, 1}) uses[0][axis] = same_axis(axis);
  uses[1][0] = same_axis(0), uses[1][1] = fixed_axis();
  for (int axis = 2; axis < c.inputs[0].rank(); ++axis) uses[1][axis] = same_axis(axis - 1);
  return uses;
}

OpDef grid_sample_op() {
  OpDef op;
  op.name = "grid_sample";
  op.kind = OpKind::composite;
  op.doc =
      "x [n, c, d…] at the positions grid [n, …, k], from -1 to 1 along each d, the last one first: [n, c, …].  f16 "
      "and bf16 are computed in f32.";
  op.input_names = {"x", "grid"};
  op.attributes = {{"mode", "linear", false, "between elements: nearest, linear or cubic"},
                   {"padding", "zeros", false, "outside x: zeros, border or reflection"},
                   {"align_corners", 0, false, "1: -1 and 1 are the middles of the first and last element, not edges"},
                   {"in_elements", 0, false, "1: positions count elements, from 0 in the middle of the first"}};
  op.facts = plain_facts(grid_sample_axes, Rounding::exact, 1);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType &x = c.inputs[0], &grid = c.inputs[1];
    const std::string &mode = c.attributes.get_string("mode"), &padding = c.attributes.get_string("padding");
    c.require(mode == "nearest" || mode == "linear" || mode == "cubic", "mode is nearest, linear or cubic");
    c.require(padding == "zeros" || padding == "border" || padding == "reflection",
              "padding is zeros, border or reflection");
    c.require(grid.dtype.is_float() && (x.dtype.is_float() || mode == "nearest"), "takes floats");
    c.require(x.rank() >= 3 && x.rank() <= 5 && grid.rank() == x.rank(), "x is [n, c, d…], grid [n, d…, k]");
    c.require_equal(x.shape[0], grid.shape[0], "a grid for each of the batch");
    c.require_equal(grid.shape.back(), Expr(x.rank() - 2), "a coordinate for each dimension");
    TensorType y{x.dtype, {x.shape[0], x.shape[1]}};
    y.shape.insert(y.shape.end(), grid.shape.begin() + 1, grid.shape.end() - 1);
    return {y};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const te::Tensor &x = in[0], &grid = in[1];
    const std::string &mode = c.attributes.get_string("mode"), &padding = c.attributes.get_string("padding");
    const bool align_corners = c.attributes.get_int("align_corners") != 0;
    const bool in_elements = c.attributes.get_int("in_elements") != 0;
    const DType wide = accumulator_of(grid.dtype()), sum_dtype = accumulator_of(x.dtype());
    const int count = x.rank() - 2;
    return {te::compute("grid_sample", c.outputs[0].shape, in, [&](const te::Indices& s) {
      std::vector<std::vector<Tap>> taps;
      for (int d = 0; d < count; ++d) {
        te::Indices at(s.begin(), s.end());
        at.erase(at.begin() + 1);
        at.emplace_back(count - 1 - d);
        const Expr extent = cast(wide, x.shape()[2 + d]), half = const_of(wide, 0.5), one = const_of(wide, 1);
        const Expr given = cast(wide, grid(at)), along = (given + one) * half;
        const Expr place = align_corners ? along * (extent - one) : along * extent - half;
        taps.push_back(taps_around(mode, in_elements ? given : place, -0.75));
      }
      const std::function<Expr(int, te::Indices, Expr)> read = [&](int d, te::Indices at, const Expr& inside) -> Expr {
        if (d == count) return cast(sum_dtype, loaded_where(inside, x, at));
        Expr sum;
        at.emplace_back();
        for (const Tap& tap : taps[d]) {
          const Expr& extent = x.shape()[2 + d];
          const bool is_reflected = padding == "reflection";
          at.back() = nearest_index(is_reflected ? reflected(tap.at, extent, align_corners) : tap.at, extent);
          Expr is_there = can_prove(extent > 0) ? inside : inside && extent > 0;
          if (padding == "zeros")
            is_there = is_there && tap.at >= const_of(wide, 0) && tap.at <= cast(wide, extent - 1);
          Expr part = read(d + 1, at, is_there);
          if (tap.weight.is_defined()) part = cast(sum_dtype, tap.weight) * part;
          sum = sum.is_defined() ? sum + part : part;
        }
        return sum;
      };
      return cast(x.dtype(), read(0, {s[0], s[1]}, bool_imm(true)));
    })};
  };
  for (const char* mode : {"nearest", "linear", "cubic"})
    op.examples.push_back(
        {{tensor_type(f32, {2, 3, 4, 5}), tensor_type(f32, {2, 3, 7, 2})}, attributes_of({{"mode", mode}})});
  op.examples.push_back({{tensor_type(f32, {1, 2, 4, 5}), tensor_type(f32, {1, 6, 1, 2})},
                         attributes_of({{"padding", "reflection"}, {"align_corners", 1}})});
  op.examples.push_back({{tensor_type(f32, {1, 2, 4, 5}), tensor_type(f32, {1, 6, 1, 2})},
                         attributes_of({{"in_elements", 1}}),
                         {},
                         -1,
                         5});
  op.examples.push_back(
      {{tensor_type(f16, {1, 2, 3, 4, 5}), tensor_type(f16, {1, 2, 3, 2, 3})}, attributes_of({{"padding", "border"}})});
  return op;
}

// One axis of a box: where its bins begin, and how many samples each of them has.
struct BoxAxis {
  Expr start, bin, samples;
};

AxisUses roi_align_axes(const OpCall& c) {
  AxisUses uses = unknown_axes(c);
  uses[0][1] = same_axis(1);
  return uses;
}

OpDef roi_align_op() {
  OpDef op;
  op.name = "roi_align";
  op.kind = OpKind::composite;
  op.doc =
      "Boxes x1, y1, x2, y2 of images x [n, c, h, w], each from the image that `images` says, in bins: the mean or the "
      "largest of samples that are interpolated between elements: [boxes, c, height, width].  f16 and bf16 are "
      "computed in f32.";
  op.input_names = {"x", "boxes", "images"};
  op.attributes = {
      {"size", Ints{}, true, "height and width of the result"},
      {"samples", 0, false, "in a bin, along each axis; 0: as many as it has elements"},
      {"scale", 1.0, false, "of x to what boxes are measured in"},
      {"mode", "avg", false, "avg: the mean of a bin's samples; max: the largest of their four parts"},
      {"half_pixel", 1, false, "1: 0 is the edge of the first element; 0: its middle, and boxes have 1 at least"}};
  op.facts = plain_facts(roi_align_axes, Rounding::exact, 1);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType &x = c.inputs[0], &boxes = c.inputs[1], &images = c.inputs[2];
    const Ints& size = c.attributes.get_ints("size");
    const std::string& mode = c.attributes.get_string("mode");
    c.require(x.dtype.is_float() && x.rank() == 4, "x is floats [n, c, h, w]");
    c.require(boxes.dtype.is_float() && boxes.rank() == 2, "boxes are floats [boxes, 4]");
    c.require(images.dtype.is_integer() && images.rank() == 1, "images are a list of integers");
    c.require_equal(boxes.shape[1], Expr(4), "four coordinates for each box");
    c.require_equal(boxes.shape[0], images.shape[0], "an image for each box");
    c.require(size.size() == 2 && size[0] >= 1 && size[1] >= 1, "size is height and width");
    c.require(mode == "avg" || mode == "max", "mode is avg or max");
    c.require(c.attributes.get_int("samples") >= 0, "samples are not negative");
    return {{x.dtype, {boxes.shape[0], x.shape[1], Expr(size[0]), Expr(size[1])}}};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const te::Tensor &x = in[0], &boxes = in[1], &images = in[2];
    const DType wide = accumulator_of(x.dtype());
    const auto number = [&](double value) { return const_of(wide, value); };
    const bool is_mean = c.attributes.get_string("mode") == "avg", is_half = c.attributes.get_int("half_pixel") != 0;
    const int64_t samples = c.attributes.get_int("samples");
    const double scale = c.attributes.get_float("scale");
    const std::vector<Expr>& shape = c.outputs[0].shape;
    const auto axis_of = [&](const Expr& box, int axis) -> BoxAxis {
      const auto corner = [&](int k) {
        const Expr at = cast(wide, boxes({box, Expr(k)})) * number(scale);
        return is_half ? at - number(0.5) : at;
      };
      const Expr extent = corner(3 - axis) - corner(1 - axis), bins = cast(wide, shape[2 + axis]);
      const Expr bin = (is_half ? extent : max(extent, number(1))) / bins;
      constexpr double most = 1 << 15;
      const Expr elements = call(Intrinsic::ceil, {bin});
      const Expr counted =
          select(elements >= number(0), select(elements <= number(most), elements, number(most)), number(0));
      return {corner(1 - axis), bin, samples > 0 ? Expr(samples) : cast(i64, counted)};
    };
    const auto sample = [&](const te::Indices& s, const te::Indices& r) {
      Expr inside = bool_imm(true);
      Expr low[2], high[2], along[2];
      for (int axis = 0; axis < 2; ++axis) {
        const BoxAxis box = axis_of(s[0], axis);
        const Expr& extent = x.shape()[2 + axis];
        const Expr middle = cast(wide, r[axis]) + number(0.5);
        const Expr at = box.start + cast(wide, s[2 + axis]) * box.bin + middle * box.bin / cast(wide, box.samples);
        inside = inside && at >= number(-1) && at <= cast(wide, extent);
        const Expr last = cast(wide, extent - 1);
        const Expr clamped = select(at >= number(0), select(at <= last, at, last), number(0));
        low[axis] = nearest_index(floor_of(clamped), extent);
        high[axis] = max(min(low[axis] + 1, extent - 1), Expr(0));
        along[axis] = clamped - floor_of(clamped);
      }
      Expr result;
      for (int k = 0; k < 4; ++k) {
        const Expr &y = k < 2 ? low[0] : high[0], &at_x = k % 2 == 0 ? low[1] : high[1];
        const Expr weight = (k < 2 ? number(1) - along[0] : along[0]) * (k % 2 == 0 ? number(1) - along[1] : along[1]);
        Expr has_some = bool_imm(true);
        for (const int axis : {0, 2, 3})
          if (!can_prove(x.shape()[axis] > 0)) has_some = has_some && x.shape()[axis] > 0;
        const te::Indices from{data_index(images({s[0]}), x.shape()[0]), s[1], y, at_x};
        const Expr part = weight * cast(wide, loaded_where(has_some, x, from));
        result = !result.is_defined() ? part : is_mean ? result + part : max(result, part);
      }
      return select(inside, result, number(0));
    };
    if (samples > 0) {
      const te::Tensor all = te::reduce("roi_align", shape, {Expr(samples), Expr(samples)},
                                        is_mean ? te::Combiner::sum : te::Combiner::max, in, sample);
      return {te::compute("roi_mean", shape, {all}, [&](const te::Indices& s) {
        return cast(x.dtype(), is_mean ? all(s) / number(static_cast<double>(samples * samples)) : all(s));
      })};
    }
    return te::opaque("roi_align", in, {{x.dtype(), shape}}, [&](const std::vector<Buffer>& out) {
      const Buffer sum = scratch("sum", wide, {Expr(1)});
      const Expr so_far = load(sum, {Expr(0)});
      const Stmt boxes_loop = loops_over(shape, [&](const te::Indices& s) {
        const Expr rows = axis_of(s[0], 0).samples, columns = axis_of(s[0], 1).samples;
        const Var row("row"), column("column");
        const Expr value = sample(s, {row, column}), is_first = equal(Expr(row) + column, 0);
        const Expr next = is_mean ? so_far + value : select(is_first, value, max(so_far, value));
        const Stmt add = make_stmt<For>(row, rows, LoopKind::serial,
                                        make_stmt<For>(column, columns, LoopKind::serial, store(sum, {Expr(0)}, next)));
        const Expr count = max(rows * columns, Expr(1));
        return seq({store(sum, {Expr(0)}, number(0)), add,
                    store(out[0], s, cast(x.dtype(), is_mean ? so_far / cast(wide, count) : so_far))});
      });
      return make_stmt<Allocate>(sum, boxes_loop);
    });
  };
  for (const char* mode : {"avg", "max"})
    for (const int64_t samples : {0, 2})
      op.examples.push_back(
          {{tensor_type(f32, {2, 3, 6, 7}), tensor_type(f32, {2, 4}), tensor_type(i64, {2})},
           attributes_of({{"size", Ints{2, 3}}, {"samples", samples}, {"mode", mode}, {"half_pixel", samples / 2}}),
           {NDArray(), float_array({0.5, 1, 4.2, 5, -2, 1.5, 6, 9}).reshape({2, 4}), int_array({1, 0})}});
  return op;
}

}  // namespace

std::vector<OpDef> sampling_family() {
  return {grid_sample_op(), roi_align_op()};
}

}  // namespace tw::relay
