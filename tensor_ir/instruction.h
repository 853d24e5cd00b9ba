// Instructions of machines that do several steps at once, each described as a small loop nest.
//
// `description` says what the instruction means, in loops over its operands' elements; `replacement` says the same with
// its intrinsic.  Both are Funcs with the same buffers: the oracle runs either, and a test runs both.  The schedule
// primitive `tensorize` marks a loop whose nest is the description, and the pass tensorize_loops puts the replacement
// there.  A row of intrinsics.def and a row of instruction.cpp make an instruction known; targets list those that they
// have, and say how they are emitted.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/ir.h"

namespace tw {

// Parameters of a description, extents and strides, are what the nest that is matched has, as constants.
//
//   element   of lanes that do not know of each other: a vectorized loop around it makes them
//   matrix    of a size of its own, in one vector; rows of `a` lie any stride apart
//   tile      of any size, in a register of a unit for tiles (tile_dot_bf16, tile_zero_f32, …) or spread over the
//             threads of a warp (mma_bf16, wgmma_bf16, …), or between memories (tile_copy_bf16, …)
enum class InstructionResult : uint8_t { element, matrix, tile };

struct TensorInstruction {
  std::string name;  // of a product also its intrinsic's
  Func description;
  Func replacement;  // its body is not defined where `match_instruction` makes it: of matrices and tiles
  int64_t extent;    // of the description's innermost loop when that is constant: elements of a word; else 0
  InstructionResult result;
  bool is_asynchronous = false;  // its result is there when the thread has waited for it (wait_products)
  bool is_tile() const { return result == InstructionResult::tile; }
  bool is_matrix() const { return result == InstructionResult::matrix; }
};

const std::vector<TensorInstruction>& tensor_instructions();
const TensorInstruction* find_tensor_instruction(std::string_view name);  // null: unknown

// What a loop of kind tensorized names; null: another loop.
const TensorInstruction* instruction_of(const For& loop);
bool multiplies_asynchronously(const Stmt& s);  // before or after tensorize_loops

// The description with operands found: elements of a description's buffer lie in memory from `base` on, as far apart as
// in the description.
struct InstructionMatch {
  Stmt replacement;     // of the whole nest
  std::string problem;  // why there is none
  bool is_found() const { return replacement.is_defined(); }
};
// Constant extents of the nest's loops; `nest`: loops around one Store without a predicate.  Equal up to names, the
// order of operands of + and *, and where the operands are; `assumptions` say what is known around the nest.
InstructionMatch match_instruction(const TensorInstruction& instruction, const For& nest,
                                   const Assumptions& assumptions);

}  // namespace tw
