// What a job and its measuring child share: one piece of memory, a header and then the arrays.
//
//   header | inputs of each set | outputs of each set: the candidate's, then the incumbent's | seconds of each step
//
// Arrays are in the order of the plan's inputs and outputs, each at a multiple of 64.  Both sides compute their places
// from the plan, so nothing in this memory is an address or a length that the job would trust: the code that is
// measured may have written anything here.  What the child says before it runs any of that code goes through a pipe.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/plan/plan.h"

namespace tw::autotune {

inline constexpr int input_sets = 3;
inline constexpr uint32_t most_rounds = 256;

// What memory holds that nothing has written yet: as floats, large numbers, which differ from one side to the other.
inline constexpr std::byte candidate_poison{0x7f}, incumbent_poison{0x5a};

inline constexpr uint32_t least_rounds = 6;  // of whatever is timed at all: the first are the noisiest

inline constexpr int exchange_descriptor = 3, report_descriptor = 4;  // of the child
// Through the pipe: this once the candidate is loaded and nothing of it has run; anything else is why it cannot be.
inline constexpr char is_loaded = 'L';

// How far the child says to have come since.
enum class Progress : uint32_t { loaded, measured, failed };

struct Exchange {
  // Of the job.
  uint32_t threads = 1;
  double seconds = 0;        // to measure for
  double worst_ratio = 0;    // a candidate that takes more of the incumbent's time, beyond doubt, is given up
  int64_t memory_bytes = 0;  // of address space: RLIMIT_AS
  double limit_seconds = 0;  // of one core's time each: RLIMIT_CPU
  uint32_t wants_profile = 0;
  // Of the child.
  std::atomic<uint32_t> progress{static_cast<uint32_t>(Progress::loaded)};
  std::atomic<uint32_t> filters_calls{0};  // whether the kernel refuses system calls that kernels have no use for
  std::atomic<uint32_t> rounds{0};         // of samples that are there
  double incumbent[most_rounds] = {}, candidate[most_rounds] = {};  // seconds of a run
  char message[512] = {};                                           // why it failed
};

// Bytes from the start of the exchange.
struct ExchangeLayout {
  std::vector<int64_t> inputs;                // of set 0; set s is s · input_bytes further
  std::vector<int64_t> outputs;               // of set 0 and the candidate
  int64_t input_bytes = 0, output_bytes = 0;  // of one set
  int64_t first_output = 0, step_seconds = 0;
  int64_t bytes = 0;  // in all

  // `profiled_steps`: how many have their seconds at the end.
  explicit ExchangeLayout(const Plan& plan, size_t profiled_steps = 0) {
    const auto place = [](const std::vector<TensorInfo>& tensors, std::vector<int64_t>& places, int64_t& size) {
      for (const TensorInfo& tensor : tensors) {
        places.push_back(size);
        size += (element_count(tensor.shape) * tensor.dtype.bytes() + 63) / 64 * 64;
      }
    };
    place(plan.inputs, inputs, input_bytes);
    place(plan.outputs, outputs, output_bytes);
    const int64_t start = (static_cast<int64_t>(sizeof(Exchange)) + 63) / 64 * 64;
    for (int64_t& at : inputs) at += start;
    first_output = start + input_sets * input_bytes;
    for (int64_t& at : outputs) at += first_output;
    step_seconds = first_output + all_outputs();
    bytes = step_seconds + static_cast<int64_t>(profiled_steps * sizeof(double));
  }
  int64_t all_inputs() const { return input_sets * input_bytes; }
  int64_t all_outputs() const { return 2 * input_sets * output_bytes; }
  int64_t first_input() const { return first_output - all_inputs(); }
  int64_t input(size_t i, int set) const { return inputs[i] + set * input_bytes; }
  int64_t output(size_t i, int set, bool is_incumbent) const {
    return outputs[i] + (2 * set + (is_incumbent ? 1 : 0)) * output_bytes;
  }
};

}  // namespace tw::autotune
