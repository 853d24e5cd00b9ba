#include "tensor_ir/instruction.h"

#include <algorithm>
#include <unordered_map>

#include "tensor_ir/match.h"
#include "tensor_ir/parser.h"
#include "tensor_ir/printer.h"
#include "tensor_ir/structural.h"
#include "tensor_ir/syntax.h"

namespace tw {
namespace {

struct Row {
  Intrinsic intrinsic;
  const char* description;
  const char* replacement;  // the body of a Func with the same buffers
};

const Row rows[] = {
    {Intrinsic::dot_bf16,
     "func dot_bf16(a: bf16[2], b: bf16[2]) -> (c: f32[]) {"
     "  for t in 0..2 { c[] = c[] + f32(a[t]) * f32(b[t]) }"
     "}",
     "c[] = dot_bf16(c[], word_at:u32(a[0]), word_at:u32(b[0]))"},
    {Intrinsic::dot_u8s8,
     "func dot_u8s8(a: u8[4], b: i8[4]) -> (c: i32[]) {"
     "  for t in 0..4 { c[] = c[] + i32(a[t]) * i32(b[t]) }"
     "}",
     "c[] = dot_u8s8(c[], word_at:u32(a[0]), word_at:u32(b[0]))"},
    {Intrinsic::dot_s8s8,
     "func dot_s8s8(a: i8[4], b: i8[4]) -> (c: i32[]) {"
     "  for t in 0..4 { c[] = c[] + i32(a[t]) * i32(b[t]) }"
     "}",
     "c[] = dot_s8s8(c[], word_at:u32(a[0]), word_at:u32(b[0]))"},
};

TensorInstruction make(const Row& row) {
  TensorInstruction instruction;
  instruction.name = syntax::word(row.intrinsic);
  instruction.intrinsic = row.intrinsic;
  instruction.description = parse_func(row.description);
  const std::string text = row.description;
  const Func replacement = parse_func(text.substr(0, text.find('{')) + "{ " + row.replacement + " }");
  // The same buffers in both.
  instruction.replacement = instruction.description;
  instruction.replacement.body = replacement.body;
  for (size_t i = 0; i < replacement.buffers.size(); ++i) {
    instruction.replacement.body =
        replace_buffer(instruction.replacement.body, replacement.buffers[i], instruction.description.buffers[i]);
  }
  instruction.extent = *as_int(instruction.description.body.as<For>()->extent);
  return instruction;
}

// Offset in elements from the buffer's first one.
Expr flat_offset(const Buffer& buffer, const std::vector<Expr>& indices) {
  if (indices.size() != buffer->shape.size()) return indices.at(0);  // flat already
  Expr offset(0), stride(1);
  for (size_t d = indices.size(); d-- > 0;) {
    offset = indices[d] * (buffer->strides.empty() ? stride : buffer->strides[d]) + offset;
    stride = stride * buffer->shape[d];
  }
  return offset;
}

class Matcher {
 public:
  Matcher(const TensorInstruction& instruction, const Assumptions& assumptions)
      : instruction_(instruction), assumptions_(assumptions) {}

  InstructionMatch run(const For& nest) {
    Stmt pattern = instruction_.description.body, actual;
    const For* loop = &nest;
    while (const auto* wanted = pattern.as<For>()) {
      if (!loop) return failure("the description has " + std::to_string(loops_.size() + 1) + " loops or more");
      if (!as_int(loop->extent) || *as_int(loop->extent) != *as_int(wanted->extent)) {
        return failure("loop `" + loop->var.name() + "` has to have " + to_text(wanted->extent) + " iterations, not " +
                       to_text(loop->extent));
      }
      loops_[wanted->var] = loop->var;
      first_[loop->var] = Expr(0);
      assumptions_.bind_range(loop->var, loop->extent);
      pattern = wanted->body, actual = loop->body;
      loop = actual.as<For>();
    }
    const auto *wanted = pattern.as<Store>(), *found = actual.as<Store>();
    check(wanted != nullptr, "an instruction's description is loops around one Store");
    if (!found || found->predicate.is_defined()) return failure("its body is more than one plain Store");
    if (!element(wanted->buffer, wanted->indices, found->buffer, found->indices) ||
        !expression(wanted->value, found->value)) {
      return failure(problem_.empty() ? "its body is `" + to_text(actual) + "`" : problem_);
    }
    return {replaced(), {}};
  }

