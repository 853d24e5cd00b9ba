// tensor_ir: loops over buffers.
//
// A Func is a list of parameters (buffers and symbolic integers) and a body.  Two forms share these nodes:
//
//   scheduled form   loops around *blocks*.  A block is the unit that schedules move: it has iteration variables,
//                    spatial or reduce, each bound to an expression of the surrounding loops; its body uses
//                    iteration variables only, and buffers by logical indices.  A reduction block has an `init`
//                    that runs when all its reduce iterations are at their first value.  Blocks do not nest.
//   lowered form     after targets/lower: no blocks; vector values (Ramp, Broadcast) and masks; flat indices.
//
// Meaning.
//   * Integers are two's complement and wrap.  Index arithmetic is i64.  `floor_div` and `floor_mod` round to
//     minus infinity; `div` and `mod` truncate to zero (C).  Division by zero is an error in the oracle.
//   * Floats are IEEE; bf16 and f16 values are computed in f32 and rounded at each Cast or Store (a Binary or Call
//     of dtype f16/bf16 rounds its result).  `min`/`max` return the other operand when one is NaN unless written with
//     the intrinsics `minimum`/`maximum`, which propagate NaN.
//   * A Select evaluates both sides, so a Load in it must be in bounds — except that `Load` with a false predicate
//     touches no memory and yields zero.  `If` guards what must not happen.
//   * Loops start at 0 and step by 1; an extent ≤ 0 runs nothing.  Extents do not change while the loop runs.
//   * A parallel loop's iterations touch disjoint data, or are only read.
//
// Invariants (verify.h checks them): each For has its own Var; block names are unique in a Func; every Var is
// bound where it is used; dtypes agree (no implicit conversion); a Load/Store has as many indices as its
// buffer has dimensions.
//
// Nodes are plain immutable structs.  `fields()` lists everything that makes up a node's value; printing,
// equality, hashing, visiting and rewriting derive from it.  Vars and Buffers are identities: equal only if the same.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "runtime/dtype.h"
#include "runtime/error.h"
#include "tensor_ir/text/span.h"

namespace tw {

enum class NodeKind : uint8_t {
#define EXPR_NODE(Name) Name,
#define STMT_NODE(Name) Name,
#include "tensor_ir/nodes.def"
};

// Small sorted maps of options on loops, blocks and Funcs.
using BufferBytes = std::map<std::string, int64_t>;  // by the names of buffers
using AttributeValue = std::variant<int64_t, double, std::string, BufferBytes>;
using Attributes = std::map<std::string, AttributeValue>;

// ---------------------------------------------------------------------------------------------------------------
// Expressions

struct ExprNode {
  NodeKind kind;
  DType dtype;
  virtual ~ExprNode() = default;

 protected:
  ExprNode(NodeKind kind, DType dtype) : kind(kind), dtype(dtype) {}
};

// A shared, immutable expression.  Default-constructed: none (`is_defined()` is false).
class Expr {
 public:
  Expr() = default;
  Expr(int value);      // NOLINT: an i64 constant, so that index arithmetic reads like arithmetic
  Expr(int64_t value);  // NOLINT
  explicit Expr(std::shared_ptr<const ExprNode> node) : node_(std::move(node)) {}

  bool is_defined() const { return node_ != nullptr; }
  explicit operator bool() const = delete;
  const ExprNode* get() const { return node_.get(); }
  const ExprNode* operator->() const { return node_.get(); }
  const ExprNode& operator*() const { return *node_; }
  DType dtype() const { return node_->dtype; }
  NodeKind kind() const { return node_->kind; }
  bool is_same(const Expr& other) const { return node_ == other.node_; }
  template <class T>
  const T* as() const {
    return node_ && node_->kind == T::Kind ? static_cast<const T*>(node_.get()) : nullptr;
  }

