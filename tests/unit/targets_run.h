// Runs a scheduled Func as machine code of this machine: lower, compile, link, load, call.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/elf_image.h"
#include "runtime/ndarray.h"
#include "runtime/plan.h"
#include "targets/compile_image.h"
#include "targets/lower.h"

namespace tw::test {

class NativeFunc {
 public:
  NativeFunc(const Func& scheduled, const Target& target)
      : lowered_(lower(scheduled, target, "k")), image_(compile_image(lowered_.kernels, target)) {
    for (const Buffer& buffer : scheduled.buffers) names_.push_back(buffer->name);
  }

  const LoweredFunc& lowered() const { return lowered_; }

  // `buffers` in the order of the Func's; `tasks_at_once` > 0: the tasks in pieces, from the last to the first.
  void operator()(const std::vector<NDArray>& buffers, const std::vector<int64_t>& parameters = {},
                  int64_t tasks_at_once = 0) const {
    std::map<std::string, void*> memory;
    std::vector<NDArray> own;
    for (size_t i = 0; i < names_.size(); ++i) memory[names_[i]] = const_cast<void*>(buffers[i].data());
    for (const Kernel& kernel : lowered_.kernels) {
      std::vector<void*> pointers;
      for (const Buffer& buffer : kernel.func.buffers) {
        if (!memory.count(buffer->name) || buffer->name == "workspace") {
          own.emplace_back(buffer->dtype, Shape{*as_int(buffer->shape[0])});
          memory[buffer->name] = own.back().data();
        }
        pointers.push_back(memory[buffer->name]);
      }
      int64_t tasks = 0;
      if (const auto constant = as_int(kernel.tasks)) {
        tasks = *constant;
      } else {
        for (size_t i = 0; i < parameters.size(); ++i)
          if (kernel.tasks.is_same(kernel.func.parameters[i])) tasks = parameters[i];
      }
      const auto function = reinterpret_cast<KernelFunction>(image_.function(kernel.symbol));
      check(function != nullptr, "the image has the kernel");
      if (tasks_at_once <= 0) {
        function(pointers.data(), parameters.data(), 0, tasks);
        continue;
      }
      for (int64_t last = tasks; last > 0; last -= tasks_at_once)
        function(pointers.data(), parameters.data(), std::max<int64_t>(0, last - tasks_at_once), last);
    }
  }

 private:
  LoweredFunc lowered_;
  ElfImage image_;
  std::vector<std::string> names_;
};

}  // namespace tw::test
