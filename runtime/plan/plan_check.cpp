// What every plan must obey before the runtime walks it.
#include <algorithm>

#include "runtime/plan/plan_io.h"

namespace tw {
namespace {

constexpr int64_t most_tasks = int64_t{1} << 40;
constexpr int largest_rank = 64;
constexpr size_t most_special_plans = 1024;
constexpr int64_t random_state_bytes = sizeof(RandomState::seed) + sizeof(RandomState::run);

// As cuTensorMapEncodeTiled of the CUDA driver demands; sizes that depend on counters are known in the run alone.
bool is_tensor_map(const TensorMap& map, size_t buffers) {
  constexpr int64_t most_elements = int64_t{1} << 32, most_stride = int64_t{1} << 40, piece = 16;
  const size_t rank = map.extents.size();
  const bool is_size = map.element_bytes == 1 || map.element_bytes == 2 || map.element_bytes == 4;
  const bool is_swizzle = map.swizzle_bytes == 32 || map.swizzle_bytes == 64 || map.swizzle_bytes == 128;
  if (map.buffer >= buffers || !is_size || !is_swizzle || rank < 1 || rank > most_map_dimensions ||
      map.strides.size() + 1 != rank || map.box.size() != rank)
    return false;
  const auto is_within = [](const Size& size, int64_t most) { return !size.is_known() || (size >= 0 && size <= most); };
  const int64_t line = int64_t{map.box[0]} * map.element_bytes;
  return line % piece == 0 && line <= map.swizzle_bytes &&
         std::ranges::all_of(map.extents, [&](const Size& extent) { return is_within(extent, most_elements); }) &&
         std::ranges::all_of(map.strides,
                             [&](const Size& stride) {
                               return is_within(stride, most_stride - 1) && (!stride.is_known() || stride % piece == 0);
                             }) &&
         std::ranges::all_of(map.box, [](uint32_t elements) { return elements >= 1 && elements <= most_box_elements; });
}

bool is_launch(const std::array<Size, 3>& grid, const std::array<uint32_t, 3>& block) {
  const uint64_t threads = uint64_t{block[0]} * block[1] * block[2];
  for (size_t axis = 0; axis < grid.size(); ++axis)
    if (grid[axis].is_known() && (grid[axis] < 0 || grid[axis] > most_blocks[axis])) return false;
  return block[0] <= 1024 && block[1] <= 1024 && block[2] <= 64 && threads >= 1 && threads <= 1024;
}

bool fits_memory(int64_t bytes) {
  return bytes >= 0 && bytes <= static_cast<int64_t>(PTRDIFF_MAX) / 2;
}

// Whether each tensor is before one at most, and none that is before another has one before it.
bool take_turns(const Plan& plan) {
  std::vector<bool> is_taken(plan.tensors.size(), false);
  for (const ArenaTensor& tensor : plan.tensors) {
    if (tensor.before == -1) continue;
    const auto before = static_cast<size_t>(tensor.before);
    if (tensor.before < 0 || before >= plan.tensors.size() || is_taken[before] ||
        (plan.tensors[before].before != -1 && &plan.tensors[before] != &tensor))
      return false;
    is_taken[before] = true;
  }
  return true;
}

// What must hold before the sizes can be computed at all; then the plan of a small run is checked.
std::string find_open_plan_problem(const Plan& plan) {
  bool fits = true;
  auto check_size = [&](const Size& size, size_t counters = 0) {
    fits = fits && size.is_well_formed(plan.symbols.size(), counters);
  };
  for (const Symbol& symbol : plan.symbols) {
    if (symbol.low < 0 || symbol.high < symbol.low) return "the bounds of '" + symbol.name + "' are absurd";
  }
  std::vector<bool> is_found(plan.symbols.size());
  for (const auto* tensors : {&plan.inputs, &plan.outputs, &plan.constants}) {
    for (const TensorInfo& tensor : *tensors) {
      const bool may_be_open = tensors != &plan.constants;
      fits = fits && (tensor.dims.empty() || (may_be_open && tensor.dims.size() == tensor.shape.size()));
      for (const Size& dim : tensor.dims) {
        check_size(dim, tensors == &plan.outputs ? plan.counters.size() : 0);
        if (tensors == &plan.inputs && fits && dim.program().size() == 1 && dim.program()[0].op == Size::Op::symbol)
          is_found[static_cast<size_t>(dim.program()[0].value)] = true;
      }
    }
  }
  if (std::find(is_found.begin(), is_found.end(), false) != is_found.end())
    return "an open dimension is in none of its inputs";
  for (const ArenaTensor& tensor : plan.tensors) check_size(tensor.bytes, plan.counters.size());
  if (!take_turns(plan)) return "its tensors cannot take turns";
  for (const EqualSizes& equal : plan.equalities) check_size(equal.a), check_size(equal.b);
  for (const Size& most : plan.counters) check_size(most);
  for (const Step& step : plan.steps) {
    for_each_size(step, [&](const Size& size) { check_size(size, plan.counters.size()); });
    for (const BufferUse& use : step.buffers)
      fits =
          fits && use.storage != Storage::placed && (use.storage != Storage::arena || use.index < plan.tensors.size());
  }
  if (!fits) return "a size in it cannot be computed";
  try {
    return find_plan_problem(plan_at(plan, small_sizes(plan)));
  } catch (const Error& error) {
    return error.what();
  }
}

// How steps of control lie in each other, and what their counters can be.
class ControlCheck {
 public:
  explicit ControlCheck(const Plan& plan) : plan_(plan), most_(most_of_counters(plan)), steps_(plan.steps.size()) {}

