// The CUDA device.  Everything of a run goes into one stream, in the order of the plan: inputs in, kernels, outputs
// out; so steps wait for each other by their order alone.  Kernels of a plan without control are recorded when they run
// for the second time on the same memory, and started as one from then on.  The host waits for the GPU where a step of
// control asks for what kernels have computed, and at the end.
#include "runtime/device/cuda.h"

#include <algorithm>

#include "runtime/device/control.h"
#include "runtime/device/cuda_driver.h"
#include "runtime/device/placing.h"

namespace tw {
namespace {

constexpr int attribute_major = 75, attribute_minor = 76, attribute_l2_bytes = 38, attribute_dynamic_shared_bytes = 8;
constexpr int no_binary_for_gpu = 209;

const CudaDriver& driver() {
  static const CudaDriver* const found = [] {
    std::string problem;
    const CudaDriver* usable = CudaDriver::find(problem);
    if (!usable)
      throw Error(ErrorCode::device,
                  problem + "\n  help: run on a machine with an NVIDIA GPU, or compile the model for \"cpu\"");
    return usable;
  }();
  return *found;
}

void require(CudaDriver::Result result, const std::string& what) {
  if (result != 0) throw Error(ErrorCode::device, "the GPU cannot " + what + ": " + driver().describe(result));
}

// The primary context, held for as long as something lives in it.
class HeldContext {
 public:
  HeldContext() {
    require(driver().device_get(&device_, 0), "be opened");
    require(driver().context_retain(&context_, device_), "give a context");
  }
  ~HeldContext() { driver().context_release(device_); }
  HeldContext(const HeldContext&) = delete;
  HeldContext& operator=(const HeldContext&) = delete;
  CudaDriver::Context get() const { return context_; }
  CudaDriver::Device device() const { return device_; }

