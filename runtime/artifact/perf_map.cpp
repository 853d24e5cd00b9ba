#include "runtime/artifact/perf_map.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace tw {

void add_to_perf_map(const std::vector<CodeRange>& functions) {
  const char* wanted = std::getenv("TW_PERF_MAP");
  if (!wanted || std::string_view(wanted) != "1" || functions.empty()) return;
  std::string lines;
  for (const CodeRange& function : functions) {
    char range[64];
    std::snprintf(range, sizeof range, "%llx %llx ", static_cast<unsigned long long>(function.address),
                  static_cast<unsigned long long>(function.bytes));
    lines += range + function.name + '\n';
  }
  // All at once, so that threads that load others do not mix with it; no link of somebody else's is followed.
  const std::string path = "/tmp/perf-" + std::to_string(getpid()) + ".map";
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return;
  [[maybe_unused]] const ssize_t written = write(file, lines.data(), lines.size());
  close(file);
}

}  // namespace tw
