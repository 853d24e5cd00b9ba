#include "runtime/executable.h"

#include <algorithm>
#include <atomic>
#include <list>

#include "runtime/artifact/artifact.h"
#include "runtime/device/cuda.h"
#include "runtime/device/device.h"
#include "runtime/machine/cpu_features.h"
#include "runtime/openmp.h"
#include "runtime/plan/plan_io.h"
#include "runtime/team.h"

namespace tw {

namespace {

std::string text_of(DType dtype, const Shape& shape) {
  std::string text = to_string(dtype) + "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? "," : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string text_of(const TensorInfo& info, const Plan& plan) {
  if (info.dims.empty()) return text_of(info.dtype, info.shape);
  std::vector<std::string> names;
  for (const Symbol& symbol : plan.symbols) names.push_back(symbol.name);
  std::string text = to_string(info.dtype) + "[";
  for (size_t i = 0; i < info.dims.size(); ++i) text += (i ? "," : "") + info.dims[i].text(names);
  return text + "]";
}

void check_count(size_t count, const Plan& plan, const std::vector<TensorInfo>& infos, const std::string& kind) {
  if (count == infos.size()) return;
  std::string names;
  for (const TensorInfo& info : infos) names += (names.empty() ? "" : ", ") + info.name + " " + text_of(info, plan);
  throw Error(ErrorCode::input, std::to_string(count) + " " + kind + "s were given, the model has " +
                                    std::to_string(infos.size()) + "\n  help: give them in this order: " + names);
}

// The sizes of the open dimensions.  Error(input): the inputs are not as many, or of other types or ranks.
std::vector<int64_t> sizes_in(const Plan& plan, const std::vector<NDArray>& inputs) {
  if (plan.symbols.empty()) return {};
  check_count(inputs.size(), plan, plan.inputs, "input");
  std::vector<Shape> shapes;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorInfo& info = plan.inputs[i];
    if (!inputs[i].is_defined() || inputs[i].dtype() != info.dtype || inputs[i].shape().size() != info.shape.size()) {
      throw Error(ErrorCode::input,
                  "input '" + info.name + "' is " +
                      (inputs[i].is_defined() ? text_of(inputs[i].dtype(), inputs[i].shape()) : "an undefined array") +
                      ", the model has " + text_of(info, plan) + "\n  help: convert or reshape it");
    }
    shapes.push_back(inputs[i].shape());
  }
  return symbol_sizes(plan, shapes);
}

void check_arrays(const std::vector<NDArray>& arrays, const Plan& plan, const std::vector<TensorInfo>& infos,
                  const std::string& kind) {
  check_count(arrays.size(), plan, infos, kind);
  for (size_t i = 0; i < arrays.size(); ++i) {
    const TensorInfo& info = infos[i];
    const NDArray& array = arrays[i];
    if (!info.dims.empty()) {
      if (!array.is_defined()) continue;
      throw Error(ErrorCode::input, kind + " '" + info.name +
                                        "' has sizes that only the run computes\n  help: run() "
                                        "gives arrays of these sizes; it takes none for this " +
                                        kind);
    }
    if (!array.is_defined() && array.size() != 0)
      throw Error(ErrorCode::input,
                  kind + " '" + info.name + "' is an undefined array\n  help: give " + text_of(info.dtype, info.shape));
    if (array.dtype() != info.dtype || array.shape() != info.shape)
      throw Error(ErrorCode::input, kind + " '" + info.name + "' is " + text_of(array.dtype(), array.shape()) +
                                        ", the model has " + text_of(info.dtype, info.shape) +
                                        "\n  help: convert or reshape it, or compile the model for this shape");
  }
}

// What numbers the runs that draw from it.
class RandomSource {
 public:
  void seed(uint64_t seed) {
    std::lock_guard lock(mutex_);
    next_ = {seed, 0};
  }
  RandomState next() {
    std::lock_guard lock(mutex_);
    const RandomState state = next_;
    ++next_.run;
    return state;
  }

 private:
  std::mutex mutex_;
  RandomState next_;
};

}  // namespace

struct Executable::State {
  // One of: given by the compiler, or mapped.  Shared with clones.
  std::shared_ptr<const std::vector<std::byte>> owned_image;
  std::shared_ptr<const Artifact> artifact;

