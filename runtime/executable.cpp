#include "runtime/executable.h"

#include <atomic>

#include "runtime/artifact.h"
#include "runtime/cpu_features.h"
#include "runtime/device.h"
#include "runtime/plan_io.h"
#include "runtime/team.h"

namespace tw {

struct Executable::State {
  // One of: given by the compiler, or mapped.
  std::vector<std::byte> owned_image;
  std::unique_ptr<Artifact> artifact;

  std::span<const std::byte> image;
  Plan plan;
  std::vector<NDArray> constants;
  MachineRequirements requirements;
  std::atomic<int> threads{0};  // 0: one a core
  const int cores = default_team_size();

  std::mutex mutex;                  // one run at a time: there is one arena
  std::unique_ptr<Program> program;  // guarded; made when first needed, for code for another machine can be saved here

  // Large results of the last run: their storage serves the next one when the caller has let go of it, since fresh
  // pages cost more than many a kernel.
  std::mutex results_mutex;
  std::vector<NDArray> results;

  std::vector<NDArray> make_outputs(const std::vector<NDArray>& inputs) {
    constexpr size_t worth_keeping = size_t{1} << 20;
    std::lock_guard lock(results_mutex);
    results.resize(plan.outputs.size());
    std::vector<NDArray> outputs;
    for (size_t i = 0; i < plan.outputs.size(); ++i) {
      if (const int32_t input = plan.outputs[i].in_place; input >= 0) {
        outputs.push_back(inputs[input]);
        continue;
      }
      NDArray& kept = results[i];
      if (!kept.is_defined() || !kept.is_sole_owner()) {
        NDArray fresh(plan.outputs[i].dtype, plan.outputs[i].shape);
        if (fresh.byte_size() < worth_keeping) {
          outputs.push_back(std::move(fresh));
          continue;
        }
        kept = std::move(fresh);
      }
      outputs.push_back(kept);
    }
    return outputs;
  }

  Program& ready_program() {
    if (!program) program = make_program({image, plan, constants, requirements});
    return *program;
  }
};

namespace {

std::string text_of(DType dtype, const Shape& shape) {
  std::string text = to_string(dtype) + "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? "," : "") + std::to_string(shape[i]);
  return text + "]";
}

void check_arrays(const std::vector<NDArray>& arrays, const std::vector<TensorInfo>& infos, const std::string& kind) {
  if (arrays.size() != infos.size()) {
    std::string names;
    for (const TensorInfo& info : infos)
      names += (names.empty() ? "" : ", ") + info.name + " " + text_of(info.dtype, info.shape);
    throw Error(ErrorCode::input, std::to_string(arrays.size()) + " " + kind + "s were given, the model has " +
                                      std::to_string(infos.size()) + "\n  help: give them in this order: " + names);
  }
  for (size_t i = 0; i < arrays.size(); ++i) {
    const TensorInfo& info = infos[i];
    const NDArray& array = arrays[i];
    if (!array.is_defined() && array.size() != 0)
      throw Error(ErrorCode::input,
                  kind + " '" + info.name + "' is an undefined array\n  help: give " + text_of(info.dtype, info.shape));
    if (array.dtype() != info.dtype || array.shape() != info.shape)
      throw Error(ErrorCode::input, kind + " '" + info.name + "' is " + text_of(array.dtype(), array.shape()) +
                                        ", the model has " + text_of(info.dtype, info.shape) +
                                        "\n  help: convert or reshape it, or compile the model for this shape");
  }
}

struct Addresses {
  std::vector<const void*> inputs;
  std::vector<void*> outputs;

