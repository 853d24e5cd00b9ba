// Elementwise operators are data: a row a name, with the expression of one element.
#pragma once

#include "relay_ir/ops/common.h"

namespace tw::relay {

// Which element types a row takes.
enum class Takes { numbers, signed_numbers, floats, integers, numbers_and_bool, bools };
enum class Gives { same, truth };  // the inputs' element type, or bool

using Attributes = std::vector<AttributeDef>;
using Args = std::vector<Expr>;  // an element of each input
using ElementFunction = Expr (*)(const OpCall&, const Args&);

inline Expr number(const Expr& like, double value) {
  return const_of(like.dtype(), value);
}

struct ElementwiseRow {
  const char* name;
  std::vector<std::string> inputs;
  Takes takes;
  Gives gives;
  Rounding rounding;
  const char* doc;
  ElementFunction element;  // f16 and bf16 arrive as f32 and are rounded once, at the end
  Attributes attributes = {};
  double low = -2, high = 2;  // of the example's floats
};

// The rows, in two files.
std::vector<ElementwiseRow> unary_rows();
std::vector<ElementwiseRow> binary_rows();

}  // namespace tw::relay
