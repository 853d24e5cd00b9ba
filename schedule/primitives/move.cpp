#include "schedule/primitives/move.h"

#include <algorithm>

#include "tensor_ir/structural.h"

namespace tw {
namespace {

bool is_in(const std::vector<Buffer>& list, const Buffer& buffer) {
  return std::find(list.begin(), list.end(), buffer) != list.end();
}

// Loops are called as the iteration variables, which by custom begin with a v.
std::string loop_name(const std::string& iter) {
  return iter.size() > 1 && iter[0] == 'v' ? iter.substr(1) : iter;
}

// v // k and v % k in two dimensions, as blocked layouts have them.
struct Digits {
  size_t quotient, remainder;
  int64_t divisor;
};
std::optional<Digits> digits_of(const std::vector<Expr>& indices, const Var& v) {
  for (size_t d = 0; d < indices.size(); ++d) {
    const auto* q = indices[d].as<Binary>();
    if (!q || q->op != BinaryOp::floor_div || !q->a.is_same(v)) continue;
    for (size_t e = 0; e < indices.size(); ++e) {
      const auto* r = indices[e].as<Binary>();
      if (r && r->op == BinaryOp::floor_mod && r->a.is_same(v) && as_int(q->b) && as_int(q->b) == as_int(r->b)) {
        return Digits{d, e, *as_int(q->b)};
      }
    }
  }
  return std::nullopt;
}

}  // namespace

Move::Move(const ScheduleEdit& edit, const BlockRef& block_ref, const LoopRef& loop_ref)
    : block_path(edit.path(block_ref)),
      loop_path(edit.path(loop_ref)),
      here(block_path.back()),
      block(*here.as<Block>()),
      loop(*loop_path.back().as<For>()),
      around(loops_of(loop_path)),
      ranges(ranges_of(around)) {
  edit.require_regular(block_ref);
  if (loop.loop_kind == LoopKind::vectorized)
    edit.refuse("a block cannot run inside of lanes", loop_path.back(), "choose the loop around the vectorized one");
  for (const For* l : around) outer.push_back(l->var);
}

void check_in_scope(const ScheduleEdit& edit, const Move& move, const Stmt& body, const std::string& help) {
  const auto missing = out_of_scope(edit.func, move.here, path_to_block(body, move.block.name));
  if (missing.empty()) return;
  edit.refuse("block " + quoted(move.block.name) + " uses " + quoted(missing[0]->name) +
                  ", which exists only where the block is now",
              move.here, help);
}

bool is_whole(const SymbolicRange& range, const Expr& extent) {
  return is_const_int(range.base, 0) && structural_equal(range.extent, extent);
}

bool is_within(const SymbolicRange& inner, const SymbolicRange& outer, const Assumptions& assumptions) {
  return can_prove(inner.base >= outer.base, assumptions) &&
         can_prove(inner.base + inner.extent <= outer.base + outer.extent, assumptions);
}

namespace {

// Σ own loops without gaps: coefficients 1, e₀, e₀e₁, …
bool is_dense(const Expr& binding, const std::vector<const For*>& own) {
  std::vector<std::pair<int64_t, int64_t>> parts;  // coefficient, extent
  for (const auto& [atom, coefficient] : linear_form(binding).terms) {
    const auto uses = std::count_if(own.begin(), own.end(), [&](const For* l) { return uses_var(atom, l->var); });
    if (uses == 0) continue;
    const auto loop = std::find_if(own.begin(), own.end(), [&](const For* l) { return l->var.is_same(atom); });
    if (loop == own.end()) return false;
    const auto extent = as_int((*loop)->extent);
    if (!extent) return false;
    if (*extent > 1) parts.emplace_back(coefficient, *extent);
  }
  std::sort(parts.begin(), parts.end());
  int64_t next = 1;
  for (const auto& [coefficient, extent] : parts) {
    if (coefficient != next) return false;
    next *= extent;
  }
  return true;
}

}  // namespace

OwnIterations own_iterations(const ScheduleEdit& edit, const Block& block, const std::vector<const For*>& outer,
                             const std::vector<const For*>& own) {
  const Assumptions ranges = ranges_of(outer);
  Assumptions all = ranges;
  for (const For* l : own) all.bind_range(l->var, l->extent);
  const Stmt here = edit.path(BlockRef{block.name}).back();
  auto uses_outer = [&](const Expr& e) {
    return std::any_of(outer.begin(), outer.end(), [&](const For* l) { return uses_var(e, l->var); });
  };
  bool is_partial = false;
  OwnIterations result;
  for (const IterVar& iter : block.iters) {
    if (!uses_outer(iter.binding)) {
      result.ranges.push_back({0, iter.extent});
      continue;
    }
    is_partial = true;
    const Expr binding = simplify(iter.binding, all);
    const auto range = range_of(binding, extents_of(own), ranges);
    if (iter.kind == IterKind::reduce || !range || !is_dense(binding, own)) {
      edit.refuse("in one iteration of the loops that block " + quoted(block.name) + " shares, its " +
                      quoted(iter.var.name()) + " does not run over one piece",
                  here, "move the block before its loops are reordered or fused");
    }
    result.ranges.push_back(*range);
  }
  for (const Expr& c : conjuncts(block.predicate)) {
    const bool is_of_domain = std::any_of(block.iters.begin(), block.iters.end(), [&](const IterVar& iter) {
      return structural_equal(c, simplify(iter.binding < iter.extent, all)) ||
             structural_equal(c, iter.binding < iter.extent) || structural_equal(c, simplify(iter.binding >= 0, all)) ||
             structural_equal(c, iter.binding >= 0);
    });
    if (is_of_domain) continue;
    const bool is_outer = uses_outer(c);
    const bool is_own = std::any_of(own.begin(), own.end(), [&](const For* l) { return uses_var(c, l->var); });
    if (is_outer && !is_own) {
      result.guard = and_also(result.guard, c);
    } else if (is_outer || is_partial) {
      edit.refuse("the loops of block " + quoted(block.name) + " were split unevenly more than once", here,
                  "move the block before its loops are split further");
    }
  }
  return result;
}

Parting parting_of(const Path& first, const Path& second) {
  Parting parting;
  size_t i = 0;
  while (i < first.size() && i < second.size() && first[i].is_same(second[i])) {
    if (const auto* loop = first[i].as<For>()) parting.common.push_back(loop);
    ++i;
  }
  if (i == 0 || i >= first.size() || i >= second.size()) return parting;
  const auto* list = first[i - 1].as<Seq>();
  if (!list) return parting;
  parting.list = list;
  for (size_t n = 0; n < list->statements.size(); ++n) {
    if (list->statements[n].is_same(first[i])) parting.first = n;
    if (list->statements[n].is_same(second[i])) parting.second = n;
  }
  return parting;
}

Stmt block_over(const Block& block, const std::vector<SymbolicRange>& ranges, const Assumptions& assumptions,
                const OwnIterations& limits) {
  BlockEdit edit(block);
  std::vector<NewLoop> loops;
  Assumptions inner = assumptions;
  Expr predicate;
  for (size_t i = 0; i < edit.iters.size(); ++i) {
    IterVar& iter = edit.iters[i];
    const Var var(loop_name(iter.var.name()));
    const bool is_all = is_whole(ranges[i], iter.extent);
    const Expr extent = is_all ? iter.extent : ranges[i].extent;
    loops.push_back({var, extent});
    inner.bind_range(var, extent);
    iter.binding = is_all ? Expr(var) : simplify(ranges[i].base + var, inner);
    auto require = [&](const Expr& condition) {
      const Expr simple = simplify(condition, inner);
      if (!can_prove(simple, inner)) predicate = and_also(predicate, simple);
    };
    if (i < limits.ranges.size() && !is_whole(limits.ranges[i], iter.extent)) {
      require(iter.binding >= limits.ranges[i].base);
      require(iter.binding < limits.ranges[i].base + limits.ranges[i].extent);
    }
    if (is_all) continue;
    if (!can_prove(iter.binding >= 0, inner)) predicate = and_also(predicate, iter.binding >= 0);
    if (!can_prove(iter.binding < iter.extent, inner)) predicate = and_also(predicate, iter.binding < iter.extent);
  }
  edit.predicate = and_also(limits.guard, predicate);
  return wrap_in_loops(loops, edit.make());
}

NeededIterations iterations_for(const Block& block, const std::vector<Expr>& given, const Buffer& buffer,
                                const std::vector<SymbolicRange>& region, const Assumptions& assumptions) {
  Assumptions of_iters;
  for (const IterVar& iter : block.iters) of_iters.bind_range(iter.var, iter.extent);
  std::vector<Expr> indices;
  for (const Expr& index : given) indices.push_back(simplify(index, of_iters));
  std::vector<bool> is_settled(indices.size());
  NeededIterations result;
  for (const IterVar& iter : block.iters) {
    SymbolicRange range{0, iter.extent};
    for (size_t d = 0; d < indices.size(); ++d) {
      if (is_settled[d]) continue;
      const LinearForm form = linear_form(indices[d]);
      if (form.terms.size() != 1 || form.terms[0].second != 1 || !form.terms[0].first.is_same(iter.var)) continue;
      is_settled[d] = true;
      if (is_whole(region[d], buffer->shape[d])) break;  // then every value of the iteration
      range = {simplify(region[d].base - form.constant, assumptions), region[d].extent};
      break;
    }
    if (const auto digits = digits_of(indices, iter.var)) {
      const SymbolicRange &high = region[digits->quotient], &low = region[digits->remainder];
      const Expr k = digits->divisor;
      if (is_const_int(low.base, 0) && is_const_int(low.extent, digits->divisor)) {
        if (!is_whole(high, buffer->shape[digits->quotient]))
          range = {simplify(high.base * k, assumptions), simplify(high.extent * k, assumptions)};
        is_settled[digits->quotient] = is_settled[digits->remainder] = true;
      } else if (is_const_int(high.extent, 1)) {
        range = {simplify(high.base * k + low.base, assumptions), low.extent};
        is_settled[digits->quotient] = is_settled[digits->remainder] = true;
      } else if (!is_whole(high, buffer->shape[digits->quotient])) {
        range = {simplify(high.base * k, assumptions), simplify(high.extent * k, assumptions)};
      }
    }
    const auto extent = as_int(range.extent), full = as_int(iter.extent);
    if (iter.kind == IterKind::reduce || (extent && full && *extent >= *full)) {
      if (!is_whole(range, iter.extent)) result.is_exact = false;
      range = {0, iter.extent};
    }
    result.ranges.push_back(range);
  }
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!is_settled[d] && !is_whole(region[d], buffer->shape[d])) result.is_exact = false;
  }
  return result;
}

