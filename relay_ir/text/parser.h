// Parser of the text form of graphs (printer.h).  Error(text) locates, explains and suggests; it never crashes on bad
// input.
#pragma once

#include <string>
#include <string_view>

#include "relay_ir/text/printer.h"

namespace tw::relay {

Graph parse_graph(std::string_view text, const std::string& file = "<text>", const ConstantTable& constants = {});

}  // namespace tw::relay
