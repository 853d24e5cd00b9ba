// Sums of few terms with known coefficients: what the stages of a bilinear algorithm compute (Winograd's, Strassen's).
#pragma once

#include <functional>
#include <initializer_list>
#include <utility>
#include <vector>

#include "tensor_ir/te.h"

namespace tw::relay {

// The row with this number of matrix · x, where term(i) is x[i]: a choice that is none when the row's loop is unrolled.
Expr row_times(const std::vector<std::vector<double>>& matrix, const Expr& row,
               const std::function<Expr(size_t)>& term);

te::Indices joined(std::initializer_list<te::Indices> parts);

// How the stages count the tiles of a batch: over all images, but image by image where only a run knows how many images
// there are: then the last tile of each is known.
class TileCount {
 public:
  // tiles: of an image.
  TileCount(const Expr& images, Expr tiles, bool is_by_image = false)
      : images_(images), tiles_(std::move(tiles)), is_by_image_(is_by_image || !as_int(images)) {}

  bool is_by_image() const { return is_by_image_; }
  te::Indices extents() const;
  size_t axes() const { return is_by_image() ? 2 : 1; }
  te::Indices number(const Expr& image, const Expr& tile) const;
  // What numbers a tile, or its image and the number in it, where this is the first of a stage's indices for that.
  te::Indices number(const te::Indices& stage, size_t first) const;
  std::pair<Expr, Expr> place(const te::Indices& stage, size_t first) const;

 private:
  Expr images_, tiles_;
  bool is_by_image_;
};

}  // namespace tw::relay
