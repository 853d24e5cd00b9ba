#include "runtime/openmp.h"

#include <dlfcn.h>
#include <link.h>

#include <string_view>
#include <vector>

#include "runtime/error.h"

namespace tw {
namespace {

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

// Paths of all that are loaded, in the order in which they were.
std::vector<std::string> loaded_runtimes() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* library, size_t, void* data) {
        const std::string_view name = base_name(library->dlpi_name);
        for (const std::string_view known : {"libgomp", "libomp", "libiomp5"})
          if (name.starts_with(known)) static_cast<std::vector<std::string>*>(data)->push_back(library->dlpi_name);
        return 0;
      },
      &paths);
  return paths;
}

OpenMp entry_points(void* library) {
  OpenMp found;
  if (!library) return found;
  void* parallel = dlsym(library, "GOMP_parallel");
  Dl_info where;
  if (parallel && dladdr(parallel, &where)) found.path = where.dli_fname;
  found.parallel = reinterpret_cast<decltype(found.parallel)>(parallel);
  found.thread_number = reinterpret_cast<int (*)()>(dlsym(library, "omp_get_thread_num"));
  found.thread_count = reinterpret_cast<int (*)()>(dlsym(library, "omp_get_num_threads"));
  if (!found.thread_number || !found.thread_count) found.parallel = nullptr;
  return found;
}

// What this library, or what it needs, depends on.
OpenMp our_own() {
  Dl_info ours;
  if (!dladdr(reinterpret_cast<void*>(&openmp), &ours)) return {};
  return entry_points(dlopen(ours.dli_fname, RTLD_LAZY | RTLD_NOLOAD));
}

OpenMp choose() {
  const OpenMp own = our_own();
  for (const std::string& path : loaded_runtimes()) {
    if (path == own.path) continue;
    if (OpenMp other = entry_points(dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD)); other.parallel) return other;
  }
  if (own.parallel) return own;
  return entry_points(dlopen("libgomp.so.1", RTLD_LAZY));
}

}  // namespace

const OpenMp& openmp() {
  static const OpenMp chosen = choose();
  if (!chosen.parallel)
    throw Error(ErrorCode::limit,
                "there is no OpenMP runtime in this process, and no libgomp.so.1\n  help: install libgomp1, or use "
                "Tilewright's own team of threads");
  return chosen;
}

}  // namespace tw
