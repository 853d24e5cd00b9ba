#include "runtime/plan/memory_plan.h"

#include <algorithm>
#include <numeric>

#include "runtime/rounding.h"

namespace tw {

int64_t plan_memory(std::vector<ArenaTensor>& tensors) {
  constexpr int64_t alignment = 64;
  auto aligned = [](int64_t bytes) { return round_up(bytes, alignment); };
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const int64_t x = tensors[a].bytes, y = tensors[b].bytes;
    return x != y ? x > y : a < b;
  });
  std::vector<const ArenaTensor*> placed;  // by offset
  int64_t arena = 0;
  for (const size_t index : order) {
    ArenaTensor& tensor = tensors[index];
    const int64_t bytes = aligned(tensor.bytes);
    int64_t offset = 0;
    for (const ArenaTensor* other : placed) {
      if (other->last < tensor.first || tensor.last < other->first) continue;
      if (other->offset >= offset + bytes) break;
      offset = std::max(offset, other->offset + aligned(other->bytes));
    }
    tensor.offset = offset;
    arena = std::max(arena, offset + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), &tensor,
                                   [](const ArenaTensor* a, const ArenaTensor* b) { return a->offset < b->offset; }),
                  &tensor);
  }
  return arena;
}

}  // namespace tw
