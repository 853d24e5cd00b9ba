// Where a kernel's own memory lies.
#pragma once

#include <unordered_map>

#include "tensor_ir/ir.h"

namespace tw {

// Offsets into `workspace` of what is allocated in the kernel (not: registers), or -1 for what goes on the worker's
// stack. lower() and code generation agree by asking the same function.
struct AllocationPlan {
  std::unordered_map<Buffer, int64_t> offsets;
  int64_t workspace_bytes = 0;
};

// Nested allocations follow each other; neighbours, which do not live at the same time, share.  Error(lower): a size
// that is not constant.
AllocationPlan plan_allocations(const Stmt& body);
int64_t allocated_bytes(const Buffer& buffer);

}  // namespace tw
