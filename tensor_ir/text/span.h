// A position in parsed text, for diagnostics.  Never part of a node's value.
#pragma once

#include <cstdint>

namespace tw {

struct Span {
  int32_t line = 0, column = 0;  // from 1; 0: not from text
};

}  // namespace tw