 private:
  CudaDriver::Device device_ = 0;
  CudaDriver::Context context_ = nullptr;
};

// Current for this thread until the end of the scope.
class CurrentContext {
 public:
  explicit CurrentContext(CudaDriver::Context context) { require(driver().context_push(context), "use its context"); }
  ~CurrentContext() {
    CudaDriver::Context popped;
    driver().context_pop(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
};

// What programs of the same code share, whatever the sizes that they are for.  It lives in the primary context, which
// is current while it is made and used.
class CudaCode {
 public:
  explicit CudaCode(const ProgramSource& source) : random(source.random) {
    CurrentContext current(context_.get());
    try {
      load(source);
      for (const NDArray& constant : source.constants) {
        constants_.push_back(allocate(constant.byte_size()));
        copy_in(address_of(constants_.back()), constant.data(), constant.byte_size());
      }
      synchronize("take the constants");
      first_ = event(), last_ = event();
    } catch (...) {
      release();
      throw;
    }
  }
  ~CudaCode() {
    // In a context that cannot be made current nothing is left.
    const bool is_current = driver().context_push(context_.get()) == 0;
    release();
    if (!is_current) return;
    CudaDriver::Context popped;
    driver().context_pop(&popped);
  }
  CudaCode(const CudaCode&) = delete;
  CudaCode& operator=(const CudaCode&) = delete;

  CudaDriver::Context context() const { return context_.get(); }
  CudaDriver::Stream stream() const { return stream_; }
  CudaDriver::Function function(const std::string& name) const {
    CudaDriver::Function function = nullptr;
    if (driver().module_function(&function, module_, name.c_str()) == 0) return function;
    throw Error(ErrorCode::artifact, "the code has no kernel '" + name + "'\n  help: compile the model again");
  }
  char* constant(size_t index) const { return static_cast<char*>(constants_.at(index).get()); }

  void copy_in(CudaDriver::Address to, const void* from, size_t bytes) const {
    if (bytes > 0) require(driver().copy_in(to, from, bytes, stream_), "take an input");
  }
  void copy_out(void* to, const char* from, size_t bytes) const {
    if (bytes > 0) require(driver().copy_out(to, address_of(from), bytes, stream_), "give an output");
  }
  void fill(char* memory, std::byte value, int64_t bytes) const {
    if (bytes == 0) return;
    require(
        driver().fill(address_of(memory), std::to_integer<unsigned char>(value), static_cast<size_t>(bytes), stream_),
        "fill memory");
  }
  // What was in the second cache is pushed out, while the host puts more into the stream.
  void sweep() {
    int bytes = 0;
    require(driver().device_attribute(&bytes, attribute_l2_bytes, context_.device()), "tell of its caches");
    const int64_t more = 2 * int64_t{bytes};
    fill(swept_.at_least(0, more), std::byte{0}, more);
  }
  void synchronize(const std::string& what) const { require(driver().stream_synchronize(stream_), what); }

  // The seconds that the GPU takes for what `action` has it do.
  template <class F>
  double time(F&& action) const {
    require(driver().event_record(first_, stream_), "time a kernel");
    action();
    require(driver().event_record(last_, stream_), "time a kernel");
    require(driver().event_synchronize(last_), "run a kernel");
    float milliseconds = 0;
    require(driver().event_elapsed(&milliseconds, first_, last_), "time a kernel");
    return milliseconds * 1e-3;
  }

  static CudaDriver::Address address_of(const void* pointer) { return reinterpret_cast<CudaDriver::Address>(pointer); }
  static CudaDriver::Address address_of(const std::shared_ptr<void>& memory) { return address_of(memory.get()); }

  const RandomState& random;  // on the host
  // By input, by output and by counter; the arena, the workspace and the random state.
  GrowingMemory inputs{allocate}, outputs{allocate}, between{allocate};
  GrowingMemory placed{allocate, [this](void* to, const void* from, size_t bytes) {
                         require(driver().copy(address_of(to), address_of(from), bytes, stream_), "move what grows");
                       }};

 private:
  // Memory of the GPU; its address is none that the host may follow.
  static std::shared_ptr<void> allocate(size_t bytes) {
    CudaDriver::Address address = 0;
    require(driver().allocate(&address, std::max<size_t>(bytes, 1)), "allocate memory");
    return {reinterpret_cast<void*>(address), [](void* memory) { driver().free(address_of(memory)); }};
  }
  void load(const ProgramSource& source) {
    const CudaDriver::Result result = driver().module_load(&module_, source.image.data());
    if (result == no_binary_for_gpu) {
      const std::vector<CudaDeviceInfo> devices = cuda_devices();
      throw Error(ErrorCode::wrong_machine, "built for " + source.requirements.target + ", which " +
                                                (devices.empty() ? "this GPU" : devices[0].name) +
                                                " does not run\n  help: compile the model for \"cuda:sm_" +
                                                std::to_string(devices.empty() ? 80 : devices[0].compute_capability) +
                                                "\"");
    }
    require(result, "load the code");
    require(driver().stream_create(&stream_, 1), "make a stream");  // 1: does not wait for other streams
  }
  static CudaDriver::Event event() {
    CudaDriver::Event event = nullptr;
    require(driver().event_create(&event, 0), "make an event");
    return event;
  }
  // In the order opposite to that of its making.
  void release() {
    for (CudaDriver::Event event : {last_, first_})
      if (event) driver().event_destroy(event);
    constants_.clear();
    for (GrowingMemory* memory : {&inputs, &outputs, &placed, &between, &swept_}) memory->clear();
    if (stream_) driver().stream_destroy(stream_);
    if (module_) driver().module_unload(module_);
  }

  HeldContext context_;
  CudaDriver::Module module_ = nullptr;
  CudaDriver::Stream stream_ = nullptr;
  CudaDriver::Event first_ = nullptr, last_ = nullptr;
  GrowingMemory swept_{allocate};
  std::vector<std::shared_ptr<void>> constants_;
};

// Kernels that are started as one, as long as they work on the same memory.  The context is current while it is used,
// and for `clear` before it goes.
class KernelGraph {
 public:
  bool is_there() const { return executable_ != nullptr; }
  void clear() {
    if (executable_) driver().graph_free(executable_);
    executable_ = nullptr;
  }
  // What `launch_all` puts into the stream is not run, but kept.
  template <class F>
  void record(CudaDriver::Stream stream, F&& launch_all) {
    constexpr int of_this_thread = 1;
    clear();
    require(driver().capture_begin(stream, of_this_thread), "record kernels");
    CudaDriver::Graph graph = nullptr;
    try {
      launch_all();
    } catch (...) {
      if (driver().capture_end(stream, &graph) == 0 && graph) driver().graph_destroy(graph);
      throw;
    }
    require(driver().capture_end(stream, &graph), "record kernels");
    const CudaDriver::Result result = driver().graph_instantiate(&executable_, graph, 0);
    driver().graph_destroy(graph);
    require(result, "keep recorded kernels");
  }
  void launch(CudaDriver::Stream stream) const {
    require(driver().graph_launch(executable_, stream), "start recorded kernels");
  }

 private:
  CudaDriver::ExecutableGraph executable_ = nullptr;
};

class CudaProgram final : public Program {
 public:
  CudaProgram(const Plan& plan, std::shared_ptr<CudaCode> code)
      : plan_(plan),
        code_(std::move(code)),
        placing_(plan, Placing::Outputs::on_device),
        counters_(std::max<size_t>(1, plan.counters.size())) {
    CurrentContext current(code_->context());
    for (const Step& step : plan_.steps) {
      functions_.push_back(step.kind == StepKind::kernel ? code_->function(step.kernel) : nullptr);
      if (step.shared_bytes > 0)
        require(driver().function_attribute(functions_.back(), attribute_dynamic_shared_bytes,
                                            static_cast<int>(step.shared_bytes)),
                "give a block " + std::to_string(step.shared_bytes) + " bytes of shared memory");
    }
    is_fixed_ = plan_.counters.empty() && plan_.steps.size() > 1 &&
                std::ranges::all_of(plan_.steps, [](const Step& step) { return step.kind == StepKind::kernel; }) &&
                std::ranges::all_of(plan_.outputs, [](const TensorInfo& output) { return output.dims.empty(); });
    draws_ = std::ranges::any_of(plan_.steps, [](const Step& step) {
      return std::ranges::any_of(step.buffers, [](const BufferUse& use) { return use.storage == Storage::random; });
    });
  }

  ~CudaProgram() override {
    if (!graph_.is_there() || driver().context_push(code_->context()) != 0) return;
    graph_.clear();
    CudaDriver::Context popped;
    driver().context_pop(&popped);
  }
  CudaProgram(const CudaProgram&) = delete;
  CudaProgram& operator=(const CudaProgram&) = delete;

  std::unique_ptr<Program> at(const Plan& plan) const override { return std::make_unique<CudaProgram>(plan, code_); }

  void run(std::span<const void* const> inputs, std::span<void* const> outputs, TeamRequest) override {
    CurrentContext current(code_->context());
    begin(inputs);
    launch_all(are_recorded());
    finish(outputs);
  }

  double time_run(std::span<const void* const> inputs, int repetitions) override {
    CurrentContext current(code_->context());
    begin(inputs);
    std::vector<double> seconds;
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      const bool as_one = are_recorded();
      code_->sweep();
      seconds.push_back(code_->time([&] { launch_all(as_one); }));
    }
    return medians_of({seconds})[0].seconds;
  }

  void fill_scratch(std::byte value, TeamRequest) override {
    CurrentContext current(code_->context());
    code_->fill(code_->between.at_least(0, plan_.arena_bytes), value, plan_.arena_bytes);
    code_->fill(code_->between.at_least(1, plan_.workspace_bytes), value, plan_.workspace_bytes);
    for (size_t i = 0; i < plan_.outputs.size(); ++i) {
      if (!plan_.outputs[i].dims.empty()) continue;
      const auto bytes = static_cast<int64_t>(bytes_of(plan_.outputs[i]));
      code_->fill(code_->outputs.at_least(i, bytes), value, bytes);
    }
    code_->synchronize("fill memory");
  }

  std::vector<StepTime> time_steps(std::span<const void* const> inputs, std::span<void* const> outputs, TeamRequest,
                                   int repetitions) override {
    CurrentContext current(code_->context());
    begin(inputs);
    std::vector<std::vector<double>> samples(plan_.steps.size());
    std::vector<int64_t> executions;  // of each step in a run
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      std::vector<double> seconds(plan_.steps.size());
      executions.assign(plan_.steps.size(), 0);
      walk([&](size_t i) {
        seconds[i] += code_->time([&] { launch(i); });
        ++executions[i];
      });
      for (size_t i = 0; i < seconds.size(); ++i) samples[i].push_back(seconds[i]);
    }
    finish(outputs);
    std::vector<StepTime> times = medians_of(std::move(samples));
    for (size_t i = 0; i < times.size(); ++i) times[i].executions = executions[i];
    return times;
  }

