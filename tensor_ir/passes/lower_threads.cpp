// Loops bound to threads, written as if each began and ended together, become what the hardware runs: one program for
// all threads of a block, that meets at barriers.
//
//   for b in 0..8 block.x                       for b in 0..8 block.x
//     alloc S: f32[64] in shared                  alloc S: f32[64] in shared
//     alloc R: f32[64, 4] in local                alloc R: f32[1, 4] in local
//     for t in 0..64 thread.x { S[t] = … }   ⇒    for t in 0..64 thread.x { S[t] = … }
//     D[b] = 0.0f                                 for one in 0..1 thread.x { D[b] = 0.0f }
//     for t in 0..64 thread.x                     barrier()
//       R[t, 0] = S[63 - t]                       for t in 0..64 thread.x { R[0, 0] = S[63 - t] }
//
//   * Everything outside of thread-bound loops is run by all threads, so what it stores is left to the first one.
//   * A statement waits at a barrier when an earlier one has written what it reads or writes, or has read what it
//     writes, in memory that threads share; a loop's next iteration counts as later.  What has another leading index,
//     as the versions of a pipelined buffer have, is other memory; and where both find a thread's own element by the
//     digits of its number, it has nobody to wait for.
//   * A kernel is a statement around which nothing but allocations stand; one that no loop shares out among blocks is
//     run by one block.
//   * A thread-bound loop stands inside of another only where the outer one needs no barrier in it, and stores nothing
//     for other threads beside the inner one.  Error(lower).
//   * A `local` buffer outlives the loops that use it.  Each thread keeps its own part: indices lose the term of the
//     thread.  Error(lower) when one thread uses another's part.
//   * Products that are made while the threads go on (wgmma_bf16 in intrinsics.def) are waited for by wait_products:
//     before their sums are used, and before the barrier behind which their operands are written.
//   * A `fragment` is held by the threads of a warp together, which are those of thread.x and thread.y: each warp keeps
//     its own part, and its threads meet at a warp_barrier before a statement that uses one.  What is bound to no more
//     than thread.z there is an instruction that a warp executes as one.
#include <algorithm>
#include <map>
#include <set>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/passes/thread_effects.h"
#include "tensor_ir/structural.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/text/syntax.h"

namespace tw {
namespace {

bool is_thread_loop(const Stmt& s) {
  const auto* loop = s.as<For>();
  return loop && loop->loop_kind == LoopKind::thread && is_thread_axis(loop->thread);
}
bool is_block_loop(const Stmt& s) {
  const auto* loop = s.as<For>();
  return loop && loop->loop_kind == LoopKind::thread && !is_thread_axis(loop->thread);
}

bool contains(const Stmt& s, bool (*is_one)(const Stmt&)) {
  if (is_one(s)) return true;
  bool found = false;
  for_each_child(s, [](const Expr&) {}, [&](const Stmt& child) { found = found || contains(child, is_one); });
  return found;
}
bool has_thread_loop(const Stmt& s) {
  return contains(s, is_thread_loop);
}

Stmt with_body(const For& n, const Stmt& body) {
  return make_stmt<For>(n.var, n.extent, n.loop_kind, body, n.thread, n.attributes, n.span);
}

// Whether threads along the axis hold different parts of the buffer, if no thread may use another's.
bool owns_part(const Buffer& buffer, ThreadAxis axis) {
  return buffer->scope != Scope::fragment || axis == ThreadAxis::thread_z;
}

bool uses_fragment(const Stmt& s) {
  bool found = false;
  visit(
      s, [&](const Load& n) { found |= n.buffer->scope == Scope::fragment; },
      [&](const Store& n) { found |= n.buffer->scope == Scope::fragment; });
  return found;
}

// ---------------------------------------------------------------------------------------------------------------
// Barriers

class Synchronise {
 public:
  explicit Synchronise(std::vector<ThreadAxis> axes) : axes_(std::move(axes)) {}

