#include "targets/cuda/matrices.h"

#include <algorithm>
#include <limits>

#include "targets/analysis/block_relations.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"

namespace tw::cuda {
namespace {

using namespace analysis;

constexpr int64_t unknown_distance = std::numeric_limits<int64_t>::max();

const Access& data_of(const BlockAnalysis& analysis) {
  return analysis.reads[analysis.reads[0].buffer->is_constant ? 1 : 0];
}

int64_t elements_of_piece(const Access& access) {
  return access_bytes / access.buffer->dtype.bytes();
}

// Elements that the access moves with the iteration, within a piece where it runs along that.
int64_t distance_along(const BlockAnalysis& analysis, const Access& access, const Var& var) {
  const auto stride = unit_stride(access, var, analysis.iters, static_cast<int>(elements_of_piece(access)));
  return stride ? std::abs(*stride) : unknown_distance;
}

// Whether neighbours of a row of the operand's matrix, which runs along `last`, are farther apart than rows are.
bool has_near_rows(const BlockAnalysis& analysis, size_t operand, const Var& last) {
  const Access &own = analysis.reads[operand], &other = analysis.reads[1 - operand];
  int64_t pieces = distance_along(analysis, own, last);
  if (pieces == 1) {  // within a piece: the next one may be elsewhere
    Access next = own;
    for (Expr& index : next.indices) index = substitute(index, {{last, Expr(elements_of_piece(own)) * last}});
    pieces = unit_stride(next, last, analysis.iters, 1).value_or(unknown_distance);
  }
  const std::vector<Var> spatial = analysis.spatial();
  return std::any_of(spatial.begin(), spatial.end(), [&](const Var& var) {
    return own.uses(var) && !other.uses(var) && distance_along(analysis, own, var) < pieces;
  });
}

// What gives the variable, of a dimension that is indexed by it, or by several as digits of a number.
Expr part_of(const Var& dimension, const Expr& index, const Var& var) {
  const auto affine = as_affine(index);
  const int64_t own = affine ? affine->coefficient(var) : 0;
  if (own < 1) return Expr();
  int64_t next = 0;  // the digit above
  for (const auto& [other, coefficient] : affine->terms)
    if (coefficient > own && (next == 0 || coefficient < next)) next = coefficient;
  const Expr digits = own == 1 ? Expr(dimension) : floor_div(dimension, own);
  return next == 0 ? digits : floor_mod(digits, next / own);
}

// The dimensions of a constant in the order of its matrix.
void order_constant(Schedule& schedule, const BlockAnalysis& analysis, const Access& access,
                    const std::vector<Var>& order) {
  if (!access.buffer->is_constant || readers_of(schedule, access.buffer).size() != 1) return;
  IndexMap map;
  std::vector<Expr> indices, single;
  size_t uses = 0;
  Substitution zeros;
  for (const IterVar& iter : analysis.iters)
    if (is_const_int(iter.extent, 1)) zeros[iter.var] = Expr(0);
  for (size_t d = 0; d < access.indices.size(); ++d) {
    map.from.push_back(Var("d" + std::to_string(d)));
    indices.push_back(simplify(substitute(access.indices[d], zeros)));
    if (as_int(indices[d])) single.push_back(map.from[d]);
    uses += free_vars(indices[d]).size();
  }
  for (const Var& var : order) {
    for (size_t d = 0; d < indices.size(); ++d) {
      const Expr part = part_of(map.from[d], indices[d], var);
      if (part.is_defined()) map.to.push_back(part);
    }
  }
  if (map.to.size() != uses) return;  // an index that is computed otherwise
  map.to.insert(map.to.end(), single.begin(), single.end());
  schedule.transform_layout(access.buffer->name, map);
}

// The block that makes what the other buffer stands for, or takes it there; nothing where they are one.
std::optional<BlockRef> copy_between(const Schedule& schedule, const Buffer& one, const Buffer& made) {
  return one == made ? std::nullopt : writer_of(schedule, made);
}

}  // namespace

MatrixAxes find_matrix_axes(const Schedule& schedule, const BlockRef& block) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  const Access &a = analysis.reads[0], &b = analysis.reads[1];
  MatrixAxes axes;
  axes.reduce = analysis.reduce();
  for (const Var& var : analysis.spatial())
    (a.uses(var) == b.uses(var) ? axes.others : a.uses(var) ? axes.rows : axes.columns).push_back(var);
  constexpr int pair = 2;  // of sums, which a thread holds
  const auto run_along = [&](const std::vector<Var>& vars) {
    return std::any_of(vars.begin(), vars.end(),
                       [&](const Var& var) { return result_stride(schedule, block, var, pair) == 1; });
  };
  if (run_along(axes.rows) && !run_along(axes.columns)) std::swap(axes.rows, axes.columns);
  const Access& data = data_of(analysis);
  std::stable_sort(axes.reduce.begin(), axes.reduce.end(), [&](const Var& x, const Var& y) {
    return distance_along(analysis, data, x) > distance_along(analysis, data, y);
  });
  return axes;
}

