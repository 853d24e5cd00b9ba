// The CUDA device.  Everything of a run goes into one stream, our own or the caller's, in the order of the plan: inputs
// in, kernels, outputs out; so steps wait for each other by their order alone.  Arrays in the GPU's memory are used
// where they are, others are copied.  Kernels of a plan without control are recorded when they run for the second time
// on the same memory, and started as one from then on.  The host waits for the GPU where a step of control asks for
// what kernels have computed, and at the end of a run in our own stream or with arrays of the host.  Runs share the
// arena, so each begins after the last, whatever their streams.
#include "runtime/device/cuda.h"

#include <algorithm>
#include <cmath>
#include <list>

#include "runtime/device/control.h"
#include "runtime/device/cuda_context.h"
#include "runtime/device/cuda_tensor_maps.h"
#include "runtime/device/placing.h"
#include "runtime/memory.h"

namespace tw {
namespace {

using namespace gpu;

constexpr int attribute_l2_bytes = 38, attribute_dynamic_shared_bytes = 8;

// What programs of the same code share, whatever the sizes that they are for.  It lives in the primary context, which
// is current while it is made and used.
class CudaCode {
 public:
  explicit CudaCode(const ProgramSource& source) : random(source.random), gpu(source.gpu), context_(gpu) {
    CurrentContext current(context_.get());
    try {
      load(source);
      for (const NDArray& constant : source.constants) {
        constants_.push_back(allocate(constant.byte_size()));
        copy_in(address_of(constants_.back()), constant.data(), constant.byte_size());
      }
      synchronize("take the constants");
      first_ = new_event(), last_ = new_event(), ended_ = new_event(no_timing), passed_ = new_event(no_timing);
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
  CudaDriver::Stream stream() const { return stream_; }  // of the current run
  CudaDriver::Stream own_stream() const { return own_stream_; }

  // A run comes into the stream that it asks for.
  void begin(const RunOptions& options) {
    stream_ = options.stream ? stream_of(*options.stream) : own_stream_;
    int is_capturing = 0;
    if (options.stream) require(driver().stream_is_capturing(stream_, &is_capturing), "use the stream");
    if (is_capturing)
      throw Error(ErrorCode::input,
                  "the stream is being captured into a graph, and runs wait for others outside of it"
                  "\n  help: capture without this run, which makes a graph of its own");
    if (is_queued_) wait_for(ended_);
    for (const StreamHandle other : options.after) {
      if (stream_of(other) == stream_) continue;
      require(driver().event_record(passed_, stream_of(other)), "look at another stream");
      wait_for(passed_);
    }
  }
  // It is all there: now it is done, or left to the stream.
  void end(bool waits) {
    is_queued_ = false;
    if (waits) return synchronize("finish a run");
    require(driver().event_record(ended_, stream_), "queue a run");
    is_queued_ = true;
  }
  // It failed before it was all there.
  void abandon() {
    settle();
    driver().stream_synchronize(stream_);
  }
  CudaDriver::Function function(const std::string& name) const {
    CudaDriver::Function function = nullptr;
    if (driver().module_function(&function, module_, name.c_str()) == 0) return function;
    throw Error(ErrorCode::artifact, "the code has no kernel '" + name + "'\n  help: compile the model again");
  }
  char* constant(size_t index) const { return static_cast<char*>(constants_.at(index).get()); }

  void copy_in(CudaDriver::Address to, const void* from, size_t bytes) const {
    if (bytes > 0) require(driver().copy_in(to, from, bytes, stream_), "take an input");
  }
  void copy_within(void* to, const void* from, size_t bytes) const {
    if (bytes > 0) require(driver().copy(address_of(to), address_of(from), bytes, stream_), "copy within its memory");
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

  const RandomState& random;  // on the host
  const int gpu;
  // By input, by output and by counter; the arena, the workspace and the random state.
  GrowingMemory inputs{allocate}, outputs{allocate}, between{allocate};
  GrowingMemory placed{allocate, [this](void* to, const void* from, size_t bytes) { copy_within(to, from, bytes); }};

 private:
  // Memory of the GPU; its address is none that the host may follow.
  static std::shared_ptr<void> allocate(size_t bytes) {
    CudaDriver::Address address = 0;
    require(driver().allocate(&address, std::max<size_t>(bytes, 1)), "allocate memory");
    return {reinterpret_cast<void*>(address), [](void* memory) { driver().free(address_of(memory)); }};
  }
  void load(const ProgramSource& source) {
    module_ = load_module(source);
    require(driver().stream_create(&own_stream_, 1), "make a stream");  // 1: does not wait for other streams
    stream_ = own_stream_;
  }
  // Until the last run is done.
  void settle() {
    if (is_queued_) driver().event_synchronize(ended_);
    is_queued_ = false;
  }
  void wait_for(CudaDriver::Event event) const {
    require(driver().stream_wait(stream_, event, 0), "wait for another stream");
  }
  // In the order opposite to that of its making.
  void release() {
    settle();
    for (CudaDriver::Event event : {passed_, ended_, last_, first_})
      if (event) driver().event_destroy(event);
    constants_.clear();
    for (GrowingMemory* memory : {&inputs, &outputs, &placed, &between, &swept_}) memory->clear();
    if (own_stream_) driver().stream_destroy(own_stream_);
    if (module_) driver().module_unload(module_);
  }

  HeldContext context_;
  CudaDriver::Module module_ = nullptr;
  CudaDriver::Stream own_stream_ = nullptr, stream_ = nullptr;
  CudaDriver::Event first_ = nullptr, last_ = nullptr;
  bool is_queued_ = false;             // the last run was left to a stream
  CudaDriver::Event ended_ = nullptr;  // with which that ends
  CudaDriver::Event passed_ = nullptr;
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
    if (recorded_.empty() || driver().context_push(code_->context()) != 0) return;
    for (Recorded& recorded : recorded_) recorded.graph.clear();
    CudaDriver::Context popped;
    driver().context_pop(&popped);
  }
  CudaProgram(const CudaProgram&) = delete;
  CudaProgram& operator=(const CudaProgram&) = delete;

  std::unique_ptr<Program> at(const Plan& plan) const override { return std::make_unique<CudaProgram>(plan, code_); }

  void run(std::span<const NDArray> inputs, std::span<NDArray> outputs, TeamRequest,
           const RunOptions& options) override {
    CurrentContext current(code_->context());
    require_reachable(inputs, plan_.inputs, "input", code_->gpu);
    require_reachable(outputs, plan_.outputs, "output", code_->gpu);
    try {
      begin(inputs, outputs, options);
      start(recorded_graph());
      finish(outputs, options);
    } catch (...) {
      code_->abandon();
      throw;
    }
  }

  double time_run(std::span<const NDArray> inputs, std::span<NDArray> outputs, int repetitions) override {
    CurrentContext current(code_->context());
    begin(inputs, outputs, {});
    std::vector<double> seconds;
    for (int repetition = 0; repetition < repetitions; ++repetition) {
      const KernelGraph* graph = recorded_graph();
      code_->sweep();
      seconds.push_back(code_->time([&] { start(graph); }));
    }
    finish(outputs, {});
    return medians_of({seconds})[0].seconds;
  }

  void fill_scratch(std::byte value, TeamRequest) override {
    CurrentContext current(code_->context());
    code_->begin({});
    code_->fill(code_->between.at_least(0, plan_.arena_bytes), value, plan_.arena_bytes);
    code_->fill(code_->between.at_least(1, plan_.workspace_bytes), value, plan_.workspace_bytes);
    for (size_t i = 0; i < plan_.outputs.size(); ++i) {
      if (!plan_.outputs[i].dims.empty()) continue;
      const int64_t bytes = element_count(plan_.outputs[i].shape) * plan_.outputs[i].dtype.bytes();
      code_->fill(code_->outputs.at_least(i, bytes), value, bytes);
    }
    code_->end(true);
  }

  std::vector<StepTime> time_steps(std::span<const NDArray> inputs, std::span<NDArray> outputs, TeamRequest,
                                   int repetitions) override {
    CurrentContext current(code_->context());
    begin(inputs, outputs, {});
    std::vector<std::vector<double>> samples(plan_.steps.size());
    std::vector<int64_t> executions;  // of each step in a run
    std::vector<Launches> launches(plan_.steps.size());
    try {
      if (may_repeat()) walk([&](size_t i) { repeat(i, launches[i]); });
      for (int repetition = 0; repetition < repetitions; ++repetition) {
        std::vector<double> seconds(plan_.steps.size());
        executions.assign(plan_.steps.size(), 0);
        walk([&](size_t i) {
          seconds[i] += time(i, launches[i]);
          ++executions[i];
        });
        for (size_t i = 0; i < seconds.size(); ++i) samples[i].push_back(seconds[i]);
      }
    } catch (...) {
      for (Launches& each : launches) each.graph.clear();
      throw;
    }
    for (Launches& each : launches) each.graph.clear();
    finish(outputs, {});
    std::vector<StepTime> times = medians_of(std::move(samples));
    for (size_t i = 0; i < times.size(); ++i) times[i].executions = executions[i];
    return times;
  }

  NDArray take_output(size_t index) override { return placing_.take_output(index); }
  std::vector<int64_t> counters() const override { return counters_; }

 private:
  // Of one kernel, that are timed together: the way to one and back takes some microseconds.
  struct Launches {
    int count = 1;
    KernelGraph graph;  // of more than one
  };
  // Whether kernels give the same when they are started again.  What is updated in place is that of loops, or an input.
  bool may_repeat() const {
    return plan_.counters.empty() &&
           std::ranges::none_of(plan_.outputs, [](const TensorInfo& output) { return output.in_place >= 0; });
  }
  // The seconds of one.
  double time(size_t i, const Launches& launches) {
    const auto start_all = [&] {
      launches.count > 1 ? launches.graph.launch(code_->stream()) : launch(i, code_->stream());
    };
    return code_->time(start_all) / launches.count;
  }
  // As many as take 200 µs together, at least one.
  void repeat(size_t i, Launches& launches) {
    constexpr double least_seconds = 200e-6, shortest = 1e-6;
    launch(i, code_->stream());  // the first one may load its code
    launches.count = static_cast<int>(std::ceil(least_seconds / std::max(time(i, launches), shortest)));
    if (launches.count == 1) return;
    launches.graph.record(code_->own_stream(), [&] {
      for (int each = 0; each < launches.count; ++each) launch(i, code_->own_stream());
    });
  }

  static void require_reachable(std::span<const NDArray> arrays, const std::vector<TensorInfo>& infos,
                                const std::string& kind, int gpu) {
    for (size_t i = 0; i < arrays.size(); ++i)
      if (arrays[i].is_on_gpu()) gpu::require_reachable(arrays[i], kind + " '" + infos[i].name + "'", gpu);
  }

  // Kernels take it as it is.
  bool is_usable(const NDArray& array) const {
    return array.is_on_gpu() && is_aligned(array.data(), plan_.caller_alignment);
  }

  // Sees to memory for these sizes, and to the inputs.
  void begin(std::span<const NDArray> inputs, std::span<NDArray> outputs, const RunOptions& options) {
    code_->begin(options);
    arena_ = code_->between.at_least(0, plan_.arena_bytes);
    workspace_ = code_->between.at_least(1, plan_.workspace_bytes);
    if (draws_) {
      random_ = code_->between.at_least(2, sizeof(RandomState));
      code_->copy_in(address_of(random_), &code_->random, sizeof(RandomState));
    }
    inputs_.clear();
    outputs_.clear();
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (is_usable(inputs[i])) {
        inputs_.push_back(const_cast<char*>(inputs[i].as<char>()));
        continue;
      }
      const size_t bytes = inputs[i].byte_size();
      inputs_.push_back(code_->inputs.at_least(i, static_cast<int64_t>(bytes)));
      if (inputs[i].is_on_gpu())
        code_->copy_within(inputs_[i], inputs[i].data(), bytes);
      else
        code_->copy_in(address_of(inputs_[i]), inputs[i].data(), bytes);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const bool is_placed = !plan_.outputs[i].dims.empty();
      outputs_.push_back(is_placed ? nullptr
                         : is_usable(outputs[i])
                             ? outputs[i].as<char>()
                             : code_->outputs.at_least(i, static_cast<int64_t>(outputs[i].byte_size())));
    }
    const auto is_of_host = [](const NDArray& array) { return array.is_defined() && !array.is_on_gpu(); };
    waits_ = !options.stream || std::ranges::any_of(inputs, is_of_host) || std::ranges::any_of(outputs, is_of_host);
  }

  // Memory that comes again gets a graph in its second run.  Null: kernels are started one by one.
  const KernelGraph* recorded_graph() {
    constexpr size_t most = 8;
    if (!is_fixed_) return nullptr;
    std::vector<char*> places = places_of_run();
    const auto found = std::ranges::find(recorded_, places, &Recorded::places);
    if (found == recorded_.end()) {
      recorded_.push_front({std::move(places), {}});
      if (recorded_.size() <= most) return nullptr;
      recorded_.back().graph.clear();
      recorded_.pop_back();
      return nullptr;
    }
    recorded_.splice(recorded_.begin(), recorded_, found);
    KernelGraph& graph = recorded_.front().graph;
    if (!graph.is_there()) graph.record(code_->own_stream(), [&] { launch_all(code_->own_stream()); });
    return &graph;
  }
  void start(const KernelGraph* graph) {
    if (graph)
      graph->launch(code_->stream());
    else
      launch_all(code_->stream());
  }
  void launch_all(CudaDriver::Stream stream) {
    walk([&](size_t i) { launch(i, stream); });
  }

  std::vector<char*> places_of_run() const {
    std::vector<char*> places = {arena_, workspace_, random_};
    places.insert(places.end(), inputs_.begin(), inputs_.end());
    places.insert(places.end(), outputs_.begin(), outputs_.end());
    return places;
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

  void launch(size_t i, CudaDriver::Stream stream) {
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
    // Addresses of the buffers, then the parameters and the maps.
    values_.clear();
    for (const BufferUse& use : step.buffers) values_.push_back(static_cast<int64_t>(address_of(start_of(use))));
    if (!step.workspace_bytes.is_known())
      values_.push_back(static_cast<int64_t>(address_of(placing_.workspace(i, 0))));
    else if (step.workspace_bytes > 0)
      values_.push_back(static_cast<int64_t>(address_of(workspace_)));
    for (const Size& parameter : step.parameters) values_.push_back(parameter.at({}, counters_));
    maps_.clear();
    for (const TensorMap& map : step.maps)
      maps_.push_back(encode(map, address_of(start_of(step.buffers[map.buffer])), counters_));
    arguments_.clear();
    for (int64_t& value : values_) arguments_.push_back(&value);
    for (EncodedTensorMap& map : maps_) arguments_.push_back(&map);
    require(driver().launch(functions_[i], grid[0], grid[1], grid[2], step.block[0], step.block[1], step.block[2],
                            step.shared_bytes, stream, arguments_.data(), nullptr),
            "start a kernel");
  }

  // Brings outputs to where they are wanted.
  void finish(std::span<NDArray> outputs, const RunOptions& options) {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const bool is_placed = !plan_.outputs[i].dims.empty();
      NDArray& output = is_placed ? placing_.output(i) : outputs[i];
      const char* from = is_placed ? placing_.start_of({Storage::output, static_cast<uint32_t>(i)}) : outputs_[i];
      if (is_placed && options.leaves_outputs) output = new_gpu_array(output.dtype(), output.shape(), code_->gpu);
      if (from == output.data()) continue;
      if (output.is_on_gpu())
        code_->copy_within(output.data(), from, output.byte_size());
      else
        code_->copy_out(output.data(), from, output.byte_size());
      waits_ |= !output.is_on_gpu();
    }
    code_->end(waits_);
  }

  const Plan& plan_;
  const std::shared_ptr<CudaCode> code_;
  Placing placing_;
  std::vector<CudaDriver::Function> functions_;  // by step; null: of control
  std::vector<int64_t> counters_;
  bool draws_ = false;     // random numbers
  bool is_fixed_ = false;  // each run starts the same kernels
  struct Recorded {
    std::vector<char*> places;
    KernelGraph graph;
  };
  std::list<Recorded> recorded_;  // by the memory that runs have worked on, the latest first
  // For the current run: whether it is complete when the call returns, and where they are.
  bool waits_ = true;
  char *arena_ = nullptr, *workspace_ = nullptr, *random_ = nullptr;
  std::vector<char*> inputs_, outputs_;
  // Of the kernel that is started.
  std::vector<int64_t> values_;
  std::vector<EncodedTensorMap> maps_;
  std::vector<void*> arguments_;
};

}  // namespace

std::unique_ptr<Program> make_cuda_program(const ProgramSource& source) {
  return std::make_unique<CudaProgram>(source.plan, std::make_shared<CudaCode>(source));
}

}  // namespace tw