 private:
  std::shared_ptr<const ExprNode> node_;
};

enum class UnaryOp : uint8_t { negate, logical_not, bit_not };
enum class BinaryOp : uint8_t {
  add,
  sub,
  mul,
  div,
  mod,
  floor_div,
  floor_mod,
  min,
  max,
  eq,
  ne,
  lt,
  le,  // bool results; a > b is b < a
  logical_and,
  logical_or,  // of bools
  bit_and,
  bit_or,
  bit_xor,
  shift_left,
  shift_right,
};
bool is_comparison(BinaryOp op);

struct IntImm : ExprNode {
  static constexpr NodeKind Kind = NodeKind::IntImm;
  int64_t value;  // of integer and bool dtypes, u64 by its bits
  IntImm(DType dtype, int64_t value) : ExprNode(Kind, dtype), value(value) {}
  auto fields() const { return std::tie(value); }
};

struct FloatImm : ExprNode {
  static constexpr NodeKind Kind = NodeKind::FloatImm;
  double value;
  FloatImm(DType dtype, double value) : ExprNode(Kind, dtype), value(value) {}
  auto fields() const { return std::tie(value); }
};

struct VarNode : ExprNode {
  static constexpr NodeKind Kind = NodeKind::Var;
  std::string name;
  VarNode(DType dtype, std::string name) : ExprNode(Kind, dtype), name(std::move(name)) {}
  auto fields() const { return std::tie(name); }
};

// A variable: an Expr that is known to be a VarNode.  Compares and hashes by identity.
class Var : public Expr {
 public:
  Var() = default;
  explicit Var(std::string name, DType dtype = i64) : Expr(std::make_shared<VarNode>(dtype, std::move(name))) {}
  static Var of(const Expr& e) {
    check(e.kind() == NodeKind::Var, "Var::of: a variable");
    Var v;
    static_cast<Expr&>(v) = e;
    return v;
  }
  const VarNode* operator->() const { return static_cast<const VarNode*>(get()); }
  const std::string& name() const { return (*this)->name; }
  bool operator==(const Var& other) const { return get() == other.get(); }
};

struct Unary : ExprNode {
  static constexpr NodeKind Kind = NodeKind::Unary;
  UnaryOp op;
  Expr a;
  Unary(DType dtype, UnaryOp op, Expr a) : ExprNode(Kind, dtype), op(op), a(std::move(a)) {}
  auto fields() const { return std::tie(op, a); }
};

struct Binary : ExprNode {
  static constexpr NodeKind Kind = NodeKind::Binary;
  BinaryOp op;
  Expr a, b;
  Binary(DType dtype, BinaryOp op, Expr a, Expr b) : ExprNode(Kind, dtype), op(op), a(std::move(a)), b(std::move(b)) {}
  auto fields() const { return std::tie(op, a, b); }
};

struct Cast : ExprNode {
  static constexpr NodeKind Kind = NodeKind::Cast;
  Expr value;
  Cast(DType dtype, Expr value) : ExprNode(Kind, dtype), value(std::move(value)) {}
  auto fields() const { return std::tie(value); }
};

struct Select : ExprNode {
  static constexpr NodeKind Kind = NodeKind::Select;
  Expr condition, then_value, else_value;
  Select(DType dtype, Expr condition, Expr then_value, Expr else_value)
      : ExprNode(Kind, dtype),
        condition(std::move(condition)),
        then_value(std::move(then_value)),
        else_value(std::move(else_value)) {}
  auto fields() const { return std::tie(condition, then_value, else_value); }
};

// The rows of intrinsics.def.
enum class Intrinsic : uint16_t {
#define INTRINSIC(name, arity, kind) name,
#include "tensor_ir/intrinsics.def"
};

struct Call : ExprNode {
  static constexpr NodeKind Kind = NodeKind::Call;
  Intrinsic intrinsic;
  std::vector<Expr> arguments;
  Call(DType dtype, Intrinsic intrinsic, std::vector<Expr> arguments)
      : ExprNode(Kind, dtype), intrinsic(intrinsic), arguments(std::move(arguments)) {}
  auto fields() const { return std::tie(intrinsic, arguments); }
};

// Where a buffer lives.
//   global    memory handed in, or the arena
//   stack     memory of the worker that allocates it (CPU)
//   local     memory of one GPU thread
//   register  values, not memory: constant size; constant indices once unrolled; kept as SSA values, around loops by
//   phis shared    memory of a GPU thread block fragment  a tile spread over the lanes of a warp, used by matrix
//   instructions only
enum class Scope : uint8_t { global, stack, local, register_, shared, fragment };

struct BufferNode {
  std::string name;
  DType dtype;
  std::vector<Expr> shape;    // i64 expressions; empty: one element
  std::vector<Expr> strides;  // in elements; empty: compact, row-major
  Scope scope = Scope::global;
  int alignment = 64;  // bytes, of the first element
  // Of parameters.
  bool is_constant = false;  // known when the Func is compiled (weights): a schedule may transform its layout for free
  bool is_cached = false;    // read again and again, a constant that stays in the cache that cores share
  bool is_streamed = false;  // stores may go past the caches: it is not read again while it would be there
};

// A buffer: an identity, like Var.
class Buffer {
 public:
  Buffer() = default;
  Buffer(std::string name, DType dtype, std::vector<Expr> shape, Scope scope = Scope::global);
  explicit Buffer(BufferNode node) : node_(std::make_shared<const BufferNode>(std::move(node))) {}
  const BufferNode* operator->() const { return node_.get(); }
  bool is_defined() const { return node_ != nullptr; }
  int rank() const { return static_cast<int>(node_->shape.size()); }
  const BufferNode* get() const { return node_.get(); }
  bool operator==(const Buffer& other) const { return node_ == other.node_; }
  bool operator<(const Buffer& other) const { return node_ < other.node_; }

