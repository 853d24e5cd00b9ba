// Code that a GPU runs: the cubin where it is for this one, else the driver compiles the PTX beside it.
#include <algorithm>

#include "runtime/device/cuda_context.h"
#include "runtime/device/cuda_image.h"

namespace tw::gpu {
namespace {

// What a driver says of code: that it is for other GPUs, or what it does not understand.
constexpr int no_binary_for_gpu = 209;
constexpr int not_understood[] = {200 /* invalid image */, 218 /* invalid PTX */, 222 /* unsupported version of PTX */};

CudaDriver::Result compile(CudaDriver::Module& module, std::string_view ptx, std::string& log) {
  constexpr int error_log = 5, error_log_bytes = 6;
  log.resize(4096);
  int options[] = {error_log, error_log_bytes};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
  const CudaDriver::Result result = driver().module_compile(&module, ptx.data(), std::size(options), options, values);
  log.resize(std::min(log.find('\0'), log.size()));
  return result;
}

[[noreturn]] void refuse_gpu(const ProgramSource& source) {
  const CudaDeviceInfo device = cuda_devices().at(static_cast<size_t>(source.gpu));
  const std::string own = std::to_string(device.compute_capability);
  throw Error(ErrorCode::wrong_machine, "built for " + source.requirements.target + ", which " + device.name + ", sm_" +
                                            own + ", does not run\n  help: compile the model for \"cuda:sm_" + own +
                                            "\", or for \"cuda:sm_80+ptx\", which sm_80 and all later ones run");
}

[[noreturn]] void refuse_driver(const ProgramSource& source, CudaDriver::Result result, std::string_view ptx,
                                const std::string& log) {
  const std::string made_by(cuda_version_of(ptx));
  throw Error(ErrorCode::wrong_machine,
              driver().name() + " does not take the code for " + source.requirements.target +
                  (made_by.empty() ? "" : ", made by CUDA " + made_by) + ": " + driver().describe(result) +
                  (log.empty() ? "" : "\n" + log) + "\n  help: install a driver for CUDA " +
                  (made_by.empty() ? "of the compiler's version" : made_by) +
                  ", or compile the model with an older compiler (pip install nvidia-cuda-nvrtc-cu12)");
}

}  // namespace

CudaDriver::Module load_module(const ProgramSource& source) {
  CudaDriver::Module module = nullptr;
  CudaDriver::Result result = driver().module_load(&module, source.image.data());
  std::string_view ptx;
  std::string log;
  if (result == no_binary_for_gpu && std::ranges::count(source.requirements.features, ptx_feature)) {
    ptx = ptx_of(source.image);
    result = compile(module, ptx, log);
  }
  if (result == no_binary_for_gpu) refuse_gpu(source);
  if (std::ranges::count(not_understood, result)) refuse_driver(source, result, ptx, log);
  require(result, "load the code");
  return module;
}

}  // namespace tw::gpu
