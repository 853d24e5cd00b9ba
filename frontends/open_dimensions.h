// The open dimensions of a model, and what the model demands of them.  Where two dimensions have to be equal and it
// depends on sizes whether they are, something follows: `min(n, 512)` added to `n` makes n ≤ 512; two inputs that are
// added have the same batch; a mask beside a cache is as long as this and the new tokens.  Inputs are then declared so,
// and the import begins anew: everything after it knows.  What inputs cannot say, nodes rely on.  A run checks both.
//
// What a node of a branch demands holds for runs that take the branch: nodes of it rely on it, and these runs check it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "frontends/builder.h"
#include "tensor_ir/dimension.h"

namespace tw::frontends {

class OpenDimensions {
 public:
  // The dimension that the model or the caller calls so: a variable, or what it is known to be in terms of others.
  // `symbols` get the variables that are new in this import.
  Expr dimension(const std::string& wanted, DimensionBounds bounds, std::vector<Var>& symbols) {
    return value_of(wanted, bounds, Source::inputs, symbols);
  }
  // The number that a node of that name reads in the run, which comes with no input: likewise.
  Expr number(const std::string& wanted, DimensionBounds bounds);
  // Draws from what `node` demands, in a branch of that name or in none: nothing that inputs or runs could be held to;
  // another equality that runs make sure of; or that a dimension is another than it was.
  enum class Learned { nothing, equality, dimension };
  Learned learn(const UnprovenDimensions& unproven, const std::string& node, const std::string& branch);
  // What the node demands holds where its dimensions, and those of these expressions, have an element or more, or where
  // all have: they begin at 1.  False: they do.
  bool hold_to_one(const std::vector<Expr>& of_node, const std::string& node);
  // Whether it is made of open dimensions alone, and not of numbers of steps, which change within a run.
  bool is_of_dimensions(const Expr& e) const;
  // What else runs have to make sure of: all, or those that take the branch.
  const std::vector<Equality>& equalities(const std::string& branch = "") { return equalities_[branch]; }
  // The node that demands what is known of the dimension, for people; "" where none does.
  std::string demanded_by(const std::string& wanted) const;
  // For people: "seq = 1..512 (node `Add_3`)".
  std::vector<std::string> demands() const;

 private:
  enum class Source { inputs, run };  // of a variable
  struct Entry {
    std::string wanted;
    Source source;
    Var var;
    Expr value;        // not defined: the variable
    std::string node;  // that demands the bounds or the value
  };
  Expr value_of(const std::string& wanted, DimensionBounds bounds, Source source, std::vector<Var>& symbols);
  Entry* find(const Var& var);
  // Where in entries_ the last number is that it is made of, from 1 on; 0: it is known before the run reads any.
  size_t last_read(const Expr& e);
  bool hold_to(const Expr& condition, const std::string& node);
  bool set(const Var& var, const Expr& value, const std::string& node);
  void replace(const Var& var, const Expr& by);

  std::vector<Entry> entries_;
  std::map<std::string, std::vector<Equality>> equalities_;  // by branch
};

// Thrown where values that are there already should have been others: the import begins anew.
struct BeginAnew {};
// Imports until nothing more follows.
Import with_open_dimensions(const std::function<Import(OpenDimensions&)>& read);

}  // namespace tw::frontends
