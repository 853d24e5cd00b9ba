// PassScope for graphs, as tensor_ir/pass.h for Funcs: TW_DUMP=dir writes relay_01_simplify.tw …, TW_SKIP=simplify,…
// leaves out optional passes, TW_VERIFY=1 verifies after each.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "relay_ir/decision.h"
#include "relay_ir/graph.h"
#include "targets/target.h"

namespace tw::relay {

#define PASS(name, is_optional) Graph name(const Graph& graph);
#include "relay_ir/passes.def"

// Multiply-adds of operands of the type, with sums in f32, that the target does in the time of one on f32; below 1
// where it has none that are worth using.
double product_rate(DType storage, const Target& target);
// Products on weights, and where the target has the instruction on values, of a 16-bit float.
Graph lower_precision(const Graph& graph, DType storage, const Target& target);
// Products of bytes with the signs that the target's dot product takes.
Graph match_byte_products(const Graph& graph, const Target& target);
// Convolutions by a faster algorithm in f32 than direct sums of products of the type `precision`, where `decide` says
// so, or without it the target's facts.
Graph choose_winograd(const Graph& graph, DType precision, const Target& target, const DecisionSource& decide = {});
// Depthwise convolutions that fusion gives the convolution before them, which makes their channels, where `decide` says
// so, or without it the target's facts.
Graph stream_expansions(const Graph& graph, const Target& target, const DecisionSource& decide = {});
// Values get the layout in which the target's convolutions are fast; conversions become nodes.
Graph assign_layout(const Graph& graph, const Target& target);

using PassFunction = Graph (*)(const Graph&);
PassFunction find_pass(std::string_view name);  // null: unknown
std::vector<std::string> pass_names();          // in the order in which compile() runs them

Graph run_pass(std::string_view name, const Graph& graph, bool is_optional,
               const std::function<Graph(const Graph&)>& pass);

}  // namespace tw::relay
