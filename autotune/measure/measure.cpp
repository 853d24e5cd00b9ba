#include "autotune/measure/measure.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <cstring>

#include "autotune/measure/child.h"
#include "autotune/standalone.h"
#include "runtime/error.h"
#include "runtime/machine/cpu_features.h"

extern char** environ;

namespace tw::autotune {
namespace {

// In a process group of its own, so that Ctrl-C reaches the job and not the child.
pid_t start_program(const MeasureRequest& request, int exchange, int report) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, exchange, exchange_descriptor);
  posix_spawn_file_actions_adddup2(&actions, report, report_descriptor);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  const std::string program = request.program, candidate = request.candidate, incumbent = request.incumbent;
  const char* arguments[] = {program.c_str(), candidate.c_str(), incumbent.c_str(), nullptr};
  pid_t process = -1;
  const int error =
      posix_spawn(&process, program.c_str(), &actions, &attributes, const_cast<char* const*>(arguments), environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    throw Error(ErrorCode::file, "measuring: " + program + " cannot be started: " + std::strerror(error) +
                                     "\n  help: tw-measure is built and installed beside the Python module");
  }
  return process;
}

NDArray copy_of(const std::byte* memory, const TensorInfo& tensor) {
  NDArray array(tensor.dtype, tensor.shape);
  std::memcpy(array.data(), memory, array.byte_size());
  return array;
}

}  // namespace

const char* word_of(Status status) {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::timeout:
      return "timeout";
    case Status::crash:
      return "crash";
    case Status::wrong:
      return "wrong";
    case Status::spill:
      return "spill";
    case Status::refused:
      return "refused";
  }
  return "";
}

void write_inputs(const MeasureRequest& request, std::span<std::byte> memory) {
  const ExchangeLayout layout(*request.plan);
  check(request.inputs.size() == input_sets, "measure: as many sets of inputs as an exchange holds");
  for (int set = 0; set < input_sets; ++set) {
    for (size_t i = 0; i < request.plan->inputs.size(); ++i) {
      const NDArray& array = request.inputs[static_cast<size_t>(set)].at(i);
      std::memcpy(memory.data() + layout.input(i, set) - layout.first_input(), array.data(), array.byte_size());
    }
  }
}

Measurement judge(const MeasureRequest& request, ChildResult child) {
  Measurement result;
  result.status = child.status;
  result.detail = std::move(child.detail);
  result.filters_calls = child.filters_calls;
  if (result.status != Status::ok) return result;
  const Plan& plan = *request.plan;
  const ExchangeLayout layout(plan);
  for (int set = 0; set < input_sets; ++set) {
    const auto outputs_of = [&](bool is_incumbent) {
      std::vector<NDArray> arrays;
      for (size_t i = 0; i < plan.outputs.size(); ++i) {
        const int64_t at = layout.output(i, set, is_incumbent) - layout.first_output;
        arrays.push_back(copy_of(child.outputs.data() + at, plan.outputs[i]));
      }
      return arrays;
    };
    std::vector<NDArray> ours = outputs_of(false);
    const bool has_expected = !request.expected.empty();
    const std::vector<NDArray> right = has_expected ? request.expected[static_cast<size_t>(set)] : outputs_of(true);
    if (has_expected) {
      result.padding = request.padding;
    } else if (!request.is_network && set == 0) {
      result.padding = padding_of(ours, right);
    }
    const std::string difference =
        request.is_network ? find_network_difference(ours, right) : find_difference(ours, right, result.padding);
    if (!difference.empty()) {
      result.status = Status::wrong;
      result.detail = "inputs " + std::to_string(set) + ", " + difference;
      return result;
    }
    if (!has_expected) clear_padding(ours, result.padding);
    result.outputs.push_back(std::move(ours));
  }
  result.samples = std::move(child.samples);
  result.step_seconds = std::move(child.step_seconds);
  return result;
}

Measurement measure(const MeasureRequest& request) {
  ChildRequest child;
  child.plan = request.plan;
  child.fill = [&](std::span<std::byte> memory) { write_inputs(request, memory); };
  child.threads = request.threads;
  child.seconds = request.seconds, child.worst_ratio = request.worst_ratio;
  child.limit_seconds = request.limit_seconds;
  const auto bytes = [](const std::filesystem::path& path) {
    return static_cast<int64_t>(std::filesystem::file_size(path));
  };
  child.memory_bytes = address_space(*request.plan, request.threads, request.memory_bytes,
                                     bytes(request.candidate) + bytes(request.incumbent));
  child.wants_profile = request.wants_profile;
  child.is_cancelled = request.is_cancelled;
  Measurement result = judge(
      request, run_child(child, [&](int exchange, int report) { return start_program(request, exchange, report); }));
  result.machine = host_cpu().name;
  return result;
}

}  // namespace tw::autotune
