// Ensembles of decision trees.
//
// A step of a walk through a tree is a few instructions that wait for one another: which feature, what the row has
// there, whether that is at most the threshold, where to go on.  So several rows walk side by side, without branches
// and all as many steps as the tree is deep: a leaf leads to itself.  A task has so many rows that a tree, once it is
// in the nearest caches, is used by all of them.
#include <algorithm>

#include "relay_ir/in_place.h"
#include "relay_ir/ops/common.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::relay {
namespace {

constexpr int64_t rows_aside = 8;        // that walk side by side: as many places as fit registers
constexpr int64_t most_rows = 512;       // of a task
constexpr int64_t most_tasks = 16;       // where rows are fewer than these would have
constexpr int64_t near_bytes = 1 << 18;  // of a task's rows

enum Input { x_input, nodes_input, thresholds_input, leaves_input, values_input, trees_input };
enum TreeColumn { root_column, steps_column, first_column, tree_columns };

int64_t feature_count(const OpCall& c) {
  return *as_int(c.inputs[x_input].shape[1]) * (c.attributes.get_int("missing_lowest") != 0 ? 2 : 1);
}

// Floats in their order, as integers: zero is 0, NaN `missing`.  Runs take subnormal numbers for zero, and these not.
Expr order_of(const Expr& x, const Expr& missing) {
  const DType key = missing.dtype();
  const int64_t infinity = x.dtype() == f32 ? 0x7f800000 : 0x7ff0000000000000;
  const Expr bits = make_expr<Call>(key, Intrinsic::reinterpret, std::vector<Expr>{x});
  const Expr size = binary(BinaryOp::bit_and, bits, highest_of(key));
  return select(size <= int_imm(key, infinity), select(bits < zero_of(key), -size, size), missing);
}

// Whether all that the arrays say is there, so that a walk needs not look.
bool are_walks_inside(const OpCall& c) {
  for (size_t i = nodes_input; i <= trees_input; ++i)
    if (c.constants.size() <= i || !c.constants[i]) return false;
  const NDArray &nodes = *c.constants[nodes_input], &thresholds = *c.constants[thresholds_input],
                &leaves = *c.constants[leaves_input], &trees = *c.constants[trees_input];
  const int64_t node_count = nodes.shape()[0], leaf_count = c.constants[values_input]->shape()[0],
                width = c.constants[values_input]->shape()[1];
  const int64_t features = feature_count(c), columns = c.attributes.get_int("columns");
  const int64_t lowest = *as_int(lowest_of(thresholds.dtype()));
  const auto is_within = [](int64_t value, int64_t extent) { return value >= 0 && value < extent; };
  const auto *node = static_cast<const int32_t*>(nodes.data()), *leaf = static_cast<const int32_t*>(leaves.data());
  const auto* tree = static_cast<const int32_t*>(trees.data());
  for (int64_t i = 0; i < node_count; ++i) {
    const int64_t child = node[2 * i + 1], last_child = thresholds.get_int(i) == lowest ? child : child + 1;
    if (!is_within(node[2 * i], features) || child < 0 || last_child >= node_count || !is_within(leaf[i], leaf_count))
      return false;
  }
  for (int64_t i = 0; i < trees.shape()[0]; ++i, tree += tree_columns)
    if (!is_within(tree[root_column], node_count) || !is_within(tree[steps_column], node_count + 1) ||
        !is_within(tree[first_column], columns - width + 1))
      return false;
  return true;
}

Expr combined(const std::string& how, const Expr& a, const Expr& b) {
  return how == "sum" ? a + b : how == "min" ? min(a, b) : max(a, b);
}

Expr none_of(const std::string& how, DType dtype) {
  return how == "sum" ? zero_of(dtype) : how == "min" ? highest_of(dtype) : lowest_of(dtype);
}

Stmt loop(const Var& var, const Expr& extent, const Stmt& body, LoopKind kind = LoopKind::serial) {
  return make_stmt<For>(var, extent, kind, body);
}

// Of few elements that are neighbours.
Stmt vector_loop(const Var& var, int64_t extent, const Stmt& body) {
  constexpr int64_t most = 256;
  return loop(var, Expr(extent), body, extent <= most ? LoopKind::vectorized : LoopKind::serial);
}

Buffer of_worker(const char* name, DType dtype, std::vector<Expr> shape, Scope scope = Scope::stack) {
  return Buffer(name, dtype, std::move(shape), scope);
}

Stmt walk(const OpCall& c, const std::vector<te::Tensor>& in, const Buffer& result) {
  const te::Tensor &x = in[x_input], &nodes = in[nodes_input], &thresholds = in[thresholds_input],
                   &leaves = in[leaves_input], &values = in[values_input], &trees = in[trees_input];
  // Sums in f64 are the numbers that they would be in whatever order, to the last bit of f32: equal votes are equal.
  const DType dtype = x.dtype(), key = thresholds.dtype(), wide = f64;
  const std::string& how = c.attributes.get_string("combine");
  const int64_t given = *as_int(x.shape()[1]), features = feature_count(c), columns = c.attributes.get_int("columns"),
                width = *as_int(values.shape()[1]);
  const bool is_inside = are_walks_inside(c);
  const auto index = [&](const Expr& value, const Expr& extent) {
    const Expr wide = cast(i64, value);
    return is_inside ? wide : max(min(wide, extent - 1), Expr(0));
  };
  const Expr rows = x.shape()[0], node_count = nodes.shape()[0];

  int64_t most = near_bytes / (features * key.bytes()) / rows_aside * rows_aside;
  most = std::clamp(most, rows_aside, most_rows);
  const Expr share = floor_div(rows + (most_tasks * rows_aside - 1), Expr(most_tasks * rows_aside)) * rows_aside;
  const Expr rows_a_task = simplify(min(share, Expr(most)));

  const Buffer data = of_worker("data", key, {Expr(most), Expr(features)});
  const Buffer scores = of_worker("scores", wide, {Expr(most), Expr(columns)});
  const Buffer places = of_worker("places", i64, {Expr(rows_aside)}, Scope::register_);
  const Var task("task"), first("first"), count("count"), groups("groups");

  // Rows beyond the last are zeros.
  const Var row("row"), column("column");
  const auto take_part = [&](const Expr& begin, const Expr& missing) {
    const Var feature("feature"), no_feature("feature");
    const Expr taken = order_of(x({Expr(first) + row, feature}), missing);
    return make_stmt<If>(row < count, vector_loop(feature, given, store(data, {row, begin + feature}, taken)),
                         vector_loop(no_feature, given, store(data, {row, begin + no_feature}, zero_of(key))));
  };
  Stmt take = take_part(Expr(0), highest_of(key));
  if (features > given) take = seq({take, take_part(Expr(given), lowest_of(key) + int_imm(key, 1))});
  const Stmt begin = vector_loop(column, columns, store(scores, {row, column}, none_of(how, wide)));

  const Var tree("tree"), root("root"), steps("steps"), to("to"), group("group"), step("step");
  const auto place = [&](int64_t k) { return load(places, {Expr(k)}); };
  const auto row_at = [&](int64_t k) { return Expr(group) * rows_aside + k; };
  std::vector<Stmt> start, go_on, add;
  for (int64_t k = 0; k < rows_aside; ++k) {
    start.push_back(store(places, {Expr(k)}, root));
    const Expr at = load(data, {row_at(k), index(nodes({place(k), Expr(0)}), Expr(features))});
    const Expr is_left = at <= thresholds({place(k)});
    go_on.push_back(
        store(places, {Expr(k)}, index(cast(i64, nodes({place(k), Expr(1)})) + cast(i64, is_left), node_count)));
    const Expr leaf = index(leaves({place(k)}), values.shape()[0]);
    const Var part("part");
    const std::vector<Expr> score{row_at(k), Expr(to) + part};
    add.push_back(vector_loop(
        part, width, store(scores, score, combined(how, load(scores, score), cast(wide, values({leaf, part}))))));
  }
  const Stmt of_group = make_stmt<Allocate>(places, seq({seq(start), loop(step, steps, seq(go_on)), seq(add)}));
  Stmt of_tree = loop(group, groups, of_group);
  const auto of_trees = [&](int64_t which) { return trees({tree, Expr(which)}); };
  of_tree = make_stmt<LetStmt>(to, index(of_trees(first_column), Expr(columns - width + 1)), of_tree);
  of_tree = make_stmt<LetStmt>(steps, index(of_trees(steps_column), node_count + 1), of_tree);
  of_tree = make_stmt<LetStmt>(root, index(of_trees(root_column), node_count), of_tree);

  const Var done("row"), part("column");
  const Expr score = cast(dtype, load(scores, {done, part}));
  const Stmt give = vector_loop(part, columns, store(result, {Expr(first) + done, part}, score));

  Stmt body = seq({loop(row, Expr(groups) * rows_aside, seq({take, begin})), loop(tree, trees.shape()[0], of_tree),
                   loop(done, count, give)});
  body = make_stmt<Allocate>(data, make_stmt<Allocate>(scores, body));
  body = make_stmt<LetStmt>(groups, floor_div(Expr(count) + (rows_aside - 1), Expr(rows_aside)), body);
  body = make_stmt<LetStmt>(count, min(rows - first, rows_a_task), body);
  body = make_stmt<LetStmt>(first, Expr(task) * rows_a_task, body);
  return loop(task, simplify(floor_div(rows + rows_a_task - 1, rows_a_task)), body, LoopKind::parallel);
}

AxisUses tree_axes(const OpCall& c) {
  AxisUses uses = unknown_axes(c);
  uses[x_input][0] = same_axis(0);
  return uses;
}

OpDef tree_ensemble_op() {
  OpDef op;
  op.name = "tree_ensemble";
  op.kind = OpKind::opaque;
  op.doc =
      "Decision trees: each row of x [rows, features] goes down every tree, and what the leaves give it is combined: "
      "[rows, columns].  A node of nodes [n, 2] has a feature and a child: there a row goes on, or at the node after "
      "it "
      "where its feature is at most the node's threshold.  Thresholds are i32 or i64: floats by their order, zero 0 "
      "and "
      "the next one 1; NaN is above all.  A leaf's child is itself and its threshold the lowest integer; of values "
      "[leaves, width] it has the row that `leaves` says.  trees [t, 3] have a root, as many steps as lead to their "
      "deepest leaf, and the first of the `width` columns that they give.";
  op.input_names = {"x", "nodes", "thresholds", "leaves", "values", "trees"};
  op.attributes = {{"columns", int64_t{1}, true, "of the result"},
                   {"combine", "sum", false, "what leaves give one column: sum, min or max"},
                   {"missing_lowest", 0, false, "1: behind x's features come the same again, with NaN below all"}};
  op.facts = plain_facts(tree_axes, Rounding::exact, 1);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType &x = c.inputs[x_input], &nodes = c.inputs[nodes_input], &thresholds = c.inputs[thresholds_input],
                     &leaves = c.inputs[leaves_input], &values = c.inputs[values_input], &trees = c.inputs[trees_input];
    const std::string& how = c.attributes.get_string("combine");
    c.require(how == "sum" || how == "min" || how == "max", "combine is sum, min or max");
    c.require((x.dtype == f32 || x.dtype == f64) && x.rank() == 2, "x is f32 or f64 [rows, features]");
    c.require(thresholds.dtype == (x.dtype == f32 ? i32 : i64), "thresholds are integers of the width of x");
    c.require(values.dtype == x.dtype, "values have the type of x");
    c.require(nodes.dtype == i32 && leaves.dtype == i32 && trees.dtype == i32, "nodes, leaves and trees are i32");
    c.require(
        nodes.rank() == 2 && thresholds.rank() == 1 && leaves.rank() == 1 && values.rank() == 2 && trees.rank() == 2,
        "nodes [n, 2], thresholds [n], leaves [n], values [leaves, width], trees [t, 3]");
    const auto node_shape = const_dims(c, nodes), value_shape = const_dims(c, values),
               tree_shape = const_dims(c, trees);
    c.require(as_int(x.shape[1]).has_value(), open_dimension_text(x, 1));
    const int64_t columns = c.attributes.get_int("columns");
    c.require(node_shape[0] >= 1 && node_shape[1] == 2 && const_dims(c, thresholds)[0] == node_shape[0] &&
                  const_dims(c, leaves)[0] == node_shape[0] && tree_shape[1] == tree_columns,
              "nodes [n, 2], thresholds [n], leaves [n], trees [t, 3]");
    c.require(value_shape[0] >= 1 && value_shape[1] >= 1 && columns >= value_shape[1], "a tree gives some columns");
    c.require(*as_int(x.shape[1]) >= 1, "rows have features");
    return {{x.dtype, {x.shape[0], Expr(columns)}}};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    return te::opaque("tree_ensemble", in, {{c.outputs[0].dtype, c.outputs[0].shape}},
                      [&](const std::vector<Buffer>& out) { return walk(c, in, out[0]); });
  };
  // A tree of three leaves, one that is a leaf, and one of two.
  const NDArray nodes = int_array({1, 1, 0, 3, 0, 2, 0, 3, 0, 4, 0, 5, 2, 7, 0, 7, 0, 8}, i32).reshape({9, 2});
  const NDArray leaves = int_array({0, 0, 0, 1, 2, 3, 0, 1, 3}, i32);
  const NDArray trees = int_array({0, 2, 1, 5, 0, 0, 6, 1, 1}, i32).reshape({3, 3});
  for (const char* how : {"sum", "max"}) {
    for (const DType dtype : {f32, f64}) {
      const DType key = dtype == f32 ? i32 : i64;
      const int64_t none = *as_int(lowest_of(key)), half = dtype == f32 ? 0x3f000000 : 0x3fe0000000000000;
      op.examples.push_back({{tensor_type(dtype, {11, 3}), tensor_type(i32, {9, 2}), tensor_type(key, {9}),
                              tensor_type(i32, {9}), tensor_type(dtype, {4, 2}), tensor_type(i32, {3, 3})},
                             attributes_of({{"columns", int64_t{3}}, {"combine", how}}),
                             {NDArray(), nodes, int_array({half, -half, none, none, none, none, 0, none, none}, key),
                              leaves, float_array({1, 2, -3, 0.5, 4, -1, 0.25, 8}, dtype).reshape({4, 2}), trees}});
    }
  }
  return op;
}

}  // namespace

std::vector<OpDef> trees_family() {
  return {tree_ensemble_op()};
}

}  // namespace tw::relay
