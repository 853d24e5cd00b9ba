// Stores that fill each other's gaps become one.
//
//   C[ramp(2·i, 2, 16)] = a
//   C[ramp(2·i + 1, 2, 16)] = b      ⇒   C[ramp(2·i, 1, 32)] = a₀ b₀ a₁ b₁ …
#include <llvm/Analysis/VectorUtils.h>

#include "targets/llvm/codegen.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"

namespace tw {
namespace {

// The ramp that a plain Store of a vector into memory writes at.
const Ramp* ramp_of(const Stmt& s) {
  const auto* store = s.as<Store>();
  if (!store || store->predicate.is_defined() || store->buffer->scope == Scope::register_) return nullptr;
  return store->indices[0].as<Ramp>();
}

bool reads(const Expr& e, const Buffer& buffer) {
  bool found = false;
  visit(e, [&](const Load& l) { found |= l.buffer == buffer; });
  return found;
}

}  // namespace

size_t KernelCodegen::emit_interleaved(const std::vector<Stmt>& statements, size_t first) {
  const Ramp* ramp = ramp_of(statements[first]);
  const auto stride = ramp ? as_int(ramp->stride) : std::nullopt;
  if (!stride || *stride < 2 || *stride > 4 || first + static_cast<size_t>(*stride) > statements.size()) return 0;
  const auto count = static_cast<size_t>(*stride);
  const Buffer& buffer = statements[first].as<Store>()->buffer;
  for (size_t i = 0; i < count; ++i) {
    const Stmt& s = statements[first + i];
    const Ramp* other = ramp_of(s);
    if (!other || s.as<Store>()->buffer != buffer || other->dtype != ramp->dtype ||
        !is_const_int(other->stride, *stride) || !is_known_equal(other->base, ramp->base + Expr(static_cast<int>(i))) ||
        reads(s.as<Store>()->value, buffer)) {
      return 0;
    }
  }
  const int lanes = ramp->dtype.lanes;
  std::vector<llvm::Value*> parts;
  for (size_t i = 0; i < count; ++i) {
    const Expr& value = statements[first + i].as<Store>()->value;
    parts.push_back(to_memory(emit(value), value.dtype()));
  }
  // Side by side, then by element: lane l of part p to l · count + p.
  const auto all = llvm::createSequentialMask(0, 2 * lanes, 0), order = llvm::createInterleaveMask(lanes, count);
  const auto joined = [&](size_t p) {
    return p + 1 < count ? builder_.CreateShuffleVector(parts[p], parts[p + 1], all)
                         : builder_.CreateShuffleVector(parts[p], all);
  };
  llvm::Value* value = count == 2 ? builder_.CreateShuffleVector(parts[0], parts[1], order)
                                  : builder_.CreateShuffleVector(joined(0), joined(2), order);
  const Address at = address(buffer, ramp->base);
  make_store(value, at, buffer);
  return count;
}

}  // namespace tw
