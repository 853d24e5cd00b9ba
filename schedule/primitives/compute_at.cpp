// compute_at("P", i)
//
//   for h in 0..32 { block P(spatial v: 32 = h) { B[v] = A[v] } }
//   for i in 0..4 { for j in 0..8 { block C(spatial v: 32 = i*8 + j) { … B[v] … } } }
// ⇒
//   for i in 0..4 {
//     alloc B
//     for v in 0..8 { block P(spatial v: 32 = i*8 + v) { B[v] = A[v] } }
//     for j in 0..8 { block C … }
//   }
//
// Only what one iteration of the loop needs is computed; where those regions overlap, elements are computed again.
// Legal when the block is the only writer of its buffer, all readers are inside of the loop, and nothing that the block
// reads is written between its old place and the end of the loop's nest.
#include <algorithm>

#include "schedule/primitives/move.h"

namespace tw {
namespace {

void check_inputs_stay(const ScheduleEdit& edit, const Block& block, const Stmt& block_root, const Parting& parting) {
  const std::vector<Buffer> inputs = [&] {
    std::vector<Buffer> read = buffers_read(block_root);
    const std::vector<Buffer> own = buffers_written(block_root);
    std::erase_if(read, [&](const Buffer& b) { return std::find(own.begin(), own.end(), b) != own.end(); });
    return read;
  }();
  for (size_t n = parting.first; n <= parting.second; ++n) {
    for (const Buffer& input : inputs) {
      if (!writes_any(parting.list->statements[n], {input})) continue;
      const auto writers = writers_of(parting.list->statements[n], input);
      const std::string by = writers.empty() ? "a statement" : "block " + quoted(writers[0]->name);
      edit.refuse("block " + quoted(block.name) + " reads " + quoted(input->name) + ", which " + by +
                      " writes between here and there",
                  edit.path(BlockRef{block.name}).back(), "move that block first, or move this one less far");
    }
  }
}

// What readers take from the buffer was made in the same iteration of the shared loops that the buffer outlives.
void check_same_iteration(const ScheduleEdit& edit, const Block& block, const Buffer& output, const Stmt& here,
                          const Parting& parting) {
  const size_t outside = loops_of(path_to_allocation(edit.func.body, output)).size();
  std::vector<Var> fixed;
  for (size_t i = 0; i < outside && i < parting.common.size(); ++i) fixed.push_back(parting.common[i]->var);
  if (fixed.size() == parting.common.size()) return;
  const auto accesses = accesses_in(edit.func.body);
  for (const Access& write : accesses) {
    if (write.buffer != output || !write.is_write) continue;
    for (const Access& read : accesses) {
      if (read.buffer != output || read.is_write || (read.block && read.block->name == block.name)) continue;
      const auto equal = proven_equal(write, read, parting.common, fixed);
      if (equal.size() == parting.common.size()) continue;
      edit.refuse("what block " + quoted(block.name) +
                      " writes may be read in a later iteration of the loops that it shares with its readers",
                  here, "keep the block where it is");
    }
  }
}

}  // namespace

void Schedule::compute_at(const BlockRef& ref, const LoopRef& loop_ref) {
  ScheduleEdit edit(*this, "compute_at", ref, loop_ref);
  const Move move(edit, ref, loop_ref);
  const auto& [block_path, loop_path, here, block, loop, around, outer, ranges] = move;
  if (std::any_of(block_path.begin(), block_path.end(), [&](const Stmt& s) { return s.get() == &loop; })) {
    edit.refuse("block " + quoted(ref.name) + " is inside of loop " + quoted(loop_ref.name()) + " already", here,
                "choose a loop around its consumer");
  }
  const std::vector<Buffer> outputs = buffers_written(here);
  if (outputs.size() != 1)
    edit.refuse("block " + quoted(ref.name) + " writes several buffers", here, "only blocks with one output move");
  const Buffer output = outputs[0];
  edit.allocated_buffer(output->name);
  only_writer(edit, output);

  const Parting parting = parting_of(block_path, loop_path);
  if (!parting.list || parting.first > parting.second) {
    edit.refuse("loop " + quoted(loop_ref.name()) + " is not after block " + quoted(ref.name), here,
                "choose a loop around one of its consumers");
  }
  const auto readers = readers_of(func_.body, output);
  size_t inside = 0;
  for (const Block* reader : readers) {
    if (reader->name == ref.name) continue;
    const Path reader_path = edit.path(BlockRef{reader->name});
    if (std::none_of(reader_path.begin(), reader_path.end(), [&](const Stmt& s) { return s.get() == &loop; })) {
      edit.refuse("block " + quoted(reader->name) + " reads " + quoted(output->name) + " too, outside of loop " +
                      quoted(loop_ref.name()),
                  reader_path.back(),
                  "move all consumers under one loop first (reverse_compute_at), or choose a loop around all of them");
    }
    ++inside;
  }
  if (inside == 0)
    edit.refuse("nothing inside of loop " + quoted(loop_ref.name()) + " reads " + quoted(output->name), here,
                "choose a loop around one of its consumers");
  {  // Statements outside of blocks cannot be looked into for regions by name, so they count as readers elsewhere.
    size_t all = 0, in_blocks = 0;
    visit(func_.body, [&](const Load& l) { all += l.buffer == output; });
    for (const Block* reader : readers)
      visit(path_to_block(func_.body, reader->name).back(), [&](const Load& l) { in_blocks += l.buffer == output; });
    if (all != in_blocks)
      edit.refuse(quoted(output->name) + " is read by statements outside of blocks", here,
                  "such statements run as written");
  }
  check_inputs_stay(edit, block, here, parting);

  // The region that one iteration of the loop reads.
  std::vector<Access> reads;
  for (Access& access : accesses_in(loop.body, around)) {
    if (access.buffer == output && !access.is_write) reads.push_back(std::move(access));
  }
  const auto region = region_of(reads, output, outer, ranges);
  const auto* write = [&]() -> const Store* {
    const Store* found = nullptr;
    visit(block.body, [&](const Store& s) { found = &s; });
    return found;
  }();
  // In the loops that it shares with them already the block ran for a part only; no more than that is there to be had.
  std::vector<const For*> own = loops_of(block_path);
  own.erase(own.begin(), own.begin() + static_cast<std::ptrdiff_t>(parting.common.size()));
  check_same_iteration(edit, block, output, here, parting);
  const OwnIterations before = own_iterations(edit, block, parting.common, own);
  std::vector<SymbolicRange> iterations = iterations_for(block, write->indices, output, region, ranges).ranges;
  for (size_t i = 0; i < iterations.size(); ++i) {
    const bool is_limited = !is_whole(before.ranges[i], block.iters[i].extent);
    if (is_limited &&
        (is_whole(iterations[i], block.iters[i].extent) || !is_within(iterations[i], before.ranges[i], ranges)))
      iterations[i] = before.ranges[i];
  }
  const Stmt moved = block_over(block, iterations, ranges, before);

  Stmt body = remove_allocation(func_.body, output);
  body = replace_node(body, &block, Stmt());
  const For& target = *path_to_loop(body, loop_ref.var).back().as<For>();
  body = replace_node(body, &target,
                      with_body(target, make_stmt<Allocate>(output, insert_before_use(target.body, {output}, moved))));
  check_in_scope(edit, move, body, "move its producer after moving this block");
  for (const For* l : loops_of(path_to_block(body, ref.name))) {
    if (l->thread >= ThreadAxis::thread_x) edit.check_concurrent_loop(body, *l, true);
  }
  edit.commit(body);
}

}  // namespace tw