  Addresses(const std::vector<NDArray>& in, std::vector<NDArray>& out) {
    for (const NDArray& array : in) inputs.push_back(array.data());
    for (NDArray& array : out) outputs.push_back(array.data());
  }
};

}  // namespace

Executable::Executable(std::vector<std::byte> image, Plan plan, std::vector<NDArray> constants,
                       MachineRequirements requires_)
    : state_(std::make_shared<State>()) {
  State& s = *state_;
  s.owned_image = std::move(image);
  s.image = s.owned_image;
  s.plan = std::move(plan);
  s.constants = std::move(constants);
  s.requirements = std::move(requires_);
  if (std::string problem = find_plan_problem(s.plan); !problem.empty())
    internal_error("Executable: the plan is malformed: " + problem);
  check(s.constants.size() == s.plan.constants.size(), "Executable: one array a constant of the plan");
  for (size_t i = 0; i < s.constants.size(); ++i) {
    check(s.constants[i].dtype() == s.plan.constants[i].dtype && s.constants[i].shape() == s.plan.constants[i].shape,
          "Executable: the constants are as the plan says");
  }
  // Code for this machine is loaded at once, so that its faults show here.
  if (s.requirements.architecture != "cuda" && reason_not_runnable(s.requirements).empty()) s.ready_program();
}

Executable Executable::load(const std::filesystem::path& path) {
  auto artifact = std::make_unique<Artifact>(Artifact::open(path));
  if (artifact->requirements.architecture != "cuda") require_runnable(artifact->requirements, path.string());
  Executable result;
  result.state_ = std::make_shared<State>();
  State& s = *result.state_;
  s.image = artifact->image;
  s.plan = std::move(artifact->plan);
  s.constants = std::move(artifact->constants);
  s.requirements = std::move(artifact->requirements);
  s.artifact = std::move(artifact);
  try {
    s.ready_program();
  } catch (const Error& error) {
    std::string text = error.what();
    throw Error(error.code(), path.string() + ": " + text.substr(error.code_text().size() + 1));
  }
  return result;
}

void Executable::save(const std::filesystem::path& path) const {
  const State& s = *state_;
  if (s.artifact) {
    std::span<const std::byte> bytes = s.artifact->file->bytes();
    write_file(path, {&bytes, 1});
  } else {
    write_artifact(path, s.image, s.plan, s.constants, s.requirements);
  }
}

void Executable::verify() const {
  if (state_->artifact) state_->artifact->verify_constants();
}

const Plan& Executable::plan() const {
  return state_->plan;
}
const MachineRequirements& Executable::requirements() const {
  return state_->requirements;
}

std::vector<NDArray> Executable::run(const std::vector<NDArray>& inputs) {
  check_arrays(inputs, state_->plan.inputs, "input");
  std::vector<NDArray> outputs = state_->make_outputs(inputs);
  run_into(inputs, outputs);
  return outputs;
}

void Executable::run_into(const std::vector<NDArray>& inputs, std::vector<NDArray>& outputs) {
  State& s = *state_;
  check_arrays(inputs, s.plan.inputs, "input");
  check_arrays(outputs, s.plan.outputs, "output");
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int32_t input = s.plan.outputs[i].in_place;
    if (input >= 0 && outputs[i].data() != inputs[input].data())
      throw Error(ErrorCode::input, "output '" + s.plan.outputs[i].name + "' is in place of input '" +
                                        s.plan.inputs[input].name +
                                        "', but another array was given\n  help: give the input's array for both");
  }
  Addresses addresses(inputs, outputs);
  std::lock_guard lock(s.mutex);
  s.ready_program().run(addresses.inputs, addresses.outputs, threads());
}

void Executable::set_threads(int threads) {
  if (threads < 0 || threads > Team::max_size)
    throw Error(ErrorCode::limit, std::to_string(threads) + " threads were asked for\n  help: 1 to " +
                                      std::to_string(Team::max_size) + ", or 0 for one a core");
  state_->threads = threads;
}

int Executable::threads() const {
  int threads = state_->threads;
  return threads > 0 ? threads : state_->cores;
}

template <class F>
auto Executable::measure(const std::vector<NDArray>& inputs, int repetitions, F&& by_program) {
  State& s = *state_;
  check_arrays(inputs, s.plan.inputs, "input");
  if (repetitions < 1) throw Error(ErrorCode::limit, "a profile takes at least 1 repetition\n  help: 10 is usual");
  std::vector<NDArray> outputs;
  for (const TensorInfo& info : s.plan.outputs)
    outputs.push_back(info.in_place >= 0 ? inputs[info.in_place] : NDArray(info.dtype, info.shape));
  Addresses addresses(inputs, outputs);
  std::lock_guard lock(s.mutex);
  return by_program(s.ready_program(), addresses);
}

std::vector<StepProfile> Executable::profile(const std::vector<NDArray>& inputs, int repetitions) {
  const std::vector<double> seconds = measure(inputs, repetitions, [&](Program& program, const Addresses& addresses) {
    return program.time_steps(addresses.inputs, addresses.outputs, threads(), repetitions);
  });
  std::vector<StepProfile> profiles;
  for (size_t i = 0; i < seconds.size(); ++i) {
    const Step& step = plan().steps[i];
    profiles.push_back({step.kernel, step.name, seconds[i], step.flops, step.bytes});
  }
  return profiles;
}

std::vector<StepSpan> Executable::trace(const std::vector<NDArray>& inputs, int repetitions) {
  return measure(inputs, repetitions, [&](Program& program, const Addresses& addresses) {
    return program.trace(addresses.inputs, addresses.outputs, threads(), repetitions);
  });
}

}  // namespace tw
