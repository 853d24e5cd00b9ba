// Random numbers that a run draws.
//
// A stream of numbers is u64[2], the state of random_bits (relay_ir/ops/random.cpp).  Streams are a tree: the run's,
// which its number and the executable's seed are (RandomState); of that one, each node's own; and of this one, that of
// each step of the loops around.  So every node has other numbers in every step of every run, and the same ones
// whatever the target, the threads and the sizes that are compiled for.
#pragma once

#include <optional>
#include <vector>

#include "frontends/builder.h"

namespace tw::frontends {

// The node's stream where it is emitted.  `seed`: of the node's own, for that of the executable: nodes of one seed draw
// the same numbers.
ValueId emit_random_stream(Builder& b, std::optional<uint64_t> seed = std::nullopt);

// Shapes are values, for a type's is gone when nodes are added.
//
// Floats from 0 on and below 1, as many bits as the type has: multiples of 2^-24 in f32, 2^-53 in f64.
ValueId emit_uniform(Builder& b, ValueId stream, std::vector<Expr> shape, DType dtype);
// Floats of the standard normal distribution.  Those of f16 and bf16 are rounded from f32.
ValueId emit_normal(Builder& b, ValueId stream, std::vector<Expr> shape, DType dtype);
// Whether something of each of these probabilities happens.
ValueId emit_bernoulli(Builder& b, ValueId stream, ValueId probabilities);
// x[batch, classes], logarithms of what probabilities are in proportion to  ⇒  so many classes for each of the batch.
ValueId emit_multinomial(Builder& b, ValueId stream, ValueId x, const Expr& samples, DType dtype);

struct Dropped {
  ValueId y, mask;  // x / (1 - ratio) where the mask holds, else 0
};
// `ratio`: a float [].  `is_training`: bool[], where it does not hold y is x and the mask holds everywhere; no_value:
// it holds.
Dropped emit_dropout(Builder& b, ValueId stream, ValueId x, ValueId ratio, ValueId is_training);

}  // namespace tw::frontends
