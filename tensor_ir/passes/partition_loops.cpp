// Guards of tiles that do not divide (conditions of statements, of values that are chosen, of loads) hold in all tiles
// but the last: that one gets code of its own, and the others none.
//
//   for i in 0..37 {                                         for i in 0..36 { for j in 0..14 unrolled { S(i, j) } }
//     for j in 0..14 unrolled {                        ⇒     for j in 0..14 unrolled { if (36*14 + j < 512) S(36, j) }
//       if (i*14 + j < 512) S(i, j) } }
//
// In the tail the tile's number is a constant, so once its loops are unrolled its guards are constants too, and vectors
// get constant masks.  A parallel loop stays one loop, and so does a loop that runs several dimensions of tiles at
// once: an If on the tile chooses between the two bodies.  The first iteration of a reduction that initialises is
// peeled likewise.
//
// Where the number of rows is known only when the kernel runs, the tail has a copy for each number that may be left, so
// that a partial tile costs no more than its own rows:
//
//   if (i*4 <= n - 4) { whole tile }
//   else if (n - i*4 == 1) { tile of 1 row } else if (n - i*4 == 2) { … } else { tile of 3 rows }
//
// Of rows that are lanes, a copy for each number of vectors, of which the last is masked.  Where that tile is several
// register tiles and what lies around them, the copies are of each register tile.
//
// A loop that may have tiles beyond these rows ends before them:
//
//   for i in 0..24 { … }   ⇒   for i in 0..min(24, (n + 3) // 4) { … }
//
// A guard belongs to the innermost loop that moves its tile.  Each partition copies that loop's body, so there are at
// most two for one body, and none where the copies would be too much code: guards then stay as they are.
#include <algorithm>
#include <set>
#include <utility>

#include "runtime/rounding.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"
#include "tensor_ir/passes/conjunction.h"
#include "tensor_ir/passes/folding.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/passes/skip_iterations.h"
#include "tensor_ir/structural.h"

namespace tw {
namespace {

// Stores, as vectors and unrolled, in all copies of one body, those in copies of what is around it included.
constexpr int64_t most_copied_stores = 4096;
constexpr int most_guards_of_a_body = 2;
constexpr int64_t most_open_rows = 32;  // of a tile that gets a copy for each number of rows

// constant + Σ coefficient·atom
struct Linear {
  int64_t constant = 0;
  std::vector<std::pair<Expr, int64_t>> terms;

  void add(const Expr& atom, int64_t coefficient) {
    for (auto term = terms.begin(); term != terms.end(); ++term) {
      if (!structural_equal(term->first, atom)) continue;
      term->second += coefficient;
      if (term->second == 0) terms.erase(term);
      return;
    }
    terms.emplace_back(atom, coefficient);
  }

  void add_sum(const Expr& e, int64_t scale) {
    if (const auto value = as_int(e)) {
      constant += scale * *value;
      return;
    }
    if (const auto* b = e.as<Binary>()) {
      if (b->op == BinaryOp::add || b->op == BinaryOp::sub) {
        add_sum(b->a, scale);
        return add_sum(b->b, b->op == BinaryOp::add ? scale : -scale);
      }
      if (b->op == BinaryOp::mul) {
        if (const auto factor = as_int(b->b)) return add_sum(b->a, scale * *factor);
        if (const auto factor = as_int(b->a)) return add_sum(b->b, scale * *factor);
      }
    }
    add(e, scale);
  }

