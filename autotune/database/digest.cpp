#include "autotune/database/digest.h"

#include <cstdio>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tw::autotune {

std::string digest_of(std::string_view text) {
  const XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  char digits[33];
  std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return digits;
}

}  // namespace tw::autotune
