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

// Each vpermi2b has one half of the table, and takes the lowest seven bits of a code.
llvm::Value* look_up_by_vpermi2b(llvm::IRBuilderBase& builder, llvm::Value* table, llvm::Value* codes) {
  const auto quarter = [&](uint64_t bytes) {
    llvm::Value* first = builder.CreateConstGEP1_64(builder.getInt8Ty(), table, bytes);
    return builder.CreateAlignedLoad(codes->getType(), first, llvm::Align(1));
  };
  const auto permuted = [&](uint64_t half) {
    return call(builder, llvm::Intrinsic::x86_avx512_vpermi2var_qi_512, {quarter(half), codes, quarter(half + 64)});
  };
  llvm::Value* is_high = builder.CreateICmpSLT(codes, llvm::Constant::getNullValue(codes->getType()));
  return builder.CreateSelect(is_high, permuted(128), permuted(0));
}

}  // namespace

ByteLookup byte_lookup_of(const Target& target) {
  return target.has("avx512vbmi") ? ByteLookup{64, look_up_by_vpermi2b} : ByteLookup{};
}

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
