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

enum class IntrinsicKind : uint8_t {
  math,
  predicate,
  bits,
  convert,
  decode,
  encode,
  dot,
  tile,
  matrix,
  fragment,
  effect
};
IntrinsicKind kind_of(Intrinsic intrinsic);
// Whether what it gives is there only when the thread has waited for it.
bool is_asynchronous(Intrinsic intrinsic);
DType code_format(Intrinsic intrinsic);  // of one that decodes or encodes
int arity_of(Intrinsic intrinsic);       // -1: any

// What a product of tiles multiplies, from the lanes of its operands: accumulator m × n, a m × k, b k × n words;
// nothing: they do not fit.
struct TileSizes {
  int m = 0, n = 0, k = 0;
};
std::optional<TileSizes> tile_sizes(DType accumulator, DType a, DType b);
// …and a product of matrices: a is m × k, b n × k words.
inline constexpr TileSizes matrix_sizes{2, 2, 2};

// The dtype that follows from the operands.  `reinterpret`, `lane_slice`, `word_at`, `tile_at` and `tile_within` take
// theirs from the Call, so they have none.
std::optional<DType> call_dtype(Intrinsic intrinsic, const std::vector<Expr>& arguments);
// The buffer's dtype with the lanes of the vector indices or of the predicate, which may be not defined.
DType access_dtype(const Buffer& buffer, const std::vector<Expr>& indices, const Expr& predicate);

}  // namespace tw
