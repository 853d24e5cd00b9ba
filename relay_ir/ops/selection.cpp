// Operators that choose as many elements as the data says.  Their results have room for all, or for as many as are
// asked for, and say how many there are: a number that is read from it cuts the rest off (ops/control.cpp, item).
#include <algorithm>
#include <limits>

#include "relay_ir/ops/common.h"
#include "relay_ir/ops/loops.h"
#include "relay_ir/ops/sorting.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::relay {
namespace {

using Dims = std::vector<Expr>;

// Position of the next one is counted in the second result.
OpDef positions_op() {
  OpDef op;
  op.name = "positions";
  op.kind = OpKind::opaque;
  op.doc =
      "Where a list is true: the first `count` positions, in order, then its length where there are fewer; and how "
      "many "
      "of them there are.";
  op.input_names = {"x"};
  op.attributes = {{"count", Dims{}, true, "how many are wanted"}};
  op.facts = plain_facts(unknown_axes, Rounding::exact);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    c.require(c.inputs[0].dtype == boolean && c.inputs[0].rank() == 1, "takes a list of bools");
    const Dims& count = c.attributes.get_dims("count");
    c.require(count.size() == 1 && as_int(count[0]).value_or(0) >= 0, "the count is one number, not negative");
    return {{i64, count}, {i64, Dims{1}}};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const te::Tensor& x = in[0];
    const Expr count = c.attributes.get_dims("count")[0];
    return te::opaque("positions", in, {{i64, {count}}, {i64, {Expr(1)}}}, [&](const std::vector<Buffer>& out) {
      const Expr found = load(out[1], {Expr(0)});
      const Stmt none =
          seq({store(out[1], {Expr(0)}, Expr(0)),
               loops_over({count}, [&](const te::Indices& i) { return store(out[0], i, x.shape()[0]); })});
      const Stmt find = loops_over(x.shape(), [&](const te::Indices& i) {
        const Stmt take = seq({store(out[0], {found}, i[0]), store(out[1], {Expr(0)}, found + 1)});
        return make_stmt<If>(x(i) && found < count, take);
      });
      return seq({none, find});
    });
  };
  op.examples = {{{tensor_type(boolean, {7})}, attributes_of({{"count", Dims{3}}})},
                 {{tensor_type(boolean, {5})}, attributes_of({{"count", Dims{6}}})}};
  return op;
}

// A box as its corners, low and high, and its area.
enum BoxPart { low_y, low_x, high_y, high_x, area, box_parts };
using Box = std::function<Expr(int part)>;

// From four coordinates: two corners in any order, or a center and a size.
std::vector<Expr> parts_of(const std::function<Expr(int)>& coordinate, bool is_center) {
  std::vector<Expr> parts(box_parts);
  parts[area] = const_of(f32, 1);
  for (int axis = 0; axis < 2; ++axis) {
    Expr &low = parts[low_y + axis], &high = parts[high_y + axis];
    if (is_center) {  // x before y
      const Expr middle = coordinate(1 - axis), half = coordinate(3 - axis) / const_of(f32, 2);
      low = middle - half, high = middle + half;
    } else {
      low = min(coordinate(axis), coordinate(axis + 2)), high = max(coordinate(axis), coordinate(axis + 2));
    }
    parts[area] = parts[area] * (high - low);
  }
  return parts;
}

// The common area of both by the area of both together is more than the threshold.
Expr overlap(const Box& a, const Box& b, const Expr& threshold) {
  const Expr zero = const_of(f32, 0);
  Expr common = const_of(f32, 1);
  for (int axis = 0; axis < 2; ++axis)
    common = common * max(min(a(high_y + axis), b(high_y + axis)) - max(a(low_y + axis), b(low_y + axis)), zero);
  const Expr both = a(area) + b(area) - common;
  return a(area) > zero && b(area) > zero && both > zero && common / both > threshold;
}

// Boxes that are taken lie in cells, by where they begin on the axis x, so that a box meets only those that may reach
// it: detectors set the boxes of each class far from the others'.
struct Cells {
  static constexpr int64_t lanes = 16;  // of boxes that are compared at once
  static constexpr int64_t most = 64, boxes_each = 256;
  Expr number, room;                                  // each cell's boxes begin at a multiple of the lanes
  Buffer extent = scratch("extent", f32, {Expr(2)});  // from the lowest box to the highest
  Buffer start, filled, taken;                        // by cell: where its boxes begin, how many are there; the boxes
  Buffer span = scratch("span", i64, {Expr(1)});      // most cells from a box's first to its last

  Expr can_part;  // boxes without a common area do not overlap: of sensible thresholds

  Cells(const Expr& count, const Expr& threshold)
      : number(simplify(min(floor_div(count, boxes_each) + 1, Expr(most)))),
        room(simplify((floor_div(count, lanes) + number + 1) * lanes)),
        start(scratch("start", i64, {number + 1})),
        filled(scratch("filled", i64, {number})),
        taken(scratch("taken_boxes", f32, {Expr(box_parts), room})),
        can_part(threshold >= const_of(f32, 0)) {}

