// One kernel in lowered form to LLVM IR.  Included by llvm/*.cpp and compile_image.cpp only: LLVM stays in
// there.
//
//   * A kernel is two functions: the KernelFunction of runtime/plan/plan.h, which loads its buffers' addresses, and an
//   inner
//     function that takes them as `noalias` arguments, so that LLVM knows that buffers do not overlap.
//     Where stores go past the caches (parameters that are `streamed`) there are two inner functions: these stores
//     need whole aligned lines, and whether a caller's array is aligned is known when the kernel is called.
//   * Values: bool is i1 (a byte in memory), f16 and bf16 are their bits in i16 (converted to and from f32 where they
//     meet arithmetic, see passes/legalize_types.cpp), everything else is what LLVM calls it.
//   * Register buffers are SSA values: see registers.cpp.
//   * Tiles of a matrix unit are its registers, by number: see tiles.cpp.
//   * Addresses are base + Σ variable·coefficient (outermost loops first, so that what is invariant comes first) +
//   constant;
//     the constant ends in the instruction's displacement.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>

#include <map>
#include <unordered_map>
#include <vector>

#include "targets/allocations.h"
#include "targets/lower.h"

namespace tw {

// The target's features in LLVM's words: "+avx2,+fma".
std::string feature_string(const Target& target);

// The elements of register buffers, grouped into the vectors that the code reads and writes.
class RegisterFile {
 public:
  // Finds every register buffer allocated in `body` and how it is accessed.  Error(lower): an index is not a constant.
  explicit RegisterFile(const Stmt& body);

  struct Slot {
    int64_t first;  // element of the buffer
    int lanes;
    DType dtype;  // of an element
  };
  size_t size() const { return slots_.size(); }
  const Slot& slot(size_t id) const { return slots_[id]; }
  std::vector<size_t> slots_of(const Buffer& buffer) const;
  // The slots that a Store in the statement may change, ascending.
  std::vector<size_t> stored_in(const Stmt& s) const;
  struct Place {
    size_t slot;
    int lane;
  };
  // Of each lane of a constant index.
  std::vector<Place> places(const Buffer& buffer, const Expr& index) const;

 private:
  struct Elements {
    size_t first_slot = 0, slot_count = 0;
    std::vector<Place> place;  // of each element
  };
  std::unordered_map<Buffer, Elements> buffers_;
  std::vector<Slot> slots_;
};

class KernelCodegen {
 public:
  KernelCodegen(llvm::Module& module, const Kernel& kernel, const Target& target);
  void run();

 private:
  // codegen.cpp: functions and statements
  void emit_entry(llvm::Function* inner, llvm::Function* streaming);
  llvm::Function* make_inner(bool streams);
  void emit_tasks();
  void emit(const Stmt& s);
  void emit_loop(const Var& var, llvm::Value* first, llvm::Value* last, bool runs_at_least_once, const Stmt& body);
  void emit_if(const Stmt& s);
  void emit_allocate(const Allocate& allocate);
  void emit_evaluate(const Evaluate& evaluate);
  void set_function_attributes(llvm::Function* function) const;

  // expr.cpp
  llvm::Value* emit(const Expr& e);
  llvm::Value* emit_unary(const Unary& e);
  llvm::Value* emit_binary(const Binary& e);
  llvm::Value* emit_operation(BinaryOp op, DType dtype, llvm::Value* a, llvm::Value* b, bool is_a_number,
                              bool is_b_number);
  llvm::Value* emit_division(const Binary& e, llvm::Value* a, llvm::Value* b);
  llvm::Value* emit_integer_division(bool wants_quotient, DType dtype, llvm::Value* a, llvm::Value* b);
  llvm::Value* emit_lane_comparison(const Binary& e);
  llvm::Value* emit_min_max(bool is_min, DType dtype, llvm::Value* a, llvm::Value* b, bool is_a_number,
                            bool is_b_number);
  llvm::Value* emit_min_max_propagating(bool is_min, DType dtype, llvm::Value* a, llvm::Value* b, bool is_b_number);
  llvm::Value* emit_call(const Call& e);
  llvm::Value* emit_instruction(const Call& e);
  llvm::Value* emit_round(Intrinsic intrinsic, llvm::Value* x);
  llvm::Value* emit_scale_by_power(llvm::Value* x, llvm::Value* power);
  llvm::Value* emit_vector_reduce(const VectorReduce& e);
  bool is_non_negative(const Expr& e) const;

  // convert.cpp
  llvm::Value* emit_cast(const Cast& e);
  llvm::Value* emit_cast(llvm::Value* value, DType from, DType to);
  llvm::Value* float_to_integer(llvm::Value* value, DType from, DType to, bool is_within_limits);
  llvm::Value* half_to_float(llvm::Value* bits);
  llvm::Value* float_to_half(llvm::Value* value);
  llvm::Value* bfloat_to_float(llvm::Value* bits);
  llvm::Value* float_to_bfloat(llvm::Value* value);

