// Lowered kernels on the emulator's device (tests/cuda_emulator), beside which NVIDIA's compiler may be in use, too.
#pragma once

#include <dlfcn.h>

#include <map>
#include <string>
#include <vector>

#include "runtime/device/device.h"
#include "targets/cuda/emit.h"
#include "tensor_ir/interp/interp.h"
#include "tensor_ir/match.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/text/parser.h"

namespace tw::test {

// Of a Func's text, as emission takes it.
inline Kernel flat_kernel(const std::string& text) {
  Kernel kernel;
  kernel.func = flatten_buffers(parse_func(text));
  kernel.symbol = kernel.func.name;
  kernel.tasks = Expr(1);
  return kernel;
}

inline std::vector<std::byte> emulated_image(const std::string& text) {
  static void* library = dlopen(TW_CUDA_EMULATOR "/libnvrtc.so.13", RTLD_NOW | RTLD_LOCAL);
  check(library != nullptr, "the emulator's NVRTC opens");
  const auto call = [&](const char* name, auto... arguments) {
    const int result = reinterpret_cast<int (*)(decltype(arguments)...)>(dlsym(library, name))(arguments...);
    return result == 0;
  };
  void* program = nullptr;
  call("nvrtcCreateProgram", &program, text.c_str(), "kernels.cu", 0, nullptr, nullptr);
  size_t size = 0;
  if (!call("nvrtcCompileProgram", program, 0, nullptr)) {
    call("nvrtcGetProgramLogSize", program, &size);
    std::string log(size, ' ');
    call("nvrtcGetProgramLog", program, log.data());
    internal_error("the host's compiler does not take the text: " + log.substr(0, 2000));
  }
  call("nvrtcGetCUBINSize", program, &size);
  std::vector<std::byte> image(size);
  call("nvrtcGetCUBIN", program, reinterpret_cast<char*>(image.data()));
  call("nvrtcDestroyProgram", &program);
  return image;
}

// `arrays`: for the buffers of what was lowered, whose kernels are among those of `image`; at these open sizes.
inline void run_on_device(const LoweredFunc& lowered, const Func& func, const std::vector<std::byte>& image,
                          const std::vector<NDArray>& arrays, const std::map<std::string, int64_t>& sizes = {}) {
  const auto value_of = [&](const Expr& e) { return evaluate(e, sizes).get_int(0); };
  Plan plan;
  std::map<std::string, BufferUse> places;
  std::vector<NDArray> inputs, outputs;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const bool is_output = func.is_output(func.buffers[i]);
    auto& list = is_output ? plan.outputs : plan.inputs;
    const std::string& name = func.buffers[i]->name;
    places[name] = {is_output ? Storage::output : Storage::input, static_cast<uint32_t>(list.size()), 0,
                    static_cast<int64_t>(arrays[i].byte_size())};
    list.push_back({name, arrays[i].dtype(), arrays[i].shape()});
    (is_output ? outputs : inputs).push_back(arrays[i]);
  }
  for (const Buffer& buffer : lowered.temporaries) {
    int64_t bytes = buffer->dtype.bytes();
    for (const Expr& extent : buffer->shape) bytes *= value_of(extent);
    places[buffer->name] = {Storage::arena, 0, plan.arena_bytes, bytes};
    plan.arena_bytes += (bytes + 255) / 256 * 256;
  }
  for (const Kernel& kernel : lowered.kernels) {
    Step step;
    step.kernel = step.name = kernel.symbol;
    for (const Buffer& buffer : kernel.func.buffers) step.buffers.push_back(places.at(buffer->name));
    for (const Var& parameter : kernel.func.parameters) step.parameters.push_back(sizes.at(parameter.name()));
    const Launch launch = cuda::launch_of(kernel);
    step.shared_bytes = static_cast<uint32_t>(launch.shared_bytes);
    for (size_t axis = 0; axis < 3; ++axis) {
      step.grid[axis] = value_of(launch.grid[axis]);
      step.block[axis] = static_cast<uint32_t>(*as_int(launch.block[axis]));
    }
    step.maps = tensor_maps_of(launch, kernel.func, [&](const Expr& e) { return Size(value_of(e)); });
    plan.steps.push_back(step);
  }
  const MachineRequirements requirements = {"cuda", "cuda:sm_90", {}};
  make_program({image, plan, {}, requirements})->run(inputs, outputs, {1});
}

}  // namespace tw::test
