// Tiles of attention for targets whose threads share what they stage: as many queries of a head as a block of threads
// takes, and as many keys as meet them at a time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/rounding.h"
#include "targets/target.h"

namespace tw::analysis {

constexpr int64_t attention_granule = 16;             // queries and keys come in multiples of it
constexpr int64_t most_in_tile = 64, tile_cost = 16;  // what a tile costs besides, in queries or keys

// As few places without a query or key as can be; of equals the largest.
inline int64_t size_of_tile(int64_t elements, const std::vector<int64_t>& sizes) {
  const auto cost = [&](int64_t size) { return divide_up(elements, size) * (size + tile_cost); };
  return *std::ranges::min_element(sizes, {}, cost);
}

// Queries of one head.  Large tiles are for those who fill half of the multiprocessors with them.  It is the same for
// all numbers of queries that fill the same tiles.
inline int64_t queries_of_tile(int64_t heads, int64_t queries, const Target& target) {
  const int64_t large_tiles = heads * divide_up(queries, most_in_tile);
  if (large_tiles < target.threads / 2) return size_of_tile(queries, {most_in_tile / 2, most_in_tile / 4});
  return size_of_tile(queries, {most_in_tile, most_in_tile / 2, most_in_tile / 4});
}

// What a block of threads stages of a tile, of elements of so many bytes: queries, and `versions` of keys and values;
// of each row a few values of some lanes and some of its own; and weights, which tensor cores take from registers.
struct StagedTile {
  int64_t queries, size, columns, element_bytes;
  bool is_of_tf32 = false;

  bool is_for_tensor_cores(const Target& target) const {
    return target.tensor_core_rate > 0 && (element_bytes == 2 || is_of_tf32);
  }
  int64_t bytes(int64_t keys, int64_t versions, const Target& target) const {
    const bool takes_weights = is_for_tensor_cores(target);
    const int64_t lanes = takes_weights ? 4 : 16, weights = takes_weights ? 0 : queries * keys;
    const int64_t values_of_row = 2 * lanes + 9, between_arrays = 2 << 10;
    const int64_t elements = queries * size + versions * keys * (size + columns) + weights;
    return elements * element_bytes + queries * values_of_row * 4 + between_arrays;
  }
  // Whether the registers of tensor cores' threads hold it, of which 32 have 16 rows: results as they were and those
  // that are made, scores, weights as they are multiplied, and values of 16 keys on their way.
  bool fits_registers(int64_t keys, const Target& target) const {
    constexpr int64_t most = 224;
    return !is_for_tensor_cores(target) || columns + keys / 2 + (keys + columns) * element_bytes / 8 <= most;
  }
  // So many fit beside each other.
  bool fits(int64_t keys, int64_t versions, int64_t blocks, const Target& target) const {
    return blocks * bytes(keys, versions, target) <= target.shared_bytes;
  }
};

// 0: no tile fits.  Tensor cores are fast enough to wait for keys, so that these come ahead, if some fit twice.
inline int64_t keys_of_tile(int64_t keys, const StagedTile& staged, const Target& target) {
  constexpr int64_t some = 32;
  const auto fitting = [&](int64_t least, int64_t versions, int64_t blocks) {
    std::vector<int64_t> sizes;
    for (int64_t size = most_in_tile; size >= least; size -= attention_granule)
      if (staged.fits_registers(size, target) && staged.fits(size, size < keys ? versions : 1, blocks, target))
        sizes.push_back(size);
    return sizes;
  };
  std::vector<int64_t> sizes;
  if (staged.is_for_tensor_cores(target)) sizes = fitting(some, 2, 2);
  for (const int64_t blocks : {2, 1})
    if (sizes.empty()) sizes = fitting(attention_granule, 1, blocks);
  return sizes.empty() ? 0 : size_of_tile(keys, sizes);
}

}  // namespace tw::analysis
