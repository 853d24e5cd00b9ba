// What `tw doctor` shows: this machine, what was found on it, the targets it serves.
#include <optional>

#include "python/bind.h"
#include "runtime/device/cuda.h"
#include "runtime/machine/cpu_features.h"
#include "runtime/machine/machine.h"
#include "runtime/team.h"
#include "targets/backend.h"
#include "targets/cuda/nvrtc.h"
#include "targets/target.h"

namespace tw::python {

void bind_machine(py::module_& module) {
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  module.def(
      "machine",
      [] {
        const HostCpu& cpu = host_cpu();
        const Target target = parse_target("cpu");
        Facts result;
        result["architecture"] = cpu.architecture;
        result["cpu"] = cpu.name;
        result["features"] = cpu.features;
        result["threads"] = default_team_size();
        result["vector_bits"] = target.vector_bits;
        result["fma_ports"] = target.fma_ports;
        result["l1_bytes"] = target.l1.bytes;
        result["l2_bytes"] = target.l2.bytes;
        result["l3_bytes"] = target.l3.bytes;
        result["llvm_cpu"] = target.cpu;
        return result;
      },
      "This machine: its CPU and caches.");
  module.def(
      "kernel_fit",
      [](const std::string& target_name, int threads, int registers, int64_t shared_bytes) -> std::optional<Facts> {
        const Target target = parse_target(target_name);
        if (!target.backend->fit_of) return std::nullopt;
        const KernelFit fit = target.backend->fit_of(target, threads, registers, shared_bytes);
        Facts result;
        result["device"] = fit.device;
        result["multiprocessors"] = fit.multiprocessors;
        result["flops"] = fit.flops;
        result["tensor_flops"] = fit.tensor_flops;
        result["byte_operations"] = fit.byte_operations;
        result["float8_operations"] = fit.float8_operations;
        result["bytes"] = fit.bytes;
        result["blocks"] = fit.blocks;
        result["occupancy"] = fit.occupancy;
        result["limited_by"] = fit.limited_by;
        return result;
      },
      py::arg("target"), py::arg("threads"), py::arg("registers"), py::arg("shared_bytes"),
      "What a GPU of the target holds of a kernel with so many threads a block, registers a thread and bytes of shared "
      "memory a block, and what it does at most; None of CPUs.");
  module.def("target_names", &target_names, "What there is to compile for.");
  module.def(
      "cuda",
      [] {
        Facts result;
        result["compiler_problem"] = cuda::nvrtc_problem();
        result["compiler"] = cuda::nvrtc_problem().empty() ? cuda::nvrtc_description() : "";
        result["device_problem"] = cuda_problem();
        result["driver"] = cuda_driver_name();
        py::list devices;
        for (const CudaDeviceInfo& device : cuda_devices()) {
          devices.append(py::make_tuple(device.name, device.compute_capability, device.memory_bytes));
        }
        result["devices"] = devices;
        return result;
      },
      "What there is to compile for GPUs and to run on them; a problem in words where there is none.");
  module.def(
      "compile_cubin",
      [](const std::string& text, int compute_capability) {
        const std::vector<std::byte> cubin = cuda::compile_cubin(text, compute_capability, "text");
        return py::bytes(reinterpret_cast<const char*>(cubin.data()), cubin.size());
      },
      py::arg("text"), py::arg("compute_capability"), "CUDA C++ as machine code, by NVRTC; 90 is sm_90.");
  module.def("add_nvrtc_hint", &cuda::add_nvrtc_hint, py::arg("path"), "A file where NVRTC may be.");
  module.def("measure_peak_flops", &measure_peak_flops, py::arg("threads"), py::arg("seconds") = 0.15, unlocked,
             "Operations of f32 a second, of fused multiply-adds on values in registers.");
  module.def("measure_read_bandwidth", &measure_read_bandwidth, py::arg("threads"), py::arg("seconds") = 0.15, unlocked,
             "Bytes a second that are read from memory.");
  module.def("measure_copy_bandwidth", &measure_copy_bandwidth, py::arg("threads"), py::arg("seconds") = 0.15, unlocked,
             "Bytes a second that are read and written while memory is copied.");
}

}  // namespace tw::python
