// skip_masked("S", i)
//
//   for i in 0..8 {
//     for j in 0..2 { for k in 0..16 {
//       block S(spatial v: 16 = i * 2 + j, spatial w: 16 = k) { S[v, w] = select(w <= v, X[v, w], -∞) } } }
//     … block L, the same loops … { L[v] = max(L[v], S[v, w]) }
//     … block E, the same loops … { E[v, w] = e^(S[v, w] - L[v]) }
//     … block R, the same loops … { R[v] = R[v] + E[v, w] * Y[w] } }
// ⇒
//   for i in 0..8 {
//     for j in 0..2 { for k in 0..min(16, i * 2 + 2) { … } }          and so in all four
//
// Scores that are -∞ in every row of an iteration of the loop are neither made nor used there: they change no maximum,
// and e^(-∞ - L) is 0 where L is finite, which adds nothing to sums of it or of it times something finite.  L is finite
// or the row NaN as before where each iteration keeps a score; otherwise the power is e^(S - max(L, c)) with a finite
// c. All loops end at the same score, a multiple of what each takes in an iteration.  Legal when nothing but maxima,
// such powers and such sums uses the scores, all are made and used in one iteration of the loop, and no sum begins in
// what is left out (decompose_reduction).
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "schedule/primitives/move.h"
#include "tensor_ir/arith/slack.h"
#include "tensor_ir/structural.h"

namespace tw {
namespace {

bool reads_memory(const Expr& e) {
  bool reads = false;
  visit(e, [&](const Load&) { reads = true; });
  return reads;
}

// When the block's score is not -∞: conditions `slack ≥ 0` in terms of its iterations, those that positions alone
// decide; none: no such block.
std::vector<Expr> slacks_of_seen(const Block& block) {
  const auto* st = block.body.as<Store>();
  const auto* chosen = st && !st->predicate.is_defined() && !block.init.is_defined() ? st->value.as<Select>() : nullptr;
  const auto* nothing = chosen ? chosen->else_value.as<FloatImm>() : nullptr;
  if (!nothing || nothing->value != -std::numeric_limits<double>::infinity()) return {};
  std::vector<Expr> slacks;
  for (const Expr& condition : conjuncts(chosen->condition))
    if (const auto slack = slack_of(condition); slack && !reads_memory(*slack)) slacks.push_back(*slack);
  return slacks;
}

// A term that is `nothing` beyond a tail (rfactor), where it is something: the value, and the tail's condition.
struct Term {
  Expr value, tail;
};
Term term_of(const Expr& value, double nothing) {
  const auto* chosen = value.as<Select>();
  const auto* other = chosen ? chosen->else_value.as<FloatImm>() : nullptr;
  return other && other->value == nothing ? Term{chosen->then_value, chosen->condition} : Term{value, Expr()};
}

// score - shift, where the block writes e^(score - shift); null otherwise.
const Binary* exponent_of(const Block& block) {
  const auto* st = block.body.as<Store>();
  const auto* power = st ? st->value.as<Call>() : nullptr;
  if (!power || (power->intrinsic != Intrinsic::exp && power->intrinsic != Intrinsic::exp_nonpositive)) return nullptr;
  const auto* difference = power->arguments[0].as<Binary>();
  return difference && difference->op == BinaryOp::sub ? difference : nullptr;
}

// The blocks of a softmax inside of a loop, found from the scores to what uses them.
class Softmax {
 public:
  Softmax(const ScheduleEdit& edit, const Block& block, const LoopRef& loop) : edit_(edit), loop_(loop) {
    std::vector<Expr> slacks = slacks_of_seen(block);
    if (slacks.empty())
      refuse(block, "does not write -∞ under a condition", "name the one that masks scores: select(…, score, -inf)");
    find_loop(block, slacks, Wanted::any);
    follow(block, slacks, Elements::scores);
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const Member& member : members_) names.push_back(member.block->name);
    return names;
  }

