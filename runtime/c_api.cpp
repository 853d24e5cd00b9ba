#include "runtime/c_api.h"

#include <new>
#include <string>

#include "runtime/executable.h"

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
      tensors[i].view = {info.name.c_str(), tensors[i].dtype.c_str(), static_cast<int32_t>(info.shape.size()),
                         info.shape.data(), static_cast<size_t>(tw::element_count(info.shape)) * info.dtype.bytes()};
    }
  }

  tw::Executable executable;
  std::vector<Tensor> inputs, outputs;
};

namespace {

thread_local std::string last_error;
thread_local int last_error_code = 0;

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
  if (!holds) throw tw::Error(tw::ErrorCode::input, std::string(what) + "\n  help: see runtime/c_api.h");
}

int get_tensor(const std::vector<tw_executable::Tensor>& tensors, int32_t index, tw_tensor* result) {
  return guarded([&] {
    require(result && index >= 0 && static_cast<size_t>(index) < tensors.size(), "no tensor has this index");
    *result = tensors[index].view;
  });
}

}  // namespace

int tw_load(const char* path, tw_executable** result) {
  return guarded([&] {
    require(path && result, "tw_load: a null argument");
    *result = nullptr;
    *result = new tw_executable(tw::Executable::load(path));
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

int32_t tw_in_place(const tw_executable* executable, int32_t output) {
  const auto& outputs = executable->executable.plan().outputs;
  return output >= 0 && static_cast<size_t>(output) < outputs.size() ? outputs[output].in_place : -1;
}

int tw_set_threads(tw_executable* executable, int32_t threads) {
  return guarded([&] { executable->executable.set_threads(threads); });
}

int tw_run(tw_executable* executable, const void* const* inputs, const size_t* input_bytes, void* const* outputs,
           const size_t* output_bytes) {
  return guarded([&] {
    auto views = [inputs](const std::vector<tw::TensorInfo>& infos, const std::vector<tw_executable::Tensor>& tensors,
                          auto* data, const size_t* bytes, const char* kind) {
      std::vector<tw::NDArray> arrays;
      for (size_t i = 0; i < infos.size(); ++i) {
        const size_t expected = tensors[i].view.bytes;
        const void* start = data ? data[i] : nullptr;
        if (!start && infos[i].in_place >= 0) start = inputs[infos[i].in_place];
        require(data && bytes && (start || expected == 0), "tw_run: a null array");
        if (bytes[i] != expected)
          throw tw::Error(tw::ErrorCode::input, std::string(kind) + " '" + infos[i].name + "' has " +
                                                    std::to_string(bytes[i]) + " bytes, the model has " +
                                                    std::to_string(expected) +
                                                    "\n  help: tw_input and tw_output say shapes and types");
        arrays.emplace_back(infos[i].dtype, infos[i].shape, const_cast<void*>(start), nullptr);
      }
      return arrays;
    };
    const tw::Plan& plan = executable->executable.plan();
    std::vector<tw::NDArray> in = views(plan.inputs, executable->inputs, inputs, input_bytes, "input");
    std::vector<tw::NDArray> out = views(plan.outputs, executable->outputs, outputs, output_bytes, "output");
    executable->executable.run_into(in, out);
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
