#include "targets/allocations.h"

#include <algorithm>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"

namespace tw {
namespace {

constexpr int64_t most_stack_bytes = 16 << 10;  // at one time; workers' stacks may be small
constexpr int64_t alignment_bytes = 64;

class Placement {
 public:
  explicit Placement(const Func& kernel) : kernel_(kernel) {}

  AllocationPlan run() {
    place(kernel_.body, Expr(0), 0);
    return std::move(plan_);
  }

 private:
  void place(const Stmt& s, const Expr& workspace_depth, int64_t stack_depth) {
    const auto* allocate = s.as<Allocate>();
    if (!allocate || allocate->buffer->scope == Scope::register_) {
      for_each_child(s, [](const Expr&) {}, [&](const Stmt& child) { place(child, workspace_depth, stack_depth); });
      return;
    }
    const Expr bytes = simplify(floor_div(allocated_bytes(allocate->buffer) + (alignment_bytes - 1), alignment_bytes) *
                                alignment_bytes);
    require_known(bytes, allocate->buffer);
    if (const auto known = as_int(bytes); known && stack_depth + *known <= most_stack_bytes) {
      plan_.offsets[allocate->buffer] = std::nullopt;
      place(allocate->body, workspace_depth, stack_depth + *known);
    } else {
      const Expr end = simplify(workspace_depth + bytes);
      plan_.offsets[allocate->buffer] = workspace_depth;
      plan_.workspace_bytes = simplify(max(plan_.workspace_bytes, end));
      place(allocate->body, end, stack_depth);
    }
  }

  void require_known(const Expr& bytes, const Buffer& buffer) const {
    visit(bytes, [&](const VarNode& var) {
      const auto is_var = [&](const Var& parameter) { return parameter.get() == &var; };
      if (std::any_of(kernel_.parameters.begin(), kernel_.parameters.end(), is_var)) return;
      throw Error(ErrorCode::lower, "buffer " + buffer->name +
                                        " is allocated inside a kernel but its size depends on loop `" + var.name +
                                        "`\n  help: allocate it outside the loops, or split by constants");
    });
  }

  const Func& kernel_;
  AllocationPlan plan_;
};

}  // namespace

AllocationPlan plan_allocations(const Func& kernel) {
  return Placement(kernel).run();
}

Expr allocated_bytes(const Buffer& buffer) {
  Expr bytes = buffer->dtype.bytes();
  for (const Expr& extent : buffer->shape) bytes = bytes * extent;
  return simplify(bytes);
}

}  // namespace tw
