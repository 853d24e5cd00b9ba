// Linear attention: each head keeps a state of [keys, values], to which every step adds a product of its key and value
// (Katharopoulos et al., Transformers are RNNs, 2020).  The state may decay before (Yang et al., Gated Linear
// Attention, 2024), and the value may be what the state does not have yet: the delta rule (Schlag et al., Linear
// Transformers Are Secretly Fast Weight Programmers, 2021; both: Yang et al., Gated Delta Networks, 2025).
#pragma once

#include "frontends/emit.h"

namespace tw::frontends {

// All of one type of floats.  Query heads are the same or a multiple of the others, each of which serves neighbours.
struct LinearAttention {
  ValueId q, k, v;           // [batch, heads, steps, keys], v: [batch, heads, steps, values]
  ValueId state = no_value;  // the first: [batch, heads, keys, values]; absent: zeros
  ValueId decay = no_value;  // the state's factor is its exponential: [batch, heads, steps, keys or 1]
  ValueId beta = no_value;   // the share of the difference that is added: [batch, heads or 1, steps, 1]
  double scale = 1;          // of the results
};

// Results: [batch, query heads, steps, values], and the state after the last step.  The steps are done one after the
// other.
std::vector<ValueId> emit_linear_attention(Builder& b, const LinearAttention& attention);

}  // namespace tw::frontends
