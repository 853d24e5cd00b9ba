// The CUDA device.  Everything of a run goes into one stream, in the order of the plan: inputs in, kernels, outputs
// out; so steps wait for each other by their order alone.
#include "runtime/device/cuda.h"

#include <algorithm>

#include "runtime/device/cuda_driver.h"

namespace tw {
namespace {

constexpr int attribute_major = 75, attribute_minor = 76;
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

void require(CudaDriver::Result result, const char* what) {
  if (result != 0)
    throw Error(ErrorCode::device, std::string("the GPU cannot ") + what + ": " + driver().describe(result));
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

// What lives in the context, freed in the order opposite to that of its making.  The context is current then.
class Resources {
 public:
  Resources() = default;
  ~Resources() {
    for (CudaDriver::Event event : events_) driver().event_destroy(event);
    for (CudaDriver::Address address : memory_) driver().free(address);
    if (stream_) driver().stream_destroy(stream_);
    if (module_) driver().module_unload(module_);
  }
  Resources(const Resources&) = delete;
  Resources& operator=(const Resources&) = delete;

  CudaDriver::Address allocate(int64_t bytes) {
    CudaDriver::Address address = 0;
    require(driver().allocate(&address, static_cast<size_t>(std::max<int64_t>(bytes, 1))), "allocate memory");
    memory_.push_back(address);
    return address;
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
  CudaDriver::Function function(const std::string& name) const {
    CudaDriver::Function function = nullptr;
    if (driver().module_function(&function, module_, name.c_str()) == 0) return function;
    throw Error(ErrorCode::artifact, "the code has no kernel '" + name + "'\n  help: compile the model again");
  }
  CudaDriver::Event event() {
    CudaDriver::Event event = nullptr;
    require(driver().event_create(&event, 0), "make an event");
    events_.push_back(event);
    return event;
  }
  CudaDriver::Stream stream() const { return stream_; }

 private:
  CudaDriver::Module module_ = nullptr;
  CudaDriver::Stream stream_ = nullptr;
  std::vector<CudaDriver::Address> memory_;
  std::vector<CudaDriver::Event> events_;
};

struct StepLaunch {
  CudaDriver::Function function;
  std::array<uint32_t, 3> grid, block;
  std::vector<int64_t> values;   // addresses of the buffers, then the parameters
  std::vector<void*> arguments;  // to each value
};

class CudaProgram final : public Program {
 public:
  explicit CudaProgram(const ProgramSource& source) : plan_(source.plan) {
    CurrentContext current(context_.get());
    auto resources = std::make_unique<Resources>();
    resources->load(source);
    for (const TensorInfo& input : plan_.inputs) inputs_.push_back(resources->allocate(bytes_of(input)));
    for (const TensorInfo& output : plan_.outputs) outputs_.push_back(resources->allocate(bytes_of(output)));
    for (const NDArray& constant : source.constants) {
      constants_.push_back(resources->allocate(static_cast<int64_t>(constant.byte_size())));
      require(driver().copy_in(constants_.back(), constant.data(), constant.byte_size(), resources->stream()),
              "take the constants");
    }
    arena_ = resources->allocate(plan_.arena_bytes);
    for (const Step& step : plan_.steps) {
      if (step.kind != StepKind::kernel)
        throw Error(ErrorCode::artifact, "step `" + step.name + "` is control flow, which no plan for CUDA has" +
                                             "\n  help: compile the model again");
      add(step, *resources);
    }
    require(driver().stream_synchronize(resources->stream()), "take the constants");
    first_ = resources->event();
    last_ = resources->event();
    resources_ = std::move(resources);
  }

  ~CudaProgram() override {
    // A context that cannot be made current is gone, and its resources with it.
    if (driver().context_push(context_.get()) != 0) {
      static_cast<void>(resources_.release());
      return;
    }
    resources_.reset();
    CudaDriver::Context popped;
    driver().context_pop(&popped);
  }

  void run(std::span<const void* const> inputs, std::span<void* const> outputs, int) override {
    CurrentContext current(context_.get());
    copy_inputs(inputs);
    for (StepLaunch& step : steps_) launch(step);
    finish(outputs);
  }

  std::vector<StepTime> time_steps(std::span<const void* const> inputs, std::span<void* const> outputs, int,
                                   int repetitions) override {
    CurrentContext current(context_.get());
    copy_inputs(inputs);
    std::vector<std::vector<double>> samples(steps_.size());
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      for (size_t i = 0; i < steps_.size(); ++i) {
        require(driver().event_record(first_, resources_->stream()), "time a kernel");
        launch(steps_[i]);
        require(driver().event_record(last_, resources_->stream()), "time a kernel");
        require(driver().event_synchronize(last_), "run a kernel");
        float milliseconds = 0;
        require(driver().event_elapsed(&milliseconds, first_, last_), "time a kernel");
        samples[i].push_back(milliseconds * 1e-3);
      }
    }
    finish(outputs);
    return medians_of(std::move(samples));
  }

 private:
  static int64_t bytes_of(const TensorInfo& tensor) { return element_count(tensor.shape) * tensor.dtype.bytes(); }

  CudaDriver::Address address_of(const BufferUse& use) const {
    const auto offset = static_cast<uint64_t>(use.offset);
    switch (use.storage) {
      case Storage::input:
        return inputs_.at(use.index) + offset;
      case Storage::output:
        return outputs_.at(use.index) + offset;
      case Storage::constant:
        return constants_.at(use.index) + offset;
      case Storage::arena:
        return arena_ + offset;
      case Storage::placed:
        break;  // of control flow, which is refused
    }
    internal_error("a buffer of unknown storage");
  }

  void add(const Step& step, const Resources& resources) {
    StepLaunch launch{resources.function(step.kernel), step.grid, step.block, {}, {}};
    for (const BufferUse& use : step.buffers) launch.values.push_back(static_cast<int64_t>(address_of(use)));
    if (step.workspace_bytes > 0) launch.values.push_back(0);  // threads have scratch memory of their own
    launch.values.insert(launch.values.end(), step.parameters.begin(), step.parameters.end());
    steps_.push_back(std::move(launch));
    for (int64_t& value : steps_.back().values) steps_.back().arguments.push_back(&value);
  }

  void copy_inputs(std::span<const void* const> inputs) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      require(
          driver().copy_in(inputs_[i], inputs[i], static_cast<size_t>(bytes_of(plan_.inputs[i])), resources_->stream()),
          "take an input");
    }
  }

  void launch(StepLaunch& step) {
    for (uint32_t extent : step.grid)
      if (extent == 0) return;
    require(driver().launch(step.function, step.grid[0], step.grid[1], step.grid[2], step.block[0], step.block[1],
                            step.block[2], 0, resources_->stream(), step.arguments.data(), nullptr),
            "start a kernel");
  }

  void finish(std::span<void* const> outputs) {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      require(driver().copy_out(outputs[i], outputs_[i], static_cast<size_t>(bytes_of(plan_.outputs[i])),
                                resources_->stream()),
              "give an output");
    }
    require(driver().stream_synchronize(resources_->stream()), "finish a run");
  }

  const Plan& plan_;
  HeldContext context_;
  std::vector<CudaDriver::Address> inputs_, outputs_, constants_;
  CudaDriver::Address arena_ = 0;
  std::vector<StepLaunch> steps_;
  CudaDriver::Event first_ = nullptr, last_ = nullptr;
  std::unique_ptr<Resources> resources_;
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
  return std::make_unique<CudaProgram>(source);
}

}  // namespace tw
