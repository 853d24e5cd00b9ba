#include "relay_ir/lower_selection.h"

#include <algorithm>

namespace tw::relay {
namespace {

struct Piece {
  ValueId input;
  int64_t from, to, count;  // channels
};

// The node's runs, cut where the input or the output begins another block.
std::vector<Piece> pieces_of(const Graph& graph, const Node& node) {
  const auto &inputs = node.attributes.get_ints("inputs"), &starts = node.attributes.get_ints("starts"),
             &counts = node.attributes.get_ints("counts");
  const int64_t output_block = graph.values[node.outputs[0]].channel_block;
  std::vector<Piece> pieces;
  int64_t to = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ValueId input = node.inputs[inputs[i]];
    const int64_t input_block = graph.values[input].channel_block;
    const auto left_in = [](int64_t block, int64_t channel, int64_t count) {
      return block > 0 ? std::min(count, block - channel % block) : count;
    };
    for (int64_t done = 0; done < counts[i];) {
      const int64_t from = starts[i] + done;
      const int64_t count = left_in(output_block, to, left_in(input_block, from, counts[i] - done));
      pieces.push_back({input, from, to, count});
      done += count, to += count;
    }
  }
  return pieces;
}

}  // namespace

Func lower_selection(const Graph& graph, const Node& node, const std::unordered_map<ValueId, te::Tensor>& tensors,
                     const std::vector<te::Tensor>& inputs) {
  const Value& result = graph.values[node.outputs[0]];
  const Buffer output("selection", result.type.dtype, result.type.shape);
  const bool is_shared = result.channel_block > 0;  // one nest over positions, the pieces innermost
  const size_t rank = result.type.shape.size();
  std::vector<Var> positions;
  for (size_t d = 0; d < rank; ++d) positions.emplace_back("i" + std::to_string(d));
  const auto around = [&](const std::vector<Var>& loops, Stmt body) {
    for (size_t d = rank; d-- > 0;) {
      if (d != 1) body = make_stmt<For>(loops[d], result.type.shape[d], LoopKind::serial, body);
    }
    return body;
  };
  std::vector<Stmt> statements;
  for (const Piece& piece : pieces_of(graph, node)) {
    std::vector<Var> loops = positions;
    std::vector<IterVar> iters;
    te::Indices from;
    for (size_t d = 0; d < rank; ++d) {
      if (d == 1 || !is_shared) loops[d] = Var("i" + std::to_string(d));
      const Var iter("vi" + std::to_string(d));
      iters.push_back({iter, d == 1 ? Expr(piece.count) : result.type.shape[d], IterKind::spatial, loops[d]});
      from.push_back(iter);
    }
    te::Indices to = from;
    from[1] = from[1] + piece.from, to[1] = to[1] + piece.to;
    Stmt nest = make_stmt<Block>("select_" + std::to_string(statements.size()), iters, Expr(), Stmt(),
                                 store(output, to, tensors.at(piece.input)(from)));
    nest = make_stmt<For>(loops[1], Expr(piece.count), LoopKind::serial, nest);
    statements.push_back(is_shared ? nest : around(loops, nest));
  }
  Func func;
  func.name = "select_channels";
  for (const te::Tensor& input : inputs) func.buffers.push_back(input.buffer());
  func.buffers.push_back(output);
  func.output_count = 1;
  func.parameters = graph.symbols;
  func.body = is_shared ? around(positions, seq(std::move(statements))) : seq(std::move(statements));
  return func;
}

}  // namespace tw::relay
