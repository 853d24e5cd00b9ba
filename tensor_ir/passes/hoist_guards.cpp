// Guards go outside of the loops that do not change them, and of what they guard together.
//
//   for w in 0..112 {                                if (0 < h) {
//     alloc t                                          for w in 0..112 {
//     for i in 0..16 { if (0 < h) t[i] = … }     ⇒      alloc t
//     for i in 0..16 { if (0 < h) … t[i] … }            for i in 0..16 { t[i] = … }
//   }                                                    for i in 0..16 { … t[i] … } } }
//
// What is left inside are guards of single elements, so vectors and register tiles of rows that are there as a whole
// have none.  Around nothing but vectors and unrolled loops a guard stays: masks of registers cost less than branches
// (drop_register_masks).
#include <algorithm>

#include "tensor_ir/match.h"
#include "tensor_ir/passes/conjunction.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/structural.h"

namespace tw {
namespace {

using Conditions = std::vector<Expr>;

// A statement, and what has to hold for it to run; or the same with the conditions where they are.
struct Guarded {
  Conditions conditions;
  Stmt body, as_it_is;
  bool is_around_loop = false;  // that is neither unrolled nor vectors: then it pays to ask outside
};

bool is_prefetch(const Stmt& s) {
  const auto* evaluate = s.as<Evaluate>();
  const auto* asked = evaluate ? evaluate->call.as<Call>() : nullptr;
  return asked && asked->intrinsic == Intrinsic::prefetch;
}

bool reads_memory(const Expr& e) {
  bool found = false;
  visit(e, [&](const Load&) { found = true; });
  return found;
}

Stmt under(const Conditions& conditions, const Stmt& body) {
  if (conditions.empty()) return body;
  Expr all = conditions[0];
  for (size_t i = 1; i < conditions.size(); ++i) all = all && conditions[i];
  return make_stmt<If>(all, body);
}

Stmt finish(const Guarded& guarded) {
  return guarded.is_around_loop ? under(guarded.conditions, guarded.body) : guarded.as_it_is;
}

bool contains(const Conditions& conditions, const Expr& condition) {
  return std::any_of(conditions.begin(), conditions.end(),
                     [&](const Expr& other) { return structural_equal(other, condition); });
}

// Those conditions around the body for which `stays` holds go back inside.
template <class Predicate>
void keep_inside(Guarded& guarded, Predicate stays) {
  Conditions inside;
  for (const Expr& condition : guarded.conditions)
    if (stays(condition)) inside.push_back(condition);
  std::erase_if(guarded.conditions, stays);
  guarded.body = guarded.conditions.empty() ? finish({inside, guarded.body, guarded.as_it_is, guarded.is_around_loop})
                                            : under(inside, guarded.body);
}

Guarded hoist(const Stmt& s);

Guarded hoist_list(const Seq& list) {
  std::vector<Guarded> parts;
  for (const Stmt& child : list.statements) parts.push_back(hoist(child));
  // What asks for data ahead changes nothing, and comes under the guards of what is beside it.
  const auto first = std::ranges::find_if_not(parts, is_prefetch, &Guarded::as_it_is);
  Conditions shared;
  for (const Expr& condition : first == parts.end() ? Conditions() : first->conditions) {
    if (std::ranges::all_of(
            parts, [&](const Guarded& g) { return is_prefetch(g.as_it_is) || contains(g.conditions, condition); }))
      shared.push_back(condition);
  }
  Guarded result{std::move(shared), {}, {}, false};
  std::vector<Stmt> statements, as_they_are;
  for (Guarded& part : parts) {
    as_they_are.push_back(finish(part));
    keep_inside(part, [&](const Expr& condition) { return !contains(result.conditions, condition); });
    statements.push_back(part.body);
    result.is_around_loop |= part.is_around_loop;
  }
  result.body = seq(std::move(statements)), result.as_it_is = seq(std::move(as_they_are));
  return result;
}

Guarded hoist(const Stmt& s) {
  if (const auto* branch = s.as<If>(); branch && !branch->else_body.is_defined() && !reads_memory(branch->condition)) {
    Guarded result = hoist(branch->then_body);
    result.as_it_is = make_stmt<If>(branch->condition, finish(result));
    Conditions outer;
    split_conjunction(branch->condition, outer);
    for (const Expr& condition : result.conditions)
      if (!contains(outer, condition)) outer.push_back(condition);
    result.conditions = std::move(outer);
    return result;
  }
  if (const auto* list = s.as<Seq>(); list && !list->statements.empty()) return hoist_list(*list);
  if (const auto* allocate = s.as<Allocate>()) {
    Guarded result = hoist(allocate->body);
    result.as_it_is = make_stmt<Allocate>(allocate->buffer, finish(result));
    result.body = make_stmt<Allocate>(allocate->buffer, result.body);
    return result;
  }
  if (const auto* loop = s.as<For>()) {
    const auto with = [&](const Stmt& body) {
      return make_stmt<For>(loop->var, loop->extent, loop->loop_kind, body, loop->thread, loop->attributes, loop->span);
    };
    const bool is_task = loop->loop_kind == LoopKind::parallel;  // kernels begin with these
    Guarded result = hoist(loop->body);
    const Stmt as_it_is = with(finish(result));
    keep_inside(result, [&](const Expr& c) { return is_task || uses_var(c, loop->var); });
    result.body = with(result.body), result.as_it_is = as_it_is;
    result.is_around_loop |= loop->loop_kind == LoopKind::serial;
    return result;
  }
  const auto same = [](const Expr& e) { return e; };
  const Stmt rebuilt = map_children(s, same, [](const Stmt& child) { return finish(hoist(child)); });
  return {{}, rebuilt, rebuilt, false};
}

}  // namespace

Func hoist_guards(const Func& f) {
  Func result = f;
  result.body = finish(hoist(f.body));
  return result;
}

}  // namespace tw