  bool operator==(const Linear& other) const {
    if (constant != other.constant || terms.size() != other.terms.size()) return false;
    return std::all_of(terms.begin(), terms.end(), [&](const auto& term) {
      return std::any_of(other.terms.begin(), other.terms.end(), [&](const auto& t) {
        return t.second == term.second && structural_equal(t.first, term.first);
      });
    });
  }
};

Expr to_expr(const Linear& linear) {
  Expr sum = 0;
  for (const auto& [atom, coefficient] : linear.terms) sum = sum + atom * coefficient;
  return sum + linear.constant;
}

// A condition `slack ≥ 0` of the tile's number that makes guards in the tile true everywhere.
struct TileCondition {
  Linear slack;
  bool is_first_iteration = false;        // the guards are `v == 0` instead
  int64_t lanes = 0;                      // some guards are of so many lanes of vectors, which are masked
  int64_t most_without_rows = INT64_MIN;  // the guards' slack without its terms: below 0, none holds for no rows
  std::vector<const ExprNode*> guards;
};

struct Body {
  std::unordered_map<const ExprNode*, int64_t> inner;  // loops of constant extent in it that run all iterations
  std::vector<const ExprNode*> bound;                  // every variable that it binds
  std::set<const ExprNode*> lanes;                     // of the loops those that are vectorized
};

bool uses_any(const Expr& e, const std::vector<const ExprNode*>& vars) {
  bool found = false;
  visit(e, [&](const VarNode& v) { found |= std::find(vars.begin(), vars.end(), &v) != vars.end(); });
  return found;
}

Body scan(const Stmt& s) {
  Body body;
  visit(
      s,
      [&](const For& loop) {
        body.bound.push_back(loop.var.get());
        const auto extent = as_int(loop.extent);
        if (extent && !loop.attributes.count(skip_iterations_attribute)) body.inner[loop.var.get()] = *extent;
        if (loop.loop_kind == LoopKind::vectorized) body.lanes.insert(loop.var.get());
      },
      [&](const LetStmt& let) { body.bound.push_back(let.var.get()); },
      [&](const Let& let) { body.bound.push_back(let.var.get()); });
  return body;
}

// A guard's slack by what it is of.
struct Split {
  Linear tile;       // without the loops within, which take the most from it
  int64_t most = 0;  // its constant, and the most that these loops add
  int64_t lanes = 0;
  bool has_inner = false;
  bool is_usable = true;
};

Split split_slack(const Linear& slack, const Body& body) {
  Split split;
  split.tile.constant = split.most = slack.constant;
  for (const auto& [atom, coefficient] : slack.terms) {
    if (const auto inner = body.inner.find(atom.get()); inner != body.inner.end()) {
      split.tile.constant += std::min<int64_t>(0, coefficient * (inner->second - 1));
      split.most += std::max<int64_t>(0, coefficient * (inner->second - 1));
      split.has_inner = true;
      if (body.lanes.count(atom.get())) split.lanes = std::max(split.lanes, inner->second);
    } else if (uses_any(atom, body.bound)) {
      split.is_usable = false;
    } else {
      split.tile.add(atom, coefficient);
    }
  }
  return split;
}

// The conditions of statements, of choices between values and of loads.
void for_each_guard(const Stmt& s, const std::function<void(const Expr& guard)>& use) {
  const auto use_parts = [&](const Expr& condition) {
    std::vector<Expr> parts;
    split_conjunction(condition, parts);
    for (const Expr& part : parts) use(part);
  };
  visit(
      s, [&](const If& branch) { use_parts(branch.condition); }, [&](const Select& e) { use_parts(e.condition); },
      [&](const Load& e) {
        if (e.predicate.is_defined()) use_parts(e.predicate);
      });
}

// Whether a vector is put together from elements that do not lie side by side in memory: narrow ones, which machines
// have no instruction for.
bool is_put_together(const Load& load, const Var& lane) {
  constexpr int64_t narrowest_gathered = 4;  // bytes
  if (load.buffer->scope == Scope::register_ || load.buffer->dtype.bytes() >= narrowest_gathered) return false;
  return std::ranges::any_of(load.indices, [&](const Expr& index) {
    Linear linear;
    linear.add_sum(index, 1);
    return std::ranges::any_of(linear.terms, [&](const auto& term) {
      return uses_var(term.first, lane) && !(term.first.is_same(lane) && term.second == 1);
    });
  });
}

// Stores as vectors, copied out as unrolled loops will be.  A vector that is put together, from its elements or from
// rows, is as much code as two more.
int64_t count_stores(const Stmt& s, const Var& lane = Var()) {
  int64_t count = s.kind() == NodeKind::Store ? 1 : 0;
  if (count == 1 && lane.is_defined())
    visit(s, [&](const Load& load) { count += is_put_together(load, lane) ? 2 : 0; });
  const auto* loop = s.as<For>();
  const bool is_vector = loop && loop->loop_kind == LoopKind::vectorized;
  for_each_child(
      s, [](const Expr&) {}, [&](const Stmt& child) { count += count_stores(child, is_vector ? loop->var : lane); });
  if (loop) {
    const int64_t extent = as_int(loop->extent).value_or(1);
    if (loop->loop_kind == LoopKind::unrolled) count *= std::max<int64_t>(1, extent);
    if (is_vector) count *= std::max<int64_t>(1, extent / 16);
  }
  return count;
}

Stmt replace_guards(const Stmt& s, const std::vector<const ExprNode*>& guards,
                    const std::function<Expr(const Expr&)>& replacement) {
  std::function<Expr(const Expr&)> condition = [&](const Expr& e) -> Expr {
    if (std::find(guards.begin(), guards.end(), e.get()) != guards.end()) return replacement(e);
    if (const auto* b = e.as<Binary>(); b && b->op == BinaryOp::logical_and) return condition(b->a) && condition(b->b);
    return e;
  };
  std::function<Expr(const Expr&)> value = [&](const Expr& e) -> Expr {
    Expr mapped = map_children(e, value);
    if (const auto* choice = mapped.as<Select>()) {
      const Expr replaced = condition(choice->condition);
      if (replaced.is_same(choice->condition)) return mapped;
      return select(replaced, choice->then_value, choice->else_value);
    }
    if (const auto* load = mapped.as<Load>(); load && load->predicate.is_defined()) {
      const Expr replaced = condition(load->predicate);
      if (replaced.is_same(load->predicate)) return mapped;
      return make_expr<Load>(load->dtype, load->buffer, load->indices, is_const_int(replaced, 1) ? Expr() : replaced);
    }
    return mapped;
  };
  std::function<Stmt(const Stmt&)> statement = [&](const Stmt& stmt) -> Stmt {
    Stmt mapped = map_children(stmt, value, statement);
    const auto* branch = mapped.as<If>();
    if (!branch) return mapped;
    const Expr replaced = condition(branch->condition);
    if (replaced.is_same(branch->condition)) return mapped;
    if (const auto constant = as_int(replaced)) {
      if (*constant) return branch->then_body;
      return branch->else_body.is_defined() ? branch->else_body : make_stmt<Seq>(std::vector<Stmt>{});
    }
    return make_stmt<If>(replaced, branch->then_body, branch->else_body);
  };
  return statement(s);
}

// Whether it does more than to ask for data ahead.
bool has_effect(const Stmt& s) {
  bool found = false;
  visit(
      s, [&](const Store&) { found = true; },
      [&](const Evaluate& evaluate) {
        const auto* call = evaluate.call.as<Call>();
        found |= !call || call->intrinsic != Intrinsic::prefetch;
      });
  return found;
}

// Places in the code, one beside the other, that keep something in registers.
int64_t count_register_tiles(const Stmt& s) {
  const auto* allocation = s.as<Allocate>();
  if (allocation && allocation->buffer->scope == Scope::register_) return 1;
  int64_t count = 0;
  for_each_child(s, [](const Expr&) {}, [&](const Stmt& child) { count += count_register_tiles(child); });
  return count;
}

Stmt replace_guards(const Stmt& s, const std::vector<const ExprNode*>& guards, bool value) {
  return replace_guards(s, guards, [&](const Expr&) { return bool_imm(value); });
}

// a < b or a <= b of i64, as slack ≥ 0.
std::optional<Linear> linear_slack_of(const Expr& guard) {
  const auto* comparison = guard.as<Binary>();
  if (!comparison || comparison->a.dtype() != i64) return std::nullopt;
  if (comparison->op != BinaryOp::lt && comparison->op != BinaryOp::le) return std::nullopt;
  Linear slack;
  slack.add_sum(comparison->b, 1);
  slack.add_sum(comparison->a, -1);
  if (comparison->op == BinaryOp::lt) slack.constant -= 1;
  return slack;
}

Stmt replace_expr(const Stmt& s, const Expr& from, const Expr& to) {
  std::function<Expr(const Expr&)> expression = [&](const Expr& e) -> Expr {
    if (e.kind() == from.kind() && structural_equal(e, from)) return to;
    return map_children(e, expression);
  };
  std::function<Stmt(const Stmt&)> statement = [&](const Stmt& stmt) {
    return map_children(stmt, expression, statement);
  };
  return statement(s);
}

class Partitioner {
 public:
  explicit Partitioner(const std::vector<Var>& parameters) : parameters_(parameters) {}

