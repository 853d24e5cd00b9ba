#include "relay_ir/precision.h"

#include <algorithm>
#include <iterator>

namespace tw::relay {
namespace {

constexpr std::string_view names[] = {"f32", "tf32", "bf16", "f16"};

}  // namespace

std::string to_string(Precision precision) {
  return std::string(names[static_cast<size_t>(precision)]);
}

std::optional<Precision> parse_precision(std::string_view text) {
  const auto* found = std::find(std::begin(names), std::end(names), text);
  return found == std::end(names) ? std::nullopt : std::optional(static_cast<Precision>(found - std::begin(names)));
}

DType storage_of(Precision precision) {
  return precision == Precision::bf16 ? bf16 : precision == Precision::f16 ? f16 : f32;
}

}  // namespace tw::relay
