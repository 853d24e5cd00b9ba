// What a pass of graphs and the template for what it makes have to agree on.
#pragma once

#include "targets/target.h"

namespace tw::analysis {

// Rows of the largest register tile beside two vectors that divides `rows`, so that no tile needs a guard; 0: there is
// none of use.
inline int even_rows(int64_t rows, const Target& target) {
  for (int r = 12; r >= 4; --r) {
    if (rows % r == 0 && 2 * r + 3 <= target.vector_registers - 1) return r;
  }
  return 0;
}

}  // namespace tw::analysis
