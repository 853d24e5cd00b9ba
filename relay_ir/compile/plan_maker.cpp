#include "relay_ir/compile/plan_maker.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "relay_ir/compile/over_steps.h"
#include "relay_ir/cost.h"
#include "runtime/memory.h"
#include "schedule/tree.h"
#include "targets/backend.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/dimension.h"
#include "tensor_ir/match.h"
#include "tensor_ir/plan_size.h"
#include "tensor_ir/text/printer.h"

namespace tw::relay {
namespace {

Expr bytes_of(DType dtype, const std::vector<Expr>& shape) {
  Expr bytes = dtype.bytes();
  for (const Expr& extent : shape) bytes = bytes * extent;
  return bytes;
}

// All of a Func's kernels together at most: arithmetic in vectors, and what it moves to and from the second cache.
Expr cycles_of(const Expr& operations, const Expr& bytes, const Target& target) {
  if (is_const_int(operations, 0)) return 0;
  const int64_t a_cycle = int64_t{target.lanes(f32)} * target.fma_ports;
  return floor_div(operations, a_cycle) + floor_div(bytes, static_cast<int64_t>(target.l2.rate)) + 1;
}

}  // namespace

int caller_alignment(const Target& target) {
  return target.backend->uses_arrays_of_caller ? 8 : static_cast<int>(storage_alignment);
}

PlanMaker::PlanMaker(const std::string& model, std::vector<Var> symbols, const std::vector<Equality>& equalities,
                     const Target& target, ConstantPool& constants)
    : target_(target), symbols_(std::move(symbols)), constants_(constants) {
  plan_.metadata["model"] = model;
  plan_.caller_alignment = static_cast<uint32_t>(caller_alignment(target));
  for (const Var& symbol : symbols_) {
    const DimensionBounds bounds = dimension_bounds(symbol);
    plan_.symbols.push_back({symbol.name(), bounds.low < 0 ? 1 : bounds.low, bounds.high, bounds_demanded_by(symbol)});
  }
  for (const Equality& equal : equalities) rely_on(equal);
}

Size PlanMaker::size_of(const Expr& e) const {
  return plan_size(e, symbols_, counters_);
}

Size PlanMaker::extent_of(const Expr& e) const {
  return size_of(branches_ > 0 && !can_prove(e >= 0) ? max(e, 0) : e);
}

TensorInfo PlanMaker::info(const std::string& name, const TensorType& type) const {
  TensorInfo result{name, type.dtype, {}};
  bool is_open = false;
  for (const Expr& dim : type.shape) {
    result.dims.push_back(size_of(dim));
    result.shape.push_back(result.dims.back().is_known() ? int64_t{result.dims.back()} : -1);
    is_open = is_open || !result.dims.back().is_known();
  }
  if (!is_open) result.dims.clear();
  return result;
}

BufferUse PlanMaker::add_input(const std::string& name, const TensorType& type) {
  plan_.inputs.push_back(info(name, type));
  return {Storage::input, static_cast<uint32_t>(plan_.inputs.size() - 1), 0, size_of(bytes_of(type.dtype, type.shape))};
}

BufferUse PlanMaker::add_output(const std::string& name, const TensorType& type, int32_t in_place) {
  plan_.outputs.push_back(info(name, type));
  plan_.outputs.back().in_place = in_place;
  return {Storage::output, static_cast<uint32_t>(plan_.outputs.size() - 1), 0,
          size_of(bytes_of(type.dtype, type.shape))};
}

Expr PlanMaker::most_in_loops(Expr e) const {
  for (size_t i = around_.size(); i-- > 0;) {
    const auto& [number, last, grown] = around_[i];
    e = grown ? simplify(substitute(e, {{number, *grown - 1}})) : most_over(e, number, last);
  }
  return e;
}

std::pair<BufferUse, BufferUse> PlanMaker::add_growing(const Expr& before, const Expr& after) {
  const BufferUse taking = add_temporary(before), made = add_temporary(after);
  plan_.tensors[made.index].before = static_cast<int32_t>(taking.index);
  return {taking, made};
}

BufferUse PlanMaker::add_growing(const Expr& bytes) {
  const BufferUse made = add_temporary(bytes);
  plan_.tensors[made.index].before = static_cast<int32_t>(made.index);
  return made;
}

BufferUse PlanMaker::add_temporary(const Expr& bytes) {
  const int next = static_cast<int>(plan_.steps.size());
  plan_.tensors.push_back({extent_of(most_in_loops(bytes)), next, next, -1});
  return {Storage::arena, static_cast<uint32_t>(plan_.tensors.size() - 1), 0, plan_.tensors.back().bytes};
}

// In the run with the smallest sizes.
double PlanMaker::smallest(const Expr& e) const {
  Substitution sizes;
  for (const Var& size : free_vars(e)) sizes[size] = Expr(std::max<int64_t>(dimension_bounds(size).low, 1));
  return static_cast<double>(as_int(simplify(substitute(e, sizes))).value_or(0));
}

// A temporary lives to that step.
BufferUse PlanMaker::until(int step, BufferUse use) {
  if (use.storage == Storage::arena) plan_.tensors[use.index].last = std::max(plan_.tensors[use.index].last, step);
  return use;
}

void PlanMaker::add_steps(const std::string& name, const ScheduledFunc& func, const std::vector<Expr>& parameters,
                          const Expr& bytes, const std::function<BufferUse(size_t)>& use) {
  check(parameters.size() == func.func.parameters.size(), "compile: every parameter of a Func is something");
  Substitution own;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (!parameters[i].is_same(func.func.parameters[i])) own[func.func.parameters[i]] = parameters[i];
  const auto here = [&](const Expr& e) { return own.empty() ? e : substitute(e, own); };
  const auto kernels = static_cast<int64_t>(func.lowered.kernels.size());
  const int last = static_cast<int>(plan_.steps.size() + func.lowered.kernels.size()) - 1;
  std::unordered_map<Buffer, BufferUse> temporaries;
  for (const Buffer& buffer : func.lowered.temporaries)
    temporaries[buffer] = until(last, add_temporary(here(bytes_of(buffer->dtype, buffer->shape))));
  double operations = 0;  // of all kernels as they are scheduled: their shares of the work
  for (const Kernel& kernel : func.lowered.kernels) operations += smallest(here(flops_of(kernel.func)));
  for (const Kernel& kernel : func.lowered.kernels) {
    Step step;
    step.kernel = kernel.symbol;
    step.name = name;
    step.tasks = extent_of(here(kernel.tasks));
    for (const Var& parameter : kernel.func.parameters) step.parameters.push_back(size_of(here(parameter)));
    if (target_.backend->launch_of) {
      const Launch launch = target_.backend->launch_of(kernel);
      step.shared_bytes = static_cast<uint32_t>(launch.shared_bytes);
      for (size_t axis = 0; axis < 3; ++axis) {
        const auto threads = as_int(launch.block[axis]);
        check(threads.has_value(), "compile: as many threads whatever the sizes");
        step.grid[axis] = extent_of(here(launch.grid[axis]));
        step.block[axis] = static_cast<uint32_t>(*threads);
      }
      step.maps = tensor_maps_of(launch, kernel.func, [&](const Expr& e) { return extent_of(here(e)); });
    }
    // Of a worker's, or of all blocks' of a grid.
    const Expr workers = target_.backend->launch_of ? kernel.tasks : Expr(1);
    step.workspace_bytes = extent_of(most_in_loops(here(kernel.workspace_bytes * workers)));
    if (operations > 0) {
      constexpr int64_t whole = 1 << 10;
      const double share = smallest(here(flops_of(kernel.func))) / operations * whole;
      step.flops = extent_of(floor_div(here(func.flops) * static_cast<int64_t>(share + 0.5), whole));
    }
    step.bytes = extent_of(floor_div(bytes, kernels));
    step.cycles = extent_of(cycles_of(here(func.operations), bytes, target_));
    const size_t count = kernel.func.buffers.size() - (kernel.has_workspace() ? 1 : 0);
    for (size_t i = 0; i < count; ++i) {
      const Buffer& buffer = kernel.func.buffers[i];
      if (const auto temporary = temporaries.find(buffer); temporary != temporaries.end()) {
        step.buffers.push_back(temporary->second);
        continue;
      }
      // Lowering flattens buffers and keeps their names.
      const auto& buffers = func.func.buffers;
      const auto position =
          std::find_if(buffers.begin(), buffers.end(), [&](const Buffer& b) { return b->name == buffer->name; });
      check(position != buffers.end(), "compile: a kernel uses the buffers of its Func");
      step.buffers.push_back(until(static_cast<int>(plan_.steps.size()), use(position - buffers.begin())));
    }
    plan_.steps.push_back(std::move(step));
  }
}

void PlanMaker::add_call(const std::string& name, HostCall call, const std::vector<BufferUse>& buffers,
                         const std::vector<Expr>& extents) {
  if (target_.backend->launch_of)
    throw Error(ErrorCode::unsupported, "node `" + name + "` is computed by a function of the host, `" + call.function +
                                            "`, which target " + target_.name +
                                            " does not call\n  help: compile for a CPU");
  Step step;
  step.kind = StepKind::call;
  step.name = "node `" + name + "`";
  step.target = static_cast<uint32_t>(plan_.host_calls.size());
  for (const BufferUse& use : buffers) step.buffers.push_back(until(static_cast<int>(plan_.steps.size()), use));
  for (const Expr& extent : extents) step.parameters.push_back(size_of(extent));
  plan_.host_calls.push_back(std::move(call));
  plan_.steps.push_back(std::move(step));
}

void PlanMaker::add_demand(const std::string& name, const std::string& text, const BufferUse& number) {
  Step step;
  step.kind = StepKind::demand;
  step.kernel = text;
  step.name = "node `" + name + "`";
  step.buffers = {until(static_cast<int>(plan_.steps.size()), number)};
  plan_.steps.push_back(std::move(step));
}

PlanMaker::Control PlanMaker::begin_branch(const std::string& name, const BufferUse& condition) {
  const auto at = static_cast<uint32_t>(plan_.steps.size());
  Step step;
  step.kind = StepKind::skip;
  step.name = name;
  step.buffers = {until(static_cast<int>(at), condition)};
  plan_.steps.push_back(std::move(step));
  ++branches_;
  return {at, 0, announced_, unknown_, waiting_};
}

PlanMaker::Control PlanMaker::turn(Control branch) {
  const auto at = static_cast<uint32_t>(plan_.steps.size());
  Step step;
  step.kind = StepKind::jump;
  step.name = plan_.steps[branch.step].name;
  plan_.steps.push_back(std::move(step));
  plan_.steps[branch.step].target = at + 1;
  announced_ = std::move(branch.announced);
  unknown_ = std::move(branch.unknown);
  waiting_ = std::move(branch.waiting);
  return {at, 0};
}

void PlanMaker::end_branch(Control branch) {
  plan_.steps[branch.step].target = static_cast<uint32_t>(plan_.steps.size());
  --branches_;
}

void PlanMaker::add_check(const Equality& equal) {
  Step step;
  step.kind = StepKind::check;
  step.kernel = "`" + to_string(equal) + "`";
  step.name = equal.demanded_by;
  step.parameters = {size_of(equal.a), size_of(equal.b)};
  plan_.steps.push_back(std::move(step));
}

bool PlanMaker::is_known(const Expr& e) const {
  const auto vars = free_vars(e);
  return std::all_of(vars.begin(), vars.end(), [&](const Var& var) {
    return (counters_.count(var) > 0 && announced_.count(var) == 0) ||
           std::find(symbols_.begin(), symbols_.end(), var) != symbols_.end();
  });
}

void PlanMaker::rely_on(const Equality& equal) {
  if (!is_known(equal.a) || !is_known(equal.b)) {
    unknown_.push_back(equal);
  } else if (plan_.steps.empty()) {
    plan_.equalities.push_back({size_of(equal.a), size_of(equal.b), equal.demanded_by});
  } else {
    add_check(equal);
  }
}

void PlanMaker::add_known_checks() {
  for (const Equality& equal : std::exchange(unknown_, {})) rely_on(equal);
}

void PlanMaker::announce(const Var& number) {
  if (counters_.emplace(number, static_cast<int64_t>(plan_.counters.size())).second)
    plan_.counters.push_back(std::max<int64_t>(dimension_bounds(number).high, 0));
  announced_.insert(number);
}

void PlanMaker::add_read(const std::string& name, const BufferUse& x, const Expr& number) {
  Step step;
  step.kind = StepKind::read;
  step.kernel = "`" + to_text(number) + "`";
  step.name = "node `" + name + "`";
  step.buffers = {until(static_cast<int>(plan_.steps.size()), x)};
  const bool is_new = number.kind() == NodeKind::Var && !is_known(number);
  const Var read = is_new ? Var::of(number) : dimension("number", {0});
  const DimensionBounds bounds = is_new ? dimension_bounds(read) : DimensionBounds();
  step.parameters = {bounds.low, bounds.high};
  if (announced_.count(read) == 0) announce(read);
  announced_.erase(read);
  step.counter = static_cast<uint32_t>(counters_.at(read));
  Step place;
  place.kind = StepKind::place;
  place.counter = step.counter;
  place.name = step.name;
  plan_.steps.push_back(std::move(step));
  if (!is_new) add_check({read, number, place.name});
  add_known_checks();
  plan_.steps.push_back(std::move(place));
  set_known();
}

void PlanMaker::add_set(const std::string& name, const Var& number, const Expr& value,
                        std::optional<uint32_t> counter) {
  if (counters_.count(number) == 0) announce(number);
  announced_.erase(number);
  Step set;
  set.kind = StepKind::set;
  set.name = "node `" + name + "`";
  set.parameters = {size_of(value)};
  set.counter = static_cast<uint32_t>(counters_.at(number));
  if (counter) plan_.counters[set.counter] = plan_.counters[*counter];
  Step place = set;
  place.kind = StepKind::place;
  place.parameters.clear();
  plan_.steps.push_back(std::move(set));
  add_known_checks();
  plan_.steps.push_back(std::move(place));
  set_known();
}

void PlanMaker::add_sets(const std::string& name, const std::vector<std::pair<Var, Expr>>& numbers) {
  std::vector<Step> places;
  for (const auto& [number, value] : numbers) {
    const DimensionBounds bounds = dimension_bounds(number);
    announce(number);
    announced_.erase(number);
    Step set;
    set.kind = StepKind::set;
    set.kernel = "`" + number.name() + "`";
    set.name = "node `" + name + "`";
    set.parameters = {size_of(value), std::max<int64_t>(bounds.low, 0), bounds.high};
    set.counter = static_cast<uint32_t>(counters_.at(number));
    Step place = set;
    place.kind = StepKind::place;
    place.parameters.clear();
    plan_.steps.push_back(std::move(set));
    places.push_back(std::move(place));
  }
  add_known_checks();
  for (Step& place : places) plan_.steps.push_back(std::move(place));
  set_known();
}

void PlanMaker::set_when_known(const std::string& name, const Var& number, const Expr& value) {
  waiting_.push_back({name, number, value});
  set_known();
}

void PlanMaker::set_known() {
  for (Waiting& one : std::exchange(waiting_, {})) {
    if (is_known(one.value)) {
      add_sets(one.name, {{one.number, one.value}});
    } else {
      waiting_.push_back(std::move(one));
    }
  }
}

PlanMaker::Control PlanMaker::begin_loop(const std::string& name, const Var& number, const Var& done, const Expr& steps,
                                         const std::optional<BufferUse>& condition, const std::optional<Var>& grown) {
  const auto at = static_cast<uint32_t>(plan_.steps.size());
  Step step;
  step.kind = StepKind::loop;
  step.counter = static_cast<uint32_t>(plan_.counters.size());
  step.name = name;
  step.tasks = size_of(steps);
  if (condition) step.buffers = {until(static_cast<int>(at), *condition)};
  const uint32_t counter = step.counter;
  counters_[number] = counter, counters_[done] = counter;
  // Of steps that another loop's number says, the most.
  const bool is_of_dimensions = as_size(steps, symbols_).has_value();
  plan_.counters.push_back(is_of_dimensions ? step.tasks
                                            : Size(bounds_of(steps).high.value_or(DimensionBounds{}.high)));
  plan_.steps.push_back(std::move(step));
  around_.push_back({number, simplify(max(steps - 1, Expr(0))), grown});
  if (grown) add_set(name, *grown, Expr(number) + 1);
  return {at, counter};
}

void PlanMaker::end_loop(Control loop, const std::optional<BufferUse>& condition) {
  const auto at = static_cast<uint32_t>(plan_.steps.size());
  Step step;
  step.kind = StepKind::repeat;
  step.target = loop.step + 1;
  step.counter = loop.counter;
  step.name = plan_.steps[loop.step].name;
  step.tasks = plan_.steps[loop.step].tasks;
  if (condition) step.buffers = {until(static_cast<int>(at), *condition)};
  plan_.steps.push_back(std::move(step));
  plan_.steps[loop.step].target = at + 1;
  around_.pop_back();
  loops_.emplace_back(loop.step, at);
}

// What a loop's steps find or leave outside of it is there in all of them.
void PlanMaker::keep_through_loops() {
  for (const auto& [first, last] : loops_) {
    for (ArenaTensor& tensor : plan_.tensors) {
      if (tensor.first < first && tensor.last >= first) tensor.last = std::max(tensor.last, last);
      if (tensor.first <= last && tensor.last > last) tensor.first = std::min(tensor.first, first);
    }
  }
}

// Of an open plan the temporaries are laid out when a run says their sizes.
Plan PlanMaker::finish() && {
  for (const Equality& equal : unknown_)
    internal_error("compile: " + equal.demanded_by + " relies on " + to_string(equal) + ", which no run reads");
  check(waiting_.empty(), "compile: steps of a loop know how large is what they give");
  keep_through_loops();
  if (plan_.symbols.empty()) lay_out(plan_);
  return std::move(plan_);
}

}  // namespace tw::relay
