// The inputs of a model, as it declares them and as the caller wants them: dimensions are fixed, or open under a name.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "frontends/custom_operator.h"
#include "frontends/open_dimensions.h"

namespace tw::frontends {

// What the caller says of one dimension of an input.
struct DimensionOption {
  std::optional<int64_t> size;   // fixed
  std::string name;              // open, under this name; empty: as the model has it
  DimensionBounds bounds = {1};  // of an open one

  DimensionOption() = default;
  DimensionOption(int64_t fixed) {  // NOLINT: a number is a dimension; a negative one leaves it as it is
    if (fixed >= 0) size = fixed;
  }
};

struct ImportOptions {
  // Of inputs, by name.  A sequence `x` has as many tensors as there are shapes of x.0, x.1 …, or none with one of `x`.
  std::map<std::string, std::vector<DimensionOption>> shapes;
  std::set<std::string> absent;  // of optional inputs; others are there
  // Of tensors: what they are in every run, so that they are inputs no more.  Of their own element type or, where none
  // is lost, of another; one element is all of an input whose dimensions are fixed.
  std::map<std::string, NDArray> constants;
  std::filesystem::path folder;  // for data beside the model; empty: none allowed
  bool checks = true;            // of indices that are data: a run ends where one is outside of what it is for
  CustomOperators operators;     // of the caller's own; they come before those that we have
  std::string file_name;         // for messages; empty: as the format calls its files
};

// What the model says of one dimension.  Neither: unknown.
struct Dimension {
  std::optional<int64_t> value;
  std::string_view parameter;  // the same name stands for the same number everywhere
};

struct DeclaredInput {
  std::string_view name;
  std::optional<std::vector<Dimension>> shape;  // nothing: even the rank is unknown
};

// Which fixed dimensions the caller gives another size, for people: "dimension 0 of `x` from 1 to 8"; empty: none.
std::string changed_dimensions(const ImportOptions& options, const std::vector<DeclaredInput>& inputs);

// What a caller says that an input is, as the model declares it.  Error(shape) where it does not fit.
NDArray constant_input(const DeclaredInput& input, DType dtype, const NDArray& given);

class Inputs {
 public:
  // Starts with what the caller says, so that a dimension named in several inputs is the same in all of them.
  // Error(shape) where it does not fit what is declared.
  Inputs(Import& import, OpenDimensions& dimensions, const ImportOptions& options,
         const std::vector<DeclaredInput>& inputs);
  // Adds an input to the graph.
  ValueId add(const DeclaredInput& input, DType dtype);

 private:
  Expr open_dimension(const std::string& wanted, DimensionBounds bounds) {
    return open_.dimension(wanted, bounds, graph_.symbols);
  }
  void set_dimension(std::string_view parameter, const Expr& value, const std::string& input);

  Graph& graph_;
  OpenDimensions& open_;
  const ImportOptions& options_;
  std::map<std::string, DimensionBounds> bounds_;  // of open dimensions, as the caller says
  std::map<std::string, Expr> dimensions_;         // by the model's parameter: a number, or one of open_
};

}  // namespace tw::frontends
