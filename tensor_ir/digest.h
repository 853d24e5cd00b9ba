// Hashes that are the same on every platform (XXH3, https://xxhash.com).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tw {

uint64_t hash_of(std::string_view bytes);
std::string digest_of(std::string_view bytes, uint64_t seed = 0);  // of 128 bits, as 32 hexadecimal digits

}  // namespace tw