void open_window(Schedule& schedule, const BlockRef& block, int64_t piece) {
  if (const auto padding = find_padding(schedule, block)) schedule.compute_inline(*padding);
  const BlockAnalysis analysis = analyse(schedule.node(block));
  if (analysis.reduce().size() < 2) return;
  for (size_t axis = 0; axis < analysis.iters.size(); ++axis) {
    const IterVar& iter = analysis.iters[axis];
    const bool is_cut = iter.kind == IterKind::reduce && analysis.extent(iter.var) > piece &&
                        analysis.extent(iter.var) % piece == 0 &&
                        distance_along(analysis, data_of(analysis), iter.var) == 1;
    if (!is_cut) continue;
    schedule.split(loop_of(schedule, block, iter.var), {std::nullopt, piece});
    return schedule.split_iteration(block, static_cast<int>(axis), piece);
  }
}

std::optional<Matrices> make_matrices(Schedule& schedule, const BlockRef& block) {
  const MatrixAxes axes = find_matrix_axes(schedule, block);
  BlockAnalysis before = analyse(schedule.node(block));
  if (axes.rows.empty() || axes.columns.empty() || before.reads[0].buffer == before.reads[1].buffer)
    return std::nullopt;
  const std::vector<IterVar> iters = schedule.node(block).iters;
  std::vector<std::vector<int64_t>> groups;
  std::vector<Var> order;
  const auto add = [&](const std::vector<Var>& vars) {
    std::vector<int64_t>& group = groups.emplace_back();
    for (const Var& var : vars) {
      const auto at = std::find_if(iters.begin(), iters.end(), [&](const IterVar& iter) { return iter.var == var; });
      group.push_back(at - iters.begin());
      order.push_back(var);
    }
  };
  for (const Var& var : axes.others) add({var});
  for (const auto& part : {axes.rows, axes.columns, axes.reduce}) add(part);

  const auto product_of = [](const BlockAnalysis& analysis, const Var& i, const Var& j) {
    const auto at_i = dimension_of(analysis.write, i), at_j = dimension_of(analysis.write, j);
    return at_i && at_j ? std::optional(Matrices{.product = {i, j, *at_i, *at_j}}) : std::nullopt;
  };
  // Bytes come to tensor cores along what is summed over: constants can lie so.
  const bool is_plain = std::all_of(before.reads.begin(), before.reads.end(), [&](const Access& read) {
    const bool is_turned =
        read.buffer->is_constant && read.buffer->dtype.bytes() == 1 && distance_along(before, read, order.back()) != 1;
    return !is_turned && std::all_of(read.indices.begin(), read.indices.end(),
                                     [](const Expr& e) { return e.kind() == NodeKind::Var; });
  });
  if (is_plain && groups.size() == iters.size()) return product_of(before, axes.rows[0], axes.columns[0]);
  const std::array<bool, 2> near_rows = {has_near_rows(before, 0, order.back()),
                                         has_near_rows(before, 1, order.back())};
  for (const Access& read : before.reads) order_constant(schedule, before, read, order);
  before = analyse(schedule.node(block));
  const auto epilogue = find_epilogue(schedule, block);
  schedule.fuse_iterations(block, groups);
  const BlockAnalysis after = analyse(schedule.node(block));
  auto matrices = product_of(after, after.iters[axes.others.size()].var, after.iters[axes.others.size() + 1].var);
  if (!matrices) return std::nullopt;
  matrices->has_near_rows = near_rows;
  for (size_t i = 0; i < matrices->copies.size(); ++i)
    matrices->copies[i] = copy_between(schedule, before.reads[i].buffer, after.reads[i].buffer);
  matrices->out = copy_between(schedule, after.write.buffer, before.write.buffer);
  if (matrices->out && epilogue) schedule.reverse_compute_inline(*epilogue);
  return matrices;
}

void pad_to_multiples(Schedule& schedule, const BlockRef& block, Matrices& matrices,
                      const std::vector<std::pair<Var, int64_t>>& multiples) {
  std::vector<int64_t> all;
  for (const IterVar& iter : schedule.node(block).iters) {
    const auto own =
        std::find_if(multiples.begin(), multiples.end(), [&](const auto& m) { return m.first == iter.var; });
    all.push_back(own == multiples.end() ? 1 : own->second);
  }
  const auto reader = matrices.out ? matrices.out : find_epilogue(schedule, block);
  const BlockAnalysis before = analyse(schedule.node(block));
  schedule.pad_operands(block, all);
  const BlockAnalysis after = analyse(schedule.node(block));
  for (size_t i = 0; i < matrices.copies.size(); ++i) {
    const auto copy = copy_between(schedule, before.reads[i].buffer, after.reads[i].buffer);
    if (!copy) continue;
    if (matrices.copies[i]) schedule.compute_inline(*matrices.copies[i]);
    matrices.copies[i] = copy;
  }
  const auto inside = copy_between(schedule, after.write.buffer, before.write.buffer);
  if (!inside) return;
  if (reader) schedule.compute_inline(*inside);
  matrices.out = reader ? reader : inside;
}

}  // namespace tw::cuda
