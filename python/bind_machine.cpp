// What `tw doctor` shows: this machine, what was found on it, the targets it serves.
#include "python/bind.h"
#include "runtime/cpu_features.h"
#include "runtime/machine.h"
#include "runtime/team.h"
#include "targets/target.h"

namespace tw::python {

void bind_machine(py::module_& module) {
  const auto unlocked = py::call_guard<py::gil_scoped_release>();
  module.def("machine", [] {
    const HostCpu& cpu = host_cpu();
    const Target target = parse_target("cpu");
    py::dict result;
    result["architecture"] = cpu.architecture;
    result["cpu"] = cpu.name;
    result["features"] = cpu.features;
    result["threads"] = default_team_size();
    result["vector_bits"] = target.vector_bits;
    result["l1_bytes"] = target.l1_bytes;
    result["l2_bytes"] = target.l2_bytes;
    result["l3_bytes"] = target.l3_bytes;
    result["llvm_cpu"] = target.cpu;
    return result;
  });
  module.def("target_names", &target_names);
  module.def("measure_peak_flops", &measure_peak_flops, py::arg("threads"), py::arg("seconds") = 0.15, unlocked);
  module.def("measure_read_bandwidth", &measure_read_bandwidth, py::arg("threads"), py::arg("seconds") = 0.15,
             unlocked);
}

}  // namespace tw::python
