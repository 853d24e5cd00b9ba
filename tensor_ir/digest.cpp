#include "tensor_ir/digest.h"

#include <cstdio>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tw {

uint64_t hash_of(std::string_view bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string digest_of(std::string_view bytes, uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  char digits[33];
  std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return digits;
}

}  // namespace tw
