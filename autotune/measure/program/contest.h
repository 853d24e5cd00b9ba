// In the child: loads both, confines itself, computes the outputs of both for every set of inputs and times them in
// turn.
#pragma once

namespace tw::autotune {

// With the exchange and the report (autotune/measure/exchange.h) as descriptors; gives the status to exit with.
int run_contest(const char* candidate, const char* incumbent);

}  // namespace tw::autotune
