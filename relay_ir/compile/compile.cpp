#include "relay_ir/compile/compile.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <unordered_map>

#include "relay_ir/compile/layout.h"
#include "relay_ir/compile/merge_axes.h"
#include "relay_ir/cost.h"
#include "relay_ir/in_place.h"
#include "relay_ir/op.h"
#include "relay_ir/pass.h"
#include "relay_ir/view.h"
#include "runtime/plan/memory_plan.h"
#include "schedule/tree.h"
#include "targets/backend.h"
#include "targets/lower.h"
#include "targets/plan_size.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/dimension.h"
#include "tensor_ir/match.h"
#include "tensor_ir/parallel.h"
#include "tensor_ir/structural.h"
#include "tensor_ir/text/printer.h"

namespace tw::relay {
namespace {

// What this target cannot leave open.
void require_supported_dimensions(const Graph& graph, const Target& target) {
  if (graph.symbols.empty() || target.backend->takes_open_dimensions) return;
  std::string open;
  for (const ValueId id : graph.inputs) {
    const Value& value = graph.values[id];
    if (!static_shape(value.type)) open += "\n  input `" + value.name + "`: " + to_string(value.type);
  }
  throw Error(ErrorCode::shape, "open dimensions must be fixed before compiling for CUDA:" + open +
                                    "\n  help: tw.load(path, shapes={\"" + graph.values[graph.inputs[0]].name +
                                    "\": (1, …)}), or tw compile --shape " + graph.values[graph.inputs[0]].name +
                                    "=1,…");
}

// No array of a run may be larger than this.
constexpr int64_t max_tensor_bytes = int64_t{1} << 40;

void require_sizes_within_limits(const Graph& graph) {
  for (const Value& value : graph.values) {
    const auto shape = static_shape(value.type);
    if (!shape || std::find(shape->begin(), shape->end(), 0) != shape->end()) continue;
    int64_t bytes = value.type.dtype.bytes();
    for (const int64_t extent : *shape) {
      if (__builtin_mul_overflow(bytes, extent, &bytes) || bytes > max_tensor_bytes) {
        throw Error(ErrorCode::limit, "`" + value.name + "` " + to_string(value.type) +
                                          " is larger than the limit of 1 TiB\n  help: are its dimensions right?");
      }
    }
  }
}

// One piece of work that many groups may share.
struct UniqueFunc {
  Func func;  // not scheduled
  Func scheduled;
  std::vector<std::vector<IndexMap>> layouts;  // by buffer: what the schedule did to constants
  LoweredFunc lowered;
  Expr flops;
};

class Compiler {
 public:
  Compiler(const Target& target, const CompileOptions& options, CompileReport& report)
      : target_(target), options_(options), report_(report) {}

  Executable run(const Graph& graph) {
    if (!options_.in_place.empty() && !target_.backend->uses_arrays_of_caller) {
      throw Error(ErrorCode::unsupported,
                  "in_place is for CPUs: a GPU works on copies of the caller's arrays\n  help: leave it out");
    }
    graph_ = optimise(graph, target_, options_, &report_.decisions);
    require_supported_dimensions(graph_, target_);
    require_sizes_within_limits(graph_);
    groups_ = fuse(graph_, target_);
    resolve_views();
    copy_shared_outputs();
    drop_empty_groups();
    order_groups(graph_, groups_);
    end_phase("graph passes and fusion");
    find_unique_funcs();
    end_phase("tensor expressions");
    for_each_in_parallel(uniques_.size(), options_.jobs, [&](size_t i) { lower_one(i); });
    const std::vector<Kernel> kernels = different_kernels();
    find_serial_loops();
    describe_pieces();
    end_phase("schedules and lowering");
    CodegenOptions codegen;
    codegen.jobs = options_.jobs;
    codegen.cache = options_.cache;
    CodegenReport code;
    std::vector<std::byte> image = compile_image(kernels, target_, codegen, &code);
    end_phase("machine code");
    make_plan();
    constants_ = pack_constants(packings_, options_.jobs);
    end_phase("memory plan and packing of constants");
    report_.groups = static_cast<int>(groups_.size());
    report_.funcs = static_cast<int>(uniques_.size());
    report_.kernels = static_cast<int>(kernels.size());
    report_.cached_kernels = code.cached_kernels;
    Executable executable(std::move(image), std::move(plan_), std::move(constants_),
                          {target_.architecture, target_.name, target_.features});
    if (options_.threads > 0) executable.set_threads(options_.threads);
    end_phase("loading");
    return executable;
  }

