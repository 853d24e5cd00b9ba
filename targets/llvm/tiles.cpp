// Tiles of a matrix unit.
//
// An accumulator of a product of tiles is a slot of a register buffer as wide as the tile.  It is no SSA value but a
// register of the unit, by number, for as long as the buffer is allocated; so loops have nothing to carry.  What is
// left of the registers holds operands, which are loaded when a product needs them and stay until another one takes the
// register, or control or memory changes.
//
//   Cr[ramp(0, 1, 256)] = broadcast(0.0f, 256)                  zero
//   Cr[…] = tile_dot_bf16(Cr[…], word_at(A[tile_at(…)]), …)     load, load, multiply
//   S[tile_at(…)] = Cr[…]                                       store
#include <algorithm>

#include "targets/llvm/codegen.h"
#include "tensor_ir/match.h"
#include "tensor_ir/structural.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/type_rules.h"

namespace tw {
namespace {

const Call* product_of(const Store& s) {
  const auto* c = s.value.as<Call>();
  return c && kind_of(c->intrinsic) == IntrinsicKind::tile ? c : nullptr;
}

const Call* places_of(const std::vector<Expr>& indices) {
  const auto* c = indices[0].as<Call>();
  return c && c->intrinsic == Intrinsic::tile_at ? c : nullptr;
}

[[noreturn]] void refuse(const std::string& what, const std::string& help) {
  throw Error(ErrorCode::lower, what + "\n  help: " + help);
}

void add_once(std::vector<Expr>& list, const Expr& e) {
  if (std::none_of(list.begin(), list.end(), [&](const Expr& other) { return structural_equal(other, e); }))
    list.push_back(e);
}

}  // namespace

// Registers for the accumulators of one buffer, and what is left of them for operands, by size.
void KernelCodegen::plan_tiles(const Allocate& allocate) {
  const TileUnit& unit = target_.tiles;
  std::vector<TileUnit::Size> sizes;
  struct Operands {
    TileUnit::Size size;
    std::vector<Expr> all;
    int registers = 1;
  };
  std::vector<Operands> operands;
  const auto add_operand = [&](const TileUnit::Size& size, const Expr& words) {
    auto found = std::find_if(operands.begin(), operands.end(), [&](const Operands& o) { return o.size == size; });
    if (found == operands.end()) found = operands.insert(found, Operands{size, {}, 1});
    add_once(found->all, words);
  };
  visit(allocate.body, [&](const Store& s) {
    const Call* product = product_of(s);
    if (!product || s.buffer != allocate.buffer) return;
    if (!unit.has(product->intrinsic)) {
      refuse(target_.name + " has no " + to_text(product->intrinsic), "tensorize by what the target has only");
    }
    const Expr &a = product->arguments[1], &b = product->arguments[2];
    const TileSizes tile = *tile_sizes(product->dtype, a.dtype(), b.dtype());
    if (tile.m > unit.rows || tile.k > unit.rows || 4 * std::max(tile.n, tile.k) > unit.row_bytes) {
      refuse("a tile of " + std::to_string(tile.m) + " × " + std::to_string(tile.n) + " × " + std::to_string(tile.k) +
                 " words is larger than those of " + target_.name,
             "split the loops by " + std::to_string(unit.rows));
    }
    const size_t slot = registers_.places(s.buffer, s.indices[0])[0].slot;
    if (registers_.slot(slot).lanes != product->dtype.lanes)
      refuse("tiles of `" + s.buffer->name + "` overlap", "give each tile elements of its own");
    if (tile_of_slot_.emplace(slot, static_cast<int>(sizes.size())).second) sizes.push_back({tile.m, 4 * tile.n});
    add_operand({tile.m, 4 * tile.k}, a);
    add_operand({tile.k, 4 * tile.n}, b);
  });
  if (sizes.empty()) return;
  // Two operands of one size are live at once.
  if (operands.size() == 1 && operands[0].all.size() > 1) operands[0].registers = 2;
  int left = unit.registers - static_cast<int>(sizes.size());
  for (const Operands& o : operands) left -= o.registers;
  if (left < 0)
    refuse("`" + allocate.buffer->name + "` needs more tile registers than the " + std::to_string(unit.registers) +
               " of " + target_.name,
           "keep fewer tiles at once");
  for (bool is_wanted = true; is_wanted && left > 0;) {
    is_wanted = false;
    for (Operands& o : operands) {
      if (left == 0 || o.registers >= static_cast<int>(o.all.size())) continue;
      ++o.registers, --left, is_wanted = true;
    }
  }
  for (const Operands& o : operands) sizes.insert(sizes.end(), static_cast<size_t>(o.registers), o.size);
  tile_plans_[allocate.buffer] = sizes;
}

// One configuration for the kernel where its tiles agree; then it is loaded once.
void KernelCodegen::plan_tiles() {
  visit(kernel_.func.body, [&](const Allocate& a) {
    if (a.buffer->scope == Scope::register_) plan_tiles(a);
  });
  have_one_tile_plan_ = true;
  for (const auto& [buffer, sizes] : tile_plans_) have_one_tile_plan_ &= sizes == tile_plans_.begin()->second;
}

void KernelCodegen::configure_tiles(const std::vector<TileUnit::Size>& sizes) {
  target_.tiles.configure(builder_, sizes);
  tile_sizes_ = sizes;
  forget_tile_operands();
}

void KernelCodegen::forget_tile_operands() {
  tile_operands_.assign(tile_sizes_.size(), Expr());
}

// The register that holds the words.  `taken`: one that must keep what it holds.
int KernelCodegen::tile_operand(const Expr& words, const TileUnit::Size& size, int taken) {
  const auto held = std::find_if(tile_operands_.begin(), tile_operands_.end(),
                                 [&](const Expr& e) { return e.is_defined() && structural_equal(e, words); });
  int tile = static_cast<int>(held - tile_operands_.begin());
  if (held == tile_operands_.end()) {
    tile = -1;
    for (int i = 0; i < static_cast<int>(tile_operands_.size()); ++i) {
      const bool is_accumulator = i < tile_accumulators_;
      if (is_accumulator || i == taken || !(tile_sizes_[i] == size)) continue;
      if (tile < 0 || tile_uses_[i] < tile_uses_[tile]) tile = i;
    }
    check(tile >= 0, "codegen: every size of operand has a register");
    const Load& first = *words.as<Call>()->arguments[0].as<Load>();
    const Call* places = places_of(first.indices);
    if (!places || !is_const_int(places->arguments[3], 32 / first.buffer->dtype.bits) || first.predicate.is_defined())
      refuse("an operand of a product of tiles is `" + to_text(words) + "`", "name words side by side by tile_at");
    const int64_t bytes = first.buffer->dtype.bytes();
    llvm::Value* stride = builder_.CreateMul(emit(places->arguments[1]), builder_.getInt64(bytes));
    target_.tiles.load(builder_, tile, address(first.buffer, places->arguments[0]).pointer, stride);
    tile_operands_[tile] = words;
  }
  tile_uses_[tile] = ++tile_clock_;
  return tile;
}

bool KernelCodegen::emit_tile_store(const Store& s) {
  if (tile_of_slot_.empty()) return false;
  const auto tile_at = [&](const Buffer& buffer, const std::vector<Expr>& indices) {
    if (buffer->scope != Scope::register_) return -1;
    const auto found = tile_of_slot_.find(registers_.places(buffer, indices[0])[0].slot);
    return found == tile_of_slot_.end() ? -1 : found->second;
  };
  const int target = tile_at(s.buffer, s.indices);
  const auto* copied = s.value.as<Load>();
  if (target < 0) {
    const int source = copied ? tile_at(copied->buffer, copied->indices) : -1;
    if (source < 0) return false;
    const Call* places = places_of(s.indices);
    if (!places || !is_const_int(places->arguments[3], 1) || s.predicate.is_defined() || s.buffer->dtype.bits != 32)
      refuse("a tile is stored as `" + to_text(Stmt(make_stmt<Store>(s.buffer, s.indices, s.value, s.predicate))) + "`",
             "tensorize the copy by tile_store");
    llvm::Value* stride = builder_.CreateMul(emit(places->arguments[1]), builder_.getInt64(4));
    target_.tiles.store(builder_, source, address(s.buffer, places->arguments[0]).pointer, stride);
    return true;
  }
  if (s.predicate.is_defined()) refuse("a tile is stored in part", "let the tile be whole, or smaller");
  if (const Call* product = product_of(s)) {
    const auto* sum = product->arguments[0].as<Load>();
    if (!sum || tile_at(sum->buffer, sum->indices) != target)
      refuse("a product of tiles adds to one tile and writes another", "accumulate in place");
    const Expr &a = product->arguments[1], &b = product->arguments[2];
    const TileSizes tile = *tile_sizes(product->dtype, a.dtype(), b.dtype());
    const int left = tile_operand(a, {tile.m, 4 * tile.k}, -1);
    const int right = tile_operand(b, {tile.k, 4 * tile.n}, left);
    target_.tiles.multiply(builder_, product->intrinsic, target, left, right);
    return true;
  }
  const auto* all = s.value.as<Broadcast>();
  const bool is_zero = all && (is_const_int(all->value, 0) || (as_float(all->value) && *as_float(all->value) == 0));
  if (!is_zero) refuse("a tile becomes `" + to_text(s.value) + "`", "tiles begin with zeros");
  target_.tiles.zero(builder_, target);
  return true;
}

}  // namespace tw
