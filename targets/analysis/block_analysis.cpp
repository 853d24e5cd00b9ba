#include "targets/analysis/block_analysis.h"

#include <algorithm>

#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/dimension.h"
#include "tensor_ir/match.h"

namespace tw::analysis {
namespace {

bool is_expensive_call(Intrinsic intrinsic) {
  switch (intrinsic) {
    case Intrinsic::abs:
    case Intrinsic::fma:
    case Intrinsic::floor:
    case Intrinsic::ceil:
    case Intrinsic::trunc:
    case Intrinsic::round_even:
    case Intrinsic::round_tf32:
    case Intrinsic::decode_e4m3:
    case Intrinsic::decode_e5m2:
    case Intrinsic::encode_e4m3:
    case Intrinsic::encode_e5m2:
    case Intrinsic::scale_by_power:
    case Intrinsic::minimum:
    case Intrinsic::maximum:
    case Intrinsic::is_nan:
    case Intrinsic::is_inf:
    case Intrinsic::copysign:
    case Intrinsic::sign:
    case Intrinsic::reinterpret:
    case Intrinsic::word_at:
      return false;
    default:
      return true;
  }
}

const Load* as_load_through_conversions(Expr e) {
  for (Expr inner = without_conversion(e); inner.get() != e.get(); inner = without_conversion(e)) e = inner;
  return e.as<Load>();
}

std::optional<Intrinsic> conversion_of(const Expr& e) {
  const Call* call = as_conversion(e);
  return call ? std::optional(call->intrinsic) : std::nullopt;
}

Expr flat_offset(const Buffer& buffer, const std::vector<Expr>& indices) {
  Expr offset(0), stride(1);
  for (size_t d = indices.size(); d-- > 0;) {
    const Expr step = buffer->strides.empty() ? stride : buffer->strides[d];
    offset = indices[d] * step + offset;
    stride = stride * buffer->shape[d];
  }
  return offset;
}

}  // namespace

bool Access::uses(const Var& iteration) const {
  return std::any_of(indices.begin(), indices.end(), [&](const Expr& index) { return uses_var(index, iteration); });
}

std::optional<int64_t> unit_stride(const Access& access, const Var& iteration, const std::vector<IterVar>& iters,
                                   int granule) {
  if (!access.uses(iteration)) return 0;
  if (access.indices.size() != access.buffer->shape.size()) return std::nullopt;
  const Var outer("outer"), inner("inner");
  Assumptions assumptions;
  for (const IterVar& iter : iters) {
    if (iter.var == iteration) {
      assumptions.bind(outer, {0, std::nullopt});
      assumptions.bind_range(inner, granule);
    } else {
      assumptions.bind_range(iter.var, iter.extent);
    }
  }
  const Expr offset = substitute(flat_offset(access.buffer, access.indices), {{iteration, outer * granule + inner}});
  const Expr canonical = simplify(offset, assumptions);
  const Expr step = simplify(substitute(canonical, {{inner, inner + 1}}) - canonical, assumptions);
  return as_int(step);
}

const IterVar& BlockAnalysis::iter(const Var& var) const {
  const auto found = std::find_if(iters.begin(), iters.end(), [&](const IterVar& i) { return i.var == var; });
  check(found != iters.end(), "BlockAnalysis::iter: an iteration variable of the block");
  return *found;
}

std::vector<Var> BlockAnalysis::axes(IterKind kind) const {
  std::vector<Var> result;
  for (const IterVar& i : iters)
    if (i.kind == kind) result.push_back(i.var);
  return result;
}

int64_t BlockAnalysis::extent(const Var& var) const {
  return as_int(iter(var).extent).value_or(open_extent);
}

int64_t BlockAnalysis::typical_extent(const Var& var) const {
  const Expr& extent = iter(var).extent;
  Substitution typical;
  for (const Var& v : free_vars(extent))
    if (const auto size = typical_size(*v.get())) typical[v] = Expr(*size);
  return as_int(typical.empty() ? extent : simplify(substitute(extent, typical))).value_or(open_extent);
}

BlockAnalysis analyse(const Block& block) {
  BlockAnalysis result;
  result.name = block.name;
  result.iters = block.iters;
  const auto* store = block.body.as<Store>();
  if (!store) return result;
  result.write = {store->buffer, store->indices};
  visit(block.body, [&](const Load& l) {
    if (l.buffer != store->buffer) result.reads.push_back({l.buffer, l.indices});
  });
  visit(block.body, [&](const Call& c) { result.is_expensive |= is_expensive_call(c.intrinsic); });
  if (result.reduce().empty()) {
    result.block_class = BlockClass::injective;
    return result;
  }
  result.block_class = BlockClass::reduction;
  const auto* sum = store->value.as<Binary>();
  if (!sum || sum->op != BinaryOp::add) return result;
  const Load* accumulator = sum->a.as<Load>();
  if (!accumulator || accumulator->buffer != store->buffer) return result;
  const auto* product = sum->b.as<Binary>();
  if (!product || product->op != BinaryOp::mul) return result;
  result.conversions = {conversion_of(product->a), conversion_of(product->b)};
  const Load* a = as_load_through_conversions(product->a);
  const Load* b = as_load_through_conversions(product->b);
  if (!a || !b || a->predicate.is_defined() || b->predicate.is_defined() || result.reads.size() != 2) return result;
  result.block_class = BlockClass::contraction;
  return result;
}

bool has_identity_write(const BlockAnalysis& analysis) {
  const std::vector<Var> spatial = analysis.spatial();
  if (spatial.size() != analysis.write.indices.size()) return false;
  for (size_t d = 0; d < spatial.size(); ++d) {
    if (analysis.write.indices[d].get() != spatial[d].get()) return false;
  }
  return true;
}

size_t position_of(const BlockAnalysis& analysis, const Var& axis) {
  const std::vector<Var> spatial = analysis.spatial();
  const auto found = std::find(spatial.begin(), spatial.end(), axis);
  check(found != spatial.end(), "position_of: a spatial axis of the block");
  return static_cast<size_t>(found - spatial.begin());
}

std::vector<LoopRef> loops_of(const Schedule& schedule, const BlockRef& block, const Var& iteration) {
  std::vector<LoopRef> result;
  for (const IterVar& iter : schedule.node(block).iters) {
    if (!(iter.var == iteration)) continue;
    for (const LoopRef& loop : schedule.loops(block))
      if (uses_var(iter.binding, loop.var)) result.push_back(loop);
  }
  return result;
}

std::vector<LoopRef> loops_below(const Schedule& schedule, const BlockRef& block, const LoopRef& loop) {
  std::vector<LoopRef> loops = schedule.loops(block);
  const auto at = std::find(loops.begin(), loops.end(), loop);
  check(at != loops.end(), "loops_below: the loop is around the block");
  loops.erase(loops.begin(), at + 1);
  return loops;
}

std::vector<LoopRef> loops_below(const Schedule& schedule, const BlockRef& block, const LoopRef& loop,
                                 const Var& iteration) {
  const std::vector<LoopRef> of_iteration = loops_of(schedule, block, iteration);
  std::vector<LoopRef> loops = loops_below(schedule, block, loop);
  std::erase_if(loops, [&](const LoopRef& l) { return std::ranges::find(of_iteration, l) == of_iteration.end(); });
  return loops;
}

int64_t extent_of(const Schedule& schedule, const LoopRef& loop) {
  return as_int(schedule.node(loop).extent).value_or(open_extent);
}

bool is_open(const Schedule& schedule, const LoopRef& loop) {
  return !as_int(schedule.node(loop).extent);
}

int64_t least_bytes(const Buffer& buffer) {
  int64_t bytes = buffer->dtype.bytes();
  for (const Expr& extent : buffer->shape) bytes *= as_int(extent).value_or(1);
  return bytes;
}

bool is_sum(const BlockAnalysis& block) {
  return block.block_class == BlockClass::contraction || block.block_class == BlockClass::reduction;
}

Buffer written_by(const Schedule& schedule, const BlockRef& block) {
  return analyse(schedule.node(block)).write.buffer;
}

std::optional<BlockRef> writer_of(const Schedule& schedule, const Buffer& buffer) {
  for (const BlockRef& block : schedule.blocks())
    if (written_by(schedule, block) == buffer) return block;
  return std::nullopt;
}

int64_t count_iterations(const BlockAnalysis& analysis, const std::vector<Var>& axes) {
  int64_t result = 1;
  for (const Var& v : axes) result *= std::max<int64_t>(1, as_int(analysis.iter(v).extent).value_or(1));
  return result;
}

int64_t count_most_iterations(const BlockAnalysis& analysis, const std::vector<Var>& axes) {
  const bool has_open = std::any_of(axes.begin(), axes.end(), [&](const Var& v) { return analysis.is_open(v); });
  return has_open ? open_extent : count_iterations(analysis, axes);
}

int64_t count_iterations(const Schedule& schedule, const std::vector<LoopRef>& loops) {
  int64_t result = 1;
  for (const LoopRef& loop : loops) result *= std::max<int64_t>(1, as_int(schedule.node(loop).extent).value_or(1));
  return result;
}

bool has_block(const Schedule& schedule, const BlockRef& block) {
  const auto blocks = schedule.blocks();
  return std::find(blocks.begin(), blocks.end(), block) != blocks.end();
}

}  // namespace tw::analysis