  // "": it is sound.
  std::string run() {
    check(0, plan_.steps.size(), 0);
    return problem_;
  }
  // The most that each counter can be in the step; nothing: no run comes to it.
  const std::vector<int64_t>* most_in(size_t step) const { return steps_[step].empty() ? nullptr : &steps_[step]; }

 private:
  static constexpr int deepest = 64;

  void fail(size_t step, const std::string& what) {
    if (problem_.empty()) problem_ = "step " + std::to_string(step) + " (" + plan_.steps[step].name + "): " + what;
  }

  bool is_call(const Step& step) const {
    if (step.target >= plan_.host_calls.size() || step.workspace_bytes != 0) return false;
    const HostCall& call = plan_.host_calls[step.target];
    size_t extents = 0;
    for (const auto& argument : call.arguments) extents += argument.rank;
    return !call.function.empty() && call.outputs <= call.arguments.size() &&
           step.buffers.size() == call.arguments.size() && step.parameters.size() == extents;
  }

  void note(size_t step) {
    if (never_ == 0) steps_[step] = most_;
    if (never_ == 0 && most_.empty()) steps_[step] = {0};
  }

  bool is_within(const Size& size, int64_t most) const {
    if (never_ > 0) return true;
    try {
      const Size::Range range = size.range(most_);
      return range.low >= 0 && range.high <= most;
    } catch (const Error&) {
      return false;
    }
  }

  void check(size_t begin, size_t end, int depth) {
    if (depth > deepest) return fail(begin, "loops and branches lie too deep in each other");
    int stopped = 0;  // by sizes that have to be equal, and are not: no run at these comes to what is behind
    for (size_t i = begin; i < end && problem_.empty();) {
      const Step& step = plan_.steps[i];
      i = check_step(i, end, depth);
      if (step.kind == StepKind::check && problem_.empty() && differ(step.parameters)) ++stopped, ++never_;
    }
    never_ -= stopped;
  }

  static bool differ(const std::vector<Size>& two) {
    return two[0].is_known() && two[1].is_known() && int64_t{two[0]} != int64_t{two[1]};
  }

