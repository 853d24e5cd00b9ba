// Facts of the target that passes ask for, as attributes of the Func: targets/lower.cpp sets them.
#pragma once

#include "tensor_ir/ir.h"

namespace tw {

inline int64_t target_fact(const Func& f, const char* name, int64_t otherwise) {
  const auto found = f.attributes.find(name);
  return found == f.attributes.end() ? otherwise : std::get<int64_t>(found->second);
}

}  // namespace tw
