// Memory for what is as large as numbers say that a run computes: tensors, workspaces and outputs of a plan, given when
// its steps of placement are come to.  Addresses are the device's.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/plan/plan.h"

namespace tw {

// Pieces of memory, by number, that grow only, by half at least: runs at any sizes share them, and what is larger from
// step to step of a loop seldom asks for more.
class GrowingMemory {
 public:
  using Allocate = std::function<std::shared_ptr<void>(size_t bytes)>;
  using Copy = std::function<void(void* to, const void* from, size_t bytes)>;
  GrowingMemory(Allocate allocate, Copy copy) : allocate_(std::move(allocate)), copy_(std::move(copy)) {}
  explicit GrowingMemory(Allocate allocate);  // of memory of the host
  // What was in it is lost where it grows, unless it keeps that.
  char* at_least(size_t piece, int64_t bytes, bool keeps = false);
  void clear() { pieces_.clear(); }
  // Of memory of the host.
  void fill(std::byte value);

 private:
  struct Piece {
    std::shared_ptr<void> memory;
    int64_t bytes = 0;
  };
  Allocate allocate_;
  Copy copy_;
  std::vector<Piece> pieces_;
};

class Placing {
 public:
  // Kernels write outputs into the arrays that callers get, or into memory of the device first.
  enum class Outputs { in_arrays, on_device };

  explicit Placing(const Plan& plan, Outputs outputs = Outputs::in_arrays);

  // Whether the buffer is placed in the run.
  bool has(const BufferUse& use) const {
    return use.storage == Storage::placed || (use.storage == Storage::output && !plan_.outputs[use.index].dims.empty());
  }
  bool places_any(size_t counter) const { return !places_[counter].is_empty(); }
  // For the counters as they are, in the memory's piece of this number.  Error(limit): something is too large.
  void place(size_t counter, std::span<const int64_t> counters, size_t workers, GrowingMemory& memory);

  char* start_of(const BufferUse& use);
  // The array for an output; undefined while it is not placed.
  NDArray& output(size_t index) { return outputs_[index]; }
  char* workspace(size_t step, size_t worker) const {
    return workspaces_[step].first + static_cast<int64_t>(worker) * workspaces_[step].stride;
  }
  NDArray take_output(size_t index) { return std::move(outputs_[index]); }

 private:
  struct Place {
    std::vector<size_t> tensors, workspaces, outputs;  // of the plan; workspaces by step
    std::vector<size_t> by_turns, taking, staying;     // tensors that have one before them, are one, are their own
    bool is_empty() const {
      return tensors.empty() && workspaces.empty() && outputs.empty() && by_turns.empty() && taking.empty() &&
             staying.empty();
    }
  };
  struct Workspaces {
    char* first = nullptr;
    int64_t stride = 0;  // from one worker's to the next
  };

  const Plan& plan_;
  std::vector<Place> places_;           // by counter
  std::vector<char*> tensors_;          // where they are
  std::vector<size_t> turns_;           // by tensor: in which of its two pieces, of one that has another before it
  std::vector<size_t> taken_;           // by tensor: the one that it is before
  std::vector<Workspaces> workspaces_;  // by step
  std::vector<NDArray> outputs_;
  const bool outputs_are_on_device_;
  std::vector<char*> device_outputs_;  // of these, where they are
};

}  // namespace tw