  // `pending`: what was done since the last barrier.
  Stmt run(const Stmt& s, Effects& pending) const {
    if (is_thread_loop(s)) return region(s, pending);
    switch (s.kind()) {
      case NodeKind::Seq: {
        std::vector<Stmt> statements;
        for (const Stmt& child : s.as<Seq>()->statements) statements.push_back(run(child, pending));
        return seq(std::move(statements));
      }
      case NodeKind::For: {
        const auto& n = *s.as<For>();
        const Waits waits = read(n.extent, pending);
        // What is pending when an iteration ends is pending when the next begins, its variable one less.
        Effects left = pending, end;
        run(n.body, left);
        Stmt body;
        constexpr int enough = 3;  // iterations after which nothing new is left
        for (int round = 0; round <= enough; ++round) {
          end = pending;
          end.join(round < enough ? left.with(n.var, n.var - int_imm(n.var.dtype(), 1)) : effects_of(s));
          body = run(n.body, end);
          if (left.holds(end)) break;
          left = end;
        }
        pending.join(end.with(n.var, Expr()));
        return after(waits, with_body(n, body));
      }
      case NodeKind::If: {
        const auto& n = *s.as<If>();
        // In front of the If, so that what follows it need not wait again.
        const Waits waits = waits_of(effects_of(s), pending);
        read(n.condition, pending);
        Effects other = pending;
        Stmt then_body = run(n.then_body, pending);
        Stmt else_body = n.else_body.is_defined() ? run(n.else_body, other) : Stmt();
        pending.join(other);
        return after(waits, make_stmt<If>(n.condition, then_body, else_body));
      }
      case NodeKind::LetStmt: {
        const auto& n = *s.as<LetStmt>();
        const Waits waits = read(n.value, pending);
        Stmt body = run(n.body, pending);
        pending = pending.with(n.var, Expr());
        return after(waits, make_stmt<LetStmt>(n.var, n.value, body));
      }
      case NodeKind::Allocate: {
        const auto& n = *s.as<Allocate>();
        return make_stmt<Allocate>(n.buffer, run(n.body, pending));
      }
      case NodeKind::Store:
        return region(by_first_thread(s), pending);
      case NodeKind::Evaluate: {
        const auto* effect = s.as<Evaluate>()->call.as<Call>();
        if (effect && effect->intrinsic == Intrinsic::wait_products)
          pending.end_products(static_cast<size_t>(*as_int(effect->arguments[0])));
        if (effect && effect->intrinsic == Intrinsic::barrier) pending.pass_barrier();
        return s;
      }
      default:
        return s;
    }
  }

 private:
  // For what a statement waits.
  struct Waits {
    bool products = false, barrier = false;
  };
  static Stmt after(const Waits& waits, const Stmt& s) {
    std::vector<Stmt> statements;
    if (waits.products) statements.push_back(make_stmt<Evaluate>(call(Intrinsic::wait_products, {Expr(0)})));
    if (waits.barrier) statements.push_back(make_stmt<Evaluate>(call(Intrinsic::barrier, {})));
    statements.push_back(s);
    return seq(std::move(statements));
  }
  static Waits waits_of(const Effects& effects, Effects& pending, bool uses_sums = false) {
    const Waits waits = {!pending.products.empty() && (uses_sums || effects.meets_products(pending)),
                         effects.meets(pending)};
    if (waits.products) pending.end_products(0);
    if (waits.barrier) pending.pass_barrier();
    return waits;
  }
  static Waits advance(const Effects& effects, Effects& pending, bool uses_sums = false) {
    const Waits waits = waits_of(effects, pending, uses_sums);
    pending.add(effects);
    return waits;
  }
  static Waits read(const Expr& e, Effects& pending) { return advance(effects_of(e), pending); }

