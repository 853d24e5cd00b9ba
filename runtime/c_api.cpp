#include <algorithm>
#include <cstring>
#include <new>
#include <string>

#include "runtime/device/cuda.h"
#include "runtime/executable.h"
#include "runtime/tilewright.h"

struct tw_executable {
  struct Tensor {
    std::string dtype;
    tw_tensor view;
  };

  explicit tw_executable(tw::Executable loaded) : executable(std::move(loaded)) {
    describe(executable.plan().inputs, inputs);
    describe(executable.plan().outputs, outputs);
  }

  static void describe(const std::vector<tw::TensorInfo>& infos, std::vector<Tensor>& tensors) {
    tensors.resize(infos.size());
    for (size_t i = 0; i < infos.size(); ++i) {
      const tw::TensorInfo& info = infos[i];
      tensors[i].dtype = to_string(info.dtype);
      const int64_t elements = info.dims.empty() ? tw::element_count(info.shape) : 0;
      tensors[i].view = {info.name.c_str(), tensors[i].dtype.c_str(), static_cast<int32_t>(info.shape.size()),
                         info.shape.data(), static_cast<size_t>(elements) * info.dtype.bytes()};
    }
  }

  tw::Executable executable;
  std::vector<Tensor> inputs, outputs;
};

namespace {

thread_local std::string last_error;
thread_local int last_error_code = 0;
thread_local std::vector<tw::Shape> last_results;
thread_local std::vector<tw::StepProfile> last_profiles;
thread_local std::vector<tw_kernel_time> last_times;  // views of these

int fail(tw::ErrorCode code, const char* text) {
  last_error_code = static_cast<int>(code);
  try {
    last_error = text;
  } catch (const std::bad_alloc&) {
    last_error.clear();
  }
  return last_error_code;
}

// No exception may leave a C function.
template <class Action>
int guarded(Action&& action) {
  try {
    action();
    return 0;
  } catch (const tw::Error& error) {
    return fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(tw::ErrorCode::limit, "TW1005 out of memory");
  } catch (const std::exception& error) {
    return fail(tw::ErrorCode::internal, error.what());
  }
}

void require(bool holds, const char* what) {
  if (!holds) throw tw::Error(tw::ErrorCode::input, std::string(what) + "\n  help: see runtime/tilewright.h");
}

int get_tensor(const std::vector<tw_executable::Tensor>& tensors, int32_t index, tw_tensor* result) {
  return guarded([&] {
    require(result && index >= 0 && static_cast<size_t>(index) < tensors.size(), "no tensor has this index");
    *result = tensors[index].view;
  });
}

int get_list(const std::vector<tw::ListInfo>& lists, int32_t index, tw_list* result) {
  return guarded([&] {
    require(result && index >= 0 && static_cast<size_t>(index) < lists.size(), "no list has this index");
    const tw::ListInfo& list = lists[index];
    *result = {list.name.c_str(),
               to_string(list.kind),
               static_cast<int32_t>(list.first),
               static_cast<int32_t>(list.count),
               static_cast<int32_t>(list.axis),
               static_cast<int64_t>(list.words.size()),
               list.numbers.empty() ? nullptr : list.numbers.data()};
  });
}

const char* get_word(const std::vector<tw::ListInfo>& lists, int32_t list, int64_t index) {
  if (list < 0 || static_cast<size_t>(list) >= lists.size()) return nullptr;
  const std::vector<std::string>& words = lists[list].words;
  return index < 0 || static_cast<size_t>(index) >= words.size() ? nullptr : words[index].c_str();
}

std::vector<tw::Shape> shapes_of(const tw::Plan& plan, const int64_t* const* shapes) {
  std::vector<tw::Shape> result;
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const size_t rank = plan.inputs[i].shape.size();
    require(shapes && (shapes[i] || rank == 0), "a null shape");
    result.emplace_back(shapes[i], shapes[i] + rank);
    require(std::all_of(result[i].begin(), result[i].end(), [](int64_t extent) { return extent >= 0; }),
            "an extent is negative");
  }
  return result;
}

