// Ensembles of decision trees.
//
// A step of a walk through a tree is a few instructions that wait for one another: which feature, what the row has
// there, whether that is at most the threshold, where to go on.  So several walk side by side, without branches and all
// as many steps as the tree is deep: a leaf leads to itself.  A task has so many rows that a tree, once it is in the
// nearest caches, is used by all of them.
#include <algorithm>

#include "relay_ir/ops/common.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::relay {
namespace {

constexpr int64_t aside = 8;             // that walk side by side: as many places as fit registers
constexpr int64_t most_rows = 512;       // of a task
constexpr int64_t most_tasks = 16;       // where rows are fewer than these would have
constexpr int64_t near_bytes = 1 << 18;  // of a task's rows
constexpr int64_t near_nodes = 1 << 19;  // bytes of them that stay in a core's caches from one task to the next
constexpr int64_t least_rows = 128;      // of a task that fetches more than these

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

// The walks of all rows through all trees.
class Walks {
 public:
  Walks(const OpCall& c, const std::vector<te::Tensor>& in)
      : x_(in[x_input]),
        nodes_(in[nodes_input]),
        thresholds_(in[thresholds_input]),
        leaves_(in[leaves_input]),
        values_(in[values_input]),
        trees_(in[trees_input]),
        how_(c.attributes.get_string("combine")),
        features_(feature_count(c)),
        columns_(c.attributes.get_int("columns")),
        width_(*as_int(values_.shape()[1])),
        is_inside_(are_walks_inside(c)),
        key_(thresholds_.dtype()) {
    const int64_t bytes = features_ * key_.bytes() + columns_ * wide.bytes();
    const int64_t most = std::clamp(near_bytes / bytes / aside * aside, aside, most_rows);
    const int64_t of_nodes = *as_int(nodes_.shape()[0]) * (2 * i32.bytes() + key_.bytes());
    const int64_t least = std::min(of_nodes <= near_nodes ? aside : least_rows, most);
    const Expr share = floor_div(x_.shape()[0] + (most_tasks * aside - 1), Expr(most_tasks * aside)) * aside;
    rows_a_task_ = simplify(max(min(share, Expr(most)), Expr(least)));
    data_ = Buffer("data", key_, {Expr(most), Expr(features_)}, Scope::stack);
    scores_ = Buffer("scores", wide, {Expr(most), Expr(columns_)}, Scope::stack);
  }

  Stmt all(const Buffer& result) const {
    const Var task("task"), first("first"), count("count");
    const Expr rows = x_.shape()[0];
    // Few rows go down several trees at once, many go down a tree together.
    const Stmt walk = make_stmt<If>(count < aside, row_by_row(count), tree_by_tree(count));
    Stmt body = seq({take(first, count), walk, give(first, count, result)});
    body = make_stmt<Allocate>(data_, make_stmt<Allocate>(scores_, body));
    body = make_stmt<LetStmt>(count, min(rows - first, rows_a_task_), body);
    body = make_stmt<LetStmt>(first, Expr(task) * rows_a_task_, body);
    return loop(task, simplify(floor_div(rows + rows_a_task_ - 1, rows_a_task_)), body, LoopKind::parallel);
  }

 private:
  // Sums in f64 are the numbers that they would be in whatever order, to the last bit of f32: equal votes are equal.
  static constexpr DType wide = f64;

  struct Walker {
    Expr row, root, to;
    Expr is_counted;  // not defined: yes
  };

  Expr index(const Expr& value, const Expr& extent) const {
    const Expr whole = cast(i64, value);
    return is_inside_ ? whole : max(min(whole, extent - 1), Expr(0));
  }
  Expr root_of(const Expr& tree) const { return index(trees_({tree, Expr(root_column)}), nodes_.shape()[0]); }
  Expr steps_of(const Expr& tree) const { return index(trees_({tree, Expr(steps_column)}), nodes_.shape()[0] + 1); }
  Expr first_of(const Expr& tree) const {
    return width_ == columns_ ? Expr(0) : index(trees_({tree, Expr(first_column)}), Expr(columns_ - width_ + 1));
  }

