// Decision trees as models state them, and what the operator tree_ensemble walks instead.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/ndarray.h"

namespace tw::frontends {

enum class Comparison { at_most, less, at_least, greater, equal, not_equal, member };

// Floats of this type in their order, as integers: zero is 0, the next one 1.
int64_t order_of(double value, DType dtype);

// Where a row goes on, by its number for one feature: the bounds cut all numbers into intervals (a bound is the last of
// its interval), of which every other one goes to `on_true`.  Or a leaf.
struct TreeNode {
  int64_t feature = 0;
  std::vector<int64_t> bounds;                      // ascending, as order_of has them
  bool is_first_true = false;                       // the first interval
  bool is_missing_true = false;                     // NaN
  int64_t on_true = -1, on_false = -1;              // nodes; -1, -1: a leaf
  std::vector<std::pair<int64_t, double>> weights;  // of a leaf: for which columns

  bool is_leaf() const { return on_true < 0; }
  bool is_true(size_t interval) const { return is_first_true == (interval % 2 == 0); }
};

struct Forest {
  std::vector<TreeNode> nodes;
  std::vector<int64_t> roots;  // one a tree
};

// Sets what goes to `on_true`: numbers of this type that compare so with `value`, or that are one of `members`; NaN
// where `is_missing_true`, and always where what is not equal does.
void set_comparison(TreeNode& node, Comparison comparison, double value, std::vector<double> members,
                    bool is_missing_true, DType dtype);

// The operator's inputs.
struct WalkedTrees {
  NDArray nodes, thresholds, leaves, values, trees;
  bool has_missing = false;  // its attribute missing_lowest
};

// Thresholds and values of this type; `combine` as the operator has it.  Error(malformed_model): nodes, features or
// columns that are not there, a node below itself.  Error(limit).
WalkedTrees walked(Forest forest, int64_t features, int64_t columns, const std::string& combine, DType dtype);

}  // namespace tw::frontends