// Views of the caller's arrays, in the memory of a GPU, by its ordinal, or of the host (-1).  An output that is in
// place of an input may be null: it is one of `inputs`.
std::vector<tw::NDArray> views_of(const std::vector<tw::TensorInfo>& infos, const std::vector<tw::Shape>& shapes,
                                  const void* const* data, const size_t* bytes, const void* const* inputs,
                                  const char* kind, int gpu = -1) {
  std::vector<tw::NDArray> arrays;
  for (size_t i = 0; i < infos.size(); ++i) {
    if (std::ranges::find(shapes[i], -1) != shapes[i].end()) {  // the run's own
      require(data && (data[i] || bytes[i] == 0), "tw_run: a null array");
      arrays.emplace_back();
      continue;
    }
    const size_t expected = static_cast<size_t>(tw::element_count(shapes[i])) * infos[i].dtype.bytes();
    const void* start = data ? data[i] : nullptr;
    if (!start && infos[i].in_place >= 0) start = inputs[infos[i].in_place];
    require(data && (start || expected == 0), "tw_run: a null array");
    if (bytes && bytes[i] != expected)
      throw tw::Error(tw::ErrorCode::input, std::string(kind) + " '" + infos[i].name + "' has " +
                                                std::to_string(bytes[i]) + " bytes, the model has " +
                                                std::to_string(expected) +
                                                "\n  help: tw_input and tw_output say shapes and types");
    arrays.emplace_back(infos[i].dtype, shapes[i], const_cast<void*>(start), nullptr, gpu);
  }
  return arrays;
}

void run(tw_executable& executable, const void* const* inputs, const size_t* input_bytes,
         const std::vector<tw::Shape>& input_shapes, void* const* outputs, const size_t* output_bytes,
         const tw::RunOptions& options = {}) {
  const int gpu = options.leaves_outputs ? executable.executable.gpu() : -1;  // where all arrays are
  const tw::Plan& plan = executable.executable.plan();
  require(output_bytes || plan.outputs.empty(), "tw_run: a null argument");
  std::vector<tw::NDArray> in = views_of(plan.inputs, input_shapes, inputs, input_bytes, inputs, "input", gpu);
  std::vector<tw::NDArray> out = views_of(plan.outputs, executable.executable.output_shapes(input_shapes), outputs,
                                          output_bytes, inputs, "output", gpu);
  std::vector<bool> is_own;
  for (const tw::NDArray& array : out) is_own.push_back(!array.is_defined() && array.size() != 0);
  executable.executable.run_into(in, out, options);
  for (size_t i = 0; i < out.size(); ++i) {
    if (!is_own[i] || out[i].byte_size() == 0) continue;
    if (out[i].byte_size() > output_bytes[i])
      throw tw::Error(tw::ErrorCode::input, "output '" + plan.outputs[i].name + "' takes " +
                                                std::to_string(out[i].byte_size()) + " bytes, there is room for " +
                                                std::to_string(output_bytes[i]) + "\n  help: give a larger array");
    tw::NDArray room(out[i].dtype(), out[i].shape(), outputs[i], nullptr, gpu);
    if (room.is_on_gpu())
      tw::copy_gpu_array(out[i], room, *options.stream);
    else
      std::memcpy(room.data(), out[i].data(), out[i].byte_size());
  }
  last_results.clear();
  for (const tw::NDArray& array : out) last_results.push_back(array.shape());
}

}  // namespace

int tw_load(const char* path, tw_executable** result) {
  return guarded([&] {
    require(path && result, "tw_load: a null argument");
    *result = nullptr;
    *result = new tw_executable(tw::Executable::load(path));
  });
}

int tw_load_on_gpu(const char* path, int32_t gpu, tw_executable** result) {
  return guarded([&] {
    require(path && result, "tw_load_on_gpu: a null argument");
    *result = nullptr;
    *result = new tw_executable(tw::Executable::load(path, gpu));
  });
}

int tw_load_memory(const void* data, size_t bytes, tw_executable** result) {
  return guarded([&] {
    require(data && result, "tw_load_memory: a null argument");
    *result = nullptr;
    *result = new tw_executable(tw::Executable::load({static_cast<const std::byte*>(data), bytes}));
  });
}

void tw_free(tw_executable* executable) {
  delete executable;
}

int tw_verify(const tw_executable* executable) {
  return guarded([&] { executable->executable.verify(); });
}

int32_t tw_input_count(const tw_executable* executable) {
  return static_cast<int32_t>(executable->inputs.size());
}
int32_t tw_output_count(const tw_executable* executable) {
  return static_cast<int32_t>(executable->outputs.size());
}

int tw_input(const tw_executable* executable, int32_t index, tw_tensor* result) {
  return get_tensor(executable->inputs, index, result);
}

int tw_output(const tw_executable* executable, int32_t index, tw_tensor* result) {
  return get_tensor(executable->outputs, index, result);
}

int32_t tw_input_list_count(const tw_executable* executable) {
  return static_cast<int32_t>(executable->executable.plan().input_lists.size());
}
int32_t tw_output_list_count(const tw_executable* executable) {
  return static_cast<int32_t>(executable->executable.plan().output_lists.size());
}

int tw_input_list(const tw_executable* executable, int32_t index, tw_list* result) {
  return get_list(executable->executable.plan().input_lists, index, result);
}

int tw_output_list(const tw_executable* executable, int32_t index, tw_list* result) {
  return get_list(executable->executable.plan().output_lists, index, result);
}

