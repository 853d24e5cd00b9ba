#include "relay_ir/compile/lower_selection.h"

#include <algorithm>

#include "relay_ir/op.h"
#include "tensor_ir/match.h"

namespace tw::relay {
namespace {

struct Piece {
  ValueId input;
  int64_t from, to, count;  // channels
};

// Of `count` channels from `channel` on, those that are copied together: whole blocks, or what is left of one.
int64_t cut(int64_t block, int64_t from, int64_t to, int64_t count) {
  if (from % block == 0 && to % block == 0 && count >= block) return count / block * block;
  return std::min({count, block - from % block, block - to % block});
}

std::vector<Piece> pieces_of(const Graph& graph, const Node& node) {
  const int64_t block = graph.values[node.outputs[0]].channel_block;
  std::vector<Piece> runs, pieces;
  const AxisUses uses = axes_of(graph, node);
  for (size_t i = 0; i < uses.size(); ++i)
    for (const AxisUse::Run& run : uses[i][1].runs) runs.push_back({node.inputs[i], run.from, run.to, run.count});
  std::sort(runs.begin(), runs.end(), [](const Piece& a, const Piece& b) { return a.to < b.to; });
  for (auto [input, from, to, count] : runs) {
    while (count > 0) {
      const int64_t part = cut(block, from, to, count);
      pieces.push_back({input, from, to, part});
      from += part, to += part, count -= part;
    }
  }
  return pieces;
}

// The tensor's element at `at`, computed from placeholders; `leaf` gives those of one of them.
Expr value_at(const te::Tensor& tensor, const te::Indices& at, const te::Tensor& placeholder, const Expr& leaf) {
  if (tensor.buffer() == placeholder.buffer()) return leaf;
  if (!tensor.stage()) return tensor(at);
  Expr value;
  visit(tensor.stage()->nest, [&](const Block& block) {
    const auto* store = block.body.as<Store>();
    check(store && store->indices.size() == at.size(), "lower_selection: elementwise operators store one element");
    Substitution position;
    for (size_t d = 0; d < at.size(); ++d) position[block.iters[d].var] = at[d];
    value = substitute(store->value, position);
  });
  return rewrite_bottom_up(value, [&](const Load& l) -> Expr {
    for (const te::Tensor& input : tensor.stage()->inputs)
      if (input.buffer() == l.buffer) return value_at(input, l.indices, placeholder, leaf);
    return {};
  });
}

}  // namespace

bool is_blocked_selection(const Graph& graph, const Node& node) {
  if (node.op->kind != OpKind::injective || node.outputs.size() != 1) return false;
  const Value& result = graph.values[node.outputs[0]];
  if (result.channel_block == 0) return false;
  size_t runs = 0;
  for (const auto& axes : axes_of(graph, node)) {
    if (axes[1].kind != AxisUse::Kind::runs) return false;
    runs += axes[1].runs.size();
  }
  return runs > 1 && std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
           return graph.values[id].channel_block == result.channel_block && !graph.is_constant(id) &&
                  static_shape(graph.values[id].type);
         });
}

Func lower_selection(const Graph& graph, const Group& group, std::unordered_map<ValueId, te::Tensor> tensors,
                     const std::vector<te::Tensor>& inputs) {
  const int index = *std::find_if(group.nodes.begin(), group.nodes.end(),
                                  [&](int i) { return is_blocked_selection(graph, graph.nodes[i]); });
  const Node& selection = graph.nodes[index];
  const TensorType& type = graph.values[selection.outputs[0]].type;
  const te::Tensor selected = te::placeholder("selected", type.shape, type.dtype.stored());
  te::Tensor result;
  for (const int i : group.nodes) {
    const Node& node = graph.nodes[i];
    std::vector<te::Tensor> arguments;
    for (const ValueId id : node.inputs) arguments.push_back(id == no_value ? te::Tensor() : tensors.at(id));
    result = i == index ? selected : node.op->compute(make_call(graph, node), arguments).at(0);
    tensors[node.outputs[0]] = result;
  }
  const Buffer output("selection", result.dtype(), type.shape);

  // Outside of the pieces: all positions but the last, along which memory is walked.
  const size_t rank = type.shape.size();
  const auto is_shared = [&](size_t d) { return d != 1 && (d + 1 < rank || rank < 4); };
  std::vector<Var> shared;
  for (size_t d = 0; d < rank; ++d) shared.emplace_back("i" + std::to_string(d));
  std::vector<Stmt> statements;
  for (const Piece& piece : pieces_of(graph, selection)) {
    std::vector<Var> loops = shared;
    std::vector<IterVar> iters;
    te::Indices from;
    for (size_t d = 0; d < rank; ++d) {
      if (!is_shared(d)) loops[d] = Var("i" + std::to_string(d));
      const Var iter("vi" + std::to_string(d));
      iters.push_back({iter, d == 1 ? Expr(piece.count) : type.shape[d], IterKind::spatial, loops[d]});
      from.push_back(iter);
    }
    te::Indices to = from;
    from[1] = from[1] + piece.from, to[1] = to[1] + piece.to;
    const Expr value = value_at(result, to, selected, tensors.at(piece.input)(from));
    Stmt nest =
        make_stmt<Block>("part_" + std::to_string(statements.size()), iters, Expr(), Stmt(), store(output, to, value));
    for (size_t d = rank; d-- > 0;) {
      if (!is_shared(d)) nest = make_stmt<For>(loops[d], iters[d].extent, LoopKind::serial, nest);
    }
    statements.push_back(nest);
  }
  Func func;
  func.name = selection.op->name;
  for (const te::Tensor& input : inputs) func.buffers.push_back(input.buffer());
  func.buffers.push_back(output);
  func.output_count = 1;
  func.parameters = variables_of(graph);
  func.body = seq(std::move(statements));
  for (size_t d = rank; d-- > 0;) {
    if (is_shared(d)) func.body = make_stmt<For>(shared[d], type.shape[d], LoopKind::serial, func.body);
  }
  return func;
}

}  // namespace tw::relay
