#include "relay_ir/compile/constant_pool.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "tensor_ir/text/printer.h"

namespace tw::relay {

BufferUse ConstantPool::add(const std::string& name, const NDArray& original, const std::vector<IndexMap>& layouts) {
  std::string key = to_string(type_of(original));
  for (const IndexMap& map : layouts) key += " " + to_text(map);
  const auto [found, is_new] =
      by_use_.emplace(std::pair(first_equal(original).data(), key), static_cast<uint32_t>(packings_.size()));
  if (is_new) {
    packings_.push_back({original, layouts});
    infos_.push_back({name, original.dtype(), packings_.back().packed_shape()});
  }
  const TensorInfo& packed = infos_[found->second];
  return {Storage::constant, found->second, 0, element_count(packed.shape) * packed.dtype.bytes()};
}

// Of those with the same bytes.  Most that differ do so in their first ones.
NDArray ConstantPool::first_equal(const NDArray& array) {
  const std::pair<const void*, size_t> place(array.data(), array.byte_size());
  if (const auto found = known_.find(place); found != known_.end()) return found->second;
  const std::string_view bytes(static_cast<const char*>(array.data()), array.byte_size());
  std::vector<NDArray>& candidates = different_[std::hash<std::string_view>()(bytes.substr(0, 4096))];
  const auto equal = std::ranges::find_if(candidates, [&](const NDArray& other) {
    return other.byte_size() == bytes.size() && std::memcmp(other.data(), bytes.data(), bytes.size()) == 0;
  });
  return known_[place] = equal != candidates.end() ? *equal : candidates.emplace_back(array);
}

}  // namespace tw::relay