const char* tw_input_word(const tw_executable* executable, int32_t list, int64_t index) {
  return get_word(executable->executable.plan().input_lists, list, index);
}

const char* tw_output_word(const tw_executable* executable, int32_t list, int64_t index) {
  return get_word(executable->executable.plan().output_lists, list, index);
}

int32_t tw_in_place(const tw_executable* executable, int32_t output) {
  const auto& outputs = executable->executable.plan().outputs;
  return output >= 0 && static_cast<size_t>(output) < outputs.size() ? outputs[output].in_place : -1;
}

int tw_set_threads(tw_executable* executable, int32_t threads) {
  return guarded([&] { executable->executable.set_threads(threads); });
}

int tw_set_team(tw_executable* executable, const char* name) {
  return guarded([&] {
    require(name, "tw_set_team: a null name");
    executable->executable.set_team(tw::parse_team_kind(name));
  });
}

int tw_set_seed(tw_executable* executable, uint64_t seed) {
  return guarded([&] { executable->executable.set_seed(seed); });
}

int tw_set_function(tw_executable* executable, const char* name, tw_function* function) {
  return guarded([&] {
    require(name && function, "tw_set_function: a null argument");
    executable->executable.set_host_function(name, tw::host_function_of(function));
  });
}

int tw_run(tw_executable* executable, const void* const* inputs, const size_t* input_bytes, void* const* outputs,
           const size_t* output_bytes) {
  return guarded([&] {
    const tw::Plan& plan = executable->executable.plan();
    require(plan.symbols.empty(), "the model has open dimensions: tw_run_shaped says their sizes");
    require(input_bytes || plan.inputs.empty(), "tw_run: a null argument");
    std::vector<tw::Shape> shapes;
    for (const tw::TensorInfo& input : plan.inputs) shapes.push_back(input.shape);
    run(*executable, inputs, input_bytes, shapes, outputs, output_bytes);
  });
}

int tw_run_shaped(tw_executable* executable, const void* const* inputs, const int64_t* const* input_shapes,
                  void* const* outputs, const size_t* output_bytes) {
  return guarded([&] {
    run(*executable, inputs, nullptr, shapes_of(executable->executable.plan(), input_shapes), outputs, output_bytes);
  });
}

int tw_run_on_gpu(tw_executable* executable, const void* const* inputs, const int64_t* const* input_shapes,
                  void* const* outputs, const size_t* output_bytes, void* stream) {
  return guarded([&] {
    const tw::Plan& plan = executable->executable.plan();
    std::vector<tw::Shape> shapes;
    if (plan.symbols.empty())
      for (const tw::TensorInfo& input : plan.inputs) shapes.push_back(input.shape);
    else
      shapes = shapes_of(plan, input_shapes);
    tw::RunOptions options;
    options.stream = reinterpret_cast<tw::StreamHandle>(stream), options.leaves_outputs = true;
    run(*executable, inputs, nullptr, shapes, outputs, output_bytes, options);
  });
}

int tw_output_shape(const tw_executable* executable, const int64_t* const* input_shapes, int32_t index,
                    int64_t* result) {
  return guarded([&] {
    const std::vector<tw::Shape> shapes =
        executable->executable.output_shapes(shapes_of(executable->executable.plan(), input_shapes));
    require(result && index >= 0 && static_cast<size_t>(index) < shapes.size(), "no tensor has this index");
    std::copy(shapes[index].begin(), shapes[index].end(), result);
  });
}

int tw_result_shape(int32_t index, int64_t* result) {
  return guarded([&] {
    require(result && index >= 0 && static_cast<size_t>(index) < last_results.size(),
            "the last run of this thread has no output of this index");
    std::copy(last_results[index].begin(), last_results[index].end(), result);
  });
}

int tw_time_kernels(tw_executable* executable, const void* const* inputs, const int64_t* const* input_shapes,
                    int32_t repetitions, const tw_kernel_time** result, int32_t* count) {
  return guarded([&] {
    require(result && count, "tw_time_kernels: a null argument");
    const tw::Plan& plan = executable->executable.plan();
    const std::vector<tw::Shape> shapes = shapes_of(plan, input_shapes);
    last_profiles =
        executable->executable.profile(views_of(plan.inputs, shapes, inputs, nullptr, inputs, "input"), repetitions);
    last_times.clear();
    for (const tw::StepProfile& step : last_profiles)
      last_times.push_back({step.name.c_str(), step.kernel.c_str(), step.seconds, step.flops, step.bytes});
    *result = last_times.data();
    *count = static_cast<int32_t>(last_times.size());
  });
}

const char* tw_last_error(void) {
  return last_error.c_str();
}
int tw_last_error_code(void) {
  return last_error_code;
}
const char* tw_version(void) {
  return TW_VERSION;
}
