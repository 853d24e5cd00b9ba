// Loops of kind tensorized become the instruction that they name (instruction.h).
//
//   for t in 0..2 tensorized attrs {instruction = "dot_bf16"} { C[j] = C[j] + f32(A[k * 2 + t]) * f32(B[j * 2 + t]) }
//     ⇒   C[j] = dot_bf16(C[j], word_at:u32(A[k * 2]), word_at:u32(B[j * 2]))
//
// A guard that does not depend on the loop stays around it.  What the pass leaves is scalar; a vectorized loop around
// it makes the instruction's lanes.  Tiles become vectors as a whole:
//
//   for m in 0..16 tensorized attrs {instruction = "tile_store_f32"} { for n in 0..16 { S[m * 32 + n] = Cr[m * 16 + n]
//   } }
//     ⇒   S[tile_at:i64x256(0, 32, 16, 1, 16)] = Cr[ramp(0, 1, 256)]
//
// A guard of their rows makes them smaller, where it leaves a constant number.  Matrices have a size of their own: one
// whose second row a guard leaves out multiplies the first row twice, and what that gives is of no use.
#include <algorithm>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/instruction.h"
#include "tensor_ir/match.h"
#include "tensor_ir/passes/conjunction.h"
#include "tensor_ir/passes/folding.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/text/printer.h"

