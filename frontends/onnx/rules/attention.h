// What rules of attention share.
#pragma once

#include "frontends/onnx/rules.h"

namespace tw::frontends::onnx {

// [batch, rows, heads · size] → [batch, heads, rows, size]; four dimensions stay.
ValueId split_heads(Context& c, ValueId x, int64_t heads);
// a · b for each query head, where several query heads share a head of b: no copies of b are made.
ValueId grouped_matmul(Context& c, ValueId a, ValueId b, bool transpose_b);

}  // namespace tw::frontends::onnx
