// What an Executable does, as data: the tensors it takes and gives, one arena, and a static list of steps.
// The compiler fills a Plan; the artifact stores it; the runtime walks it.  No compiler type appears here.
//
// Where dimensions of the inputs are left open, sizes, offsets and numbers of tasks are computed from them: such a plan
// is *open*, and plan_at() makes the plan of one run from it.  The arena is laid out anew for each size, since a layout
// for the largest one would cost a small run its caches (and the largest may be unbounded).
//
// Where sizes depend on numbers that a run itself computes, it reads these into counters, and then places what is so
// large: memory of the run's own, which grows and stays for the next run.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/ndarray.h"
#include "runtime/plan/list_info.h"
#include "runtime/plan/memory_plan.h"
#include "runtime/plan/size.h"

namespace tw {

// The one signature of generated CPU code.  `buffers[i]` is the start of the i-th buffer of the kernel,
// `parameters` its symbolic integers; it runs tasks first ≤ t < last of its outermost parallel loop.  Kernels
// never call a threading library, malloc or libc, and leave no state behind.
using KernelFunction = void (*)(void* const* buffers, const int64_t* parameters, int64_t first, int64_t last);

struct TensorInfo {
  std::string name;
  DType dtype;
  Shape shape;                  // -1 where `dims` is not known
  std::vector<Size> dims = {};  // of an open plan's inputs and outputs, and of outputs whose sizes depend on counters;
                                // empty: as `shape` says
  // Of an output: the input whose array it is, too, with the same type and shape; -1: it has an array of its own.
  int32_t in_place = -1;
};

// An open dimension: its size comes with the inputs, within these bounds.
struct Symbol {
  std::string name;
  int64_t low = 1, high = std::numeric_limits<int64_t>::max();
  std::string demanded_by = {};  // for people: what sets the bounds; "" when the caller does
  bool may_be_empty = false;     // 0 is a size, too: of runs that special plans are for, and not the general one
};

// Sizes that have to be equal in a run.
struct EqualSizes {
  Size a, b;
  std::string demanded_by;
};

// What the random numbers of a run are made of: u64[2], which the executable has.
struct alignas(64) RandomState {
  uint64_t seed = 0, run = 0;  // which run it is since the seed was set
};

// Where a step's buffer lives.
enum class Storage : uint32_t { input, output, constant, arena, placed, random };

struct BufferUse {
  Storage storage = Storage::arena;
  // input/output/constant: its index; arena: 0, or of an open plan the index into `tensors`; placed: likewise; random,
  // which is the run's RandomState: 0.
  uint32_t index = 0;
  // Bytes from the start of that storage.
  Size offset = 0;
  Size bytes = 0;
};

// A function of the host that is no code of the plan's (runtime/host_function.h): what a step calls.
struct HostCall {
  struct Argument {
    DType dtype;
    uint32_t rank = 0;
    bool operator==(const Argument&) const = default;
  };
  std::string function;    // its name: "domain.Operator", or of a library the symbol
  std::string library;     // the shared library that has it; "": who runs the plan says what it is
  std::string attributes;  // JSON, for the function to read
  std::vector<Argument> arguments;
  uint32_t outputs = 0;  // so many of the last are written

