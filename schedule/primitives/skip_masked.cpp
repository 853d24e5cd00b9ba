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
// and e^(-∞ - L) is 0, which adds nothing to sums of it or of it times something finite.  Where loops take scores in
// blocks, all end with a block of each of them.  Legal when nothing but maxima, such powers and such sums uses the
// scores, all inside of the loop, and no sum begins in what is left out (decompose_reduction).
#include <algorithm>
#include <limits>
#include <numeric>

#include "schedule/primitives/move.h"
#include "tensor_ir/arith/slack.h"
#include "tensor_ir/structural.h"

namespace tw {
namespace {

// When the block's score is not -∞: conditions `slack ≥ 0` in terms of its iterations; none: no such block.
std::vector<Expr> slacks_of_seen(const Block& block) {
  const auto* st = block.body.as<Store>();
  const auto* chosen = st && !st->predicate.is_defined() && !block.init.is_defined() ? st->value.as<Select>() : nullptr;
  const auto* nothing = chosen ? chosen->else_value.as<FloatImm>() : nullptr;
  if (!nothing || nothing->value != -std::numeric_limits<double>::infinity()) return {};
  std::vector<Expr> slacks;
  for (const Expr& condition : conjuncts(chosen->condition))
    if (const auto slack = slack_of(condition)) slacks.push_back(*slack);
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

// The blocks of a softmax inside of a loop, found from the scores to what uses them.
class Softmax {
 public:
  Softmax(const ScheduleEdit& edit, const Block& block, const LoopRef& loop) : edit_(edit), loop_(loop) {
    std::vector<Expr> slacks = slacks_of_seen(block);
    if (slacks.empty())
      refuse(block, "does not write -∞ under a condition", "name the one that masks scores: select(…, score, -inf)");
    find_loop(block, slacks, Slacks::some);
    follow(block, slacks, Elements::scores);
  }

  // The body in which the loops end behind the last score that some row has.
  Stmt ended() const {
    Stmt body = edit_.func.body;
    for (const Member& member : members_) {
      for (const Block* other : blocks_in(member.loop->body)) check_is_local(*other, *member.loop);
      const For& old = *path_to_loop(body, member.loop->var).back().as<For>();
      if (old.extent.is_same(member.loop->extent)) body = replace_node(body, &old, ended(old, member));
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

  Stmt ended(const For& loop, const Member& member) const {
    Expr extent = loop.extent;
    for (size_t i = 0; i < member.falls.size(); ++i) {
      int64_t together = 1;  // scores
      for (const Member& other : members_) together = std::lcm(together, other.falls[i].step);
      const Expr blocks = max(Expr(0), floor_div(member.falls[i].first, together) + 1);
      extent = min(extent, blocks * (together / member.falls[i].step));
    }
    return make_stmt<For>(loop.var, simplify(extent, member.ranges), loop.loop_kind, loop.body, loop.thread,
                          loop.attributes, loop.span);
  }

  // The outermost of the block's loops inside of loop_ along which the slacks, in terms of its iterations, fall: all of
  // them, or those that are left of them.
  enum class Slacks { all, some };
  void find_loop(const Block& block, std::vector<Expr>& slacks, Slacks wanted) {
    const std::vector<const For*> loops = loops_of(edit_.path(BlockRef{block.name}));
    const auto at = std::ranges::find_if(loops, [&](const For* loop) { return loop->var == loop_.var; });
    if (at == loops.end())
      refuse(block, "is not inside of loop " + quoted(loop_.name()), "compute_at or reverse_compute_at moves it there");
    const Assumptions ranges = ranges_of(loops);
    const Substitution bindings = bindings_of(block);
    for (auto l = at + 1; l != loops.end(); ++l) {
      if (is_const_int((*l)->extent, 1)) continue;
      std::vector<const For*> others(at + 1, loops.end());
      std::erase(others, *l);
      std::vector<Fall> falls;
      std::vector<Expr> falling;
      for (const Expr& slack : slacks) {
        const auto fall = fall_along(substitute(slack, bindings), **l, others, ranges);
        if (fall) falls.push_back(*fall), falling.push_back(slack);
      }
      if (falls.empty() || (falls.size() < slacks.size() && wanted == Slacks::all)) continue;
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

  // What reads the elements that the block writes, which are -∞ or 0 where a slack is negative.
  enum class Elements { scores, powers };
  void follow(const Block& block, const std::vector<Expr>& slacks, Elements elements) {
    const auto* st = block.body.as<Store>();
    const Buffer buffer = st->buffer;
    if (edit_.func.is_parameter(buffer)) refuse(block, "writes a result", "copy it");
    only_writer(edit_, buffer);
    for (const Block* reader : readers_of(edit_.func.body, buffer)) {
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
      find_loop(*reader, of_reader, Slacks::all);
      if (!as_reduction(*reader)) follow(*reader, of_reader, Elements::powers);
    }
  }

  // What the block reads of such elements, in a way in which these do not count.
  const Load& read_of(const Block& reader, const Buffer& buffer, Elements elements) const {
    std::vector<const Load*> reads;
    visit(reader.body, [&](const Load& load) {
      if (load.buffer == buffer) reads.push_back(&load);
    });
    const auto is_it = [&](const Expr& e, const Expr& condition = Expr()) {
      if (reads.size() != 1 || e.get() != reads[0]) return false;
      const Expr& predicate = reads[0]->predicate;
      return !predicate.is_defined() || (condition.is_defined() && structural_equal(predicate, condition));
    };
    bool counts = true;
    if (const auto reduction = as_reduction(reader)) {
      const bool is_of_scores = elements == Elements::scores;
      const auto [value, tail] = term_of(reduction->value, is_of_scores ? -std::numeric_limits<double>::infinity() : 0);
      const auto* product = value.as<Binary>();
      const bool is_factor =
          product && product->op == BinaryOp::mul && (is_it(product->a, tail) || is_it(product->b, tail));
      counts = is_of_scores ? !is_maximum(reader) || !is_it(value, tail)
                            : !is_addition(reader) || !(is_it(value, tail) || is_factor);
    } else if (elements == Elements::scores) {
      const auto* st = reader.body.as<Store>();
      const auto* power = st ? st->value.as<Call>() : nullptr;
      const bool is_power =
          power && (power->intrinsic == Intrinsic::exp || power->intrinsic == Intrinsic::exp_nonpositive);
      const auto* difference = is_power ? power->arguments[0].as<Binary>() : nullptr;
      counts = !difference || difference->op != BinaryOp::sub || !is_it(difference->a);
    }
    if (counts)
      refuse(reader, "takes more from " + quoted(buffer->name) + " than a softmax does",
             "scores may be used by maxima and by e^(score - …), and that by sums");
    if (reader.init.is_defined()) refuse(reader, "begins its sums itself", "decompose_reduction first");
    return *reads[0];
  }

  // What else runs in a loop that ends is of use in its iteration alone.
  void check_is_local(const Block& other, const For& loop) const {
    if (std::ranges::find(members_, &other, &Member::block) != members_.end()) return;
    const Stmt outside = replace_node(edit_.func.body, &loop, Stmt());
    for (const Buffer& buffer : buffers_written(edit_.path(BlockRef{other.name}).back())) {
      if (edit_.func.is_parameter(buffer) || reads_any(outside, {buffer}))
        refuse(other, "shares loop " + quoted(loop.var.name()) + " with what is left out", "move it");
    }
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
  edit.commit(Softmax(edit, edit.block(ref), loop).ended());
}

}  // namespace tw
