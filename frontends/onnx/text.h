// Strings on their way through an import: their codes (Words) are what nodes of ours see.
#pragma once

#include <optional>
#include <vector>

#include "frontends/builder.h"
#include "frontends/onnx/rules.h"

namespace tw::frontends::onnx {

inline bool is_text(const ValueInfo& info) {
  return info.element_type == text_type;
}
inline bool is_text(const Lists& lists, ValueId id) {
  return is_list(id) && lists[id].is_text();
}
// …or maps, which no operator takes.
inline bool is_text_or_map(const Lists& lists, ValueId id) {
  return is_list(id) && (lists[id].is_text() || lists[id].kind == ListKind::map);
}

ValueId text_constant(Import& import, const Tensor& tensor);

// Inputs of an operator that moves strings, with their codes in their stead.
struct MovedText {
  std::vector<ValueId> inputs;
  bool may_be_unknown = false;
};
// Nothing: the operator does not move these.
std::optional<MovedText> moved_text(const Lists& lists, TextUse use, const std::vector<ValueId>& inputs);

}  // namespace tw::frontends::onnx