  std::span<const std::byte> image;
  Plans plans;
  std::vector<NDArray> constants;
  MachineRequirements requirements;
  std::atomic<int> threads{0};  // 0: one a core
  std::atomic<int> gpu{0};
  std::atomic<TeamKind> team{default_team_kind()};
  const int cores = default_team_size();
  TeamRequest who() const {
    const int chosen = threads;
    return {chosen > 0 ? chosen : cores, team};
  }

  // What a run with these sizes of the open dimensions takes.  The program is made when first needed, for code for
  // another machine can be saved here.
  struct Sized {
    std::vector<int64_t> symbols;
    Plan plan;
    std::unique_ptr<Program> program;
  };
  // Of the last runs, the latest first; a plan that is not open has one.
  std::mutex sized_mutex;
  std::list<std::shared_ptr<Sized>> sized;

  std::mutex mutex;               // one run at a time: there is one arena
  std::shared_ptr<Sized> latest;  // guarded by it: one whose program was made; others share its code
  HostFunctions host;
  RandomState random;  // guarded by it: of the current or last run; programs refer to it
  std::shared_ptr<RandomSource> random_source = std::make_shared<RandomSource>();

  std::shared_ptr<Sized> sized_for(const std::vector<int64_t>& symbols) {
    constexpr size_t most = 8;
    std::lock_guard lock(sized_mutex);
    const auto found = std::find_if(sized.begin(), sized.end(), [&](const auto& s) { return s->symbols == symbols; });
    if (found != sized.end()) {
      sized.splice(sized.begin(), sized, found);
      return sized.front();
    }
    auto made = std::make_shared<Sized>(Sized{symbols, plan_at(plans, symbols), nullptr});
    if (!plans.general.symbols.empty()) {
      if (const std::string problem = find_plan_problem(made->plan); !problem.empty())
        throw Error(ErrorCode::limit,
                    "the model cannot run at these sizes: " + problem + "\n  help: run fewer or smaller inputs");
    }
    sized.push_front(made);
    if (sized.size() > most) sized.pop_back();
    return made;
  }
  bool is_of_gpu() const { return requirements.architecture == "cuda"; }
  void check_places(const std::vector<NDArray>& arrays, const std::vector<TensorInfo>& infos,
                    const std::string& kind) const {
    if (is_of_gpu()) return;
    for (size_t i = 0; i < arrays.size(); ++i)
      if (arrays[i].is_on_gpu())
        throw Error(ErrorCode::input,
                    kind + " '" + infos[i].name + "' lies in the memory of a GPU, and the model was compiled for " +
                        requirements.target + "\n  help: copy it to the host, or compile the model for \"cuda\"");
  }
  void check_options(const RunOptions& options) const {
    if (is_of_gpu() || (!options.stream && !options.leaves_outputs)) return;
    throw Error(ErrorCode::input, "streams and outputs on the device are for GPUs, and the model was compiled for " +
                                      requirements.target +
                                      "\n  help: leave them out, or compile the model for \"cuda\"");
  }
  // For inputs that fit.
  std::shared_ptr<Sized> checked(const std::vector<NDArray>& inputs) {
    auto result = sized_for(sizes_in(plans.general, inputs));
    check_arrays(inputs, result->plan, result->plan.inputs, "input");
    check_places(inputs, result->plan.inputs, "input");
    return result;
  }
  // On inputs that were checked.
  void run(const std::shared_ptr<Sized>& sized, const std::vector<NDArray>& inputs, std::vector<NDArray>& outputs,
           const RunOptions& options);
  std::shared_ptr<Sized> small() { return sized_for(small_sizes(plans.general)); }

  // Large results of the last run: their storage serves the next one when the caller has let go of it, since fresh
  // pages cost more than many a kernel.
  std::mutex results_mutex;
  std::vector<NDArray> results;

