// reverse_compute_inline("D")
//
//   block B(spatial v: 8 = i) { B[v] = A[v] * 2 }   block D(spatial v: 8 = j) { D[v, 0] = B[v] + 1 }
// ⇒
//   block B(spatial v: 8 = i) { D[v, 0] = A[v] * 2 + 1 }
//
// Legal for a block without reduction that reads one buffer at its own iteration variables, each once, when one block
// without reduction computes that buffer for no one else, and nothing between writes what the block reads or uses what
// it writes.
#include <algorithm>

#include "schedule/primitives/move.h"
#include "tensor_ir/structural.h"

namespace tw {
namespace {

bool has_reduction(const Block& block) {
  return block.init.is_defined() || std::any_of(block.iters.begin(), block.iters.end(),
                                                [](const IterVar& i) { return i.kind == IterKind::reduce; });
}

}  // namespace

void Schedule::reverse_compute_inline(const BlockRef& ref) {
  ScheduleEdit edit(*this, "reverse_compute_inline", ref);
  const Block& block = edit.block(ref);
  const Path path = edit.path(ref);
  const Stmt here = path.back();
  edit.require_regular(ref);
  const auto* mine = block.body.as<Store>();
  if (has_reduction(block) || !mine || mine->predicate.is_defined()) {
    edit.refuse("block " + quoted(ref.name) + " is not one plain store without reduction", here,
                "use reverse_compute_at, which keeps the block");
  }

  // Its producer: the one input that is an intermediate read at exactly the iteration variables.
  const Block* producer = nullptr;
  Buffer middle;
  Substitution from_producer;
  for (const Buffer& candidate : buffers_read(here)) {
    if (func_.is_parameter(candidate)) continue;
    const auto writers = writers_of(func_.body, candidate);
    const auto readers = readers_of(func_.body, candidate);
    if (writers.size() != 1 || readers.size() != 1 || has_reduction(*writers[0]) || writers[0]->name == ref.name)
      continue;
    const auto* store = writers[0]->body.as<Store>();
    if (!store || store->predicate.is_defined() || store->buffer != candidate) continue;
    std::optional<std::vector<Expr>> indices;
    bool is_plain = true;
    visit(block.body, [&](const Load& l) {
      if (l.buffer != candidate) return;
      is_plain &= !l.predicate.is_defined();
      for (size_t d = 0; indices && d < l.indices.size(); ++d)
        is_plain &= structural_equal((*indices)[d], l.indices[d]);
      indices = l.indices;
    });
    Substitution values;
    for (size_t d = 0; is_plain && d < indices->size(); ++d) {
      const Expr& index = (*indices)[d];
      if (index.kind() == NodeKind::Var && !values.count(Var::of(index))) {
        values[Var::of(index)] = store->indices[d];
      } else {
        is_plain = is_const_int(index, 0) && is_const_int(candidate->shape[d], 1);
      }
    }
    for (const IterVar& iter : block.iters) {
      if (!values.count(iter.var) && is_const_int(iter.extent, 1)) values[iter.var] = 0;
      is_plain &= values.count(iter.var) != 0;
    }
    for (const IterVar& iter : block.iters) {  // the whole buffer, no slice of it
      for (size_t d = 0; is_plain && d < indices->size(); ++d) {
        if ((*indices)[d].is_same(iter.var)) is_plain = structural_equal(iter.extent, candidate->shape[d]);
      }
    }
    if (!is_plain) continue;
    producer = writers[0];
    middle = candidate;
    from_producer = values;
    break;
  }
  if (!producer) {
    edit.refuse(
        "block " + quoted(ref.name) +
            " has no producer without reduction that computes for it alone what it reads at its iteration variables",
        here, "use reverse_compute_at, which keeps the block");
  }

  // It now runs where the producer is.
  const Path producer_path = edit.path(BlockRef{producer->name});
  const Parting parting = parting_of(producer_path, path);
  if (!parting.list || parting.first > parting.second) {
    edit.refuse("block " + quoted(ref.name) + " does not follow block " + quoted(producer->name), here,
                "use reverse_compute_at, which keeps the block");
  }
  for (size_t n = parting.first; n <= parting.second; ++n) {
    Stmt rest = parting.list->statements[n];
    if (n == parting.second) rest = replace_node(rest, &block, Stmt());
    std::string meets;
    for (const Buffer& b : buffers_read(here)) {
      if (b != middle && writes_any(rest, {b})) meets = b->name;
    }
    if (reads_any(rest, {mine->buffer}) || writes_any(rest, {mine->buffer})) meets = mine->buffer->name;
    if (meets.empty()) continue;
    edit.refuse("a statement between block " + quoted(producer->name) + " and block " + quoted(ref.name) + " uses " +
                    quoted(meets),
                here, "move that statement's block first");
  }
  const auto* theirs = producer->body.as<Store>();
  Assumptions ranges;
  for (const IterVar& iter : producer->iters) ranges.bind_range(iter.var, iter.extent);
  const Expr value = rewrite_bottom_up(
      mine->value, [&](const Load& l) -> Expr { return l.buffer == middle ? theirs->value : Expr(); });
  BlockEdit merged(*producer);
  std::vector<Expr> indices;
  for (const Expr& index : mine->indices) indices.push_back(simplify(substitute(index, from_producer), ranges));
  merged.body = store(mine->buffer, indices, substitute(value, from_producer));
  for (const auto& [key, attribute] : block.attributes) merged.attributes[key] = attribute;
  Stmt body = replace_node(func_.body, &block, Stmt());
  body = replace_node(body, producer, merged.make());
  body = remove_allocation(body, middle);
  const Path merged_path = path_to_block(body, producer->name);
  const auto missing = out_of_scope(func_, merged_path.back(), merged_path);
  if (!missing.empty()) {
    edit.refuse("block " + quoted(ref.name) + " uses " + quoted(missing[0]->name) + ", which does not exist where " +
                    quoted(producer->name) + " is",
                here, "use reverse_compute_at, which keeps the block");
  }
  // A producer that computes elements again (where regions overlap) must not store the result again.
  for (const Access& write : accesses_in(body)) {
    if (!write.is_write || write.buffer != mine->buffer || !write.block || write.block->name != producer->name)
      continue;
    const auto equal = proven_equal(write, write, write.loops, {});
    if (equal.size() == write.loops.size()) continue;
    edit.refuse("block " + quoted(producer->name) + " computes some elements more than once", here,
                "use reverse_compute_at, or inline before moving the producer");
  }
  edit.commit(body);
}

}  // namespace tw
