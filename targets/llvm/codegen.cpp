// Functions and statements of a kernel.
#include "targets/llvm/codegen.h"

#include <llvm/IR/Intrinsics.h>
#include <llvm/TargetParser/SubtargetFeature.h>

#include <algorithm>

#include "runtime/memory.h"
#include "tensor_ir/match.h"

namespace tw {

std::string feature_string(const Target& target) {
  llvm::SubtargetFeatures features;
  for (const std::string& feature : target.features) features.AddFeature(feature);
  return features.getString();
}

// ---------------------------------------------------------------------------------------------------------------
// Functions

KernelCodegen::KernelCodegen(llvm::Module& module, const Kernel& kernel, const Target& target)
    : module_(module),
      context_(module.getContext()),
      kernel_(kernel),
      target_(target),
      builder_(module.getContext()),
      allocations_(plan_allocations(kernel.func)),
      registers_(kernel.func.body),
      slots_(registers_.size(), nullptr) {
  for (const Buffer& buffer : buffers_written(kernel.func.body)) is_written_[buffer] = true;
  plan_tiles();
}

void KernelCodegen::set_function_attributes(llvm::Function* function) const {
  function->addFnAttr(llvm::Attribute::NoUnwind);
  function->addFnAttr(llvm::Attribute::NoFree);
  function->addFnAttr(llvm::Attribute::NoSync);
  function->addFnAttr("no-builtins");  // nothing may become a call of memset or the like
  function->addFnAttr("target-cpu", target_.cpu);
  function->addFnAttr("target-features", feature_string(target_));
  for (const auto& [name, value] : target_.function_attributes) function->addFnAttr(name, value);
}

void KernelCodegen::run() {
  const auto& buffers = kernel_.func.buffers;
  streams_ = true;
  const bool has_streamed =
      std::any_of(buffers.begin(), buffers.end(), [&](const Buffer& b) { return is_streamed(b); });
  llvm::Function* inner = make_inner(false);
  emit_entry(inner, has_streamed ? make_inner(true) : nullptr);
}

bool KernelCodegen::is_streamed(const Buffer& buffer) const {
  return streams_ && buffer->is_streamed;
}

int64_t KernelCodegen::alignment_of(const Buffer& buffer) const {
  return std::max<int64_t>(is_streamed(buffer) ? line_bytes : 1, buffer->alignment);
}

llvm::Function* KernelCodegen::make_inner(bool streams) {
  streams_ = streams, has_streamed_ = false;
  const Func& func = kernel_.func;
  auto* pointer = llvm::PointerType::get(context_, 0);
  auto* word = builder_.getInt64Ty();
  std::vector<llvm::Type*> types(func.buffers.size(), pointer);
  types.insert(types.end(), func.parameters.size() + 2, word);
  function_ = llvm::Function::Create(llvm::FunctionType::get(builder_.getVoidTy(), types, false),
                                     llvm::Function::InternalLinkage,
                                     kernel_.symbol + (streams ? ".streaming" : ".tasks"), module_);
  set_function_attributes(function_);
  function_->addFnAttr(llvm::Attribute::NoInline);
  entry_ = llvm::BasicBlock::Create(context_, "entry", function_);
  builder_.SetInsertPoint(entry_);
  size_t i = 0;
  for (const Buffer& buffer : func.buffers) {
    llvm::Argument* argument = function_->getArg(i++);
    argument->setName(buffer->name);
    argument->addAttr(llvm::Attribute::NoAlias);
    if (!is_written_.count(buffer) && buffer->name != "workspace") argument->addAttr(llvm::Attribute::ReadOnly);
    argument->addAttr(
        llvm::Attribute::getWithAlignment(context_, llvm::Align(static_cast<uint64_t>(alignment_of(buffer)))));
    if (const auto shape = const_shape(buffer)) {
      int64_t bytes = buffer->dtype.bytes();
      for (int64_t extent : *shape) bytes *= extent;
      if (bytes > 0) argument->addAttr(llvm::Attribute::getWithDereferenceableBytes(context_, bytes));
    }
    pointers_[buffer] = argument;
  }
  for (const Var& parameter : func.parameters) {
    llvm::Argument* argument = function_->getArg(i++);
    argument->setName(parameter.name());
    vars_[parameter.get()] = argument;
  }
  first_ = function_->getArg(i++);
  last_ = function_->getArg(i++);
  first_->setName("first"), last_->setName("last");
  auto* body = llvm::BasicBlock::Create(context_, "body", function_);
  builder_.SetInsertPoint(body);
  if (!tile_plans_.empty() && have_one_tile_plan_) configure_tiles(tile_plans_.begin()->second);
  emit_tasks();
  if (has_streamed_) {
    // Such stores are not ordered with those that tell other threads of them.
    builder_.CreateFence(llvm::AtomicOrdering::SequentiallyConsistent);
    function_->removeFnAttr(llvm::Attribute::NoSync);
  }
  if (!tile_plans_.empty()) target_.tiles.release(builder_);
  builder_.CreateRetVoid();
  builder_.SetInsertPoint(entry_);
  builder_.CreateBr(body);
  return function_;
}

void KernelCodegen::emit_entry(llvm::Function* inner, llvm::Function* streaming) {
  auto* pointer = llvm::PointerType::get(context_, 0);
  auto* word = builder_.getInt64Ty();
  auto* type = llvm::FunctionType::get(builder_.getVoidTy(), {pointer, pointer, word, word}, false);
  auto* entry = llvm::Function::Create(type, llvm::Function::ExternalLinkage, kernel_.symbol, module_);
  set_function_attributes(entry);
  if (streaming) entry->removeFnAttr(llvm::Attribute::NoSync);
  builder_.SetInsertPoint(llvm::BasicBlock::Create(context_, "entry", entry));
  std::vector<llvm::Value*> arguments;
  for (size_t i = 0; i < kernel_.func.buffers.size(); ++i)
    arguments.push_back(builder_.CreateLoad(pointer, builder_.CreateConstGEP1_64(pointer, entry->getArg(0), i)));
  for (size_t i = 0; i < kernel_.func.parameters.size(); ++i)
    arguments.push_back(builder_.CreateLoad(word, builder_.CreateConstGEP1_64(word, entry->getArg(1), i)));
  arguments.push_back(entry->getArg(2));
  arguments.push_back(entry->getArg(3));
  if (streaming) {
    llvm::Value* low_bits = builder_.getInt64(0);
    streams_ = true;
    for (size_t i = 0; i < kernel_.func.buffers.size(); ++i)
      if (is_streamed(kernel_.func.buffers[i]))
        low_bits = builder_.CreateOr(low_bits, builder_.CreatePtrToInt(arguments[i], word));
    low_bits = builder_.CreateAnd(low_bits, builder_.getInt64(line_bytes - 1));
    auto* aligned = llvm::BasicBlock::Create(context_, "aligned", entry);
    auto* other = llvm::BasicBlock::Create(context_, "other", entry);
    builder_.CreateCondBr(builder_.CreateICmpEQ(low_bits, builder_.getInt64(0)), aligned, other);
    builder_.SetInsertPoint(aligned);
    builder_.CreateCall(streaming, arguments);
    builder_.CreateRetVoid();
    builder_.SetInsertPoint(other);
  }
  builder_.CreateCall(inner, arguments);
  builder_.CreateRetVoid();
}

void KernelCodegen::emit_tasks() {
  if (const auto* loop = kernel_.func.body.as<For>(); loop && loop->loop_kind == LoopKind::parallel) {
    emit_loop(loop->var, first_, last_, false, loop->body);
    return;
  }
  emit(kernel_.func.body);
}

// ---------------------------------------------------------------------------------------------------------------
// Statements

void KernelCodegen::emit(const Stmt& s) {
  switch (s.kind()) {
    case NodeKind::Seq:
      for (size_t i = 0; i < s.as<Seq>()->statements.size();) {
        const std::vector<Stmt>& statements = s.as<Seq>()->statements;
        if (const size_t done = emit_interleaved(statements, i); done > 0) {
          i += done;
          continue;
        }
        for (size_t last = i + std::max<size_t>(1, load_columns(statements, i)); i < last; ++i) emit(statements[i]);
        columns_.clear();
      }
      return;
    case NodeKind::For: {
      const For& loop = *s.as<For>();
      if (loop.loop_kind == LoopKind::vectorized || loop.loop_kind == LoopKind::unrolled ||
          loop.loop_kind == LoopKind::thread) {
        throw Error(ErrorCode::lower, "loop `" + loop.var.name() + "` is of a kind that " + target_.name +
                                          " has no code for\n  help: bind loops to threads for cuda targets only");
      }
      const auto extent = as_int(loop.extent);
      if (extent && *extent <= 0) return;
      emit_loop(loop.var, builder_.getInt64(0), emit(loop.extent), extent.has_value(), loop.body);
      return;
    }
    case NodeKind::If:
      emit_if(s);
      return;
    case NodeKind::LetStmt: {
      const LetStmt& let = *s.as<LetStmt>();
      forget_tile_operands();
      vars_[let.var.get()] = emit(let.value);
      depths_[let.var.get()] = depth_of(let.value);
      emit(let.body);
      return;
    }
    case NodeKind::Allocate:
      emit_allocate(*s.as<Allocate>());
      return;
    case NodeKind::Store:
      emit_store(*s.as<Store>());
      return;
    case NodeKind::Evaluate:
      emit_evaluate(*s.as<Evaluate>());
      return;
    default:
      internal_error("codegen: blocks are lowered before");
  }
}

// Rotated: the test is at the end, so that the body dominates what follows it and loads can be hoisted out of it.
// Register slots that the body stores travel through phis.
void KernelCodegen::emit_loop(const Var& var, llvm::Value* first, llvm::Value* last, bool runs_at_least_once,
                              const Stmt& body) {
  const std::vector<size_t> carried = live_stored_slots(body);
  forget_tile_operands();
  auto* before = builder_.GetInsertBlock();
  auto* header = llvm::BasicBlock::Create(context_, var.name(), function_);
  auto* after = llvm::BasicBlock::Create(context_, var.name() + ".end", function_);
  if (runs_at_least_once) {
    builder_.CreateBr(header);
  } else {
    builder_.CreateCondBr(builder_.CreateICmpSLT(first, last), header, after);
  }
  std::vector<llvm::Value*> initial;
  for (size_t id : carried) initial.push_back(slots_[id]);

  builder_.SetInsertPoint(header);
  auto* counter = builder_.CreatePHI(builder_.getInt64Ty(), 2, var.name());
  counter->addIncoming(first, before);
  std::vector<llvm::PHINode*> phis;
  for (size_t n = 0; n < carried.size(); ++n) {
    auto* phi = builder_.CreatePHI(initial[n]->getType(), 2);
    phi->addIncoming(initial[n], before);
    phis.push_back(phi);
    slots_[carried[n]] = phi;
  }
  ++depth_;
  depths_[var.get()] = depth_;
  if (var.dtype() != i64) {
    vars_[var.get()] = builder_.CreateTrunc(counter, type_of(var.dtype()));
  } else {
    vars_[var.get()] = counter;
  }
  emit(body);
  --depth_;
  auto* latch = builder_.GetInsertBlock();
  auto* next = builder_.CreateAdd(counter, builder_.getInt64(1), "", true, true);
  builder_.CreateCondBr(builder_.CreateICmpSLT(next, last), header, after);
  counter->addIncoming(next, latch);
  for (size_t n = 0; n < carried.size(); ++n) phis[n]->addIncoming(slots_[carried[n]], latch);

  builder_.SetInsertPoint(after);
  if (runs_at_least_once) return;  // the latch's values dominate
  for (size_t n = 0; n < carried.size(); ++n) {
    auto* phi = builder_.CreatePHI(initial[n]->getType(), 2);
    phi->addIncoming(initial[n], before);
    phi->addIncoming(slots_[carried[n]], latch);
    slots_[carried[n]] = phi;
  }
}

void KernelCodegen::emit_if(const Stmt& s) {
  const If& branch = *s.as<If>();
  const std::vector<size_t> changed = live_stored_slots(s);
  llvm::Value* condition = emit(branch.condition);
  auto* then_block = llvm::BasicBlock::Create(context_, "then", function_);
  auto* else_block = llvm::BasicBlock::Create(context_, "else", function_);
  auto* join = llvm::BasicBlock::Create(context_, "join", function_);
  builder_.CreateCondBr(condition, then_block, else_block);
  std::vector<llvm::Value*> before;
  for (size_t id : changed) before.push_back(slots_[id]);

  builder_.SetInsertPoint(then_block);
  forget_tile_operands();
  emit(branch.then_body);
  auto* then_end = builder_.GetInsertBlock();
  builder_.CreateBr(join);
  std::vector<llvm::Value*> then_values;
  for (size_t n = 0; n < changed.size(); ++n) {
    then_values.push_back(slots_[changed[n]]);
    slots_[changed[n]] = before[n];
  }

  builder_.SetInsertPoint(else_block);
  forget_tile_operands();
  if (branch.else_body.is_defined()) emit(branch.else_body);
  auto* else_end = builder_.GetInsertBlock();
  builder_.CreateBr(join);

  builder_.SetInsertPoint(join);
  forget_tile_operands();
  for (size_t n = 0; n < changed.size(); ++n) {
    llvm::Value*& value = slots_[changed[n]];
    if (value == then_values[n]) continue;
    auto* phi = builder_.CreatePHI(value->getType(), 2);
    phi->addIncoming(then_values[n], then_end);
    phi->addIncoming(value, else_end);
    value = phi;
  }
}

void KernelCodegen::emit_allocate(const Allocate& allocate) {
  const Buffer& buffer = allocate.buffer;
  if (buffer->scope == Scope::register_) {
    const std::vector<size_t> ids = registers_.slots_of(buffer);
    if (const auto plan = tile_plans_.find(buffer); plan != tile_plans_.end()) {
      if (!have_one_tile_plan_) configure_tiles(plan->second);
      forget_tile_operands();
      tile_accumulators_ = 0;
      for (size_t id : ids) tile_accumulators_ += static_cast<int>(tile_of_slot_.count(id));
    }
    for (size_t id : ids) {
      if (tile_of_slot_.count(id)) continue;
      const auto& slot = registers_.slot(id);
      slots_[id] = llvm::PoisonValue::get(type_of(slot.dtype.with_lanes(slot.lanes)));
    }
    emit(allocate.body);
    for (size_t id : ids) slots_[id] = nullptr;
    return;
  }
  if (buffer->scope != Scope::stack && buffer->scope != Scope::global && buffer->scope != Scope::local) {
    throw Error(ErrorCode::lower, "buffer " + buffer->name + " has a scope that " + target_.name +
                                      " has no memory for\n  help: shared and fragment are for cuda targets");
  }
  const std::optional<Expr>& offset = allocations_.offsets.at(buffer);
  if (!offset) {
    const int64_t elements = std::max<int64_t>(1, as_int(allocated_bytes(buffer)).value() / buffer->dtype.bytes());
    llvm::IRBuilder<> at_entry(entry_, entry_->begin());
    auto* memory =
        at_entry.CreateAlloca(llvm::ArrayType::get(memory_type_of(buffer->dtype), elements), nullptr, buffer->name);
    memory->setAlignment(llvm::Align(64));
    pointers_[buffer] = memory;
  } else {
    check(!kernel_.func.buffers.empty() && kernel_.func.buffers.back()->name == "workspace",
          "codegen: the workspace is the kernel's last buffer");
    llvm::Value* workspace = pointers_.at(kernel_.func.buffers.back());
    // Of constants and parameters: computed once.
    const auto here = builder_.saveIP();
    builder_.SetInsertPoint(entry_, entry_->end());
    pointers_[buffer] = builder_.CreateGEP(builder_.getInt8Ty(), workspace, {emit(*offset)}, buffer->name);
    builder_.restoreIP(here);
  }
  is_written_[buffer] = true;
  emit(allocate.body);
}

void KernelCodegen::emit_evaluate(const Evaluate& evaluate) {
  const auto* call = evaluate.call.as<Call>();
  if (call && call->intrinsic == Intrinsic::prefetch) {
    const auto* l = call->arguments[0].as<Load>();
    check(l && l->indices.size() == 1, "codegen: prefetch names an address");
    Expr index = l->indices[0];
    if (const auto* r = index.as<Ramp>()) index = r->base;
    if (l->buffer->scope == Scope::register_) return;
    builder_.CreateIntrinsic(
        llvm::Intrinsic::prefetch, {llvm::PointerType::get(context_, 0)},
        {address(l->buffer, index).pointer, builder_.getInt32(0),
         builder_.getInt32(static_cast<uint32_t>(as_int(call->arguments[1]).value_or(3))), builder_.getInt32(1)});
    return;
  }
  throw Error(ErrorCode::lower,
              "a statement that " + target_.name + " has no code for\n  help: barriers are for cuda targets");
}

// ---------------------------------------------------------------------------------------------------------------
// Types and small values

llvm::Type* KernelCodegen::type_of(DType dtype) const {
  llvm::Type* element = nullptr;
  if (dtype.is_bool()) {
    element = llvm::Type::getInt1Ty(context_);
  } else if (dtype.element() == f32) {
    element = llvm::Type::getFloatTy(context_);
  } else if (dtype.element() == f64) {
    element = llvm::Type::getDoubleTy(context_);
  } else {
    element = llvm::Type::getIntNTy(context_, dtype.bits);
  }
  return dtype.is_vector() ? llvm::FixedVectorType::get(element, dtype.lanes) : element;
}

llvm::Type* KernelCodegen::memory_type_of(DType dtype) const {
  return type_of(dtype.is_bool() ? u8.with_lanes(dtype.lanes) : dtype);
}

llvm::Value* KernelCodegen::splat(llvm::Value* scalar, int lanes) {
  return lanes > 1 && !scalar->getType()->isVectorTy() ? builder_.CreateVectorSplat(lanes, scalar) : scalar;
}

llvm::Constant* KernelCodegen::constant(llvm::Type* type, int64_t value) const {
  return llvm::ConstantInt::get(type, static_cast<uint64_t>(value), true, true);
}

int KernelCodegen::depth_of(const Expr& e) const {
  int depth = 0;
  visit(
      e,
      [&](const VarNode& v) {
        const auto found = depths_.find(&v);
        if (found != depths_.end()) depth = std::max(depth, found->second);
      },
      [&](const Load&) { depth = depth_; });  // what is loaded may change from one iteration to the next
  return depth;
}

}  // namespace tw
