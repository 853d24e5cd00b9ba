// vscalefps and vscalefpd, which LLVM offers for whole registers only: vectors of other widths go through them in
// pieces.
#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>

#include "targets/llvm/codegen.h"

namespace tw {

llvm::Value* KernelCodegen::emit_scale_by_power(llvm::Value* x, llvm::Value* power) {
  auto* type = x->getType();
  auto* element = type->getScalarType();
  const bool is_single = element->isFloatTy();
  const int whole = is_single ? 16 : 8;
  const int lanes =
      type->isVectorTy() ? static_cast<int>(llvm::cast<llvm::FixedVectorType>(type)->getNumElements()) : 1;

  // Lanes from `first` on of a vector, or the scalar, as the low lanes of a register.
  const auto take = [&](llvm::Value* from, int first, int width) -> llvm::Value* {
    if (from->getType()->isVectorTy()) return resized(from, width, first);
    auto* wide = llvm::FixedVectorType::get(element, width);
    return builder_.CreateInsertElement(llvm::PoisonValue::get(wide), from, uint64_t{0});
  };
  // Of 128, 256 and 512 bits.
  constexpr llvm::Intrinsic::ID singles[] = {llvm::Intrinsic::x86_avx512_mask_scalef_ps_128,
                                             llvm::Intrinsic::x86_avx512_mask_scalef_ps_256,
                                             llvm::Intrinsic::x86_avx512_mask_scalef_ps_512};
  constexpr llvm::Intrinsic::ID doubles[] = {llvm::Intrinsic::x86_avx512_mask_scalef_pd_128,
                                             llvm::Intrinsic::x86_avx512_mask_scalef_pd_256,
                                             llvm::Intrinsic::x86_avx512_mask_scalef_pd_512};

  llvm::Value* result = nullptr;
  for (int first = 0; first < lanes; first += whole) {
    const int count = std::min(whole, lanes - first);
    int width = whole / 4, size = 0;
    for (; width < count; width *= 2) ++size;
    std::vector<llvm::Value*> arguments = {
        take(x, first, width), take(power, first, width),
        llvm::Constant::getNullValue(llvm::FixedVectorType::get(element, width)),
        llvm::Constant::getAllOnesValue(width == 16 ? builder_.getInt16Ty() : builder_.getInt8Ty())};
    if (width == whole) arguments.push_back(builder_.getInt32(4));  // rounds as the control register says
    llvm::Value* piece = builder_.CreateIntrinsic((is_single ? singles : doubles)[size], arguments);
    if (!type->isVectorTy()) return builder_.CreateExtractElement(piece, uint64_t{0});
    if (!result) {
      result = resized(piece, count);
      continue;
    }
    llvm::Value* next = builder_.CreateShuffleVector(piece, llvm::createSequentialMask(0, count, first - count));
    result = builder_.CreateShuffleVector(result, next, llvm::createSequentialMask(0, first + count, 0));
  }
  return result;
}

}  // namespace tw
