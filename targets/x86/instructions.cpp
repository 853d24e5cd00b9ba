#include "targets/x86/instructions.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>

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

unsigned lanes_of(llvm::Value* vector) {
  return llvm::cast<llvm::FixedVectorType>(vector->getType())->getNumElements();
}

// Intel SDM: DAZ, FTZ and round to nearest even whatever MXCSR says, as dot_bf16 means.
llvm::Value* emit_vdpbf16ps(llvm::IRBuilderBase& builder, llvm::Value* sum, llvm::Value* a, llvm::Value* b) {
  const auto id = lanes_of(sum) == 4   ? llvm::Intrinsic::x86_avx512bf16_dpbf16ps_128
                  : lanes_of(sum) == 8 ? llvm::Intrinsic::x86_avx512bf16_dpbf16ps_256
                                       : llvm::Intrinsic::x86_avx512bf16_dpbf16ps_512;
  return call(builder, id, {sum, a, b});
}

llvm::Value* emit_vpdpbusd(llvm::IRBuilderBase& builder, llvm::Value* sum, llvm::Value* a, llvm::Value* b) {
  const auto id = lanes_of(sum) == 4   ? llvm::Intrinsic::x86_avx512_vpdpbusd_128
                  : lanes_of(sum) == 8 ? llvm::Intrinsic::x86_avx512_vpdpbusd_256
                                       : llvm::Intrinsic::x86_avx512_vpdpbusd_512;
  return call(builder, id, {sum, a, b});
}

}  // namespace

std::vector<MachineInstruction> instructions_of(const std::vector<std::string>& features) {
  const auto has = [&](const char* name) {
    return std::find(features.begin(), features.end(), name) != features.end();
  };
  std::vector<MachineInstruction> result;
  // Cores with AMX have it in microcode: less than half of what multiply-adds of f32 do.
  const double bf16_cycles = has("amx-bf16") ? 6 : 1;
  if (has("avx512bf16")) result.push_back({Intrinsic::dot_bf16, {4, 8, 16}, emit_vdpbf16ps, bf16_cycles});
  if (has("avx512vnni"))
    result.push_back({Intrinsic::dot_u8s8, {4, 8, 16}, emit_vpdpbusd});
  else if (has("avxvnni"))
    result.push_back({Intrinsic::dot_u8s8, {4, 8}, emit_vpdpbusd});
  return result;
}

}  // namespace tw::x86
