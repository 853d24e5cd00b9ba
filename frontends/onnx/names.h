// Names of values that nodes use.
#pragma once

#include <string_view>
#include <unordered_set>

#include "frontends/onnx/proto.h"

namespace tw::frontends::onnx {

// What a node reads, and what the graphs within it take from around them.
std::unordered_set<std::string_view> names_used(const Node& node);

}  // namespace tw::frontends::onnx