  // Thread loops over some axes run once for each value of the others, unless those are bound as well.
  Stmt region(const Stmt& s, Effects& pending) const {
    std::set<ThreadAxis> bound;
    visit(s, [&](const For& loop) { bound.insert(loop.thread); });
    require_one_writer(s, bound);
    Effects none;
    require_no_meeting(s, none);
    Stmt result = s;
    for (ThreadAxis axis : axes_) {
      if (!bound.count(axis)) result = make_stmt<For>(Var("one"), Expr(1), LoopKind::thread, result, axis);
    }
    if (uses_fragment(s)) result = seq({make_stmt<Evaluate>(call(Intrinsic::warp_barrier, {})), result});
    const Effects effects = effects_of(s);
    return after(advance(effects, pending, uses_fragment(s) && effects.products.empty()), result);
  }

  // `missing`: axes that the region binds, but not around s.
  void require_one_writer(const Stmt& s, std::set<ThreadAxis> missing) const {
    if (const auto* loop = s.as<For>()) missing.erase(loop->thread);
    std::erase_if(missing, [](ThreadAxis axis) { return !is_thread_axis(axis); });
    const auto* store = s.as<Store>();
    if (store && is_shared(store->buffer) && !missing.empty()) {
      const std::string axis = syntax::word(*missing.begin());
      throw Error(ErrorCode::lower, "all threads of " + axis + " store the same into `" + store->buffer->name +
                                        "`, inside of a loop bound to another axis: " + to_text(s) +
                                        "  help: bind a loop around the statement to " + axis +
                                        ", or keep the buffer in scope local");
    }
    for_each_child(s, [](const Expr&) {}, [&](const Stmt& child) { require_one_writer(child, missing); });
  }

  // In a loop bound to threads, those of another axis meet nowhere.
  void require_no_meeting(const Stmt& s, Effects& before) const {
    const bool is_outer = has_thread_loop_within(s);
    if (s.as<Seq>() || (is_outer && !s.as<For>())) {
      for_each_child(
          s, [&](const Expr& e) { before.add(effects_of(e)); }, [&](const Stmt& c) { require_no_meeting(c, before); });
      return;
    }
    if (is_outer) {
      const For& loop = *s.as<For>();
      require_no_meeting(loop.body, before);
      before = before.with(loop.var, Expr());
      if (!is_thread_loop(s)) require_no_meeting(loop.body, before);  // the next iteration
      return;
    }
    const Effects effects = effects_of(s);
    if (effects.meets(before)) {
      throw Error(ErrorCode::lower,
                  "threads would have to wait for each other inside of a loop bound to another axis, before: " +
                      to_text(s) + "  help: bind the outer loop to a block axis, or bind one loop to threads");
    }
    before.add(effects);
  }
  static bool has_thread_loop_within(const Stmt& s) {
    bool found = false;
    for_each_child(s, [](const Expr&) {}, [&](const Stmt& child) { found = found || has_thread_loop(child); });
    return found;
  }

  Stmt by_first_thread(const Stmt& s) const {
    if (is_shared(s.as<Store>()->buffer)) return make_stmt<For>(Var("one"), Expr(1), LoopKind::thread, s, axes_[0]);
    throw Error(ErrorCode::lower,
                "a value is kept in `" + s.as<Store>()->buffer->name + "` for all threads of a block: " + to_text(s) +
                    "  help: keep it in scope shared, or bind a loop around the statement to a thread axis");
  }

  std::vector<ThreadAxis> axes_;  // of the launch
};

// ---------------------------------------------------------------------------------------------------------------
// Each thread's part of a local buffer

struct ThreadTerm {
  ThreadAxis axis;
  int64_t divisor;  // of the thread's number along the axis: n // divisor % extent
  int64_t coefficient, extent;
  bool operator==(const ThreadTerm&) const = default;
  auto operator<=>(const ThreadTerm&) const = default;
};

class Privatise {
 public:
  Stmt run(const Stmt& s, const Assumptions& ranges) const {
    const auto* allocate = s.as<Allocate>();
    // Without a thread loop in it, what is allocated is the thread's own already.
    if (!allocate || is_shared(allocate->buffer) || !has_thread_loop(allocate->body)) {
      const auto* loop = s.as<For>();
      Assumptions inner = ranges;
      if (loop) inner.bind_range(loop->var, loop->extent);
      return map_children(s, [](const Expr& e) { return e; }, [&](const Stmt& child) { return run(child, inner); });
    }
    return make_own(*allocate, run(allocate->body, ranges), ranges);
  }

