// Functions of the host that plans call: operators of a user's own in Python or C, and parts of a model that another
// runtime computes.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "runtime/tilewright.h"
#include "runtime/ndarray.h"

namespace tw {

struct HostCall;

// Reads the inputs and writes all elements of the outputs, which are there, of the types and shapes that the plan says.
// Both belong to the run and are gone after the call.  Throws Error to end the run.
using HostFunction = std::function<void(const std::string& attributes, const std::vector<NDArray>& inputs,
                                        const std::vector<NDArray>& outputs)>;

// One in C.
HostFunction host_function_of(tw_function* function);

// Those of one executable, by their names.
class HostFunctions {
 public:
  // One that no library has; in the place of one of this name that was there.
  void set(const std::string& name, HostFunction function);
  // Opens the call's library and finds its function there (tw_function of tilewright.h), where it has one.  A library that
  // the loader does not find is looked for in the folder.  Error(host_function).
  void load(const HostCall& call, const std::filesystem::path& folder);
  // All of others.
  void add(const HostFunctions& others);
  bool has(const HostCall& call) const;
  // `buffers` and `extents` are those of the step of this name.  Error(host_function): there is none, or it failed.
  void call(const HostCall& call, const std::string& step, void* const* buffers, const int64_t* extents) const;

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, HostFunction> functions_;  // by library and name
};

}  // namespace tw