 private:
  void end_phase(const char* name) {
    const auto now = Clock::now();
    report_.phases.push_back({name, std::chrono::duration<double>(now - phase_start_).count()});
    phase_start_ = now;
  }

  // A view is another name of what its input is; so is, in memory, what is updated in place.
  void resolve_views() {
    root_.resize(graph_.values.size());
    offset_.assign(graph_.values.size(), 0);
    for (size_t id = 0; id < root_.size(); ++id) root_[id] = static_cast<ValueId>(id);
    for (const Node& node : graph_.nodes) {
      const auto offset = is_in_place(node) ? std::optional<int64_t>(0) : view_offset(graph_, node);
      if (!offset) continue;
      check(graph_.values[node.inputs[0]].channel_block == 0, "compile: views are of values in row-major layout");
      root_[node.outputs[0]] = root_[node.inputs[0]];
      offset_[node.outputs[0]] = offset_[node.inputs[0]] + *offset;
    }
  }

  // Outputs that are inputs, constants, or the same as another output get a group that copies.
  void copy_shared_outputs() {
    std::set<ValueId> taken(graph_.inputs.begin(), graph_.inputs.end());
    std::vector<std::string> names;
    for (size_t i = 0; i < graph_.outputs.size(); ++i) names.push_back(graph_.output_name(i));
    graph_.output_names = std::move(names);
    std::set<std::string> updated;  // inputs; of an output that is listed twice the first is in place
    std::map<std::string, size_t> inputs;
    for (size_t i = 0; i < graph_.inputs.size(); ++i) inputs[graph_.values[graph_.inputs[i]].name] = i;
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      ValueId& output = graph_.outputs[i];
      const ValueId root = root_[output];
      const auto shared = options_.in_place.find(graph_.output_names[i]);
      if (shared != options_.in_place.end() && updated.insert(shared->second).second) {
        in_place_[i] = static_cast<int32_t>(inputs.at(shared->second));
        continue;
      }
      const bool is_whole = is_known_equal(storage_bytes(graph_.values[root]), storage_bytes(graph_.values[output]));
      if (!graph_.is_constant(root) && is_whole && taken.insert(root).second) continue;
      const ValueId copy = graph_.add_value(graph_.output_names[i], graph_.values[output].type);
      groups_.push_back({{}, {output}, {copy}, "copy of " + graph_.values[output].name});
      root_.push_back(copy);
      offset_.push_back(0);
      output = copy;
    }
  }

  void drop_empty_groups() {
    std::erase_if(groups_, [&](const Group& group) {
      return std::all_of(group.outputs.begin(), group.outputs.end(),
                         [&](ValueId id) { return is_const_int(storage_bytes(graph_.values[id]), 0); });
    });
  }

  // Arrays of the caller begin where they do: numpy's at multiples of 16.  A copy would cost more than vectors that lie
  // across cache lines.  Kernels assume it of every value, so that equal layers are equal work wherever they stand.
  static constexpr int caller_alignment = 8;

  Func with_caller_alignment(Func func, const Group& group) const {
    if (!target_.backend->uses_arrays_of_caller) return func;
    const std::vector<ValueId> values = buffer_values(group);
    for (size_t i = 0; i < values.size(); ++i) {
      if (graph_.is_constant(values[i])) continue;
      BufferNode node = *func.buffers[i].get();
      node.alignment = caller_alignment;
      const Buffer relaxed{std::move(node)};
      func.body = replace_buffer(func.body, func.buffers[i], relaxed);
      func.buffers[i] = relaxed;
    }
    return func;
  }

  // By buffer of the group's Func.
  std::vector<ValueId> buffer_values(const Group& group) const {
    std::vector<ValueId> values;
    for (const ValueId id : group.inputs) {
      if (!is_immediate(graph_, id)) values.push_back(id);
    }
    values.insert(values.end(), group.outputs.begin(), group.outputs.end());
    return values;
  }

  void find_unique_funcs() {
    std::unordered_map<uint64_t, std::vector<int>> by_hash;
    for (const Group& group : groups_) {
      Func func = with_caller_alignment(lower_group(graph_, group), group);
      if (target_.backend->merges_axes) func = merge_axes(func);
      std::vector<int>& candidates = by_hash[structural_hash(func)];
      const auto found = std::find_if(candidates.begin(), candidates.end(), [&](int i) {
        return uniques_[i].func.attributes == func.attributes && structural_equal(uniques_[i].func, func);
      });
      if (found != candidates.end()) {
        unique_of_.push_back(*found);
        continue;
      }
      candidates.push_back(static_cast<int>(uniques_.size()));
      unique_of_.push_back(static_cast<int>(uniques_.size()));
      uniques_.push_back({std::move(func), {}, {}, {}, 0});
    }
  }

