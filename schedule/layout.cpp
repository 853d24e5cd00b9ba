#include "schedule/layout.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "runtime/memory.h"
#include "schedule/edit.h"
#include "tensor_ir/arith/region.h"
#include "tensor_ir/match.h"
#include "tensor_ir/plan_size.h"
#include "tensor_ir/structural.h"
#include "tensor_ir/text/printer.h"

namespace tw {
namespace {

// A new index, computed from the old ones.
Size index_program(const Expr& e, const std::vector<Var>& old) {
  bool is_known = true;
  visit(e, [&](const Binary& b) {
    const bool is_division = b.op == BinaryOp::floor_div || b.op == BinaryOp::floor_mod;
    is_known &= !is_division || as_int(b.b).value_or(0) > 0;
  });
  const auto program = as_size(e, old);
  if (!is_known || !program) {
    refuse("layout", "the index " + to_text(e) + " is not made of + - * // % of the old indices", Stmt(),
           "divide by positive constants");
  }
  return *program;
}

// Groups of old indices that share new ones; each group must be one to one by itself.
void check_one_to_one(const IndexMap& map, const std::vector<int64_t>& extents) {
  const size_t n = map.from.size();
  std::vector<size_t> group(n);
  std::iota(group.begin(), group.end(), 0);
  std::function<size_t(size_t)> find = [&](size_t i) { return group[i] == i ? i : group[i] = find(group[i]); };
  std::vector<std::vector<size_t>> uses;
  for (const Expr& e : map.to) {
    std::vector<size_t> used;
    for (size_t i = 0; i < n; ++i) {
      if (uses_var(e, map.from[i])) used.push_back(i);
    }
    for (size_t i = 1; i < used.size(); ++i) group[find(used[i])] = find(used[0]);
    uses.push_back(std::move(used));
  }
  for (size_t root = 0; root < n; ++root) {
    if (find(root) != root) continue;
    std::vector<size_t> members;
    int64_t count = 1;
    for (size_t i = 0; i < n; ++i) {
      if (find(i) == root) members.push_back(i), count *= extents[i];
      if (count > (int64_t{1} << 22))
        refuse("layout", "the map mixes too many elements in one index to be checked", Stmt(), "fuse fewer dimensions");
    }
    std::vector<Size> programs;
    bool is_plain = members.size() == 1 && extents[root] <= 1;
    for (size_t t = 0; t < map.to.size(); ++t) {
      if (uses[t].empty() || find(uses[t][0]) != root) continue;
      is_plain |= members.size() == 1 && map.to[t].is_same(map.from[root]);
      programs.push_back(index_program(map.to[t], map.from));
    }
    if (is_plain) continue;
    std::set<std::vector<int64_t>> seen;
    std::vector<int64_t> values(n, 0);
    for (int64_t k = 0; k < count; ++k) {
      int64_t rest = k;
      for (const size_t m : members) values[m] = rest % extents[m], rest /= extents[m];
      std::vector<int64_t> image;
      for (const Size& p : programs) image.push_back(p.at(values));
      if (!seen.insert(std::move(image)).second) {
        refuse("layout", "the map " + to_text(map) + " sends different elements to one place", Stmt(),
               "keep every digit of each index, as in (c // 16, c % 16)");
      }
    }
  }
}

// The map has d // k and d % k, and uses d nowhere else: one to one, whatever the extent of d.
bool has_digits(const IndexMap& map, const Var& d) {
  Expr quotient, remainder;
  size_t uses = 0;
  for (const Expr& e : map.to) {
    if (!uses_var(e, d)) continue;
    ++uses;
    const auto* b = e.as<Binary>();
    if (!b || !b->a.is_same(d) || as_int(b->b).value_or(0) < 1) return false;
    if (b->op == BinaryOp::floor_div) quotient = b->b;
    if (b->op == BinaryOp::floor_mod) remainder = b->b;
  }
  return uses == 2 && quotient.is_defined() && remainder.is_defined() && as_int(quotient) == as_int(remainder);
}

}  // namespace

std::vector<Expr> physical_shape(const IndexMap& map, const std::vector<Expr>& logical) {
  if (map.from.size() != logical.size()) {
    refuse("layout",
           "the map has " + std::to_string(map.from.size()) + " indices, the buffer " + std::to_string(logical.size()) +
               " dimensions",
           Stmt(), "name every dimension of the buffer");
  }
  InnerExtents extents;
  std::vector<int64_t> constants;
  std::vector<size_t> symbolic;
  for (size_t i = 0; i < logical.size(); ++i) {
    extents[map.from[i]] = logical[i];
    if (const auto value = as_int(logical[i]))
      constants.push_back(*value);
    else
      constants.push_back(1), symbolic.push_back(i);
  }
  for (const size_t i : symbolic) {
    size_t plain = 0, all = 0;
    for (const Expr& e : map.to) plain += e.is_same(map.from[i]), all += uses_var(e, map.from[i]);
    const bool is_plain = plain == 1 && all == 1;
    if (!is_plain && !has_digits(map, map.from[i]))
      refuse("layout", "dimension " + quoted(map.from[i].name()) + " has no constant extent, so it cannot be mixed",
             Stmt(), "let the map keep it as it is, or as d // 16 and d % 16");
  }
  check_one_to_one(map, constants);
  std::vector<Expr> shape;
  for (const Expr& e : map.to) {
    const auto* b = e.as<Binary>();
    if (b && b->op == BinaryOp::floor_mod && as_int(b->b)) {
      shape.push_back(b->b);
      continue;
    }
    if (b && b->op == BinaryOp::floor_div && b->a.kind() == NodeKind::Var) {
      const auto extent = extents.find(Var::of(b->a));
      if (extent != extents.end() && !as_int(extent->second)) {
        shape.push_back(floor_div(extent->second + (b->b - 1), b->b));
        continue;
      }
    }
    const auto range = range_of(e, extents);
    if (!range || !is_const_int(range->base, 0)) {
      refuse("layout", "the values of " + to_text(e) + " are not known to begin at 0", Stmt(),
             "use + * // % of the old indices with constants");
    }
    shape.push_back(range->extent);
  }
  return shape;
}

NDArray apply_layout(const NDArray& array, const IndexMap& map, const Shape& physical) {
  NDArray result(array.dtype(), physical);
  apply_layout(array, map, result);
  return result;
}

void apply_layout(const NDArray& array, const IndexMap& map, NDArray& result) {
  if (result.size() > array.size()) std::memset(result.data(), 0, result.byte_size());
  const LayoutCopy moves(array, map, result.shape());
  moves.copy(array, result, 0, moves.rows());
}

// Where an element goes is a sum over the old indices when each part of the map depends on one of them; almost always
// so.
LayoutCopy::LayoutCopy(const NDArray& array, const IndexMap& map, const Shape& physical)
    : shape_(array.shape()), physical_(physical), map_(map) {
  const size_t rank = map.from.size();
  check(rank == shape_.size() && map.to.size() == physical.size(), "LayoutCopy: the map fits the arrays");
  for (const int64_t extent : shape_) offsets_.emplace_back(static_cast<size_t>(extent), 0);
  int64_t stride = 1;
  for (size_t t = map.to.size(); t-- > 0; stride *= physical[t]) {
    const LinearForm form = linear_form(map.to[t]);
    constant_ += form.constant * stride;
    for (const auto& [atom, coefficient] : form.terms) {
      const auto vars = free_vars(atom);
      if (vars.size() != 1) {
        is_separable_ = false;
        return;
      }
      const size_t i = static_cast<size_t>(std::find(map.from.begin(), map.from.end(), vars[0]) - map.from.begin());
      check(i < rank, "LayoutCopy: the map uses its own variables");
      const Size program = index_program(atom, {map.from[i]});
      for (int64_t v = 0; v < shape_[i]; ++v)
        offsets_[i][static_cast<size_t>(v)] += program.at({&v, 1}) * coefficient * stride;
    }
  }
  while (part_axis_ + 1 < rank && shape_[part_axis_] == 1) ++part_axis_;
  if (rank == 0 || array.size() == 0) return;
  const std::vector<int64_t>& along = offsets_.back();
  const auto follows = [&](size_t c) { return along[c] == along[c - 1] + 1; };
  size_t run = 1;
  while (run < along.size() && follows(run)) ++run;
  for (size_t c = run; c < along.size(); ++c)
    if (c % run != 0 && !follows(c)) return;
  run_ = static_cast<int64_t>(run);
}

int64_t LayoutCopy::rows() const {
  return is_separable_ && !shape_.empty() ? shape_[part_axis_] : 1;
}

void LayoutCopy::copy(const NDArray& array, NDArray& result, int64_t begin, int64_t end) const {
  check(array.shape() == shape_ && result.shape() == physical_ && result.dtype() == array.dtype(),
        "LayoutCopy: the arrays are of the given shapes");
  if (array.size() == 0 || begin >= end) return;
  if (!is_separable_) return copy_each(array, result);
  switch (array.dtype().bytes()) {
    case 1:
      return copy_separable<uint8_t>(array, result, begin, end);
    case 2:
      return copy_separable<uint16_t>(array, result, begin, end);
    case 4:
      return copy_separable<uint32_t>(array, result, begin, end);
    default:
      check(array.dtype().bytes() == 8, "LayoutCopy: elements of 1, 2, 4 or 8 bytes");
      return copy_separable<uint64_t>(array, result, begin, end);
  }
}

void LayoutCopy::copy_each(const NDArray& array, NDArray& result) const {
  const size_t rank = shape_.size(), width = static_cast<size_t>(array.dtype().bytes());
  std::vector<Size> programs;
  for (const Expr& e : map_.to) programs.push_back(index_program(e, map_.from));
  std::vector<int64_t> index(rank, 0);
  for (int64_t k = 0; k < array.size(); ++k) {
    int64_t place = 0;
    for (size_t t = 0; t < programs.size(); ++t) place = place * physical_[t] + programs[t].at(index);
    std::memcpy(static_cast<char*>(result.data()) + place * width, static_cast<const char*>(array.data()) + k * width,
                width);
    for (size_t i = rank; i-- > 0 && ++index[i] == shape_[i];) index[i] = 0;
  }
}

// Rows along the last index are read in order.  Of the others, the index that moves least in the result is walked
// beside it in tiles, so that lines and pages of both arrays stay in cache.
template <class Element>
void LayoutCopy::copy_separable(const NDArray& array, NDArray& result, int64_t begin, int64_t end) const {
  constexpr int64_t shortest_run = 4;
  const auto* source = array.as<Element>();
  auto* target = result.as<Element>();
  const size_t rank = shape_.size();
  if (rank == 0) {
    target[constant_] = source[0];
    return;
  }
  std::vector<int64_t> strides(rank, 1), first(rank, 0), last = shape_;
  for (size_t i = rank - 1; i-- > 0;) strides[i] = strides[i + 1] * shape_[i + 1];
  first[part_axis_] = begin, last[part_axis_] = end;
  const size_t row = rank - 1;
  size_t column = row == 0 ? row : 0;
  const auto step_of = [&](size_t i) {
    return offsets_[i].size() > 1 ? std::abs(offsets_[i][1] - offsets_[i][0]) : INT64_MAX;
  };
  for (size_t i = 0; i < row; ++i) {
    if (step_of(i) < step_of(column)) column = i;
  }
  const bool has_column = column != row, has_runs = run_ >= shortest_run;
  const int64_t tile_rows = 16, tile_columns = has_runs ? std::max<int64_t>(1, 256 / run_) * run_ : 64;
  const int64_t* along = offsets_[row].data();
  const auto copy_line = [&](Element* to, const Element* from, int64_t c, int64_t stop) {
    if (!has_runs) {
      for (; c < stop; ++c) to[along[c]] = from[c];
      return;
    }
    for (int64_t count = 0; c < stop; c += count) {
      count = std::min(run_ - c % run_, stop - c);
      copy_past_caches(to + along[c], from + c, static_cast<size_t>(count) * sizeof(Element));
    }
  };
  std::vector<int64_t> index = first;
  while (true) {
    int64_t source_base = 0, target_base = constant_;
    for (size_t i = 0; i < rank; ++i) {
      if (i == row || i == column) continue;
      source_base += index[i] * strides[i];
      target_base += offsets_[i][static_cast<size_t>(index[i])];
    }
    const int64_t r_begin = has_column ? first[column] : 0, r_end = has_column ? last[column] : 1;
    for (int64_t r0 = r_begin; r0 < r_end; r0 += tile_rows) {
      for (int64_t c0 = first[row]; c0 < last[row]; c0 += tile_columns) {
        for (int64_t r = r0; r < std::min(r_end, r0 + tile_rows); ++r) {
          const int64_t moved = has_column ? offsets_[column][static_cast<size_t>(r)] : 0;
          copy_line(target + target_base + moved, source + source_base + (has_column ? r * strides[column] : 0), c0,
                    std::min(last[row], c0 + tile_columns));
        }
      }
    }
    size_t i = rank;
    while (i-- > 0) {
      if (i == row || i == column) continue;
      if (++index[i] < last[i]) break;
      index[i] = first[i];
    }
    if (i == static_cast<size_t>(-1)) break;
  }
  publish_copies();
}

}  // namespace tw
