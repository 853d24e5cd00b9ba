#include "relay_ir/cost.h"

#include <algorithm>

#include "relay_ir/op.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"
#include "tensor_ir/type_rules.h"

namespace tw::relay {
namespace {

// Of one execution of `s`, loops inside it multiplied out; `own` counts in an expression, `least` is a store.
template <class F>
Expr count(const Stmt& s, int64_t least, const F& own) {
  if (!s.is_defined()) return 0;
  if (const auto* loop = s.as<For>()) {
    const Expr body = count(loop->body, least, own);
    return is_const_int(body, 0) ? body : loop->extent * body;
  }
  // Of two ways the first, a whole tile; the other one is its rest.
  if (const auto* branch = s.as<If>()) {
    const Expr whole = count(branch->then_body, least, own);
    return own(branch->condition) + (is_const_int(whole, 0) ? count(branch->else_body, least, own) : whole);
  }
  // The init is one in a reduction's many.
  if (const auto* block = s.as<Block>()) return count(block->body, least, own);
  int64_t here = 0;
  Expr inner = 0;
  for_each_child(
      s, [&](const Expr& e) { here += own(e); }, [&](const Stmt& child) { inner = inner + count(child, least, own); });
  if (s.as<Store>()) here = std::max(here, least);
  return inner + here;
}

bool is_of_codes(const Call& call) {
  const IntrinsicKind kind = kind_of(call.intrinsic);
  return kind == IntrinsicKind::decode || kind == IntrinsicKind::encode;
}

bool is_conversion(const Call& call) {
  return call.intrinsic == Intrinsic::round_tf32;
}

int64_t float_operations(const Expr& e) {
  int64_t own = 0;
  visit(
      e, [&](const Binary& b) { own += b.a.dtype().is_float() * b.a.dtype().lanes; },
      [&](const Unary& u) { own += u.dtype.is_float() * u.dtype.lanes; },
      [&](const Call& c) {
        const int64_t operations = c.intrinsic == Intrinsic::fma ? 2 : is_conversion(c) || is_of_codes(c) ? 0 : 1;
        own += c.dtype.is_float() * c.dtype.lanes * operations;
      });
  return own;
}

int64_t all_operations(const Expr& e) {
  constexpr int64_t of_function = 16;    // a polynomial and what is around it
  constexpr int64_t of_generator = 100;  // rounds of two products
  constexpr int64_t of_code = 12;        // as arithmetic on integers
  int64_t own = 0;
  visit(
      e, [&](const Binary&) { ++own; }, [&](const Unary&) { ++own; },
      [&](const Call& c) {
        own += c.intrinsic == Intrinsic::philox ? of_generator
               : is_of_codes(c)                 ? of_code
               : is_conversion(c)               ? 0
                                                : of_function;
      });
  return own;
}

// 0 where a loop's extent depends on another loop, or on data; but loops that others end early count in full.
Expr in_parameters(const Expr& count, const Func& func) {
  const auto is_known = [&](const Expr& e) {
    bool has_data = false;
    visit(e, [&](const Load&) { has_data = true; });
    return !has_data && std::ranges::all_of(free_vars(e), [&](const Var& var) {
      return std::ranges::any_of(func.parameters, [&](const Var& parameter) { return parameter.is_same(var); });
    });
  };
  const Expr total = simplify(rewrite(count, [&](const Binary& b) -> Expr {
    if (b.op != BinaryOp::min || is_known(b.a) == is_known(b.b)) return {};
    return is_known(b.a) ? b.a : b.b;
  }));
  return is_known(total) ? total : Expr(0);
}

}  // namespace

Expr flops_of(const Func& func) {
  return in_parameters(count(func.body, 0, float_operations), func);
}

Expr operations_of(const Func& func) {
  return in_parameters(count(func.body, 1, all_operations), func);
}

Expr flops_of(const Graph& graph, const Node& node) {
  if (node.op->kind == OpKind::view || node.op->kind == OpKind::injective) return 0;
  if (!node.regions.empty()) {  // of branches the dearer one
    Expr most = 0;
    for (const Graph& region : node.regions) {
      Expr flops = 0;
      for (const Node& inner : region.nodes) flops = flops + flops_of(region, inner);
      most = max(most, flops);
    }
    if (!is_loop(node)) return simplify(most);
    // Of a step in the middle, where they grow.
    const Expr middle = floor_div(max(steps_of(node) - 1, Expr(0)), 2);
    return simplify(substitute(most, {{node.regions[0].symbols.back(), middle}}) * steps_of(node));
  }
  if (is_item(node) || node.op->is_on_host) return 0;
  const OpCall call = make_call(graph, node);
  std::vector<te::Tensor> inputs, placeholders;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    inputs.push_back(call.has_input(i)
                         ? te::placeholder("x" + std::to_string(i), call.inputs[i].shape, call.inputs[i].dtype.stored())
                         : te::Tensor());
    if (call.has_input(i)) placeholders.push_back(inputs.back());
  }
  return flops_of(te::make_func(node.op->name, placeholders, node.op->compute(call, inputs), variables_of(graph)));
}

}  // namespace tw::relay
