// A compiled model: code, plan and constants.  It holds no compiler.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "runtime/device/device.h"
#include "runtime/plan/plan.h"

namespace tw {

class Artifact;

struct StepProfile {
  std::string kernel, name;  // of a call the host's function; of other control no kernel
  double seconds = 0;        // median over the repetitions; of all that a run does of it
  double flops = 0, bytes = 0;
};

// Thread-safe: two threads may run one Executable (runs are queued on its team of workers).
class Executable {
 public:
  // `image` is a linked ELF shared object with no undefined symbols; `constants` are in the order of
  // the general plan's, already in the layout that the kernels read.
  Executable(std::vector<std::byte> image, Plans plans, std::vector<NDArray> constants, MachineRequirements requires_);

  // Loads a .twa.  Its note (magic, version, checksums, requirements) is checked before any code is mapped;
  // constants are mapped, not copied.  Error(file | artifact | wrong_machine).
  // `gpu`: as set_gpu().
  static Executable load(const std::filesystem::path& path, int gpu = 0);
  // The bytes of a .twa, which are copied.  Libraries that it calls have to be where the loader finds them.
  static Executable load(std::span<const std::byte> bytes, int gpu = 0);
  // One with its own arrays, so that both may run at once; code and constants are shared.  Its random numbers begin
  // with seed 0.
  Executable clone() const;
  // Writes to a temporary file beside `path`, then renames.
  void save(const std::filesystem::path& path) const;
  std::vector<std::byte> to_bytes() const;  // of the file that `save` writes
  // Of a loaded one: reads all constants and compares their checksum, which load leaves out.  Error(artifact).
  void verify() const;

  const Plan& plan() const;  // the general one
  const Plans& plans() const;
  // What a run with inputs of these shapes gives; -1 is a size that only the run computes.  Error(input).
  std::vector<Shape> output_shapes(const std::vector<Shape>& inputs) const;
  const MachineRequirements& requirements() const;

  // Runs on threads() workers.  `inputs` in the order of plan().inputs, checked for dtype and shape: Error(input).  The
  // sizes of open dimensions are those that the inputs have, and choose the plan; what is computed from them is kept
  // for a few of the last ones, so that a run at one of these costs nothing more.  An output that is in place of an
  // input (TensorInfo::in_place) is that input's array, which the run changes.
  //
  // On a GPU arrays may be in its memory, inputs and outputs each for itself, and are used there; new outputs are the
  // host's unless the options say otherwise.  Error(input): an array of another GPU, of a GPU on a CPU, or one that is
  // gone; options on a CPU.
  std::vector<NDArray> run(const std::vector<NDArray>& inputs, const RunOptions& options = {});
  // Into arrays that the caller owns.  Error(input) where one overlaps another or an input; those in place of an input
  // are its array.  Outputs whose sizes only the run computes are undefined before it, and its own arrays after it.
  void run_into(const std::vector<NDArray>& inputs, std::vector<NDArray>& outputs, const RunOptions& options = {});
  bool is_of_gpu() const;  // whose kernels have memory, caches and a clock of their own
  // The one that runs are on, by the driver's ordinal; code and constants go there with the next run.  Error(input): of
  // a CPU, or no ordinal.
  void set_gpu(int gpu);
  int gpu() const;
  // 0: one worker a core of the affinity mask and the cgroups' CPU quota, as at the start.  Error(limit).
  void set_threads(int threads);
  int threads() const;
  // Whose threads they are: our own, or those of the process's OpenMP runtime; at the start what TW_TEAM says.
  // Error(limit) where there is no such runtime.
  void set_team(TeamKind kind);
  TeamKind team() const;

  // Each run draws other random numbers, which its number since set_seed and the seed decide, whatever the target and
  // the threads: executables of one model with the same seed have the same runs.  They begin with seed 0.
  void set_seed(uint64_t seed);
  // Runs of both count as those of one.
  void share_random_state(const Executable& other);

  // A function that steps call and no library has (runtime/host_function.h), by its name.  Missing ones end runs.
  void set_host_function(const std::string& name, HostFunction function);

  // Fills all memory that kernels have between and within steps with a value: after it a kernel that reads what none
  // has written gives other results.  For tests of generated code, which fresh memory, all zero, would let pass.  So is
  // that of outputs which lie on a device first.
  void fill_scratch(std::byte value);

  // Of a GPU: seconds from the first kernel of a run to the last one's end, the median over some runs, before each of
  // which something else has filled the caches.  Without the way of inputs and outputs.
  double time_run(const std::vector<NDArray>& inputs, int repetitions);

  // Each step timed alone, `repetitions` times; of a GPU as often at a time as takes 200 µs, with its data in the
  // caches.
  std::vector<StepProfile> profile(const std::vector<NDArray>& inputs, int repetitions = 10);
  // Who ran what when in the median one of some runs, by worker, then by time.
  std::vector<StepSpan> trace(const std::vector<NDArray>& inputs, int repetitions = 10);

 private:
  Executable() = default;
  static Executable of(Artifact artifact, const std::filesystem::path& name, int gpu);
  // by_program(Program&, outputs, plan) on checked inputs and new outputs, alone.
  template <class F>
  auto measure(const std::vector<NDArray>& inputs, int repetitions, F&& by_program);
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tw
