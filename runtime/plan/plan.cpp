#include "runtime/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace tw {
namespace {

void fix(std::vector<TensorInfo>& tensors, std::span<const int64_t> symbols) {
  for (TensorInfo& tensor : tensors) {
    bool is_known = true;
    for (size_t d = 0; d < tensor.dims.size(); ++d) {
      tensor.dims[d] = tensor.dims[d].fixed(symbols);
      tensor.shape[d] = tensor.dims[d].is_known() ? int64_t{tensor.dims[d]} : -1;
      is_known = is_known && tensor.dims[d].is_known();
    }
    if (is_known) tensor.dims.clear();
  }
}

// The symbol that the dimension is, and nothing else: how inputs have them.
std::optional<size_t> symbol_of(const Size& size) {
  const Size::Program& program = size.program();
  if (program.size() != 1 || program[0].op != Size::Op::symbol) return std::nullopt;
  return static_cast<size_t>(program[0].value);
}

}  // namespace

std::vector<int64_t> most_of_counters(const Plan& plan) {
  return {plan.counters.begin(), plan.counters.end()};
}

void lay_out(Plan& plan) {
  std::vector<ArenaTensor> arena, placed;
  std::vector<size_t> index;  // in one of them
  for (const ArenaTensor& tensor : plan.tensors) {
    std::vector<ArenaTensor>& list = tensor.bytes.is_known() ? arena : placed;
    index.push_back(list.size());
    list.push_back(tensor);
  }
  for (ArenaTensor& tensor : placed)
    if (tensor.before >= 0) tensor.before = static_cast<int32_t>(index[static_cast<size_t>(tensor.before)]);
  plan.arena_bytes = plan_memory(arena);
  for (Step& step : plan.steps) {
    for (BufferUse& use : step.buffers) {
      if (use.storage != Storage::arena) continue;
      const size_t at = index[use.index];
      if (plan.tensors[use.index].bytes.is_known()) {
        use.offset = use.offset.plus(arena[at].offset);
        use.index = 0;
      } else {
        use.storage = Storage::placed;
        use.index = static_cast<uint32_t>(at);
      }
    }
    if (step.workspace_bytes.is_known())
      plan.workspace_bytes = std::max<int64_t>(plan.workspace_bytes, step.workspace_bytes);
  }
  plan.tensors = std::move(placed);
}

Placements placements_of(const Plan& plan) {
  std::vector<int64_t> place_of(plan.counters.size(), -1);  // by counter
  for (size_t i = 0; i < plan.steps.size(); ++i)
    if (plan.steps[i].kind == StepKind::place) place_of[plan.steps[i].counter] = static_cast<int64_t>(i);
  const auto last_place = [&](const Size& size, int64_t& last) {
    for (const Size::Instruction& instruction : size.program())
      if (instruction.op == Size::Op::counter && place_of[instruction.value] > (last < 0 ? -1 : place_of[last]))
        last = instruction.value;
  };
  Placements result;
  for (const ArenaTensor& tensor : plan.tensors) last_place(tensor.bytes, result.tensors.emplace_back(-1));
  for (const TensorInfo& output : plan.outputs) {
    int64_t& last = result.outputs.emplace_back(-1);
    for (const Size& dim : output.dims) last_place(dim, last);
  }
  for (const Step& step : plan.steps) last_place(step.workspace_bytes, result.workspaces.emplace_back(-1));
  return result;
}

