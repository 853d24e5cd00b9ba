// Discrete Fourier transforms, as products with matrices of cosines and sines; long ones of known length in two or more
// steps, by their factors.
#pragma once

#include "frontends/emit.h"

namespace tw::frontends {

inline constexpr int64_t longest_transform = int64_t{1} << 24;

struct Fourier {
  Expr length;
  bool is_inverse = false;
  bool is_onesided = false;  // forwards, only the first length // 2 + 1; inverse, of these, to real numbers
};

// Along the last axis but one; the last one holds real numbers (1) or complex ones (2).  What is shorter or longer than
// is transformed is filled up with zeros, or cut.
ValueId emit_fourier(Builder& b, ValueId x, const Fourier& fourier);

}  // namespace tw::frontends