 private:
  struct Access {
    std::vector<Expr> indices;
    std::vector<const For*> thread_loops;
    Assumptions ranges;
  };

  void collect(const Stmt& s, const Buffer& buffer, Access& here, std::vector<Access>& found) const {
    auto add = [&](const Buffer& used, const std::vector<Expr>& indices) {
      if (used != buffer) return;
      found.push_back(here);
      found.back().indices = indices;
    };
    if (const auto* store = s.as<Store>()) add(store->buffer, store->indices);
    for_each_child(
        s, [&](const Expr& e) { visit(e, [&](const Load& n) { add(n.buffer, n.indices); }); },
        [&](const Stmt& child) {
          const auto* loop = s.as<For>();
          Access inner = here;
          if (loop) inner.ranges.bind_range(loop->var, loop->extent);
          if (is_thread_loop(s) && owns_part(buffer, loop->thread)) inner.thread_loops.push_back(loop);
          collect(child, buffer, inner, found);
        });
  }

  [[noreturn]] static void fail(const Buffer& buffer, const std::string& why) {
    throw Error(ErrorCode::lower,
                "`" + buffer->name + "` in scope " + to_text(buffer->scope) + " is not each thread's own: " + why +
                    "\n  help: keep it in scope shared, or bind the loops of all its uses in the same way");
  }

  // A loop over threads as an index has it: as it is, or a quotient and a remainder of it.
  struct ThreadPart {
    Var var;
    int64_t divisor, extent;
  };
  static std::vector<ThreadPart> parts_of(const For& loop, int64_t extent, Expr& index) {
    std::optional<int64_t> divisor;
    const auto is_part = [&](const Binary& n) {
      const auto by = as_int(n.b);
      const bool divides = n.op == BinaryOp::floor_div || n.op == BinaryOp::floor_mod;
      if (!divides || n.a.get() != loop.var.get() || !by || *by < 1 || extent % *by != 0) return false;
      if (!divisor) divisor = by;
      return divisor == by;
    };
    visit(index, [&](const Binary& n) { is_part(n); });
    if (!divisor) return {{loop.var, 1, extent}};
    const Var quotient(loop.var.name(), loop.var.dtype()), remainder(loop.var.name(), loop.var.dtype());
    index = rewrite_bottom_up(index, [&](const Binary& n) -> Expr {
      if (!is_part(n)) return {};
      return n.op == BinaryOp::floor_div ? quotient : remainder;
    });
    return {{quotient, *divisor, extent / *divisor}, {remainder, 1, *divisor}};
  }

  // The terms of threads in an index; what is left of it.
  static std::set<ThreadTerm> split(const Buffer& buffer, const Access& access, const Expr& index, Expr& rest) {
    std::set<ThreadTerm> terms;
    rest = index;
    for (const For* loop : access.thread_loops) {
      if (!uses_var(index, loop->var)) continue;
      const std::optional<int64_t> extent = as_int(loop->extent);
      if (!extent) fail(buffer, "the number of threads of `" + loop->var.name() + "` is not constant");
      for (const ThreadPart& part : parts_of(*loop, *extent, rest)) {
        if (!uses_var(rest, part.var)) continue;
        const std::optional<Affine> affine = as_affine(rest);
        if (!affine) fail(buffer, "the index " + to_text(index) + " is no sum of products");
        const int64_t coefficient = affine->coefficient(part.var);
        if (coefficient <= 0) fail(buffer, "the index " + to_text(index) + " falls with the thread");
        if (part.extent > 1) terms.insert({loop->thread, part.divisor, coefficient, part.extent});
        rest = substitute(rest, {{part.var, Expr(0)}});
      }
    }
    return terms;
  }

