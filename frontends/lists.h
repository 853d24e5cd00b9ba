// Sequences and optional values, which some formats have beside tensors: lists of values that are known when the model
// is imported.  A list is no value of a graph; it has an id that no value has, and what is made of it is made of its
// tensors.  A list whose length only a run knows cannot be had.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "relay_ir/graph.h"

namespace tw::frontends {

using namespace relay;  // a frontend speaks of the graphs that it makes

// A result of a node that was refused: what depends on it cannot be imported, only counted.
inline constexpr ValueId unknown_value = -2;

inline bool is_list(ValueId id) {
  return id < unknown_value;
}

struct List {
  enum class Kind { sequence, optional } kind;
  // Of a sequence: tensors.  Of an optional value: nothing, or what is there, a tensor or a sequence.
  std::vector<ValueId> values;
};

class Lists {
 public:
  // Its id; unknown_value where one of its values is.  Error(limit).
  ValueId add(List list);
  const List& operator[](ValueId id) const { return lists_[static_cast<size_t>(first_id - id)]; }
  // The tensors in lists and beside them, in order.
  std::vector<ValueId> tensors(const std::vector<ValueId>& ids) const;
  // The same with f(tensor) for each tensor, in order.
  ValueId map(ValueId id, const std::function<ValueId(ValueId)>& f);
  // Whether both are tensors, or lists of one kind and length of what is alike.
  bool is_alike(ValueId a, ValueId b) const;

 private:
  static constexpr ValueId first_id = unknown_value - 1;

  std::vector<List> lists_;
  size_t count_ = 0;  // of values in all of them
};

}  // namespace tw::frontends
