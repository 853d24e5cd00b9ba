// What rules of ai.onnx.ml share: data as floats, and what becomes of scores.
#pragma once

#include "frontends/onnx/rules.h"

namespace tw::frontends::onnx {

using Floats = std::vector<double>;

// f64 stays, all else is f32.
ValueId as_reals(Context& c, ValueId x);
// Error(malformed_model) where an attribute has another length.
void require_length(const std::string& name, size_t length, size_t wanted);
// The attribute post_transform, of scores [rows, columns].
ValueId emit_post_transform(Context& c, ValueId scores);
ValueId emit_post_transform(Context& c, ValueId scores, const std::string& form);

// Of a classifier.
class ClassLabels {
 public:
  // Refuses the node where there are fewer than two.
  ClassLabels(Context& c, const std::string& ints, const std::string& strings);
  int64_t count() const { return count_; }
  // Those of these numbers.
  ValueId emit(ValueId classes) const;

 private:
  Context& c_;
  Ints ints_;
  std::vector<std::string> strings_;
  int64_t count_ = 0;
};

}  // namespace tw::frontends::onnx
