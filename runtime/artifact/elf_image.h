// Our own loader of a linked ELF shared object: code without undefined symbols that needs nothing but its own pages.
//
// 64- and 32-bit little-endian images of x86_64, aarch64 and arm.  Segments are copied into pages of their own (the
// code is small; constants travel outside the image), relocated, and given their protection: never writable and
// executable at once.  Only RELATIVE relocations are applied; anything else (another library, an undefined symbol, an
// initialiser, thread-local storage) is refused.  Every offset of the image is checked before it is used.
//
// Linked as lld does with: -shared -z defs -Bsymbolic -z max-page-size=65536 (ARM kernels have pages of up to 64 KB,
// and segments of different protection must not share one).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <unordered_map>

namespace tw {

class ElfImage {
 public:
  // Error(artifact) when it is not such an image, Error(wrong_machine) when it is of another architecture.
  explicit ElfImage(std::span<const std::byte> file);
  ~ElfImage();
  ElfImage(const ElfImage&) = delete;
  ElfImage& operator=(const ElfImage&) = delete;

  // The address of a defined dynamic symbol; null when there is none, or (function) when it is not in executable pages.
  void* symbol(const std::string& name) const;
  void* function(const std::string& name) const;

  // "x86_64", "aarch64", "arm", "cuda"; empty when the bytes are no ELF file of those.
  static std::string architecture_of(std::span<const std::byte> file);

 private:
  struct Loader;

  std::byte* base_ = nullptr;  // where virtual address first_page_ lies
  size_t size_ = 0;
  struct Symbol {
    void* address;
    bool is_executable;
  };
  std::unordered_map<std::string, Symbol> symbols_;
};

}  // namespace tw
