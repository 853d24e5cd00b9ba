// A contraction of small elements that ends in a dot product of the target: tensorize finds g neighbours along k.
//
//   for panel, rows … parallel {
//     for k … {                                  g at a time
//       for i in 0..R unrolled { for v in 0..V unrolled { for lane vectorized { for t in 0..g tensorized
//         Cr[i, v·L + lane] += A[…, k·g + t] * B_packed[panel, k, v·L + lane, t]
//     }}}}
//     C[…] = epilogue(Cr)
//   }
//
// As contraction.cpp, with operands in words: A's neighbours along k lie side by side in memory, B's are put there.
#include <algorithm>

#include "targets/cpu/contraction_output.h"
#include "targets/cpu/default_schedule.h"
#include "targets/cpu/tile_model.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/instruction.h"
#include "tensor_ir/printer.h"

namespace tw::cpu {
namespace {

struct DotContraction : Contraction {
  const TensorInstruction* instruction = nullptr;
  Var words;            // the axis of k whose neighbours make A's words
  int64_t granule = 0;  // …within groups of so many
};

// The target's instruction that adds products of elements of these types, in either order.
const TensorInstruction* instruction_for(DType a, DType b, DType sum, const Target& target) {
  for (const MachineInstruction& machine : target.instructions) {
    const TensorInstruction& i = *find_tensor_instruction(to_text(machine.intrinsic));
    const auto& operands = i.description.buffers;
    const bool fits =
        (operands[0]->dtype == a && operands[1]->dtype == b) || (operands[0]->dtype == b && operands[1]->dtype == a);
    // Floats multiply as f32, too: then a slow instruction gains nothing.
    if (sum.is_float() && machine.cycles > static_cast<double>(i.extent)) continue;
    if (fits && operands[2]->dtype == sum) return &i;
  }
  return nullptr;
}

std::optional<DotContraction> match(const Schedule& schedule, const BlockRef& block, const Target& target) {
  const BlockAnalysis analysis = analyse(schedule.node(block));
  if (analysis.block_class != BlockClass::contraction) return std::nullopt;
  const DType sum = analysis.write.buffer->dtype;
  const TensorInstruction* instruction =
      instruction_for(analysis.reads[0].buffer->dtype, analysis.reads[1].buffer->dtype, sum, target);
  if (!instruction) return std::nullopt;
  const int lanes = target.lanes(sum);
  std::optional<Words> words;
  const auto has_words = [&](const Contraction& c) {
    if (c.is_grouped() && c.group % lanes != 0) return false;
    words = find_words(c, instruction->extent, lanes);
    return words.has_value();
  };
  auto matched = match_contraction(schedule, block, lanes, has_words);
  if (!matched) matched = match_across(schedule, block, has_words);
  if (!matched) return std::nullopt;
  return DotContraction{*matched, instruction, words->axis, words->granule};
}

// B as [dimensions of one element, batch …, panel, k …, k within its block, element of the panel, t]; nothing when its
// indices are no plain iterations.
std::optional<IndexMap> packing_map(const DotContraction& c, int64_t panel) {
  const Access& b = c.analysis.reads[c.b];
  const int64_t g = c.instruction->extent;
  if (!has_plain_indices(b)) return std::nullopt;
  IndexMap map;
  for (size_t d = 0; d < b.indices.size(); ++d) {
    map.from.push_back(Var("d" + std::to_string(d)));
    if (is_const_int(b.buffer->shape[d], 1)) map.to.push_back(map.from[d]);
  }
  const auto dimension_of = [&](const Var& v) -> Expr {
    for (size_t d = 0; d < b.indices.size(); ++d)
      if (b.indices[d].get() == v.get() && !is_const_int(b.buffer->shape[d], 1)) return map.from[d];
    return Expr();
  };
  const auto add = [&](const Var& v) {
    if (const Expr d = dimension_of(v); d.is_defined()) map.to.push_back(d);
  };
  const Expr j = dimension_of(c.vector_axis), k = dimension_of(c.words);
  for (const Var& v : c.batch) add(v);
  map.to.push_back(floor_div(j, panel));
  const bool is_blocked = c.granule != c.analysis.extent(c.words);
  for (const Var& v : c.reduce) {
    if (!(v == c.words))
      add(v);
    else
      map.to.push_back(is_blocked ? floor_div(k, c.granule) : floor_div(k, g));
  }
  if (is_blocked) map.to.push_back(floor_div(floor_mod(k, c.granule), g));
  map.to.push_back(floor_mod(j, panel));
  map.to.push_back(floor_mod(k, g));
  return map;
}

// Weights are packed when they are compiled, other operands by a copy in front of the block.
void pack(Schedule& schedule, const BlockRef& block, const DotContraction& c, const IndexMap& map,
          const Target& target) {
  const Buffer& b = c.analysis.reads[c.b].buffer;
  if (is_constant(schedule.func(), b) && count_readers(schedule, b) == 1) {
    schedule.transform_layout(b->name, map);
    return;
  }
  const BlockRef copy = schedule.cache_read(block, b->name, Scope::global);
  schedule.transform_layout(analyse(schedule.node(copy)).write.buffer->name, map);
  const Access& access = c.analysis.reads[c.b];
  pack_words(schedule, copy, dimension_of(access, c.words), dimension_of(access, c.vector_axis), c.instruction->extent,
             target.lanes(c.analysis.write.buffer->dtype));
}

}  // namespace

// Vectors along the panel, one for each of a word's elements: their stores interleave.
void pack_words(Schedule& schedule, const BlockRef& copy, int words, int columns, int64_t g, int lanes) {
  std::vector<LoopRef> order, inner;
  const size_t rank = analyse(schedule.node(copy)).spatial().size();
  for (size_t d = 0; d < rank; ++d) {
    const LoopRef loop = loops_of(schedule, copy, analyse(schedule.node(copy)).spatial().at(d)).at(0);
    if (static_cast<int>(d) == words) {
      const auto parts = schedule.split(loop, {std::nullopt, g});
      order.push_back(parts[0]);
      inner.insert(inner.begin(), parts[1]);
    } else if (static_cast<int>(d) == columns) {
      const auto parts = schedule.split(loop, {std::nullopt, lanes});
      order.push_back(parts[0]);
      inner.push_back(parts[1]);
    } else {
      order.push_back(loop);
    }
  }
  const std::vector<LoopRef> outer = order;
  order.insert(order.end(), inner.begin(), inner.end());
  schedule.reorder(order);
  const LoopRef shared = outer.size() > 1 ? schedule.fuse(outer) : outer[0];
  schedule.unroll(inner[0]);
  schedule.vectorize(inner[1]);
  share_out(schedule, shared);
}

bool schedule_dot_contraction(Schedule& schedule, const BlockRef& block, const Target& target) {
  const auto matched = match(schedule, block, target);
  if (!matched) return false;
  const DotContraction& c = *matched;
  const BlockAnalysis& analysis = c.analysis;
  const int64_t g = c.instruction->extent;
  const int lanes = target.lanes(analysis.write.buffer->dtype);
  const bool has_rows = !c.rows.empty();
  const Var row_axis = has_rows ? c.rows.back() : Var();
  const int64_t m = has_rows ? analysis.extent(row_axis) : 1;
  const int64_t n_vectors = (c.group + lanes - 1) / lanes, groups = analysis.extent(c.vector_axis) / c.group;
  const bool streams = is_stream(analysis.reads[c.b].buffer, count_most_iterations(analysis, c.rows), target);
  const int64_t k_count = count_iterations(analysis, c.reduce) / g, batches = count_iterations(analysis, c.batch);
  const RegisterTile tile =
      decide_tile(schedule, {m, n_vectors, k_count, 1, {}, batches * groups, streams, c.is_grouped()}, target);
  const auto map = packing_map(c, int64_t{tile.vectors} * lanes);
  if (!map) return false;
  pack(schedule, block, c, *map, target);

  const auto loop_of = [&](const Var& v) { return loops_of(schedule, block, v).at(0); };
  std::vector<LoopRef> order, k_inner;
  for (const Var& v : c.batch) order.push_back(loop_of(v));
  const auto j = schedule.split(loop_of(c.vector_axis), {std::nullopt, tile.vectors, lanes});
  order.push_back(j[0]);
  for (const Var& v : c.rows)
    if (!(v == row_axis)) order.push_back(loop_of(v));
  std::vector<LoopRef> i;
  if (has_rows) {
    i = schedule.split(loop_of(row_axis), {std::nullopt, tile.rows});
    order.push_back(i[0]);
  }
  const size_t outer_count = order.size();
  for (const Var& v : c.reduce) {
    if (!(v == c.words)) {
      order.push_back(loop_of(v));
    } else if (c.granule != analysis.extent(v)) {
      const auto parts = schedule.split(loop_of(v), {std::nullopt, c.granule / g, g});
      order.push_back(parts[0]);
      k_inner = {parts[1], parts[2]};
    } else {
      const auto parts = schedule.split(loop_of(v), {std::nullopt, g});
      order.push_back(parts[0]);
      k_inner = {parts[1]};
    }
  }
  const LoopRef first_k = order[outer_count], words = k_inner.back();
  order.insert(order.end(), k_inner.begin(), k_inner.end() - 1);
  if (has_rows) order.push_back(i[1]);
  order.push_back(j[1]), order.push_back(j[2]), order.push_back(words);
  schedule.reorder(order);

  const auto [parallel, tile_loop] =
      fuse_outside(schedule, {order.begin(), order.begin() + outer_count}, has_rows && m % tile.rows != 0, target);

  write_tile(schedule, block, c, tile_loop, first_k, lanes);
  prefetch_stream(schedule, analyse(schedule.node(block)).reads[c.b], count_most_iterations(analysis, c.rows),
                  k_inner.size() > 1 ? k_inner[k_inner.size() - 2] : order[outer_count + c.reduce.size() - 1], target);
  if (has_rows) schedule.unroll(i[1]);
  schedule.unroll(j[1]);
  schedule.tensorize(words, c.instruction->name);
  schedule.vectorize(j[2]);
  share_out(schedule, parallel);
  return true;
}

}  // namespace tw::cpu
