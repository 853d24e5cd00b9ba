// The oracle: runs any Func at any stage, scheduled or lowered, slowly and strictly.
//
// It traps (Error(verify)) on an index out of bounds, a read of memory never written (register, stack and local buffers
// are poisoned when allocated), division by zero, two iterations of a parallel loop that conflict (one writes what
// another reads or writes), and a barrier that not all threads of a block reach.  Thread-bound loops run as real
// interleaved threads: between barriers the order of threads is shuffled by a seed.
#pragma once

#include <map>
#include <vector>

#include "runtime/ndarray.h"
#include "tensor_ir/ir.h"

namespace tw {

struct InterpretOptions {
  std::map<std::string, int64_t> parameters;  // values of Func::parameters by name
  uint64_t seed = 0;                          // order of threads and of parallel iterations
  bool check_races = true;                    // false: iterations run in order, which is faster
  bool poison_outputs = true;                 // reading an element of an output before writing it traps
  // f64 and f32 math calls use the C library of the host; results are rounded to the dtype.
};

// Arrays for all of f.buffers, in order; outputs are written in place.  Layouts are compact row-major unless the buffer
// has strides.
void interpret(const Func& f, const std::vector<NDArray>& buffers, const InterpretOptions& options = {});

// The value of a scalar expression with these integers as its variables, by name: one element.
NDArray evaluate(const Expr& e, const std::map<std::string, int64_t>& variables = {});

}  // namespace tw
