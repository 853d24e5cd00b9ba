#include "runtime/device/placing.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>

#include "runtime/memory.h"

namespace tw {
namespace {

constexpr int64_t most_bytes = int64_t{1} << 46;  // of one tensor: more than machines have

int64_t checked_bytes(int64_t bytes) {
  if (bytes >= 0 && bytes <= most_bytes) return bytes;
  throw Error(ErrorCode::limit, "a tensor of " + std::to_string(bytes) +
                                    " bytes follows from what the run computes\n  help: give other inputs");
}

NDArray new_output(const TensorInfo& output, std::span<const int64_t> counters) {
  Shape shape;
  for (const Size& dim : output.dims) shape.push_back(dim.at({}, counters));
  int64_t bytes = output.dtype.bytes();
  for (const int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes)) bytes = -1;
    checked_bytes(bytes);
  }
  return {output.dtype, shape};
}

}  // namespace

GrowingMemory::GrowingMemory(Allocate allocate)
    : GrowingMemory(std::move(allocate),
                    [](void* to, const void* from, size_t bytes) { std::memcpy(to, from, bytes); }) {}

char* GrowingMemory::at_least(size_t number, int64_t bytes, bool keeps) {
  if (pieces_.size() <= number) pieces_.resize(number + 1);
  Piece& piece = pieces_[number];
  if (bytes > piece.bytes) {
    const int64_t room = std::max(bytes, piece.bytes + piece.bytes / 2);
    const Piece old = keeps ? std::move(piece) : Piece();
    piece = {};
    piece = {allocate_(static_cast<size_t>(room)), room};
    if (old.bytes > 0) copy_(piece.memory.get(), old.memory.get(), static_cast<size_t>(old.bytes));
  }
  return static_cast<char*>(piece.memory.get());
}

void GrowingMemory::fill(std::byte value) {
  for (const Piece& piece : pieces_)
    if (piece.memory) std::memset(piece.memory.get(), std::to_integer<int>(value), static_cast<size_t>(piece.bytes));
}

Placing::Placing(const Plan& plan, Outputs outputs)
    : plan_(plan),
      places_(plan.counters.size()),
      tensors_(plan.tensors.size()),
      turns_(plan.tensors.size()),
      taken_(plan.tensors.size(), plan.tensors.size()),
      workspaces_(plan.steps.size()),
      outputs_(plan.outputs.size()),
      outputs_are_on_device_(outputs == Outputs::on_device),
      device_outputs_(plan.outputs.size()) {
  const Placements placements = placements_of(plan);
  const auto sort = [&](const std::vector<int64_t>& counters, std::vector<size_t> Place::* list) {
    for (size_t i = 0; i < counters.size(); ++i)
      if (counters[i] >= 0) (places_[static_cast<size_t>(counters[i])].*list).push_back(i);
  };
  sort(placements.tensors, &Place::tensors);
  for (size_t i = 0; i < plan.tensors.size(); ++i)
    if (plan.tensors[i].before >= 0 && plan.tensors[i].before != static_cast<int32_t>(i))
      taken_[static_cast<size_t>(plan.tensors[i].before)] = i;
  for (Place& place : places_) {
    const auto is_own = [&](size_t i) { return plan.tensors[i].before == static_cast<int32_t>(i); };
    const auto has_before = [&](size_t i) { return plan.tensors[i].before >= 0 && !is_own(i); };
    const auto is_before = [&](size_t i) { return taken_[i] < taken_.size(); };
    std::ranges::copy_if(place.tensors, std::back_inserter(place.by_turns), has_before);
    std::ranges::copy_if(place.tensors, std::back_inserter(place.taking), is_before);
    std::ranges::copy_if(place.tensors, std::back_inserter(place.staying), is_own);
    std::erase_if(place.tensors, [&](size_t i) { return has_before(i) || is_before(i) || is_own(i); });
  }
  sort(placements.workspaces, &Place::workspaces);
  sort(placements.outputs, &Place::outputs);
}

void Placing::place(size_t counter, std::span<const int64_t> counters, size_t workers, GrowingMemory& memory) {
  const Place& all = places_[counter];
  for (const size_t i : all.taking) tensors_[i] = tensors_[taken_[i]];
  for (const size_t i : all.staying)
    tensors_[i] = memory.at_least(places_.size() + 2 * i, checked_bytes(plan_.tensors[i].bytes.at({}, counters)), true);
  for (const size_t i : all.by_turns) {
    const ArenaTensor& tensor = plan_.tensors[i];
    turns_[i] = 1 - turns_[i];
    const size_t piece = places_.size() + 2 * i + turns_[i];
    tensors_[i] = memory.at_least(piece, checked_bytes(tensor.bytes.at({}, counters)));
  }
  std::vector<ArenaTensor> layout;
  for (const size_t i : all.tensors) {
    const ArenaTensor& tensor = plan_.tensors[i];
    layout.push_back({checked_bytes(tensor.bytes.at({}, counters)), tensor.first, tensor.last, -1});
  }
  for (const size_t i : all.workspaces) {
    const int64_t bytes = checked_bytes(plan_.steps[i].workspace_bytes.at({}, counters));
    workspaces_[i].stride = (bytes + 127) / 128 * 128;
    const auto step = static_cast<int>(i);
    layout.push_back({checked_bytes(workspaces_[i].stride * static_cast<int64_t>(workers)), step, step, -1});
  }
  for (const size_t i : all.outputs) {
    outputs_[i] = new_output(plan_.outputs[i], counters);
    // Nothing comes into its place.
    if (outputs_are_on_device_)
      layout.push_back({static_cast<int64_t>(outputs_[i].byte_size()), 0, std::numeric_limits<int>::max(), -1});
  }
  const int64_t bytes = plan_memory(layout);
  char* start = bytes > 0 ? memory.at_least(counter, bytes) : nullptr;
  size_t next = 0;
  for (const size_t i : all.tensors) tensors_[i] = start + layout[next++].offset;
  for (const size_t i : all.workspaces) workspaces_[i].first = start + layout[next++].offset;
  if (outputs_are_on_device_)
    for (const size_t i : all.outputs) device_outputs_[i] = start + layout[next++].offset;
}

char* Placing::start_of(const BufferUse& use) {
  if (use.storage == Storage::placed) return tensors_[use.index];
  return outputs_are_on_device_ ? device_outputs_[use.index] : static_cast<char*>(outputs_[use.index].data());
}

}  // namespace tw
