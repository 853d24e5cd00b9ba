// reorder([k, i])
//
//   for i in 0..4 { for j in 0..8 { for k in 0..16 { block C … } } }
// ⇒
//   for k in 0..16 { for j in 0..8 { for i in 0..4 { block C … } } }
//
// The named loops take each other's places.  Legal when every conflict between two accesses stays inside one iteration
// of all loops from the first to the last place, or is a reduction's with itself: then the order of its terms may
// change if it adds, multiplies, or takes minima or maxima.
#include <algorithm>

#include "schedule/primitives/rebind.h"

namespace tw {
namespace {

// The loops of `nest` in their new order do not run anything too early.
void check_order(const ScheduleEdit& edit, const std::vector<const For*>& outer, const std::vector<const For*>& before,
                 const std::vector<const For*>& after, const Stmt& body) {
  std::vector<Buffer> own;
  visit(body, [&](const Allocate& a) { own.push_back(a.buffer); });
  std::vector<Var> fixed;
  for (const For* loop : outer) fixed.push_back(loop->var);
  std::vector<const For*> around = outer;
  around.insert(around.end(), before.begin(), before.end());
  const auto accesses = accesses_in(body, around);
  auto place = [](const std::vector<const For*>& loops, const Var& v) {
    return std::find_if(loops.begin(), loops.end(), [&](const For* l) { return l->var == v; }) - loops.begin();
  };
  for (size_t i = 0; i < accesses.size(); ++i) {
    for (size_t j = i; j < accesses.size(); ++j) {
      const Access &a = accesses[i], &b = accesses[j];
      if (a.buffer != b.buffer || !(a.is_write || b.is_write)) continue;
      if (std::find(own.begin(), own.end(), a.buffer) != own.end()) continue;
      const auto equal = proven_equal(a, b, before, fixed);
      std::vector<Var> open;
      for (const For* loop : before) {
        if (std::find(equal.begin(), equal.end(), loop->var) == equal.end()) open.push_back(loop->var);
      }
      // The loops that may carry the conflict keep their order among themselves: nothing changes.
      bool keeps_order = true;
      for (size_t x = 0; x + 1 < open.size(); ++x) keeps_order &= place(after, open[x]) < place(after, open[x + 1]);
      const bool is_own_reduction =
          a.block && a.block == b.block && std::all_of(open.begin(), open.end(), [&](const Var& v) {
            return is_reduce_loop(*a.block, v) && !is_spatial_loop(*a.block, v);
          });
      if (is_own_reduction) {
        const auto reduction = as_reduction(*a.block);
        if (keeps_order || (reduction && reduction->buffer == a.buffer)) continue;
      } else if (keeps_order) {
        continue;
      }
      std::string names;
      for (const Var& v : open) names += (names.empty() ? "" : ", ") + quoted(v.name());
      edit.refuse(
          "the order of the loops " + names + " matters: buffer " + quoted(a.buffer->name) +
              " is written in one iteration and read or written in another",
          edit.path(LoopRef{open[0]}).back(),
          "keep these loops in their order; if a block only initialises or copies, move it with compute_at first");
    }
  }
}

}  // namespace

void Schedule::reorder(const std::vector<LoopRef>& refs) {
  ScheduleEdit edit(*this, "reorder", refs);
  if (refs.size() < 2) edit.refuse("fewer than two loops", Stmt(), "name the loops in the order that they shall have");
  Path path;
  for (const LoopRef& ref : refs) {
    if (std::count(refs.begin(), refs.end(), ref) != 1)
      edit.refuse("loop " + quoted(ref.name()) + " is named twice", edit.path(ref).back(), "name each loop once");
    const Path candidate = edit.path(ref);
    if (candidate.size() > path.size()) path = candidate;
  }
  auto is_named = [&](const For* loop) {
    return std::any_of(refs.begin(), refs.end(), [&](const LoopRef& r) { return r.var == loop->var; });
  };
  const auto loops = loops_of(path);
  const auto first = std::find_if(loops.begin(), loops.end(), is_named);
  for (const LoopRef& ref : refs) {
    if (std::none_of(loops.begin(), loops.end(), [&](const For* l) { return l->var == ref.var; })) {
      edit.refuse("loop " + quoted(ref.name()) + " is in another nest than " + quoted(loops.back()->var.name()),
                  edit.path(ref).back(), "only loops around one block can be reordered");
    }
  }
  const auto nest = perfect_nest(edit, path, (*first)->var, loops.back()->var);
  std::vector<const For*> after;
  size_t next = 0;
  for (const For* loop : nest) {
    if (!is_named(loop)) {
      after.push_back(loop);
      continue;
    }
    const Var wanted = refs[next++].var;
    after.push_back(*std::find_if(nest.begin(), nest.end(), [&](const For* l) { return l->var == wanted; }));
  }
  for (size_t i = 0; i < after.size(); ++i) {
    for (size_t j = i; j < after.size(); ++j) {
      if (uses_var(after[i]->extent, after[j]->var)) {
        edit.refuse(
            "the extent of loop " + quoted(after[i]->var.name()) + " depends on loop " + quoted(after[j]->var.name()),
            edit.path(LoopRef{after[i]->var}).back(), "keep it inside of that loop");
      }
    }
  }
  check_order(edit, {loops.begin(), first}, nest, after, nest.back()->body);
  Stmt body = nest.back()->body;
  for (size_t i = after.size(); i-- > 0;) body = with_body(*after[i], body);
  body = replace_node(func_.body, nest.front(), body);
  for (const For* loop : nest) {
    if (loop->loop_kind == LoopKind::serial || loop->loop_kind == LoopKind::unrolled) continue;
    edit.check_concurrent_loop(body, *path_to_loop(body, loop->var).back().as<For>());
  }
  edit.commit(body);
}

}  // namespace tw