  Stmt make_own(const Allocate& allocate, const Stmt& body, const Assumptions& ranges) const {
    const Buffer& buffer = allocate.buffer;
    std::vector<Access> accesses;
    Access here;
    here.ranges = ranges;
    collect(body, buffer, here, accesses);
    int rank = buffer.rank();
    std::vector<int64_t> extents(rank, 1);
    std::set<std::pair<ThreadAxis, int64_t>> told_apart;  // with the divisors of the parts
    std::map<ThreadAxis, int64_t> threads;                // of those parts together
    for (int d = 0; d < rank; ++d) {
      std::optional<std::set<ThreadTerm>> terms;
      for (const Access& access : accesses) {
        Expr rest;
        std::set<ThreadTerm> found = split(buffer, access, access.indices[d], rest);
        if (terms && *terms != found) fail(buffer, "threads use dimension " + std::to_string(d) + " in different ways");
        terms = found;
        rest = simplify(rest, access.ranges);
        Interval range = bounds_of(rest, access.ranges);
        if (!range.low || !range.high || *range.low < 0)
          fail(buffer, "the range of " + to_text(access.indices[d]) + " is not known");
        extents[d] = std::max(extents[d], *range.high + 1);
        // With the terms from small to large, each thread's elements are apart from the others' when what lies below a
        // term is smaller than its coefficient, or repeats beyond all its threads.
        std::vector<ThreadTerm> sorted(found.begin(), found.end());
        std::sort(sorted.begin(), sorted.end(),
                  [](const ThreadTerm& a, const ThreadTerm& b) { return a.coefficient < b.coefficient; });
        int64_t reach = 0;
        for (const ThreadTerm& term : sorted) {
          Expr below = simplify(floor_mod(rest, Expr(term.coefficient * term.extent)), access.ranges);
          Interval low_part = bounds_of(below, access.ranges);
          if (!low_part.high || *low_part.high + reach >= term.coefficient)
            fail(buffer, "threads overlap in " + to_text(access.indices[d]));
          reach += term.coefficient * (term.extent - 1);
          if (told_apart.emplace(term.axis, term.divisor).second)
            threads[term.axis] = std::max<int64_t>(threads[term.axis], 1) * term.extent;
        }
      }
    }
    for (const Access& access : accesses) {
      for (const For* loop : access.thread_loops) {
        if (!is_const_int(loop->extent, 1) && as_int(loop->extent) != threads[loop->thread])
          fail(buffer, "the threads of `" + loop->var.name() + "` use the same elements");
      }
    }
    BufferNode node = *buffer.get();
    node.shape.assign(extents.begin(), extents.end());
    Buffer own(std::move(node));
    return make_stmt<Allocate>(own, redirect(body, buffer, own, {}));
  }

