// AMX: registers by number, with LLVM's intrinsics that take numbers.  Values of its type x86_amx would be copied
// through memory wherever they are carried around a loop.
#include <llvm/IR/Constants.h>
#include <llvm/IR/GlobalVariable.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/IntrinsicsX86.h>
#include <llvm/IR/Module.h>

#include "targets/x86/instructions.h"

namespace tw::x86 {
namespace {

llvm::Value* number(llvm::IRBuilderBase& builder, int tile) {
  return builder.getInt8(static_cast<uint8_t>(tile));
}

// Intel SDM, LDTILECFG: palette 1, bytes of a row from byte 16 on, two each, and rows from byte 48 on.
void configure(llvm::IRBuilderBase& builder, const std::vector<TileUnit::Size>& sizes) {
  std::vector<uint8_t> bytes(64, 0);
  bytes[0] = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    bytes[16 + 2 * i] = static_cast<uint8_t>(sizes[i].row_bytes);
    bytes[48 + i] = static_cast<uint8_t>(sizes[i].rows);
  }
  llvm::Module& owner = *builder.GetInsertBlock()->getModule();
  llvm::Constant* data = llvm::ConstantDataArray::get(owner.getContext(), bytes);
  auto* global =
      new llvm::GlobalVariable(owner, data->getType(), true, llvm::GlobalValue::PrivateLinkage, data, "tiles");
  global->setAlignment(llvm::Align(64));
  builder.CreateIntrinsic(llvm::Intrinsic::x86_ldtilecfg, {global});
}

void release(llvm::IRBuilderBase& builder) {
  builder.CreateIntrinsic(llvm::Intrinsic::x86_tilerelease, {});
}

void zero(llvm::IRBuilderBase& builder, int tile) {
  builder.CreateIntrinsic(llvm::Intrinsic::x86_tilezero, {number(builder, tile)});
}

void load(llvm::IRBuilderBase& builder, int tile, llvm::Value* first, llvm::Value* stride_bytes) {
  builder.CreateIntrinsic(llvm::Intrinsic::x86_tileloadd64, {number(builder, tile), first, stride_bytes});
}

void store(llvm::IRBuilderBase& builder, int tile, llvm::Value* first, llvm::Value* stride_bytes) {
  builder.CreateIntrinsic(llvm::Intrinsic::x86_tilestored64, {number(builder, tile), first, stride_bytes});
}

void multiply(llvm::IRBuilderBase& builder, Intrinsic product, int sum, int a, int b) {
  const auto id = product == Intrinsic::tile_dot_bf16   ? llvm::Intrinsic::x86_tdpbf16ps
                  : product == Intrinsic::tile_dot_u8s8 ? llvm::Intrinsic::x86_tdpbusd
                                                        : llvm::Intrinsic::x86_tdpbssd;
  builder.CreateIntrinsic(id, {number(builder, sum), number(builder, a), number(builder, b)});
}

}  // namespace

TileUnit tiles_of(const Target& target) {
  TileUnit unit;
  if (!target.has("amx-tile")) return unit;
  if (target.has("amx-bf16")) unit.products.push_back(Intrinsic::tile_dot_bf16);
  if (target.has("amx-int8")) {
    unit.products.push_back(Intrinsic::tile_dot_u8s8);
    unit.products.push_back(Intrinsic::tile_dot_s8s8);
  }
  if (unit.products.empty()) return unit;
  // Intel 64 and IA-32 Architectures Optimization Reference Manual, chapter 20.
  unit.registers = 8, unit.rows = 16, unit.row_bytes = 64;
  unit.product_latency = 36, unit.load_cycles = 8;
  unit.configure = configure, unit.release = release;
  unit.zero = zero, unit.load = load, unit.store = store, unit.multiply = multiply;
  return unit;
}

}  // namespace tw::x86
