// Every expression simplified with what is known where it stands, as arith/simplify.h defines it.
//
//   for i in 0..4 { C[(i*16 + 3) floor_div 16] = … }   ⇒   for i in 0..4 { C[i] = … }
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/passes/passes.h"

namespace tw {

Func simplify_all(const Func& f) {
  Func result = f;
  result.body = simplify(f.body);
  return result;
}

}  // namespace tw
