#include "relay_ir/compile/compile.h"

#include <algorithm>
#include <chrono>
#include <unordered_map>
#include <utility>

#include "relay_ir/compile/aliases.h"
#include "relay_ir/compile/layout.h"
#include "relay_ir/compile/network_plan.h"
#include "relay_ir/compile/unique_funcs.h"
#include "relay_ir/in_place.h"
#include "relay_ir/pass.h"
#include "targets/backend.h"
#include "tensor_ir/match.h"
#include "tensor_ir/parallel.h"
#include "tensor_ir/pass_scope.h"

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

void require_no_updates(const CompileOptions& options, const Target& target) {
  if (options.in_place.empty() || target.backend->uses_arrays_of_caller) return;
  throw Error(ErrorCode::unsupported,
              "in_place is for CPUs: a GPU works on copies of the caller's arrays\n  help: leave it out");
}

void drop_empty(const Graph& graph, std::vector<Group>& groups) {
  std::erase_if(groups, [&](const Group& group) {
    return std::all_of(group.outputs.begin(), group.outputs.end(),
                       [&](ValueId id) { return is_const_int(storage_bytes(graph.values[id]), 0); });
  });
}

std::vector<ScheduledFunc> schedule_all(const std::vector<Func>& funcs, const Target& target,
                                        const CompileOptions& options) {
  const ScheduleSource& source = options.schedule ? options.schedule : target.default_schedule;
  std::vector<ScheduledFunc> scheduled(funcs.size());
  for_each_in_parallel(funcs.size(), options.jobs, [&](size_t i) {
    const Schedule schedule = source ? source(funcs[i], target) : Schedule(funcs[i]);
    scheduled[i] = lower_scheduled(funcs[i], schedule, target, "k" + std::to_string(i) + "_" + funcs[i].name);
  });
  return scheduled;
}

void report_groups(const Graph& graph, const std::vector<Group>& groups, const UniqueFuncs& unique,
                   const std::vector<ScheduledFunc>& scheduled, CompileReport& report) {
  for (size_t i = 0; i < scheduled.size(); ++i) {
    report.pieces.push_back({unique.funcs[i], {}, 0, ""});
    for (const Kernel& kernel : scheduled[i].lowered.kernels) report.pieces.back().kernels.push_back(kernel.symbol);
  }
  std::unordered_map<std::string, std::string> group_of;  // by node
  for (size_t i = 0; i < groups.size(); ++i) {
    CompileReport::Piece& piece = report.pieces[unique.of_group[i]];
    if (piece.groups++ == 0) piece.name = groups[i].name;
    for (const int node : groups[i].nodes) group_of[graph.nodes[node].name] = groups[i].name;
    for (const std::string& buffer : scheduled[unique.of_group[i]].lowered.spilled)
      report.spilled_buffers.push_back(groups[i].name + ": `" + buffer + "`");
    visit(scheduled[unique.of_group[i]].func.body, [&](const For& loop) {
      if (loop.attributes.count("independence_unproven"))
        report.serial_loops.push_back(groups[i].name + ": loop `" + loop.var.name() + "`");
    });
  }
  for (GraphDecision& decision : report.decisions)
    if (const auto group = group_of.find(decision.node); group != group_of.end()) decision.group = group->second;
  report.groups = static_cast<int>(groups.size());
  report.funcs = static_cast<int>(scheduled.size());
}

}  // namespace

Graph optimise(const Graph& graph, const Target& target, const CompileOptions& options,
               std::vector<GraphDecision>* decisions) {
  return run_passes(graph,
                    {target, options.precision, options.in_place, options.constraints, options.decide, decisions});
}

Executable compile(const Graph& model, const Target& target, const CompileOptions& options, CompileReport* wanted) {
  CompileReport ignored;
  CompileReport& report = wanted ? *wanted : ignored;
  // What ends now took since the phase before it.
  using Clock = std::chrono::steady_clock;
  auto end_phase = [&report, start = Clock::now()](const char* name) mutable {
    const auto now = Clock::now();
    report.phases.push_back({name, std::chrono::duration<double>(now - std::exchange(start, now)).count()});
  };
  require_no_updates(options, target);
  Graph graph = optimise(model, target, options, &report.decisions);
  require_supported_dimensions(graph, target);
  require_sizes_within_limits(graph);
  std::vector<Group> groups = fuse(graph);
  const Aliases aliases = resolve_aliases(graph, groups, options.in_place);
  drop_empty(graph, groups);
  order_groups(graph, groups);
  end_phase("graph passes and fusion");

  const UniqueFuncs unique = find_unique_funcs(graph, groups, target);
  end_phase("tensor expressions");

  const std::vector<ScheduledFunc> scheduled = schedule_all(unique.funcs, target, options);
  const std::vector<Kernel> kernels = different_kernels(scheduled);
  report_groups(graph, groups, unique, scheduled, report);
  end_phase("schedules and lowering");

  CodegenOptions codegen;
  codegen.jobs = options.jobs;
  codegen.cache = options.cache;
  CodegenReport code;
  std::vector<std::byte> image = compile_image(kernels, target, codegen, &code);
  report.kernels = static_cast<int>(kernels.size());
  report.cached_kernels = code.cached_kernels;
  end_phase("machine code");

  auto [plan, constants] =
      plan_network(graph, groups, aliases, scheduled, unique.of_group, target).finish(options.jobs);
  small_sizes(plan);  // Error(shape): none meet what the model demands of them
  end_phase("memory plan and packing of constants");

  Executable executable(std::move(image), std::move(plan), std::move(constants),
                        {target.architecture, target.name, target.features});
  if (options.threads > 0) executable.set_threads(options.threads);
  end_phase("loading");
  check_skipped();
  return executable;
}

}  // namespace tw::relay
