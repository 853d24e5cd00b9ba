// Interpolation along one axis at a time, from tables of positions and weights: constants, or computed in a run where
// sizes are open.
#pragma once

#include "frontends/emit.h"

namespace tw::frontends {

struct Resize {
  enum class Interpolation { nearest, linear, cubic } interpolation = Interpolation::nearest;
  // Where an element of the result lies in the data.
  enum class Coordinates {
    half_pixel,
    half_pixel_symmetric,
    pytorch_half_pixel,
    align_corners,
    asymmetric,
    crop_and_resize
  } coordinates = Coordinates::half_pixel;
  enum class Rounding { prefer_floor, prefer_ceil, floor, ceil } rounding = Rounding::prefer_floor;  // of nearest
  double cubic_a = -0.75, extrapolation = 0;
  bool exclude_outside = false, antialias = false;
};

struct ResizedAxis {
  int axis;
  Expr in, out;
  std::optional<double> scale = {};                // nothing: out / in
  ValueId computed_scale = no_value;               // f64[], where only a run knows it
  double roi_start = 0, roi_end = 1;               // of crop_and_resize
  ValueId computed_roi[2] = {no_value, no_value};  // likewise: start and end, f64[]
};

ValueId emit_resize(Builder& b, ValueId x, const Resize& resize, std::vector<ResizedAxis> axes);

}  // namespace tw::frontends
