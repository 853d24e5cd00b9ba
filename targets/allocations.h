// Where a kernel's own memory lies.
#pragma once

#include <optional>
#include <unordered_map>

#include "tensor_ir/ir.h"

namespace tw {

// Offsets into `workspace` of what is allocated in the kernel (not: registers), none for what goes on the worker's
// stack. lower() and code generation agree by asking the same function.
struct AllocationPlan {
  std::unordered_map<Buffer, std::optional<Expr>> offsets;
  Expr workspace_bytes = 0;
};

// Nested allocations follow each other; neighbours, which do not live at the same time, share.  Offsets and sizes are
// constants, or of the kernel's parameters.  Error(lower): a size that depends on a loop.
AllocationPlan plan_allocations(const Func& kernel);
Expr allocated_bytes(const Buffer& buffer);

}  // namespace tw
