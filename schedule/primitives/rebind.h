// Shared by the primitives that replace loops.
#pragma once

#include "schedule/edit.h"

namespace tw {

// Loop variables are replaced by expressions of new loops in the bindings, predicates and extents under `body`; `guard`
// (may be not defined) becomes part of each block's predicate, or an If around statements that are in no block.
// `ranges` knows the loops around the body.
Stmt rebind(const Stmt& body, const Substitution& values, const Expr& guard, const Assumptions& ranges);

// A predicate without the parts that always hold, or do where the others do; not defined when nothing is left.
Expr simplify_predicate(const Expr& predicate, const Assumptions& ranges);

// The loops from `outer` to `inner` on one path where each holds nothing but the next.  Refused when there is anything
// else.
std::vector<const For*> perfect_nest(const ScheduleEdit& edit, const Path& path, const Var& outer, const Var& inner);

}  // namespace tw