const Block& only_writer(const ScheduleEdit& edit, const Buffer& buffer) {
  const auto writers = writers_of(edit.func.body, buffer);
  if (writers.size() != 1) {
    std::string names;
    for (const Block* w : writers) names += (names.empty() ? "" : ", ") + quoted(w->name);
    edit.refuse("buffer " + quoted(buffer->name) +
                    (writers.empty() ? " is written by no block" : " is written by several blocks: " + names),
                Stmt(),
                "apply " + edit.primitive + " before decompose_reduction and to buffers that one block computes");
  }
  size_t stores = 0, inside = 0;
  auto count = [&](size_t& n) { return [&](const Store& s) { n += s.buffer == buffer; }; };
  visit(edit.func.body, count(stores));
  visit(writers[0]->body, count(inside));
  visit(writers[0]->init, count(inside));
  if (stores != inside) {
    edit.refuse("buffer " + quoted(buffer->name) + " is also written by statements outside of blocks", Stmt(),
                "only blocks can be moved");
  }
  return *writers[0];
}

bool reads_any(const Stmt& s, const std::vector<Buffer>& buffers) {
  bool found = false;
  visit(s, [&](const Load& l) { found |= is_in(buffers, l.buffer); });
  return found;
}

bool writes_any(const Stmt& s, const std::vector<Buffer>& buffers) {
  bool found = false;
  visit(s, [&](const Store& st) { found |= is_in(buffers, st.buffer); });
  return found;
}

