// Constants of the same bytes, found without reading all of those that differ.
#pragma once

#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/ndarray.h"

namespace tw::relay {

class EqualConstants {
 public:
  // The first array that was given with the same bytes, whatever its type and shape; the array itself when it is new.
  const NDArray& first_equal(const NDArray& array);

 private:
  std::map<std::pair<const void*, size_t>, NDArray> known_;     // by data and bytes
  std::unordered_map<size_t, std::vector<NDArray>> different_;  // by hash of their beginnings
};

}  // namespace tw::relay
