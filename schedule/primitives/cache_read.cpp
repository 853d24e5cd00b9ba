// cache_read("C", "A", shared)
//
//   for i in 0..8 { block C(spatial v: 8 = i) { C[v] = A[v] } }
// ⇒
//   alloc A_shared in shared
//   for i in 0..8 { block A_shared(spatial v: 8 = i) { A_shared[v] = A[v] } }
//   for i in 0..8 { block C(spatial v: 8 = i) { C[v] = A_shared[v] } }
//
// The copy is of the whole buffer, in front of the consumer's nest, until compute_at moves it.  Legal when nothing in
// that nest writes the buffer.
#include "schedule/primitives/cache.h"
#include "schedule/primitives/move.h"

namespace tw {

BlockRef Schedule::cache_read(const BlockRef& ref, const std::string& buffer_name, Scope scope) {
  ScheduleEdit edit(*this, "cache_read", ref, buffer_name, scope);
  const Block& block = edit.block(ref);
  const Path path = edit.path(ref);
  const Buffer buffer = edit.buffer(buffer_name);
  if (!reads_any(path.back(), {buffer}))
    edit.refuse("block " + quoted(ref.name) + " does not read " + quoted(buffer_name), path.back(),
                "name a buffer that it reads");
  const Stmt nest = nest_of(path);
  if (writes_any(nest, {buffer})) {
    edit.refuse(quoted(buffer_name) + " is written in the same nest that reads it", path.back(),
                "apply cache_read before its producer is moved into this nest");
  }
  const Path allocation = edit.func.is_parameter(buffer) ? Path{} : path_to_allocation(func_.body, buffer);
  for (const Stmt& s : allocation) {
    if (s.is_same(nest))
      edit.refuse(quoted(buffer_name) + " exists inside of the nest only", path.back(),
                  "apply cache_read before its producer is moved into this nest");
  }
  const Buffer cache = cache_buffer(func_, buffer, scope);
  const std::string name = unique_block_name(func_, cache->name);
  Stmt body = replace_node(func_.body, &block, redirect(block, buffer, cache));
  const Stmt new_nest = nest_of(path_to_block(body, ref.name));
  body = insert_beside(body, new_nest.get(), copy_nest(edit, buffer, name, buffer, cache), true);
  body = make_stmt<Allocate>(cache, body);
  if (const auto* layout = edit.padded_layout(buffer)) edit.set_padded_layout(cache, layout->logical, layout->map);
  edit.commit(body, BlockRef{name});
  return {name};
}

}  // namespace tw