  Stmt operator()(const Stmt& s, const Assumptions& known) {
    if (const auto* loop = s.as<For>()) return partition(*loop, known);
    if (const auto* branch = s.as<If>()) {
      Assumptions then_known = known;
      then_known.assume(branch->condition);
      Stmt else_body = branch->else_body.is_defined() ? (*this)(branch->else_body, known) : Stmt();
      return make_stmt<If>(branch->condition, (*this)(branch->then_body, then_known), else_body);
    }
    return map_children(s, [](const Expr& e) { return e; }, [&](const Stmt& child) { return (*this)(child, known); });
  }

 private:
  Stmt partition(const For& whole, const Assumptions& outside) {
    Assumptions known = outside;
    const For loop = end_with_effects(whole, known);
    auto with_body = [&](const Stmt& body) {
      return make_stmt<For>(loop.var, loop.extent, loop.loop_kind, body, loop.thread, loop.attributes, loop.span);
    };
    // Copied out or made lanes soon: their guards belong to a loop further out, or are constants then.
    if (loop.loop_kind == LoopKind::unrolled || loop.loop_kind == LoopKind::vectorized)
      return with_body((*this)(loop.body, known));
    if (2 * count_stores(loop.body) > most_copied_stores) return with_body((*this)(loop.body, known));
    if (loop.loop_kind == LoopKind::serial) {
      for (const TileCondition& condition : find_conditions(loop.var, loop.body, known)) {
        if (condition.is_first_iteration) return peel_first(loop, condition, outside);
        const Stmt split = split_loop(loop, condition, outside);
        if (split.is_defined()) return split;
      }
    }
    return with_body(choose(loop.var, loop.body, known, {}, most_guards_of_a_body));
  }

