#include "frontends/forest.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "frontends/builder.h"
#include "relay_ir/ops/common.h"

namespace tw::frontends {
namespace {

constexpr size_t most_places = size_t{1} << 27;  // of nodes, and of values

std::string tree_text(size_t tree) {
  return "tree " + std::to_string(tree) + ": ";
}

void check_nodes(const Forest& forest, int64_t features, int64_t columns) {
  const auto count = static_cast<int64_t>(forest.nodes.size());
  for (const TreeNode& node : forest.nodes) {
    for (const auto& [column, weight] : node.weights)
      if (column < 0 || column >= columns)
        malformed("a weight for column " + std::to_string(column) + " of " + std::to_string(columns));
    if (node.is_leaf()) continue;
    if (node.on_true >= count || node.on_false < 0 || node.on_false >= count)
      malformed("a tree leads to a node that is not there");
    if (node.feature < 0 || node.feature >= features)
      malformed("a tree asks for feature " + std::to_string(node.feature) + " of " + std::to_string(features));
  }
}

// By node: how many steps lead to the deepest leaf below it.
std::vector<int32_t> heights_of(const Forest& forest) {
  enum State : uint8_t { unseen, open, done };
  std::vector<State> states(forest.nodes.size(), unseen);
  std::vector<int32_t> heights(forest.nodes.size(), 0);
  std::vector<int64_t> path;
  for (size_t tree = 0; tree < forest.roots.size(); ++tree) {
    path.push_back(forest.roots[tree]);
    while (!path.empty()) {
      const int64_t at = path.back();
      const TreeNode& node = forest.nodes[at];
      if (states[at] == done || node.is_leaf()) {
        states[at] = done;
        path.pop_back();
        continue;
      }
      bool has_new = false;
      for (const int64_t child : {node.on_true, node.on_false}) {
        if (states[child] == open || child == at) malformed(tree_text(tree) + "a node is below itself");
        if (states[child] == unseen && states[at] == unseen) path.push_back(child), has_new = true;
      }
      if (states[at] == unseen) {
        states[at] = open;
        if (has_new) continue;
      }
      states[at] = done;
      heights[at] = std::max(heights[node.on_true], heights[node.on_false]) +
                    static_cast<int32_t>(std::bit_width(node.bounds.size()));
      path.pop_back();
    }
  }
  return heights;
}

// Intervals `first` … `last` of a node.
struct Part {
  int64_t node = 0;
  size_t first = 0, last = 0;
};

// Places of nodes: each is that of the child of the one above it, or the one behind, so that neighbours have one
// parent.
class Placement {
 public:
  // `lowest`: below all thresholds.
  Placement(const Forest& forest, int64_t features, int64_t lowest, WalkedTrees& result)
      : forest_(forest), features_(features), lowest_(lowest), result_(result), pair_of_(forest.nodes.size()) {}

  struct Leaf {
    int64_t node;
    size_t tree;
  };
  struct Place {
    int32_t feature, child, leaf;
    int64_t threshold;
  };
  std::vector<Place> places;
  std::vector<Leaf> leaves;

  int32_t add(size_t tree) {
    parts_of_nodes_.clear();
    tree_ = static_cast<int32_t>(tree);
    const int32_t root = extend(1);
    open_.push_back({root, whole(forest_.roots[tree])});
    while (!open_.empty()) {
      const auto [place, part] = open_.back();
      open_.pop_back();
      fill(place, part);
    }
    return root;
  }

 private:
  Part whole(int64_t node) const { return {node, 0, forest_.nodes[node].bounds.size()}; }

  int32_t extend(size_t count) {
    if (places.size() + count > most_places) throw Error(ErrorCode::limit, "trees of more nodes than can be placed");
    places.resize(places.size() + count);
    return static_cast<int32_t>(places.size() - count);
  }

  void fill(int32_t place, Part part) {
    // What one interval leads to stands in its place.
    while (!forest_.nodes[part.node].is_leaf() && part.first == part.last) {
      const TreeNode& node = forest_.nodes[part.node];
      part = whole(node.is_true(part.first) ? node.on_true : node.on_false);
    }
    const TreeNode& node = forest_.nodes[part.node];
    if (node.is_leaf()) {
      places[place] = {0, place, static_cast<int32_t>(leaves.size()), lowest_};
      leaves.push_back({part.node, static_cast<size_t>(tree_)});
      return;
    }
    const size_t middle = (part.first + part.last) / 2;
    // NaN goes where the last interval does, above all numbers, or where the first does, below.
    const bool is_lowest = node.is_missing_true != node.is_true(node.bounds.size());
    result_.has_missing |= is_lowest;
    const int32_t pair = pair_of(part, middle);
    places[place] = {static_cast<int32_t>(node.feature + (is_lowest ? features_ : 0)), pair, 0, node.bounds[middle]};
  }

  // Where the two halves of the part are; a part that several nodes lead to has them once.
  int32_t pair_of(const Part& part, size_t middle) {
    const bool is_whole = part.first == 0 && part.last == forest_.nodes[part.node].bounds.size();
    Pair& known = is_whole ? pair_of_[part.node] : parts_of_nodes_[{part.node, part.first, part.last}];
    if (known.tree == tree_) return known.place;
    known = {tree_, extend(2)};
    const int32_t pair = known.place;
    open_.push_back({pair, {part.node, middle + 1, part.last}});
    open_.push_back({pair + 1, {part.node, part.first, middle}});
    return pair;
  }