  // The step behind this one and all that it controls.
  size_t check_step(size_t i, size_t end, int depth) {
    const Step& step = plan_.steps[i];
    note(i);
    if (step.kind == StepKind::kernel) return i + 1;
    const size_t target = step.target;
    if (step.kind == StepKind::read || step.kind == StepKind::place) {
      const bool reads = step.kind == StepKind::read;
      if (step.counter >= most_.size() || step.workspace_bytes != 0) return fail(i, "it has no counter"), end;
      if (step.buffers.size() != (reads ? 1 : 0) || step.parameters.size() != (reads ? 2 : 0))
        fail(i, "it reads nothing");
      for (const BufferUse& number : step.buffers)
        if (!number.bytes.is_known() || (number.bytes != 4 && number.bytes != 8)) fail(i, "it reads no number");
      for (const Size& bound : step.parameters)
        if (!bound.is_known()) fail(i, "its bounds are not known");
      return i + 1;
    }
    if (step.kind == StepKind::demand) {
      if (step.buffers.size() != 1 || step.buffers[0].bytes != 8 || !step.parameters.empty() ||
          step.workspace_bytes != 0)
        fail(i, "it demands nothing of a number");
      return i + 1;
    }
    if (step.kind == StepKind::call) {
      if (!is_call(step)) fail(i, "it calls nothing of the host with these buffers");
      return i + 1;
    }
    if (step.kind == StepKind::set) {
      const bool is_checked = step.parameters.size() == 3;
      if (step.counter >= most_.size() || (step.parameters.size() != 1 && !is_checked) || !step.buffers.empty() ||
          step.workspace_bytes != 0)
        return fail(i, "it has no counter"), end;
      if (is_checked && (!step.parameters[1].is_known() || !step.parameters[2].is_known()))
        return fail(i, "its bounds are not known"), end;
      const bool fits = is_checked ? step.parameters[1] >= 0 && step.parameters[2] <= most_[step.counter]
                                   : is_within(step.parameters[0], most_[step.counter]);
      if (!fits) fail(i, "it sets a counter to more than it can be");
      return i + 1;
    }
    const bool has_condition = step.buffers.size() == 1 && step.buffers[0].bytes == 1;
    if (step.buffers.size() > 1 || (!step.buffers.empty() && !has_condition)) fail(i, "its condition is not one byte");
    if (step.kind == StepKind::check) {
      if (step.parameters.size() != 2 || !step.buffers.empty()) fail(i, "it does not compare two sizes");
      return i + 1;
    }
    if (step.workspace_bytes != 0 || !step.parameters.empty()) fail(i, "control has a workspace or parameters");
    if (target <= i || target > end || !problem_.empty()) return fail(i, "it goes nowhere"), end;
    const Step& last = plan_.steps[target - 1];
    if (step.kind == StepKind::loop) {
      if (target < i + 2 || last.kind != StepKind::repeat || last.target != i + 1 || last.counter != step.counter ||
          step.counter >= most_.size() || last.buffers.size() > 1 || last.workspace_bytes != 0)
        return fail(i, "the loop has no end"), end;
      for (const BufferUse& condition : last.buffers)
        if (condition.bytes != 1) fail(target - 1, "its condition is not one byte");
      // Within the loop its counter is below what it is behind it.
      int64_t& most = most_[step.counter];
      const bool has_steps = most > 0;
      never_ += has_steps ? 0 : 1;
      --most;
      check(i + 1, target - 1, depth + 1);
      note(target - 1);
      ++most;
      never_ -= has_steps ? 0 : 1;
      return target;
    }
    if (step.kind != StepKind::skip || !has_condition) return fail(i, "it has no place here"), end;
    if (last.kind != StepKind::jump || target - 1 == i) return check(i + 1, target, depth + 1), target;
    if (last.target < target || last.target > end || !last.buffers.empty()) return fail(i, "it goes nowhere"), end;
    check(i + 1, target - 1, depth + 1);
    note(target - 1);
    check(target, last.target, depth + 1);
    return last.target;
  }

