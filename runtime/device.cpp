#include "runtime/device.h"

#include "runtime/cpu_features.h"
#include "runtime/device_cuda.h"

namespace tw {

std::unique_ptr<Program> make_program(const ProgramSource& source) {
  if (source.requirements.architecture == "cuda") return make_cuda_program(source);
  require_runnable(source.requirements, "");
  return make_cpu_program(source);
}

}  // namespace tw
