// online("T", p)
//
//   for p in 0..4 { … L[i, p] = … M[i, p] = … }
//   for i in 0..8 { for q in 0..4 { block T(spatial v: 8 = i, reduce w: 4 = q) {
//     init { T[v] = -∞ } T[v] = max(T[v], L[v, w]) } } }
//   for i in 0..8 { for q in 0..4 { block E(spatial v: 8 = i, spatial w: 4 = q) { E[v, w] = e^(L[v, w] - T[v]) } } }
//   for i in 0..8 { for q in 0..4 { block R(spatial v: 8 = i, reduce w: 4 = q) {
//     init { R[v] = 0 } R[v] = R[v] + E[v, w] * M[v, w] } } }
// ⇒
//   for i in 0..8 { block T_init { T[v] = -∞ } }
//   for i in 0..8 { block R_init { R[v] = 0 } }
//   for p in 0..4 {
//     … L[i, p] = … M[i, p] = …
//     for i in 0..8 { block T_before { T_before[v] = T[v] } }
//     for i in 0..8 { block T(spatial v: 8 = i, reduce w: 4 = p) { T[v] = max(T[v], L[v, w]) } }
//     for i in 0..8 { block T_rescale { T_rescale[v] = e^(T_before[v] - T[v]) } }
//     for i in 0..8 { block E(spatial v: 8 = i, spatial w: 4 = p) { E[v, w] = e^(L[v, w] - T[v]) } }
//     for i in 0..8 { block R(spatial v: 8 = i, reduce w: 4 = p) { R[v] = R[v] * T_rescale[v] + E[v, w] * M[v, w] } }
//   }
//
// The parts of a softmax are joined while they are made, so that they need not be kept: online softmax (Milakov and
// Gimelshein, "Online normalizer calculation for softmax", 2018).  Each sum has one factor e^(L - T) for each part, so
// when T grows all that was added so far gets another factor.  In full, E is e^(L - max(T, c)) with a finite c: of
// parts that are -∞, e^(-∞ - c) is 0.  So such parts change nothing, and where what L is the largest of says that all
// from one on are, S[v, w, j] = select(w * 16 + j <= v, …, -∞), the loop ends there: for p in 0..min(4, …).  Legal when
// only such sums use E, only E uses T, they follow the loop, and what they read of a part is made in its iteration.
#include <algorithm>
#include <cmath>
#include <limits>

#include "schedule/primitives/move.h"
#include "schedule/primitives/rebind.h"
#include "tensor_ir/arith/slack.h"
#include "tensor_ir/structural.h"

