#include "runtime/memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "runtime/error.h"
#include "runtime/rounding.h"
#ifdef __x86_64__
#include <emmintrin.h>
#endif

namespace tw {
namespace {

constexpr size_t huge_page = size_t{2} << 20;

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TW_ADDRESS_SANITIZER 1
#endif
#endif

#ifdef TW_ADDRESS_SANITIZER
// The sanitizer guards only what comes from its allocator.
constexpr size_t mapped_from = SIZE_MAX, lasting_mapped_from = SIZE_MAX;
#else
constexpr size_t mapped_from = 2 * huge_page;  // allocated again and again, each time with page faults
constexpr size_t lasting_mapped_from = huge_page / 2;
#endif

[[noreturn]] void refuse(size_t bytes) {
  throw Error(ErrorCode::limit, "cannot allocate " + std::to_string(bytes) +
                                    " bytes\n  help: the machine has too little free memory for this model or input");
}

std::shared_ptr<void> allocate(size_t bytes, size_t mapped_from) {
  if (bytes > static_cast<size_t>(PTRDIFF_MAX) - 2 * huge_page) refuse(bytes);
  if (bytes < mapped_from) {
    size_t rounded = bytes == 0 ? storage_alignment : round_up(bytes, storage_alignment);
    void* pointer = std::aligned_alloc(storage_alignment, rounded);
    if (!pointer) refuse(bytes);
    return {pointer, [](void* p) { std::free(p); }};
  }
  size_t length = round_up(bytes, huge_page) + huge_page;
  void* mapping = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) refuse(bytes);
  auto start = round_up(reinterpret_cast<uintptr_t>(mapping), huge_page);
  void* pointer = reinterpret_cast<void*>(start);
#ifdef MADV_HUGEPAGE
  // Advice only: a kernel without huge pages answers with an error that changes nothing.
  (void)madvise(pointer, length - huge_page, MADV_HUGEPAGE);
#endif
  return {pointer, [mapping, length](void*) { munmap(mapping, length); }};
}

}  // namespace

std::shared_ptr<void> allocate_storage(size_t bytes) {
  return allocate(bytes, mapped_from);
}

std::shared_ptr<void> allocate_lasting_storage(size_t bytes) {
  return allocate(bytes, lasting_mapped_from);
}

#ifdef __x86_64__
void copy_past_caches(void* to, const void* from, size_t bytes) {
  if (!is_aligned(to, line_bytes) || bytes % line_bytes != 0) {
    std::memcpy(to, from, bytes);
    return;
  }
  auto* target = static_cast<__m128i*>(to);
  const auto* source = static_cast<const __m128i*>(from);
  for (size_t i = 0; i < bytes / sizeof(__m128i); ++i) _mm_stream_si128(target + i, _mm_loadu_si128(source + i));
}

void publish_copies() {
  _mm_sfence();
}
#else
void copy_past_caches(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

void publish_copies() {}
#endif

}  // namespace tw