  bool operator==(const HostCall&) const = default;
};

// What a step does.  Steps follow one another but where one of control goes elsewhere:
//   skip     goes to `target` where the condition is false
//   jump     goes to `target`
//   loop     sets the counter to 0; goes to `target`, behind the loop, where it has no step to do
//   check    ends the run with Error(input) where its two parameters differ; `kernel` says what they are
//   repeat   adds 1 to the counter; goes to `target`, behind its `loop`, where there is another step to do
//   read     sets the counter to the integer in buffer 0, of 4 or 8 bytes; ends the run with Error(input) where it is
//            not from the first to the second of its parameters; `kernel` says what it is
//   set      sets the counter to its first parameter; where there are two more, ends the run with Error(input) where
//            that is not from the one to the other; `kernel` says what it is
//   demand   ends the run with Error(input) where the integer in buffer 0, of 8 bytes, is not the least that there is;
//            `kernel` says what it is, for people
//   call     host_calls[target] with its buffers, of the extents that its parameters say one after the other
//   place    gives memory to the tensors and outputs whose sizes depend on the counter, and on none that is read later;
//            what was there is lost, but for tensors that have one before them (ArenaTensor)
// A loop does as many steps as `tasks` says, and none after its condition is false.  Its counter is the number of the
// step within, and how many were done behind it.  A condition is buffer 0 where there is one: a byte, 0 is false.
enum class StepKind : uint8_t { kernel, skip, jump, loop, repeat, check, read, place, set, call, demand };

// Of thread blocks, in each direction, that every GPU since compute capability 5.0 launches.
inline constexpr std::array<int64_t, 3> most_blocks = {INT32_MAX, 65535, 65535};
inline constexpr uint32_t most_shared_bytes = 227 << 10;  // of a block, on any GPU

// What a GPU's unit for copies has to know of a tensor whose boxes it brings to shared memory (CUDA driver API,
// cuTensorMapEncodeTiled): the kernel takes it as an argument.  The innermost dimension, whose elements are neighbours,
// is the first.  Elements of a box beyond the tensor are zeros.
struct TensorMap {
  uint32_t buffer = 0;         // of the step's
  uint32_t element_bytes = 0;  // 1, 2 or 4
  std::vector<Size> extents;   // at most 5
  std::vector<Size> strides;   // bytes, multiples of 16, of all dimensions but the innermost
  std::vector<uint32_t> box;   // elements in each dimension, at most 256
  uint32_t swizzle_bytes = 0;  // within which pieces of 16 bytes are exchanged: 32, 64 or 128
};
inline constexpr size_t most_map_dimensions = 5;
inline constexpr uint32_t most_box_elements = 256;  // in a dimension

struct Step {
  std::string kernel;  // symbol of its KernelFunction in the image
  std::string name;    // for people: the graph nodes it computes, "conv1+relu1"
  std::vector<BufferUse> buffers;
  std::vector<Size> parameters;
  Size tasks = 1;  // trip count of the parallel loop, shared out over the workers; of a loop: its steps
  // All earlier steps must have ended before this one starts.  A step that does not wait may run beside the last step
  // that waited and all that came after that one; it starts after all that came before that one.
  bool waits = true;
  // Per worker; when > 0 the kernel's last buffer is this worker's scratch.  On GPUs: of all blocks of the grid.
  Size workspace_bytes = 0;
  Size flops = 0, bytes = 0;             // work per run, for profiles
  Size cycles = 0;                       // that it takes one core with its data in the caches, about; 0: nobody knows
  std::array<Size, 3> grid = {1, 1, 1};  // of a GPU kernel's launch; an empty one runs nothing
  std::array<uint32_t, 3> block = {1, 1, 1};
  uint32_t shared_bytes = 0;         // of a GPU's block, beside what the kernel itself declares
  std::vector<TensorMap> maps = {};  // arguments of a GPU's kernel, behind its parameters
  StepKind kind = StepKind::kernel;
  uint32_t target = 0, counter = 0;  // of control
};

// Every size in a step, const or not.
template <class F>
void for_each_size(auto& step, F&& f) {
  for (auto& use : step.buffers) f(use.offset), f(use.bytes);
  for (auto& parameter : step.parameters) f(parameter);
  for (auto* size : {&step.tasks, &step.workspace_bytes, &step.flops, &step.bytes, &step.cycles}) f(*size);
  for (auto& extent : step.grid) f(extent);
  for (auto& map : step.maps) {
    for (auto& extent : map.extents) f(extent);
    for (auto& stride : map.strides) f(stride);
  }
}

struct Plan {
  std::vector<TensorInfo> inputs, outputs;
  std::vector<ListInfo> input_lists, output_lists;  // that some of them make up, in their order
  // Bytes at a multiple of which the arrays of inputs and outputs must begin: a power of two.  Others are copied.
  uint32_t caller_alignment = 64;
  std::vector<TensorInfo> constants;  // their data travel beside the plan
  int64_t arena_bytes = 0;
  int64_t workspace_bytes = 0;         // the largest of the steps'
  std::vector<Symbol> symbols;         // none: the plan is not open, and every Size is known
  std::vector<EqualSizes> equalities;  // of an open plan
  std::vector<ArenaTensor> tensors;    // of an open plan: what shares the arena; of others: what is placed in the run
  std::vector<HostCall> host_calls;
  std::vector<Size> counters;  // by number: the steps that a loop does at most, or the most that is read or set
  std::vector<Step> steps;
  std::map<std::string, std::string> metadata;  // compiler version, model name, …
};

// What a model's plan does, for some sizes only and made for them: faster ones, or that some are 0.  Kernels of the
// general plan may rely on every open dimension having an element.
struct SpecialPlan {
  struct Range {
    int64_t low = 1, high = 1;  // both included
  };
  std::vector<Range> sizes;  // for which it is: by symbol of the model's plan, within its bounds
  // Its symbols are some of the model's, by their names.  It has no constants of its own: steps use the model's.
  Plan plan;
};

// A model's plan, which serves every run in which no open dimension is 0, and those that serve some runs better or do
// serve these.  All take and give the same.
struct Plans {
  Plan general;
  std::vector<SpecialPlan> special;  // none where the model's plan is not open

  Plans() = default;
  Plans(Plan plan) : general(std::move(plan)) {}  // NOLINT: a plan is all that a model needs
  Plans(Plan plan, std::vector<SpecialPlan> special) : general(std::move(plan)), special(std::move(special)) {}
};

// The most that each counter can be, of a plan in which nothing is open.
std::vector<int64_t> most_of_counters(const Plan& plan);
// Small sizes of plan.symbols that are within their bounds and meet the equalities.  Error(shape): none were found.
std::vector<int64_t> small_sizes(const Plan& plan);
// Puts the tensors of known sizes into the arena; others stay in `tensors` and are placed in the run.
void lay_out(Plan& plan);
// By tensor of plan.tensors, by output, and by step for its workspace: the counter whose steps of placement give it
// memory, of those that its size depends on the one that is read last; -1: its size is known.
struct Placements {
  std::vector<int64_t> tensors, outputs, workspaces;
};
Placements placements_of(const Plan& plan);
// The plan of a run with these sizes of plan.symbols: nothing in it is open, and what depends on counters on nothing
// else.  Error(limit).
Plan plan_at(const Plan& plan, std::span<const int64_t> symbols);
// The same of the first special plan that is for these sizes of the general one's symbols, else of that one.
// Error(input): one is 0, and no plan is for that.
Plan plan_at(const Plans& plans, std::span<const int64_t> symbols);
// The sizes of plan.symbols in inputs of these shapes.  Error(input): two of them disagree, one is out of bounds, what
// the model demands of them does not hold, or the ranks are not the inputs'.
std::vector<int64_t> symbol_sizes(const Plan& plan, const std::vector<Shape>& inputs);

// What the machine must be for the code to run.
struct MachineRequirements {
  std::string architecture;           // "x86_64", "aarch64", "arm", "cuda"
  std::string target;                 // as the user named it, for messages: "x86:avx512"
  std::vector<std::string> features;  // LLVM feature names that the code uses: "avx512f", "fma"
};

}  // namespace tw