namespace tw {
namespace {

const Load* is_load_of(const Expr& e, const Buffer& buffer) {
  const auto* load = e.as<Load>();
  return load && load->buffer == buffer && !load->predicate.is_defined() ? load : nullptr;
}

// e^(L - max(T, c)): what is read of L and T.
struct Share {
  const Load *part, *largest;
};
std::optional<Share> share_of(const Block& block, const Buffer& parts, const Buffer& largest) {
  const auto* st = block.body.as<Store>();
  const auto* power = st && !block.init.is_defined() ? st->value.as<Call>() : nullptr;
  if (!power || (power->intrinsic != Intrinsic::exp && power->intrinsic != Intrinsic::exp_nonpositive)) return {};
  const auto* difference = power->arguments[0].as<Binary>();
  if (!difference || difference->op != BinaryOp::sub) return {};
  const auto* shift = difference->b.as<Call>();
  if (!shift || shift->intrinsic != Intrinsic::maximum) return {};
  const auto* least = shift->arguments[1].as<FloatImm>();
  const Share share{is_load_of(difference->a, parts), is_load_of(shift->arguments[0], largest)};
  return share.part && share.largest && least && std::isfinite(least->value) ? std::optional(share) : std::nullopt;
}

// The factor that is an element of E, and the other one.
struct Factors {
  const Load* share;
  Expr other;
};
std::optional<Factors> factors_of(const std::optional<Reduction>& sum, const Buffer& shares) {
  const auto* product = sum ? sum->value.as<Binary>() : nullptr;
  if (!product || product->op != BinaryOp::mul) return {};
  if (const auto* share = is_load_of(product->a, shares)) return Factors{share, product->b};
  if (const auto* share = is_load_of(product->b, shares)) return Factors{share, product->a};
  return {};
}

// What has the elements that the buffer's are the largest of, where that is -∞ under a condition: the block, and when
// it is not.
struct Masked {
  const Block* block;
  Expr seen;
};
std::optional<Masked> find_masked(const Stmt& body, const Buffer& largest) {
  const std::vector<const Block*> writers = writers_of(body, largest);
  const auto* st = writers.size() == 1 ? writers[0]->body.as<Store>() : nullptr;
  if (!st || st->predicate.is_defined() || writers[0]->predicate.is_defined()) return {};
  if (const auto* chosen = st->value.as<Select>()) {
    const auto* nothing = chosen->else_value.as<FloatImm>();
    if (nothing && nothing->value == -std::numeric_limits<double>::infinity())
      return Masked{writers[0], chosen->condition};
    return {};
  }
  const auto reduction = as_reduction(*writers[0]);
  const Expr source = reduction && is_maximum(*writers[0]) ? reduction->value : st->value;
  const auto* read = source.as<Load>();
  return read && !read->predicate.is_defined() ? find_masked(body, read->buffer) : std::nullopt;
}

// How many iterations of the loop there are until nothing is seen any more; not defined: unknown.
Expr iterations_that_see(const Stmt& root, const For& loop, const Buffer& largest) {
  const auto masked = find_masked(loop.body, largest);
  if (!masked) return Expr();
  const std::vector<const For*> loops = tw::loops_of(path_to_block(root, masked->block->name));
  const auto at = std::find(loops.begin(), loops.end(), &loop);
  if (at == loops.end()) return Expr();
  const Assumptions ranges = ranges_of({loops.begin(), at});  // others may have no iteration
  Expr count;
  for (const Expr& condition : conjuncts(substitute(masked->seen, bindings_of(*masked->block)))) {
    const auto slack = slack_of(condition);
    const auto fall = slack ? fall_along(*slack, loop, {at + 1, loops.end()}, ranges) : std::nullopt;
    if (!fall) continue;
    const Expr some = simplify(max(Expr(0), floor_div(fall->first, fall->step) + 1), ranges);
    if (can_prove(loop.extent <= some, ranges)) continue;
    count = count.is_defined() ? min(count, some) : some;
  }
  return count;
}

// A stage behind the loop: the block in loops of its own, of which one goes over the parts.
class Stage {
 public:
  Stage(const ScheduleEdit& edit, const std::string& name, const For& parts, size_t shared)
      : edit_(edit), path_(edit.path(BlockRef{name})), block_(*path_.back().as<Block>()), parts_(parts) {
    const std::vector<const For*> loops = tw::loops_of(path_);
    own_.assign(loops.begin() + static_cast<std::ptrdiff_t>(shared), loops.end());
    for (size_t i = path_.size() - 1 - own_.size(); i + 1 < path_.size(); ++i)
      if (path_[i].kind() != NodeKind::For)
        refuse("shares its loops with others", "apply online before they are moved");
  }

  const Block& block() const { return block_; }
  const Stmt& here() const { return path_.back(); }
  [[noreturn]] void refuse(const std::string& why, const std::string& help) const {
    edit_.refuse("block " + quoted(block_.name) + " " + why, here(), help);
  }

  // The iteration over the parts, which a loop of its own gives.
  void number_parts(const Expr& iteration) {
    for (const IterVar& iter : block_.iters) {
      if (iter.var.get() != iteration.get()) continue;
      for (const For* loop : own_)
        if (iter.binding.get() == loop->var.get()) own_part_ = loop;
    }
    if (!own_part_ || !is_known_equal(own_part_->extent, parts_.extent))
      refuse("has no loop over what loop " + quoted(parts_.var.name()) + " makes", "split neither before");
    for (const IterVar& iter : block_.iters)
      if (iter.binding.get() != own_part_->var.get() && uses_var(iter.binding, own_part_->var))
        refuse("binds two iterations to loop " + quoted(own_part_->var.name()), "apply online before loops are fused");
  }

