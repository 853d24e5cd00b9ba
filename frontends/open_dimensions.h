// The open dimensions of a model, and what the model demands of them.  Where two dimensions have to be equal and it
// depends on sizes whether they are, something follows: `min(n, 512)` added to `n` makes n ≤ 512; two inputs that are
// added have the same batch; a mask beside a cache is as long as this and the new tokens.  Inputs are then declared so,
// and the import begins anew: everything after it knows.  What inputs cannot say, nodes rely on.  A run checks both.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "frontends/builder.h"
#include "tensor_ir/dimension.h"

namespace tw::frontends {

class OpenDimensions {
 public:
  // The dimension that the model or the caller calls so: a variable, or what it is known to be in terms of others.
  // `symbols` get the variables that are new in this import.
  Expr dimension(const std::string& wanted, DimensionBounds bounds, std::vector<Var>& symbols);
  // Draws from what `node` demands.  False: nothing that inputs could be held to follows.
  bool learn(const UnprovenDimensions& unproven, const std::string& node);
  const std::vector<Equality>& equalities() const { return equalities_; }  // what else a run has to make sure of
  // The node that demands what is known of the dimension, for people; "" where none does.
  std::string demanded_by(const std::string& wanted) const;
  // For people: "seq = 1..512 (node `Add_3`)".
  std::vector<std::string> demands() const;

 private:
  struct Entry {
    std::string wanted;
    Var var;
    Expr value;        // not defined: the variable
    std::string node;  // that demands the bounds or the value
  };
  Entry* find(const Var& var);
  bool hold_to(const Expr& condition, const std::string& node);
  bool set(const Var& var, const Expr& value, const std::string& node);
  bool rely_on(const Expr& a, const Expr& b, const std::string& node);
  void replace(const Var& var, const Expr& by);

  std::vector<Entry> entries_;
  std::vector<Equality> equalities_;
};

// Thrown where something was learned: the import begins anew.
struct Learned {};
// Imports until nothing more follows.
Import with_open_dimensions(const std::function<Import(OpenDimensions&)>& read);

}  // namespace tw::frontends