  void lower_one(size_t index) {
    UniqueFunc& unique = uniques_[index];
    const ScheduleSource& source = options_.schedule ? options_.schedule : target_.default_schedule;
    const Schedule schedule = source ? source(unique.func, target_) : Schedule(unique.func);
    unique.scheduled = schedule.func();
    for (size_t i = 0; i < unique.func.buffers.size(); ++i) {
      const std::string& name = unique.func.buffers[i]->name;
      unique.layouts.push_back(schedule.layout_changes(name));
      check(unique.layouts[i].empty() || unique.func.buffers[i]->is_constant,
            "compile: a schedule changes the layout of constants only");
    }
    unique.lowered = lower(unique.scheduled, target_, "k" + std::to_string(index) + "_" + unique.func.name);
    name_by_content(unique.lowered, unique.func.name);
    unique.flops = flops_of(unique.func);
  }

  // Each once: some are equal only after lowering.
  std::vector<Kernel> different_kernels() const {
    std::vector<Kernel> kernels;
    std::unordered_map<std::string, size_t> by_symbol;
    for (const UniqueFunc& unique : uniques_) {
      for (const Kernel& kernel : unique.lowered.kernels) {
        const auto [found, is_new] = by_symbol.emplace(kernel.symbol, kernels.size());
        if (is_new) kernels.push_back(kernel);
        check(structural_equal(kernels[found->second].func, kernel.func), "compile: a symbol stands for one kernel");
      }
    }
    return kernels;
  }

  void find_serial_loops() {
    for (size_t i = 0; i < groups_.size(); ++i) {
      visit(uniques_[unique_of_[i]].scheduled.body, [&](const For& loop) {
        if (loop.attributes.count("independence_unproven"))
          report_.serial_loops.push_back(groups_[i].name + ": loop `" + loop.var.name() + "`");
      });
    }
  }

  void describe_pieces() {
    for (const UniqueFunc& unique : uniques_) {
      report_.pieces.push_back({unique.func, {}, 0, ""});
      for (const Kernel& kernel : unique.lowered.kernels) report_.pieces.back().kernels.push_back(kernel.symbol);
    }
    std::unordered_map<std::string, const Group*> group_of;  // by node
    for (size_t i = 0; i < groups_.size(); ++i) {
      CompileReport::Piece& piece = report_.pieces[unique_of_[i]];
      if (piece.groups++ == 0) piece.name = groups_[i].name;
      for (const int node : groups_[i].nodes) group_of[graph_.nodes[node].name] = &groups_[i];
    }
    for (GraphDecision& decision : report_.decisions)
      if (const auto group = group_of.find(decision.node); group != group_of.end())
        decision.group = group->second->name;
  }

  // ---------------------------------------------------------------------------------------------------------------
  // The plan

  // A constant in the layout that a kernel reads, stored once however many kernels read it so.
  uint32_t add_constant(ValueId id, const std::vector<IndexMap>& layouts) {
    const NDArray& original = *graph_.values[id].constant;
    std::string key = to_string(type_of(original));
    for (const IndexMap& map : layouts) key += " " + to_text(map);
    const auto [found, is_new] = constant_index_.emplace(std::pair(original.data(), key), 0);
    if (!is_new) return found->second;
    found->second = static_cast<uint32_t>(packings_.size());
    packings_.push_back({original, layouts});
    plan_.constants.push_back({graph_.values[id].name, original.dtype(), packings_.back().packed_shape()});
    return found->second;
  }

  void make_plan() {
    plan_.metadata["model"] = graph_.name;
    if (target_.backend->uses_arrays_of_caller) plan_.caller_alignment = caller_alignment;
    for (const Var& symbol : graph_.symbols) {
      const DimensionBounds bounds = dimension_bounds(symbol);
      plan_.symbols.push_back({symbol.name(), std::max<int64_t>(bounds.low, 1), bounds.high});
    }
    for (const ValueId id : graph_.inputs) plan_.inputs.push_back(info(id, graph_.values[id].name));
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      plan_.outputs.push_back(info(graph_.outputs[i], graph_.output_name(i)));
      if (const auto found = in_place_.find(i); found != in_place_.end()) plan_.outputs[i].in_place = found->second;
      output_index_[root_[graph_.outputs[i]]] = static_cast<uint32_t>(i);
    }
    for (size_t i = 0; i < graph_.inputs.size(); ++i) input_index_[graph_.inputs[i]] = static_cast<uint32_t>(i);
    for (size_t i = 0; i < groups_.size(); ++i) add_steps(groups_[i], uniques_[unique_of_[i]]);
    if (!plan_.symbols.empty()) {
      plan_.tensors = arena_;  // laid out when a run says their sizes
      return;
    }
    plan_.arena_bytes = plan_memory(arena_);
    for (Step& step : plan_.steps) {
      for (BufferUse& use : step.buffers) {
        if (use.storage != Storage::arena) continue;
        use.offset = use.offset + arena_[use.index].offset;
        use.index = 0;
      }
      plan_.workspace_bytes = std::max<int64_t>(plan_.workspace_bytes, step.workspace_bytes);
    }
  }

