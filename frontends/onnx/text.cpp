#include "frontends/onnx/text.h"

namespace tw::frontends::onnx {

ValueId text_constant(Import& import, const Tensor& tensor) {
  NDArray codes = codes_of(tensor, [&](std::string_view word) { return import.words.code_of(word); });
  return import.lists.add({ListKind::text, {import.graph.add_constant(std::string(tensor.name), std::move(codes))}});
}

std::optional<MovedText> moved_text(const Lists& lists, TextUse use, const std::vector<ValueId>& inputs) {
  if (use != TextUse::moved && use != TextUse::joined) return std::nullopt;
  MovedText result{inputs};
  const size_t count = use == TextUse::joined ? inputs.size() : 1;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (is_text_or_map(lists, inputs[i]) != (i < count)) return std::nullopt;
    if (i >= count) continue;
    const List& list = lists[inputs[i]];
    if (!list.is_text()) return std::nullopt;
    result.inputs[i] = list.values[0];
    result.may_be_unknown |= list.may_be_unknown;
  }
  return result;
}

}  // namespace tw::frontends::onnx
