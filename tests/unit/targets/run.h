// Runs kernel cases as machine code: of this machine at once, of others in the emulator.
#pragma once

#include <map>

#include "runtime/executable.h"
#include "targets/compile_image.h"
#include "targets/lower.h"
#include "tensor_ir/interp/interp.h"
#include "tests/unit/targets/cases.h"

namespace tw::test {

inline int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++count;
  return count;
}

// Kernels one after the other in the oracle: `scheduled` is what they were lowered from, `arrays` are for its buffers.
inline void interpret_kernels(const LoweredFunc& lowered, const Func& scheduled, const std::vector<NDArray>& arrays,
                              const InterpretOptions& options = {}) {
  Func all = scheduled;
  std::vector<Stmt> bodies;
  for (const Kernel& kernel : lowered.kernels) {
    bodies.push_back(kernel.func.body);
    for (const Buffer& flat : kernel.func.buffers)
      for (Buffer& buffer : all.buffers)
        if (buffer->name == flat->name) buffer = flat;
  }
  all.body = seq(std::move(bodies));
  // What lives between kernels is allocated around all of them.
  for (const Buffer& buffer : lowered.temporaries) all.body = make_stmt<Allocate>(buffer, all.body);
  std::vector<NDArray> flat;
  for (const NDArray& array : arrays) flat.push_back(array.reshape({array.size()}));
  interpret(all, flat, options);
}

// The cases as one model: each case's inputs are constants, its outputs are outputs, its steps follow each other.
inline Executable make_executable(const std::vector<KernelCase>& cases, const Target& target) {
  Plan plan;
  std::vector<Kernel> kernels;
  std::vector<NDArray> constants;
  auto place = [](int64_t& top, int64_t bytes) {
    const int64_t at = top;
    top += (bytes + 63) / 64 * 64;
    return at;
  };
  for (const KernelCase& c : cases) {
    auto value_of = [&](const Expr& e) { return evaluate(e, c.parameters).get_int(0); };
    auto bytes_of = [&](const Buffer& buffer) { return value_of(buffer->shape[0]) * buffer->dtype.bytes(); };
    const LoweredFunc lowered = lower(c.func, target, c.name);
    std::map<std::string, BufferUse> uses;
    for (size_t i = 0; i < c.func.buffers.size(); ++i) {
      const Buffer& buffer = c.func.buffers[i];
      BufferUse use;
      const bool is_output = c.func.is_output(buffer);
      const NDArray& array = is_output ? c.expected[i - c.inputs.size()] : c.inputs[i];
      use.bytes = static_cast<int64_t>(array.byte_size());
      TensorInfo info{c.name + "." + buffer->name, buffer->dtype, array.shape()};
      if (is_output) {
        use.storage = Storage::output, use.index = static_cast<uint32_t>(plan.outputs.size());
        plan.outputs.push_back(info);
      } else {
        use.storage = Storage::constant, use.index = static_cast<uint32_t>(plan.constants.size());
        plan.constants.push_back(info);
        constants.push_back(array);
      }
      uses[buffer->name] = use;
    }
    int64_t arena = 0;
    for (const Buffer& buffer : lowered.temporaries)
      uses[buffer->name] = {Storage::arena, 0, place(arena, bytes_of(buffer)), bytes_of(buffer)};
    plan.arena_bytes = std::max(plan.arena_bytes, arena);
    for (const Kernel& kernel : lowered.kernels) {
      Step step;
      step.kernel = step.name = kernel.symbol;
      for (const Buffer& buffer : kernel.func.buffers)
        if (!kernel.has_workspace() || buffer != kernel.func.buffers.back())
          step.buffers.push_back(uses.at(buffer->name));
      for (const Var& parameter : kernel.func.parameters) step.parameters.push_back(c.parameters.at(parameter.name()));
      step.tasks = value_of(kernel.tasks);
      step.workspace_bytes = value_of(kernel.workspace_bytes);
      plan.workspace_bytes = std::max<int64_t>(plan.workspace_bytes, step.workspace_bytes);
      plan.steps.push_back(step);
      kernels.push_back(kernel);
    }
  }
  return Executable(compile_image(kernels, target), plan, constants,
                    {target.architecture, target.name, target.features});
}

}  // namespace tw::test