  // The body in which the loops end behind the last score that some row has.
  Stmt with_loops_ended() const {
    std::vector<int64_t> together(members_[0].falls.size(), 1);  // of each condition, scores
    for (const Member& member : members_)
      for (size_t i = 0; i < together.size(); ++i) together[i] = std::lcm(together[i], member.falls[i].step);
    Stmt body = edit_.func.body;
    for (const Member& member : members_) {
      check_is_local(*member.loop);
      const For& old = *path_to_loop(body, member.loop->var).back().as<For>();
      if (!old.extent.is_same(member.loop->extent)) continue;  // of another member, too
      Expr extent = old.extent;
      for (size_t i = 0; i < together.size(); ++i) {
        const Expr blocks = max(Expr(0), floor_div(member.falls[i].first, together[i]) + 1);
        extent = min(extent, blocks * (together[i] / member.falls[i].step));
      }
      body = replace_node(body, &old,
                          make_stmt<For>(old.var, simplify(extent, member.ranges), old.loop_kind, old.body, old.thread,
                                         old.attributes, old.span));
    }
    return body;
  }

 private:
  struct Member {
    const Block* block;
    const For* loop;  // over scores
    std::vector<Fall> falls;
    Assumptions ranges;
  };

  [[noreturn]] void refuse(const Block& block, const std::string& why, const std::string& help) const {
    edit_.refuse("block " + quoted(block.name) + " " + why, edit_.path(BlockRef{block.name}).back(), help);
  }

  enum class Wanted { all, any };

  // The block's loop inside of loop_ along which the slacks, in terms of its iterations, fall, by more than within one
  // iteration: all of them, or any, which are those that are left then.
  void find_loop(const Block& block, std::vector<Expr>& slacks, Wanted wanted) {
    const std::vector<const For*> loops = loops_of(edit_.path(BlockRef{block.name}));
    const auto at = std::ranges::find_if(loops, [&](const For* loop) { return loop->var == loop_.var; });
    if (at == loops.end())
      refuse(block, "is not inside of loop " + quoted(loop_.name()), "compute_at or reverse_compute_at moves it there");
    const Assumptions ranges = ranges_of({loops.begin(), at + 1});  // others may have no iteration
    const Substitution bindings = bindings_of(block);
    for (auto l = at + 1; l != loops.end(); ++l) {
      if (is_const_int((*l)->extent, 1)) continue;
      std::vector<const For*> others(at + 1, loops.end());
      std::erase(others, *l);
      std::vector<Fall> falls;
      std::vector<Expr> falling;
      for (const Expr& slack : slacks) {
        const auto fall = fall_along(substitute(slack, bindings), **l, others, ranges);
        if (fall && fall->within_one < fall->step) falls.push_back(*fall), falling.push_back(slack);
      }
      if (falls.empty() || (falls.size() < slacks.size() && wanted == Wanted::all)) continue;
      if ((*l)->loop_kind != LoopKind::serial) break;
      slacks = falling;
      for (size_t i = 0; i < falls.size() && !members_.empty(); ++i)
        if (!is_known_equal(falls[i].first, members_[0].falls[i].first))
          refuse(block, "does not begin with the score that block " + quoted(members_[0].block->name) + " begins with",
                 "let both go over all scores of a row");
      return members_.push_back({&block, *l, falls, ranges});
    }
    refuse(block, "has no serial loop over what is masked inside of loop " + quoted(loop_.name()),
           "split off what is vectorized or unrolled");
  }

  enum class Elements { scores, powers };

  // Finds what reads the elements that the block writes, which are -∞ or 0 where a slack is negative.
  void follow(const Block& block, const std::vector<Expr>& slacks, Elements elements) {
    const auto* st = block.body.as<Store>();
    const Buffer buffer = st->buffer;
    if (edit_.func.is_parameter(buffer)) refuse(block, "writes a result", "copy it");
    if (path_to_allocation(Stmt(edit_.loop(loop_).body), buffer).empty())
      refuse(block, "writes what outlives an iteration of loop " + quoted(loop_.name()),
             "compute_at or reverse_compute_at moves what uses it there");
    only_writer(edit_, buffer);
    const std::vector<const Block*> readers = readers_of(edit_.func.body, buffer);
    size_t reads = 0;
    visit(edit_.func.body, [&](const Load& load) { reads += load.buffer == buffer ? 1 : 0; });
    if (reads != readers.size())
      refuse(block, "is read several times by a block, or by what is no block's value",
             "scores may be used by maxima and by e^(score - …), and that by sums");
    for (const Block* reader : readers) {
      const Load& read = read_of(*reader, buffer, elements);
      Substitution places;
      for (size_t d = 0; d < st->indices.size(); ++d)
        if (st->indices[d].kind() == NodeKind::Var) places[Var::of(st->indices[d])] = read.indices[d];
      for (const IterVar& iter : block.iters) {
        const bool matters = std::ranges::any_of(slacks, [&](const Expr& slack) { return uses_var(slack, iter.var); });
        if (matters && !places.count(iter.var))
          refuse(block, "writes to computed places", "let its iterations be indices");
      }
      std::vector<Expr> of_reader;
      for (const Expr& slack : slacks) of_reader.push_back(substitute(slack, places));
      find_loop(*reader, of_reader, Wanted::all);
      if (!as_reduction(*reader) && !is_of_finite(*reader)) check_is_never_empty(*reader);
      if (!as_reduction(*reader)) follow(*reader, of_reader, Elements::powers);
    }
  }

