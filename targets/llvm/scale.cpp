// vscalefps and vscalefpd, which LLVM offers for whole registers only: vectors of other widths go through them in
// pieces.
#include <llvm/IR/IntrinsicsX86.h>

#include <algorithm>
#include <numeric>

#include "targets/llvm/codegen.h"

namespace tw {

llvm::Value* KernelCodegen::emit_scale_by_power(llvm::Value* x, llvm::Value* power) {
  auto* type = x->getType();
  auto* element = type->getScalarType();
  const bool is_single = element->isFloatTy();
  const int whole = is_single ? 16 : 8;
  const int lanes =
      type->isVectorTy() ? static_cast<int>(llvm::cast<llvm::FixedVectorType>(type)->getNumElements()) : 1;

  // Lanes first … first + count - 1 of a vector, or the scalar, as the low lanes of a register.
  const auto take = [&](llvm::Value* from, int first, int count, int width) -> llvm::Value* {
    if (!from->getType()->isVectorTy()) {
      auto* wide = llvm::FixedVectorType::get(element, width);
      return builder_.CreateInsertElement(llvm::PoisonValue::get(wide), from, uint64_t{0});
    }
    std::vector<int> mask(static_cast<size_t>(width), -1);
    std::iota(mask.begin(), mask.begin() + count, first);
    return builder_.CreateShuffleVector(from, mask);
  };
  const auto identifier = [&](int bytes) -> llvm::Intrinsic::ID {
    if (is_single) {
      return bytes == 64   ? llvm::Intrinsic::x86_avx512_mask_scalef_ps_512
             : bytes == 32 ? llvm::Intrinsic::x86_avx512_mask_scalef_ps_256
                           : llvm::Intrinsic::x86_avx512_mask_scalef_ps_128;
    }
    return bytes == 64   ? llvm::Intrinsic::x86_avx512_mask_scalef_pd_512
           : bytes == 32 ? llvm::Intrinsic::x86_avx512_mask_scalef_pd_256
                         : llvm::Intrinsic::x86_avx512_mask_scalef_pd_128;
  };

  llvm::Value* result = nullptr;
  for (int first = 0; first < lanes; first += whole) {
    const int count = std::min(whole, lanes - first);
    int width = whole / 4;
    while (width < count) width *= 2;
    std::vector<llvm::Value*> arguments = {
        take(x, first, count, width), take(power, first, count, width),
        llvm::Constant::getNullValue(llvm::FixedVectorType::get(element, width)),
        llvm::Constant::getAllOnesValue(width == 16 ? builder_.getInt16Ty() : builder_.getInt8Ty())};
    if (width == whole) arguments.push_back(builder_.getInt32(4));  // rounds as the control register says
    llvm::Value* piece = builder_.CreateIntrinsic(identifier(width * 64 / whole), arguments);
    if (!type->isVectorTy()) return builder_.CreateExtractElement(piece, uint64_t{0});
    if (!result) {
      result = take(piece, 0, count, count);
      continue;
    }
    std::vector<int> mask(static_cast<size_t>(first + count));
    std::iota(mask.begin(), mask.end(), 0);
    result = builder_.CreateShuffleVector(result, take(piece, 0, count, first), mask);
  }
  return result;
}

}  // namespace tw
