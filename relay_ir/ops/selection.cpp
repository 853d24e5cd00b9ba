// Operators that choose as many elements as the data says.  Their results have room for all, or for as many as are
// asked for, and say how many there are: a number that is read from it cuts the rest off (ops/control.cpp, item).
#include <algorithm>

#include "relay_ir/in_place.h"
#include "relay_ir/ops/common.h"
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
      constexpr int64_t lanes = 8;
      const Expr blocks = simplify(floor_div(count + (lanes - 1), lanes)), room = simplify(blocks * lanes);
      const Buffer order = scratch("order", i64, {Expr(2), count}), is_left = scratch("is_left", boolean, {room});
      const Buffer boxes_in_order = scratch("corners", f32, {Expr(box_parts), room});
      const Buffer best = scratch("best", f32, {Expr(box_parts)}), taken = scratch("taken", i64, {Expr(1)});
      const Expr found = load(out[1], {Expr(0)}), of_class = load(taken, {Expr(0)});
      const Stmt classify = loops_over({images, classes}, [&](const te::Indices& at) {
        const auto score = [&](const Expr& box) { return scores({at[0], at[1], box}); };
        const auto is_better = [&](const Expr& a, const Expr& b) { return score(a) > score(b); };
        const Stmt put_in_order = loops_over({count}, [&](const te::Indices& i) {
          const Expr box = load(order, {Expr(0), i[0]});
          const std::vector<Expr> parts = parts_of([&](int k) { return boxes({at[0], box, Expr(k)}); }, is_center);
          std::vector<Stmt> stores{store(is_left, i, score(box) > least)};
          for (int part = 0; part < box_parts; ++part)
            stores.push_back(store(boxes_in_order, {Expr(part), i[0]}, parts[part]));
          return seq(stores);
        });
        const Stmt rounds = loops_over({count}, [&](const te::Indices& i) {
          const Var block("block"), lane("lane");
          const Expr other = Expr(block) * lanes + lane;
          const Expr is_hidden =
              overlap([&](int part) { return load(best, {Expr(part)}); },
                      [&](int part) { return load(boxes_in_order, {Expr(part), other}); }, threshold);
          const Stmt remove = store(is_left, {other}, load(is_left, {other}) && !is_hidden);
          const Stmt of_block = make_stmt<For>(lane, Expr(lanes), LoopKind::vectorized, remove);
          const Stmt suppress = make_stmt<For>(block, blocks, LoopKind::serial,
                                               make_stmt<If>(i[0] < (Expr(block) + 1) * lanes, of_block));
          std::vector<Stmt> take;
          const Expr row[] = {at[0], at[1], load(order, {Expr(0), i[0]})};
          for (int k = 0; k < 3; ++k) take.push_back(store(out[0], {found, Expr(k)}, row[k]));
          for (int part = 0; part < box_parts; ++part)
            take.push_back(store(best, {Expr(part)}, load(boxes_in_order, {Expr(part), i[0]})));
          take.push_back(store(out[1], {Expr(0)}, found + 1));
          take.push_back(store(taken, {Expr(0)}, of_class + 1));
          take.push_back(suppress);
          return make_stmt<If>(load(is_left, i) && of_class < most, seq(take));
        });
        return seq({merge_sort(order, count, is_better), put_in_order, store(taken, {Expr(0)}, Expr(0)), rounds});
      });
      const Stmt none =
          seq({store(out[1], {Expr(0)}, Expr(0)),
               loops_over(out[0]->shape, [&](const te::Indices& i) { return store(out[0], i, Expr(0)); }),
               loops_over({room}, [&](const te::Indices& i) { return store(is_left, i, bool_imm(false)); }),
               loops_over(boxes_in_order->shape,
                          [&](const te::Indices& i) { return store(boxes_in_order, i, const_of(f32, 0)); })});
      Stmt body = seq({none, classify});
      for (const Buffer& buffer : {order, is_left, boxes_in_order, best, taken})
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
