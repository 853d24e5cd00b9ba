// skip_padding("C", k)
//
//   for w in 0..16 { block P(spatial v: 16 = w) { P[v] = X[v - 4 where 0 <= v - 4 && v - 4 < 8] } }
//   for i0 in 0..2 { for k in 0..3 { for i1 in 0..4 {
//     block C(spatial v: 8 = i0 * 4 + i1, reduce r: 3 = k) { C[v] = C[v] + P[v + r * 4] * W[r] } } } }
// ⇒
//   for w in 0..14 { block P(spatial v: 16 = w + 1) … }
//   … block C(…) where 0 < i0 + k && i0 + k < 3 { … }
//
// Terms for which all iterations inside of the loop read padding, which adds zero, do not run.  Legal for a sum of
// products that begins elsewhere (decompose_reduction): one factor is a copy with zeros around it, the other one a
// constant, whose elements are finite.  What no term reads any more is not copied either, where the copy has a loop of
// its own along the dimension and nobody else reads it: here elements 1 to 14, which share a term with one inside.
#include <algorithm>

#include "schedule/primitives/cache.h"
#include "schedule/primitives/rebind.h"
#include "tensor_ir/arith/slack.h"
#include "tensor_ir/match.h"
#include "tensor_ir/passes/skip_iterations.h"

