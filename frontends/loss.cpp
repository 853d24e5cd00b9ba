#include "frontends/loss.h"

namespace tw::frontends {

ValueId emit_negative_log_likelihood(Builder& b, const Loss& loss) {
  ValueId target = emit_cast(b, loss.target, i64);
  const DType dtype = dtype_of(b, loss.log_prob);
  const std::vector<Expr> dims = b.type(target).shape;
  std::vector<Expr> with_class = dims;
  if (dims.empty() || rank_of(b, loss.log_prob) != static_cast<int>(dims.size()) + 1)
    b.refuse("targets of another rank");
  with_class.insert(with_class.begin() + 1, Expr(1));
  ValueId is_ignored = no_value, weight = no_value;
  if (loss.ignored) {
    is_ignored = b.emit("equal", {target, emit_ints(b, {*loss.ignored}, {}, i64)});
    target = b.emit("where", {is_ignored, emit_ints(b, {0}, {}, i64), target});
  }
  const ValueId picked = b.emit("gather_elements", {loss.log_prob, emit_reshape_open(b, target, with_class)},
                                attributes_of({{"axis", int64_t{1}}}));
  ValueId result = b.emit("negate", {emit_reshape_open(b, picked, dims)});
  if (loss.weight != no_value) {
    weight = b.emit("gather", {loss.weight, target});
    result = b.emit("multiply", {result, weight});
  }
  if (loss.ignored) {  // 0 whatever its probability, NaN too
    const ValueId zero = emit_scalar(b, dtype, 0), one = loss.weight != no_value ? weight : emit_scalar(b, dtype, 1);
    result = b.emit("where", {is_ignored, zero, result});
    weight = b.emit("where", {is_ignored, zero, one});
  }
  if (loss.reduction == Loss::Reduction::none) return result;
  const std::vector<int> axes = axes_from(b, result);
  const auto sum = [&](ValueId x) { return emit_reduce(b, "reduce_sum", x, axes, false); };
  if (loss.reduction == Loss::Reduction::sum) return sum(result);
  if (weight == no_value) return emit_reduce(b, "reduce_mean", result, axes, false);
  return b.emit("divide", {sum(result), sum(weight)});
}

}  // namespace tw::frontends