  struct Pair {
    int32_t tree = -1, place = 0;
  };
  const Forest& forest_;
  int64_t features_, lowest_;
  WalkedTrees& result_;
  int32_t tree_ = 0;
  std::vector<Pair> pair_of_;  // by node
  std::map<std::tuple<int64_t, size_t, size_t>, Pair> parts_of_nodes_;
  std::vector<std::pair<int32_t, Part>> open_;
};

// What the leaves of a tree give: columns from `first` to `last`.
struct Columns {
  int64_t first = std::numeric_limits<int64_t>::max(), last = -1;
};

double combined(const std::string& how, double a, double b) {
  return how == "sum" ? a + b : how == "min" ? std::min(a, b) : std::max(a, b);
}

}  // namespace

int64_t order_of(double value, DType dtype) {
  const int64_t size = dtype == f64 ? std::bit_cast<int64_t>(std::abs(value))
                                    : std::bit_cast<int32_t>(static_cast<float>(std::abs(value)));
  return std::signbit(value) ? -size : size;
}

void set_comparison(TreeNode& node, Comparison comparison, double value, std::vector<double> members,
                    bool is_missing_true, DType dtype) {
  node.is_missing_true = is_missing_true || comparison == Comparison::not_equal;
  if (comparison != Comparison::member) members = {value};
  std::erase_if(members, [](double member) { return std::isnan(member); });
  std::vector<int64_t> numbers;
  for (const double member : members) numbers.push_back(order_of(member, dtype));
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  // True from behind this number on, or no longer.
  const auto turn = [&](int64_t bound) {
    if (!node.bounds.empty() && node.bounds.back() == bound)
      node.bounds.pop_back();
    else
      node.bounds.push_back(bound);
  };
  const bool is_interval =
      comparison != Comparison::equal && comparison != Comparison::not_equal && comparison != Comparison::member;
  const bool is_below = comparison == Comparison::less || comparison == Comparison::at_least;
  node.is_first_true = comparison == Comparison::not_equal ||
                       (!numbers.empty() && (comparison == Comparison::at_most || comparison == Comparison::less));
  for (const int64_t number : numbers) {
    if (is_interval)
      turn(is_below ? number - 1 : number);
    else
      turn(number - 1), turn(number);
  }
  // What is above all numbers is NaN.
  if (node.is_missing_true != node.is_true(node.bounds.size()) && node.is_missing_true != node.is_first_true)
    turn(order_of(std::numeric_limits<double>::infinity(), dtype));
}

WalkedTrees walked(Forest forest, int64_t features, int64_t columns, const std::string& combine, DType dtype) {
  for (const int64_t root : forest.roots)
    if (root < 0 || root >= static_cast<int64_t>(forest.nodes.size())) malformed("the root of a tree is not there");
  check_nodes(forest, features, columns);
  const std::vector<int32_t> heights = heights_of(forest);
  WalkedTrees result;
  const DType key = dtype == f64 ? i64 : i32;
  const int64_t lowest = *as_int(lowest_of(key));
  Placement placement(forest, features, lowest, result);
  std::vector<int32_t> roots;
  for (size_t tree = 0; tree < forest.roots.size(); ++tree) roots.push_back(placement.add(tree));

  std::vector<Columns> given(forest.roots.size());
  int64_t width = 1;
  for (const Placement::Leaf& leaf : placement.leaves) {
    Columns& of_tree = given[leaf.tree];
    for (const auto& [column, weight] : forest.nodes[leaf.node].weights) {
      of_tree.first = std::min(of_tree.first, column), of_tree.last = std::max(of_tree.last, column);
      width = std::max(width, of_tree.last - of_tree.first + 1);
    }
  }
  for (Columns& of_tree : given) of_tree.first = std::min(of_tree.first, columns - width);
  if (placement.leaves.size() > most_places / static_cast<size_t>(width))
    throw Error(ErrorCode::limit, "trees whose leaves give more numbers than can be stored");

  const auto place_count = static_cast<int64_t>(placement.places.size()),
             leaf_count = static_cast<int64_t>(placement.leaves.size()),
             tree_count = static_cast<int64_t>(roots.size());
  result.nodes = NDArray(i32, {place_count, 2});
  result.thresholds = NDArray(key, {place_count});
  result.leaves = NDArray(i32, {place_count});
  for (int64_t i = 0; i < place_count; ++i) {
    const Placement::Place& place = placement.places[i];
    result.nodes.set_int(2 * i, place.feature), result.nodes.set_int(2 * i + 1, place.child);
    result.thresholds.set_int(i, place.threshold);
    result.leaves.set_int(i, place.leaf);
  }
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double none = combine == "sum" ? 0 : combine == "min" ? infinity : -infinity;
  result.values = NDArray(dtype, {leaf_count, width});
  for (int64_t i = 0; i < leaf_count; ++i) {
    const Placement::Leaf& leaf = placement.leaves[i];
    std::vector<double> row(width, none);
    for (const auto& [column, weight] : forest.nodes[leaf.node].weights) {
      double& value = row[column - given[leaf.tree].first];
      value = combined(combine, value, weight);
    }
    for (int64_t k = 0; k < width; ++k) result.values.set_float(i * width + k, row[k]);
  }
  result.trees = NDArray(i32, {tree_count, 3});
  for (int64_t i = 0; i < tree_count; ++i) {
    const int64_t of_tree[] = {roots[i], heights[forest.roots[i]], given[i].first};
    for (int64_t k = 0; k < 3; ++k) result.trees.set_int(3 * i + k, of_tree[k]);
  }
  return result;
}

}  // namespace tw::frontends
