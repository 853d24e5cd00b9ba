#include "relay_ir/compile/scheduled_func.h"

#include <unordered_map>

#include "relay_ir/cost.h"
#include "tensor_ir/structural.h"

namespace tw::relay {

ScheduledFunc lower_scheduled(const Func& func, const Schedule& schedule, const Target& target,
                              const std::string& symbol) {
  ScheduledFunc result{
      schedule.func(), {}, lower(schedule.func(), target, symbol), flops_of(func), operations_of(func)};
  for (const Buffer& buffer : func.buffers) {
    result.layouts.push_back(schedule.layout_changes(buffer->name));
    check(result.layouts.back().empty() || buffer->is_constant,
          "compile: a schedule changes the layout of constants only");
  }
  name_by_content(result.lowered, func.name);
  return result;
}

std::vector<Kernel> different_kernels(const std::vector<ScheduledFunc>& funcs) {
  std::vector<Kernel> kernels;
  std::unordered_map<std::string, size_t> by_symbol;
  for (const ScheduledFunc& func : funcs) {
    for (const Kernel& kernel : func.lowered.kernels) {
      const auto [found, is_new] = by_symbol.emplace(kernel.symbol, kernels.size());
      if (is_new) kernels.push_back(kernel);
      check(structural_equal(kernels[found->second].func, kernel.func), "compile: a symbol stands for one kernel");
    }
  }
  return kernels;
}

}  // namespace tw::relay
