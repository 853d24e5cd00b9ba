// Shared by cache_read and cache_write: the block that copies one buffer to another, element by element.
#pragma once

#include "schedule/edit.h"

namespace tw {

// Of a block that leaves elements of its buffer out, which nobody reads (skip_padding): the buffer cannot be copied.
inline constexpr const char* partial_attribute = "partial";

Buffer cache_buffer(const Func& f, const Buffer& original, Scope scope);
// Both have the layout of `original`.  Refused where a block writes only parts of it.
Stmt copy_nest(const ScheduleEdit& edit, const Buffer& original, const std::string& block_name, const Buffer& from,
               const Buffer& to);
// In one block: Loads and Stores of a buffer go to another one.
Stmt redirect(const Block& block, const Buffer& from, const Buffer& to);
// The position of the block in the outermost list of statements: the list's node (the block's nest itself when the body
// is no list) inside of the allocations.
Stmt insert_beside(const Stmt& body, const StmtNode* nest, const Stmt& added, bool before);
// The outermost statement around the block that is neither an allocation nor a list: its nest.
Stmt nest_of(const Path& path);

}  // namespace tw