  NDArray take_output(size_t index) override { return placing_.take_output(index); }
  std::vector<int64_t> counters() const override { return counters_; }

 private:
  static size_t bytes_of(const TensorInfo& tensor) {
    return static_cast<size_t>(element_count(tensor.shape) * tensor.dtype.bytes());
  }

  // Sees to memory for these sizes, and to the inputs.
  void begin(std::span<const void* const> inputs) {
    arena_ = code_->between.at_least(0, plan_.arena_bytes);
    workspace_ = code_->between.at_least(1, plan_.workspace_bytes);
    if (draws_) {
      random_ = code_->between.at_least(2, sizeof(RandomState));
      code_->copy_in(CudaCode::address_of(random_), &code_->random, sizeof(RandomState));
    }
    inputs_.clear();
    outputs_.clear();
    for (size_t i = 0; i < plan_.inputs.size(); ++i) {
      const size_t bytes = bytes_of(plan_.inputs[i]);
      inputs_.push_back(code_->inputs.at_least(i, static_cast<int64_t>(bytes)));
      code_->copy_in(CudaCode::address_of(inputs_[i]), inputs[i], bytes);
    }
    for (size_t i = 0; i < plan_.outputs.size(); ++i) {
      const bool is_placed = !plan_.outputs[i].dims.empty();
      outputs_.push_back(is_placed ? nullptr
                                   : code_->outputs.at_least(i, static_cast<int64_t>(bytes_of(plan_.outputs[i]))));
    }
  }