  // The loop without the last iterations that do nothing, where a size that only the run knows says which these are; in
  // `known`, what holds in it.
  For end_with_effects(const For& loop, Assumptions& known) const {
    struct End {
      Linear left;  // rows, or what else there is, as the loop begins
      int64_t step = 1, most = 0;
      std::vector<const ExprNode*> guards;  // none holds where left + most < step·iteration
    };
    std::vector<End> ends;
    const Body body = scan(loop.body);
    const bool is_serial = loop.loop_kind == LoopKind::serial;
    if (is_serial) {
      for_each_guard(loop.body, [&](const Expr& guard) {
        const auto slack = linear_slack_of(guard);
        if (!slack) return;
        const Split split = split_slack(*slack, body);
        End end{split.tile, 1, split.most, {guard.get()}};
        end.left.constant = 0;
        const auto own = std::ranges::find_if(end.left.terms, [&](const auto& t) { return t.first.is_same(loop.var); });
        if (!split.is_usable || own == end.left.terms.end() || own->second >= 0) return;
        end.step = -own->second;
        end.left.terms.erase(own);
        const bool is_open =
            std::ranges::any_of(end.left.terms, [&](const auto& t) { return is_of_parameters(t.first); });
        if (!is_open || uses_var(to_expr(end.left), loop.var)) return;
        const auto same =
            std::ranges::find_if(ends, [&](const End& e) { return e.left == end.left && e.step == end.step; });
        if (same == ends.end()) return ends.push_back(end);
        same->most = std::max(same->most, end.most);
        same->guards.push_back(guard.get());
      });
    }
    Expr extent = loop.extent;
    for (const End& end : ends) {
      const Expr left = to_expr(end.left) + end.most, count = simplify(floor_div(left + end.step, end.step), known);
      if (can_prove(extent <= count, known) || has_effect(replace_guards(loop.body, end.guards, false))) continue;
      extent = min(extent, count);
      known.assume(loop.var * end.step <= left);
    }
    known.bind_range(loop.var, extent);
    return For(loop.var, extent, loop.loop_kind, loop.body, loop.thread, loop.attributes, loop.span);
  }