  // What the block reads of such elements, in a way in which these do not count.
  const Load& read_of(const Block& reader, const Buffer& buffer, Elements elements) const {
    const Load* read = nullptr;
    visit(reader.body, [&](const Load& load) {
      if (load.buffer == buffer) read = &load;
    });
    const auto is_it = [&](const Expr& e, const Expr& tail = Expr()) {
      if (!read || e.get() != read) return false;
      const Expr& predicate = read->predicate;
      return !predicate.is_defined() || (tail.is_defined() && structural_equal(predicate, tail));
    };
    bool counts = true;
    if (const auto reduction = as_reduction(reader)) {
      const bool is_of_scores = elements == Elements::scores;
      const auto [value, tail] = term_of(reduction->value, is_of_scores ? -std::numeric_limits<double>::infinity() : 0);
      const auto* product = value.as<Binary>();
      const bool is_factor =
          product && product->op == BinaryOp::mul &&
          (is_it(without_conversion(product->a), tail) || is_it(without_conversion(product->b), tail));
      counts = is_of_scores ? !is_maximum(reader) || !is_it(value, tail)
                            : !is_addition(reader) || !(is_it(value, tail) || is_factor);
    } else if (elements == Elements::scores) {
      const Binary* difference = exponent_of(reader);
      counts = !difference || !is_it(difference->a);
    }
    if (counts)
      refuse(reader, "takes more from " + quoted(buffer->name) + " than a softmax does",
             "scores may be used by maxima and by e^(score - …), and that by sums");
    if (reader.init.is_defined()) refuse(reader, "begins its sums itself", "decompose_reduction first");
    return *read;
  }

  // Whether it is e^(score - max(…, c)) with a finite c.
  static bool is_of_finite(const Block& power) {
    const auto* shift = exponent_of(power)->b.as<Call>();
    const auto* least = shift && shift->intrinsic == Intrinsic::maximum ? shift->arguments[1].as<FloatImm>() : nullptr;
    return least && std::isfinite(least->value);
  }

  // Whatever the iteration of loop_, one score is left at the least.
  void check_is_never_empty(const Block& power) const {
    const Member& member = members_.back();
    for (const Fall& fall : member.falls)
      if (!can_prove(Expr(0) <= fall.first, member.ranges))
        refuse(power, "is NaN in rows that see nothing", "take e^(score - maximum(…, a constant))");
  }

  // What else runs in a loop that ends is of use in its iteration alone.
  void check_is_local(const For& loop) const {
    for (const Block* other : blocks_in(loop.body)) {
      if (std::ranges::find(members_, other, &Member::block) != members_.end()) continue;
      for (const Buffer& buffer : buffers_written(edit_.path(BlockRef{other->name}).back()))
        if (path_to_allocation(Stmt(loop.body), buffer).empty())
          refuse(*other, "shares loop " + quoted(loop.var.name()) + " with what is left out",
                 "compute_at moves it into the loop, or it has a loop of its own");
    }
    if (has_statements_outside_blocks(loop.body))
      edit_.refuse("loop " + quoted(loop.var.name()) + " has statements outside of blocks", loop.body,
                   "schedule before blocks are lowered");
  }

  const ScheduleEdit& edit_;
  const LoopRef& loop_;
  std::vector<Member> members_;
};

}  // namespace

bool Schedule::is_masked(const BlockRef& block) const {
  return !slacks_of_seen(node(block)).empty();
}

void Schedule::skip_masked(const BlockRef& ref, const LoopRef& loop) {
  ScheduleEdit edit(*this, "skip_masked", ref, loop);
  edit.loop(loop);
  const Softmax softmax(edit, edit.block(ref), loop);
  edit.commit(softmax.with_loops_ended());
  for (const std::string& name : softmax.names()) irregular_blocks_.insert(name);
}

}  // namespace tw
