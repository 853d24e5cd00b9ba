// What a model takes and gives that is no tensor of numbers: sequences, optional values, strings and maps, each made of
// tensors that follow one another among the inputs or outputs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tw {

struct TensorInfo;

enum class ListKind : uint8_t {
  sequence,  // these tensors
  packed,    // a tensor, and i64[n]: the sizes of its n parts along the axis
  stacked,   // a tensor: its parts along the axis, each without that axis
  optional,  // bool[]: whether there is something, and that, a tensor or another list; without any tensor: there is not
  ragged,  // the elements of n parts one after the other, and i64[n, rank]: their shapes, -1 where one has no such axis
  text,    // i64: strings by their place among the words, -1 of an input's that is none of them
  map      // a matrix: a map a row, whose keys are the words, or the numbers, of its columns
};
const char* to_string(ListKind kind);

struct ListInfo {
  std::string name;  // that of the one before it: what is in that one, which is optional
  ListKind kind = ListKind::sequence;
  uint32_t first = 0, count = 0;  // of its tensors, those of a list in it among them
  uint32_t axis = 0;              // of what is packed or stacked
  std::vector<std::string> words = {};
  std::vector<int64_t> numbers = {};
};

// Names of so many tensors of a list but for those of what is in it: y.0, y.1 … of a sequence `y`, y and y.sizes of
// what is packed, y and y.shapes of what is ragged, y of what is stacked, text or
// a map, y.present of what is optional.
std::vector<std::string> tensor_names(const std::string& name, ListKind kind, size_t count);
// Why these cannot be lists of such tensors; empty: they can.
std::string find_list_problem(std::span<const ListInfo> lists, const std::vector<TensorInfo>& tensors);

}  // namespace tw