std::vector<int64_t> small_sizes(const Plan& plan) {
  constexpr int64_t most_steps = 1 << 12;
  const int64_t steps = plan.equalities.empty() ? 1 : most_steps;
  std::vector<int64_t> sizes(plan.symbols.size());
  const auto is_met = [&] {
    try {
      return std::ranges::all_of(plan.equalities, [&](const EqualSizes& e) { return e.a.at(sizes) == e.b.at(sizes); });
    } catch (const Error&) {  // no run has them: something is split into no parts, or too large
      return false;
    }
  };
  const auto set = [&](size_t i, int64_t step) {
    const Symbol& symbol = plan.symbols[i];
    sizes[i] = symbol.high - symbol.low < step ? symbol.high : symbol.low + step;
  };
  for (int64_t step = 0; step < steps; ++step) {
    for (size_t i = 0; i < sizes.size(); ++i) set(i, step);
    if (is_met()) return sizes;
  }
  // Steps that differ from one another: the digits of a number.
  constexpr int64_t most_tries = 1 << 18;
  const auto base = std::max<int64_t>(2, static_cast<int64_t>(std::pow(most_tries, 1.0 / std::size(sizes))));
  for (int64_t number = 0; number < most_tries; ++number) {
    int64_t rest = number;
    for (size_t i = 0; i < sizes.size(); ++i, rest /= base) set(i, rest % base);
    if (is_met()) return sizes;
  }
  // Two that are larger, as of an image for which a model was made, where the others are least.
  constexpr int64_t most_of_two = 1 << 9;
  for (size_t i = 0; i < sizes.size() && sizes.size() > 2; ++i) {
    for (size_t j = i + 1; j < sizes.size(); ++j) {
      for (size_t k = 0; k < sizes.size(); ++k) set(k, 0);
      for (int64_t number = 0; number < most_of_two * most_of_two; ++number) {
        set(i, number % most_of_two);
        set(j, number / most_of_two);
        if (is_met()) return sizes;
      }
    }
  }
  std::vector<std::string> names;
  for (const Symbol& symbol : plan.symbols) names.push_back(symbol.name);
  std::string demands;
  for (const EqualSizes& e : plan.equalities) {
    demands += (demands.empty() ? "`" : "; `") + e.a.text(names) + "` = `" + e.b.text(names) + "`" +
               (e.demanded_by.empty() ? "" : ", as " + e.demanded_by + " demands");
  }
  throw Error(ErrorCode::shape, "no sizes were found at which the model can run: " + demands +
                                    "\n  help: bounds say where to look, tw.Dim(name, low, high), or fix a dimension");
}

Plan plan_at(const Plan& plan, std::span<const int64_t> symbols) {
  if (plan.symbols.empty()) return plan;
  Plan result = plan;
  result.symbols.clear();
  result.equalities.clear();
  fix(result.inputs, symbols);
  fix(result.outputs, symbols);
  for (ArenaTensor& tensor : result.tensors) tensor.bytes = tensor.bytes.fixed(symbols);
  for (Size& most : result.counters) most = most.at(symbols);
  for (Step& step : result.steps) {
    for_each_size(step, [&](Size& size) { size = size.fixed(symbols); });
  }
  lay_out(result);
  return result;
}

namespace {

bool is_for(const SpecialPlan& special, std::span<const int64_t> symbols) {
  for (size_t i = 0; i < symbols.size(); ++i)
    if (symbols[i] < special.sizes[i].low || symbols[i] > special.sizes[i].high) return false;
  return true;
}

void require_elements(const Plan& general, std::span<const int64_t> symbols) {
  std::string empty;
  for (size_t i = 0; i < symbols.size(); ++i)
    if (symbols[i] == 0) empty += (empty.empty() ? "'" : ", '") + general.symbols[i].name + "'";
  if (!empty.empty())
    throw Error(ErrorCode::input, "the model cannot run where " + empty +
                                      " is 0 and other sizes are these\n  help: give inputs that have elements");
}

size_t position_of(const Plan& plan, const std::string& symbol) {
  const auto found = std::ranges::find(plan.symbols, symbol, &Symbol::name);
  check(found != plan.symbols.end(), "plan: a special plan's symbols are the model's");
  return static_cast<size_t>(found - plan.symbols.begin());
}

}  // namespace

