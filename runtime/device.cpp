#include "runtime/device.h"

#include "runtime/cpu_features.h"
#include "runtime/error.h"

namespace tw {

std::unique_ptr<Program> make_program(const ProgramSource& source) {
  if (source.requirements.architecture == "cuda")
    throw Error(ErrorCode::device,
                "built for " + source.requirements.target +
                    ", and this build of the runtime has no CUDA device\n  help: compile the model for \"cpu\"");
  require_runnable(source.requirements, "");
  return make_cpu_program(source);
}

}  // namespace tw