  // if (condition of whole tiles) main else tail, for each condition that `var` moves but those in `seen`.
  Stmt choose(const Var& var, const Stmt& body, const Assumptions& known, std::vector<Linear> seen, int guards_left) {
    std::vector<TileCondition> conditions = find_conditions(var, body, known);
    std::erase_if(conditions, [&](const TileCondition& c) {
      return c.is_first_iteration || std::find(seen.begin(), seen.end(), c.slack) != seen.end();
    });
    if (conditions.empty() || guards_left == 0 || 2 * copies_ * count_stores(body) > most_copied_stores)
      return (*this)(body, known);
    const TileCondition& condition = conditions[0];
    const int64_t outside = copies_;
    if (!is_open(condition)) copies_ *= 2;  // open_tail counts its own
    seen.push_back(condition.slack);
    const Expr holds = simplify(Expr(0) <= to_expr(condition.slack), known);
    Assumptions then_known = known;
    then_known.assume(holds);
    const Stmt main = choose(var, replace_guards(body, condition.guards, true), then_known, seen, guards_left - 1);
    const auto tail_of = [&](const Stmt& tail, const Assumptions& known) {
      return choose(var, with_fresh_names(tail), known, seen, guards_left - 1);
    };
    const auto value = tail_value(condition, known);
    const Stmt tail = value ? tail_of(replace_expr(body, value->first, Expr(value->second)), known)
                            : open_tails(condition, body, known, tail_of);
    copies_ = outside;
    return make_stmt<If>(holds, main, tail);
  }

  using TailOf = std::function<Stmt(const Stmt& tail, const Assumptions& known)>;

  // Of several register tiles each has tails of its own: what lies around them is not copied for each number of rows.
  Stmt open_tails(const TileCondition& condition, const Stmt& body, const Assumptions& outside, const TailOf& tail_of) {
    if (!is_open(condition) || count_register_tiles(body) < 2) return open_tail(condition, body, outside, tail_of);
    // Guards of this condition in the part, of the loop's variable where one is given.
    const auto has_guard = [&](const Stmt& part, const Var* moved = nullptr) {
      bool found = false;
      for_each_guard(part, [&](const Expr& guard) {
        const bool is_one = std::ranges::find(condition.guards, guard.get()) != condition.guards.end();
        found |= is_one && (!moved || uses_var(guard, *moved));
      });
      return found;
    };
    const std::function<Stmt(const Stmt&, const Assumptions&)> apart = [&](const Stmt& part, const Assumptions& known) {
      const auto* loop = part.as<For>();
      if (!has_guard(part) || (loop && has_guard(part, &loop->var))) return (*this)(part, known);
      if (count_register_tiles(part) < 2) return open_tail(condition, part, known, tail_of);
      Assumptions within = known;
      if (loop) within.bind_range(loop->var, loop->extent);
      return map_children(
          part, [](const Expr& e) { return e; }, [&](const Stmt& child) { return apart(child, within); });
    };
    return with_fresh_names(apart(body, outside));
  }

