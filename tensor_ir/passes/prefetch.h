// What a schedule asks of insert_prefetches: a serial loop with these attributes names a buffer that its body streams
// from memory, and how many bytes ahead to ask for it.
#pragma once

namespace tw {

inline constexpr const char* prefetch_attribute = "prefetch";
inline constexpr const char* prefetch_bytes_attribute = "prefetch_bytes";

}  // namespace tw
