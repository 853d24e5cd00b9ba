#include "tensor_ir/arith/in_bounds.h"

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"
#include "tensor_ir/text/printer.h"

namespace tw {
namespace {

class AccessCheck {
 public:
  std::string run(const Stmt& s, const Assumptions& known) {
    visit_outermost(s, known);
    return problem_;
  }

 private:
  void visit_outermost(const Stmt& s, const Assumptions& known) {
    if (!s.is_defined() || !problem_.empty()) return;
    if (const auto* loop = s.as<For>()) {
      Assumptions within = known;
      within.bind_range(loop->var, loop->extent);
      return visit_outermost(loop->body, within);
    }
    if (const auto* block = s.as<Block>()) {
      Assumptions within = known;
      for (const IterVar& iter : block->iters) {
        within.bind_range(iter.var, iter.extent);
        check_loads(iter.binding, known);
      }
      if (block->predicate.is_defined()) within.assume(block->predicate);
      visit_outermost(block->init, within);
      return visit_outermost(block->body, within);
    }
    if (const auto* branch = s.as<If>()) {
      check_loads(branch->condition, known);
      Assumptions then = known, otherwise = known;
      then.assume(branch->condition);
      otherwise.assume(!branch->condition);
      visit_outermost(branch->then_body, then);
      return visit_outermost(branch->else_body, otherwise);
    }
    if (const auto* write = s.as<Store>()) {
      check_access(write->buffer, write->indices, known);
      for (const Expr& index : write->indices) check_loads(index, known);
      return check_loads(write->value, known);
    }
    map_children(
        s, [&](const Expr& e) { return check_loads(e, known), e; },
        [&](const Stmt& child) { return visit_outermost(child, known), child; });
  }

  void check_loads(const Expr& e, const Assumptions& known) {
    if (!e.is_defined() || !problem_.empty()) return;
    const auto* read = e.as<Load>();
    if (read) {
      Assumptions here = known;
      if (read->predicate.is_defined()) {
        check_loads(read->predicate, known);
        here.assume(read->predicate);
      }
      check_access(read->buffer, read->indices, here);
    }
    map_children(e, [&](const Expr& child) { return check_loads(child, known), child; });
  }

  void check_access(const Buffer& buffer, const std::vector<Expr>& indices, const Assumptions& known) {
    for (size_t d = 0; d < indices.size() && problem_.empty(); ++d) {
      const Expr &index = indices[d], &extent = buffer->shape[d];
      if (can_prove(index >= 0, known) && can_prove(index < extent, known)) continue;
      problem_ = to_text(load(buffer, indices)) + ": 0 <= " + to_text(index) + " < " + to_text(extent);
    }
  }

  std::string problem_;
};

}  // namespace

std::string find_unproven_access(const Func& func) {
  return AccessCheck().run(func.body, {});
}

}  // namespace tw
