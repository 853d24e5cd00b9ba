// reverse_compute_at("C", i)
//
//   for i in 0..4 { for j in 0..8 { block P(spatial v: 32 = i*8 + j) { B[v] = … } } }
//   for h in 0..32 { block C(spatial v: 32 = h) { D[v] = B[v] + 1 } }
// ⇒
//   for i in 0..4 {
//     for j in 0..8 { block P … }
//     for v in 0..8 { block C(spatial v: 32 = i*8 + v) { D[v] = B[v] + 1 } }
//   }
//
// The block runs for the elements that one iteration of the loop has finished.  Legal when each element is finished in
// just one iteration, all that an iteration of the block reads in the same one, and nothing between uses what the block
// writes or writes what it reads.
#include <algorithm>

#include "schedule/primitives/move.h"
#include "tensor_ir/structural.h"

namespace tw {
namespace {

// In the new body: everything that the block meets comes before it, in the same iteration of the loops below the
// parting.
void check_new_place(const ScheduleEdit& edit, const Stmt& body, const std::string& name, const Parting& parting,
                     const Stmt& here) {
  std::vector<Var> fixed;
  for (const For* loop : parting.common) fixed.push_back(loop->var);
  const auto accesses = accesses_in(body);
  // What ran before the block as a whole: it may not come after it now.
  std::vector<std::string> earlier;
  for (const Block* b : blocks_in(parting.list->statements[parting.first])) earlier.push_back(b->name);
  for (const Access& mine : accesses) {
    if (!mine.block || mine.block->name != name) continue;
    for (const Access& other : accesses) {
      if (mine.buffer != other.buffer || !(mine.is_write || other.is_write)) continue;
      const auto common = common_loops(mine, other);
      // Only what shares the loops around the parting meets it there; the rest keeps its order.
      if (common.size() < parting.common.size()) continue;
      const bool was_earlier =
          !other.block || std::find(earlier.begin(), earlier.end(), other.block->name) != earlier.end();
      if (was_earlier && other.position > mine.position && other.block != mine.block) {
        edit.refuse("block " + quoted(name) + " would run before " + quoted(mine.buffer->name) + " is " +
                        (other.is_write ? "written" : "read") + " in its new place",
                    here, "choose a loop further out");
      }
      const auto equal = proven_equal(other, mine, common, fixed);
      for (const For* loop : common) {
        if (std::find(fixed.begin(), fixed.end(), loop->var) != fixed.end()) continue;
        if (std::find(equal.begin(), equal.end(), loop->var) != equal.end()) continue;
        if (other.block == mine.block && is_reduce_loop(*mine.block, loop->var)) continue;
        edit.refuse("block " + quoted(name) + " would meet " + quoted(mine.buffer->name) +
                        " before it is finished: loop " + quoted(loop->var.name()) +
                        " is still to give it other values, or gives the same element twice",
                    here, "choose a loop outside of the reduction loops of the producer");
      }
    }
  }
}

// var, var + constant, constant, var // constant or var % constant
bool is_plain_index(const Expr& e) {
  const LinearForm form = linear_form(e);
  if (form.terms.empty()) return true;
  if (form.terms.size() != 1 || form.terms[0].second != 1) return false;
  const Expr& atom = form.terms[0].first;
  const auto* b = atom.as<Binary>();
  const bool is_digit =
      b && (b->op == BinaryOp::floor_div || b->op == BinaryOp::floor_mod) && as_int(b->b) && form.constant == 0;
  return atom.kind() == NodeKind::Var || (is_digit && b->a.kind() == NodeKind::Var);
}

// Each iteration of the block reads an element of each input that the loop's nest does make: otherwise there is an
// iteration that would never run.
void check_everything_is_made(const ScheduleEdit& edit, const Block& block, const std::vector<Buffer>& produced,
                              const std::vector<Access>& inside, const Parting& parting,
                              const std::vector<SymbolicRange>& before, const Stmt& here) {
  const Assumptions ranges = ranges_of(parting.common);
  std::vector<Var> outer;
  for (const For* l : parting.common) outer.push_back(l->var);
  // The block's iterations as loops over their ranges.
  Substitution values;
  InnerExtents extents;
  for (size_t i = 0; i < block.iters.size(); ++i) {
    const Var offset(block.iters[i].var.name());
    values[block.iters[i].var] = before[i].base + offset;
    extents[offset] = before[i].extent;
  }
  for (const Buffer& input : produced) {
    std::vector<Access> writes;
    bool is_plain = true;
    for (const Access& access : inside) {
      if (access.buffer != input || !access.is_write) continue;
      writes.push_back(access);
      if (!access.block) is_plain = false;
    }
    for (const Block* writer : writers_of(edit.func.body, input)) {
      auto look = [&](const Store& st) {
        for (const Expr& index : st.indices) is_plain &= is_plain_index(index);
        is_plain &= !st.predicate.is_defined();
      };
      visit(writer->body, look);
      visit(writer->init, look);
    }
    const auto made = region_of(writes, input, outer, ranges);
    bool is_made = is_plain;
    visit(block.body, [&](const Load& l) {
      if (l.buffer != input) return;
      for (size_t d = 0; d < l.indices.size(); ++d) {
        const auto needed = range_of(substitute(l.indices[d], values), extents, ranges);
        is_made &= needed && is_within(*needed, made[d], ranges);
      }
    });
    if (is_made) continue;
    edit.refuse("block " + quoted(block.name) + " has iterations for which nothing of " + quoted(input->name) +
                    " is made: they would never run",
                here, "compute_at(producer, loop of this block) computes what it needs instead");
  }
}

}  // namespace

void Schedule::reverse_compute_at(const BlockRef& ref, const LoopRef& loop_ref) {
  ScheduleEdit edit(*this, "reverse_compute_at", ref, loop_ref);
  const Move move(edit, ref, loop_ref);
  const auto& [block_path, loop_path, here, block, loop, around, outer, ranges] = move;
  const Parting parting = parting_of(loop_path, block_path);
  if (!parting.list || parting.first >= parting.second) {
    edit.refuse("loop " + quoted(loop_ref.name()) + " is not before block " + quoted(ref.name), here,
                "choose a loop around one of its producers");
  }

  // The inputs that are made under the loop, and what one iteration makes of them.
  const std::vector<Access> inside = accesses_in(loop.body, around);
  std::vector<Buffer> produced;
  const std::vector<Buffer> own = buffers_written(here);
  for (const Buffer& b : buffers_read(here)) {
    const bool is_own = std::find(own.begin(), own.end(), b) != own.end();
    if (!is_own && writes_any(loop.body, {b})) produced.push_back(b);
  }
  if (produced.empty()) {
    edit.refuse(
        "nothing that block " + quoted(ref.name) + " reads is written inside of loop " + quoted(loop_ref.name()), here,
        "choose a loop around one of its producers");
  }
  std::vector<SymbolicRange> iterations;
  for (const Buffer& input : produced) {
    std::vector<Access> writes;
    for (const Access& access : inside) {
      if (access.buffer == input && access.is_write) writes.push_back(access);
      if (access.buffer != input || !access.is_write || !access.block) continue;
      for (const For* l : around) {
        if (std::find(parting.common.begin(), parting.common.end(), l) != parting.common.end()) continue;
        if (is_reduce_loop(*access.block, l->var)) {
          edit.refuse("loop " + quoted(l->var.name()) + " is a reduction loop of block " + quoted(access.block->name) +
                          ": inside of it " + quoted(input->name) + " is not finished",
                      here, "choose a loop outside of the reduction loops of the producer");
        }
      }
    }
    const auto region = region_of(writes, input, outer, ranges);
    // Of several elements that an iteration reads, each has to say the same of it.
    std::vector<std::vector<Expr>> read;
    const auto look = [&](const Load& l) {
      if (l.buffer != input) return;
      const auto is_same = [&](const std::vector<Expr>& known) {
        return std::equal(known.begin(), known.end(), l.indices.begin(), l.indices.end(),
                          [](const Expr& a, const Expr& b) { return structural_equal(a, b); });
      };
      if (std::none_of(read.begin(), read.end(), is_same)) read.push_back(l.indices);
    };
    visit(block.body, look);
    visit(block.init, look);
    for (const std::vector<Expr>& indices : read) {
      const auto needed = iterations_for(block, indices, input, region, ranges);
      if (!needed.is_exact) {
        edit.refuse("one iteration of loop " + quoted(loop_ref.name()) + " does not finish whole iterations of block " +
                        quoted(ref.name),
                    here, "choose a loop further out, where all that an iteration of the block reads is made");
      }
      if (iterations.empty()) iterations = needed.ranges;
      for (size_t i = 0; i < iterations.size(); ++i) {
        if (is_known_equal(iterations[i].base, needed.ranges[i].base, ranges) &&
            is_known_equal(iterations[i].extent, needed.ranges[i].extent, ranges))
          continue;
        edit.refuse("what an iteration of block " + quoted(ref.name) +
                        " reads is made in different pieces inside of loop " + quoted(loop_ref.name()),
                    here, "choose a loop further out");
      }
    }
  }
  std::vector<const For*> block_loops = loops_of(block_path);
  block_loops.erase(block_loops.begin(), block_loops.begin() + static_cast<std::ptrdiff_t>(parting.common.size()));
  const OwnIterations before = own_iterations(edit, block, parting.common, block_loops);
  for (size_t i = 0; i < iterations.size(); ++i) {
    if (is_whole(iterations[i], block.iters[i].extent)) iterations[i] = before.ranges[i];
  }
  check_everything_is_made(edit, block, produced, inside, parting, before.ranges, here);
  const Stmt moved = block_over(block, iterations, ranges, before);

  // Nothing between the loop's nest and the block meets the block's data.
  const std::vector<Buffer> read = buffers_read(here);
  for (size_t n = parting.first; n <= parting.second; ++n) {
    const Stmt& between = parting.list->statements[n];
    const Stmt rest = n == parting.second ? replace_node(between, &block, Stmt()) : between;
    std::string meets;
    for (const Buffer& b : own) {
      if (reads_any(rest, {b}) || writes_any(rest, {b})) meets = b->name;
    }
    for (const Buffer& b : read) {
      if (n > parting.first && writes_any(rest, {b})) meets = b->name;
    }
    if (meets.empty()) continue;
    edit.refuse("a statement between loop " + quoted(loop_ref.name()) + " and block " + quoted(ref.name) + " uses " +
                    quoted(meets),
                here, "move that statement's block first");
  }

  Stmt body = replace_node(func_.body, &block, Stmt());
  {
    const For& target = *path_to_loop(body, loop_ref.var).back().as<For>();
    body = replace_node(body, &target, with_body(target, insert_after_writers(target.body, produced, moved)));
  }
  check_new_place(edit, body, ref.name, parting, here);
  check_in_scope(edit, move, body, "move the blocks that use it first");
  // Inputs that nothing outside of the loop uses any more live in it.
  for (const Buffer& input : produced) {
    if (func_.is_parameter(input)) continue;
    const Path allocation = path_to_allocation(body, input);
    const For& target = *path_to_loop(body, loop_ref.var).back().as<For>();
    const Path target_path = path_to_loop(body, loop_ref.var);
    const bool is_around = std::any_of(target_path.begin(), target_path.end(),
                                       [&](const Stmt& s) { return s.get() == allocation.back().get(); });
    const Stmt outside = replace_node(body, &target, Stmt());
    if (!is_around || reads_any(outside, {input}) || writes_any(outside, {input})) continue;
    body = allocate_in_loop(remove_allocation(body, input), input, loop_ref.var);
  }
  edit.commit(body);
}

}  // namespace tw