  const Plan& plan_;
  std::vector<int64_t> most_;
  int never_ = 0;  // loops without steps around, and sizes that differ before
  std::vector<std::vector<int64_t>> steps_;
  std::string problem_;
};

constexpr int64_t unknown_size = -1;  // of storage: it depends on counters

// Whether all that depends on counters is given memory in a run; what is placed depends on one that is read.
bool are_placed(const Plan& plan) {
  const Placements placements = placements_of(plan);
  for (const int64_t placement : placements.tensors)
    if (placement < 0) return false;
  for (size_t i = 0; i < plan.outputs.size(); ++i)
    if (!plan.outputs[i].dims.empty() && placements.outputs[i] < 0) return false;
  for (size_t i = 0; i < plan.steps.size(); ++i)
    if (!plan.steps[i].workspace_bytes.is_known() && placements.workspaces[i] < 0) return false;
  return true;
}

}  // namespace

std::string find_plan_problem(const Plan& plan) {
  if (!plan.symbols.empty()) return find_open_plan_problem(plan);
  std::string problem;
  auto sizes_of = [&](const std::vector<TensorInfo>& tensors, const char* kind) {
    std::vector<int64_t> sizes;
    for (const TensorInfo& tensor : tensors) {
      if (&tensors == &plan.outputs && !tensor.dims.empty() && tensor.dims.size() == tensor.shape.size() &&
          tensor.shape.size() <= largest_rank) {
        sizes.push_back(unknown_size);
        continue;
      }
      int64_t bytes = tensor.dtype.bytes();
      bool fits = tensor.shape.size() <= largest_rank && tensor.dims.empty(), is_empty = false;
      for (int64_t extent : tensor.shape) {
        is_empty |= extent == 0;
        fits = fits && extent >= 0 && (extent == 0 || !__builtin_mul_overflow(bytes, extent, &bytes));
      }
      bytes = is_empty ? 0 : bytes;
      if (problem.empty() && (!fits || !fits_memory(bytes)))
        problem = std::string(kind) + " '" + tensor.name + "' has a shape that this machine cannot hold";
      if (problem.empty() && (tensor.dtype.lanes != 1 || !parse_element_type(to_string(tensor.dtype))))
        problem = std::string(kind) + " '" + tensor.name + "' has a type that arrays cannot hold";
      sizes.push_back(bytes);
    }
    return sizes;
  };
  const std::vector<int64_t> sizes[] = {sizes_of(plan.inputs, "input"),
                                        sizes_of(plan.outputs, "output"),
                                        sizes_of(plan.constants, "constant"),
                                        {plan.arena_bytes},
                                        std::vector<int64_t>(plan.tensors.size(), unknown_size),
                                        {random_state_bytes}};
  const char* storages[] = {"input", "output", "constant", "arena", "tensor", "random state"};
  if (problem.empty()) problem = find_list_problem(plan.input_lists, plan.inputs);
  if (problem.empty()) problem = find_list_problem(plan.output_lists, plan.outputs);
  if (!problem.empty()) return problem;
  std::vector<bool> is_taken(plan.inputs.size(), false);
  for (const TensorInfo& output : plan.outputs) {
    if (output.in_place == -1) continue;
    const auto at = static_cast<size_t>(output.in_place);
    if (output.in_place < 0 || at >= plan.inputs.size() || is_taken[at] || plan.inputs[at].dtype != output.dtype ||
        plan.inputs[at].shape != output.shape)
      return "output '" + output.name + "' is in place of an input that it cannot share";
    is_taken[at] = true;
  }
  if (plan.caller_alignment == 0 || plan.caller_alignment > 64 ||
      (plan.caller_alignment & (plan.caller_alignment - 1)) != 0)
    return "an alignment of " + std::to_string(plan.caller_alignment) + " bytes is no power of two up to 64";
  if (!fits_memory(plan.arena_bytes)) return "its arena of " + std::to_string(plan.arena_bytes) + " bytes is absurd";
  if (!fits_memory(plan.workspace_bytes))
    return "its workspace of " + std::to_string(plan.workspace_bytes) + " bytes is absurd";

  bool is_known = true;
  const auto may_have_counters = [&](const Size& size) {
    is_known = is_known && size.is_well_formed(0, plan.counters.size());
  };
  for (const Size& most : plan.counters) is_known = is_known && most.is_known() && most >= 0;
  for (const TensorInfo& output : plan.outputs)
    for (const Size& dim : output.dims) may_have_counters(dim);
  for (const ArenaTensor& tensor : plan.tensors) may_have_counters(tensor.bytes);
  for (const Step& step : plan.steps) for_each_size(step, may_have_counters);
  if (!is_known) return "a size in it depends on dimensions or counters that it does not have";
  ControlCheck control(plan);
  if (problem = control.run(); !problem.empty()) return problem;
  if (!take_turns(plan)) return "its tensors cannot take turns";
  if (!are_placed(plan)) return "nothing gives memory to what depends on a counter";
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    const Step& step = plan.steps[i];
    const std::string where = "step " + std::to_string(i) + " (" + step.name + "): ";
    const bool is_kernel = step.kind == StepKind::kernel;
    if (is_kernel && step.kernel.empty()) return where + "it names no kernel";
    if (step.tasks.is_known() && (step.tasks < 0 || (is_kernel && step.tasks > most_tasks)))
      return where + std::to_string(step.tasks) + " tasks are absurd";
    if (step.workspace_bytes.is_known() && (step.workspace_bytes < 0 || step.workspace_bytes > plan.workspace_bytes))
      return where + "its workspace is larger than the plan's";
    if (!is_launch(step.grid, step.block)) return where + "no GPU launches a grid of this shape";
    if (step.shared_bytes > most_shared_bytes) return where + "no GPU has so much shared memory";
    if (!std::ranges::all_of(step.maps, [&](const TensorMap& map) { return is_tensor_map(map, step.buffers.size()); }))
      return where + "no GPU copies boxes of such a tensor";
    for (size_t b = 0; b < step.buffers.size(); ++b) {
      const BufferUse& use = step.buffers[b];
      const auto kind = static_cast<size_t>(use.storage);
      if (kind >= std::size(sizes) || use.index >= sizes[kind].size())
        return where + "buffer " + std::to_string(b) + " lies in a storage that the plan does not have";
      const std::vector<int64_t>* counters = control.most_in(i);
      // Where a number that is read says how much it is, the step that gives it memory knows.
      if (!counters || sizes[kind][use.index] == unknown_size || !use.bytes.is_known()) continue;
      Size::Range offset;
      try {
        offset = use.offset.range(*counters);
      } catch (const Error&) {
        offset = {-1, -1};  // too large to compute
      }
      int64_t end;
      if (offset.low < 0 || use.bytes < 0 || __builtin_add_overflow(offset.high, int64_t{use.bytes}, &end) ||
          end > sizes[kind][use.index])
        return where + "buffer " + std::to_string(b) + " reaches outside its " + storages[kind];
    }
  }
  return "";
}

