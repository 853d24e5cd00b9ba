// One walk that knows what is bound where; typing rules are in type_rules.cpp.
#include "tensor_ir/verify.h"

#include <unordered_set>

#include "tensor_ir/match.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/text/syntax.h"
#include "tensor_ir/type_rules.h"

namespace tw {
namespace {

constexpr size_t shown_violations = 20, shown_text = 240;

class Verifier {
 public:
  std::vector<std::string> violations;

  explicit Verifier(const Func& f) : f_(f) {
    if (f.output_count < 0 || f.output_count > static_cast<int>(f.buffers.size())) {
      violations.push_back("the func says it has " + std::to_string(f.output_count) + " outputs among " +
                           std::to_string(f.buffers.size()) + " buffers");
      return;
    }
    for (const Var& var : f.parameters) {
      if (!var.is_defined() || var.dtype() != i64)
        report("a symbolic parameter is not of type i64");
      else if (!vars_.insert(var.get()).second)
        report("parameter `" + var.name() + "` stands twice in the list");
      else if (const DimensionBounds bounds = dimension_bounds(var);
               bounds.high < bounds.low || (!(bounds == DimensionBounds{}) && bounds.low < 0))
        report("parameter `" + var.name() + "` has bounds that are no sizes");
    }
    for (const Buffer& buffer : f.buffers) {
      if (!buffer.is_defined()) {
        report("a buffer of the list is missing");
        continue;
      }
      check_declaration(buffer, nullptr);
      if (buffer->scope != Scope::global)
        report("parameter `" + buffer->name + "` is in scope " + to_text(buffer->scope) + ": parameters are global");
      if (!buffers_.insert(buffer.get()).second) report("buffer `" + buffer->name + "` stands twice in the list");
    }
    if (f.body.is_defined())
      walk(f.body);
    else
      report("the func has no body");
  }

 private:
  void report(const std::string& what) { violations.push_back(what); }
  template <class Handle>
  void report(const std::string& what, const Handle& where) {
    if (violations.size() >= shown_violations) {
      violations.resize(shown_violations);
      return violations.push_back("… and more");
    }
    std::string text = to_text(where);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    if (text.size() > shown_text) text = text.substr(0, shown_text) + " …";
    std::string indented = "\n    ";
    for (char c : text) {
      indented += c;
      if (c == '\n') indented += "    ";
    }
    violations.push_back(what + indented);
  }

  void walk(const Expr& e) {
    if (!e.is_defined()) return;
    if (auto problem = type_problem(e)) {
      report(problem->message, e);
      return;  // what follows from a wrong type would only repeat it
    }
    if (auto* var = e.as<VarNode>()) {
      if (!vars_.contains(var))
        report("`" + var->name + "` is not bound here", e);
      else if (block_ && outside_block_.contains(var)) {
        report("block `" + *block_ + "` uses `" + var->name +
                   "` of the loops around it: a block uses its iteration variables",
               e);
      }
    } else if (auto* n = e.as<Load>()) {
      check_buffer(n->buffer, e);
    } else if (auto* n = e.as<Call>()) {
      if (kind_of(n->intrinsic) == IntrinsicKind::effect)
        report(to_text(n->intrinsic) + " has no value: it is a statement", e);
    } else if (auto* n = e.as<Let>()) {
      walk(n->value);
      bind(n->var, [&] { walk(n->body); }, e);
      return;
    }
    for_each_child(e, [&](const Expr& child) { walk(child); });
  }