 private:
  struct Operand {
    Buffer buffer;
    std::vector<Expr> first;  // indices of element 0
  };

  InstructionMatch failure(const std::string& why) const { return {Stmt(), why}; }

  bool expression(const Expr& wanted, const Expr& found) {
    if (wanted.kind() != found.kind() || wanted.dtype() != found.dtype()) return false;
    if (const auto* l = wanted.as<Load>()) {
      const auto* actual = found.as<Load>();
      return !actual->predicate.is_defined() && element(l->buffer, l->indices, actual->buffer, actual->indices);
    }
    if (const auto* c = wanted.as<Cast>()) return expression(c->value, found.as<Cast>()->value);
    const auto *b = wanted.as<Binary>(), *actual = found.as<Binary>();
    check(b != nullptr, "an instruction's description is sums and products of loads");
    if (b->op != actual->op) return false;
    const auto operands = operands_;
    if (expression(b->a, actual->a) && expression(b->b, actual->b)) return true;
    operands_ = operands;
    return expression(b->a, actual->b) && expression(b->b, actual->a);
  }

  // The actual access touches what the description's does, counted from where all loops are at their first iteration.
  bool element(const Buffer& wanted, const std::vector<Expr>& wanted_indices, const Buffer& found,
               const std::vector<Expr>& found_indices) {
    if (wanted->dtype != found->dtype) return false;
    Operand operand{found, {}};
    for (const Expr& index : found_indices)
      operand.first.push_back(simplify(substitute(index, first_), assumptions_));
    const Expr step = simplify(flat_offset(found, found_indices) - flat_offset(found, operand.first), assumptions_);
    const Expr wanted_step = substitute(flat_offset(wanted, wanted_indices), loops_);
    if (!is_known_equal(step, wanted_step, assumptions_)) {
      problem_ = "elements of `" + found->name + "` are " + to_text(step) + " from the first, not " +
                 to_text(simplify(wanted_step));
      return false;
    }
    const auto [known, is_new] = operands_.emplace(wanted, operand);
    if (is_new) return true;
    if (known->second.buffer != found) return false;
    for (size_t d = 0; d < operand.first.size(); ++d) {
      if (!is_known_equal(known->second.first[d], operand.first[d], assumptions_)) return false;
    }
    return true;
  }

  // Elements of the replacement are named from the first one on, along the last dimension.
  std::vector<Expr> place_of(const Buffer& buffer, const std::vector<Expr>& indices) const {
    std::vector<Expr> place = operands_.at(buffer).first;
    for (const Expr& index : indices) check(is_const_int(index, 0), "an instruction's operands are named by element 0");
    return place;
  }

  Stmt replaced() const {
    const auto load_of = [&](const Load& l) -> Expr {
      return load(operands_.at(l.buffer).buffer, place_of(l.buffer, l.indices));
    };
    const Store& store = *instruction_.replacement.body.as<Store>();
    return tw::store(operands_.at(store.buffer).buffer, place_of(store.buffer, store.indices),
                     rewrite(store.value, load_of));
  }

  const TensorInstruction& instruction_;
  Assumptions assumptions_;
  Substitution loops_;  // description's variable → actual one
  Substitution first_;  // actual variable → 0
  std::unordered_map<Buffer, Operand> operands_;
  std::string problem_;
};

}  // namespace

const std::vector<TensorInstruction>& tensor_instructions() {
  static const std::vector<TensorInstruction> list = [] {
    std::vector<TensorInstruction> result;
    for (const Row& row : rows) result.push_back(make(row));
    return result;
  }();
  return list;
}

const TensorInstruction* find_tensor_instruction(std::string_view name) {
  const auto& list = tensor_instructions();
  const auto found = std::find_if(list.begin(), list.end(), [&](const auto& i) { return i.name == name; });
  return found == list.end() ? nullptr : &*found;
}

InstructionMatch match_instruction(const TensorInstruction& instruction, const For& nest,
                                   const Assumptions& assumptions) {
  return Matcher(instruction, assumptions).run(nest);
}

}  // namespace tw
