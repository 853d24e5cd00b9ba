#include "targets/compile_image.h"

#include "targets/backend.h"

namespace tw {

std::vector<std::byte> compile_image(const std::vector<Kernel>& kernels, const Target& target,
                                     const CodegenOptions& options, CodegenReport* report) {
  return target.backend->compile_image(kernels, target, options, report);
}

}  // namespace tw
