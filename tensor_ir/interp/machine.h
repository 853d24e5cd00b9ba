// The oracle's machine: a Func compiled to instructions over numbered slots (compile.cpp), their meaning
// (ops.cpp), and memory, threads and the detection of races (interp.cpp).
//
// A slot holds one element: integers as meaning::wrap leaves them, floats as a double of the dtype's precision.  A
// vector is consecutive slots.  Constants lie at negative numbers.  Each GPU thread has its own slots, so threads are
// switched by leaving off at a barrier.
#pragma once

#include <deque>
#include <memory>
#include <random>
#include <unordered_map>
#include <vector>

#include "tensor_ir/interp/interp.h"

namespace tw::interp {

inline constexpr int64_t warp = 32;  // threads of a GPU that hold fragments together

union Slot {
  int64_t i;
  double f;
};

inline Slot of(int64_t value) {
  Slot s;
  s.i = value;
  return s;
}
inline Slot of(double value) {
  Slot s;
  s.f = value;
  return s;
}

struct Frame;
struct Instr;
// Returns the next instruction; null: the thread has ended or waits at a barrier.
using Handler = const Instr* (*)(const Instr*, Frame&);

struct Instr {
  Handler run = nullptr;
  int32_t dst = 0, a = 0, b = 0, c = 0;
  int32_t lanes = 1;
  int32_t target = 0;  // of jumps: index of an instruction; others: a small number or an index of a table
  DType dtype, from;
};

// Loads and stores: where the indices are.
struct AccessPlan {
  int buffer = 0;  // number in Frame::storage
  struct Index {
    int32_t slot, step;
  };  // step 1: a vector
  std::vector<Index> indices;
  int32_t predicate = 0, predicate_step = 0;
  bool has_predicate = false;
  int lanes = 1, element_lanes = 1;
  int word_elements = 1;  // of word_at: elements that make a word
};

struct AllocatePlan {
  Buffer buffer;
  int number = 0;
  std::vector<int32_t> shape, strides;  // slots
};

struct LaunchPlan {
  struct Axis {
    ThreadAxis axis;
    std::vector<int32_t> extents;
  };  // slots; the largest counts
  std::vector<Axis> axes;
  int32_t end = 0;
};

// What was done to an element since the machine was last in serial code: 0 is nobody.
struct Access {
  uint32_t era = 0, writer = 0, reader = 0, other_reader = 0;
};

// Bytes that are stored when their thread waits for them.
struct PendingStore {
  struct Storage* storage;
  int64_t element;
  std::vector<uint8_t> bytes;
};

// Instructions that are run when their thread waits for them, on the slots as they were.
struct PendingProduct {
  const Instr* begin;
  std::vector<Slot> memory;
};

struct Storage {
  uint8_t* data = nullptr;
  int64_t count = 0;  // elements
  std::vector<int64_t> shape, strides;
  DType dtype;
  bool is_read_only = false, is_private = false;
  uint32_t owner = 0;            // the iteration that allocated it
  std::vector<uint8_t> defined;  // a byte for each element; empty: all are
  std::vector<uint8_t> memory;
  std::vector<Access> accesses;  // made when first needed
  std::string name;
};

struct ParallelState {
  std::vector<int64_t> order;
  size_t position = 0;
  uint32_t outer_tag = 0, instance = 0;
};

struct Program {
  std::string name;
  std::vector<Instr> code;
  std::vector<const StmtNode*> statements;  // of each instruction, for messages
  std::vector<Slot> constants;              // constant k is slot −1 − k
  int32_t slots = 0;
  int buffers = 0;
  std::vector<AccessPlan> accesses;
  std::vector<AllocatePlan> allocations;
  std::vector<LaunchPlan> launches;
  std::vector<std::string> checks;  // names of block iterations
  std::vector<int32_t> parameters;  // slots of Func::parameters
};

class Machine;

struct Frame {
  Machine* machine = nullptr;
  const Instr* code = nullptr;
  Slot* slots = nullptr;
  std::vector<Slot> memory;
  std::vector<Storage*> storage;  // by buffer number
  std::vector<std::unique_ptr<Storage>> owned;
  std::vector<ParallelState> parallel;
  uint32_t tag = 0;
  int64_t axes[7] = {};             // the thread's place, by ThreadAxis
  const Instr* resume = nullptr;    // behind the barrier it waits at
  bool waits_for_warp = false;      // …for the threads of its warp alone
  bool is_copying = false;          // between begin_copies and commit_copies
  std::vector<PendingStore> group;  // that is not committed yet
  std::deque<std::vector<PendingStore>> copies;
  std::deque<PendingProduct> products;
  // By buffer number, of the thread block and of the warp; null outside.
  std::unordered_map<int, std::unique_ptr<Storage>>*block_storage = nullptr, *warp_storage = nullptr;
};

class Machine {
 public:
  Machine(const Program& program, const InterpretOptions& options)
      : program(program), options(options), random(options.seed) {}

  void start(Frame& frame);
  void execute(Frame& frame, const Instr* from);

  // Iterations that may run at the same time: siblings in a tree of parallel loops.
  uint32_t new_instance() { return ++instances_; }
  uint32_t new_tag(uint32_t parent, uint32_t instance);
  bool are_concurrent(uint32_t a, uint32_t b) const;
  void back_to_serial() { tags_.resize(1), ++era_; }
  void note_read(Storage& storage, int64_t element, uint32_t tag);
  void note_write(Storage& storage, int64_t element, uint32_t tag);
  void land(Frame& frame, const PendingStore& store);

  void allocate(Frame& frame, const AllocatePlan& plan);
  void launch(Frame& frame, const LaunchPlan& plan, const Instr* body);
  bool go_on(std::vector<Frame>& frames, int64_t begin, int64_t end);
  std::vector<int64_t> shuffled(int64_t count);

  const Program& program;
  const InterpretOptions& options;
  std::mt19937_64 random;

 private:
  struct Tag {
    uint32_t parent, instance, depth;
  };
  std::vector<Tag> tags_{{0, 0, 0}};
  uint32_t instances_ = 0, era_ = 1;
  [[noreturn]] void conflict(const Storage& storage, int64_t element, const char* what) const;
};

Program compile(const Func& f);  // compile.cpp

// Handlers (ops.cpp).
Handler unary_handler(UnaryOp op, DType dtype);
Handler binary_handler(BinaryOp op, DType operands);
Handler call_handler(Intrinsic intrinsic, DType operands, DType result);
Handler fragment_handler(Intrinsic intrinsic, DType sums);
Handler decode_handler();
Handler encode_handler();
Handler cast_handler(DType from, DType to);
Handler reduce_handler();
Handler load_handler(DType dtype);
Handler word_handler();
Handler store_handler(DType dtype);
enum class Control {
  select,
  ramp,
  broadcast,
  copy,
  reinterpret,
  jump,
  jump_if_false,
  jump_unless_zero,
  jump_unless_less,
  add_one,
  check_iteration,
  parallel_begin,
  parallel_next,
  thread_loop,
  launch,
  barrier,
  warp_barrier,
  begin_copies,
  commit_copies,
  wait_copies,
  begin_product,
  end_product,
  wait_products,
  allocate,
  end,
};
Handler control_handler(Control control);

[[noreturn]] void trap(const std::string& message, const std::string& help);

}  // namespace tw::interp