  Size size_of(const Expr& e) const { return plan_size(e, graph_.symbols); }

  TensorInfo info(ValueId id, const std::string& name) const {
    TensorInfo result{name, graph_.values[id].type.dtype, {}};
    bool is_open = false;
    for (const Expr& dim : graph_.values[id].type.shape) {
      result.dims.push_back(size_of(dim));
      result.shape.push_back(result.dims.back().is_known() ? int64_t{result.dims.back()} : -1);
      is_open = is_open || !result.dims.back().is_known();
    }
    if (!is_open) result.dims.clear();
    return result;
  }

  // In the run with the smallest sizes.
  double smallest(const Expr& e) const {
    Substitution sizes;
    for (const Var& symbol : graph_.symbols) sizes[symbol] = Expr(std::max<int64_t>(dimension_bounds(symbol).low, 1));
    return static_cast<double>(as_int(simplify(substitute(e, sizes))).value_or(0));
  }

  void add_steps(const Group& group, const UniqueFunc& unique) {
    const std::vector<ValueId> values = buffer_values(group);
    Expr bytes = 0;
    const bool is_update = group.nodes.size() == 1 && is_in_place(graph_.nodes[group.nodes[0]]);
    for (const ValueId id : values) {
      const bool is_kept = is_update && root_[id] == root_[group.outputs[0]];  // but for what is written
      if (!is_kept) bytes = bytes + storage_bytes(graph_.values[id]);
    }
    std::unordered_map<Buffer, size_t> temporaries;  // index into arena_
    for (const Buffer& buffer : unique.lowered.temporaries) {
      Expr size = buffer->dtype.bytes();
      for (const Expr& extent : buffer->shape) size = size * extent;
      temporaries[buffer] = arena_.size();
      arena_.push_back({size_of(size), static_cast<int>(plan_.steps.size()),
                        static_cast<int>(plan_.steps.size() + unique.lowered.kernels.size()) - 1, -1});
    }
    const auto kernels = static_cast<int64_t>(unique.lowered.kernels.size());
    double operations = 0;  // of all kernels as they are scheduled: their shares of the work
    for (const Kernel& kernel : unique.lowered.kernels) operations += smallest(flops_of(kernel.func));
    for (const Kernel& kernel : unique.lowered.kernels) {
      Step step;
      step.kernel = kernel.symbol;
      step.name = group.name;
      step.tasks = size_of(kernel.tasks);
      for (const Var& parameter : kernel.func.parameters) step.parameters.push_back(size_of(parameter));
      if (target_.backend->launch_of) set_launch(step, target_.backend->launch_of(kernel));
      step.workspace_bytes = size_of(kernel.workspace_bytes);
      if (operations > 0) {
        constexpr int64_t whole = 1 << 10;
        const double share = smallest(flops_of(kernel.func)) / operations * whole;
        step.flops = size_of(floor_div(unique.flops * static_cast<int64_t>(share + 0.5), whole));
      }
      step.bytes = size_of(floor_div(bytes, kernels));
      size_t count = kernel.func.buffers.size() - (kernel.has_workspace() ? 1 : 0);
      for (size_t i = 0; i < count; ++i) {
        const Buffer& buffer = kernel.func.buffers[i];
        const auto temporary = temporaries.find(buffer);
        if (temporary != temporaries.end()) {
          step.buffers.push_back(use_arena(temporary->second));
          continue;
        }
        const auto& parameters = unique.scheduled.buffers;
        // Lowering flattens buffers and keeps their names.
        const size_t position = std::find_if(parameters.begin(), parameters.end(),
                                             [&](const Buffer& b) { return b->name == buffer->name; }) -
                                parameters.begin();
        check(position < parameters.size(), "compile: a kernel uses the buffers of its Func");
        step.buffers.push_back(use(values[position], unique.layouts[position]));
      }
      plan_.steps.push_back(std::move(step));
    }
  }

