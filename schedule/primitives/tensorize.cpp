// tensorize(t, "dot_bf16")
//
//   for t in 0..2 { block C(…, reduce vk: 64 = k * 2 + t) { C[vi] = C[vi] + f32(A[vk]) * f32(B[vi, vk]) } }
// ⇒
//   for t in 0..2 tensorized attrs {instruction = "dot_bf16"} { … }
//
// Lowering puts the instruction in the loop's place.  Legal when the loop and those inside of it are around one block
// that has no init left, and do what the instruction's description (tensor_ir/instruction.h) does, up to names and to
// where operands lie; no guard of the block may depend on them, but on rows and columns of tiles and matrices.  Floats
// may be rounded otherwise: an instruction has a rounding of its own (tensor_ir/intrinsics.def).
#include <algorithm>

#include "schedule/edit.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/diagnostic.h"
#include "tensor_ir/instruction.h"
#include "tensor_ir/text/printer.h"

namespace tw {
namespace {

// The nest with the block's statement in terms of loops.
Stmt without_block(const Stmt& nest, const Substitution& bindings) {
  if (const auto* loop = nest.as<For>()) return with_body(*loop, without_block(loop->body, bindings));
  if (const auto* block = nest.as<Block>()) return substitute(block->body, bindings);
  return nest;
}

// What threads share is compacted before the instruction is put in (compact_buffers), and asked again then: until that,
// any number stands for an extent that is open.
Stmt with_constant_extents(Stmt s) {
  constexpr int64_t any = 1 << 20;
  std::vector<Buffer> open;
  const auto look = [&](const Buffer& buffer) {
    const bool is_compacted = buffer->scope == Scope::shared || buffer->scope == Scope::fragment;
    if (is_compacted && !const_shape(buffer) && std::find(open.begin(), open.end(), buffer) == open.end())
      open.push_back(buffer);
  };
  visit(s, [&](const Load& l) { look(l.buffer); }, [&](const Store& store) { look(store.buffer); });
  for (const Buffer& buffer : open) {
    BufferNode node = *buffer.get();
    for (Expr& extent : node.shape)
      if (!as_int(extent)) extent = Expr(any);
    s = replace_buffer(s, buffer, Buffer(std::move(node)));
  }
  return s;
}

// Whatever value the loop has, its dimensions of the buffer are not left.
bool stays_inside(const Buffer& buffer, const std::vector<Expr>& indices, const Var& loop, const Assumptions& ranges) {
  if (indices.size() != buffer->shape.size()) return false;
  for (size_t d = 0; d < indices.size(); ++d)
    if (uses_var(indices[d], loop) && !can_prove(indices[d] < buffer->shape[d], ranges)) return false;
  return true;
}

// Tiles get smaller by a guard of their rows.  One of their columns is as if it were not there, where all that they
// reach beyond it is padding of the layouts: elements of no other index, in memory that only this worker sees.  So are
// sums of rows of a matrix, whose operand reads a row again instead of one that is left out.
bool may_be_guarded(const TensorInstruction& instruction, const std::vector<const For*>& nest, const For& loop,
                    const Block& block, Assumptions ranges) {
  if (instruction.result == InstructionResult::element) return false;
  const bool is_of_rows = &loop == nest[0];
  if (!is_of_rows && (nest.size() < 2 || &loop != nest[1])) return false;
  if (is_of_rows && instruction.is_tile()) return true;
  for (const For* inner : nest) ranges.bind_range(inner->var, inner->extent);
  const Stmt plain = substitute(block.body, bindings_of(block));
  bool is_inside = true;
  visit(
      plain, [&](const Load& l) { is_inside &= is_of_rows || stays_inside(l.buffer, l.indices, loop.var, ranges); },
      [&](const Store& s) {
        is_inside &= s.buffer->scope != Scope::global && stays_inside(s.buffer, s.indices, loop.var, ranges);
      });
  return is_inside;
}

std::string in_one_line(const std::string& text) {
  std::string line;
  for (const char c : text) {
    const bool is_space = c == ' ' || c == '\n';
    if (!is_space || (!line.empty() && line.back() != ' ')) line += is_space ? ' ' : c;
  }
  return line.substr(0, line.find_last_not_of(' ') + 1);
}

}  // namespace

void Schedule::tensorize(const LoopRef& ref, const std::string& name) {
  ScheduleEdit edit(*this, "tensorize", ref, name);
  const For& loop = edit.loop(ref);
  const Path path = edit.path(ref);
  edit.require_serial(loop);
  const TensorInstruction* instruction = find_tensor_instruction(name);
  if (!instruction) {
    std::vector<std::string> known;
    for (const TensorInstruction& i : tensor_instructions()) known.push_back(i.name);
    edit.refuse("there is no instruction " + quoted(name), path.back(), suggest_name(name, known));
  }
  const std::vector<const Block*> blocks = blocks_in(loop.body);
  if (blocks.size() != 1 || has_statements_outside_blocks(loop.body))
    edit.refuse("loop " + quoted(ref.name()) + " is not around one block alone", path.back(),
                "reorder the loops so that those of the instruction are innermost");
  const Block& block = *blocks[0];
  if (block.init.is_defined())
    edit.refuse("block " + quoted(block.name) + " has an init", path.back(),
                "decompose_reduction(\"" + block.name + "\", …) first");
  std::vector<const For*> inner;
  visit(path.back(), [&](const For& l) { inner.push_back(&l); });
  for (const For* l : inner) {
    edit.require_serial(*l);
    if (block.predicate.is_defined() && uses_var(block.predicate, l->var) &&
        !may_be_guarded(*instruction, inner, *l, block, ranges_of(loops_of(path))))
      edit.refuse("block " + quoted(block.name) + " runs in part of loop " + quoted(l->var.name()) + " only",
                  path.back(), "pad the block, or split by a factor that divides");
  }
  std::vector<const For*> around = loops_of(path);
  around.pop_back();
  const Stmt plain = with_constant_extents(without_block(path.back(), bindings_of(block)));
  const InstructionMatch match = match_instruction(*instruction, *plain.as<For>(), ranges_of(around));
  if (!match.is_found()) {
    edit.refuse("loop " + quoted(ref.name()) + " is no " + name + ": " + match.problem, path.back(),
                name + " means " + in_one_line(to_text(instruction->description.body)));
  }
  Attributes attributes = loop.attributes;
  attributes["instruction"] = name;
  const Stmt changed =
      make_stmt<For>(loop.var, loop.extent, LoopKind::tensorized, loop.body, ThreadAxis::none, attributes, loop.span);
  edit.commit(replace_node(func_.body, &loop, changed));
}

}  // namespace tw
