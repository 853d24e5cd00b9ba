// Addresses, loads and stores.
#include <llvm/Analysis/VectorUtils.h>
#include <llvm/IR/Intrinsics.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

#include "targets/llvm/codegen.h"
#include "tensor_ir/match.h"
#include "tensor_ir/passes/folding.h"

namespace tw {
namespace {

// constant + Σ coefficient·atom, where an atom is a variable or whatever else is not linear.
struct Linear {
  int64_t constant = 0;
  std::vector<std::pair<Expr, int64_t>> terms;

  void add(const Expr& atom, int64_t coefficient) {
    for (auto& [existing, c] : terms) {
      if (existing.is_same(atom)) {
        c += coefficient;
        return;
      }
    }
    terms.emplace_back(atom, coefficient);
  }
};

void decompose(const Expr& e, int64_t scale, Linear& linear) {
  if (const auto value = as_int(e)) {
    linear.constant += scale * *value;
    return;
  }
  if (const auto* b = e.as<Binary>()) {
    if (b->op == BinaryOp::add || b->op == BinaryOp::sub) {
      decompose(b->a, scale, linear);
      decompose(b->b, b->op == BinaryOp::add ? scale : -scale, linear);
      return;
    }
    if (b->op == BinaryOp::mul) {
      if (const auto factor = as_int(b->b)) return decompose(b->a, scale * *factor, linear);
      if (const auto factor = as_int(b->a)) return decompose(b->b, scale * *factor, linear);
    }
  }
  linear.add(e, scale);
}

}  // namespace

KernelCodegen::Address KernelCodegen::address(const Buffer& buffer, const Expr& index) {
  check(!index.dtype().is_vector(), "codegen: the address of one element");
  const auto found = pointers_.find(buffer);
  check(found != pointers_.end(), "codegen: a buffer that is neither a parameter nor allocated");
  Linear linear;
  decompose(index, buffer->dtype.bytes(), linear);
  // Outermost first: partial sums that a loop does not change come out of it.
  std::ranges::stable_sort(linear.terms, {}, [&](const auto& term) { return depth_of(term.first); });
  llvm::Value* pointer = found->second;
  int64_t alignment = alignment_of(buffer);
  const auto add = [&](const auto& term) {
    const auto& [atom, coefficient] = term;
    if (coefficient == 0) return;
    llvm::Value* value = emit(atom);
    if (value->getType() != builder_.getInt64Ty()) value = emit_cast(value, atom.dtype(), i64);
    llvm::Value* offset =
        coefficient == 1 ? value : builder_.CreateMul(value, builder_.getInt64(coefficient), "", false, true);
    pointer = builder_.CreateGEP(builder_.getInt8Ty(), pointer, offset);
    alignment = std::gcd(alignment, coefficient);
  };
  // LLVM's strength reduction tries sums of all terms it sees, which takes longer than everything else where they are
  // many: what loops around the innermost one make of the address, it takes as one value.
  const auto inner =
      std::ranges::find_if(linear.terms, [&](const auto& term) { return depth_of(term.first) >= depth_; });
  std::for_each(linear.terms.begin(), inner, add);
  if (inner != linear.terms.begin() && depth_of(inner[-1].first) > 0) pointer = builder_.CreateFreeze(pointer);
  std::for_each(inner, linear.terms.end(), add);
  if (linear.constant != 0) {
    pointer = builder_.CreateGEP(builder_.getInt8Ty(), pointer, builder_.getInt64(linear.constant));
    alignment = std::gcd(alignment, linear.constant);
  }
  // The largest power of two in it.
  alignment &= -alignment;
  return {pointer, llvm::Align(std::max<int64_t>(alignment, 1))};
}

llvm::Value* KernelCodegen::addresses(const Buffer& buffer, const Expr& index) {
  llvm::Value* offsets = emit(index);
  if (index.dtype().element() != i64) offsets = emit_cast(offsets, index.dtype(), i64);
  return builder_.CreateGEP(memory_type_of(buffer->dtype), pointers_.at(buffer), offsets);
}

void KernelCodegen::mark_invariant(llvm::Instruction* load, const Buffer& buffer) {
  // Valid only where nothing else in this function writes the memory, by any name.
  if (!is_written_.count(buffer))
    load->setMetadata(llvm::LLVMContext::MD_invariant_load, llvm::MDNode::get(context_, {}));
}

llvm::LoadInst* KernelCodegen::make_load(llvm::Type* type, const Address& at, const Buffer& buffer) {
  auto* result = builder_.CreateAlignedLoad(type, at.pointer, at.alignment);
  mark_invariant(result, buffer);
  return result;
}

// A vector that goes past the caches is written with as many instructions as its alignment asks for.
void KernelCodegen::make_store(llvm::Value* value, const Address& at, const Buffer& buffer) {
  constexpr uint64_t narrowest = 16;  // bytes; narrower stores of this kind are slow, or there are none
  auto* result = builder_.CreateAlignedStore(value, at.pointer, at.alignment);
  const uint64_t bits = value->getType()->getPrimitiveSizeInBits();
  if (!is_streamed(buffer) || at.alignment.value() < narrowest || bits % (8 * narrowest) != 0) return;
  result->setMetadata(llvm::LLVMContext::MD_nontemporal,
                      llvm::MDNode::get(context_, llvm::ConstantAsMetadata::get(builder_.getInt32(1))));
  has_streamed_ = true;
}

llvm::Value* KernelCodegen::from_memory(llvm::Value* value, DType dtype) {
  if (!dtype.is_bool()) return value;
  return builder_.CreateICmpNE(value, llvm::Constant::getNullValue(value->getType()));
}

llvm::Value* KernelCodegen::to_memory(llvm::Value* value, DType dtype) {
  return dtype.is_bool() ? builder_.CreateZExt(value, memory_type_of(dtype)) : value;
}

// ---------------------------------------------------------------------------------------------------------------
// Loads

llvm::Value* KernelCodegen::emit_load(const Load& l) {
  check(l.indices.size() == 1, "codegen: buffers are flat");
  if (const auto column = columns_.find(&l); column != columns_.end()) return column->second;
  const Expr& index = l.indices[0];
  const int lanes = l.dtype.lanes;
  if (l.buffer->scope == Scope::register_) {
    llvm::Value* value = read_registers(l.buffer, index);
    if (l.predicate.is_defined()) {
      llvm::Value* predicate = splat(emit(l.predicate), index.dtype().lanes);
      value = builder_.CreateSelect(predicate, value, llvm::Constant::getNullValue(value->getType()));
    }
    return splat(value, lanes);
  }
  if (lanes == 1) {
    llvm::Value* predicate = l.predicate.is_defined() ? emit(l.predicate) : nullptr;
    return load_scalar(l.buffer, l.buffer->dtype, index, predicate);
  }
  const auto* b = index.as<Broadcast>();
  if (!index.dtype().is_vector() || b) {  // one element for all lanes
    const Expr& scalar = b ? b->value : index;
    if (!l.predicate.is_defined()) return splat(load_scalar(l.buffer, l.buffer->dtype, scalar, nullptr), lanes);
    llvm::Value* mask = splat(emit(l.predicate), lanes);
    llvm::Value* value = splat(load_scalar(l.buffer, l.buffer->dtype, scalar, builder_.CreateOrReduce(mask)), lanes);
    return builder_.CreateSelect(mask, value, llvm::Constant::getNullValue(value->getType()));
  }
  if (const auto* r = index.as<Ramp>()) {
    const auto stride = as_int(r->stride);
    if (stride && *stride == 1) return load_vector(l, *r);
    if (stride && !l.predicate.is_defined() && (*stride == -1 || (*stride >= 2 && *stride <= 4)))
      return load_strided(l, *r, *stride);
  }
  return load_gather(l);
}

llvm::Value* KernelCodegen::load_scalar(const Buffer& buffer, DType dtype, const Expr& index, llvm::Value* predicate) {
  llvm::Type* type = memory_type_of(dtype);
  if (!predicate) return from_memory(make_load(type, address(buffer, index), buffer), dtype);
  if (auto* known = llvm::dyn_cast<llvm::ConstantInt>(predicate)) {
    if (known->isZero()) return llvm::Constant::getNullValue(type_of(dtype));
    return load_scalar(buffer, dtype, index, nullptr);
  }
  auto* before = builder_.GetInsertBlock();
  llvm::Value* value = nullptr;
  llvm::BasicBlock* loaded = nullptr;
  when(predicate, [&] {
    value = make_load(type, address(buffer, index), buffer);
    loaded = builder_.GetInsertBlock();
  });
  auto* phi = builder_.CreatePHI(type, 2);
  phi->addIncoming(llvm::Constant::getNullValue(type), before);
  phi->addIncoming(value, loaded);
  return from_memory(phi, dtype);
}

// Words of neighbouring elements: consecutive ones, and rows of them, as vectors, any others one by one or gathered.
llvm::Value* KernelCodegen::load_words(const Load& first, DType words) {
  check(first.indices.size() == 1 && first.buffer->scope != Scope::register_, "codegen: words lie in flat memory");
  const Expr& index = first.indices[0];
  const DType word = words.element();
  const int lanes = words.lanes;
  llvm::Value* predicate = first.predicate.is_defined() ? emit(first.predicate) : nullptr;
  const auto* b = index.as<Broadcast>();
  if (lanes == 1) return load_scalar(first.buffer, word, index, predicate);
  if ((b || !index.dtype().is_vector()) && !predicate)
    return splat(load_scalar(first.buffer, word, b ? b->value : index, nullptr), lanes);
  llvm::Type* type = memory_type_of(words);
  if (predicate) predicate = splat(predicate, lanes);
  const auto* r = index.as<Ramp>();
  if (r && is_const_int(r->stride, word.bits / first.buffer->dtype.bits)) {
    const Address at = address(first.buffer, r->base);
    if (!predicate) return make_load(type, at, first.buffer);
    auto* value =
        builder_.CreateMaskedLoad(type, at.pointer, at.alignment, predicate, llvm::Constant::getNullValue(type));
    mark_invariant(value, first.buffer);
    return value;
  }
  const auto* rows = index.as<Call>();
  const int64_t columns = rows && rows->intrinsic == Intrinsic::tile_at ? *as_int(rows->arguments[4]) : 1;
  if (columns > 1 && !predicate && is_const_int(rows->arguments[3], word.bits / first.buffer->dtype.bits)) {
    const auto &base = rows->arguments[0], &stride = rows->arguments[1];
    llvm::Type* row_type = memory_type_of(word.with_lanes(static_cast<int>(columns)));
    std::vector<llvm::Value*> parts;
    for (int64_t r = 0; r < *as_int(rows->arguments[2]); ++r)
      parts.push_back(make_load(row_type, address(first.buffer, base + Expr(r) * stride), first.buffer));
    return llvm::concatenateVectors(builder_, parts);
  }
  const Expr each = index.dtype().is_vector() ? index : broadcast(index, lanes);
  return builder_.CreateMaskedGather(type, addresses(first.buffer, each), llvm::Align(first.buffer->dtype.bytes()),
                                     predicate, predicate ? llvm::Constant::getNullValue(type) : nullptr);
}

llvm::Value* KernelCodegen::load_vector(const Load& l, const Ramp& index) {
  llvm::Type* type = memory_type_of(l.dtype);
  if (!l.predicate.is_defined()) return from_memory(make_load(type, address(l.buffer, index.base), l.buffer), l.dtype);
  llvm::Value* mask = splat(emit(l.predicate), l.dtype.lanes);
  Address at = address(l.buffer, index.base);
  // CPUs skip lanes without access to a foreign page correctly, but in microcode: a vector that is off as a whole reads
  // nothing at the start of its own buffer.
  if (llvm::Value* uniform = uniform_part(l.predicate)) {
    const Address start = address(l.buffer, Expr(0));
    at.pointer = builder_.CreateSelect(uniform, at.pointer, start.pointer);
  }
  auto* value = builder_.CreateMaskedLoad(type, at.pointer, at.alignment, mask, llvm::Constant::getNullValue(type));
  mark_invariant(value, l.buffer);
  return from_memory(value, l.dtype);
}

// The conditions of a predicate that all lanes share, or null.
llvm::Value* KernelCodegen::uniform_part(const Expr& predicate) {
  if (!predicate.dtype().is_vector()) return emit(predicate);
  if (const auto* all = predicate.as<Broadcast>()) return uniform_part(all->value);
  const auto* both = predicate.as<Binary>();
  if (!both || both->op != BinaryOp::logical_and) return nullptr;
  llvm::Value *a = uniform_part(both->a), *b = uniform_part(both->b);
  return a && b ? builder_.CreateAnd(a, b) : a ? a : b;
}

// Strides of 2 to 4: whole vectors that together cover the elements and nothing beyond the last one, then shuffles.
llvm::Value* KernelCodegen::load_strided(const Load& l, const Ramp& index, int64_t stride) {
  const int lanes = l.dtype.lanes;
  llvm::Type* type = memory_type_of(l.dtype);
  auto load_at = [&](int64_t first) { return make_load(type, address(l.buffer, index.base + Expr(first)), l.buffer); };
  if (stride == -1) {
    std::vector<int> reverse;
    for (int i = 0; i < lanes; ++i) reverse.push_back(lanes - 1 - i);
    return from_memory(builder_.CreateShuffleVector(load_at(1 - lanes), reverse), l.dtype);
  }
  const int64_t span = (lanes - 1) * stride + 1;
  llvm::Value* result = nullptr;
  int done = 0;  // lanes of `result` that are in place
  while (done < lanes) {
    const int64_t first = std::min<int64_t>(done * stride, span - lanes);
    llvm::Value* part = load_at(first);
    std::vector<int> mask;
    int next = done;
    for (int i = 0; i < lanes; ++i) {
      if (i < done) {
        mask.push_back(i);
      } else if (const int64_t at = i * stride - first; at < lanes) {
        mask.push_back(result ? lanes + static_cast<int>(at) : static_cast<int>(at));
        next = i + 1;
      } else {
        mask.push_back(-1);
      }
    }
    result = result ? builder_.CreateShuffleVector(result, part, mask) : builder_.CreateShuffleVector(part, mask);
    done = next;
  }
  return from_memory(result, l.dtype);
}

// Of a table that registers hold, by bytes; null: of another one.
llvm::Value* KernelCodegen::look_up(const Load& l) {
  constexpr int64_t all_codes = 256;
  const ByteLookup& lookup = target_.byte_lookup;
  const auto* index = l.indices[0].as<Cast>();
  const bool has_codes = index && index->value.dtype().is_vector() && index->value.dtype().element() == u8;
  const bool is_table = l.buffer->is_constant && l.buffer->dtype.is_integer() && l.buffer->dtype.bytes() == 1 &&
                        l.buffer->shape.size() == 1 && is_const_int(l.buffer->shape[0], all_codes);
  if (lookup.lanes == 0 || !has_codes || !is_table) return nullptr;
  llvm::Value *table = address(l.buffer, Expr(0)).pointer, *codes = emit(index->value);
  const auto lanes = static_cast<unsigned>(l.dtype.lanes);
  std::vector<llvm::Value*> parts;
  for (unsigned first = 0; first < lanes; first += lookup.lanes) {
    const unsigned count = std::min(lookup.lanes, lanes - first);
    llvm::Value* own =
        builder_.CreateShuffleVector(codes, llvm::createSequentialMask(first, count, lookup.lanes - count));
    parts.push_back(
        builder_.CreateShuffleVector(lookup.emit(builder_, table, own), llvm::createSequentialMask(0, count, 0)));
  }
  return llvm::concatenateVectors(builder_, parts);
}

// Lanes that only the run knows to be masked read zeros: machines that gather no elements of this width would take a
// branch for each of them.
llvm::Value* KernelCodegen::load_gather(const Load& l) {
  llvm::Type* type = memory_type_of(l.dtype);
  llvm::Value* mask = l.predicate.is_defined() ? splat(emit(l.predicate), l.dtype.lanes) : nullptr;
  if (llvm::Value* found = look_up(l))
    return mask ? builder_.CreateSelect(mask, found, llvm::Constant::getNullValue(type)) : found;
  llvm::Value* at = addresses(l.buffer, l.indices[0]);
  if (mask && !llvm::isa<llvm::Constant>(mask)) {
    at = builder_.CreateSelect(mask, at, splat(zeros(type->getScalarType()), l.dtype.lanes));
    mask = nullptr;
  }
  auto* value = builder_.CreateMaskedGather(type, at, llvm::Align(l.dtype.bytes()), mask,
                                            mask ? llvm::Constant::getNullValue(type) : nullptr);
  return from_memory(value, l.dtype);
}

// Memory for an element or a vector of this type, all zeros, that is only read.
llvm::Value* KernelCodegen::zeros(llvm::Type* type) {
  const std::string name = "zeros." + std::to_string(type->getPrimitiveSizeInBits());
  return module_.getOrInsertGlobal(name, type, [&] {
    return new llvm::GlobalVariable(module_, type, true, llvm::GlobalValue::PrivateLinkage,
                                    llvm::Constant::getNullValue(type), name);
  });
}

// ---------------------------------------------------------------------------------------------------------------
// Stores

void KernelCodegen::when(llvm::Value* condition, const std::function<void()>& then) {
  auto* then_block = llvm::BasicBlock::Create(context_, "when", function_);
  auto* after = llvm::BasicBlock::Create(context_, "after", function_);
  builder_.CreateCondBr(condition, then_block, after);
  builder_.SetInsertPoint(then_block);
  then();
  builder_.CreateBr(after);
  builder_.SetInsertPoint(after);
}

void KernelCodegen::emit_store(const Store& s) {
  check(s.indices.size() == 1, "codegen: buffers are flat");
  const int lanes = s.value.dtype().lanes;
  if (emit_tile_store(s)) return;
  if (s.buffer->scope != Scope::register_) forget_tile_operands();
  if (s.buffer->scope == Scope::register_) {
    llvm::Value* predicate = s.predicate.is_defined() ? emit(s.predicate) : nullptr;
    write_registers(s.buffer, s.indices[0], emit(s.value), predicate ? splat(predicate, lanes) : nullptr);
    return;
  }
  // A scalar predicate guards what the value reads as well: it is a branch.
  if (s.predicate.is_defined() && !s.predicate.dtype().is_vector()) {
    llvm::Value* condition = emit(s.predicate);
    when(condition, [&] { store_memory(s, nullptr); });
    return;
  }
  llvm::Value* mask = s.predicate.is_defined() ? emit(s.predicate) : nullptr;
  store_memory(s, mask);
}

namespace {

// How many lanes a constant mask has set, where these are the first ones.
std::optional<unsigned> leading_lanes(llvm::Value* mask) {
  const auto* constant = llvm::dyn_cast<llvm::Constant>(mask);
  if (!constant) return std::nullopt;
  const unsigned lanes = llvm::cast<llvm::FixedVectorType>(mask->getType())->getNumElements();
  unsigned count = 0;
  for (unsigned i = 0; i < lanes; ++i) {
    const llvm::Constant* lane = constant->getAggregateElement(i);
    if (!lane || (!lane->isOneValue() && !lane->isZeroValue())) return std::nullopt;
    if (lane->isZeroValue()) continue;
    if (i != count++) return std::nullopt;
  }
  return count;
}

}  // namespace

// Powers of two at a time: where masks have a cost, it is that of many stores (AMD's vmaskmovps writes in microcode).
void KernelCodegen::store_leading(llvm::Value* value, const Address& at, unsigned count) {
  llvm::Type* element = value->getType()->getScalarType();
  const uint64_t bytes = element->getPrimitiveSizeInBits() / 8;
  for (unsigned first = 0; first < count;) {
    const unsigned lanes = std::bit_floor(count - first);
    llvm::Value* part = lanes == 1 ? builder_.CreateExtractElement(value, first)
                                   : builder_.CreateShuffleVector(value, llvm::createSequentialMask(first, lanes, 0));
    builder_.CreateAlignedStore(part, builder_.CreateConstInBoundsGEP1_64(element, at.pointer, first),
                                llvm::commonAlignment(at.alignment, first * bytes));
    first += lanes;
  }
}

void KernelCodegen::store_memory(const Store& s, llvm::Value* mask) {
  const DType dtype = s.value.dtype();
  const Expr& index = s.indices[0];
  llvm::Value* value = to_memory(emit(s.value), dtype);
  if (!index.dtype().is_vector()) {
    check(!dtype.is_vector(), "codegen: several values into one element");
    const Address at = address(s.buffer, index);
    builder_.CreateAlignedStore(value, at.pointer, at.alignment);
    return;
  }
  const auto* r = index.as<Ramp>();
  if (r && is_const_int(r->stride, 1)) {
    const Address at = address(s.buffer, r->base);
    if (const auto count = mask && !target_.has_masks ? leading_lanes(mask) : std::nullopt) {
      store_leading(value, at, *count);
    } else if (mask) {
      builder_.CreateMaskedStore(value, at.pointer, at.alignment, mask);
    } else {
      make_store(value, at, s.buffer);
    }
    return;
  }
  builder_.CreateMaskedScatter(value, addresses(s.buffer, index), llvm::Align(dtype.bytes()), mask);
}

}  // namespace tw
