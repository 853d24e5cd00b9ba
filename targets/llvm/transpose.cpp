// Loads that are columns of the same rows become loads of the rows and shuffles.
//
//   C[ramp(c, 1, 16)] = A[ramp(a, s, 16)]                 r0 = A[ramp(a, 1, 2)]  …  r15 = A[ramp(a + 15·s, 1, 2)]
//   C[ramp(d, 1, 16)] = A[ramp(a + 1, s, 16)]      ⇒      C[ramp(c, 1, 16)] = r0₀ r1₀ … r15₀
//                                                         C[ramp(d, 1, 16)] = r0₁ r1₁ … r15₁
//
// The stores of a column may be several vectors, one after the other: they fill a line of the cache.
//
// The same elements are read as before, and no others.  What a row has is one access to memory, where each column takes
// one for every lane; the shuffles of n columns are n·log₂ n at most.
#include <algorithm>
#include <bit>

#include "targets/llvm/codegen.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/match.h"

namespace tw {
namespace {

constexpr int fewest_rows = 4;
constexpr int64_t least_stride = 4;  // below, whole vectors cover what a column needs; one that is open counts as large
constexpr size_t most_vectors_of_a_line = 8;
constexpr int group_bytes = 16;  // within which machines interleave two vectors

// Loads with a stride, in the order of the expression.  None, where something in it may be undefined before its place.
std::vector<const Load*> strided_loads(const Expr& value) {
  std::vector<const Load*> loads;
  bool has_let = false;
  visit(
      value,
      [&](const Load& l) {
        if (l.buffer->scope == Scope::register_ || l.indices.size() != 1 || l.buffer->dtype.is_bool()) return;
        const auto* r = l.indices[0].as<Ramp>();
        if (!r || as_int(r->stride).value_or(least_stride) < least_stride || r->dtype.lanes < fewest_rows) return;
        if (std::find(loads.begin(), loads.end(), &l) == loads.end()) loads.push_back(&l);
      },
      [&](const Let&) { has_let = true; });
  if (has_let) loads.clear();
  return loads;
}

bool is_same_mask(const Expr& a, const Expr& b) {
  return a.is_defined() == b.is_defined() && (!a.is_defined() || a.is_same(b) || is_known_equal(a, b));
}

// `next` reads what is `distance` elements after what `first` reads, in every lane.
bool is_column_beside(const Load& first, const Load& next, int64_t distance) {
  const Ramp &a = *first.indices[0].as<Ramp>(), &b = *next.indices[0].as<Ramp>();
  return first.buffer == next.buffer && first.dtype == next.dtype && is_known_equal(a.stride, b.stride) &&
         is_same_mask(first.predicate, next.predicate) && is_known_equal(b.base, a.base + Expr(distance));
}

// Lanes of both vectors, taken by turns in pieces of `granule` within groups of `group` lanes: of the groups' first
// halves, or of their second.
std::vector<int> zip_mask(int lanes, int group, int granule, int half) {
  std::vector<int> mask;
  for (int first = 0; first < lanes; first += group) {
    for (int at = 0; at < group / 2; at += granule) {
      for (int source : {0, lanes})
        for (int i = 0; i < granule; ++i) mask.push_back(source + first + half * group / 2 + at + i);
    }
  }
  return mask;
}

// The even groups of both vectors one after the other, or the odd ones.
std::vector<int> group_mask(int lanes, int group, int odd) {
  std::vector<int> mask;
  for (int first = odd * group; first < 2 * lanes; first += 2 * group)
    for (int i = 0; i < group; ++i) mask.push_back(first + i);
  return mask;
}

}  // namespace

// Rows of as many lanes as there are rows, or a fraction, both powers of two; gives the columns.
//
// Vectors stand at numbers whose bits are those of the row.  Each step joins the two whose numbers differ in one bit:
// the bit becomes one of the lane, and a bit of the column comes out of the lane into its place; but while a row is
// shorter than the result the two become one vector of twice the lanes.
std::vector<llvm::Value*> KernelCodegen::transpose(std::vector<llvm::Value*> rows) {
  const int count = static_cast<int>(rows.size());
  const auto* type = llvm::cast<llvm::FixedVectorType>(rows[0]->getType());
  const int columns = static_cast<int>(type->getNumElements());
  const int element_bytes = std::max<int>(1, static_cast<int>(type->getScalarSizeInBits()) / 8);
  const int group = std::min(count, std::max(1, group_bytes / element_bytes));
  struct Vector {
    llvm::Value* value;
    std::vector<std::pair<int, int>> lanes;  // row and column of each
  };
  std::vector<std::optional<Vector>> at;
  for (int r = 0; r < count; ++r) {
    at.push_back(Vector{rows[static_cast<size_t>(r)], {}});
    for (int c = 0; c < columns; ++c) at.back()->lanes.emplace_back(r, c);
  }
  int lanes = columns;
  const auto shuffle = [&](const Vector& a, const Vector& b, const std::vector<int>& mask) {
    Vector result{builder_.CreateShuffleVector(a.value, b.value, mask), {}};
    for (int i : mask) result.lanes.push_back(i < lanes ? a.lanes[i] : b.lanes[i - lanes]);
    return result;
  };
  // One step; without a second mask, two vectors become one.
  const auto step = [&](int bit, const std::vector<int>& first, const std::vector<int>& second) {
    for (int i = 0; i < count; ++i) {
      if ((i & bit) || !at[i]) continue;
      const Vector a = *at[i], b = *at[i | bit];
      at[i] = shuffle(a, b, first);
      at[i | bit] = second.empty() ? std::nullopt : std::optional(shuffle(a, b, second));
    }
  };
  int granule = 1, bit = 1;
  for (; lanes < group; lanes *= 2, granule *= 2, bit *= 2) {
    std::vector<int> both = zip_mask(lanes, lanes, granule, 0);
    const std::vector<int> rest = zip_mask(lanes, lanes, granule, 1);
    both.insert(both.end(), rest.begin(), rest.end());
    step(bit, both, {});
  }
  int join = group;  // bits of the row from here on number groups
  for (; lanes < count; lanes *= 2, join *= 2) {
    std::vector<int> both;
    for (int i = 0; i < 2 * lanes; ++i) both.push_back(i);
    step(join, both, {});
  }
  for (; granule < group; granule *= 2, bit *= 2)
    step(bit, zip_mask(lanes, group, granule, 0), zip_mask(lanes, group, granule, 1));
  for (; join < count; join *= 2) step(join, group_mask(lanes, group, 0), group_mask(lanes, group, 1));

  std::vector<llvm::Value*> result(static_cast<size_t>(columns), nullptr);
  for (const auto& vector : at) {
    if (!vector) continue;
    const int column = vector->lanes[0].second;
    for (int i = 0; i < count; ++i)
      check(vector->lanes[i] == std::pair(i, column), "codegen: a column has its rows in order");
    result[static_cast<size_t>(column)] = vector->value;
  }
  return result;
}

size_t KernelCodegen::load_columns(const std::vector<Stmt>& statements, size_t first) {
  columns_.clear();
  // Strided loads of the store at `i`; nothing where that is no plain store of a vector.
  const auto loads_at = [&](size_t i) -> std::vector<const Load*> {
    const auto* s = i < statements.size() ? statements[i].as<Store>() : nullptr;
    const bool is_plain =
        s && s->value.dtype().is_vector() && !(s->predicate.is_defined() && !s->predicate.dtype().is_vector());
    return is_plain ? strided_loads(s->value) : std::vector<const Load*>();
  };
  const auto are_columns_beside = [&](size_t i, size_t j, int64_t distance) {
    const std::vector<const Load*> a = loads_at(i), b = loads_at(j);
    bool are = !a.empty() && a.size() == b.size();
    // A row ends before the next one begins, as far as is known, so that none has a column twice.
    for (size_t m = 0; are && m < a.size(); ++m) {
      const auto stride = as_int(a[m]->indices[0].as<Ramp>()->stride);
      are = (!stride || distance < *stride) && is_column_beside(*a[m], *b[m], distance);
    }
    return are;
  };
  if (loads_at(first).empty()) return 0;
  size_t period = 1;  // stores of one column: vectors of a line
  while (period <= most_vectors_of_a_line && !are_columns_beside(first, first + period, 1)) ++period;
  if (period > most_vectors_of_a_line) return 0;
  size_t count = 1;  // columns
  const auto continues = [&] {
    for (size_t p = 0; p < period; ++p)
      if (!are_columns_beside(first + p, first + count * period + p, static_cast<int64_t>(count))) return false;
    return true;
  };
  while (continues()) ++count;
  if (count < 2) return 0;  // statements between two columns need not be stores

  // As many as registers hold, rows and what the shuffles need beside them.
  for (size_t p = 0; p < period; ++p) {
    for (const Load* l : loads_at(first + p)) {
      const int64_t row_bits = static_cast<int64_t>(period) * l->dtype.lanes * l->dtype.element().bits;
      const int64_t most = target_.vector_registers / 2 * target_.vector_bits / row_bits;
      count = std::min<size_t>(count, std::bit_floor(static_cast<size_t>(std::max<int64_t>(1, most))));
      for (size_t i = first; i < first + count * period; ++i)
        if (statements[i].as<Store>()->buffer == l->buffer) return 0;
      for (const Expr& e : {l->indices[0], l->predicate.is_defined() ? l->predicate : l->indices[0]})
        for (const Var& v : free_vars(e))
          if (!vars_.count(v.get())) return 0;
    }
  }
  if (count < 2) return 0;

  for (size_t p = 0; p < period; ++p) {
    const std::vector<const Load*> leading = loads_at(first + p);
    for (size_t m = 0; m < leading.size(); ++m) {
      const std::vector<llvm::Value*> columns = load_transposed(*leading[m], count);
      for (size_t k = 0; k < count; ++k) columns_[loads_at(first + k * period + p)[m]] = columns[k];
    }
  }
  return count * period;
}

// What `first` reads, and the `count - 1` columns beside it.  A row that only the run knows to be masked is read from
// zeros then: a choice of addresses costs less than a branch, or a lane after the other.
std::vector<llvm::Value*> KernelCodegen::load_transposed(const Load& first, size_t count) {
  const Ramp& index = *first.indices[0].as<Ramp>();
  const int lanes = first.dtype.lanes;
  llvm::Value* mask = first.predicate.is_defined() ? emit(first.predicate) : nullptr;
  auto* type = llvm::FixedVectorType::get(memory_type_of(first.dtype.element()), static_cast<unsigned>(count));
  const auto width = static_cast<int>(std::bit_ceil(count)),
             height = static_cast<int>(std::bit_ceil(static_cast<unsigned>(lanes)));
  std::vector<llvm::Value*> rows;
  for (int r = 0; r < height; ++r) {
    llvm::Value* row = llvm::PoisonValue::get(type);
    if (r < lanes) {
      llvm::Value* is_read = mask && mask->getType()->isVectorTy() ? builder_.CreateExtractElement(mask, r) : mask;
      const auto* known = llvm::dyn_cast_or_null<llvm::Constant>(is_read);
      row = llvm::Constant::getNullValue(type);
      if (!known || known->isOneValue()) {
        Address at = address(first.buffer, index.base + Expr(r) * index.stride);
        if (is_read && !known) at.pointer = builder_.CreateSelect(is_read, at.pointer, zeros(type));
        row = make_load(type, at, first.buffer);
      }
    }
    if (width != static_cast<int>(count)) row = resized(row, width);
    rows.push_back(row);
  }
  // Squares, where rows are longer than there are rows.
  std::vector<llvm::Value*> results;
  const int piece = std::min(width, height);
  for (int c = 0; c < width; c += piece) {
    std::vector<llvm::Value*> parts = rows;
    if (piece < width)
      for (llvm::Value*& part : parts) part = resized(part, piece, c);
    for (llvm::Value* column : transpose(std::move(parts)))
      results.push_back(height == lanes ? column : resized(column, lanes));
  }
  results.resize(count);
  return results;
}

// Lanes from `first` on, as many as wanted; those that are not there are poison.
llvm::Value* KernelCodegen::resized(llvm::Value* vector, int lanes, int first) {
  const int there = static_cast<int>(llvm::cast<llvm::FixedVectorType>(vector->getType())->getNumElements());
  std::vector<int> mask;
  for (int i = first; i < first + lanes; ++i) mask.push_back(i < there ? i : -1);
  return builder_.CreateShuffleVector(vector, mask);
}

}  // namespace tw
