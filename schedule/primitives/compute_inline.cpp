// compute_inline("B")
//
//   block B(spatial v: 8 = i) { B[v] = A[v] * 2 }   block C(spatial v: 8 = j) { C[v] = B[7 - v] + 1 }
// ⇒
//   block C(spatial v: 8 = j) { C[v] = A[7 - v] * 2 + 1 }
//
// Legal for a block that stores one value at its own iteration variables (plus constants) without reduction, into a
// buffer that only it writes, when its inputs are the same where they are read now.  A Load with a predicate stays
// guarded: the Loads of the value get the predicate, and where it is false the value is zero.
#include <algorithm>

#include "schedule/primitives/move.h"

namespace tw {
namespace {

struct Producer {
  Buffer buffer;
  std::vector<std::pair<Var, int64_t>> dimensions;  // index d = var + constant
  Expr value;
};

Producer inlinable(const ScheduleEdit& edit, const Block& block, const Stmt& here) {
  for (const IterVar& iter : block.iters) {
    if (iter.kind == IterKind::reduce)
      edit.refuse("block " + quoted(block.name) + " is a reduction", here,
                  "use compute_at to compute it where it is needed");
  }
  const auto* st = block.body.as<Store>();
  if (!st || block.init.is_defined() || st->predicate.is_defined())
    edit.refuse("block " + quoted(block.name) + " is not one plain store", here, "use compute_at");
  Producer producer{st->buffer, {}, st->value};
  std::vector<Var> seen;
  for (const Expr& index : st->indices) {
    const LinearForm form = linear_form(index);
    const bool is_constant = form.terms.empty();
    const bool is_plain =
        form.terms.size() == 1 && form.terms[0].second == 1 && form.terms[0].first.kind() == NodeKind::Var;
    if (!is_constant && !is_plain)
      edit.refuse("block " + quoted(block.name) + " does not store at its own iteration variables", here,
                  "inline it before transform_layout, or use compute_at");
    const Var var = is_plain ? Var::of(form.terms[0].first) : Var();
    if (is_plain && std::find(seen.begin(), seen.end(), var) != seen.end())
      edit.refuse("block " + quoted(block.name) + " stores at a diagonal", here, "use compute_at");
    seen.push_back(var);
    producer.dimensions.emplace_back(var, form.constant);
  }
  for (const IterVar& iter : block.iters) {
    if (std::find(seen.begin(), seen.end(), iter.var) == seen.end() && uses_var(producer.value, iter.var)) {
      edit.refuse("the value of block " + quoted(block.name) + " depends on " + quoted(iter.var.name()) +
                      ", which its store does not",
                  here, "use compute_at");
    }
  }
  bool reads_itself = false;
  visit(st->value, [&](const Load& l) { reads_itself |= l.buffer == st->buffer; });
  if (reads_itself) edit.refuse("block " + quoted(block.name) + " reads what it writes", here, "use compute_at");
  return producer;
}

bool may_divide_by_zero(const Expr& value) {
  bool found = false;
  visit(value, [&](const Binary& b) {
    const bool is_division =
        b.op == BinaryOp::div || b.op == BinaryOp::mod || b.op == BinaryOp::floor_div || b.op == BinaryOp::floor_mod;
    found |= is_division && !b.dtype.is_float() && !as_int(b.b) && !(b.dtype == i64 && can_prove(b.b > 0));
  });
  return found;
}

// Every Load of the value under a predicate.
Expr guarded(const Expr& value, const Expr& predicate) {
  return rewrite_bottom_up(
      value, [&](const Load& l) -> Expr { return load(l.buffer, l.indices, and_also(l.predicate, predicate)); });
}

}  // namespace

void Schedule::compute_inline(const BlockRef& ref) {
  ScheduleEdit edit(*this, "compute_inline", ref);
  const Block& block = edit.block(ref);
  const Path path = edit.path(ref);
  const Stmt here = path.back();
  edit.require_regular(ref);
  const Producer producer = inlinable(edit, block, here);
  edit.allocated_buffer(producer.buffer->name);
  only_writer(edit, producer.buffer);

  // From the block to its last reader nothing writes what it reads.
  const std::vector<Buffer> inputs = buffers_read(here);
  const auto accesses = accesses_in(func_.body);
  int first = -1, last = -1;
  for (const Access& a : accesses) {
    if (a.block == &block && first < 0) first = a.position;
    if (a.buffer == producer.buffer && !a.is_write) last = std::max(last, a.position);
  }
  if (last < 0)
    edit.refuse("nothing reads " + quoted(producer.buffer->name), here, "only blocks with consumers can be inlined");
  for (const Access& a : accesses) {
    if (!a.is_write || std::find(inputs.begin(), inputs.end(), a.buffer) == inputs.end() || a.position < first)
      continue;
    const bool shares_loop = std::any_of(accesses.begin(), accesses.end(), [&](const Access& r) {
      return r.buffer == producer.buffer && !common_loops(r, a).empty();
    });
    if (a.position < last || shares_loop) {
      edit.refuse("block " + quoted(ref.name) + " reads " + quoted(a.buffer->name) +
                      ", which is written again before " + quoted(producer.buffer->name) + " is read",
                  here, "keep the block where it is");
    }
  }

  const bool has_division = may_divide_by_zero(producer.value);
  auto inline_load = [&](const Load& l) -> Expr {
    if (l.buffer != producer.buffer) return {};
    Substitution values;
    for (size_t d = 0; d < l.indices.size(); ++d) {
      const auto& [var, constant] = producer.dimensions[d];
      if (var.is_defined()) values[var] = l.indices[d] - constant;
    }
    const Expr value = substitute(producer.value, values);
    if (!l.predicate.is_defined()) return value;
    if (value.as<Load>()) return guarded(value, l.predicate);
    if (has_division)
      edit.refuse("the value divides by integers that may be zero where its reader is guarded", here, "use compute_at");
    return select(l.predicate, guarded(value, l.predicate), zero_of(value.dtype()));
  };
  Stmt body = remove_allocation(func_.body, producer.buffer);
  body = replace_node(body, &block, Stmt());
  std::vector<std::string> readers;
  for (const Block* reader : readers_of(body, producer.buffer)) readers.push_back(reader->name);
  body = rewrite_bottom_up(body, inline_load);
  body = transform_blocks(body, [&](const Block& b) -> Stmt {
    if (std::find(readers.begin(), readers.end(), b.name) == readers.end()) return {};
    Assumptions ranges;
    for (const IterVar& iter : b.iters) ranges.bind_range(iter.var, iter.extent);
    BlockEdit changed(b);
    auto tidy = [&](const Load& l) -> Expr {
      std::vector<Expr> indices;
      for (const Expr& index : l.indices) indices.push_back(simplify(index, ranges));
      return load(l.buffer, std::move(indices), l.predicate);
    };
    changed.body = rewrite_bottom_up(changed.body, tidy);
    if (changed.init.is_defined()) changed.init = rewrite_bottom_up(changed.init, tidy);
    return changed.make();
  });
  for (const std::string& name : readers) {
    const Path reader_path = path_to_block(body, name);
    const auto missing = out_of_scope(func_, reader_path.back(), reader_path);
    if (!missing.empty())
      edit.refuse("block " + quoted(ref.name) + " reads " + quoted(missing[0]->name) + ", which does not exist where " +
                      quoted(name) + " is",
                  here, "keep the block where it is");
  }
  edit.commit(body);
}

}  // namespace tw