 private:
  std::shared_ptr<const BufferNode> node_;
};

struct Load : ExprNode {
  static constexpr NodeKind Kind = NodeKind::Load;
  Buffer buffer;
  std::vector<Expr> indices;
  Expr predicate;  // bool with the lanes of dtype; not defined: always
  Load(DType dtype, Buffer buffer, std::vector<Expr> indices, Expr predicate = {})
      : ExprNode(Kind, dtype),
        buffer(std::move(buffer)),
        indices(std::move(indices)),
        predicate(std::move(predicate)) {}
  auto fields() const { return std::tie(buffer, indices, predicate); }
};

struct Ramp : ExprNode {  // base, base + stride, … ; lanes = dtype.lanes
  static constexpr NodeKind Kind = NodeKind::Ramp;
  Expr base, stride;
  Ramp(DType dtype, Expr base, Expr stride) : ExprNode(Kind, dtype), base(std::move(base)), stride(std::move(stride)) {}
  auto fields() const { return std::tie(base, stride); }
};

struct Broadcast : ExprNode {
  static constexpr NodeKind Kind = NodeKind::Broadcast;
  Expr value;
  Broadcast(DType dtype, Expr value) : ExprNode(Kind, dtype), value(std::move(value)) {}
  auto fields() const { return std::tie(value); }
};

struct VectorReduce : ExprNode {  // op in add, mul, min, max, logical_and, logical_or
  static constexpr NodeKind Kind = NodeKind::VectorReduce;
  BinaryOp op;
  Expr value;
  VectorReduce(DType dtype, BinaryOp op, Expr value) : ExprNode(Kind, dtype), op(op), value(std::move(value)) {}
  auto fields() const { return std::tie(op, value); }
};

struct Let : ExprNode {
  static constexpr NodeKind Kind = NodeKind::Let;
  Var var;
  Expr value, body;
  Let(DType dtype, Var var, Expr value, Expr body)
      : ExprNode(Kind, dtype), var(std::move(var)), value(std::move(value)), body(std::move(body)) {}
  auto fields() const { return std::tie(var, value, body); }
};

// ---------------------------------------------------------------------------------------------------------------
// Statements

struct StmtNode {
  NodeKind kind;
  virtual ~StmtNode() = default;

 protected:
  explicit StmtNode(NodeKind kind) : kind(kind) {}
};

class Stmt {
 public:
  Stmt() = default;
  explicit Stmt(std::shared_ptr<const StmtNode> node) : node_(std::move(node)) {}
  bool is_defined() const { return node_ != nullptr; }
  const StmtNode* get() const { return node_.get(); }
  const StmtNode* operator->() const { return node_.get(); }
  NodeKind kind() const { return node_->kind; }
  bool is_same(const Stmt& other) const { return node_ == other.node_; }
  template <class T>
  const T* as() const {
    return node_ && node_->kind == T::Kind ? static_cast<const T*>(node_.get()) : nullptr;
  }