  // memory.cpp
  llvm::Value* uniform_part(const Expr& predicate);
  llvm::Value* emit_load(const Load& l);
  llvm::Value* load_vector(const Load& l, const Ramp& index);
  llvm::Value* load_strided(const Load& l, const Ramp& index, int64_t stride);
  llvm::Value* look_up(const Load& l);
  llvm::Value* load_gather(const Load& l);
  llvm::Value* zeros(llvm::Type* type);
  llvm::Value* load_scalar(const Buffer& buffer, DType dtype, const Expr& index, llvm::Value* predicate);
  llvm::Value* load_words(const Load& first, DType words);
  void emit_store(const Store& s);
  void store_memory(const Store& s, llvm::Value* value);
  // Stores from `first` on that interleave, as one: how many; 0: none.  interleave.cpp
  size_t emit_interleaved(const std::vector<Stmt>& statements, size_t first);
  // Loads of the stores from `first` on that are columns of the same rows are made at once, into columns_: of how many
  // stores; 0: none.  transpose.cpp
  size_t load_columns(const std::vector<Stmt>& statements, size_t first);
  std::vector<llvm::Value*> load_transposed(const Load& first, size_t count);
  std::vector<llvm::Value*> transpose(std::vector<llvm::Value*> rows);
  llvm::Value* resized(llvm::Value* vector, int lanes, int first = 0);
  void when(llvm::Value* condition, const std::function<void()>& then);
  struct Address {
    llvm::Value* pointer;
    llvm::Align alignment;
  };
  Address address(const Buffer& buffer, const Expr& index);
  llvm::Value* addresses(const Buffer& buffer, const Expr& index);  // a vector of pointers
  llvm::LoadInst* make_load(llvm::Type* type, const Address& at, const Buffer& buffer);
  void make_store(llvm::Value* value, const Address& at, const Buffer& buffer);
  void store_leading(llvm::Value* value, const Address& at, unsigned count);
  void mark_invariant(llvm::Instruction* load, const Buffer& buffer);
  llvm::Value* from_memory(llvm::Value* value, DType dtype);
  llvm::Value* to_memory(llvm::Value* value, DType dtype);

  // registers.cpp
  llvm::Value* read_registers(const Buffer& buffer, const Expr& index);
  void write_registers(const Buffer& buffer, const Expr& index, llvm::Value* value, llvm::Value* predicate);
  std::vector<size_t> live_stored_slots(const Stmt& s) const;

  // tiles.cpp
  void plan_tiles();
  void plan_tiles(const Allocate& allocate);
  void configure_tiles(const std::vector<TileUnit::Size>& sizes);
  void forget_tile_operands();
  int tile_operand(const Expr& words, const TileUnit::Size& size, int taken);
  bool emit_tile_store(const Store& s);  // false: it is about no tile

  // Types and small values.
  llvm::Type* type_of(DType dtype) const;
  llvm::Type* memory_type_of(DType dtype) const;
  llvm::Value* splat(llvm::Value* scalar, int lanes);
  llvm::Constant* constant(llvm::Type* type, int64_t value) const;
  int depth_of(const Expr& e) const;

  llvm::Module& module_;
  llvm::LLVMContext& context_;
  const Kernel& kernel_;
  const Target& target_;
  llvm::IRBuilder<> builder_;
  llvm::Function* function_ = nullptr;  // the inner one
  llvm::BasicBlock* entry_ = nullptr;   // where allocas go
  llvm::Value* first_ = nullptr;
  llvm::Value* last_ = nullptr;
  std::unordered_map<const ExprNode*, llvm::Value*> vars_;
  std::unordered_map<const ExprNode*, int> depths_;  // of loop variables: how deep
  int depth_ = 0;
  std::unordered_map<Buffer, llvm::Value*> pointers_;
  std::unordered_map<Buffer, bool> is_written_;
  // Buffers that this inner function stores to past the caches.
  bool is_streamed(const Buffer& buffer) const;
  int64_t alignment_of(const Buffer& buffer) const;
  bool streams_ = false, has_streamed_ = false;
  std::unordered_map<const ExprNode*, llvm::Value*> columns_;  // Loads that are made already
  AllocationPlan allocations_;
  RegisterFile registers_;
  std::vector<llvm::Value*> slots_;  // current value of each slot; null outside its Allocate, and for tiles

  std::unordered_map<size_t, int> tile_of_slot_;                        // accumulators' registers
  std::unordered_map<Buffer, std::vector<TileUnit::Size>> tile_plans_;  // by the buffer of the accumulators
  bool have_one_tile_plan_ = true;
  std::vector<TileUnit::Size> tile_sizes_;  // in force: of each register, the accumulators first
  int tile_accumulators_ = 0;
  std::vector<Expr> tile_operands_;  // what each register holds; not defined: nothing that is known
  std::unordered_map<int, int64_t> tile_uses_;
  int64_t tile_clock_ = 0;
};

}  // namespace tw