  // The tail of a tile whose number of rows, or of lanes, is not known yet.  With `rest` the sum of the slack's terms,
  // it is what lies within 1 … most rows.
  Stmt open_tail(const TileCondition& condition, const Stmt& body, const Assumptions& known, const TailOf& tail_of) {
    const int64_t most = -condition.slack.constant - 1, step = std::max<int64_t>(1, condition.lanes);
    const int64_t copies = divide_up(most, step);  // one for each number of rows, or of vectors
    if (!is_open(condition) || copies < (step > 1 ? 2 : 1) || copies >= most_open_rows ||
        copies_ * (copies + 1) * count_stores(body) > most_copied_stores) {
      return tail_of(body, known);
    }
    Linear rest = condition.slack;
    rest.constant = 0;
    const Expr rows = simplify(to_expr(rest), known);
    // With more rows than (count - 1) · step, and at most count · step.
    const auto with_rows = [&](int64_t count) {
      return replace_guards(body, condition.guards, [&](const Expr& guard) {
        Linear left = *linear_slack_of(guard);
        for (const auto& [atom, coefficient] : condition.slack.terms) left.add(atom, -coefficient);
        const auto holds_of = [&](int64_t count_of_rows) {
          Linear of_rows = left;
          of_rows.constant += count_of_rows;
          return Expr(0) <= to_expr(of_rows);
        };
        if (step == 1) return holds_of(count);
        const Expr in_last = count > 1 ? holds_of((count - 1) * step) || guard : guard;
        return holds_of(count * step) && in_last;
      });
    };
    const int64_t outside = std::exchange(copies_, copies_ * (copies + 1));
    Stmt cases;
    if (step > 1) {
      cases = tail_of(with_rows(copies), known);
      for (int64_t count = copies - 1; count >= 1; --count)
        cases = make_stmt<If>(rows <= count * step, tail_of(with_rows(count), known), cases);
    } else {
      // With fewer rows than one there is no tile, but that has to be proven.
      const bool is_never_empty = can_prove(rows > 0, known);
      cases = is_never_empty                    ? tail_of(with_rows(1), known)
              : condition.most_without_rows < 0 ? tail_of(replace_guards(body, condition.guards, false), known)
                                                : tail_of(body, known);
      for (int64_t count = is_never_empty ? 2 : 1; count <= most; ++count)
        cases = make_stmt<If>(equal(rows, count), tail_of(with_rows(count), known), cases);
    }
    copies_ = outside;
    return cases;
  }

  bool is_open(const TileCondition& condition) const {
    return std::ranges::any_of(condition.slack.terms,
                               [&](const auto& term) { return term.second == 1 && is_of_parameters(term.first); });
  }

  bool is_of_parameters(const Expr& e) const {
    const std::vector<Var> vars = free_vars(e);
    return !vars.empty() && std::all_of(vars.begin(), vars.end(), [&](const Var& v) {
      return std::find(parameters_.begin(), parameters_.end(), v) != parameters_.end();
    });
  }

  // The only value of the tile's number where the condition does not hold: (expression, value).
  static std::optional<std::pair<Expr, int64_t>> tail_value(const TileCondition& condition, const Assumptions& known) {
    if (condition.slack.terms.size() != 1 || condition.slack.terms[0].second >= 0) return std::nullopt;
    const auto& [number, coefficient] = condition.slack.terms[0];
    if (condition.slack.constant < 0) return std::nullopt;
    const int64_t last_whole = condition.slack.constant / -coefficient;
    const Interval bounds = bounds_of(number, known);
    if (!bounds.high || *bounds.high != last_whole + 1) return std::nullopt;
    return std::pair{number, last_whole + 1};
  }

