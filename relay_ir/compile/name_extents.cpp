#include "relay_ir/compile/name_extents.h"

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/dimension.h"
#include "tensor_ir/match.h"
#include "tensor_ir/structural.h"
#include "tensor_ir/text/printer.h"

namespace tw::relay {
namespace {

// The largest first, since others may be parts of it.
std::vector<Expr> compound_extents(const Func& func) {
  std::vector<Expr> extents;
  for (const Buffer& buffer : func.buffers) {
    for (const Expr& extent : buffer->shape) {
      if (as_int(extent) || extent.kind() == NodeKind::Var || as_affine(extent)) continue;
      const Expr simple = simplify(extent);
      const auto is_same = [&](const Expr& known) { return structural_equal(known, simple); };
      if (std::none_of(extents.begin(), extents.end(), is_same)) extents.push_back(simple);
    }
  }
  std::stable_sort(extents.begin(), extents.end(),
                   [](const Expr& a, const Expr& b) { return to_text(a).size() > to_text(b).size(); });
  return extents;
}

Var name_of(const Expr& extent, size_t number) {
  const Interval range = bounds_of(extent);
  DimensionBounds bounds;
  if (range.low) bounds.low = *range.low;
  if (range.high) bounds.high = *range.high;
  Substitution typical;
  for (const Var& var : free_vars(extent))
    typical[var] = Expr(typical_size(*var.get()).value_or(std::max<int64_t>(dimension_bounds(var).low, 1)));
  const bool is_stated = std::any_of(typical.begin(), typical.end(),
                                     [](const auto& entry) { return typical_size(*entry.first.get()).has_value(); });
  return dimension("extent" + std::to_string(number), bounds, "",
                   is_stated ? as_int(simplify(substitute(extent, typical))) : std::nullopt);
}

std::optional<NamedExtents> with_name(const NamedExtents& before, const Expr& extent) {
  const Var name = name_of(extent, before.func.parameters.size());
  const auto replaced = [&](const Binary& b) -> Expr {
    if (b.dtype != i64 || !structural_equal(simplify(binary(b.op, b.a, b.b)), extent)) return {};
    return name;
  };
  NamedExtents after = before;
  Func& func = after.func;
  std::vector<Buffer> buffers = func.buffers;
  visit(func.body, [&](const Allocate& allocate) { buffers.push_back(allocate.buffer); });
  for (const Buffer& buffer : buffers) {
    BufferNode node = *buffer.get();
    for (Expr& dim : node.shape) dim = rewrite(dim, replaced);
    const Buffer now{std::move(node)};
    func.body = replace_buffer(func.body, buffer, now);
    std::replace(func.buffers.begin(), func.buffers.end(), buffer, now);
  }
  func.body = rewrite(func.body, replaced);
  std::unordered_set<const ExprNode*> used;
  const auto note = [&](const VarNode& var) { used.insert(&var); };
  visit(func.body, note);
  visit(func.body, [&](const Allocate& allocate) {
    for (const Expr& dim : allocate.buffer->shape) visit(dim, note);
  });
  for (const Buffer& buffer : func.buffers)
    for (const Expr& dim : buffer->shape) visit(dim, note);
  const std::vector<Var> vars = free_vars(extent);
  if (std::any_of(vars.begin(), vars.end(), [&](const Var& var) { return used.count(var.get()) > 0; }))
    return std::nullopt;
  func.parameters.clear();
  after.parameters.clear();
  for (size_t i = 0; i < before.parameters.size(); ++i) {
    const Var& parameter = before.func.parameters[i];
    if (std::find(vars.begin(), vars.end(), parameter) != vars.end()) continue;
    func.parameters.push_back(parameter);
    after.parameters.push_back(before.parameters[i]);
  }
  func.parameters.push_back(name);
  after.parameters.push_back(extent);
  return after;
}

}  // namespace

NamedExtents name_extents(const Func& func) {
  NamedExtents result{func, {func.parameters.begin(), func.parameters.end()}};
  for (const Expr& extent : compound_extents(func))
    if (auto named = with_name(result, extent)) result = *std::move(named);
  return result;
}

}  // namespace tw::relay
