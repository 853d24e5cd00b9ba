#include "targets/allocations.h"

#include <algorithm>

#include "tensor_ir/match.h"

namespace tw {
namespace {

constexpr int64_t most_stack_bytes = 16 << 10;  // at one time; workers' stacks may be small
constexpr int64_t alignment_bytes = 64;

void place(const Stmt& s, int64_t workspace_depth, int64_t stack_depth, AllocationPlan& plan) {
  const auto* allocate = s.as<Allocate>();
  if (!allocate || allocate->buffer->scope == Scope::register_) {
    for_each_child(s, [](const Expr&) {}, [&](const Stmt& child) { place(child, workspace_depth, stack_depth, plan); });
    return;
  }
  const int64_t bytes = (allocated_bytes(allocate->buffer) + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
  if (stack_depth + bytes <= most_stack_bytes) {
    plan.offsets[allocate->buffer] = -1;
    place(allocate->body, workspace_depth, stack_depth + bytes, plan);
  } else {
    plan.offsets[allocate->buffer] = workspace_depth;
    plan.workspace_bytes = std::max(plan.workspace_bytes, workspace_depth + bytes);
    place(allocate->body, workspace_depth + bytes, stack_depth, plan);
  }
}

}  // namespace

AllocationPlan plan_allocations(const Stmt& body) {
  AllocationPlan plan;
  place(body, 0, 0, plan);
  return plan;
}

int64_t allocated_bytes(const Buffer& buffer) {
  const auto shape = const_shape(buffer);
  if (!shape) {
    throw Error(ErrorCode::lower, "buffer " + buffer->name +
                                      " is allocated inside a kernel but its size is not a constant\n"
                                      "  help: allocate it outside the loops, or split by constants");
  }
  int64_t bytes = buffer->dtype.bytes();
  for (int64_t extent : *shape) bytes *= extent;
  return bytes;
}

}  // namespace tw