namespace {

bool is_same_interface(const Plan& a, const Plan& b) {
  const auto is_same = [](const TensorInfo& x, const TensorInfo& y) {
    return x.name == y.name && x.dtype == y.dtype && x.shape.size() == y.shape.size() && x.in_place == y.in_place;
  };
  return std::ranges::equal(a.inputs, b.inputs, is_same) && std::ranges::equal(a.outputs, b.outputs, is_same) &&
         a.caller_alignment == b.caller_alignment;
}

// Every run that it is for is within the bounds of both plans.
bool is_within_bounds(const Plan& general, const SpecialPlan& special) {
  if (special.sizes.size() != general.symbols.size()) return false;
  for (size_t i = 0; i < special.sizes.size(); ++i) {
    const auto [low, high] = special.sizes[i];
    const Symbol& symbol = general.symbols[i];
    if (low > high || low < (symbol.may_be_empty ? 0 : symbol.low) || high > symbol.high) return false;
  }
  return std::ranges::all_of(special.plan.symbols, [&](const Symbol& symbol) {
    const auto found = std::ranges::find(general.symbols, symbol.name, &Symbol::name);
    if (found == general.symbols.end()) return false;
    const auto [low, high] = special.sizes[static_cast<size_t>(found - general.symbols.begin())];
    return symbol.low <= low && high <= symbol.high;
  });
}

}  // namespace

std::string find_plans_problem(const Plans& plans) {
  if (std::string problem = find_plan_problem(plans.general); !problem.empty()) return problem;
  if (plans.special.size() > most_special_plans || (!plans.special.empty() && plans.general.symbols.empty()))
    return "it has " + std::to_string(plans.special.size()) + " special plans";
  for (size_t i = 0; i < plans.special.size(); ++i) {
    const std::string where = "special plan " + std::to_string(i) + ": ";
    const SpecialPlan& special = plans.special[i];
    if (!is_within_bounds(plans.general, special)) return where + "its sizes are not the model's";
    if (!is_same_interface(plans.general, special.plan)) return where + "it takes or gives something else";
    if (!special.plan.constants.empty()) return where + "it has constants of its own";
    Plan whole = special.plan;
    whole.constants = plans.general.constants;
    if (std::string problem = find_plan_problem(whole); !problem.empty()) return where + problem;
  }
  return "";
}

}  // namespace tw
