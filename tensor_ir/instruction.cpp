#include "tensor_ir/instruction.h"

#include <algorithm>
#include <unordered_map>

#include "tensor_ir/match.h"
#include "tensor_ir/passes/conjunction.h"
#include "tensor_ir/structural.h"
#include "tensor_ir/text/parser.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/text/syntax.h"
#include "tensor_ir/type_rules.h"

namespace tw {
namespace {

struct InstructionRow {
  const char* description;
  const char* replacement;  // the body of a Func with the same buffers; that of vectors is made by Matcher
};

#define FRAGMENT_PRODUCT_OF(name, first, second, sum, of_first, of_second)                     \
  "func " name "[m, n, k, sa, ta, sb, tb, sc](a: " first "[m, k] strides [sa, ta], b: " second \
  "[n, k] strides [sb, tb]) -> (c: " sum                                                       \
  "[m, n] strides [sc, 1]) {"                                                                  \
  "  for i in 0..m { for j in 0..n { for l in 0..k {"                                          \
  "    c[i, j] = c[i, j] + " of_first "(a[i, l]) * " of_second                                 \
  "(b[j, l])"                                                                                  \
  "  } } }"                                                                                    \
  "}"

#define FRAGMENT_PRODUCT(name, first, second, sum, factor) FRAGMENT_PRODUCT_OF(name, first, second, sum, factor, factor)

#define CODE_PRODUCT(prefix, first, second) \
  FRAGMENT_PRODUCT_OF(prefix first second, "u8", "u8", "f32", "decode_" first, "decode_" second)

#define TILE_COPY(name, type)                                                   \
  "func " name "[m, n, sc, sd](c: " type "[m, n] strides [sc, 1]) -> (d: " type \
  "[m, n] strides [sd, 1]) {"                                                   \
  "  for i in 0..m { for j in 0..n { d[i, j] = c[i, j] } }"                     \
  "}"

const InstructionRow instruction_rows[] = {
    {"func dot_bf16(a: bf16[2], b: bf16[2]) -> (c: f32[]) {"
     "  for t in 0..2 { c[] = c[] + f32(a[t]) * f32(b[t]) }"
     "}",
     "c[] = dot_bf16(c[], word_at:u32(a[0]), word_at:u32(b[0]))"},
    {"func dot_u8s8(a: u8[4], b: i8[4]) -> (c: i32[]) {"
     "  for t in 0..4 { c[] = c[] + i32(a[t]) * i32(b[t]) }"
     "}",
     "c[] = dot_u8s8(c[], word_at:u32(a[0]), word_at:u32(b[0]))"},
    {"func dot_s8s8(a: i8[4], b: i8[4]) -> (c: i32[]) {"
     "  for t in 0..4 { c[] = c[] + i32(a[t]) * i32(b[t]) }"
     "}",
     "c[] = dot_s8s8(c[], word_at:u32(a[0]), word_at:u32(b[0]))"},
    // Matrices: rows of a by rows of b, of which the latter and the sums lie in memory without gaps.
    {"func matrix_u8s8[sa](a: u8[2, 8] strides [sa, 1], b: i8[2, 8]) -> (c: i32[2, 2]) {"
     "  for i in 0..2 { for j in 0..2 { for t in 0..8 { c[i, j] = c[i, j] + i32(a[i, t]) * i32(b[j, t]) } } }"
     "}",
     nullptr},
    {"func matrix_s8s8[sa](a: i8[2, 8] strides [sa, 1], b: i8[2, 8]) -> (c: i32[2, 2]) {"
     "  for i in 0..2 { for j in 0..2 { for t in 0..8 { c[i, j] = c[i, j] + i32(a[i, t]) * i32(b[j, t]) } } }"
     "}",
     nullptr},
    {"func matrix_zero_i32() -> (c: i32[2, 2]) { for i in 0..2 { for j in 0..2 { c[i, j] = 0i32 } } }", nullptr},
    // Tiles: rows of words of a by rows of words of b, into an accumulator without gaps.
    {"func tile_dot_bf16[m, n, k, sa, sb](a: bf16[m, k * 2] strides [sa, 1], b: bf16[k, n * 2] strides [sb, 1])"
     "    -> (c: f32[m, n]) {"
     "  for i in 0..m { for j in 0..n { for l in 0..k { for t in 0..2 {"
     "    c[i, j] = c[i, j] + f32(a[i, l * 2 + t]) * f32(b[l, j * 2 + t])"
     "  } } } }"
     "}",
     nullptr},
    {"func tile_dot_u8s8[m, n, k, sa, sb](a: u8[m, k * 4] strides [sa, 1], b: i8[k, n * 4] strides [sb, 1])"
     "    -> (c: i32[m, n]) {"
     "  for i in 0..m { for j in 0..n { for l in 0..k { for t in 0..4 {"
     "    c[i, j] = c[i, j] + i32(a[i, l * 4 + t]) * i32(b[l, j * 4 + t])"
     "  } } } }"
     "}",
     nullptr},
    {"func tile_dot_s8s8[m, n, k, sa, sb](a: i8[m, k * 4] strides [sa, 1], b: i8[k, n * 4] strides [sb, 1])"
     "    -> (c: i32[m, n]) {"
     "  for i in 0..m { for j in 0..n { for l in 0..k { for t in 0..4 {"
     "    c[i, j] = c[i, j] + i32(a[i, l * 4 + t]) * i32(b[l, j * 4 + t])"
     "  } } } }"
     "}",
     nullptr},
    // Fragments: rows of a by rows of b, which may lie along either dimension in memory.
    {FRAGMENT_PRODUCT("mma_bf16", "bf16", "bf16", "f32", "f32"), nullptr},
    {FRAGMENT_PRODUCT("mma_f16", "f16", "f16", "f32", "f32"), nullptr},
    {FRAGMENT_PRODUCT("mma_tf32", "f32", "f32", "f32", "round_tf32"), nullptr},
    {FRAGMENT_PRODUCT("mma_s8s8", "i8", "i8", "i32", "i32"), nullptr},
    {FRAGMENT_PRODUCT("mma_u8s8", "u8", "i8", "i32", "i32"), nullptr},
    {FRAGMENT_PRODUCT("mma_s8u8", "i8", "u8", "i32", "i32"), nullptr},
    {FRAGMENT_PRODUCT("mma_u8u8", "u8", "u8", "i32", "i32"), nullptr},
    {CODE_PRODUCT("mma_", "e4m3", "e4m3"), nullptr},
    {CODE_PRODUCT("mma_", "e4m3", "e5m2"), nullptr},
    {CODE_PRODUCT("mma_", "e5m2", "e4m3"), nullptr},
    {CODE_PRODUCT("mma_", "e5m2", "e5m2"), nullptr},
    {FRAGMENT_PRODUCT("wgmma_bf16", "bf16", "bf16", "f32", "f32"), nullptr},
    {FRAGMENT_PRODUCT("wgmma_f16", "f16", "f16", "f32", "f32"), nullptr},
    {FRAGMENT_PRODUCT("wgmma_s8s8", "i8", "i8", "i32", "i32"), nullptr},
    {FRAGMENT_PRODUCT("wgmma_u8s8", "u8", "i8", "i32", "i32"), nullptr},
    {FRAGMENT_PRODUCT("wgmma_s8u8", "i8", "u8", "i32", "i32"), nullptr},
    {FRAGMENT_PRODUCT("wgmma_u8u8", "u8", "u8", "i32", "i32"), nullptr},
    {CODE_PRODUCT("wgmma_", "e4m3", "e4m3"), nullptr},
    {CODE_PRODUCT("wgmma_", "e4m3", "e5m2"), nullptr},
    {CODE_PRODUCT("wgmma_", "e5m2", "e4m3"), nullptr},
    {CODE_PRODUCT("wgmma_", "e5m2", "e5m2"), nullptr},
    {"func tile_zero_f32[m, n]() -> (c: f32[m, n]) { for i in 0..m { for j in 0..n { c[i, j] = 0.0f } } }", nullptr},
    {"func tile_zero_i32[m, n]() -> (c: i32[m, n]) { for i in 0..m { for j in 0..n { c[i, j] = 0i32 } } }", nullptr},
    {"func tile_store_f32[m, n, sd](c: f32[m, n]) -> (d: f32[m, n] strides [sd, 1]) {"
     "  for i in 0..m { for j in 0..n { d[i, j] = c[i, j] } }"
     "}",
     nullptr},
    // Copies between memories, to which zeros come for what a predicate leaves out.
    {TILE_COPY("tile_copy_bf16", "bf16"), nullptr},
    {TILE_COPY("tile_copy_f16", "f16"), nullptr},
    {TILE_COPY("tile_copy_i8", "i8"), nullptr},
    {TILE_COPY("tile_copy_u8", "u8"), nullptr},
    {"func tile_store_i32[m, n, sd](c: i32[m, n]) -> (d: i32[m, n] strides [sd, 1]) {"
     "  for i in 0..m { for j in 0..n { d[i, j] = c[i, j] } }"
     "}",
     nullptr},
};

TensorInstruction make(const InstructionRow& row) {
  TensorInstruction instruction;
  instruction.description = parse_func(row.description);
  instruction.name = instruction.description.name;
  const For* innermost = instruction.description.body.as<For>();
  while (const auto* inner = innermost->body.as<For>()) innermost = inner;
  instruction.extent = as_int(innermost->extent).value_or(0);
  const Buffer& written = instruction.description.buffers.back();
  instruction.result = written->shape.empty()                  ? InstructionResult::element
                       : as_int(written->shape[0]).has_value() ? InstructionResult::matrix
                                                               : InstructionResult::tile;
  if (const auto intrinsic = syntax::find_word<Intrinsic>(syntax::intrinsic_words, instruction.name))
    instruction.is_asynchronous = is_asynchronous(*intrinsic);
  if (!row.replacement) return instruction;
  const std::string text = row.description;
  const Func replacement = parse_func(text.substr(0, text.find('{')) + "{ " + row.replacement + " }");
  // The same buffers in both.
  instruction.replacement = instruction.description;
  instruction.replacement.body = replacement.body;
  for (size_t i = 0; i < replacement.buffers.size(); ++i) {
    instruction.replacement.body =
        replace_buffer(instruction.replacement.body, replacement.buffers[i], instruction.description.buffers[i]);
  }
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

Intrinsic intrinsic_named(const std::string& name) {
  const auto found = syntax::find_word<Intrinsic>(syntax::intrinsic_words, name);
  check(found.has_value(), "instruction: a product's name is its intrinsic's");
  return *found;
}

class Matcher {
 public:
  Matcher(const TensorInstruction& instruction, const Assumptions& assumptions)
      : instruction_(instruction), assumptions_(assumptions) {
    for (const auto& [var, interval] : assumptions.intervals())
      if (interval.low == 0 && interval.high == 0) units_[var] = Expr(0);
  }

  InstructionMatch run(const For& nest) {
    Stmt pattern = instruction_.description.body, actual;
    const For* loop = &nest;
    while (const auto* wanted = pattern.as<For>()) {
      if (!loop) return failure("the description has " + std::to_string(loops_.size() + 1) + " loops or more");
      if (!equals(wanted->extent, as_int(loop->extent))) {
        return failure("loop `" + loop->var.name() + "` has to have " + to_text(wanted->extent) + " iterations, not " +
                       to_text(loop->extent));
      }
      loops_[wanted->var] = loop->var;
      first_[loop->var] = Expr(0);
      extents_[loop->var] = *as_int(loop->extent);
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
      return guard(actual->predicate) && element(l->buffer, l->indices, actual->buffer, actual->indices);
    }
    if (const auto* c = wanted.as<Cast>()) return expression(c->value, found.as<Cast>()->value);
    if (const auto* c = wanted.as<Call>()) {
      const auto* actual = found.as<Call>();
      return c->intrinsic == actual->intrinsic && expression(c->arguments[0], actual->arguments[0]);
    }
    if (wanted.kind() == NodeKind::IntImm || wanted.kind() == NodeKind::FloatImm)
      return structural_equal(wanted, found);
    const auto *b = wanted.as<Binary>(), *actual = found.as<Binary>();
    check(b != nullptr, "an instruction's description is sums and products of loads and constants");
    if (b->op != actual->op) return false;
    const auto operands = operands_;
    const auto sizes = sizes_;
    if (expression(b->a, actual->a) && expression(b->b, actual->b)) return true;
    operands_ = operands, sizes_ = sizes;
    return expression(b->a, actual->b) && expression(b->b, actual->a);
  }

  // Of a tile that is copied, `row < rows && column < columns`, each a loop variable and what does not change within.
  bool guard(const Expr& predicate) {
    if (!predicate.is_defined()) return true;
    std::vector<Expr> conditions;
    split_conjunction(predicate, conditions);
    return is_copy() &&
           std::all_of(conditions.begin(), conditions.end(), [&](const Expr& condition) { return end(condition); });
  }
  bool end(const Expr& condition) {
    const auto* less = condition.as<Binary>();
    if (!less || less->op != BinaryOp::lt) return false;
    const Expr excess = substitute(less->a - less->b, units_);
    const Expr left = simplify(Expr(0) - substitute(excess, first_), assumptions_);
    for (const auto& [wanted, actual] : loops_) {
      if (is_known_equal(excess, actual - left, assumptions_)) return ends_.emplace(wanted, left).second;
    }
    return false;
  }
  // …between memories; a store of sums comes from a register, where they have no stride.
  bool is_copy() const {
    const std::vector<Buffer>& buffers = instruction_.description.buffers;
    return instruction_.is_tile() && buffers.size() == 2 && !buffers[0]->strides.empty();
  }

  // The actual access touches what the description's does, counted from where all loops are at their first iteration.
  bool element(const Buffer& wanted, const std::vector<Expr>& wanted_indices, const Buffer& found,
               const std::vector<Expr>& all_indices) {
    if (wanted->dtype != found->dtype) return false;
    std::vector<Expr> found_indices;
    for (const Expr& index : all_indices) found_indices.push_back(substitute(index, units_));
    Operand operand{found, {}};
    for (const Expr& index : found_indices) operand.first.push_back(simplify(substitute(index, first_), assumptions_));
    const Expr step = simplify(flat_offset(found, found_indices) - flat_offset(found, operand.first), assumptions_);
    const Expr wanted_step = substitute(flat_offset(wanted, wanted_indices), loops_);
    const bool has_parameters = !instruction_.description.parameters.empty();
    if (has_parameters ? !moves_as(wanted_step, step) : !is_known_equal(step, wanted_step, assumptions_)) {
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

  // A parameter of the description is what the nest has; any other size has to be the same.
  bool equals(const Expr& wanted, std::optional<int64_t> found) {
    if (!found) return false;
    if (const auto value = as_int(simplify(substitute(wanted, sizes_)))) return *value == *found;
    if (wanted.kind() != NodeKind::Var) return false;
    sizes_[Var::of(wanted)] = Expr(*found);
    return true;
  }

  bool wanted_is_constant(const Expr& wanted, const Substitution& at) const {
    return as_int(simplify(substitute(substitute(wanted, at), sizes_))).has_value();
  }

  // Loop by loop, where strides are parameters.
  bool moves_as(const Expr& wanted, const Expr& found) {
    const auto affine = as_affine(found);
    if (!affine || affine->constant != 0) return false;
    for (const auto& [variable, coefficient] : affine->terms)
      if (!first_.count(variable)) return false;
    for (const auto& [variable, zero] : first_) {
      Substitution one = first_;
      one[variable] = Expr(1);
      if (extents_.at(variable) == 1 && affine->coefficient(variable) == 0 && wanted_is_constant(wanted, one)) continue;
      if (!equals(simplify(substitute(wanted, one)), affine->coefficient(variable))) return false;
    }
    return true;
  }

  // Elements of the replacement are named from the first one on, along the last dimension.
  std::vector<Expr> place_of(const Buffer& buffer, const std::vector<Expr>& indices) const {
    std::vector<Expr> place = operands_.at(buffer).first;
    for (const Expr& index : indices) check(is_const_int(index, 0), "an instruction's operands are named by element 0");
    return place;
  }

  int64_t size(const Expr& of_description) const { return *as_int(simplify(substitute(of_description, sizes_))); }
  // The description's buffer of that name.
  const BufferNode& described(const char* name) const {
    for (const Buffer& buffer : instruction_.description.buffers)
      if (buffer->name == name) return *buffer.get();
    internal_error("instruction: a buffer of the description");
  }
  const Operand& operand(const char* name) const {
    for (const Buffer& buffer : instruction_.description.buffers)
      if (buffer->name == name) return operands_.at(buffer);
    internal_error("instruction: a buffer of the description");
  }
  static Expr first_element(const Operand& operand) { return flat_offset(operand.buffer, operand.first); }

  static Expr tile_at(const Expr& base, int64_t row_stride, int64_t rows, int64_t column_stride, int64_t columns) {
    return make_expr<Call>(i64.with_lanes(static_cast<int>(rows * columns)), Intrinsic::tile_at,
                           std::vector<Expr>{base, Expr(row_stride), Expr(rows), Expr(column_stride), Expr(columns)});
  }

  // What guards have left of a tile; not defined: all of it.
  Expr within(int64_t rows, int64_t columns) const {
    if (ends_.empty()) return Expr();
    const auto* row = instruction_.description.body.as<For>();
    const auto* column = row->body.as<For>();
    const auto end_of = [&](const For* loop, int64_t all) {
      const auto found = ends_.find(loop->var);
      return found == ends_.end() ? Expr(all) : Expr(found->second);
    };
    return make_expr<Call>(boolean.with_lanes(static_cast<int>(rows * columns)), Intrinsic::tile_within,
                           std::vector<Expr>{end_of(row, rows), Expr(rows), end_of(column, columns), Expr(columns)});
  }

  // Whole tiles and matrices as vectors.
  Stmt replaced_whole() const {
    const std::vector<Expr>& shape = described("c").shape;
    const int64_t m = size(shape[0]), n = size(shape[1]);
    const int lanes = static_cast<int>(m * n);
    const Operand& c = operand("c");
    const Expr accumulator = ramp(first_element(c), Expr(1), lanes);
    if (instruction_.description.buffers.size() == 1)
      return store(c.buffer, {accumulator}, broadcast(zero_of(c.buffer->dtype), lanes));
    if (instruction_.description.buffers.size() == 2) {
      const Operand& d = operand("d");
      const auto lines = [&](const char* name) {
        return tile_at(first_element(operand(name)), size(described(name).strides[0]), m, 1, n);
      };
      return store(d.buffer, {lines("d")}, load(c.buffer, {is_copy() ? lines("c") : accumulator}, within(m, n)));
    }
    if (kind_of(intrinsic_named(instruction_.name)) == IntrinsicKind::fragment) {
      const auto elements = [&](const char* name) {
        const Operand& source = operand(name);
        const BufferNode& of = described(name);
        const Expr at = tile_at(first_element(source), size(of.strides[0]), size(of.shape[0]), size(of.strides[1]),
                                size(of.shape[1]));
        return load(source.buffer, {at});
      };
      const Expr sums = elements("c");
      const Expr place = sums.as<Load>()->indices[0];
      return store(c.buffer, {place}, call(intrinsic_named(instruction_.name), {sums, elements("a"), elements("b")}));
    }
    const auto words_at = [&](const Operand& source, const Expr& at) {
      return make_expr<Call>(u32.with_lanes(at.dtype().lanes), Intrinsic::word_at,
                             std::vector<Expr>{load(source.buffer, {at})});
    };
    // Of rows that have some stride, or none between them.
    const auto words = [&](const char* name) {
      const Operand& source = operand(name);
      const BufferNode& of = described(name);
      const int64_t elements = 32 / of.dtype.bits, rows = size(of.shape[0]), columns = size(of.shape[1]) / elements;
      if (of.strides.empty())
        return words_at(source, ramp(first_element(source), Expr(elements), static_cast<int>(rows * columns)));
      return words_at(source, tile_at(first_element(source), size(of.strides[0]), rows, elements, columns));
    };
    const Expr sum = call(intrinsic_named(instruction_.name), {load(c.buffer, {accumulator}), words("a"), words("b")});
    return store(c.buffer, {accumulator}, sum);
  }

  Stmt replaced() const {
    if (instruction_.result != InstructionResult::element) return replaced_whole();
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
  Substitution units_;  // loops around that run once → 0
  Substitution first_;  // actual variable → 0
  std::unordered_map<Var, int64_t> extents_;
  std::unordered_map<Var, Expr> ends_;  // description's variable → how many of its iterations have something to copy
  Substitution sizes_;                  // description's parameter → constant
  std::unordered_map<Buffer, Operand> operands_;
  std::string problem_;
};

}  // namespace

const std::vector<TensorInstruction>& tensor_instructions() {
  static const std::vector<TensorInstruction> list = [] {
    std::vector<TensorInstruction> result;
    for (const InstructionRow& row : instruction_rows) result.push_back(make(row));
    return result;
  }();
  return list;
}

const TensorInstruction* find_tensor_instruction(std::string_view name) {
  const auto& list = tensor_instructions();
  const auto found = std::find_if(list.begin(), list.end(), [&](const auto& i) { return i.name == name; });
  return found == list.end() ? nullptr : &*found;
}

const TensorInstruction* instruction_of(const For& loop) {
  const auto attribute = loop.attributes.find("instruction");
  if (loop.loop_kind != LoopKind::tensorized || attribute == loop.attributes.end()) return nullptr;
  const auto* name = std::get_if<std::string>(&attribute->second);
  return name ? find_tensor_instruction(*name) : nullptr;
}

bool multiplies_asynchronously(const Stmt& s) {
  bool found = false;
  visit(
      s, [&](const Call& call) { found |= is_asynchronous(call.intrinsic); },
      [&](const For& loop) {
        const TensorInstruction* instruction = instruction_of(loop);
        found |= instruction && instruction->is_asynchronous;
      });
  return found;
}

InstructionMatch match_instruction(const TensorInstruction& instruction, const For& nest,
                                   const Assumptions& assumptions) {
  return Matcher(instruction, assumptions).run(nest);
}

}  // namespace tw
