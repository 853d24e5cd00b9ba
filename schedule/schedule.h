// Schedules: a Func being transformed by primitives, and the trace of what was done.
//
// Every primitive keeps the meaning of the Func or throws Error(schedule), located and with a suggestion.  Legality is
// decided from dependences (dependence.h), never assumed.  Each primitive is one file in primitives/, headed by its
// rewrite in the IR's own text.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/decisions.h"
#include "schedule/trace.h"
#include "tensor_ir/ir.h"

namespace tw {

// A loop, by its variable: valid until a primitive consumes the loop (split, fuse).  Primitives that keep a loop keep
// its Var.
struct LoopRef {
  Var var;
  const std::string& name() const { return var.name(); }
  bool operator==(const LoopRef&) const = default;
};

// A block, by its name, which is unique in the Func.
struct BlockRef {
  std::string name;
  bool operator==(const BlockRef&) const = default;
};

// old index → new index, of a buffer's layout: both in terms of `from`.
//   NCHW → NCHW16c:  from = (n, c, h, w), to = (n, c // 16, h, w, c % 16)
struct IndexMap {
  std::vector<Var> from;
  std::vector<Expr> to;
};

class Schedule {
 public:
  explicit Schedule(Func func, Decisions decisions = {});
  const Func& func() const { return func_; }
  const Trace& trace() const { return trace_; }

  // What a template leaves open (decisions.h): the value that was decided for `name`, else `analytic`, which is one of
  // the candidates.  A name that was asked for before gets a number: tile, tile_1.  Error(schedule) when the value that
  // was decided is no candidate.
  Choice decide(const std::string& name, std::vector<Candidate> candidates, const Choice& analytic);
  const std::vector<AskedDecision>& asked() const { return asked_; }
  // Error(schedule) when something was decided that no template asked for.
  void require_all_asked() const;

  // Looking up.
  BlockRef block(const std::string& name) const;
  std::vector<BlockRef> blocks() const;                     // in the order of the text
  std::vector<LoopRef> loops(const BlockRef& block) const;  // around the block, outermost first
  // What transform_layout has done to the buffer, in order: how a weight gets to the layout that is read.
  std::vector<IndexMap> layout_changes(const std::string& buffer) const;

  const Block& node(const BlockRef& block) const;
  const For& node(const LoopRef& loop) const;

  // Loops.  A factor that is not set (at most one) is inferred.  Factors need not divide: the block gets a predicate.
  std::vector<LoopRef> split(const LoopRef& loop, const std::vector<std::optional<int64_t>>& factors);
  LoopRef fuse(const std::vector<LoopRef>& loops);  // adjacent, outermost first
  void reorder(const std::vector<LoopRef>& loops);  // into this order, in the places that they take now
  void parallel(const LoopRef& loop);
  void vectorize(const LoopRef& loop);
  void unroll(const LoopRef& loop);
  void bind(const LoopRef& loop, ThreadAxis axis);
  void pipeline(const LoopRef& loop, int64_t stages);  // copies in its body run stages - 1 iterations ahead
  void tensorize(const LoopRef& loop, const std::string& instruction);  // of tensor_ir/instruction.h
  void annotate(const LoopRef& loop, const std::string& key, AttributeValue value);
  void annotate(const BlockRef& block, const std::string& key, AttributeValue value);

  // Where a block runs.
  void compute_at(const BlockRef& producer, const LoopRef& loop);  // only what the loop's body needs of it
  void reverse_compute_at(const BlockRef& consumer,
                          const LoopRef& loop);  // as soon as the loop's body has made its input
  void compute_inline(const BlockRef& producer);
  void reverse_compute_inline(const BlockRef& consumer);  // into its only producer's Store

  // Where data live.  Each gives the new copy block; the copy is at the root until it is moved.
  BlockRef cache_read(const BlockRef& consumer, const std::string& buffer, Scope scope);
  BlockRef cache_write(const BlockRef& producer, const std::string& buffer,
                       Scope scope);                       // the producer writes the cache
  void set_scope(const std::string& buffer, Scope scope);  // of an allocated buffer
  // The buffer's elements in another order.  Of a parameter this changes what callers pass (func().buffers shows the
  // new shape, layout_changes() the maps): for weights, and for layouts that the graph has agreed on.  Padding elements
  // of an input are never read as values; those of an output are written as zero or left, and those of a constant are
  // zero.
  void transform_layout(const std::string& buffer, const IndexMap& map);
  // The block's iteration number `axis` as two, the second of which has `extent` values; loops stay as they are.
  void split_iteration(const BlockRef& block, int axis, int64_t extent);
  // The iterations of a reduction as one for each group of them, by their numbers; what it reads and writes goes
  // through copies with as many dimensions.
  void fuse_iterations(const BlockRef& block, const std::vector<std::vector<int64_t>>& groups);
  void pad(const BlockRef& block,
           const std::vector<int64_t>& multiples);  // iteration extents up to multiples; extra instances are masked
  // The same of a sum of products, by zeros around copies of its operands: nothing is masked.
  void pad_operands(const BlockRef& block, const std::vector<int64_t>& multiples);
  // The same along what a sum of products of integers adds up, where the layout of a constant has the zeros: nothing is
  // copied.
  void pad_terms(const BlockRef& block, const std::vector<int64_t>& multiples);

  // Reductions.
  BlockRef decompose_reduction(const BlockRef& block,
                               const LoopRef& loop);  // the init as a block of its own in front of loop
  // Terms of zeros around a copy, which all iterations inside of the loop read, are left out: of sums of products that
  // have such a copy and a constant.
  bool has_padding(const BlockRef& block) const;
  void skip_padding(const BlockRef& block, const LoopRef& loop);
  BlockRef rfactor(
      const LoopRef& loop,
      int axis);  // partial results over `loop` in a new buffer dimension `axis`; returns the partial block
  // The parts of a softmax that a loop makes are joined there: `block` is the maximum of their maxima.
  void online(const BlockRef& block, const LoopRef& loop);
  // Scores that `block` masks with -∞ for all rows of an iteration of the loop are left out of a softmax, all of which
  // is inside.  Refused where anything but maxima, e^(score - …) and sums of it uses them.
  void skip_masked(const BlockRef& block, const LoopRef& loop);
  bool is_masked(const BlockRef& block) const;  // it writes -∞ where positions do not meet a condition

 private:
  friend struct ScheduleEdit;  // how primitives change func_
  Func func_;
  Trace trace_;
  Decisions decisions_;
  std::vector<AskedDecision> asked_;
  std::map<Var, std::string> loop_names_;           // as the trace calls them
  std::map<std::string, std::string> block_names_;  // of blocks that primitives made: their names in the trace
  std::set<std::string> used_names_;
  struct PaddedLayout {
    std::vector<Expr> logical;  // the shape before
    IndexMap map;
  };
  std::map<std::string, std::vector<IndexMap>> layout_changes_;
  std::map<std::string, PaddedLayout> padded_layouts_;  // of buffers with elements that nobody writes, and constants
  std::set<std::string> irregular_blocks_;              // whose loops do not cover their iterations plainly
};

std::string to_text(const IndexMap& map);

// From text; Error(schedule) says what there is.
IndexMap parse_index_map(std::string_view text);  // "(n, c) -> (n, c // 16, c % 16)"
Scope parse_scope(std::string_view word);
ThreadAxis parse_thread_axis(std::string_view word);

}  // namespace tw