 private:
  std::shared_ptr<const StmtNode> node_;
};

// Source position of parsed text, for diagnostics; no part of a node's value.
//   serial      in order
//   parallel    shared out over workers (CPU)
//   vectorized  the iterations become lanes
//   unrolled    copied out
//   tensorized  in order; with the loops inside it becomes the instruction that its attribute "instruction" names
//   thread      bound to a hardware axis, named by For::thread
enum class LoopKind : uint8_t { serial, parallel, vectorized, unrolled, tensorized, thread };
enum class ThreadAxis : uint8_t { none, block_x, block_y, block_z, thread_x, thread_y, thread_z };

struct For : StmtNode {
  static constexpr NodeKind Kind = NodeKind::For;
  Var var;
  Expr extent;
  LoopKind loop_kind;
  ThreadAxis thread;
  Attributes attributes;
  Stmt body;
  Span span;
  For(Var var, Expr extent, LoopKind loop_kind, Stmt body, ThreadAxis thread = ThreadAxis::none,
      Attributes attributes = {}, Span span = {})
      : StmtNode(Kind),
        var(std::move(var)),
        extent(std::move(extent)),
        loop_kind(loop_kind),
        thread(thread),
        attributes(std::move(attributes)),
        body(std::move(body)),
        span(span) {}
  auto fields() const { return std::tie(var, extent, loop_kind, thread, attributes, body); }
};

enum class IterKind : uint8_t { spatial, reduce };

struct IterVar {
  Var var;
  Expr extent;  // var runs over 0 ≤ var < extent
  IterKind kind = IterKind::spatial;
  Expr binding;  // its value, from the surrounding loops
  auto fields() const { return std::tie(var, extent, kind, binding); }
};

struct Block : StmtNode {
  static constexpr NodeKind Kind = NodeKind::Block;
  std::string name;
  std::vector<IterVar> iters;
  Expr predicate;  // of the loops; not defined: always.  Instances where it is false do not run (split tails).
  Stmt init;       // not defined: none
  Stmt body;
  Attributes attributes;
  Span span;
  Block(std::string name, std::vector<IterVar> iters, Expr predicate, Stmt init, Stmt body, Attributes attributes = {},
        Span span = {})
      : StmtNode(Kind),
        name(std::move(name)),
        iters(std::move(iters)),
        predicate(std::move(predicate)),
        init(std::move(init)),
        body(std::move(body)),
        attributes(std::move(attributes)),
        span(span) {}
  auto fields() const { return std::tie(name, iters, predicate, init, body, attributes); }
};

struct Store : StmtNode {
  static constexpr NodeKind Kind = NodeKind::Store;
  Buffer buffer;
  std::vector<Expr> indices;
  Expr value, predicate;  // predicate as in Load
  Span span;
  Store(Buffer buffer, std::vector<Expr> indices, Expr value, Expr predicate = {}, Span span = {})
      : StmtNode(Kind),
        buffer(std::move(buffer)),
        indices(std::move(indices)),
        value(std::move(value)),
        predicate(std::move(predicate)),
        span(span) {}
  auto fields() const { return std::tie(buffer, indices, value, predicate); }
};

struct Seq : StmtNode {
  static constexpr NodeKind Kind = NodeKind::Seq;
  std::vector<Stmt> statements;  // not itself Seqs; may be empty: does nothing
  explicit Seq(std::vector<Stmt> statements) : StmtNode(Kind), statements(std::move(statements)) {}
  auto fields() const { return std::tie(statements); }
};

struct If : StmtNode {
  static constexpr NodeKind Kind = NodeKind::If;
  Expr condition;
  Stmt then_body, else_body;  // else_body may be not defined
  If(Expr condition, Stmt then_body, Stmt else_body = {})
      : StmtNode(Kind),
        condition(std::move(condition)),
        then_body(std::move(then_body)),
        else_body(std::move(else_body)) {}
  auto fields() const { return std::tie(condition, then_body, else_body); }
};

struct LetStmt : StmtNode {
  static constexpr NodeKind Kind = NodeKind::LetStmt;
  Var var;
  Expr value;
  Stmt body;
  LetStmt(Var var, Expr value, Stmt body)
      : StmtNode(Kind), var(std::move(var)), value(std::move(value)), body(std::move(body)) {}
  auto fields() const { return std::tie(var, value, body); }
};

struct Allocate : StmtNode {  // buffer lives while body runs; its contents begin undefined (the oracle poisons them)
  static constexpr NodeKind Kind = NodeKind::Allocate;
  Buffer buffer;
  Stmt body;
  Allocate(Buffer buffer, Stmt body) : StmtNode(Kind), buffer(std::move(buffer)), body(std::move(body)) {}
  auto fields() const { return std::tie(buffer, body); }
};

struct Evaluate : StmtNode {
  static constexpr NodeKind Kind = NodeKind::Evaluate;
  Expr call;
  explicit Evaluate(Expr call) : StmtNode(Kind), call(std::move(call)) {}
  auto fields() const { return std::tie(call); }
};

template <class T, class... Arguments>
Expr make_expr(Arguments&&... arguments) {
  return Expr(std::make_shared<const T>(std::forward<Arguments>(arguments)...));
}
template <class T, class... Arguments>
Stmt make_stmt(Arguments&&... arguments) {
  return Stmt(std::make_shared<const T>(std::forward<Arguments>(arguments)...));
}

// A Func: buffers first (inputs, then outputs), then symbolic integers.  Buffers that are neither parameters nor
// allocated in the body do not exist.
struct Func {
  std::string name;
  std::vector<Buffer> buffers;  // parameters, in the order of the caller's arguments
  int output_count = 0;         // the last output_count of `buffers` are written; the others are only read
  std::vector<Var> parameters;  // symbolic i64 dimensions
  Stmt body;
  Attributes attributes;  // facts for lowering