  // Rows as integers; those beyond the last, up to as many as walk together, are zeros.
  Stmt take(const Expr& first, const Expr& count) const {
    const Var row("row"), column("column");
    const int64_t given = *as_int(x_.shape()[1]);
    const auto part = [&](int64_t begin, const Expr& missing) {
      const Var feature("feature"), no_feature("feature");
      const Expr taken = order_of(x_({first + row, feature}), missing);
      return make_stmt<If>(row < count, vector_loop(feature, given, store(data_, {row, feature + begin}, taken)),
                           vector_loop(no_feature, given, store(data_, {row, no_feature + begin}, zero_of(key_))));
    };
    Stmt body = part(0, highest_of(key_));
    if (features_ > given) body = seq({body, part(given, lowest_of(key_) + int_imm(key_, 1))});
    const Stmt begin = vector_loop(column, columns_, store(scores_, {row, column}, none_of(how_, wide)));
    return loop(row, groups(count) * aside, seq({body, begin}));
  }

  Stmt give(const Expr& first, const Expr& count, const Buffer& result) const {
    const Var row("row"), column("column");
    const Expr score = cast(result->dtype, load(scores_, {row, column}));
    return loop(row, count, vector_loop(column, columns_, store(result, {first + row, column}, score)));
  }

  Stmt tree_by_tree(const Expr& count) const {
    const Var tree("tree"), root("root"), steps("steps"), to("to"), group("group");
    std::vector<Walker> walkers;
    for (int64_t k = 0; k < aside; ++k) walkers.push_back({Expr(group) * aside + k, root, to, Expr()});
    Stmt body = loop(group, groups(count), side_by_side(walkers, steps));
    body = make_stmt<LetStmt>(to, first_of(tree), body);
    body = make_stmt<LetStmt>(steps, steps_of(tree), body);
    return loop(tree, trees_.shape()[0], make_stmt<LetStmt>(root, root_of(tree), body));
  }

  Stmt row_by_row(const Expr& count) const {
    const Var row("row"), group("group"), steps("steps");
    const Expr trees = trees_.shape()[0];
    std::vector<Walker> walkers;
    Expr most;
    for (int64_t k = 0; k < aside; ++k) {
      const Expr tree = Expr(group) * aside + k, inside = min(tree, trees - 1);
      walkers.push_back({row, root_of(inside), first_of(inside), tree < trees});
      most = most.is_defined() ? max(most, steps_of(inside)) : steps_of(inside);
    }
    const Stmt body = make_stmt<LetStmt>(steps, most, side_by_side(walkers, steps));
    return loop(row, count, loop(group, groups(trees), body));
  }

  static Expr groups(const Expr& count) { return floor_div(count + (aside - 1), Expr(aside)); }

  Stmt side_by_side(const std::vector<Walker>& walkers, const Expr& steps) const {
    const Buffer places("places", i64, {Expr(aside)}, Scope::register_);
    std::vector<Stmt> begin, go_on, add;
    for (int64_t k = 0; k < aside; ++k) {
      const Walker& walker = walkers[k];
      const Expr place = load(places, {Expr(k)});
      begin.push_back(store(places, {Expr(k)}, walker.root));
      const Expr number = load(data_, {walker.row, index(nodes_({place, Expr(0)}), Expr(features_))});
      const Expr next = cast(i64, nodes_({place, Expr(1)})) + cast(i64, number <= thresholds_({place}));
      go_on.push_back(store(places, {Expr(k)}, index(next, nodes_.shape()[0])));
      const Var part("part");
      const std::vector<Expr> at{walker.row, walker.to + part};
      const Expr value = cast(wide, values_({index(leaves_({place}), values_.shape()[0]), part}));
      const Stmt add_leaf = vector_loop(part, width_, store(scores_, at, combined(how_, load(scores_, at), value)));
      add.push_back(walker.is_counted.is_defined() ? make_stmt<If>(walker.is_counted, add_leaf) : add_leaf);
    }
    // Two steps an iteration: places need not change registers, and who is at a leaf stays there.
    const Var step("step");
    const Stmt walk = loop(step, floor_div(steps + 1, Expr(2)), seq({seq(go_on), seq(go_on)}));
    return make_stmt<Allocate>(places, seq({seq(begin), walk, seq(add)}));
  }

  te::Tensor x_, nodes_, thresholds_, leaves_, values_, trees_;
  std::string how_;
  int64_t features_, columns_, width_;
  bool is_inside_;
  DType key_;
  Expr rows_a_task_;
  Buffer data_, scores_;  // of a task's rows
};

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
                      [&](const std::vector<Buffer>& out) { return Walks(c, in).all(out[0]); });
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
