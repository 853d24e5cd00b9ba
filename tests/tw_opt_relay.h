// The half of tw-opt that works on graphs: // RUN: tw-opt --relay --pass simplify --pass eliminate_dead
//
//   --pass NAME       a pass of relay_ir/passes.def
//   --layout TARGET   assign_layout
//   --precision PRECISION TARGET   lower_precision
//   --bytes TARGET    match_byte_products
//   --groups TARGET   instead of the graph, the nodes of each group that fusion makes
//   --verify          the verifier
#pragma once

#include <string>
#include <vector>

std::string apply_relay(const std::vector<std::string>& words, const std::string& text, const std::string& file);
