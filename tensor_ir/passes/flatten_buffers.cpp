// Buffers of n dimensions become flat: one dimension, one index.
//
//   C: f32[4, 8]   C[i, j]   ⇒   C: f32[32]   C[i*8 + j]
#include "tensor_ir/match.h"
#include "tensor_ir/passes/folding.h"
#include "tensor_ir/passes/passes.h"

namespace tw {
namespace {

std::vector<Expr> strides_of(const Buffer& buffer) {
  if (!buffer->strides.empty()) return buffer->strides;
  std::vector<Expr> strides(buffer->shape.size());
  Expr stride = 1;
  for (size_t i = buffer->shape.size(); i-- > 0;) strides[i] = stride, stride = stride * buffer->shape[i];
  return strides;
}

Buffer flat_buffer(const Buffer& buffer) {
  Expr size = 1;
  const std::vector<Expr> strides = strides_of(buffer);
  if (buffer->strides.empty()) {
    for (const Expr& extent : buffer->shape) size = size * extent;
  } else {  // up to the last element
    for (size_t i = 0; i < strides.size(); ++i) size = size + (buffer->shape[i] - 1) * strides[i];
  }
  BufferNode flat = *buffer.get();
  flat.shape = {size};
  flat.strides.clear();
  return Buffer(std::move(flat));
}

class Flattener {
 public:
  Buffer of(const Buffer& buffer) {
    auto& flat = flat_[buffer];
    if (!flat.is_defined()) {
      const bool is_flat = buffer.rank() == 1 && (buffer->strides.empty() || is_const_int(buffer->strides[0], 1));
      flat = is_flat ? buffer : flat_buffer(buffer);
    }
    return flat;
  }

  std::vector<Expr> index(const Buffer& buffer, const std::vector<Expr>& indices) {
    if (of(buffer) == buffer) return indices;
    if (buffer.rank() > 1 && indices.size() == 1) return indices;  // flat already
    const std::vector<Expr> strides = strides_of(buffer);
    Expr flat = 0;
    for (size_t i = 0; i < indices.size(); ++i)
      flat = vector_binary(BinaryOp::add, flat, vector_binary(BinaryOp::mul, indices[i], strides[i]));
    return {flat};
  }

 private:
  std::unordered_map<Buffer, Buffer> flat_;
};

}  // namespace

Func flatten_buffers(const Func& f) {
  Flattener flatten;
  Func result = f;
  for (Buffer& buffer : result.buffers) buffer = flatten.of(buffer);
  result.body = rewrite_bottom_up(
      f.body,
      [&](const Load& l) -> Expr {
        return make_expr<Load>(l.dtype, flatten.of(l.buffer), flatten.index(l.buffer, l.indices), l.predicate);
      },
      [&](const Store& s) -> Stmt {
        return make_stmt<Store>(flatten.of(s.buffer), flatten.index(s.buffer, s.indices), s.value, s.predicate, s.span);
      },
      [&](const Allocate& a) -> Stmt { return make_stmt<Allocate>(flatten.of(a.buffer), a.body); });
  return result;
}

}  // namespace tw
