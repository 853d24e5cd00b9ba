// The typing rule of every node, in one place: the parser applies it to each node it makes, the verifier to each it
// meets.
#pragma once

#include <optional>
#include <string>

#include "tensor_ir/ir.h"

namespace tw {

struct TypeProblem {
  std::string message, help;
};

// What is wrong with the node itself, its children taken as right; nothing when it obeys its rule.
std::optional<TypeProblem> type_problem(const Expr& e);
std::optional<TypeProblem> type_problem(const Stmt& s);
std::optional<TypeProblem> type_problem(const Buffer& buffer);

enum class IntrinsicKind : uint8_t { math, predicate, bits, convert, dot, effect };
IntrinsicKind kind_of(Intrinsic intrinsic);
int arity_of(Intrinsic intrinsic);  // -1: any

// The dtype that follows from the operands.  `reinterpret`, `lane_slice` and `word_at` take theirs from the Call, so they
// have none.
std::optional<DType> call_dtype(Intrinsic intrinsic, const std::vector<Expr>& arguments);
// The buffer's dtype with the lanes of the vector indices or of the predicate, which may be not defined.
DType access_dtype(const Buffer& buffer, const std::vector<Expr>& indices, const Expr& predicate);

}  // namespace tw
