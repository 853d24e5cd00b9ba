// A sequence whose length a run says, as the one to two tensors that it is (frontends/sequences.h).
#pragma once

#include <optional>
#include <vector>

#include "frontends/computed.h"

namespace tw::frontends {

// A position in a sequence: a number that is known, from the end where it is negative, or a tensor of one integer.
// Error(shape), or of a run Error(input), where it is outside.
struct Position {
  std::optional<int64_t> known;
  ValueId computed = no_value;
};

// What tensors of these types can be together: where they are of one shape they are stacked, where they differ along
// one axis packed along it, else ragged.
struct PartsForm {
  ListKind kind = ListKind::stacked;
  int axis = 0;  // of what is packed; of what is ragged the least rank
  int rank = 0;  // the most
};
// `is_fixed`: whether a size is the same wherever tensors of the types are made.
PartsForm form_of(const std::vector<TensorType>& types, const std::function<bool(const Expr&)>& is_fixed);
PartsForm form_of(const std::vector<TensorType>& types);

// Of a part of what is stacked or packed; along the axis of what is packed it is the whole's.
TensorType part_type(const TensorType& whole, const List& list);

class Parts {
 public:
  Parts(Builder& b, const List& list)
      : b_(b), n_(b), list_(list), whole_(list.values[0]), sizes_(list.values.size() > 1 ? list.values[1] : no_value) {}
  // Known tensors as one, in this form.
  static List of(Builder& b, const std::vector<ValueId>& tensors, const PartsForm& form);

  Expr length() const { return is_stacked() ? b_.type(whole_).shape[axis()] : b_.type(sizes_).shape[0]; }
  // As a number.
  Expr place(const Position& position);
  ValueId at(const Expr& place);
  // Tensors that the form does not take make it another one.
  ValueId insert(const Expr& place, ValueId x);
  ValueId erase(const Expr& place);
  // All of one shape, or the run ends: along axis 0.
  ValueId stacked();
  // Along that axis of the parts, which are of one size along the others, or the run ends.
  List packed(int along);
  // …of this rank at most.
  List ragged(int rank);
  List in(const PartsForm& form);

 private:
  bool is_stacked() const { return list_.kind == ListKind::stacked; }
  bool is_ragged() const { return list_.kind == ListKind::ragged; }
  int axis() const { return is_ragged() ? 0 : list_.axis; }  // of the whole
  bool takes(ValueId x) const;
  ValueId row_of(ValueId x);
  ValueId counts();
  Expr cut(const Expr& place);
  Expr size(const Expr& place);
  std::vector<Expr> common_dims();
  ValueId with(ValueId whole, ValueId sizes);
  ValueId inserted(ValueId x, int axis, const Expr& begin, ValueId y);
  ValueId erased(ValueId x, int axis, const Expr& begin, const Expr& size);
  ValueId moved(ValueId x, int from, int to);

  Builder& b_;
  Integers n_;
  List list_;
  ValueId whole_, sizes_;
};

}  // namespace tw::frontends
