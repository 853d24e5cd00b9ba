// Tensor expressions: mathematics to a Func.  Each compute or reduce becomes one block in its own loop nest.
//
//   auto A = te::placeholder("A", {512, 256}), B = te::placeholder("B", {256, 512});
//   auto C = te::reduce("C", {512, 512}, {256}, te::Combiner::sum,
//                       [&](auto& s, auto& r) { return A({s[0], r[0]}) * B({r[0], s[1]}); });
//   Func f = te::make_func("matmul", {A, B}, {C});
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tensor_ir/ir.h"
#include "tensor_ir/match.h"

namespace tw::te {

struct Stage;

class Tensor {
 public:
  Tensor() = default;
  Tensor(Buffer buffer, std::shared_ptr<const Stage> stage) : buffer_(std::move(buffer)), stage_(std::move(stage)) {}
  bool is_defined() const { return buffer_.is_defined(); }
  Expr operator()(std::vector<Expr> indices) const { return load(buffer_, std::move(indices)); }
  const Buffer& buffer() const { return buffer_; }
  DType dtype() const { return buffer_->dtype; }
  const std::vector<Expr>& shape() const { return buffer_->shape; }
  int rank() const { return buffer_.rank(); }
  const std::shared_ptr<const Stage>& stage() const { return stage_; }  // null: a placeholder

 private:
  Buffer buffer_;
  std::shared_ptr<const Stage> stage_;
};

// What computes one or more buffers from others: a statement that make_func puts in place.
struct Stage {
  std::string name;
  std::vector<Tensor> inputs;  // every tensor that the statement loads
  std::vector<Buffer> outputs;
  Stmt nest;  // loops around one block (compute, reduce), or any statement (opaque)
  bool is_opaque = false;
};

enum class Combiner { sum, product, min, max, logical_and, logical_or };

using Indices = std::vector<Expr>;  // the iteration variables

Tensor placeholder(std::string name, std::vector<Expr> shape, DType dtype = f32);
Tensor placeholder(const Buffer& buffer);
// `inputs` are found from the Loads of the result, through a registry of the tensors passed in `uses`.
// `attributes`: of the block, what a schedule cannot see in it.
Tensor compute(std::string name, std::vector<Expr> shape, const std::vector<Tensor>& uses,
               const std::function<Expr(const Indices& spatial)>& value, Attributes attributes = {});
// identity: the combiner's, unless given.  The accumulation has the dtype of the value.
Tensor reduce(std::string name, std::vector<Expr> shape, std::vector<Expr> reduce_extents, Combiner combiner,
              const std::vector<Tensor>& uses,
              const std::function<Expr(const Indices& spatial, const Indices& reduce)>& value);
// Loops that are no tensor expression (scans, scatters, sorts): `body` writes `outputs` of the given types.  It is not
// scheduled; it runs as written.
std::vector<Tensor> opaque(std::string name, const std::vector<Tensor>& inputs,
                           const std::vector<std::pair<DType, std::vector<Expr>>>& outputs,
                           const std::function<Stmt(const std::vector<Buffer>& outputs)>& body);

// All stages that the outputs need, in order; intermediate tensors become allocated global buffers.  An output that is
// also read by another output is fine.  Outputs that are placeholders are copied.
Func make_func(std::string name, const std::vector<Tensor>& inputs, const std::vector<Tensor>& outputs,
               std::vector<Var> parameters = {});

// What a Func, as make_func gives it, makes of other inputs of its types: its outputs.  `parameters`: what its
// parameters are.
std::vector<Tensor> inlined(const Func& func, const std::vector<Tensor>& inputs, const Substitution& parameters);

}  // namespace tw::te
