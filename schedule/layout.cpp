#include "schedule/layout.h"

#include <algorithm>
#include <numeric>
#include <set>

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
  const size_t rank = map.from.size();
  const Shape& physical = result.shape();
  check(rank == array.shape().size() && map.to.size() == physical.size() && result.dtype() == array.dtype(),
        "apply_layout: the map fits the arrays");
  const size_t width = static_cast<size_t>(array.dtype().bytes());
  if (result.size() > array.size()) std::memset(result.data(), 0, result.byte_size());
  if (array.size() == 0) return;

  // Where an element goes is a sum over the old indices when each part of the map depends on one of them; almost always
  // so.
  std::vector<std::vector<int64_t>> offsets(rank);
  for (size_t i = 0; i < rank; ++i) offsets[i].assign(static_cast<size_t>(array.shape()[i]), 0);
  int64_t constant = 0, stride = 1;
  bool is_separable = true;
  for (size_t t = map.to.size(); t-- > 0; stride *= physical[t]) {
    const LinearForm form = linear_form(map.to[t]);
    constant += form.constant * stride;
    for (const auto& [atom, coefficient] : form.terms) {
      const auto vars = free_vars(atom);
      if (vars.size() != 1) {
        is_separable = false;
        break;
      }
      const size_t i = static_cast<size_t>(std::find(map.from.begin(), map.from.end(), vars[0]) - map.from.begin());
      check(i < rank, "apply_layout: the map uses its own variables");
      const Size program = index_program(atom, {map.from[i]});
      for (int64_t v = 0; v < array.shape()[i]; ++v)
        offsets[i][static_cast<size_t>(v)] += program.at({&v, 1}) * coefficient * stride;
    }
  }
  auto* to = static_cast<char*>(result.data());
  const auto* from = static_cast<const char*>(array.data());
  if (!is_separable) {
    std::vector<Size> programs;
    for (const Expr& e : map.to) programs.push_back(index_program(e, map.from));
    std::vector<int64_t> index(rank, 0);
    for (int64_t k = 0; k < array.size(); ++k) {
      int64_t place = 0;
      for (size_t t = 0; t < programs.size(); ++t) place = place * physical[t] + programs[t].at(index);
      std::memcpy(to + place * width, from + k * width, width);
      for (size_t i = rank; i-- > 0 && ++index[i] == array.shape()[i];) index[i] = 0;
    }
    return;
  }
  if (rank == 0) {
    std::memcpy(to + constant * width, from, width);
    return;
  }

  // Rows along the last index are read in order.  Of the others, the index that moves least in the result is walked
  // beside it in tiles, so that lines and pages of both arrays stay in cache.
  std::vector<int64_t> strides(rank, 1);
  for (size_t i = rank - 1; i-- > 0;) strides[i] = strides[i + 1] * array.shape()[i + 1];
  const size_t row = rank - 1;
  size_t column = row == 0 ? row : 0;
  auto step_of = [&](size_t i) { return offsets[i].size() > 1 ? std::abs(offsets[i][1] - offsets[i][0]) : INT64_MAX; };
  for (size_t i = 0; i < row; ++i) {
    if (step_of(i) < step_of(column)) column = i;
  }
  auto copy = [&]<class Element>(Element) {
    const auto* source = reinterpret_cast<const Element*>(from);
    auto* target = reinterpret_cast<Element*>(to);
    const int64_t rows = column == row ? 1 : array.shape()[column], columns = array.shape()[row];
    const int64_t row_stride = strides[column];
    std::vector<int64_t> index(rank, 0);
    while (true) {
      int64_t source_base = 0, target_base = constant;
      for (size_t i = 0; i < rank; ++i) {
        if (i == row || i == column) continue;
        source_base += index[i] * strides[i];
        target_base += offsets[i][static_cast<size_t>(index[i])];
      }
      for (int64_t r0 = 0; r0 < rows; r0 += 16) {
        for (int64_t c0 = 0; c0 < columns; c0 += 64) {
          for (int64_t r = r0; r < std::min(rows, r0 + 16); ++r) {
            const int64_t row_base = target_base + (column == row ? 0 : offsets[column][static_cast<size_t>(r)]);
            const Element* line = source + source_base + (column == row ? 0 : r * row_stride);
            for (int64_t c = c0; c < std::min(columns, c0 + 64); ++c)
              target[row_base + offsets[row][static_cast<size_t>(c)]] = line[c];
          }
        }
      }
      size_t i = rank;
      while (i-- > 0) {
        if (i == row || i == column) continue;
        if (++index[i] < array.shape()[i]) break;
        index[i] = 0;
      }
      if (i == static_cast<size_t>(-1)) return;
    }
  };
  switch (width) {
    case 1:
      copy(uint8_t{});
      break;
    case 2:
      copy(uint16_t{});
      break;
    case 4:
      copy(uint32_t{});
      break;
    default:
      check(width == 8, "apply_layout: elements of 1, 2, 4 or 8 bytes");
      copy(uint64_t{});
  }
}

}  // namespace tw
