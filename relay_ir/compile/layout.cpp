#include "relay_ir/compile/layout.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "relay_ir/op.h"
#include "runtime/artifact/file_map.h"
#include "runtime/memory.h"
#include "runtime/rounding.h"
#include "schedule/layout.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/parallel.h"

namespace tw::relay {
namespace {

IndexMap identity_map(int rank) {
  IndexMap map;
  for (int i = 0; i < rank; ++i) map.from.push_back(Var("d" + std::to_string(i)));
  map.to.assign(map.from.begin(), map.from.end());
  return map;
}

// [n, c, h, w] → [n, c // b, h, w, c % b] for a value of this rank.
IndexMap blocked_map(int rank, int64_t block) {
  IndexMap map = identity_map(rank);
  map.to[1] = floor_div(map.from[1], Expr(block));
  map.to.push_back(floor_mod(map.from[1], Expr(block)));
  return map;
}

// The block of a product or another reduction that is written as it is; nothing where something comes after it.
std::optional<BlockRef> find_reduction(const Group& group, const Schedule& schedule) {
  if (group.nodes.empty() || group.outputs.size() != 1) return std::nullopt;
  const BlockRef last = schedule.blocks().back();
  return schedule.node(last).init.is_defined() ? std::optional(last) : std::nullopt;
}

}  // namespace

Expr storage_bytes(const Value& value) {
  Expr bytes = value.type.dtype.bytes();
  for (int d = 0; d < value.type.rank(); ++d) {
    const Expr& extent = value.type.shape[d];
    const bool is_blocked = d == 1 && value.channel_block > 0;
    bytes =
        bytes * (is_blocked ? floor_div(extent + (value.channel_block - 1), value.channel_block) * value.channel_block
                            : extent);
  }
  return simplify(bytes);
}

// A reduction goes to a blocked output through a copy, as it would through an activation: both keep the iterations of
// the dimensions as the graph has them, by which schedules know channels from rows.
Func apply_layouts(const Graph& graph, const Group& group, const Func& func) {
  const std::vector<ValueId> values = buffer_values(graph, group);
  check(values.size() == func.buffers.size(), "apply_layouts: a buffer for each value");
  if (std::none_of(values.begin(), values.end(), [&](ValueId id) { return graph.values[id].channel_block > 0; })) {
    return func;
  }
  Schedule schedule(func);
  for (size_t i = 0; i < values.size(); ++i) {
    const Value& value = graph.values[values[i]];
    if (value.channel_block == 0) continue;
    const Buffer& buffer = func.buffers[i];
    const bool is_output = schedule.func().is_output(buffer);
    if (const auto reduction = is_output ? find_reduction(group, schedule) : std::nullopt)
      schedule.cache_write(*reduction, buffer->name, Scope::global);
    schedule.transform_layout(buffer->name, blocked_map(value.type.rank(), value.channel_block));
  }
  return schedule.func();
}

NDArray pack_array(const NDArray& array, const IndexMap& map) {
  return apply_layout(array, map, Packing{array, {map}}.packed_shape());
}

Shape Packing::packed_shape() const {
  TensorType type = type_of(original);
  for (const IndexMap& map : layouts) type.shape = physical_shape(map, type.shape);
  return static_shape(type).value();
}

namespace {

// A part of a constant on its way to its place.
struct Part {
  size_t constant;
  int64_t begin, end;  // rows of it
};

bool gets_a_place(const Packing& packing) {
  return !packing.layouts.empty() || packing.original.file();
}

}  // namespace

// Large constants are moved in parts, so that all threads have work to the end, and what was read of a file is given
// back part by part: there are never two of everything.
std::vector<NDArray> pack_constants(const std::vector<Packing>& packings, int jobs) {
  constexpr int64_t part_bytes = 4 << 20;
  std::vector<NDArray> packed;
  std::vector<size_t> starts;
  size_t total = 0;
  for (const Packing& packing : packings) {
    starts.push_back(total);
    if (!gets_a_place(packing)) continue;
    const auto bytes = static_cast<size_t>(element_count(packing.packed_shape()) * packing.original.dtype().bytes());
    total += round_up(bytes, storage_alignment);
  }
  const std::shared_ptr<void> storage = allocate_lasting_storage(total);
  for (size_t i = 0; i < packings.size(); ++i) {
    const Packing& packing = packings[i];
    packed.push_back(gets_a_place(packing) ? NDArray(packing.original.dtype(), packing.packed_shape(),
                                                     static_cast<char*>(storage.get()) + starts[i], storage)
                                           : packing.original);
  }
  std::vector<std::optional<LayoutCopy>> copies(packings.size());
  for_each_in_parallel(packings.size(), jobs, [&](size_t i) {
    const auto& [original, layouts] = packings[i];
    if (!gets_a_place(packings[i])) return;
    if (layouts.size() > 1) {  // what is between two layouts goes as soon as it has been moved on
      NDArray array = original;
      for (size_t step = 0; step + 1 < layouts.size(); ++step) array = pack_array(array, layouts[step]);
      apply_layout(array, layouts.back(), packed[i]);
      if (const FileMap* file = original.file()) file->forget(file->bytes());
      return;
    }
    copies[i].emplace(original, layouts.empty() ? identity_map(original.rank()) : layouts[0], packed[i].shape());
    if (packed[i].size() > original.size()) std::memset(packed[i].data(), 0, packed[i].byte_size());
  });
  std::vector<Part> parts;
  for (size_t i = 0; i < packings.size(); ++i) {
    if (!copies[i]) continue;
    const int64_t rows = copies[i]->rows(), bytes = static_cast<int64_t>(packings[i].original.byte_size());
    const int64_t together = std::max<int64_t>(1, rows * part_bytes / std::max<int64_t>(1, bytes));
    for (int64_t begin = 0; begin < rows; begin += together)
      parts.push_back({i, begin, std::min(rows, begin + together)});
  }
  for_each_in_parallel(parts.size(), jobs, [&](size_t p) {
    const auto& [i, begin, end] = parts[p];
    const NDArray& original = packings[i].original;
    copies[i]->copy(original, packed[i], begin, end);
    if (const FileMap* file = original.file()) {
      const size_t row = original.byte_size() / static_cast<size_t>(copies[i]->rows());
      file->forget(
          {original.as<std::byte>() + static_cast<size_t>(begin) * row, static_cast<size_t>(end - begin) * row});
    }
  });
  return packed;
}

}  // namespace tw::relay
