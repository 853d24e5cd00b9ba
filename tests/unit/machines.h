// Compiled models on this machine and, in the emulator, on others.  Their memory holds NaN before they run.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "runtime/npy.h"
#include "runtime/poison.h"

namespace tw::test {

struct Machine {
  const char* target;
  const char* runner;  // a folder of boards/ and the emulator's command; empty: this process
  const char* emulator;
};

inline const Machine machines[] = {
    {"cpu", "", ""},
    {"x86:avx2", "x86_64", "qemu-x86_64 -cpu max"},
    {"x86:sse4", "x86_64", "qemu-x86_64 -cpu Nehalem"},
    {"rpi3", "aarch64", "qemu-aarch64 -cpu cortex-a53"},
    {"neoverse-n1", "aarch64", "qemu-aarch64 -cpu neoverse-n1"},
    {"neoverse-v1", "aarch64", "qemu-aarch64 -cpu max"},
    {"armv7", "arm", "qemu-arm -cpu cortex-a7"},
};

// Nothing: no machine of that name is emulated.
inline const Machine* find_machine(std::string_view target) {
  const auto* found =
      std::find_if(std::begin(machines), std::end(machines), [&](const Machine& m) { return target == m.target; });
  return found == std::end(machines) ? nullptr : found;
}

inline std::vector<NDArray> run_on(const Machine& machine, Executable& executable,
                                   const std::vector<NDArray>& inputs = {}) {
  if (*machine.runner == 0) return run_poisoned(executable, inputs);
  static int count = 0;
  const auto folder = std::filesystem::temp_directory_path() /
                      ("tilewright-test-" + std::to_string(getpid()) + "-" + std::to_string(count++));
  std::filesystem::create_directories(folder);
  executable.save(folder / "m.twa");
  std::string emulator = machine.emulator;
#if defined(__x86_64__)
  // QEMU 7.2 touches what vmaskmovps leaves out, and faults where that is beyond the last page of an array.
  if (std::string_view(machine.target) == "x86:avx2" && __builtin_cpu_supports("avx2")) emulator.clear();
#endif
  std::string command = emulator + " " + TW_BUILD + "/boards/" + machine.runner + "/tw-run " +
                        (folder / "m.twa").string() + " --poison --threads 2 --output-dir " + folder.string();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string file = (folder / ("input" + std::to_string(i) + ".npy")).string();
    write_npy(file, inputs[i]);
    command += " --input " + executable.plan().inputs[i].name + "=" + file;
  }
  if (std::system((command + " > " + (folder / "log").string() + " 2>&1").c_str()) != 0)
    throw Error(ErrorCode::device, "the emulator fails: " + command);
  std::vector<NDArray> outputs;
  for (const TensorInfo& info : executable.plan().outputs) {
    std::string name = info.name;
    std::replace_if(name.begin(), name.end(), [](char c) { return c == '/' || c == ':'; }, '_');
    outputs.push_back(read_npy(folder / (name + ".npy"), info.dtype));
  }
  std::filesystem::remove_all(folder);
  return outputs;
}

}  // namespace tw::test
