// Finding and replacing loops, blocks and allocations in the body of a Func.
#pragma once

#include <string>
#include <vector>

#include "tensor_ir/ir.h"
#include "tensor_ir/match.h"

namespace tw {

using Path = std::vector<Stmt>;  // from the root to the node, both included

// Empty when there is none.
Path path_to_loop(const Stmt& root, const Var& var);
Path path_to_block(const Stmt& root, const std::string& name);
Path path_to_allocation(const Stmt& root, const Buffer& buffer);

std::vector<const For*> loops_of(const Path& path);  // the loops on the path, outermost first
std::vector<const Block*> blocks_in(const Stmt& s);  // in the order of the text
// Statements that are in no block but read or write buffers themselves.
bool has_statements_outside_blocks(const Stmt& s);

// Not defined as replacement: the node goes, and so do Seqs, loops, Ifs and allocations that are left empty by that.
Stmt replace_node(const Stmt& root, const StmtNode* target, const Stmt& replacement);
Stmt transform_node(const Stmt& root, const StmtNode* target, const std::function<Stmt(const Stmt&)>& edit);
Stmt transform_blocks(const Stmt& root, const std::function<Stmt(const Block&)>& edit);  // not defined: as it is

// The statement wrapped in loops, the first outermost.
struct NewLoop {
  Var var;
  Expr extent;
  LoopKind loop_kind = LoopKind::serial;
  ThreadAxis thread = ThreadAxis::none;
};
Stmt wrap_in_loops(const std::vector<NewLoop>& loops, Stmt body);

Stmt with_body(const For& loop, Stmt body);
Stmt with_body(const Allocate& allocate, Stmt body);
// A block with some parts replaced.
struct BlockEdit {
  std::string name;
  std::vector<IterVar> iters;
  Expr predicate;
  Stmt init, body;
  Attributes attributes;
  Span span;
  explicit BlockEdit(const Block& b)
      : name(b.name),
        iters(b.iters),
        predicate(b.predicate),
        init(b.init),
        body(b.body),
        attributes(b.attributes),
        span(b.span) {}
  Stmt make() const { return make_stmt<Block>(name, iters, predicate, init, body, attributes, span); }
};

// The value of each iteration variable of a block.
Substitution bindings_of(const Block& block);
Expr and_also(const Expr& a, const Expr& b);  // either may be not defined
std::vector<Expr> conjuncts(const Expr& predicate);

// Takes the allocation of a buffer out, and puts one around the body of a loop or around everything.
Stmt remove_allocation(const Stmt& root, const Buffer& buffer);
Stmt allocate_in_loop(const Stmt& root, const Buffer& buffer, const Var& loop);

// Blocks that read or write a buffer, in the order of the text.
std::vector<const Block*> writers_of(const Stmt& root, const Buffer& buffer);
std::vector<const Block*> readers_of(const Stmt& root, const Buffer& buffer);

// All buffers of a Func, parameters first; by name, not defined where there is none.
std::vector<Buffer> all_buffers(const Func& f);
Buffer find_buffer(const Func& f, const std::string& name);
std::string unique_buffer_name(const Func& f, const std::string& wanted);
std::string unique_block_name(const Func& f, const std::string& wanted);

}  // namespace tw
