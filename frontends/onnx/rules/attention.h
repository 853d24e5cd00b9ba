// What rules of attention share.
#pragma once

#include "frontends/onnx/rules.h"

namespace tw::frontends::onnx {

// [batch, rows, heads · size] → [batch, heads, rows, size]; four dimensions stay.
ValueId split_heads(Context& c, ValueId x, int64_t heads);
// a · b for each query head, where several query heads share a head of b: no copies of b are made.
ValueId grouped_matmul(Context& c, ValueId a, ValueId b, bool transpose_b);

// [batch, rows, heads · size] → [batch, rows, heads, size].
ValueId split_size(Context& c, ValueId x, int64_t heads, const std::string& why);

// [batch, rows, heads, size] → [batch, heads, rows, size], and back.
ValueId to_heads_first(Context& c, ValueId x);
// [batch, heads, rows, size] → [batch, rows, heads · size].
ValueId join_heads(Context& c, ValueId x);

struct Heads {
  ValueId q, k, v;  // [batch, heads, rows, size]
};
// The attribute `scale`, or what follows from the size of a head.
double scale_of(Context& c, const Heads& heads);
// Attention with a bias of scores, and perhaps what a query may not see at all.
ValueId emit_attention(Context& c, const Heads& heads, ValueId bias, ValueId allowed);

// Rotary position embedding (Su et al., "RoFormer", 2021): pairs (a, b) of the first elements of each head turn by an
// angle, to (a cos - b sin, a sin + b cos).
struct Rotation {
  ValueId cosines, sines;        // [batch, rows, turned / 2]; with `positions`, tables by position [·, turned / 2]
  ValueId positions = no_value;  // [batch or 1, rows]
  int rows_axis = 1;             // 1: of [batch, rows, heads, size]; 2: of [batch, heads, rows, size]
  int64_t turned = 0;            // so many elements; 0: all
  bool interleaved = false;      // pairs are neighbours; else of the two halves
};
ValueId emit_rotation(Context& c, ValueId x, const Rotation& rotation);

}  // namespace tw::frontends::onnx