  // The loop over whole tiles, then the last tile; when the loop's variable is the tile's number.
  Stmt split_loop(const For& loop, const TileCondition& condition, const Assumptions& outside) {
    const auto extent = as_int(loop.extent);
    const auto& terms = condition.slack.terms;
    if (!extent || terms.size() != 1 || terms[0].second >= 0 || !terms[0].first.is_same(loop.var)) return {};
    if (condition.slack.constant < 0) return {};
    const int64_t whole = condition.slack.constant / -terms[0].second + 1;
    if (whole >= *extent) return {};
    Stmt main = make_stmt<For>(loop.var, Expr(whole), loop.loop_kind, replace_guards(loop.body, condition.guards, true),
                               loop.thread, loop.attributes, loop.span);
    Stmt tail = with_fresh_names(loop.body);
    if (whole + 1 == *extent) {
      tail = fold_substitute(tail, {{loop.var, Expr(whole)}});
    } else {
      const Var rest(loop.var.name());
      tail = make_stmt<For>(rest, Expr(*extent - whole), loop.loop_kind,
                            fold_substitute(tail, {{loop.var, rest + Expr(whole)}}), loop.thread, loop.attributes);
    }
    return seq({(*this)(main, outside), (*this)(simplify(tail, outside), outside)});
  }

  Stmt peel_first(const For& loop, const TileCondition& condition, const Assumptions& outside) {
    Stmt first = fold_substitute(replace_guards(loop.body, condition.guards, true), {{loop.var, Expr(0)}});
    const Var rest(loop.var.name());
    Stmt others = with_fresh_names(
        fold_substitute(replace_guards(loop.body, condition.guards, false), {{loop.var, rest + Expr(1)}}));
    others = make_stmt<For>(rest, loop.extent - Expr(1), loop.loop_kind, others, loop.thread, loop.attributes);
    // Without a constant extent there may be no first iteration.
    const bool is_empty_possible = !can_prove(Expr(0) < loop.extent, outside);
    if (is_empty_possible) first = make_stmt<If>(Expr(0) < loop.extent, first);
    return seq({(*this)(simplify(first, outside), outside), (*this)(others, outside)});
  }

  std::vector<TileCondition> find_conditions(const Var& var, const Stmt& s, const Assumptions& known) {
    const Body body = scan(s);
    std::vector<TileCondition> conditions;
    auto add = [&](const Linear& slack, bool is_first_iteration, const Expr& guard, int64_t lanes = 0,
                   int64_t most_without_rows = INT64_MIN) {
      for (TileCondition& condition : conditions) {
        if (condition.is_first_iteration != is_first_iteration || !(condition.slack == slack)) continue;
        condition.guards.push_back(guard.get());
        condition.lanes = std::max(condition.lanes, lanes);
        condition.most_without_rows = std::max(condition.most_without_rows, most_without_rows);
        return;
      }
      conditions.push_back({slack, is_first_iteration, lanes, most_without_rows, {guard.get()}});
    };
    for_each_guard(s, [&](const Expr& guard) {
      const auto* comparison = guard.as<Binary>();
      if (!comparison || comparison->a.dtype() != i64) return;
      if (comparison->op == BinaryOp::eq && comparison->a.is_same(var) && is_const_int(comparison->b, 0))
        return add({}, true, guard);
      const auto slack = linear_slack_of(guard);
      if (!slack) return;
      const Split split = split_slack(*slack, body);
      const bool moves_here =
          std::ranges::any_of(split.tile.terms, [&](const auto& term) { return uses_var(term.first, var); });
      if (!split.is_usable || !moves_here || !split.has_inner) return;
      const Expr holds = Expr(0) <= to_expr(split.tile);
      if (can_prove(holds, known)) return;   // the simplifier's
      if (can_prove(!holds, known)) return;  // no whole tile at all
      add(split.tile, false, guard, split.lanes, split.most);
    });
    // Peeling the first iteration comes first: it is what makes the rest of the loop simple.
    std::stable_sort(conditions.begin(), conditions.end(), [](const TileCondition& a, const TileCondition& b) {
      return a.is_first_iteration > b.is_first_iteration;
    });
    return conditions;
  }

  const std::vector<Var>& parameters_;
  int64_t copies_ = 1;  // of what is partitioned, for conditions and numbers of rows around it
};

}  // namespace

Func partition_loops(const Func& f) {
  Func result = f;
  result.body = Partitioner(f.parameters)(f.body, Assumptions());
  return result;
}

}  // namespace tw