namespace tw {
namespace {

// Where this does not hold the value is zero; not defined: it may be anything.
Expr nonzero_where(const Expr& value) {
  if (const auto* cast = value.as<Cast>()) return nonzero_where(cast->value);
  if (const auto* load = value.as<Load>()) return load->predicate;
  const auto* select = value.as<Select>();
  const auto number = select ? as_float(select->else_value) : std::nullopt;
  return number == 0.0 ? select->condition : Expr();
}

// The only block that writes the buffer, if it writes zeros under a condition.
const Block* padding_of(const Stmt& root, const Buffer& buffer) {
  const auto writers = writers_of(root, buffer);
  if (writers.size() != 1 || writers[0]->init.is_defined()) return nullptr;
  const auto* store = writers[0]->body.as<Store>();
  return store && nonzero_where(store->value).is_defined() ? writers[0] : nullptr;
}

struct PaddedProduct {
  const Load* padded = nullptr;
  const Block* padding = nullptr;
};

std::optional<PaddedProduct> find_padded_product(const Func& func, const Block& block) {
  const auto factors = factors_of(block);
  for (size_t i = 0; i < factors.size(); ++i) {
    const Block* copy = padding_of(func.body, factors[i]->buffer);
    if (copy && !func.is_parameter(factors[i]->buffer) && factors[1 - i]->buffer->is_constant)
      return PaddedProduct{factors[i], copy};
  }
  return std::nullopt;
}

// Elements of the copy along one of its iterations that are still read: from `begin` on, up to `end`; not defined: all.
struct Read {
  Var iteration;
  Expr begin, end;
};

// What `slack`, which is at least -span where the copy is read, says of the copy's iterations.
std::optional<Read> read_where(const Block& copy, const Expr& slack, int64_t span) {
  Read read;
  for (const IterVar& iter : copy.iters) {
    if (!uses_var(slack, iter.var)) continue;
    if (read.iteration.is_defined()) return std::nullopt;
    read.iteration = iter.var;
  }
  if (!read.iteration.is_defined()) return std::nullopt;
  const auto step = as_int(simplify(substitute(slack, {{read.iteration, read.iteration + 1}}) - slack));
  if (step == 1) read.begin = simplify(read.iteration - slack - span);
  if (step == -1) read.end = simplify(slack + read.iteration + span + 1);
  return read;
}

// Both ends of what is read along an iteration together.
std::vector<Read> merged(const std::vector<Read>& reads) {
  std::vector<Read> result;
  for (const Read& read : reads) {
    const auto known =
        std::find_if(result.begin(), result.end(), [&](const Read& r) { return r.iteration == read.iteration; });
    if (known == result.end()) {
      result.push_back(read);
    } else {
      if (read.begin.is_defined()) known->begin = read.begin;
      if (read.end.is_defined()) known->end = read.end;
    }
  }
  return result;
}

// The copy's own loop along the iteration; null where there is none.
const For* own_loop_of(const Stmt& root, const Block& copy, const IterVar& iter) {
  const Path path = path_to_block(root, copy.name);
  for (const For* loop : loops_of(path)) {
    if (!iter.binding.is_same(loop->var)) continue;
    int blocks = 0;
    visit(loop->body, [&](const Block&) { ++blocks; });
    const bool is_own = std::none_of(copy.iters.begin(), copy.iters.end(), [&](const IterVar& other) {
      return !(other.var == iter.var) && uses_var(other.binding, loop->var);
    });
    return blocks == 1 && is_own && !uses_var(copy.predicate, loop->var) && is_known_equal(loop->extent, iter.extent)
               ? loop
               : nullptr;
  }
  return nullptr;
}

// The copy's loop along the iteration runs over what is read only.
Stmt narrowed(const Stmt& root, const std::string& name, const Read& read) {
  const Block& copy = *path_to_block(root, name).back().as<Block>();
  const auto iter =
      std::find_if(copy.iters.begin(), copy.iters.end(), [&](const IterVar& i) { return i.var == read.iteration; });
  const For* loop = own_loop_of(root, copy, *iter);
  if (!loop) return root;
  const bool has_begin = read.begin.is_defined() && can_prove(read.begin >= 0);
  const bool has_end = read.end.is_defined() && can_prove(read.end <= iter->extent);
  if (!has_begin && !has_end) return root;
  const Expr begin = has_begin ? read.begin : Expr(0), end = has_end ? read.end : iter->extent;
  BlockEdit changed(copy);
  changed.iters[static_cast<size_t>(iter - copy.iters.begin())].binding = simplify(loop->var + begin);
  changed.attributes[partial_attribute] = int64_t{1};
  const Stmt body = replace_node(loop->body, &copy, changed.make());
  return replace_node(root, loop,
                      make_stmt<For>(loop->var, simplify(end - begin), loop->loop_kind, body, loop->thread,
                                     loop->attributes, loop->span));
}

}  // namespace

bool Schedule::has_padding(const BlockRef& block) const {
  return find_padded_product(func_, node(block)).has_value();
}

void Schedule::skip_padding(const BlockRef& ref, const LoopRef& loop_ref) {
  ScheduleEdit edit(*this, "skip_padding", ref, loop_ref);
  const Block& block = edit.block(ref);
  const Path path = edit.path(ref);
  const Stmt here = path.back();
  const For& loop = edit.loop(loop_ref);
  const auto loops = loops_of(path);
  const auto at = std::find(loops.begin(), loops.end(), &loop);
  if (at == loops.end())
    edit.refuse("loop " + quoted(loop_ref.name()) + " is not around block " + quoted(ref.name), here,
                "choose one of loops(\"" + ref.name + "\")");
  if (block.init.is_defined())
    edit.refuse("block " + quoted(ref.name) + " begins its sums itself", here, "decompose_reduction first");
  if (factors_of(block).empty())
    edit.refuse("block " + quoted(ref.name) + " is no sum of products", here, "only these have terms");
  const auto product = find_padded_product(func_, block);
  if (!product)
    edit.refuse("block " + quoted(ref.name) + " multiplies no padded copy by a constant", here,
                "a copy is P[…] = X[… where …], a constant is a parameter like that");
  const auto& [padded, padding] = *product;

  // An element of the copy by the block's loops, where the copy's iteration variables are indices themselves.
  const auto* copied = padding->body.as<Store>();
  const Substitution bindings = bindings_of(block);
  Substitution element;
  for (const IterVar& iter : padding->iters) {
    for (size_t d = 0; d < copied->indices.size(); ++d)
      if (copied->indices[d].is_same(iter.var)) element[iter.var] = substitute(padded->indices[d], bindings);
  }
  const Assumptions ranges = ranges_of(loops);
  const std::vector<const For*> inner(at + 1, loops.end());
  Expr predicate = block.predicate;
  std::vector<Var> skipping;
  std::vector<Read> reads;  // of the copy
  for (const Expr& condition : conjuncts(nonzero_where(copied->value))) {
    const std::vector<Var> vars = free_vars(condition);
    const auto is_known = [&](const Var& v) {
      const auto is_it = [&](const IterVar& iter) { return iter.var == v; };
      return element.count(v) || std::none_of(padding->iters.begin(), padding->iters.end(), is_it);
    };
    const auto slack = slack_of(condition);
    if (!slack || !std::all_of(vars.begin(), vars.end(), is_known)) continue;
    const auto within = extremes_within(simplify(substitute(*slack, element), ranges), inner, ranges);
    if (!within || can_prove(within->most >= 0, ranges)) continue;
    predicate = and_also(predicate, simplify(Expr(0) <= within->most, ranges));
    for (auto l = loops.begin(); l != at + 1; ++l)
      if (is_reduce_loop(block, (*l)->var) && uses_var(within->most, (*l)->var)) skipping.push_back((*l)->var);
    const auto span = as_int(simplify(within->most - within->least, ranges));
    if (const auto read = span ? read_where(*padding, *slack, *span) : std::nullopt) reads.push_back(*read);
  }
  BlockEdit changed(block);
  changed.predicate = predicate;
  Stmt body = replace_node(func_.body, &block, changed.make());
  for (const Var& var : skipping) {
    const Path to_loop = path_to_loop(body, var);
    const auto& old = *to_loop.back().as<For>();
    Attributes attributes = old.attributes;
    attributes[skip_iterations_attribute] = int64_t{1};
    body = replace_node(body, &old,
                        make_stmt<For>(old.var, old.extent, old.loop_kind, old.body, old.thread, attributes, old.span));
  }
  if (readers_of(body, padded->buffer).size() == 1) {
    for (const Read& read : merged(reads)) body = narrowed(body, padding->name, read);
  }
  edit.commit(body);
}

}  // namespace tw
