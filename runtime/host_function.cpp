#include "runtime/host_function.h"

#include "runtime/plan/plan.h"
#include "runtime/shared_library.h"
#include "runtime/team.h"

namespace tw {
namespace {

// Tensors as C sees them; what they point to lives as long as this.
struct Arguments {
  explicit Arguments(const std::vector<NDArray>& arrays) {
    dtypes.reserve(arrays.size());
    for (const NDArray& array : arrays) {
      dtypes.push_back(to_string(array.dtype()));
      all.push_back({{"", dtypes.back().c_str(), array.rank(), array.shape().data(), array.byte_size()},
                     const_cast<void*>(array.data())});
    }
  }
  std::vector<std::string> dtypes;
  std::vector<tw_argument> all;
};

}  // namespace

HostFunction host_function_of(tw_function* function) {
  return [function](const std::string& attributes, const std::vector<NDArray>& inputs,
                    const std::vector<NDArray>& outputs) {
    const Arguments in(inputs), out(outputs);
    const char* problem = function(attributes.c_str(), static_cast<int32_t>(in.all.size()), in.all.data(),
                                   static_cast<int32_t>(out.all.size()), out.all.data());
    if (problem) throw Error(ErrorCode::host_function, problem);
  };
}

namespace {

std::string name_of(const HostCall& call) {
  return "`" + call.function + "`" + (call.library.empty() ? "" : " of " + call.library);
}

}  // namespace

void HostFunctions::set(const std::string& name, HostFunction function) {
  std::lock_guard lock(mutex_);
  functions_[{"", name}] = std::move(function);
}

void HostFunctions::load(const HostCall& call, const std::filesystem::path& folder) {
  if (call.library.empty() || has(call)) return;
  SharedLibrary library(call.library);
  if (!library.is_open() && !folder.empty())
    library = SharedLibrary((folder / std::filesystem::path(call.library).filename()).string());
  if (!library.is_open())
    throw Error(ErrorCode::host_function, "the library " + call.library + " of `" + call.function +
                                              "` cannot be opened\n  help: put it beside the artifact, or where the "
                                              "loader looks (LD_LIBRARY_PATH)");
  tw_function* function = library.symbol(call.function.c_str());
  if (!function)
    throw Error(ErrorCode::host_function,
                "the library " + call.library + " has no function `" + call.function +
                    "`\n  help: export it with C linkage, as a tw_function of runtime/tilewright.h");
  std::lock_guard lock(mutex_);
  functions_[{call.library, call.function}] = host_function_of(function);
}

void HostFunctions::add(const HostFunctions& others) {
  const std::scoped_lock lock(mutex_, others.mutex_);
  for (const auto& [name, function] : others.functions_) functions_[name] = function;
}

bool HostFunctions::has(const HostCall& call) const {
  std::lock_guard lock(mutex_);
  return functions_.count({call.library, call.function}) != 0;
}

void HostFunctions::call(const HostCall& call, const std::string& step, void* const* buffers,
                         const int64_t* extents) const {
  HostFunction function;
  {
    std::lock_guard lock(mutex_);
    const auto found = functions_.find({call.library, call.function});
    if (found != functions_.end()) function = found->second;
  }
  if (!function)
    throw Error(ErrorCode::host_function, step + " calls " + name_of(call) +
                                              ", which nobody has given\n  help: give the operator when the model is "
                                              "loaded (operators= in Python, tw_set_function in C)");
  std::vector<NDArray> inputs, outputs;
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    const auto& [dtype, rank] = call.arguments[i];
    const bool is_output = i + call.outputs >= call.arguments.size();
    (is_output ? outputs : inputs).emplace_back(dtype, Shape(extents, extents + rank), buffers[i], nullptr);
    extents += rank;
  }
  const FlushSubnormals as_usual(false);
  try {
    function(call.attributes, inputs, outputs);
  } catch (const Error& error) {
    throw Error(ErrorCode::host_function, step + ": " + name_of(call) + " failed: " + error.message());
  } catch (const std::exception& error) {
    throw Error(ErrorCode::host_function, step + ": " + name_of(call) + " failed: " + error.what());
  }
}

}  // namespace tw
