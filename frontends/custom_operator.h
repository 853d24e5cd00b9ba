// Operators of a user's own: what a model's nodes of them become is said by a function of the caller's.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "relay_ir/graph.h"

namespace tw::frontends {

using relay::TensorType;

// One use of an operator in a model.
struct CustomUse {
  std::string node;                // its name
  std::string attributes;          // JSON: an object, by name; {} when there are none
  std::vector<TensorType> inputs;  // those that are there; dimensions may be open
};

// What it is computed by (ops/custom.cpp): an expression, an update, or a function of the host
// (runtime/host_function.h).  Funcs are of buffers of the inputs' types, then results, in terms of the open dimensions.
struct CustomResult {
  std::optional<Func> expression;
  std::optional<Func> update;       // of the inputs, then the results of the expression, if there is one
  std::string schedule;             // a name for who schedules kernels with the expression in them; "": nobody
  std::string function, library;    // where there is neither expression nor update
  std::vector<TensorType> outputs;  // of a function; a dimension that is not defined is known in the run only
  std::string sizes;                // the function that says these then, in order: one i64 each
};

// Error where it does not take these inputs.
using CustomOperator = std::function<CustomResult(const CustomUse&)>;
using CustomOperators = std::map<std::pair<std::string, std::string>, CustomOperator>;  // by domain and type

}  // namespace tw::frontends
