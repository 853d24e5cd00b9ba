// Structural equality and hash: the same up to the identities of bound variables and buffers.
#pragma once

#include <string>

#include "tensor_ir/ir.h"

namespace tw {

// Free variables and buffers must be the same objects.
bool structural_equal(const Expr& a, const Expr& b);
bool structural_equal(const Stmt& a, const Stmt& b);
// Parameters correspond by position; names do not matter.
bool structural_equal(const Func& a, const Func& b);

// Equal things hash equally, on every platform and in every run (bound identities hash by their number of first use).
uint64_t structural_hash(const Expr& e);
uint64_t structural_hash(const Stmt& s);
uint64_t structural_hash(const Func& f);
// 128 bits of the same walk, as 32 hexadecimal digits: so many that what has an equal digest is taken for equal.
std::string structural_digest(const Func& f);

}  // namespace tw
