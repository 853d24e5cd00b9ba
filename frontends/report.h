// What is told of an import: coverage, what the model uses, and all refusals.
#pragma once

#include <string>

#include "frontends/builder.h"

namespace tw::frontends {

// The graph, or one Error(unsupported) of everything that was refused.
Graph finish(Import import);

// What `tw explain` prints: coverage, operators, FLOPs, parameters; also when something was refused.
std::string explain(const Import& import);

// What `read` gives; errors name the file first.
Import with_file_name(const std::string& name, const std::function<Import()>& read);

}  // namespace tw::frontends
