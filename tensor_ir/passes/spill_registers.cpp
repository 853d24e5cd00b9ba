// Register buffers that are indexed by variables go to the stack.
//
//   alloc B: f32[8] in register                 alloc B: f32[8] in stack
//   for i in 0..n { B[i] = A[i] }        ⇒      for i in 0..n { B[i] = A[i] }
//
// Registers have no addresses: the loops that index such a buffer are to be unrolled or vectorized, and where a
// schedule leaves one as it is, memory computes the same, only slower.  Tiles of a matrix unit have no other place and
// stay.
#include <set>

#include "tensor_ir/match.h"
#include "tensor_ir/passes/folding.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/type_rules.h"

namespace tw {
namespace {

// Of registers, and indexed by a variable somewhere.
std::set<Buffer> indexed_by_variables(const Stmt& body) {
  std::set<Buffer> found, tiles;
  const auto access = [&](const Buffer& buffer, const std::vector<Expr>& indices) {
    if (buffer->scope == Scope::register_ && (indices.size() != 1 || !constant_lanes(indices[0]))) found.insert(buffer);
  };
  visit(
      body, [&](const Load& l) { access(l.buffer, l.indices); },
      [&](const Store& st) {
        access(st.buffer, st.indices);
        const auto* call = st.value.as<Call>();
        if (call && kind_of(call->intrinsic) == IntrinsicKind::tile) tiles.insert(st.buffer);
      });
  for (const Buffer& tile : tiles) found.erase(tile);
  return found;
}

}  // namespace

Func spill_registers(const Func& f) {
  Func result = f;
  for (const Buffer& buffer : indexed_by_variables(f.body)) {
    BufferNode node = *buffer.get();
    node.scope = Scope::stack;
    result.body = replace_buffer(result.body, buffer, Buffer(std::move(node)));
  }
  return result;
}

}  // namespace tw
