// Machine code that this or another process has compiled before, kept on disk by what it was made from.
//
// The key of an entry is a digest of the kernel in lowered form, of all facts of the target that code generation reads
// and of the compiler's own build ID, so an entry is never out of date: whatever changes the code changes the key.
// Entries appear by rename and carry a checksum, so processes may share a directory; one that is damaged counts as
// missing.  A cache that cannot be used costs time and never a compilation.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "targets/lower.h"

namespace tw {

class KernelCache {
 public:
  static constexpr int64_t default_limit = int64_t{256} << 20;

  // Entries are files in `directory`, which is made when it is needed, of at most about `limit` bytes together.
  explicit KernelCache(std::filesystem::path directory, int64_t limit = default_limit);
  // In the directory that TW_CACHE names, else in $XDG_CACHE_HOME/tilewright or ~/.cache/tilewright; null when TW_CACHE
  // is "off" or there is no home.
  static std::unique_ptr<KernelCache> from_environment();

  // The code that was stored for the key.  A damaged entry is removed, and told of by `take_problems`.
  std::optional<std::string> find(const std::string& key);
  // What cannot be written is left out; of the first time `take_problems` tells.
  void store(const std::string& key, std::string_view code);
  // Removes entries down to the limit, the least recently used first, by LLVM's CachePruning.
  void evict();

  // What a user should know, in words, since the last call.
  std::vector<std::string> take_problems();

  const std::filesystem::path& directory() const { return directory_; }
  struct Size {
    int64_t entries = 0, bytes = 0;
  };
  Size size() const;

 private:
  std::filesystem::path directory_;
  int64_t limit_;
  std::mutex mutex_;
  bool is_unwritable_ = false;
  std::vector<std::string> problems_;
};

// Hexadecimal, fit for a file name.  `build` says which compiler.
std::string cache_key(const Kernel& kernel, const Target& target, std::string_view build);
std::string cache_key(std::string_view text, const Target& target, std::string_view build);

// The linker's build ID of the program or library that this compiler is part of: it differs for different code.  Empty
// where the linker made none; then nothing may be cached.
const std::string& compiler_build_id();

}  // namespace tw
