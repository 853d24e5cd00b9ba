#include "targets/llvm/prune.h"

#include <llvm/Support/CachePruning.h>

namespace tw {

void prune_folder(const std::string& folder, int64_t most_bytes) {
  llvm::CachePruningPolicy policy;
  policy.Interval = std::chrono::seconds(0);    // now
  policy.Expiration = std::chrono::seconds(0);  // by no age
  policy.MaxSizePercentageOfAvailableSpace = 0;
  policy.MaxSizeBytes = static_cast<uint64_t>(most_bytes);
  llvm::pruneCache(folder, policy);
}

}  // namespace tw
