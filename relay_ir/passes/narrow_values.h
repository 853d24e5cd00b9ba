// Which values lower_precision stores in 16 bits.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "relay_ir/graph.h"
#include "targets/target.h"

namespace tw::relay {

// What a node does with 16-bit floats.
enum class Narrow : uint8_t {
  none,            // its inputs are f32, or are widened by loops that read them
  weights,         // a product with 16-bit weights; its data is as it is stored
  product,         // a product of 16-bit operands
  window_product,  // …of few channels, an odd number: its pairs are neighbours along the window's rows
  group_product,   // …of groups, `groups_together` of which are multiplied as one
  data,            // a product with 16-bit data and f32 weights
  native,          // takes 16 bits and gives them: moves them, or computes in f32 and rounds
};

struct NarrowValues {
  std::vector<bool> is_narrow;   // by ValueId: stored in 16 bits
  std::vector<bool> is_precise;  // by ValueId: some reader wants all bits; it reads the f32 value
  std::vector<Narrow> nodes;     // by index
  std::vector<int64_t> groups_together;
  std::vector<bool> is_kept;  // by index: computes on f32, and its results are stored so for others like it
};

// `has_products`: the target multiplies 16-bit operands, and no slower than f32.  `kept_nodes`: CompileOptions.
NarrowValues choose_narrow_values(const Graph& graph, DType storage, bool has_products, const Target& target,
                                  const std::set<std::string>& kept_nodes);

// Whether the reader wants all bits of what it reads, given which values' readers do.
bool needs_all_bits(const Node& reader, const std::vector<bool>& is_precise);

}  // namespace tw::relay