  std::vector<char*> places_of_run() const {
    std::vector<char*> places = {arena_, workspace_, random_};
    places.insert(places.end(), inputs_.begin(), inputs_.end());
    places.insert(places.end(), outputs_.begin(), outputs_.end());
    return places;
  }

  // Whether the kernels of this run are recorded: of one on the same memory as the last.
  bool are_recorded() {
    std::vector<char*> places = places_of_run();
    if (!is_fixed_ || places != places_) {
      graph_.clear();
      places_ = std::move(places);
      return false;
    }
    if (!graph_.is_there()) graph_.record(code_->stream(), [&] { launch_all(false); });
    return true;
  }
  void launch_all(bool as_one) {
    if (as_one)
      graph_.launch(code_->stream());
    else
      walk([&](size_t i) { launch(i); });
  }

  // Calls kernel(i) for each step that is one, in the order of this run.  Error: a step has ended it.
  template <class F>
  void walk(F&& kernel) {
    const auto fail = [](const Error& error) { throw error; };
    for (size_t i = 0; i < plan_.steps.size();) {
      const Step& step = plan_.steps[i];
      if (functions_[i]) {
        kernel(i);
        ++i;
        continue;
      }
      i = *next_step(
          plan_.steps, i, counters_, [&] { return std::optional(ask(step)); },
          [&] { return std::optional(place(step)); }, fail);
    }
  }

  // What kernels have left in the step's buffer.
  int64_t ask(const Step& step) {
    const BufferUse& use = step.buffers[0];
    const int64_t bytes = use.bytes;
    int64_t value = 0;
    code_->copy_out(&value, start_of(use), static_cast<size_t>(bytes));
    code_->synchronize("run the kernels before `" + step.name + "`");
    return number_at(&value, bytes);
  }

  bool place(const Step& step) {
    if (!placing_.places_any(step.counter)) return true;
    code_->synchronize("run the kernels before `" + step.name + "`");  // that may still use what was there
    placing_.place(step.counter, counters_, 1, code_->placed);
    return true;
  }

