// Storage for arrays and arenas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tw {

// Of caches, on all machines that Tilewright knows.
inline constexpr int64_t line_bytes = 64;

// Every storage that a kernel sees begins at such a boundary.
inline constexpr size_t storage_alignment = line_bytes;

inline bool is_aligned(const void* pointer, size_t alignment = storage_alignment) {
  return reinterpret_cast<uintptr_t>(pointer) % alignment == 0;
}

// Uninitialised (large ones: zero) memory at a 64-byte boundary, never null, also for 0 bytes.  Large blocks are pages
// of their own, aligned to 2 MB and offered to the kernel as huge pages, untouched, so that the thread which first
// writes a page owns it.  Error(limit) when the memory cannot be had.
std::shared_ptr<void> allocate_storage(size_t bytes);
// The same for what lives as long as a model: on huge pages from 1 MB on.  Many arrays that are read once a run belong
// into one such block: as 4 KB pages they are more than a core keeps translations of, and to walk the page tables of a
// virtual machine takes longer than to read a page.
std::shared_ptr<void> allocate_lasting_storage(size_t bytes);

// memcpy of what nobody reads soon.  Whole lines go past the caches, where the machine can do that: they are not read
// before they are written.  Other threads see them after the copying one has called publish_copies().
void copy_past_caches(void* to, const void* from, size_t bytes);
void publish_copies();

}  // namespace tw
