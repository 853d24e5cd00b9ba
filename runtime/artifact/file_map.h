// A file, or a part of one, mapped read-only; or a copy of bytes in such memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace tw {

class FileMap {
 public:
  // Error(file) when it is not a readable ordinary file, or does not fit the address space.
  static std::shared_ptr<const FileMap> open(const std::filesystem::path& path);
  // So many bytes of it, from `first`; Error(file), too, when it is shorter.
  static std::shared_ptr<const FileMap> open(const std::filesystem::path& path, uint64_t first, uint64_t count);
  // Error(limit) when the memory cannot be had.
  static std::shared_ptr<const FileMap> copy_of(std::span<const std::byte> bytes);
  ~FileMap();
  FileMap(const FileMap&) = delete;
  FileMap& operator=(const FileMap&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Gives back the memory of whole pages in a part of the bytes: who reads them again waits for the file.  A copy keeps
  // them.
  void forget(std::span<const std::byte> part) const;

 private:
  FileMap() = default;
  const std::byte* data_ = nullptr;
  size_t size_ = 0, before_ = 0;  // bytes that are mapped in front, to the page's beginning
  bool is_copy_ = false;
};

// Writes `parts`, one after the other, to a temporary file beside `path`, then renames it: who has the old file
// mapped keeps it, and nobody sees half a file.  Error(file).
void write_file(const std::filesystem::path& path, std::span<const std::span<const std::byte>> parts);

}  // namespace tw
