// Folders of files that may go: by LLVM's CachePruning.
#pragma once

#include <cstdint>
#include <string>

namespace tw {

inline const std::string pruned_prefix = "llvmcache-";  // of the names of files that may go

// Removes such files, the least recently used first, until they have at most so many bytes together.
void prune_folder(const std::string& folder, int64_t most_bytes);

}  // namespace tw
