#include "runtime/plan/plan_io.h"

#include <algorithm>

#include "runtime/artifact/bytes.h"

namespace tw {
namespace {

constexpr int64_t most_tasks = int64_t{1} << 40;
constexpr int largest_rank = 64;
constexpr size_t most_special_plans = 1024;

constexpr size_t longest_program = 4096;  // of one size

void write_size(ByteWriter& out, const Size& size) {
  out.put(static_cast<uint32_t>(size.program().size()));
  if (size.is_known()) out.put(static_cast<int64_t>(size));
  for (const Size::Instruction& instruction : size.program()) {
    out.put(static_cast<uint8_t>(instruction.op));
    out.put(instruction.value);
  }
}

Size read_size(ByteReader& in) {
  Size::Program program(in.get_count(9));
  if (program.empty()) return in.get<int64_t>();
  if (program.size() > longest_program) in.fail("a size that takes too long to compute");
  for (Size::Instruction& instruction : program) {
    instruction.op = static_cast<Size::Op>(in.get<uint8_t>());
    instruction.value = in.get<int64_t>();
  }
  return Size(std::move(program));
}

void write_sizes(ByteWriter& out, const std::vector<Size>& sizes) {
  out.put(static_cast<uint32_t>(sizes.size()));
  for (const Size& size : sizes) write_size(out, size);
}

std::vector<Size> read_sizes(ByteReader& in) {
  std::vector<Size> sizes(in.get_count(12));
  for (Size& size : sizes) size = read_size(in);
  return sizes;
}

void write_tensor(ByteWriter& out, const TensorInfo& tensor) {
  out.put_text(tensor.name);
  out.put(static_cast<uint8_t>(tensor.dtype.kind));
  out.put(tensor.dtype.bits);
  out.put(tensor.dtype.lanes);
  out.put(static_cast<uint32_t>(tensor.shape.size()));
  for (int64_t extent : tensor.shape) out.put(extent);
  write_sizes(out, tensor.dims);
}

TensorInfo read_tensor(ByteReader& in) {
  TensorInfo tensor;
  tensor.name = in.get_text();
  auto kind = in.get<uint8_t>();
  if (kind > static_cast<uint8_t>(DTypeKind::brain_floating)) in.fail("an unknown element type");
  tensor.dtype.kind = static_cast<DTypeKind>(kind);
  tensor.dtype.bits = in.get<uint8_t>();
  tensor.dtype.lanes = in.get<uint16_t>();
  if (tensor.dtype.lanes != 1 || parse_dtype(to_string(tensor.dtype)) != tensor.dtype)
    in.fail("an unknown element type");
  tensor.shape.resize(in.get_count(sizeof(int64_t)));
  for (int64_t& extent : tensor.shape) extent = in.get<int64_t>();
  tensor.dims = read_sizes(in);
  return tensor;
}

void write_tensors(ByteWriter& out, const std::vector<TensorInfo>& tensors) {
  out.put(static_cast<uint32_t>(tensors.size()));
  for (const TensorInfo& tensor : tensors) write_tensor(out, tensor);
}

std::vector<TensorInfo> read_tensors(ByteReader& in) {
  std::vector<TensorInfo> tensors(in.get_count(12));
  for (TensorInfo& tensor : tensors) tensor = read_tensor(in);
  return tensors;
}

void write_lists(ByteWriter& out, const std::vector<ListInfo>& lists) {
  out.put(static_cast<uint32_t>(lists.size()));
  for (const ListInfo& list : lists) {
    out.put_text(list.name);
    out.put(static_cast<uint8_t>(list.kind));
    out.put(list.first);
    out.put(list.count);
    out.put(list.axis);
  }
}

std::vector<ListInfo> read_lists(ByteReader& in) {
  std::vector<ListInfo> lists(in.get_count(17));
  for (ListInfo& list : lists) {
    list.name = in.get_text();
    const auto kind = in.get<uint8_t>();
    if (kind > static_cast<uint8_t>(ListKind::optional)) in.fail("an unknown kind of list");
    list.kind = static_cast<ListKind>(kind);
    list.first = in.get<uint32_t>();
    list.count = in.get<uint32_t>();
    list.axis = in.get<uint32_t>();
  }
  return lists;
}

void write_step(ByteWriter& out, const Step& step) {
  out.put(static_cast<uint8_t>(step.kind));
  out.put(step.target);
  out.put(step.counter);
  out.put_text(step.kernel);
  out.put_text(step.name);
  out.put(static_cast<uint32_t>(step.buffers.size()));
  for (const BufferUse& use : step.buffers) {
    out.put(static_cast<uint32_t>(use.storage));
    out.put(use.index);
    write_size(out, use.offset);
    write_size(out, use.bytes);
  }
  write_sizes(out, step.parameters);
  write_size(out, step.tasks);
  out.put(static_cast<uint8_t>(step.waits));
  write_size(out, step.workspace_bytes);
  write_size(out, step.flops);
  write_size(out, step.bytes);
  write_size(out, step.cycles);
  for (const Size& extent : step.grid) write_size(out, extent);
  for (uint32_t extent : step.block) out.put(extent);
}

Step read_step(ByteReader& in) {
  Step step;
  const auto kind = in.get<uint8_t>();
  if (kind > static_cast<uint8_t>(StepKind::set)) in.fail("an unknown kind of step");
  step.kind = static_cast<StepKind>(kind);
  step.target = in.get<uint32_t>();
  step.counter = in.get<uint32_t>();
  step.kernel = in.get_text();
  step.name = in.get_text();
  step.buffers.resize(in.get_count(24));
  for (BufferUse& use : step.buffers) {
    auto storage = in.get<uint32_t>();
    if (storage > static_cast<uint32_t>(Storage::placed)) in.fail("an unknown storage");
    use.storage = static_cast<Storage>(storage);
    use.index = in.get<uint32_t>();
    use.offset = read_size(in);
    use.bytes = read_size(in);
  }
  step.parameters = read_sizes(in);
  step.tasks = read_size(in);
  auto waits = in.get<uint8_t>();
  if (waits > 1) in.fail("a flag that is neither 0 nor 1");
  step.waits = waits == 1;
  step.workspace_bytes = read_size(in);
  step.flops = read_size(in);
  step.bytes = read_size(in);
  step.cycles = read_size(in);
  for (Size& extent : step.grid) extent = read_size(in);
  for (uint32_t& extent : step.block) extent = in.get<uint32_t>();
  return step;
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

void write_plan(ByteWriter& out, const Plan& plan) {
  write_tensors(out, plan.inputs);
  write_tensors(out, plan.outputs);
  for (const TensorInfo& output : plan.outputs) out.put(output.in_place);
  write_lists(out, plan.input_lists);
  write_lists(out, plan.output_lists);
  write_tensors(out, plan.constants);
  out.put(plan.caller_alignment);
  out.put(plan.arena_bytes);
  out.put(plan.workspace_bytes);
  out.put(static_cast<uint32_t>(plan.symbols.size()));
  for (const Symbol& symbol : plan.symbols) {
    out.put_text(symbol.name);
    out.put(symbol.low);
    out.put(symbol.high);
    out.put_text(symbol.demanded_by);
    out.put(static_cast<uint8_t>(symbol.may_be_empty));
  }
  out.put(static_cast<uint32_t>(plan.equalities.size()));
  for (const EqualSizes& equal : plan.equalities) {
    write_size(out, equal.a);
    write_size(out, equal.b);
    out.put_text(equal.demanded_by);
  }
  out.put(static_cast<uint32_t>(plan.tensors.size()));
  for (const ArenaTensor& tensor : plan.tensors) {
    write_size(out, tensor.bytes);
    out.put(static_cast<int32_t>(tensor.first));
    out.put(static_cast<int32_t>(tensor.last));
    out.put(tensor.before);
  }
  write_sizes(out, plan.counters);
  out.put(static_cast<uint32_t>(plan.steps.size()));
  for (const Step& step : plan.steps) write_step(out, step);
  out.put(static_cast<uint32_t>(plan.metadata.size()));
  for (const auto& [key, value] : plan.metadata) {
    out.put_text(key);
    out.put_text(value);
  }
}

Plan read_plan(ByteReader& in) {
  Plan plan;
  plan.inputs = read_tensors(in);
  plan.outputs = read_tensors(in);
  for (TensorInfo& output : plan.outputs) output.in_place = in.get<int32_t>();
  plan.input_lists = read_lists(in);
  plan.output_lists = read_lists(in);
  plan.constants = read_tensors(in);
  plan.caller_alignment = in.get<uint32_t>();
  plan.arena_bytes = in.get<int64_t>();
  plan.workspace_bytes = in.get<int64_t>();
  plan.symbols.resize(in.get_count(25));
  for (Symbol& symbol : plan.symbols) {
    symbol.name = in.get_text();
    symbol.low = in.get<int64_t>();
    symbol.high = in.get<int64_t>();
    symbol.demanded_by = in.get_text();
    symbol.may_be_empty = in.get<uint8_t>() != 0;
  }
  plan.equalities.resize(in.get_count(28));
  for (EqualSizes& equal : plan.equalities) {
    equal.a = read_size(in);
    equal.b = read_size(in);
    equal.demanded_by = in.get_text();
  }
  plan.tensors.resize(in.get_count(24));
  for (ArenaTensor& tensor : plan.tensors) {
    tensor.bytes = read_size(in);
    tensor.first = in.get<int32_t>();
    tensor.last = in.get<int32_t>();
    tensor.before = in.get<int32_t>();
  }
  plan.counters = read_sizes(in);
  plan.steps.resize(in.get_count(94));
  for (Step& step : plan.steps) step = read_step(in);
  for (size_t entries = in.get_count(8); entries > 0; --entries) {
    std::string key = in.get_text();
    plan.metadata[key] = in.get_text();
  }
  return plan;
}

}  // namespace

std::vector<std::byte> write_plans(const Plans& plans) {
  ByteWriter out;
  write_plan(out, plans.general);
  out.put(static_cast<uint32_t>(plans.special.size()));
  for (const SpecialPlan& special : plans.special) {
    out.put(static_cast<uint32_t>(special.sizes.size()));
    for (const auto& [low, high] : special.sizes) out.put(low), out.put(high);
    write_plan(out, special.plan);
  }
  return std::move(out.bytes());
}

Plans read_plans(std::span<const std::byte> bytes, const std::string& where) {
  ByteReader in(bytes, where);
  Plans plans = read_plan(in);
  plans.special.resize(in.get_count(64));
  for (SpecialPlan& special : plans.special) {
    special.sizes.resize(in.get_count(16));
    for (auto& [low, high] : special.sizes) low = in.get<int64_t>(), high = in.get<int64_t>();
    special.plan = read_plan(in);
  }
  if (in.remaining() != 0) in.fail(std::to_string(in.remaining()) + " bytes follow the plan");
  return plans;
}

namespace {

// Whether each tensor is before one other at most, and none of these has one before it.
bool take_turns(const Plan& plan) {
  std::vector<bool> is_taken(plan.tensors.size(), false);
  for (const ArenaTensor& tensor : plan.tensors) {
    if (tensor.before == -1) continue;
    const auto before = static_cast<size_t>(tensor.before);
    if (tensor.before < 0 || before >= plan.tensors.size() || is_taken[before] || plan.tensors[before].before != -1)
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
    for (size_t i = begin; i < end && problem_.empty();) i = check_step(i, end, depth);
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
    if (step.kind == StepKind::set) {
      if (step.counter >= most_.size() || step.parameters.size() != 1 || !step.buffers.empty() ||
          step.workspace_bytes != 0)
        return fail(i, "it has no counter"), end;
      if (!is_within(step.parameters[0], most_[step.counter])) fail(i, "it sets a counter to more than it can be");
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
  int never_ = 0;  // loops without steps around
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
      if (problem.empty() && (tensor.dtype.lanes != 1 || !parse_dtype(to_string(tensor.dtype))))
        problem = std::string(kind) + " '" + tensor.name + "' has a type that arrays cannot hold";
      sizes.push_back(bytes);
    }
    return sizes;
  };
  const std::vector<int64_t> sizes[] = {sizes_of(plan.inputs, "input"),
                                        sizes_of(plan.outputs, "output"),
                                        sizes_of(plan.constants, "constant"),
                                        {plan.arena_bytes},
                                        std::vector<int64_t>(plan.tensors.size(), unknown_size)};
  const char* storages[] = {"input", "output", "constant", "arena", "tensor"};
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
    for (size_t b = 0; b < step.buffers.size(); ++b) {
      const BufferUse& use = step.buffers[b];
      const auto kind = static_cast<size_t>(use.storage);
      if (kind > 4 || use.index >= sizes[kind].size())
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