  // The one reduced iteration of a reduction.
  Expr reduced() const {
    Expr found;
    for (const IterVar& iter : block_.iters) {
      if (iter.kind != IterKind::reduce) continue;
      if (found.is_defined()) refuse("reduces over more than the parts", "let one block reduce over each");
      found = iter.var;
    }
    if (!found.is_defined()) refuse("reduces nothing", "name the maximum of the parts");
    return found;
  }

  // Another block in the stage's loops: for the part that the loop makes, or (`iters`: without reduced ones) for none.
  Stmt nest(const BlockEdit& changed) const {
    Stmt result = rebind(changed.make(), {{own_part_->var, parts_.var}}, Expr(), {});
    return around(result);
  }
  Stmt nest_without_part(const std::string& name, const Stmt& body) const {
    BlockEdit plain(block_);
    plain.name = name, plain.init = Stmt(), plain.body = body;
    std::erase_if(plain.iters, [&](const IterVar& iter) { return iter.binding.get() == own_part_->var.get(); });
    return with_fresh_names(around(plain.make()));
  }

 private:
  Stmt around(Stmt s) const {
    for (size_t i = own_.size(); i-- > 0;)
      if (own_[i] != own_part_) s = with_body(*own_[i], s);
    return s;
  }

  const ScheduleEdit& edit_;
  Path path_;
  const Block& block_;
  const For& parts_;
  std::vector<const For*> own_;
  const For* own_part_ = nullptr;
};

// Behind what a loop does, where its own memory is.
Stmt appended(const Stmt& body, const std::vector<Stmt>& added) {
  if (const auto* allocate = body.as<Allocate>()) return with_body(*allocate, appended(allocate->body, added));
  std::vector<Stmt> all{body};
  all.insert(all.end(), added.begin(), added.end());
  return seq(std::move(all));
}

Buffer beside(const Func& f, const Buffer& buffer, const std::string& suffix) {
  BufferNode node = *buffer.get();
  node.name = unique_buffer_name(f, buffer->name + suffix);
  return Buffer(std::move(node));
}

}  // namespace

void Schedule::online(const BlockRef& ref, const LoopRef& loop_ref) {
  ScheduleEdit edit(*this, "online", ref, loop_ref);
  const For& loop = edit.loop(loop_ref);
  const Path loop_path = edit.path(loop_ref);
  const Parting parting = parting_of(loop_path, edit.path(ref));
  if (!parting.list || parting.first >= parting.second)
    edit.refuse("block " + quoted(ref.name) + " is not behind loop " + quoted(loop_ref.name()), edit.path(ref).back(),
                "choose the loop that makes the parts");
  const size_t shared = parting.common.size();
  const auto stage = [&](const std::string& name) {
    const Parting own = parting_of(loop_path, edit.path(BlockRef{name}));
    if (own.list != parting.list || own.second <= parting.first)
      edit.refuse("block " + quoted(name) + " does not follow loop " + quoted(loop_ref.name()),
                  edit.path(BlockRef{name}).back(), "reverse_compute_at moves it there");
    return Stage(edit, name, loop, shared);
  };

  // T, E, and the sums.
  Stage top = stage(ref.name);
  const auto largest = as_reduction(top.block());
  const auto* parts = largest ? largest->value.as<Load>() : nullptr;
  const auto* lowest = largest && largest->identity.is_defined() ? largest->identity.as<FloatImm>() : nullptr;
  if (!parts || !is_maximum(top.block()) || !lowest || lowest->value != -std::numeric_limits<double>::infinity())
    top.refuse("is no maximum of what parts have", "name a reduction with an init that takes maxima of one buffer");
  const Expr of_top = top.reduced();
  top.number_parts(of_top);
  const auto numbered = std::find_if(parts->indices.begin(), parts->indices.end(),
                                     [&](const Expr& index) { return index.get() == of_top.get(); });
  if (numbered == parts->indices.end()) top.refuse("reads parts by a computed number", "number the parts plainly");
  std::vector<const Block*> readers = readers_of(func_.body, largest->buffer);
  std::erase(readers, &top.block());
  if (readers.size() != 1) top.refuse("has other readers than one block", "parts alone use their maximum");
  Stage share = stage(readers[0]->name);
  const auto power = share_of(share.block(), parts->buffer, largest->buffer);
  if (!power) share.refuse("is no e^(part - max(largest, constant))", "online joins the parts of a softmax");
  share.number_parts(power->part->indices[static_cast<size_t>(numbered - parts->indices.begin())]);
  const Buffer factor = share.block().body.as<Store>()->buffer;
  std::vector<Stage> sums;
  for (const Block* reader : readers_of(func_.body, factor)) {
    sums.push_back(stage(reader->name));
    const auto sum = as_reduction(*reader);
    const auto factors = factors_of(sum, factor);
    const auto* start = sum && sum->identity.is_defined() ? sum->identity.as<FloatImm>() : nullptr;
    bool is_sum = factors && start && start->value == 0 && is_addition(*reader);
    if (is_sum)
      visit(factors->other, [&](const Load& l) { is_sum &= l.buffer != factor && l.buffer != largest->buffer; });
    if (!is_sum)
      sums.back().refuse("is no sum of " + quoted(factor->name) + " times something",
                         "such sums alone can be rescaled");
    sums.back().number_parts(sums.back().reduced());
    only_writer(edit, sum->buffer);
  }
  only_writer(edit, largest->buffer);
  only_writer(edit, factor);

  // What moves, in order, and what begins it.
  const Buffer before = beside(func_, largest->buffer, "_before"), rescale = beside(func_, largest->buffer, "_rescale");
  const auto of = [&](const Buffer& buffer, const Load& place) { return load(buffer, place.indices); };
  std::vector<Stmt> inits, moved;
  std::vector<const Block*> movers{&top.block(), &share.block()};
  const auto* maximum = top.block().body.as<Store>();
  inits.push_back(top.nest_without_part(unique_block_name(func_, ref.name + "_init"), Stmt(top.block().init)));
  moved.push_back(top.nest_without_part(unique_block_name(func_, before->name),
                                        store(before, maximum->indices, load(largest->buffer, maximum->indices))));
  BlockEdit running(top.block());
  running.init = Stmt();
  moved.push_back(top.nest(running));
  // The factor of what there was is that of a part whose largest is the largest so far.
  const auto* place_of_share = share.block().body.as<Store>();
  const Expr kept = rewrite_bottom_up(place_of_share->value, [&](const Load& l) -> Expr {
    return l.buffer == parts->buffer ? of(before, *power->largest) : Expr();
  });
  moved.push_back(
      share.nest_without_part(unique_block_name(func_, rescale->name), store(rescale, power->largest->indices, kept)));
  moved.push_back(share.nest(BlockEdit(share.block())));
  for (const Stage& sum : sums) {
    const Block& block = sum.block();
    movers.push_back(&block);
    inits.push_back(sum.nest_without_part(unique_block_name(func_, block.name + "_init"), block.init));
    const auto reduction = *as_reduction(block);
    // The row of E that the sum reads, without the part, numbers T's rows.
    const Load* read = factors_of(reduction, factor)->share;
    Substitution rows;
    for (size_t d = 0; d < read->indices.size(); ++d)
      if (place_of_share->indices[d].kind() == NodeKind::Var)
        rows[Var::of(place_of_share->indices[d])] = read->indices[d];
    std::vector<Expr> row;
    for (const Expr& index : power->largest->indices) row.push_back(substitute(index, rows));
    BlockEdit scaled(block);
    scaled.init = Stmt();
    scaled.body =
        store(reduction.buffer, reduction.indices,
              reduction.combine(load(reduction.buffer, reduction.indices) * load(rescale, row), reduction.value));
    moved.push_back(sum.nest(scaled));
  }

  // What stays behind the loop meets nothing that moves.
  std::vector<Buffer> read, written;
  for (const Block* block : movers) {
    const Stmt s = edit.path(BlockRef{block->name}).back();
    for (const Buffer& b : buffers_read(s)) read.push_back(b);
    for (const Buffer& b : buffers_written(s)) written.push_back(b);
  }
  Stmt body = func_.body;
  for (const Block* block : movers) body = replace_node(body, path_to_block(body, block->name).back().get(), Stmt());
  for (size_t n = parting.first + 1; n < parting.list->statements.size(); ++n) {
    const Stmt& rest = parting.list->statements[n];
    const std::vector<const Block*> blocks = blocks_in(rest);
    const bool moves = std::any_of(blocks.begin(), blocks.end(), [&](const Block* b) {
      return std::find(movers.begin(), movers.end(), b) != movers.end();
    });
    std::vector<Buffer> inputs = read;
    std::erase_if(inputs,
                  [&](const Buffer& b) { return std::find(written.begin(), written.end(), b) != written.end(); });
    if (!moves && writes_any(rest, inputs))
      edit.refuse("a statement behind loop " + quoted(loop_ref.name()) + " writes what the parts' sums read", rest,
                  "move that statement's block first");
  }
  {
    const For& target = *path_to_loop(body, loop_ref.var).back().as<For>();
    std::vector<Buffer> made = buffers_written(target.body);
    made.push_back(factor);
    const Stmt outside = replace_node(body, &target, Stmt());
    const bool is_used_elsewhere =
        reads_any(outside, made) ||
        std::any_of(made.begin(), made.end(), [&](const Buffer& b) { return func_.is_parameter(b); });
    const Expr some = is_used_elsewhere ? Expr() : iterations_that_see(body, target, parts->buffer);
    inits.push_back(make_stmt<For>(target.var, some.is_defined() ? min(target.extent, some) : target.extent,
                                   target.loop_kind, appended(target.body, moved), target.thread, target.attributes,
                                   target.span));
    body = replace_node(body, &target, seq(std::move(inits)));
  }
  // A part is made in its iteration.
  const std::vector<const For*> around = loops_of(path_to_loop(body, loop_ref.var));
  std::vector<Var> fixed;
  for (const For* l : around)
    if (!(l->var == loop_ref.var)) fixed.push_back(l->var);
  const std::vector<Access> accesses = accesses_in(around.back()->body, around);
  for (const Access& mine : accesses) {
    const auto is_mover = [&](const Access& a) {
      return a.block &&
             std::any_of(movers.begin(), movers.end(), [&](const Block* b) { return b->name == a.block->name; });
    };
    if (mine.is_write || !is_mover(mine)) continue;
    for (const Access& other : accesses) {
      if (other.buffer != mine.buffer || !other.is_write || is_mover(other) || other.buffer == before ||
          other.buffer == rescale)
        continue;
      const auto equal = proven_equal(other, mine, {around.back()}, fixed);
      if (equal.empty())
        edit.refuse("block " + quoted(mine.block->name) + " reads " + quoted(mine.buffer->name) +
                        " of another part than loop " + quoted(loop_ref.name()) + " has made",
                    Stmt(), "number the parts by that loop");
    }
  }
  for (const Buffer& added : {before, rescale}) body = allocate_in_loop(body, added, loop_ref.var);
  // Parts that nothing outside of the loop uses any more live in it.
  read.push_back(factor);
  for (const Buffer& part : read) {
    if (func_.is_parameter(part)) continue;
    const For& target = *path_to_loop(body, loop_ref.var).back().as<For>();
    const Stmt outside = replace_node(body, &target, Stmt());
    const Path allocation = path_to_allocation(body, part);
    if (allocation.empty() || reads_any(outside, {part}) || writes_any(outside, {part})) continue;
    if (!path_to_allocation(Stmt(target.body), part).empty()) continue;
    body = allocate_in_loop(remove_allocation(body, part), part, loop_ref.var);
  }
  edit.commit(body);
}

}  // namespace tw
