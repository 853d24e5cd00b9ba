#include "targets/cpu/contraction/match.h"

#include <numeric>

#include "targets/cpu/default_schedule.h"

namespace tw::cpu {

int Contraction::stored_lanes(int lanes) const {
  return is_grouped() ? static_cast<int>(std::gcd<int64_t>(group, lanes)) : lanes;
}

int64_t group_along(const Access& operand, const Var& axis, const BlockAnalysis& analysis) {
  const int64_t extent = analysis.extent(axis);
  if (!operand.uses(axis)) return extent;
  for (int64_t parts = 2; parts <= extent / 2; ++parts) {
    if (extent % parts == 0 && unit_stride(operand, axis, analysis.iters, static_cast<int>(extent / parts)) == 0)
      return extent / parts;
  }
  return 1;
}

std::optional<Contraction> contraction_along(const BlockAnalysis& analysis, const Var& axis) {
  const int64_t groups[] = {group_along(analysis.reads[0], axis, analysis),
                            group_along(analysis.reads[1], axis, analysis)};
  if ((groups[0] > 1) == (groups[1] > 1)) return std::nullopt;
  Contraction c;
  c.analysis = analysis;
  c.vector_axis = axis;
  c.a = groups[0] > 1 ? 0 : 1, c.b = 1 - c.a;
  c.group = groups[c.a];
  c.reduce = analysis.reduce();
  for (const Var& v : analysis.spatial()) {
    if (v == axis) continue;
    (analysis.reads[c.b].uses(v) ? c.batch : c.rows).push_back(v);
  }
  return c;
}

namespace {

// What the epilogue takes together is no batch: one axis of B's, if any.
bool take_parts(const Epilogue& epilogue, Contraction& c) {
  const std::vector<Var> spatial = c.analysis.spatial();
  for (size_t d = 0; d < epilogue.is_part.size(); ++d) {
    if (!epilogue.is_part[d]) continue;
    if (c.parts.is_defined() || std::erase(c.batch, spatial[d]) == 0) return false;
    c.parts = spatial[d];
  }
  return true;
}

}  // namespace

std::optional<Contraction> match_contraction(const Schedule& schedule, const BlockRef& block,
                                             const BlockAnalysis& analysis, int lanes,
                                             const std::function<bool(const Contraction&)>& accepts) {
  const std::vector<Var> spatial = analysis.spatial();
  for (auto v = spatial.rbegin(); v != spatial.rend(); ++v) {
    if (analysis.extent(*v) < 2) continue;
    auto c = contraction_along(analysis, *v);
    if (!c || result_stride(schedule, block, *v, c->stored_lanes(lanes)) != 1) continue;
    if (take_parts(find_epilogues(schedule, block), *c) && accepts(*c)) return c;
  }
  return std::nullopt;
}

std::optional<Contraction> match_across(const Schedule& schedule, const BlockRef& block, const BlockAnalysis& analysis,
                                        const std::function<bool(const Contraction&)>& accepts) {
  const auto is_contiguous = [&](const Var& v) {
    const int64_t extent = analysis.extent(v);
    return extent > 1 && result_stride(schedule, block, v, static_cast<int>(extent)) == 1;
  };
  for (const Var& v : analysis.spatial()) {
    if (analysis.extent(v) < 2 || is_contiguous(v)) continue;
    auto c = contraction_along(analysis, v);
    if (!c || c->rows.empty() || !is_contiguous(c->rows.back())) continue;
    if (!take_parts(find_epilogues(schedule, block), *c) || c->parts.is_defined()) continue;
    if (!analysis.reads[c->b].buffer->is_constant) continue;
    c->is_across = true;
    if (accepts(*c)) return c;
  }
  return std::nullopt;
}

std::optional<Words> find_words(const Contraction& c, int64_t g, int lanes) {
  for (auto k = c.reduce.rbegin(); k != c.reduce.rend(); ++k) {
    const int64_t extent = c.analysis.extent(*k);
    for (const int64_t granule : {extent, int64_t{4} * lanes, int64_t{2} * lanes, int64_t{lanes}, int64_t{lanes} / 2}) {
      if (granule % g != 0 || extent % granule != 0 || extent == 0) continue;
      if (unit_stride(c.read_a(), *k, c.analysis.iters, static_cast<int>(granule)) != 1) continue;
      if (!c.read_b().uses(*k)) return std::nullopt;
      return Words{*k, granule, granule != extent};
    }
  }
  return std::nullopt;
}

SplitAxis Words::split(const std::vector<int64_t>& steps) const {
  SplitAxis result{axis, steps};
  for (size_t i = steps.size() - 1; i-- > 0;) result.sizes[i] *= result.sizes[i + 1];
  if (is_blocked) result.sizes.insert(result.sizes.begin(), granule);
  return result;
}

std::vector<SplitAxis> find_blocked(const Contraction& c, int lanes) {
  std::vector<SplitAxis> blocked;
  for (const Var& k : c.reduce) {
    const int64_t extent = c.analysis.extent(k);
    if (extent <= lanes || extent % lanes != 0) continue;
    if (!unit_stride(c.read_a(), k, c.analysis.iters, static_cast<int>(extent)) &&
        unit_stride(c.read_a(), k, c.analysis.iters, lanes))
      blocked.push_back({k, {lanes}});
  }
  return blocked;
}

int64_t row_stride(const Contraction& c) {
  if (!c.has_rows()) return 0;
  return unit_stride(c.read_a(), c.rows.back(), c.analysis.iters, 2).value_or(0) * c.read_a().buffer->dtype.bytes();
}

std::optional<Var> axis_around_rows(const Contraction& c) {
  if (!c.has_rows() || c.analysis.is_open(c.rows.back())) return std::nullopt;
  const auto found = std::find_if(c.rows.rbegin() + 1, c.rows.rend(), [&](const Var& v) {
    return c.analysis.extent(v) > 1;  // also of one that is open
  });
  return found == c.rows.rend() || c.analysis.is_open(*found) ? std::nullopt : std::optional(*found);
}

int dimension_of(const Access& access, const Var& iteration) {
  for (size_t d = 0; d < access.indices.size(); ++d)
    if (access.indices[d].get() == iteration.get()) return static_cast<int>(d);
  return -1;
}

bool has_plain_indices(const Access& access) {
  for (size_t i = 0; i < access.indices.size(); ++i) {
    if (is_const_int(access.buffer->shape[i], 1)) continue;
    if (access.indices[i].kind() != NodeKind::Var) return false;
    for (size_t j = 0; j < i; ++j)
      if (access.indices[i].is_same(access.indices[j])) return false;
  }
  return true;
}

}  // namespace tw::cpu
