// cache_write("C", "C", register)
//
//   for i in 0..8 { for k in 0..4 { block C(spatial v: 8 = i, reduce r: 4 = k) { init { C[v] = 0 } C[v] = C[v] + A[v,
//   r] } } }
// ⇒
//   alloc C_register in register
//   for i … { for k … { block C(…) { init { C_register[v] = 0 } C_register[v] = C_register[v] + A[v, r] } } }
//   for i in 0..8 { block C_register(spatial v: 8 = i) { C[v] = C_register[v] } }
//
// The copy is of the whole buffer, after the producer's nest, until reverse_compute_at moves it.  Legal when the block
// is the only writer of the buffer and nothing else in its nest reads it.
#include "schedule/primitives/cache.h"
#include "schedule/primitives/move.h"

namespace tw {

BlockRef Schedule::cache_write(const BlockRef& ref, const std::string& buffer_name, Scope scope) {
  ScheduleEdit edit(*this, "cache_write", ref, buffer_name, scope);
  const Block& block = edit.block(ref);
  const Path path = edit.path(ref);
  const Buffer buffer = edit.buffer(buffer_name);
  if (!writes_any(path.back(), {buffer}))
    edit.refuse("block " + quoted(ref.name) + " does not write " + quoted(buffer_name), path.back(),
                "name the buffer that it writes");
  only_writer(edit, buffer);
  const Stmt nest = nest_of(path);
  const Stmt rest = replace_node(nest, &block, Stmt());
  if (reads_any(rest, {buffer}))
    edit.refuse(quoted(buffer_name) + " is read by another block in the same nest", path.back(),
                "apply cache_write before its consumers are moved into this nest");
  const Path allocation = edit.func.is_parameter(buffer) ? Path{} : path_to_allocation(func_.body, buffer);
  for (const Stmt& s : allocation) {
    if (s.is_same(nest))
      edit.refuse(quoted(buffer_name) + " exists inside of the nest only", path.back(),
                  "set_scope moves the buffer itself");
  }
  const Buffer cache = cache_buffer(func_, buffer, scope);
  const std::string name = unique_block_name(func_, cache->name);
  Stmt body = replace_node(func_.body, &block, redirect(block, buffer, cache));
  const Stmt new_nest = nest_of(path_to_block(body, ref.name));
  body = insert_beside(body, new_nest.get(), copy_nest(edit, buffer, name, cache, buffer), false);
  body = make_stmt<Allocate>(cache, body);
  if (const auto* layout = edit.padded_layout(buffer)) edit.set_padded_layout(cache, layout->logical, layout->map);
  edit.commit(body, BlockRef{name});
  return {name};
}

}  // namespace tw
