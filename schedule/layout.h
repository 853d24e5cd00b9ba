// Layouts of buffers as index maps: shapes, and moving arrays into them at compile time.
#pragma once

#include <string>
#include <vector>

#include "runtime/ndarray.h"
#include "schedule/schedule.h"

namespace tw {

// The shape of a buffer of `logical` shape after the map.  A dimension `c % 16` is 16 long even when there are fewer
// channels.  Error(schedule) when the map is not one to one or its bounds are not known.
std::vector<Expr> physical_shape(const IndexMap& map, const std::vector<Expr>& logical);

// How the elements of an array move to a layout: native strided loops, fit for weights of gigabytes.
class LayoutCopy {
 public:
  LayoutCopy(const NDArray& array, const IndexMap& map, const Shape& physical);
  // Of the array's first dimension that has several elements: they can be moved in parts, side by side.
  int64_t rows() const;
  // Those of some rows; what pads the result is left as it is.
  void copy(const NDArray& array, NDArray& result, int64_t begin, int64_t end) const;

 private:
  template <class Element>
  void copy_separable(const NDArray& array, NDArray& result, int64_t begin, int64_t end) const;
  void copy_each(const NDArray& array, NDArray& result) const;

  Shape shape_, physical_;
  IndexMap map_;
  bool is_separable_ = true;  // the place is a sum over the indices
  std::vector<std::vector<int64_t>> offsets_;
  int64_t constant_ = 0;
  size_t part_axis_ = 0;
  int64_t run_ = 1;  // neighbours along the last index that stay neighbours, in groups of as many
};

// The array in the new layout, written into `result`, which has the physical shape; padding elements are zero.
void apply_layout(const NDArray& array, const IndexMap& map, NDArray& result);
NDArray apply_layout(const NDArray& array, const IndexMap& map, const Shape& physical);

}  // namespace tw