  bool is_output(const Buffer& buffer) const;
  bool is_parameter(const Buffer& buffer) const;
};

// ---------------------------------------------------------------------------------------------------------------
// Building expressions.  Operands must have the same dtype (scalars are broadcast to vectors; an untyped integer
// literal takes the dtype of the other side); trivial constants fold.

Expr int_imm(DType dtype, int64_t value);  // any lanes: a Broadcast when lanes > 1
Expr float_imm(DType dtype, double value);
Expr const_of(DType dtype, double value);  // of either kind
Expr zero_of(DType dtype);
Expr lowest_of(DType dtype);   // the identity of max: -inf for floats
Expr highest_of(DType dtype);  // the identity of min
Expr bool_imm(bool value);

Expr binary(BinaryOp op, Expr a, Expr b);
Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator*(Expr a, Expr b);
Expr operator/(Expr a, Expr b);  // floats: division; integers: truncating `div`
Expr operator-(Expr a);
Expr operator<(Expr a, Expr b);
Expr operator<=(Expr a, Expr b);
Expr operator>(Expr a, Expr b);
Expr operator>=(Expr a, Expr b);
Expr operator&&(Expr a, Expr b);
Expr operator||(Expr a, Expr b);
Expr operator!(Expr a);
Expr equal(Expr a, Expr b);
Expr not_equal(Expr a, Expr b);
Expr floor_div(Expr a, Expr b);
Expr floor_mod(Expr a, Expr b);
Expr min(Expr a, Expr b);
Expr max(Expr a, Expr b);
Expr select(Expr condition, Expr then_value, Expr else_value);
Expr cast(DType dtype, Expr value);
Expr call(Intrinsic intrinsic, std::vector<Expr> arguments);  // result dtype: by the row's kind
Expr load(Buffer buffer, std::vector<Expr> indices, Expr predicate = {});
Expr ramp(Expr base, Expr stride, int lanes);
Expr broadcast(Expr value, int lanes);

Stmt store(Buffer buffer, std::vector<Expr> indices, Expr value, Expr predicate = {});
Stmt seq(std::vector<Stmt> statements);  // flattens; one statement stays itself

// The value of an integer constant (also of a Broadcast of one).
std::optional<int64_t> as_int(const Expr& e);
std::optional<double> as_float(const Expr& e);
bool is_const_int(const Expr& e, int64_t value);
// Every extent a constant: their values; otherwise nothing.
std::optional<std::vector<int64_t>> const_shape(const Buffer& buffer);

}  // namespace tw

template <>
struct std::less<tw::Var> {  // for maps only; not a stable order
  bool operator()(const tw::Var& a, const tw::Var& b) const { return std::less<const void*>()(a.get(), b.get()); }
};
template <>
struct std::hash<tw::Var> {
  size_t operator()(const tw::Var& v) const { return std::hash<const void*>()(v.get()); }
};
template <>
struct std::hash<tw::Buffer> {
  size_t operator()(const tw::Buffer& b) const { return std::hash<const void*>()(b.get()); }
};