  std::vector<NDArray> make_outputs(const Plan& fixed, const std::vector<NDArray>& inputs, const RunOptions& options) {
    constexpr size_t worth_keeping = size_t{1} << 20;
    std::lock_guard lock(results_mutex);
    results.resize(fixed.outputs.size());
    std::vector<NDArray> outputs;
    for (size_t i = 0; i < fixed.outputs.size(); ++i) {
      if (const int32_t input = fixed.outputs[i].in_place; input >= 0) {
        outputs.push_back(inputs[input]);
        continue;
      }
      if (!fixed.outputs[i].dims.empty()) {  // the run's
        outputs.emplace_back();
        continue;
      }
      if (options.leaves_outputs) {
        outputs.push_back(new_gpu_array(fixed.outputs[i].dtype, fixed.outputs[i].shape, gpu));
        continue;
      }
      NDArray& kept = results[i];
      if (!kept.is_defined() || !kept.is_sole_owner() || kept.shape() != fixed.outputs[i].shape) {
        NDArray fresh(fixed.outputs[i].dtype, fixed.outputs[i].shape);
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

  Program& ready_program(const std::shared_ptr<Sized>& wanted) {
    if (!wanted->program) {
      wanted->program = latest ? latest->program->at(wanted->plan)
                               : make_program({image, wanted->plan, constants, requirements, random, host, gpu});
      check(wanted->program != nullptr, "Executable: the device runs plans of this kind");
      latest = wanted;
    }
    return *wanted->program;
  }
  void load_libraries(const std::filesystem::path& folder) {
    for (const HostCall& call : plans.general.host_calls) host.load(call, folder);
    for (const SpecialPlan& special : plans.special)
      for (const HostCall& call : special.plan.host_calls) host.load(call, folder);
  }
  // Loads the code and finds the kernels of all plans in it, so that faults show before a run.
  void load_code() {
    ready_program(small());
    for (const auto& [sizes, plan] : plans.special) latest->program->at(plan_at(plan, small_sizes(plan)));
  }
};

Executable::Executable(std::vector<std::byte> image, Plans plans, std::vector<NDArray> constants,
                       MachineRequirements requires_)
    : state_(std::make_shared<State>()) {
  State& s = *state_;
  s.owned_image = std::make_shared<const std::vector<std::byte>>(std::move(image));
  s.image = *s.owned_image;
  s.plans = std::move(plans);
  s.constants = std::move(constants);
  s.requirements = std::move(requires_);
  if (std::string problem = find_plans_problem(s.plans); !problem.empty())
    internal_error("Executable: the plan is malformed: " + problem);
  const std::vector<TensorInfo>& infos = s.plans.general.constants;
  check(s.constants.size() == infos.size(), "Executable: one array a constant of the plan");
  for (size_t i = 0; i < s.constants.size(); ++i) {
    check(s.constants[i].dtype() == infos[i].dtype && s.constants[i].shape() == infos[i].shape,
          "Executable: the constants are as the plan says");
  }
  // Code for this machine is loaded at once, so that its faults show here.
  if (s.requirements.architecture != "cuda" && reason_not_runnable(s.requirements).empty()) {
    s.load_libraries({});
    s.load_code();
  }
}

Executable Executable::load(const std::filesystem::path& path, int gpu) {
  return of(Artifact::open(path), path, gpu);
}

Executable Executable::load(std::span<const std::byte> bytes, int gpu) {
  const char* name = "the artifact in memory";
  return of(Artifact::read(FileMap::copy_of(bytes), name), name, gpu);
}

Executable Executable::of(Artifact loaded, const std::filesystem::path& path, int gpu) {
  const auto artifact = std::make_shared<Artifact>(std::move(loaded));
  if (artifact->requirements.architecture != "cuda") require_runnable(artifact->requirements, path.string());
  Executable result;
  result.state_ = std::make_shared<State>();
  State& s = *result.state_;
  s.image = artifact->image;
  s.plans = std::move(artifact->plans);
  s.constants = std::move(artifact->constants);
  s.requirements = std::move(artifact->requirements);
  s.artifact = artifact;
  if (gpu != 0) result.set_gpu(gpu);
  try {
    s.load_libraries(path.parent_path());
    s.load_code();
  } catch (const Error& error) {
    std::string text = error.what();
    throw Error(error.code(), path.string() + ": " + text.substr(error.code_text().size() + 1));
  }
  return result;
}

Executable Executable::clone() const {
  const State& from = *state_;
  Executable result;
  result.state_ = std::make_shared<State>();
  State& s = *result.state_;
  s.owned_image = from.owned_image;
  s.artifact = from.artifact;
  s.image = from.image;
  s.plans = from.plans;
  s.constants = from.constants;
  s.requirements = from.requirements;
  s.threads = from.threads.load();
  s.team = from.team.load();
  s.gpu = from.gpu.load();
  s.host.add(from.host);
  return result;
}

void Executable::save(const std::filesystem::path& path) const {
  const State& s = *state_;
  if (s.artifact) {
    std::span<const std::byte> bytes = s.artifact->file->bytes();
    write_file(path, {&bytes, 1});
  } else {
    write_artifact(path, s.image, s.plans, s.constants, s.requirements);
  }
}

std::vector<std::byte> Executable::to_bytes() const {
  const State& s = *state_;
  if (!s.artifact) return artifact_bytes(s.image, s.plans, s.constants, s.requirements);
  const std::span<const std::byte> bytes = s.artifact->file->bytes();
  return {bytes.begin(), bytes.end()};
}

void Executable::verify() const {
  if (state_->artifact) state_->artifact->verify_constants();
}

const Plan& Executable::plan() const {
  return state_->plans.general;
}
const Plans& Executable::plans() const {
  return state_->plans;
}
std::vector<Shape> Executable::output_shapes(const std::vector<Shape>& inputs) const {
  std::vector<Shape> shapes;
  for (const TensorInfo& output : state_->sized_for(symbol_sizes(plan(), inputs))->plan.outputs)
    shapes.push_back(output.shape);
  return shapes;
}
const MachineRequirements& Executable::requirements() const {
  return state_->requirements;
}

std::vector<NDArray> Executable::run(const std::vector<NDArray>& inputs, const RunOptions& options) {
  const auto sized = state_->checked(inputs);
  state_->check_options(options);
  std::vector<NDArray> outputs = state_->make_outputs(sized->plan, inputs, options);
  state_->run(sized, inputs, outputs, options);
  return outputs;
}

bool Executable::is_of_gpu() const {
  return state_->is_of_gpu();
}

void Executable::set_gpu(int gpu) {
  State& s = *state_;
  if (!s.is_of_gpu())
    throw Error(ErrorCode::input, "a GPU is chosen for a model that was compiled for " + s.requirements.target +
                                      "\n  help: compile it for \"cuda\"");
  if (gpu < 0)
    throw Error(ErrorCode::input, std::to_string(gpu) + " is no GPU\n  help: they are numbered 0, 1 and so on");
  const std::lock_guard lock(s.mutex);
  if (gpu == s.gpu) return;
  s.gpu = gpu;
  const std::lock_guard sized_lock(s.sized_mutex);
  s.latest = nullptr;
  s.sized.clear();
}
int Executable::gpu() const {
  return state_->gpu;
}

namespace {

bool overlap(const NDArray& a, const NDArray& b) {
  if (!a.is_defined() || !b.is_defined()) return false;
  const auto *first = static_cast<const char*>(a.data()), *second = static_cast<const char*>(b.data());
  return first < second + b.byte_size() && second < first + a.byte_size();
}

void require_separate(const std::vector<NDArray>& inputs, const std::vector<NDArray>& outputs, const Plan& plan) {
  const auto refuse = [&](size_t output, const std::string& other) {
    throw Error(ErrorCode::input, "output '" + plan.outputs[output].name + "' shares memory with " + other +
                                      "\n  help: give it an array of its own");
  };
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (size_t k = 0; k < inputs.size(); ++k) {
      if (static_cast<int64_t>(k) != plan.outputs[i].in_place && overlap(outputs[i], inputs[k]))
        refuse(i, "input '" + plan.inputs[k].name + "'");
    }
    for (size_t k = 0; k < i; ++k)
      if (overlap(outputs[i], outputs[k])) refuse(i, "output '" + plan.outputs[k].name + "'");
  }
}

}  // namespace

void Executable::run_into(const std::vector<NDArray>& inputs, std::vector<NDArray>& outputs,
                          const RunOptions& options) {
  const auto sized = state_->checked(inputs);
  state_->check_options(options);
  state_->run(sized, inputs, outputs, options);
}

void Executable::State::run(const std::shared_ptr<Sized>& sized, const std::vector<NDArray>& inputs,
                            std::vector<NDArray>& outputs, const RunOptions& options) {
  check_arrays(outputs, sized->plan, sized->plan.outputs, "output");
  check_places(outputs, sized->plan.outputs, "output");
  for (size_t i = 0; i < outputs.size(); ++i) {
    const int32_t input = sized->plan.outputs[i].in_place;
    if (input >= 0 && outputs[i].data() != inputs[input].data())
      throw Error(ErrorCode::input, "output '" + sized->plan.outputs[i].name + "' is in place of input '" +
                                        sized->plan.inputs[input].name +
                                        "', but another array was given\n  help: give the input's array for both");
  }
  require_separate(inputs, outputs, sized->plan);
  std::lock_guard lock(mutex);
  Program& program = ready_program(sized);
  random = random_source->next();
  program.run(inputs, outputs, who(), options);
  for (size_t i = 0; i < outputs.size(); ++i)
    if (!sized->plan.outputs[i].dims.empty()) outputs[i] = program.take_output(i);
}

void Executable::set_seed(uint64_t seed) {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  s.random_source->seed(seed);
}

void Executable::set_host_function(const std::string& name, HostFunction function) {
  state_->host.set(name, std::move(function));
}

void Executable::share_random_state(const Executable& other) {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  s.random_source = other.state_->random_source;
}

void Executable::fill_scratch(std::byte value) {
  State& s = *state_;
  std::lock_guard lock(s.mutex);
  s.ready_program(s.latest ? s.latest : s.small()).fill_scratch(value, s.who());
}

void Executable::set_threads(int threads) {
  if (threads < 0 || threads > Team::max_size)
    throw Error(ErrorCode::limit, std::to_string(threads) + " threads were asked for\n  help: 1 to " +
                                      std::to_string(Team::max_size) + ", or 0 for one a core");
  state_->threads = threads;
}

int Executable::threads() const {
  return state_->who().threads;
}

void Executable::set_team(TeamKind kind) {
  if (kind == TeamKind::openmp) (void)openmp();  // which throws where there is none
  state_->team = kind;
}

TeamKind Executable::team() const {
  return state_->team;
}

template <class F>
auto Executable::measure(const std::vector<NDArray>& inputs, int repetitions, F&& by_program) {
  State& s = *state_;
  const auto sized = s.checked(inputs);
  if (repetitions < 1) throw Error(ErrorCode::limit, "a profile takes at least 1 repetition\n  help: 10 is usual");
  std::vector<NDArray> outputs;
  for (const TensorInfo& info : sized->plan.outputs)
    outputs.push_back(info.in_place >= 0  ? inputs[info.in_place]
                      : info.dims.empty() ? NDArray(info.dtype, info.shape)
                                          : NDArray());
  std::lock_guard lock(s.mutex);
  Program& program = s.ready_program(sized);
  s.random = s.random_source->next();
  return by_program(program, outputs, sized->plan);
}

namespace {

std::string what_runs(const Plan& plan, const Step& step) {
  if (step.kind == StepKind::call) return plan.host_calls[step.target].function;
  return step.kind == StepKind::kernel ? step.kernel : "";
}

}  // namespace

std::vector<StepProfile> Executable::profile(const std::vector<NDArray>& inputs, int repetitions) {
  return measure(inputs, repetitions, [&](Program& program, std::vector<NDArray>& outputs, const Plan& plan) {
    const std::vector<StepTime> times = program.time_steps(inputs, outputs, state_->who(), repetitions);
    const std::vector<int64_t> counters = program.counters();
    std::vector<StepProfile> profiles;
    for (size_t i = 0; i < times.size(); ++i) {
      const Step& step = plan.steps[i];
      const auto often = static_cast<double>(times[i].executions);
      profiles.push_back({what_runs(plan, step), step.name, times[i].seconds,
                          often * static_cast<double>(step.flops.at({}, counters)),
                          often * static_cast<double>(step.bytes.at({}, counters))});
    }
    return profiles;
  });
}

double Executable::time_run(const std::vector<NDArray>& inputs, int repetitions) {
  return measure(inputs, repetitions, [&](Program& program, std::vector<NDArray>& outputs, const Plan&) {
    return program.time_run(inputs, outputs, repetitions);
  });
}

std::vector<StepSpan> Executable::trace(const std::vector<NDArray>& inputs, int repetitions) {
  return measure(inputs, repetitions, [&](Program& program, std::vector<NDArray>& outputs, const Plan&) {
    return program.trace(inputs, outputs, state_->who(), repetitions);
  });
}

}  // namespace tw