  char* start_of(const BufferUse& use) {
    const int64_t offset = use.offset.at({}, counters_);
    if (placing_.has(use)) return placing_.start_of(use) + offset;
    switch (use.storage) {
      case Storage::input:
        return inputs_.at(use.index) + offset;
      case Storage::output:
        return outputs_.at(use.index) + offset;
      case Storage::constant:
        return code_->constant(use.index) + offset;
      case Storage::arena:
        return arena_ + offset;
      case Storage::random:
        return random_ + offset;
      case Storage::placed:
        break;
    }
    internal_error("CudaProgram: an unknown storage");
  }

  void launch(size_t i) {
    const Step& step = plan_.steps[i];
    std::array<unsigned, 3> grid;
    for (size_t axis = 0; axis < 3; ++axis) {
      const int64_t blocks = step.grid[axis].at({}, counters_);
      if (blocks == 0) return;
      if (blocks < 0 || blocks > most_blocks[axis])
        throw Error(ErrorCode::limit, "step `" + step.name + "` takes " + std::to_string(blocks) +
                                          " blocks of threads, which no GPU launches\n  help: give smaller inputs");
      grid[axis] = static_cast<unsigned>(blocks);
    }
    // Addresses of the buffers, then the parameters.
    values_.clear();
    for (const BufferUse& use : step.buffers)
      values_.push_back(static_cast<int64_t>(CudaCode::address_of(start_of(use))));
    if (!step.workspace_bytes.is_known())
      values_.push_back(static_cast<int64_t>(CudaCode::address_of(placing_.workspace(i, 0))));
    else if (step.workspace_bytes > 0)
      values_.push_back(static_cast<int64_t>(CudaCode::address_of(workspace_)));
    for (const Size& parameter : step.parameters) values_.push_back(parameter.at({}, counters_));
    arguments_.clear();
    for (int64_t& value : values_) arguments_.push_back(&value);
    require(driver().launch(functions_[i], grid[0], grid[1], grid[2], step.block[0], step.block[1], step.block[2],
                            step.shared_bytes, code_->stream(), arguments_.data(), nullptr),
            "start a kernel");
  }

  void finish(std::span<void* const> outputs) {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (plan_.outputs[i].dims.empty()) {
        code_->copy_out(outputs[i], outputs_[i], bytes_of(plan_.outputs[i]));
        continue;
      }
      NDArray& output = placing_.output(i);
      code_->copy_out(output.data(), placing_.start_of({Storage::output, static_cast<uint32_t>(i)}),
                      output.byte_size());
    }
    code_->synchronize("finish a run");
  }

  const Plan& plan_;
  const std::shared_ptr<CudaCode> code_;
  Placing placing_;
  std::vector<CudaDriver::Function> functions_;  // by step; null: of control
  std::vector<int64_t> counters_;
  bool draws_ = false;     // random numbers
  bool is_fixed_ = false;  // each run starts the same kernels
  KernelGraph graph_;
  std::vector<char*> places_;  // of the last run, for which the graph is
  // For the current run: where they are.
  char *arena_ = nullptr, *workspace_ = nullptr, *random_ = nullptr;
  std::vector<char*> inputs_, outputs_;
  // Of the kernel that is started.
  std::vector<int64_t> values_;
  std::vector<void*> arguments_;
};

}  // namespace

std::string cuda_problem() {
  std::string problem;
  CudaDriver::find(problem);
  return problem;
}

std::vector<CudaDeviceInfo> cuda_devices() {
  std::string problem;
  const CudaDriver* found = CudaDriver::find(problem);
  std::vector<CudaDeviceInfo> devices;
  int count = 0;
  if (!found || found->device_count(&count) != 0) return devices;
  for (int i = 0; i < count; ++i) {
    CudaDriver::Device device = 0;
    char name[128] = "";
    int major = 0, minor = 0;
    size_t bytes = 0;
    if (found->device_get(&device, i) != 0 || found->device_name(name, sizeof name, device) != 0 ||
        found->device_attribute(&major, attribute_major, device) != 0 ||
        found->device_attribute(&minor, attribute_minor, device) != 0 || found->device_memory(&bytes, device) != 0)
      continue;
    devices.push_back({name, major * 10 + minor, static_cast<int64_t>(bytes)});
  }
  return devices;
}

std::unique_ptr<Program> make_cuda_program(const ProgramSource& source) {
  return std::make_unique<CudaProgram>(source.plan, std::make_shared<CudaCode>(source));
}

}  // namespace tw
