// Axes and sizes that only a run knows, as small tensors of i64 that its nodes compute with, in the order of the axes.
// What is made of them is read as a size at the end (Builder::emit_items).
#pragma once

#include <functional>

#include "frontends/control.h"
#include "frontends/emit.h"

namespace tw::frontends {

// Of each of `rank` axes whether it is one of them: bool[rank].
ValueId emit_is_chosen(Builder& b, ValueId axes, int rank);
// values[i] for axes[i], and `otherwise` for axes that are not named: [rank].
ValueId emit_by_axis(Builder& b, ValueId values, ValueId axes, int rank, int64_t otherwise);
// x with an axis of 1 put in where `is_new` says so, one of so many axes.
ValueId emit_unsqueeze(Builder& b, ValueId x, ValueId is_new, int rank);
// x without the axes that `is_gone` chooses, `gone` of them, which are 1.
ValueId emit_squeeze(Builder& b, ValueId x, ValueId is_gone, int gone);
// f(x) along the axis, which is one of all but the last `kept` of x.  f sees these as three, and gives them back: what
// is before the axis, the axis, which may get another length, and what is behind it.
ValueId emit_along(Builder& b, ValueId x, ValueId axis, int kept, const std::function<ValueId(ValueId)>& f);
// Elements start, start + step … of an axis, before `end`, as numpy has it: each i64[].
ValueId emit_computed_slice(Builder& b, ValueId x, int axis, ValueId start, ValueId end, ValueId step);

// Arithmetic of i64 and bool.
class Integers {
 public:
  explicit Integers(Builder& b) : b_(b) {}
  ValueId number(int64_t value) { return emit_scalar(b_, i64, static_cast<double>(value)); }
  ValueId size(const Expr& value) { return b_.emit_sizes({value}, {}); }
  ValueId operator()(const char* op, ValueId x, ValueId y) { return b_.emit(op, {x, y}); }
  ValueId where(ValueId condition, ValueId x, ValueId y) { return b_.emit("where", {condition, x, y}); }
  ValueId clamp(ValueId x, ValueId low, ValueId high) { return (*this)("minimum", (*this)("maximum", x, low), high); }
  ValueId at(ValueId list, int64_t i) { return emit_pick(b_, list, 0, i); }

 private:
  Builder& b_;
};

}  // namespace tw::frontends
