#include "relay_ir/passes/padding.h"

#include <algorithm>
#include <utility>

#include "relay_ir/ops/common.h"

namespace tw::relay {

ValueId padded(Graph& graph, ValueId x, NodeAttributes& window, ValueId value) {
  std::vector<int64_t> pads = window.get_ints("pads");
  if (std::all_of(pads.begin(), pads.end(), [](int64_t p) { return p == 0; })) return x;
  const size_t rank = pads.size() / 2;
  std::vector<int64_t> all(2 * (rank + 2), 0);
  for (size_t d = 0; d < rank; ++d) {
    all[2 + d] = std::exchange(pads[d], 0);
    all[rank + 4 + d] = std::exchange(pads[rank + d], 0);
  }
  window.set("pads", pads);
  return graph.add_node("pad", {x, value}, attributes_of({{"pads", all}}))[0];
}

}  // namespace tw::relay