namespace tw {
namespace {

[[noreturn]] void refuse(const For& loop, const std::string& why) {
  throw Error(ErrorCode::lower, "loop `" + loop.var.name() + "` cannot be tensorized: " + why +
                                    "\n  help: tensorize after the layouts of its operands are final");
}

// The nest without the guards in it, which go to `guards`.
Stmt without_guards(const For& top, const Stmt& s, std::vector<Expr>& guards) {
  if (const auto* loop = s.as<For>()) {
    return make_stmt<For>(loop->var, loop->extent, loop->loop_kind, without_guards(top, loop->body, guards),
                          loop->thread, loop->attributes, loop->span);
  }
  if (const auto* guard = s.as<If>()) {
    if (guard->else_body.is_defined()) refuse(top, "a guard in it has two sides");
    split_conjunction(guard->condition, guards);
    return without_guards(top, guard->then_body, guards);
  }
  return s;
}

// How many of the first iterations of a tile's rows a guard leaves; nothing: that is no constant.
std::optional<int64_t> rows_left(const Expr& guard, const For& rows, const Assumptions& assumptions) {
  const int64_t extent = as_int(rows.extent).value_or(0);
  int64_t left = 0;
  for (int64_t i = 0; i < extent; ++i) {
    const Expr holds = simplify(substitute(guard, {{rows.var, Expr(i)}}), assumptions);
    const auto value = as_int(holds);
    if (!value || (*value && left < i)) return std::nullopt;
    left += *value != 0;
  }
  return left;
}

// Whether a guard that leaves a row out leaves out those after it, too.
bool is_upper_bound(const Expr& guard, const Var& row) {
  const auto* less = guard.as<Binary>();
  if (!less || less->op != BinaryOp::lt) return false;
  const auto difference = as_affine(less->a - less->b);
  return difference && difference->coefficient(row) > 0;
}

// The instruction's operands whose rows have a stride read the first row again where there is no second one.
Stmt with_row_left_out(const Stmt& instruction, const Expr& has_second) {
  return rewrite(instruction, [&](const Call& c) -> Expr {
    if (c.intrinsic != Intrinsic::tile_at) return Expr();
    check(is_const_int(c.arguments[2], 2), "tensorize_loops: matrices have two rows");
    std::vector<Expr> arguments = c.arguments;
    arguments[1] = select(has_second, arguments[1], Expr(0));
    return make_expr<Call>(c.dtype, c.intrinsic, std::move(arguments));
  });
}

Stmt with_instruction(const For& loop, const Assumptions& assumptions) {
  const TensorInstruction* instruction = tw::instruction_of(loop);
  if (!instruction) refuse(loop, "its attribute \"instruction\" names none that is known");
  std::vector<Expr> guards;
  const Stmt whole = make_stmt<For>(loop.var, loop.extent, loop.loop_kind, loop.body, loop.thread, loop.attributes);
  Stmt nest = without_guards(loop, whole, guards);
  if (buffers_written(nest).empty()) return make_stmt<Seq>(std::vector<Stmt>{});  // guards left nothing of it
  std::vector<Var> inner;
  visit(nest, [&](const For& l) { inner.push_back(l.var); });
  Expr outside, has_second;
  for (const Expr& guard : guards) {
    const auto uses = [&](const Var& v) { return uses_var(guard, v); };
    const auto used = std::count_if(inner.begin(), inner.end(), uses);
    if (used == 0) {
      outside = outside.is_defined() ? outside && guard : guard;
    } else if (instruction->is_tile() && used == 1 && uses(inner[0])) {
      const auto left = rows_left(guard, *nest.as<For>(), assumptions);
      if (!left) refuse(loop, "the rows that the guard `" + to_text(guard) + "` leaves are not a constant");
      if (*left == 0) return make_stmt<Seq>(std::vector<Stmt>{});
      const For& rows = *nest.as<For>();
      nest = make_stmt<For>(rows.var, Expr(*left), rows.loop_kind, rows.body, rows.thread, rows.attributes, rows.span);
    } else if (instruction->is_matrix() && used == 1 && uses(inner[0]) && is_upper_bound(guard, inner[0])) {
      const auto holds_at = [&](int64_t row) {
        return simplify(substitute(guard, {{inner[0], Expr(row)}}), assumptions);
      };
      const Expr first = holds_at(0), second = holds_at(1);
      outside = outside.is_defined() ? outside && first : first;
      has_second = has_second.is_defined() ? has_second && second : second;
    } else if (instruction->result != InstructionResult::element && used == 1 && inner.size() > 1 && uses(inner[1])) {
      // Whole rows: what they hold beyond the guard is padding of the layouts, as the primitive has seen.
    } else {
      refuse(loop, "the guard `" + to_text(guard) + "` leaves out part of it");
    }
  }
  InstructionMatch match = match_instruction(*instruction, *nest.as<For>(), assumptions);
  if (!match.is_found()) refuse(loop, "it is no " + instruction->name + ": " + match.problem);
  if (has_second.is_defined() && !is_const_int(has_second, 1))
    match.replacement = with_row_left_out(match.replacement, has_second);
  if (!outside.is_defined()) return match.replacement;
  const Expr condition = simplify(outside, assumptions);
  if (const auto known = as_int(condition)) return *known ? match.replacement : make_stmt<Seq>(std::vector<Stmt>{});
  return make_stmt<If>(condition, match.replacement);
}

// Tiles under guards that an unrolled loop moves have sizes of their own in each copy.
bool has_guarded_tiles(const For& loop) {
  bool found = false;
  visit(loop.body, [&](const For& inner) {
    if (inner.loop_kind != LoopKind::tensorized) return;
    visit(Stmt(inner.body), [&](const If& guard) { found |= uses_var(guard.condition, loop.var); });
  });
  return found;
}

Stmt walk(const Stmt& s, const Assumptions& assumptions) {
  const auto* loop = s.as<For>();
  if (loop && loop->loop_kind == LoopKind::tensorized) return with_instruction(*loop, assumptions);
  if (loop && loop->loop_kind == LoopKind::unrolled && as_int(loop->extent) && has_guarded_tiles(*loop)) {
    std::vector<Stmt> copies;
    for (int64_t i = 0; i < *as_int(loop->extent); ++i) {
      const Stmt copy = fold_substitute(loop->body, {{loop->var, int_imm(loop->var.dtype(), i)}});
      copies.push_back(walk(i > 0 ? with_fresh_names(copy) : copy, assumptions));
    }
    return seq(std::move(copies));
  }
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
