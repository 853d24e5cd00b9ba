// Losses, composed.
#pragma once

#include "frontends/emit.h"

namespace tw::frontends {

struct Loss {
  ValueId log_prob;                     // [n, class, d…]
  ValueId target;                       // [n, d…]: a class each
  ValueId weight = no_value;            // [class]
  std::optional<int64_t> ignored = {};  // targets that do not count
  enum class Reduction { none, sum, mean } reduction = Reduction::mean;
};

// -weight[t] · log_prob[n, t, d…] of each target t, zero where t is ignored; then none, summed, or divided by the
// weights.
ValueId emit_negative_log_likelihood(Builder& b, const Loss& loss);

}  // namespace tw::frontends
