// Loops of kind tensorized become the instruction that they name (instruction.h).
//
//   for t in 0..2 tensorized attrs {instruction = "dot_bf16"} { C[j] = C[j] + f32(A[k * 2 + t]) * f32(B[j * 2 + t]) }
//     ⇒   C[j] = dot_bf16(C[j], word_at:u32(A[k * 2]), word_at:u32(B[j * 2]))
//
// A guard that does not depend on the loop stays around it.  What the pass leaves is scalar; a vectorized loop around
// it makes the instruction's lanes.
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/instruction.h"
#include "tensor_ir/match.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/printer.h"

namespace tw {
namespace {

[[noreturn]] void refuse(const For& loop, const std::string& why) {
  throw Error(ErrorCode::lower, "loop `" + loop.var.name() + "` cannot be tensorized: " + why +
                                    "\n  help: tensorize after the layouts of its operands are final");
}

Stmt instruction_of(const For& loop, const Assumptions& assumptions) {
  const auto attribute = loop.attributes.find("instruction");
  const auto* name = attribute == loop.attributes.end() ? nullptr : std::get_if<std::string>(&attribute->second);
  const TensorInstruction* instruction = name ? find_tensor_instruction(*name) : nullptr;
  if (!instruction) refuse(loop, "its attribute \"instruction\" names none that is known");
  if (const auto* guard = loop.body.as<If>()) {
    if (guard->else_body.is_defined() || uses_var(guard->condition, loop.var))
      refuse(loop, "the guard `" + to_text(guard->condition) + "` leaves out part of it");
    const Stmt inner = make_stmt<For>(loop.var, loop.extent, loop.loop_kind, guard->then_body, loop.thread,
                                      loop.attributes, loop.span);
    return make_stmt<If>(guard->condition, instruction_of(*inner.as<For>(), assumptions));
  }
  const InstructionMatch match = match_instruction(*instruction, loop, assumptions);
  if (!match.is_found()) refuse(loop, "it is no " + instruction->name + ": " + match.problem);
  return match.replacement;
}

Stmt walk(const Stmt& s, const Assumptions& assumptions) {
  const auto* loop = s.as<For>();
  if (loop && loop->loop_kind == LoopKind::tensorized) return instruction_of(*loop, assumptions);
  Assumptions inner = assumptions;
  if (loop) inner.bind_range(loop->var, loop->extent);
  return map_children(s, [](const Expr& e) { return e; }, [&](const Stmt& child) { return walk(child, inner); });
}

}  // namespace

Func tensorize_loops(const Func& f) {
  Func result = f;
  result.body = walk(f.body, {});
  return result;
}

}  // namespace tw
