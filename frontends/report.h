// What is told of an import: coverage, what the model uses, and all refusals.
#pragma once

#include <string>

#include "frontends/builder.h"

namespace tw::frontends {

// The graph, or one Error(unsupported) of everything that was refused.
Graph finish(Import import);

// What `tw explain` prints: coverage, operators, FLOPs, parameters; also when something was refused.
std::string explain(const Import& import);

// What one of the model's nodes costs in a run, at typical sizes of open dimensions, as its nodes in the graph stand
// before anything is fused.
struct SourceCost {
  int64_t flops = 0;
  int64_t parameters = 0;  // bytes of known values that they read
  int64_t written = 0;     // bytes of what they make; views make nothing
};
SourceCost cost_of(const Import& import, const SourceRow& row);

// What `read` gives; errors name the file first.
Import with_file_name(const std::string& name, const std::function<Import()>& read);

}  // namespace tw::frontends
