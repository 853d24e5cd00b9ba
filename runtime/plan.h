// What an Executable does, as data: the tensors it takes and gives, one arena, and a static list of steps.
// The compiler fills a Plan; the artifact stores it; the runtime walks it.  No compiler type appears here.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/ndarray.h"

namespace tw {

// The one signature of generated CPU code.  `buffers[i]` is the start of the i-th buffer of the kernel,
// `parameters` its symbolic integers; it runs tasks first ≤ t < last of its outermost parallel loop.  Kernels
// never call a threading library, malloc or libc, and leave no state behind.
using KernelFunction = void (*)(void* const* buffers, const int64_t* parameters, int64_t first, int64_t last);

struct TensorInfo {
  std::string name;
  DType dtype;
  Shape shape;
  // Of an output: the input whose array it is, too, with the same type and shape; -1: it has an array of its own.
  int32_t in_place = -1;
};

// Where a step's buffer lives.
enum class Storage : uint32_t { input, output, constant, arena };

struct BufferUse {
  Storage storage = Storage::arena;
  // input/output/constant: its index; arena: 0.
  uint32_t index = 0;
  // Bytes from the start of that storage.
  int64_t offset = 0;
  int64_t bytes = 0;
};

struct Step {
  std::string kernel;  // symbol of its KernelFunction in the image
  std::string name;    // for people: the graph nodes it computes, "conv1+relu1"
  std::vector<BufferUse> buffers;
  std::vector<int64_t> parameters;
  int64_t tasks = 1;  // trip count of the parallel loop, shared out over the workers
  // All earlier steps must have ended before this one starts.  A step that does not wait may run beside the last step
  // that waited and all that came after that one; it starts after all that came before that one.
  bool waits = true;
  int64_t workspace_bytes = 0;  // per worker; when > 0 the kernel's last buffer is this worker's scratch
  double flops = 0, bytes = 0;  // work per run, for profiles
  std::array<uint32_t, 3> grid = {1, 1, 1}, block = {1, 1, 1};  // of a GPU kernel's launch
};

struct Plan {
  std::vector<TensorInfo> inputs, outputs;
  // Bytes at a multiple of which the arrays of inputs and outputs must begin: a power of two.  Others are copied.
  uint32_t caller_alignment = 64;
  std::vector<TensorInfo> constants;  // their data travel beside the plan
  int64_t arena_bytes = 0;
  int64_t workspace_bytes = 0;  // the largest of the steps'
  std::vector<Step> steps;
  std::map<std::string, std::string> metadata;  // compiler version, model name, …
};

// What the machine must be for the code to run.
struct MachineRequirements {
  std::string architecture;           // "x86_64", "aarch64", "arm", "cuda"
  std::string target;                 // as the user named it, for messages: "x86:avx512"
  std::vector<std::string> features;  // LLVM feature names that the code uses: "avx512f", "fma"
};

}  // namespace tw
