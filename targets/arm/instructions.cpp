#include "targets/arm/instructions.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsAArch64.h>

namespace tw::arm {
namespace {

llvm::Value* bytes_of(llvm::IRBuilderBase& builder, llvm::Value* words) {
  return builder.CreateBitCast(words, llvm::FixedVectorType::get(builder.getInt8Ty(), 16));
}

llvm::Value* emit_dot(llvm::IRBuilderBase& builder, llvm::Intrinsic::ID id, llvm::Value* sum, llvm::Value* a,
                      llvm::Value* b) {
  llvm::Value *x = bytes_of(builder, a), *y = bytes_of(builder, b);
  return builder.CreateIntrinsic(id, {sum->getType(), x->getType()}, {sum, x, y});
}

llvm::Value* emit_sdot(llvm::IRBuilderBase& builder, llvm::Value* sum, llvm::Value* a, llvm::Value* b) {
  return emit_dot(builder, llvm::Intrinsic::aarch64_neon_sdot, sum, a, b);
}

llvm::Value* emit_usdot(llvm::IRBuilderBase& builder, llvm::Value* sum, llvm::Value* a, llvm::Value* b) {
  return emit_dot(builder, llvm::Intrinsic::aarch64_neon_usdot, sum, a, b);
}

llvm::Value* emit_smmla(llvm::IRBuilderBase& builder, llvm::Value* sum, llvm::Value* a, llvm::Value* b) {
  return emit_dot(builder, llvm::Intrinsic::aarch64_neon_smmla, sum, a, b);
}

llvm::Value* emit_usmmla(llvm::IRBuilderBase& builder, llvm::Value* sum, llvm::Value* a, llvm::Value* b) {
  return emit_dot(builder, llvm::Intrinsic::aarch64_neon_usmmla, sum, a, b);
}

// bfdot rounds in a way of its own (to odd, products apart); bfmlalt and bfmlalb are the two fused steps that dot_bf16
// means.  Runs flush subnormals (FPCR.FZ).
llvm::Value* emit_bfmlal(llvm::IRBuilderBase& builder, llvm::Value* sum, llvm::Value* a, llvm::Value* b) {
  auto* type = llvm::FixedVectorType::get(builder.getBFloatTy(), 8);
  llvm::Value *x = builder.CreateBitCast(a, type), *y = builder.CreateBitCast(b, type);
  llvm::Value* upper = builder.CreateIntrinsic(llvm::Intrinsic::aarch64_neon_bfmlalt, {}, {sum, x, y});
  return builder.CreateIntrinsic(llvm::Intrinsic::aarch64_neon_bfmlalb, {}, {upper, x, y});
}

// Each tbl has a quarter of the table: codes of others give 0.
llvm::Value* look_up_by_tbl(llvm::IRBuilderBase& builder, llvm::Value* table, llvm::Value* codes) {
  constexpr uint64_t registers = 4, lanes = 16;
  llvm::Type* type = codes->getType();
  llvm::Value* result = nullptr;
  for (uint64_t quarter = 0; quarter < 4; ++quarter) {
    const uint64_t first = quarter * registers * lanes;
    std::vector<llvm::Value*> operands;
    for (uint64_t r = 0; r < registers; ++r) {
      llvm::Value* at = builder.CreateConstGEP1_64(builder.getInt8Ty(), table, first + r * lanes);
      operands.push_back(builder.CreateAlignedLoad(type, at, llvm::Align(1)));
    }
    operands.push_back(builder.CreateSub(codes, llvm::ConstantInt::get(type, first)));
    llvm::Value* own = builder.CreateIntrinsic(llvm::Intrinsic::aarch64_neon_tbl4, {type}, operands);
    result = result ? builder.CreateOr(result, own) : own;
  }
  return result;
}

}  // namespace

ByteLookup byte_lookup() {
  return {16, look_up_by_tbl};
}

std::vector<MachineInstruction> instructions_of(const Target& target) {
  std::vector<MachineInstruction> result;
  if (target.has("bf16")) result.push_back({Intrinsic::dot_bf16, {4}, emit_bfmlal});
  if (target.has("i8mm")) result.push_back({Intrinsic::dot_u8s8, {4}, emit_usdot});
  if (target.has("i8mm")) result.push_back({Intrinsic::matrix_u8s8, {4}, emit_usmmla});
  if (target.has("i8mm")) result.push_back({Intrinsic::matrix_s8s8, {4}, emit_smmla});
  if (target.has("dotprod")) result.push_back({Intrinsic::dot_s8s8, {4}, emit_sdot});
  return result;
}

}  // namespace tw::arm