  // Never falls where x grows, so boxes with a common part have a common cell between their first and last ones.
  Expr of(const Expr& x) const {
    const Expr low = load(extent, {Expr(0)}), high = load(extent, {Expr(1)});
    const Expr at = (x - low) / (high - low) * cast(f32, number);
    const Expr last = cast(f32, number - 1);
    return cast(i64, select(can_part && at > const_of(f32, 0), min(at, last), const_of(f32, 0)));  // 0 for NaN
  }
};

// Of each class the boxes from the best score down, each of which removes what overlaps it too much.
OpDef non_max_suppression_op() {
  OpDef op;
  op.name = "non_max_suppression";
  op.kind = OpKind::opaque;
  op.doc =
      "Of each image and class the boxes with the best scores, best first, without those that overlap a better one: "
      "rows "
      "of image, class and box, and how many there are.";
  op.input_names = {"boxes", "scores", "most", "overlap", "score"};
  op.attributes = {{"center", 0, false, "1: boxes are their centers and sizes, else two corners"}};
  op.facts = plain_facts(unknown_axes, Rounding::exact);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType &boxes = c.inputs[0], &scores = c.inputs[1];
    c.require(boxes.dtype == f32 && scores.dtype == f32, "boxes and scores are f32");
    c.require(boxes.rank() == 3 && scores.rank() == 3, "boxes are [images, boxes, 4], scores [images, classes, boxes]");
    c.require_equal(boxes.shape[2], Expr(4), "four coordinates for each box");
    c.require_equal(boxes.shape[0], scores.shape[0], "as many images");
    c.require_equal(boxes.shape[1], scores.shape[2], "a score for each box");
    c.require(c.inputs[2] == TensorType{i64, {}}, "the most boxes of a class are i64[]");
    for (size_t i = 3; i < 5; ++i) c.require(c.inputs[i] == TensorType{f32, {}}, "thresholds are f32[]");
    return {{i64, Dims{simplify(product_of(scores.shape)), 3}}, {i64, Dims{1}}};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const te::Tensor &boxes = in[0], &scores = in[1];
    const Expr images = scores.shape()[0], classes = scores.shape()[1], count = scores.shape()[2];
    const Expr most = in[2](te::Indices{}), threshold = in[3](te::Indices{}), least = in[4](te::Indices{});
    const bool is_center = c.attributes.get_int("center") != 0;
    std::vector<std::pair<DType, Dims>> types;
    for (const TensorType& type : c.outputs) types.emplace_back(type.dtype, type.shape);
    return te::opaque("non_max_suppression", in, types, [&](const std::vector<Buffer>& out) {
      const Cells cells(count, threshold);
      const Buffer order = scratch("order", i64, {Expr(2), count}),
                   corners = scratch("corners", f32, {box_parts, count});
      const Buffer is_left = scratch("is_left", boolean, {count}), hides = scratch("hides", boolean, {Cells::lanes});
      const Buffer first = scratch("first", i64, {count}), last = scratch("last", i64, {count});
      const Buffer of_class = scratch("of_class", i64, {Expr(1)});
      const Expr zero(0), one(1), found = load(out[1], {zero});
      const auto of_box = [&](const Expr& i) { return [&, i](int part) { return load(corners, {Expr(part), i}); }; };
      const auto set = [&](const Buffer& to, const Expr& value) { return store(to, {zero}, value); };

      const Stmt put_in_cells = loops_over({count}, [&](const te::Indices& i) {
        const Expr from = load(first, i), to = load(last, i);
        const Stmt count_it = store(cells.start, {from + 1}, load(cells.start, {from + 1}) + 1);
        return make_stmt<If>(load(is_left, i), seq({store(first, i, cells.of(of_box(i[0])(low_x))),
                                                    store(last, i, cells.of(of_box(i[0])(high_x))), count_it,
                                                    set(cells.span, max(load(cells.span, {zero}), to - from))}));
      });
      const Stmt begin_cells = loops_over({cells.number}, [&](const te::Indices& i) {
        const Expr before = load(cells.start, i), boxes_here = load(cells.start, {i[0] + 1});
        const Expr rounded = floor_div(boxes_here + (Cells::lanes - 1), Cells::lanes) * Cells::lanes;
        return seq({store(cells.start, {i[0] + 1}, before + rounded), store(cells.filled, i, zero)});
      });
      // Whether a box overlaps one that is taken, in the lanes of `hides`.
      const auto meet = [&](const Expr& i) {
        const Expr lowest = max(load(first, {i}) - load(cells.span, {zero}), zero);
        return loops_over({load(last, {i}) - lowest + 1}, [&](const te::Indices& cell) {
          const Expr at = lowest + cell[0];
          const Expr blocks = floor_div(load(cells.filled, {at}) + (Cells::lanes - 1), Cells::lanes);
          return loops_over({blocks}, [&](const te::Indices& block) {
            const Var lane("lane");
            const Expr other = load(cells.start, {at}) + block[0] * Cells::lanes + lane;
            const Expr is_hidden =
                overlap([&](int part) { return load(cells.taken, {Expr(part), other}); }, of_box(i), threshold);
            return make_stmt<For>(lane, Expr(Cells::lanes), LoopKind::vectorized,
                                  store(hides, {lane}, load(hides, {lane}) || is_hidden));
          });
        });
      };
      const auto take = [&](const te::Indices& at, const Expr& i) {
        const Expr cell = load(first, {i}), place = load(cells.start, {cell}) + load(cells.filled, {cell});
        const Expr row[] = {at[0], at[1], load(order, {zero, i})};
        std::vector<Stmt> steps;
        for (int k = 0; k < 3; ++k) steps.push_back(store(out[0], {found, Expr(k)}, row[k]));
        for (int part = 0; part < box_parts; ++part)
          steps.push_back(store(cells.taken, {Expr(part), place}, of_box(i)(part)));
        steps.push_back(store(cells.filled, {cell}, load(cells.filled, {cell}) + 1));
        steps.push_back(set(out[1], found + 1));
        steps.push_back(set(of_class, load(of_class, {zero}) + 1));
        return seq(steps);
      };
      const Stmt classify = loops_over({images, classes}, [&](const te::Indices& at) {
        const auto score = [&](const Expr& box) { return scores({at[0], at[1], box}); };
        const auto is_better = [&](const Expr& a, const Expr& b) { return score(a) > score(b); };
        const Stmt put_in_order = loops_over({count}, [&](const te::Indices& i) {
          const Expr box = load(order, {zero, i[0]});
          const std::vector<Expr> parts = parts_of([&](int k) { return boxes({at[0], box, Expr(k)}); }, is_center);
          std::vector<Stmt> steps{store(is_left, i, score(box) > least), store(first, i, zero), store(last, i, zero)};
          for (int part = 0; part < box_parts; ++part) steps.push_back(store(corners, {Expr(part), i[0]}, parts[part]));
          const auto widen = [&](const Expr& end, const Expr& value) { return store(cells.extent, {end}, value); };
          const Expr low = load(cells.extent, {zero}), high = load(cells.extent, {one});
          steps.push_back(make_stmt<If>(load(is_left, i), seq({widen(zero, min(low, of_box(i[0])(low_x))),
                                                               widen(one, max(high, of_box(i[0])(high_x)))})));
          return seq(steps);
        });
        const Stmt rounds = loops_over({count}, [&](const te::Indices& i) {
          const Stmt none =
              loops_over({Cells::lanes}, [&](const te::Indices& k) { return store(hides, k, bool_imm(false)); });
          Expr is_hidden = load(hides, {zero});
          for (int64_t k = 1; k < Cells::lanes; ++k) is_hidden = is_hidden || load(hides, {Expr(k)});
          return make_stmt<If>(load(is_left, i) && load(of_class, {zero}) < most,
                               seq({none, meet(i[0]), make_stmt<If>(!is_hidden, take(at, i[0]))}));
        });
        const float largest = std::numeric_limits<float>::max();
        const auto clear = [](const Buffer& buffer, const Expr& value) {
          return loops_over(buffer->shape, [&](const te::Indices& i) { return store(buffer, i, value); });
        };
        return seq({merge_sort(order, count, is_better), store(cells.extent, {zero}, const_of(f32, largest)),
                    store(cells.extent, {one}, const_of(f32, -largest)), put_in_order, clear(cells.start, zero),
                    set(cells.span, zero), put_in_cells, begin_cells, clear(cells.taken, const_of(f32, 0)),
                    set(of_class, zero), rounds});
      });
      const Stmt none = seq(
          {set(out[1], zero), loops_over(out[0]->shape, [&](const te::Indices& i) { return store(out[0], i, zero); })});
      Stmt body = seq({none, classify});
      for (const Buffer& buffer : {order, corners, is_left, hides, first, last, of_class, cells.extent, cells.start,
                                   cells.filled, cells.taken, cells.span})
        body = make_stmt<Allocate>(buffer, body);
      return body;
    });
  };
  op.examples = {{{tensor_type(f32, {1, 6, 4}), tensor_type(f32, {1, 2, 6}), tensor_type(i64, {}), tensor_type(f32, {}),
                   tensor_type(f32, {})},
                  {},
                  {NDArray(), NDArray(), int_array({2}).reshape({}), float_array({0.3}).reshape({}),
                   float_array({-1}).reshape({})}}};
  return op;
}

}  // namespace

std::vector<OpDef> selection_family() {
  return {positions_op(), non_max_suppression_op()};
}

}  // namespace tw::relay