  Stmt redirect(const Stmt& s, const Buffer& from, const Buffer& to, Substitution zeros) const {
    if (is_thread_loop(s) && owns_part(from, s.as<For>()->thread)) zeros[s.as<For>()->var] = Expr(0);
    auto indices_of = [&](const std::vector<Expr>& indices) {
      std::vector<Expr> result;
      for (const Expr& index : indices) result.push_back(simplify(substitute(index, zeros)));
      return result;
    };
    std::function<Expr(const Expr&)> in_expr = [&](const Expr& e) {
      return rewrite_bottom_up(e, [&](const Load& n) -> Expr {
        if (n.buffer != from) return {};
        return make_expr<Load>(n.dtype, to, indices_of(n.indices), n.predicate);
      });
    };
    Stmt result = map_children(s, in_expr, [&](const Stmt& child) { return redirect(child, from, to, zeros); });
    const auto* store = result.as<Store>();
    if (!store || store->buffer != from) return result;
    return make_stmt<Store>(to, indices_of(store->indices), store->value, store->predicate, store->span);
  }
};

// ---------------------------------------------------------------------------------------------------------------

Stmt lower_launch(const Stmt& s, const std::vector<ThreadAxis>& axes) {
  if (is_block_loop(s)) {
    const auto& loop = *s.as<For>();
    return with_body(loop, lower_launch(loop.body, axes));
  }
  if (contains(s, is_block_loop)) {
    // Allocations and lets may stand between block-bound loops; a loop may not, for blocks do not wait for each other.
    if (s.as<Allocate>() || s.as<LetStmt>()) {
      return map_children(
          s, [](const Expr& e) { return e; }, [&](const Stmt& child) { return lower_launch(child, axes); });
    }
    throw Error(ErrorCode::lower,
                "a loop bound to blocks stands inside of " + std::string(s.as<For>() ? "another loop" : "a statement") +
                    " of the same kernel\n  help: bind the outermost loops of the nest to block axes");
  }
  Effects pending;
  return axes.empty() ? s : Synchronise(axes).run(s, pending);
}

bool uses_buffer(const Stmt& s, const Buffer& buffer) {
  bool uses = false;
  visit(s, [&](const Load& n) { uses |= n.buffer == buffer; }, [&](const Store& n) { uses |= n.buffer == buffer; });
  return uses;
}

Stmt allocate_around(const std::vector<Buffer>& buffers, Stmt s) {
  for (size_t i = buffers.size(); i-- > 0;) s = make_stmt<Allocate>(buffers[i], s);
  return s;
}

// A statement around which nothing but allocations stand becomes a kernel, or part of one.
Stmt lower_kernel(const Stmt& s, const std::vector<Buffer>& own) {
  Stmt kernel = allocate_around(own, s);
  if (!contains(s, is_block_loop) && !has_thread_loop(s)) return kernel;
  std::set<ThreadAxis> axes;
  visit(s, [&](const For& loop) {
    if (loop.loop_kind == LoopKind::thread && is_thread_axis(loop.thread)) axes.insert(loop.thread);
  });
  // One block runs what no loop shares out among blocks: all its threads, from the first statement on.
  if (!is_block_loop(s) && !is_thread_loop(s))
    kernel = make_stmt<For>(Var("one"), Expr(1), LoopKind::thread, kernel, ThreadAxis::block_x);
  return lower_launch(Privatise().run(kernel, {}), {axes.begin(), axes.end()});
}

// `own`: buffers that no other kernel uses, as far as is known here.
Stmt lower_top_level(const Stmt& s, std::vector<Buffer> own) {
  if (const auto* allocate = s.as<Allocate>()) {
    if (is_shared(allocate->buffer)) return make_stmt<Allocate>(allocate->buffer, lower_top_level(allocate->body, own));
    own.push_back(allocate->buffer);
    return lower_top_level(allocate->body, own);
  }
  const auto* list = s.as<Seq>();
  if (!list) return lower_kernel(s, own);
  std::vector<Stmt> statements = list->statements;
  std::vector<std::vector<Buffer>> own_of(statements.size());
  std::vector<Buffer> between;  // kernels: all threads see them
  for (const Buffer& buffer : own) {
    std::vector<size_t> users;
    for (size_t i = 0; i < statements.size(); ++i)
      if (uses_buffer(statements[i], buffer)) users.push_back(i);
    if (users.size() == 1) {
      own_of[users[0]].push_back(buffer);
      continue;
    }
    BufferNode node = *buffer.get();
    node.scope = Scope::global;
    between.emplace_back(std::move(node));
    for (const size_t i : users) statements[i] = replace_buffer(statements[i], buffer, between.back());
  }
  for (size_t i = 0; i < statements.size(); ++i) statements[i] = lower_top_level(statements[i], own_of[i]);
  return allocate_around(between, seq(std::move(statements)));
}

}  // namespace

Func lower_threads(const Func& f) {
  Func result = f;
  result.body = lower_top_level(f.body, {});
  return result;
}

}  // namespace tw
