// A file mapped read-only.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace tw {

class FileMap {
 public:
  // Error(file) when it is not a readable ordinary file, or does not fit the address space.
  static std::shared_ptr<const FileMap> open(const std::filesystem::path& path);
  ~FileMap();
  FileMap(const FileMap&) = delete;
  FileMap& operator=(const FileMap&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  FileMap() = default;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// Writes `parts`, one after the other, to a temporary file beside `path`, then renames it: who has the old file
// mapped keeps it, and nobody sees half a file.  Error(file).
void write_file(const std::filesystem::path& path, std::span<const std::span<const std::byte>> parts);

}  // namespace tw