namespace {
Stmt insert_into(const Stmt& body, const Stmt& block, const std::function<size_t(const std::vector<Stmt>&)>& place) {
  if (const auto* allocate = body.as<Allocate>())
    return with_body(*allocate, insert_into(allocate->body, block, place));
  std::vector<Stmt> children;
  if (const auto* list = body.as<Seq>())
    children = list->statements;
  else
    children = {body};
  children.insert(children.begin() + static_cast<std::ptrdiff_t>(place(children)), block);
  return seq(std::move(children));
}
}  // namespace

Stmt insert_before_use(const Stmt& body, const std::vector<Buffer>& read, const Stmt& block) {
  return insert_into(body, block, [&](const std::vector<Stmt>& children) {
    size_t n = 0;
    while (n < children.size() && !reads_any(children[n], read)) ++n;
    return n;
  });
}

Stmt insert_after_writers(const Stmt& body, const std::vector<Buffer>& written, const Stmt& block) {
  return insert_into(body, block, [&](const std::vector<Stmt>& children) {
    size_t n = children.size();
    while (n > 0 && !writes_any(children[n - 1], written)) --n;
    return n;
  });
}

std::vector<Buffer> out_of_scope(const Func& f, const Stmt& user, const Path& path) {
  std::vector<Buffer> used = buffers_read(user), missing;
  for (const Buffer& b : buffers_written(user)) used.push_back(b);
  std::vector<Buffer> own;
  visit(user, [&](const Allocate& a) { own.push_back(a.buffer); });
  for (const Buffer& buffer : used) {
    const bool is_around = std::any_of(path.begin(), path.end(), [&](const Stmt& s) {
      const auto* allocate = s.as<Allocate>();
      return allocate && allocate->buffer == buffer;
    });
    if (!is_around && !f.is_parameter(buffer) && !is_in(own, buffer) && !is_in(missing, buffer))
      missing.push_back(buffer);
  }
  return missing;
}

}  // namespace tw