  static void set_launch(Step& step, const Launch& launch) {
    for (size_t axis = 0; axis < 3; ++axis) {
      const auto grid = as_int(launch.grid[axis]), block = as_int(launch.block[axis]);
      check(grid && block, "compile: the shape of a launch is constant");
      step.grid[axis] = static_cast<uint32_t>(*grid);
      step.block[axis] = static_cast<uint32_t>(*block);
    }
  }

  // At a place in the arena that is known at the end.
  BufferUse use_arena(size_t tensor) {
    arena_[tensor].last = std::max(arena_[tensor].last, static_cast<int>(plan_.steps.size()));
    return {Storage::arena, static_cast<uint32_t>(tensor), 0, arena_[tensor].bytes};
  }

  BufferUse use(ValueId id, const std::vector<IndexMap>& layouts) {
    const ValueId root = root_[id];
    const Size bytes = size_of(storage_bytes(graph_.values[id]));
    const int64_t offset = offset_[id];
    if (graph_.is_constant(root)) {
      const uint32_t index = add_constant(root == id ? id : constant_view(id, root), layouts);
      const TensorInfo& packed = plan_.constants[index];
      return {Storage::constant, index, 0, element_count(packed.shape) * packed.dtype.bytes()};
    }
    if (const auto found = output_index_.find(root); found != output_index_.end()) {
      return {Storage::output, found->second, offset, bytes};
    }
    if (const auto found = input_index_.find(root); found != input_index_.end()) {
      return {Storage::input, found->second, offset, bytes};
    }
    const auto [found, is_new] = arena_index_.emplace(root, arena_.size());
    if (is_new) {
      const int step = static_cast<int>(plan_.steps.size());
      arena_.push_back({size_of(storage_bytes(graph_.values[root])), step, step, -1});
    }
    BufferUse result = use_arena(found->second);
    result.offset = offset;
    result.bytes = bytes;
    return result;
  }

  // A view of a constant that no pass has folded: the same bytes with the view's shape.
  ValueId constant_view(ValueId id, ValueId root) {
    if (!graph_.values[id].constant) {
      const NDArray& whole = *graph_.values[root].constant;
      auto* begin = static_cast<std::byte*>(const_cast<void*>(whole.data())) + offset_[id];
      graph_.values[id].constant =
          NDArray(whole.dtype(), *static_shape(graph_.values[id].type), begin, std::make_shared<const NDArray>(whole));
    }
    return id;
  }

  using Clock = std::chrono::steady_clock;

  Graph graph_;
  const Target& target_;
  const CompileOptions& options_;
  CompileReport& report_;
  Clock::time_point phase_start_ = Clock::now();
  std::vector<Group> groups_;
  std::vector<ValueId> root_;           // by ValueId: whose bytes it shares
  std::vector<int64_t> offset_;         // by ValueId: where in them it begins
  std::map<size_t, int32_t> in_place_;  // output → input, by position
  std::vector<UniqueFunc> uniques_;
  std::vector<int> unique_of_;  // by group
  Plan plan_;
  std::vector<Packing> packings_;
  std::vector<NDArray> constants_;  // what the packings make
  std::map<std::pair<const void*, std::string>, uint32_t> constant_index_;
  std::unordered_map<ValueId, uint32_t> output_index_, input_index_;
  std::unordered_map<ValueId, size_t> arena_index_;
  std::vector<ArenaTensor> arena_;
};

// The source's choice, or analysis's; `decisions` knows of both.
Choice decide(GraphDecision decision, const DecisionSource& source, std::vector<GraphDecision>* decisions) {
  AskedDecision& asked = decision.asked;
  if (source) {
    const Choice choice = source(decision);
    const auto is_chosen = [&](const Candidate& candidate) { return candidate.value == choice; };
    const auto found = std::find_if(asked.candidates.begin(), asked.candidates.end(), is_chosen);
    check(found != asked.candidates.end(), "optimise: a choice is one of the candidates");
    asked.chosen = static_cast<size_t>(found - asked.candidates.begin());
  }
  const Choice chosen = asked.candidates[asked.chosen].value;
  if (decisions) decisions->push_back(std::move(decision));
  return chosen;
}

}  // namespace

Graph optimise(const Graph& graph, const Target& target, const CompileOptions& options,
               std::vector<GraphDecision>* decisions) {
  const DecisionSource asked = [&](const GraphDecision& decision) {
    return decide(decision, options.decide, decisions);
  };
  return run_passes(graph, {target, options.precision, options.winograd, options.in_place, asked});
}

Executable compile(const Graph& graph, const Target& target, const CompileOptions& options, CompileReport* report) {
  CompileReport ignored;
  return Compiler(target, options, report ? *report : ignored).run(graph);
}

}  // namespace tw::relay
