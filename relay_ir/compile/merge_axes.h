// Two axes that every access walks together are one: a pointwise convolution is a matrix product over all pixels.
//
//   for h in 0..7 { for w in 0..7 { … block Y(spatial vh: 7 = h, spatial vw: 7 = w, …) { Y[vc, vh, vw] = … X[vk, vh,
//   vw] … } } }
// ⇒
//   for p in 0..49 { … block Y(spatial vp: 49 = p, …) { Y[vc, vp] = … X[vk, vp] … } }
#pragma once

#include "tensor_ir/ir.h"

namespace tw::relay {

// The last two spatial axes of the Func's one reduction, merged in all of its blocks and buffers; the Func itself where
// some access tells them apart.  Memory stays as it is.
Func merge_axes(const Func& func);

}  // namespace tw::relay
