// Sequences, optional values, strings and maps, which some formats have beside tensors of numbers.  A list is no value
// of a graph; it has an id that no value has, and what is made of it is made of its tensors.  Where its length is known
// at import these are what is in it; where only a run knows, they are one tensor of all parts and where it is cut
// (sequences.h), and an optional value has a truth beside it.
#pragma once

#include <functional>
#include <map>
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
  ListKind kind = ListKind::sequence;
  // Of a sequence: its tensors, or the one or two of what is packed, stacked or ragged.  Of an optional value: nothing,
  // or what is there, a tensor or a sequence; or a truth, bool[], and what is there where it holds.
  // Of text: its codes (Words).  Of maps: the matrix.
  std::vector<ValueId> values;
  int axis = 0;                         // of what is packed or stacked; of what is ragged: the least rank of its parts
  int rank = 0;                         // of what is ragged: the most
  bool may_be_unknown = false;          // of text: an input's, which may be none of the words
  std::vector<std::string> words = {};  // keys of maps
  std::vector<int64_t> numbers = {};    // …that are integers

  bool is_text() const { return kind == ListKind::text; }
  bool is_sequence() const { return kind != ListKind::optional && !is_text() && kind != ListKind::map; }
  bool is_decided() const { return kind == ListKind::optional && values.size() == 2; }  // by a run
};

// All strings that a model speaks of: text is i64, their places here.
class Words {
 public:
  int64_t code_of(std::string_view word);
  const std::vector<std::string>& all() const { return words_; }

 private:
  std::vector<std::string> words_;
  std::map<std::string, int64_t, std::less<>> codes_;
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
