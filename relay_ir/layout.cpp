#include "relay_ir/layout.h"

#include <algorithm>

#include "tensor_ir/interp.h"
#include "tensor_ir/match.h"

namespace tw::relay {

IndexMap blocked_map(int rank, int64_t block) {
  IndexMap map;
  for (int i = 0; i < rank; ++i) map.from.push_back(Var("d" + std::to_string(i)));
  for (int i = 0; i < rank; ++i) map.to.push_back(i == 1 ? floor_div(map.from[1], Expr(block)) : Expr(map.from[i]));
  map.to.push_back(floor_mod(map.from[1], Expr(block)));
  return map;
}

int64_t storage_bytes(const Value& value) {
  Shape shape = *static_shape(value.type);
  if (value.channel_block > 0) {
    shape[1] = (shape[1] + value.channel_block - 1) / value.channel_block * value.channel_block;
  }
  return element_count(shape) * value.type.dtype.bytes();
}

Func apply_layouts(const Graph& graph, const Group& group, const Func& func) {
  std::vector<ValueId> values;  // by buffer
  for (const ValueId id : group.inputs) {
    if (!is_immediate(graph, id)) values.push_back(id);
  }
  values.insert(values.end(), group.outputs.begin(), group.outputs.end());
  check(values.size() == func.buffers.size(), "apply_layouts: a buffer for each value");
  if (std::none_of(values.begin(), values.end(), [&](ValueId id) { return graph.values[id].channel_block > 0; })) {
    return func;
  }
  Schedule schedule(func);
  for (size_t i = 0; i < values.size(); ++i) {
    const Value& value = graph.values[values[i]];
    if (value.channel_block > 0) {
      schedule.transform_layout(func.buffers[i]->name, blocked_map(value.type.rank(), value.channel_block));
    }
  }
  return schedule.func();
}

namespace {

// Offsets in the packed array that each value of one source index contributes; the sum over the indices is the place.
struct Contributions {
  std::vector<std::vector<int64_t>> by_index;  // [source dimension][value]
  Shape shape;                                 // of the packed array
};

Contributions contributions(const Shape& source, const IndexMap& map) {
  // Each new index depends on one old index, as in all blockings and permutations.
  Contributions result;
  std::vector<int> depends_on;
  std::vector<std::vector<int64_t>> values;
  for (const Expr& to : map.to) {
    const std::vector<Var> vars = free_vars(to);
    check(vars.size() <= 1, "pack_array: each new index comes from one old index");
    const int from =
        vars.empty() ? -1 : static_cast<int>(std::find(map.from.begin(), map.from.end(), vars[0]) - map.from.begin());
    depends_on.push_back(from);
    std::vector<int64_t>& list = values.emplace_back();
    const int64_t extent = from < 0 ? 1 : source[from];
    for (int64_t i = 0; i < extent; ++i) {
      list.push_back(from < 0 ? evaluate_int(to, {}) : evaluate_int(to, {{vars[0].name(), i}}));
    }
    result.shape.push_back(list.empty() ? 0 : *std::max_element(list.begin(), list.end()) + 1);
  }
  int64_t stride = 1;
  for (const int64_t extent : source) result.by_index.emplace_back(static_cast<size_t>(extent), 0);
  for (size_t t = map.to.size(); t-- > 0;) {
    if (depends_on[t] >= 0) {
      for (size_t i = 0; i < values[t].size(); ++i) result.by_index[depends_on[t]][i] += values[t][i] * stride;
    }
    stride *= result.shape[t];
  }
  return result;
}

template <class T>
void scatter(const NDArray& from, const Contributions& c, NDArray& to) {
  const Shape& shape = from.shape();
  const T* source = from.as<T>();
  T* target = to.as<T>();
  const int rank = from.rank();
  const std::vector<int64_t>& last = c.by_index[rank - 1];
  std::vector<int64_t> index(rank, 0);
  const int64_t rows = from.size() / static_cast<int64_t>(last.size());
  for (int64_t row = 0; row < rows; ++row) {
    int64_t base = 0;
    for (int d = 0; d + 1 < rank; ++d) base += c.by_index[d][index[d]];
    for (const int64_t offset : last) target[base + offset] = *source++;
    for (int d = rank - 2; d >= 0 && ++index[d] == shape[d]; --d) index[d] = 0;
  }
}

}  // namespace

NDArray pack_array(const NDArray& array, const IndexMap& map) {
  check(array.rank() == static_cast<int>(map.from.size()) && array.rank() > 0, "pack_array: the map fits the array");
  const Contributions c = contributions(array.shape(), map);
  NDArray result(array.dtype(), c.shape);
  std::memset(result.data(), 0, result.byte_size());
  if (array.size() == 0) return result;
  switch (array.dtype().bytes()) {
    case 1:
      scatter<uint8_t>(array, c, result);
      break;
    case 2:
      scatter<uint16_t>(array, c, result);
      break;
    case 4:
      scatter<uint32_t>(array, c, result);
      break;
    default:
      scatter<uint64_t>(array, c, result);
  }
  return result;
}

std::vector<IndexMap> layout_changes(const Trace& trace, const std::string& buffer) {
  std::vector<IndexMap> result;
  for (const Instruction& instruction : trace.instructions) {
    if (instruction.primitive != "transform_layout") continue;
    const auto* name = std::get_if<std::string>(&instruction.arguments.at(0).value);
    const auto* map = std::get_if<std::string>(&instruction.arguments.at(1).value);
    check(name && map, "layout_changes: transform_layout names a buffer and a map");
    if (*name == buffer) result.push_back(parse_index_map(*map));
  }
  return result;
}

}  // namespace tw::relay
