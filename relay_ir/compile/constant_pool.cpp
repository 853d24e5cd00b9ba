#include "relay_ir/compile/constant_pool.h"

#include "tensor_ir/text/printer.h"

namespace tw::relay {

BufferUse ConstantPool::add(const std::string& name, const NDArray& original, const std::vector<IndexMap>& layouts) {
  std::string key = to_string(type_of(original));
  for (const IndexMap& map : layouts) key += " " + to_text(map);
  const auto [found, is_new] =
      by_use_.emplace(std::pair(equal_.first_equal(original).data(), key), static_cast<uint32_t>(packings_.size()));
  if (is_new) {
    packings_.push_back({original, layouts});
    infos_.push_back({name, original.dtype(), packings_.back().packed_shape()});
  }
  const TensorInfo& packed = infos_[found->second];
  return {Storage::constant, found->second, 0, element_count(packed.shape) * packed.dtype.bytes()};
}

}  // namespace tw::relay
