// Memory for what is as large as numbers say that a run computes: tensors, workspaces and outputs of a plan, given when
// its steps of placement are come to.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "runtime/plan/plan.h"

namespace tw {

// What is placed together has one piece of memory, which grows only: runs at any sizes share it.
class PlacedMemory {
 public:
  // `counter`: whose steps place it.
  char* at_least(size_t counter, int64_t bytes);
  void fill(std::byte value);

 private:
  struct Piece {
    std::shared_ptr<void> memory;
    int64_t bytes = 0;
  };
  std::vector<Piece> pieces_;  // by counter
};

class Placing {
 public:
  explicit Placing(const Plan& plan);

  // Whether the buffer is placed in the run.
  bool has(const BufferUse& use) const {
    return use.storage == Storage::placed || (use.storage == Storage::output && !plan_.outputs[use.index].dims.empty());
  }
  bool places_any(size_t counter) const { return !places_[counter].is_empty(); }
  // For the counters as they are.  Error(limit): something is too large.
  void place(size_t counter, std::span<const int64_t> counters, size_t workers, PlacedMemory& memory);

  char* start_of(const BufferUse& use);
  char* workspace(size_t step, size_t worker) const {
    return workspaces_[step].first + static_cast<int64_t>(worker) * workspaces_[step].stride;
  }
  NDArray take_output(size_t index) { return std::move(outputs_[index]); }

 private:
  struct Place {
    std::vector<size_t> tensors, workspaces, outputs;  // of the plan; workspaces by step
    bool is_empty() const { return tensors.empty() && workspaces.empty() && outputs.empty(); }
  };
  struct Workspaces {
    char* first = nullptr;
    int64_t stride = 0;  // from one worker's to the next
  };

  const Plan& plan_;
  std::vector<Place> places_;           // by counter
  std::vector<char*> tensors_;          // where they are
  std::vector<Workspaces> workspaces_;  // by step
  std::vector<NDArray> outputs_;
};

}  // namespace tw
