#include "schedule/tree.h"

#include <algorithm>
#include <set>

namespace tw {
namespace {

bool find_path(const Stmt& s, const std::function<bool(const Stmt&)>& is_target, Path& path) {
  path.push_back(s);
  if (is_target(s)) return true;
  if (s.kind() != NodeKind::Block) {
    bool found = false;
    for_each_child(
        s, [](const Expr&) {}, [&](const Stmt& child) { found = found || find_path(child, is_target, path); });
    if (found) return true;
  }
  path.pop_back();
  return false;
}

Path first_path(const Stmt& root, const std::function<bool(const Stmt&)>& is_target) {
  Path path;
  if (root.is_defined()) find_path(root, is_target, path);
  return path;
}

bool is_empty(const Stmt& s) {
  const auto* list = s.as<Seq>();
  return !s.is_defined() || (list && list->statements.empty());
}

// The statement without empty shells; not defined when nothing is left.
Stmt without_shell(const Stmt& s) {
  if (const auto* list = s.as<Seq>()) {
    std::vector<Stmt> kept;
    for (const Stmt& child : list->statements) {
      if (!is_empty(child)) kept.push_back(child);
    }
    if (kept.empty()) return {};
    return seq(std::move(kept));
  }
  if (const auto* loop = s.as<For>(); loop && is_empty(loop->body)) return {};
  if (const auto* allocate = s.as<Allocate>(); allocate && is_empty(allocate->body)) return {};
  if (const auto* let = s.as<LetStmt>(); let && is_empty(let->body)) return {};
  if (const auto* branch = s.as<If>(); branch && is_empty(branch->then_body) && is_empty(branch->else_body)) return {};
  return s;
}

Stmt edit_at(const Stmt& s, const StmtNode* target, const std::function<Stmt(const Stmt&)>& edit, bool& found) {
  if (s.get() == target) {
    found = true;
    const Stmt edited = edit(s);
    return edited.is_defined() ? edited : make_stmt<Seq>(std::vector<Stmt>{});
  }
  if (found || s.kind() == NodeKind::Block) return s;
  bool changed = false;
  Stmt mapped = map_children(
      s, [](const Expr& e) { return e; },
      [&](const Stmt& child) {
        Stmt result = edit_at(child, target, edit, found);
        changed |= !result.is_same(child);
        return result;
      });
  if (!changed) return s;
  const Stmt cleaned = without_shell(mapped);
  return cleaned.is_defined() ? cleaned : make_stmt<Seq>(std::vector<Stmt>{});
}

}  // namespace

Path path_to_loop(const Stmt& root, const Var& var) {
  return first_path(root, [&](const Stmt& s) {
    const auto* loop = s.as<For>();
    return loop && loop->var == var;
  });
}

Path path_to_block(const Stmt& root, const std::string& name) {
  return first_path(root, [&](const Stmt& s) {
    const auto* block = s.as<Block>();
    return block && block->name == name;
  });
}

Path path_to_allocation(const Stmt& root, const Buffer& buffer) {
  return first_path(root, [&](const Stmt& s) {
    const auto* allocate = s.as<Allocate>();
    return allocate && allocate->buffer == buffer;
  });
}

std::vector<const For*> loops_of(const Path& path) {
  std::vector<const For*> loops;
  for (const Stmt& s : path) {
    if (const auto* loop = s.as<For>()) loops.push_back(loop);
  }
  return loops;
}

std::vector<const Block*> blocks_in(const Stmt& s) {
  std::vector<const Block*> blocks;
  visit(s, [&](const Block& block) {
    blocks.push_back(&block);
    return Walk::skip;
  });
  return blocks;
}

bool has_statements_outside_blocks(const Stmt& s) {
  bool found = false;
  visit(
      s, [&](const Block&) { return Walk::skip; }, [&](const Store&) { found = true; },
      [&](const Evaluate&) { found = true; });
  return found;
}

Stmt transform_node(const Stmt& root, const StmtNode* target, const std::function<Stmt(const Stmt&)>& edit) {
  bool found = false;
  Stmt result = edit_at(root, target, edit, found);
  check(found, "transform_node: the node is in the tree");
  return result;
}

Stmt replace_node(const Stmt& root, const StmtNode* target, const Stmt& replacement) {
  return transform_node(root, target, [&](const Stmt&) { return replacement; });
}

Stmt transform_blocks(const Stmt& root, const std::function<Stmt(const Block&)>& edit) {
  return rewrite(root, [&](const Block& block) -> Stmt { return edit(block); });
}

Stmt wrap_in_loops(const std::vector<NewLoop>& loops, Stmt body) {
  for (size_t i = loops.size(); i-- > 0;) {
    body = make_stmt<For>(loops[i].var, loops[i].extent, loops[i].loop_kind, std::move(body), loops[i].thread);
  }
  return body;
}

Stmt with_body(const For& loop, Stmt body) {
  return make_stmt<For>(loop.var, loop.extent, loop.loop_kind, std::move(body), loop.thread, loop.attributes,
                        loop.span);
}

Stmt with_body(const Allocate& allocate, Stmt body) {
  return make_stmt<Allocate>(allocate.buffer, std::move(body));
}

Substitution bindings_of(const Block& block) {
  Substitution values;
  for (const IterVar& iter : block.iters) values[iter.var] = iter.binding;
  return values;
}

Expr and_also(const Expr& a, const Expr& b) {
  if (!a.is_defined()) return b;
  if (!b.is_defined()) return a;
  return a && b;
}

std::vector<Expr> conjuncts(const Expr& predicate) {
  if (!predicate.is_defined()) return {};
  if (const auto* b = predicate.as<Binary>(); b && b->op == BinaryOp::logical_and) {
    std::vector<Expr> result = conjuncts(b->a), more = conjuncts(b->b);
    result.insert(result.end(), more.begin(), more.end());
    return result;
  }
  return {predicate};
}

Stmt remove_allocation(const Stmt& root, const Buffer& buffer) {
  const Path path = path_to_allocation(root, buffer);
  check(!path.empty(), "remove_allocation: the buffer is allocated");
  return replace_node(root, path.back().get(), path.back().as<Allocate>()->body);
}

Stmt allocate_in_loop(const Stmt& root, const Buffer& buffer, const Var& loop) {
  const Path path = path_to_loop(root, loop);
  check(!path.empty(), "allocate_in_loop: the loop exists");
  const auto* node = path.back().as<For>();
  return replace_node(root, node, with_body(*node, make_stmt<Allocate>(buffer, node->body)));
}

namespace {
template <class Node>
std::vector<const Block*> users_of(const Stmt& root, const Buffer& buffer) {
  std::vector<const Block*> result;
  for (const Block* block : blocks_in(root)) {
    bool uses = false;
    auto look = [&](const Node& node) { uses |= node.buffer == buffer; };
    visit(block->body, look);
    visit(block->init, look);
    if (uses) result.push_back(block);
  }
  return result;
}
}  // namespace

std::vector<const Block*> writers_of(const Stmt& root, const Buffer& buffer) {
  return users_of<Store>(root, buffer);
}

std::vector<const Block*> readers_of(const Stmt& root, const Buffer& buffer) {
  return users_of<Load>(root, buffer);
}

std::vector<Buffer> all_buffers(const Func& f) {
  std::vector<Buffer> buffers = f.buffers;
  visit(f.body, [&](const Allocate& a) { buffers.push_back(a.buffer); });
  return buffers;
}

Buffer find_buffer(const Func& f, const std::string& name) {
  for (const Buffer& buffer : all_buffers(f)) {
    if (buffer->name == name) return buffer;
  }
  return {};
}

namespace {
std::string unique_name(const std::set<std::string>& taken, const std::string& wanted) {
  std::string name = wanted;
  for (int n = 1; taken.count(name); ++n) name = wanted + "_" + std::to_string(n);
  return name;
}
}  // namespace

std::string unique_buffer_name(const Func& f, const std::string& wanted) {
  std::set<std::string> taken;
  for (const Buffer& buffer : all_buffers(f)) taken.insert(buffer->name);
  return unique_name(taken, wanted);
}

std::string unique_block_name(const Func& f, const std::string& wanted) {
  std::set<std::string> taken;
  for (const Block* block : blocks_in(f.body)) taken.insert(block->name);
  return unique_name(taken, wanted);
}

}  // namespace tw