  void walk(const Stmt& s) {
    if (!s.is_defined()) return;
    if (auto problem = type_problem(s)) return report(problem->message, s);
    if (auto* n = s.as<For>()) {
      walk(n->extent);
      if (!loops_.insert(n->var.get()).second)
        report("two loops share the variable `" + n->var.name() + "`: each has its own", s);
      bind(n->var, [&] { walk(n->body); }, s);
    } else if (auto* n = s.as<Block>()) {
      walk_block(*n, s);
    } else if (auto* n = s.as<Store>()) {
      check_buffer(n->buffer, s);
      if (f_.is_parameter(n->buffer) && !f_.is_output(n->buffer))
        report("`" + n->buffer->name + "` is an input, which is only read", s);
      walk_children(s);
    } else if (auto* n = s.as<LetStmt>()) {
      walk(n->value);
      bind(n->var, [&] { walk(n->body); }, s);
    } else if (auto* n = s.as<Allocate>()) {
      check_declaration(n->buffer, &s);
      bool is_new = buffers_.insert(n->buffer.get()).second;
      if (!is_new) report("`" + n->buffer->name + "` is allocated where it exists already", s);
      walk(n->body);
      if (is_new) buffers_.erase(n->buffer.get());
    } else if (auto* n = s.as<Evaluate>()) {
      auto* call = n->call.as<Call>();
      if (!call || kind_of(call->intrinsic) != IntrinsicKind::effect)
        report("only a call with an effect is a statement", s);
      else if (auto problem = type_problem(n->call))
        report(problem->message, s);
      for_each_child(n->call, [&](const Expr& child) { walk(child); });
    } else if (auto* n = s.as<Seq>()) {
      for (const Stmt& statement : n->statements) {
        if (statement.as<Seq>()) report("a Seq holds another", statement);
      }
      walk_children(s);
    } else {
      walk_children(s);
    }
  }

  void walk_block(const Block& n, const Stmt& s) {
    if (!blocks_.insert(n.name).second) report("two blocks are named `" + n.name + "`", s);
    if (block_) return report("block `" + n.name + "` stands in block `" + *block_ + "`: blocks do not nest", s);
    for (const IterVar& iter : n.iters) walk(iter.extent), walk(iter.binding);
    walk(n.predicate);
    // Symbolic parameters are constants of the Func; every other variable around the block is a loop's.
    outside_block_ = vars_;
    for (const Var& var : f_.parameters) outside_block_.erase(var.get());
    for (const IterVar& iter : n.iters) {
      if (!vars_.insert(iter.var.get()).second)
        report("iteration variable `" + iter.var.name() + "` is bound around the block", s);
      outside_block_.erase(iter.var.get());
    }
    block_ = &n.name;
    walk(n.init);
    walk(n.body);
    block_ = nullptr;
    for (const IterVar& iter : n.iters) vars_.erase(iter.var.get());
  }

  void walk_children(const Stmt& s) {
    for_each_child(s, [&](const Expr& child) { walk(child); }, [&](const Stmt& child) { walk(child); });
  }

  template <class Body, class Handle>
  void bind(const Var& var, Body&& body, const Handle& where) {
    if (!vars_.insert(var.get()).second) {
      report("`" + var.name() + "` is bound where it is bound already", where);
      return body();
    }
    body();
    vars_.erase(var.get());
  }

  template <class Handle>
  void check_buffer(const Buffer& buffer, const Handle& where) {
    if (!buffers_.contains(buffer.get()))
      report("`" + buffer->name + "` is neither a parameter nor allocated here", where);
  }

  void check_declaration(const Buffer& buffer, const Stmt* where) {
    auto say = [&](const std::string& what) { where ? report(what, *where) : report(what); };
    if (auto problem = type_problem(buffer)) return say(problem->message);
    for (const Expr& extent : buffer->shape) walk(extent);
    for (const Expr& stride : buffer->strides) walk(stride);
  }

  const Func& f_;
  std::unordered_set<const void*> vars_, buffers_, loops_, outside_block_;
  std::unordered_set<std::string> blocks_;
  const std::string* block_ = nullptr;
};

}  // namespace

void verify(const Func& f) {
  std::vector<std::string> violations = Verifier(f).violations;
  if (violations.empty()) return;
  std::string message =
      "func `" + f.name + "` breaks " + (violations.size() == 1 ? "an invariant" : "invariants") + " of tensor_ir:";
  for (const std::string& violation : violations) message += "\n  " + violation;
  throw Error(ErrorCode::verify, message + "\n  help: tensor_ir/ir.h states the invariants");
}

}  // namespace tw