Plan plan_at(const Plans& plans, std::span<const int64_t> symbols) {
  const auto found = std::ranges::find_if(plans.special, [&](const SpecialPlan& s) { return is_for(s, symbols); });
  if (found == plans.special.end()) {
    require_elements(plans.general, symbols);
    return plan_at(plans.general, symbols);
  }
  std::vector<int64_t> own;
  for (const Symbol& symbol : found->plan.symbols) own.push_back(symbols[position_of(plans.general, symbol.name)]);
  Plan plan = plan_at(found->plan, own);
  plan.constants = plans.general.constants;
  return plan;
}

std::vector<int64_t> symbol_sizes(const Plan& plan, const std::vector<Shape>& inputs) {
  // Every run comes here: texts are made when there is something to say.
  const auto place = [&](size_t input, size_t dimension) {
    return "dimension " + std::to_string(dimension) + " of input '" + plan.inputs[input].name + "'";
  };
  struct Found {
    bool is_known = false;
    int64_t size = 0;
    size_t input = 0, dimension = 0;
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
      Found& known = found[*symbol];
      if (!known.is_known) {
        known = {true, inputs[i][d], i, d};
      } else if (known.size != inputs[i][d]) {
        throw Error(ErrorCode::input, "'" + plan.symbols[*symbol].name + "' is " + std::to_string(known.size) + " as " +
                                          place(known.input, known.dimension) + ", but " +
                                          std::to_string(inputs[i][d]) + " as " + place(i, d) +
                                          "\n  help: both have the same size in one run");
      }
    }
  }
  std::vector<int64_t> sizes;
  for (size_t s = 0; s < found.size(); ++s) {
    const Symbol& symbol = plan.symbols[s];
    const bool is_empty = symbol.may_be_empty && found[s].size == 0;
    if (!is_empty && (found[s].size < symbol.low || found[s].size > symbol.high)) {
      const bool has_end = symbol.high != std::numeric_limits<int64_t>::max();
      throw Error(ErrorCode::input,
                  "'" + symbol.name + "', " + place(found[s].input, found[s].dimension) + ", is " +
                      std::to_string(found[s].size) + ", but the model was compiled for " +
                      std::to_string(symbol.may_be_empty ? 0 : symbol.low) +
                      (has_end ? " to " + std::to_string(symbol.high) : " or more") +
                      (symbol.demanded_by.empty()
                           ? "\n  help: compile it with other bounds, tw.Dim(\"" + symbol.name + "\", low, high)"
                           : ", as " + symbol.demanded_by + " demands\n  help: give another size"));
    }
    sizes.push_back(found[s].size);
  }
  const auto text_of = [&](const Size& size) {
    std::vector<std::string> names;
    for (const Symbol& symbol : plan.symbols) names.push_back(symbol.name);
    return size.text(names);
  };
  const auto require_equal = [&](const Size& a, int64_t size, const auto& text_of_other,
                                 const std::string& demanded_by) {
    if (a.at(sizes) == size) return;
    const std::string what = text_of_other();
    if (a.is_known())
      throw Error(ErrorCode::input, what + " is " + std::to_string(size) + ", but the model can only take " +
                                        std::to_string(int64_t{a}) +
                                        " there\n  help: give another size; tw explain says what demands it");
    throw Error(ErrorCode::input, "`" + text_of(a) + "` is " + std::to_string(a.at(sizes)) + ", but " + what + " is " +
                                      std::to_string(size) +
                                      (demanded_by.empty() ? "" : "; " + demanded_by + " demands that both are equal") +
                                      "\n  help: give inputs of other sizes");
  };
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    for (size_t d = 0; d < plan.inputs[i].dims.size(); ++d)
      require_equal(plan.inputs[i].dims[d], inputs[i][d], [&] { return place(i, d); }, "");
  }
  for (const EqualSizes& equal : plan.equalities)
    require_equal(equal.a, equal.b.at(sizes), [&] { return "`" + text_of(equal.b) + "`"; }, equal.demanded_by);
  return sizes;
}

}  // namespace tw
