#include "targets/x86/instructions.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <array>

namespace tw::x86 {
namespace {

// Operands as the instruction's function takes them: the same bits.
llvm::Value* call(llvm::IRBuilderBase& builder, llvm::Intrinsic::ID id, std::initializer_list<llvm::Value*> operands) {
  llvm::Function* function = llvm::Intrinsic::getOrInsertDeclaration(builder.GetInsertBlock()->getModule(), id);
  std::vector<llvm::Value*> arguments;
  for (llvm::Value* operand : operands) {
    arguments.push_back(builder.CreateBitCast(
        operand, function->getFunctionType()->getParamType(static_cast<unsigned>(arguments.size()))));
  }
  return builder.CreateCall(function, arguments);
}

// The instruction for 4, 8 or 16 lanes.
llvm::Value* emit_dot(llvm::IRBuilderBase& builder, const std::array<llvm::Intrinsic::ID, 3>& by_lanes,
                      llvm::Value* sum, llvm::Value* a, llvm::Value* b) {
  const unsigned lanes = llvm::cast<llvm::FixedVectorType>(sum->getType())->getNumElements();
  return call(builder, by_lanes[lanes == 4 ? 0 : lanes == 8 ? 1 : 2], {sum, a, b});
}

// Intel SDM: DAZ, FTZ and round to nearest even whatever MXCSR says, as dot_bf16 means.
llvm::Value* emit_vdpbf16ps(llvm::IRBuilderBase& builder, llvm::Value* sum, llvm::Value* a, llvm::Value* b) {
  using namespace llvm::Intrinsic;
  return emit_dot(builder, {x86_avx512bf16_dpbf16ps_128, x86_avx512bf16_dpbf16ps_256, x86_avx512bf16_dpbf16ps_512}, sum,
                  a, b);
}

llvm::Value* emit_vpdpbusd(llvm::IRBuilderBase& builder, llvm::Value* sum, llvm::Value* a, llvm::Value* b) {
  using namespace llvm::Intrinsic;
  return emit_dot(builder, {x86_avx512_vpdpbusd_128, x86_avx512_vpdpbusd_256, x86_avx512_vpdpbusd_512}, sum, a, b);
}

}  // namespace

std::vector<MachineInstruction> instructions_of(const Target& target) {
  std::vector<MachineInstruction> result;
  // Cores with AMX have it in microcode: less than half of what multiply-adds of f32 do.
  const double bf16_cycles = target.has("amx-bf16") ? 6 : 1;
  if (target.has("avx512bf16")) result.push_back({Intrinsic::dot_bf16, {4, 8, 16}, emit_vdpbf16ps, bf16_cycles});
  if (target.has("avx512vnni"))
    result.push_back({Intrinsic::dot_u8s8, {4, 8, 16}, emit_vpdpbusd});
  else if (target.has("avxvnni"))
    result.push_back({Intrinsic::dot_u8s8, {4, 8}, emit_vpdpbusd});
  return result;
}

}  // namespace tw::x86
