// Giving a buffer's accesses to another buffer, as passes do that change the shape of memory.
#pragma once

#include <functional>
#include <vector>

#include "tensor_ir/ir.h"

namespace tw {

// Loads and Stores of `from` go to `to`, at the indices that `map` makes of theirs.
Stmt redirect_accesses(const Stmt& s, const Buffer& from, const Buffer& to,
                       const std::function<std::vector<Expr>(const std::vector<Expr>&)>& map);

}  // namespace tw
