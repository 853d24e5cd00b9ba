#include "python/build_func.h"

#include <algorithm>
#include <map>

#include "runtime/rounding.h"
#include "targets/backend.h"
#include "targets/compile_image.h"
#include "targets/lower.h"

namespace tw::python {
namespace {

constexpr int64_t alignment = 64;

Shape static_shape(const Func& func, const Buffer& buffer) {
  if (const auto shape = const_shape(buffer)) return *shape;
  throw Error(ErrorCode::lower, "buffer " + buffer->name + " of " + func.name +
                                    " has symbolic extents\nhelp: build it with constant extents");
}

}  // namespace

Executable build_func(const Func& scheduled, const Target& target) {
  const LoweredFunc lowered = lower(scheduled, target, "tw_" + scheduled.name);
  if (!lowered.spilled.empty()) {  // whoever schedules by hand wants to know
    throw Error(ErrorCode::lower, "register buffer " + lowered.spilled[0] +
                                      " is indexed by a variable\n  help: unroll or vectorize every loop that indexes "
                                      "it, up to the loop it is computed at");
  }
  Plan plan;
  plan.metadata["func"] = scheduled.name;
  std::map<std::string, BufferUse> places;
  const auto place = [&](const Buffer& buffer, Storage storage, uint32_t index, int64_t offset) {
    const int64_t bytes = element_count(static_shape(scheduled, buffer)) * buffer->dtype.bytes();
    places[buffer->name] = {storage, index, offset, bytes};
    return bytes;
  };
  for (const Buffer& buffer : scheduled.buffers) {
    const bool is_output = scheduled.is_output(buffer);
    std::vector<TensorInfo>& tensors = is_output ? plan.outputs : plan.inputs;
    place(buffer, is_output ? Storage::output : Storage::input, static_cast<uint32_t>(tensors.size()), 0);
    tensors.push_back({buffer->name, buffer->dtype, static_shape(scheduled, buffer)});
  }
  for (const Buffer& buffer : lowered.temporaries) {
    const int64_t bytes = place(buffer, Storage::arena, 0, plan.arena_bytes);
    plan.arena_bytes += round_up(bytes, alignment);
  }
  for (const Kernel& kernel : lowered.kernels) {
    Step step;
    step.kernel = kernel.symbol;
    step.name = kernel.symbol;
    step.workspace_bytes = as_int(kernel.workspace_bytes).value();
    const auto tasks = as_int(kernel.tasks);
    check(tasks.has_value(), "build_func: a Func without symbolic extents has a constant number of tasks");
    step.tasks = *tasks;
    if (target.backend->launch_of) {
      const Launch launch = target.backend->launch_of(kernel);
      step.shared_bytes = static_cast<uint32_t>(launch.shared_bytes);
      for (size_t axis = 0; axis < 3; ++axis) {
        step.grid[axis] = as_int(launch.grid[axis]).value();
        step.block[axis] = static_cast<uint32_t>(as_int(launch.block[axis]).value());
      }
      step.maps = tensor_maps_of(launch, kernel.func, [](const Expr& e) { return Size(as_int(e).value()); });
      step.workspace_bytes = as_int(kernel.workspace_bytes).value() * *tasks;  // of all blocks
    }
    for (const Buffer& buffer : kernel.func.buffers) {
      if (buffer->name == "workspace" && kernel.has_workspace()) continue;
      const auto found = places.find(buffer->name);
      check(found != places.end(), "build_func: a kernel's buffers are the Func's or its temporaries");
      step.buffers.push_back(found->second);
    }
    plan.workspace_bytes = std::max<int64_t>(plan.workspace_bytes, step.workspace_bytes);
    plan.steps.push_back(std::move(step));
  }
  std::vector<std::byte> image = compile_image(lowered.kernels, target);
  return Executable(std::move(image), std::move(plan), {}, {target.architecture, target.name, target.features});
}

}  // namespace tw::python
