#include "runtime/plan/plan.h"

#include <algorithm>
#include <optional>

namespace tw {
namespace {

void fix(std::vector<TensorInfo>& tensors, std::span<const int64_t> symbols) {
  for (TensorInfo& tensor : tensors) {
    for (size_t d = 0; d < tensor.dims.size(); ++d) tensor.shape[d] = tensor.dims[d].at(symbols);
    tensor.dims.clear();
  }
}

// The symbol that the dimension is, and nothing else: how inputs have them.
std::optional<size_t> symbol_of(const Size& size) {
  const Size::Program& program = size.program();
  if (program.size() != 1 || program[0].op != Size::Op::symbol) return std::nullopt;
  return static_cast<size_t>(program[0].value);
}

}  // namespace

Plan plan_at(const Plan& plan, std::span<const int64_t> symbols) {
  if (plan.symbols.empty()) return plan;
  Plan result = plan;
  result.symbols.clear();
  result.tensors.clear();
  fix(result.inputs, symbols);
  fix(result.outputs, symbols);
  std::vector<ArenaTensor> arena = plan.tensors;
  for (ArenaTensor& tensor : arena) tensor.bytes = tensor.bytes.at(symbols);
  result.arena_bytes = plan_memory(arena);
  for (Step& step : result.steps) {
    for (Size* size : {&step.tasks, &step.workspace_bytes, &step.flops, &step.bytes}) *size = size->at(symbols);
    for (Size& parameter : step.parameters) parameter = parameter.at(symbols);
    for (BufferUse& use : step.buffers) {
      use.offset = use.offset.at(symbols);
      use.bytes = use.bytes.at(symbols);
      if (use.storage != Storage::arena) continue;
      use.offset = use.offset + arena[use.index].offset;
      use.index = 0;
    }
    result.workspace_bytes = std::max<int64_t>(result.workspace_bytes, step.workspace_bytes);
  }
  return result;
}

std::vector<int64_t> symbol_sizes(const Plan& plan, const std::vector<Shape>& inputs) {
  struct Found {
    int64_t size = 0;
    std::string where;  // empty: not found yet
  };
  std::vector<Found> found(plan.symbols.size());
  if (inputs.size() != plan.inputs.size())
    throw Error(ErrorCode::input, std::to_string(inputs.size()) + " shapes were given, the model has " +
                                      std::to_string(plan.inputs.size()) + " inputs\n  help: give one for each");
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    const TensorInfo& input = plan.inputs[i];
    if (inputs[i].size() != input.shape.size())
      throw Error(ErrorCode::input, "input '" + input.name + "' has " + std::to_string(inputs[i].size()) +
                                        " dimensions, the model has " + std::to_string(input.shape.size()) +
                                        "\n  help: reshape it");
    for (size_t d = 0; d < input.dims.size(); ++d) {
      const auto symbol = symbol_of(input.dims[d]);
      if (!symbol) continue;
      const std::string where = "dimension " + std::to_string(d) + " of input '" + input.name + "'";
      Found& known = found[*symbol];
      if (known.where.empty()) {
        known = {inputs[i][d], where};
      } else if (known.size != inputs[i][d]) {
        throw Error(ErrorCode::input, "'" + plan.symbols[*symbol].name + "' is " + std::to_string(known.size) + " as " +
                                          known.where + ", but " + std::to_string(inputs[i][d]) + " as " + where +
                                          "\n  help: both have the same size in one run");
      }
    }
  }
  std::vector<int64_t> sizes;
  for (size_t s = 0; s < found.size(); ++s) {
    const Symbol& symbol = plan.symbols[s];
    if (found[s].size < symbol.low || found[s].size > symbol.high) {
      const bool has_end = symbol.high != std::numeric_limits<int64_t>::max();
      throw Error(ErrorCode::input,
                  "'" + symbol.name + "', " + found[s].where + ", is " + std::to_string(found[s].size) +
                      ", but the model was compiled for " + std::to_string(symbol.low) +
                      (has_end ? " to " + std::to_string(symbol.high) : " or more") +
                      "\n  help: compile it with other bounds, tw.Dim(\"" + symbol.name + "\", low, high)");
    }
    sizes.push_back(found[s].size);
  }
  return sizes;
}

}  // namespace tw
