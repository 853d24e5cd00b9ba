#include "relay_ir/compile/compile.h"

#include <algorithm>
#include <chrono>
#include <unordered_map>
#include <utility>

#include "relay_ir/compile/empty_runs.h"
#include "relay_ir/compile/layout.h"
#include "relay_ir/compile/network_plan.h"
#include "relay_ir/compile/planned_graph.h"
#include "relay_ir/pass.h"
#include "tensor_ir/diagnostic.h"
#include "tensor_ir/match.h"
#include "tensor_ir/parallel.h"
#include "tensor_ir/pass_scope.h"
#include "tensor_ir/plan_size.h"

namespace tw::relay {
namespace {

// No array of a run may be larger than this.
constexpr int64_t max_tensor_bytes = int64_t{1} << 40;

void require_sizes_within_limits(const Graph& graph) {
  for (const Node& node : graph.nodes)
    for (const Graph& region : node.regions) require_sizes_within_limits(region);
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
              "in_place is for CPUs: the host's arrays are copied for a GPU\n  help: leave it out");
}

void require_nodes(const Graph& model, const std::string& option, const std::set<std::string>& wanted) {
  for (const std::string& name : wanted) {
    if (std::any_of(model.nodes.begin(), model.nodes.end(), [&](const Node& node) { return is_named(node, {name}); }))
      continue;
    std::vector<std::string> known;
    for (const Node& node : model.nodes) known.push_back(node.name);
    throw Error(ErrorCode::input,
                option + ": no node of the graph is called `" + name + "`\n  help: " + suggest_name(name, known));
  }
}

// One of the graphs that become plans: the model, or what it is for a profile.
struct Network {
  Graph graph;
  std::vector<DimensionBounds> sizes;  // by symbol of the model: for which it is; of the model itself empty
  std::string label;                   // for people, " at batch=1"; of the model itself empty
  std::vector<GraphDecision> decisions;
  PlannedGraph planned;
  bool is_empty_run = false;  // in which a dimension is 0
};

// The model's first.
std::vector<Network> networks_of(const Graph& model, const std::vector<Profile>& profiles) {
  std::vector<Network> networks(1);
  networks[0].graph = with_elements(model);
  for (const Profile& profile : profiles) {
    Network& network = networks.emplace_back();
    SpecialGraph special = specialise(model, profile);
    network.graph = std::move(special.graph), network.sizes = std::move(special.sizes);
    network.label = " at " + to_string(profile);
  }
  for (SpecialGraph& special : empty_runs(model)) {
    Network& network = networks.emplace_back();
    network.graph = std::move(special.graph), network.sizes = std::move(special.sizes);
    network.is_empty_run = true;
    for (size_t i = 0; i < model.symbols.size(); ++i)
      if (network.sizes[i].high == 0) network.label = " at " + model.symbols[i].name() + "=0";
  }
  return networks;
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

void report_funcs(const std::vector<Func>& funcs, const std::vector<ScheduledFunc>& scheduled, CompileReport& report) {
  for (size_t i = 0; i < scheduled.size(); ++i) {
    report.pieces.push_back({funcs[i], {}, 0, ""});
    for (const Kernel& kernel : scheduled[i].lowered.kernels) report.pieces.back().kernels.push_back(kernel.symbol);
  }
  report.funcs = static_cast<int>(scheduled.size());
}

void report_groups(const Network& network, const std::vector<ScheduledFunc>& scheduled, CompileReport& report) {
  std::unordered_map<std::string, std::string> group_of;  // by node
  for_each_group(network.planned, [&](const Graph& graph, const Group& group, size_t func) {
    ++report.groups;
    CompileReport::Piece& piece = report.pieces[func];
    if (piece.groups++ == 0) piece.name = group.name;
    for (const int node : group.nodes) group_of[graph.nodes[node].name] = group.name;
    for (const std::string& buffer : scheduled[func].lowered.spilled)
      report.spilled_buffers.push_back(group.name + network.label + ": `" + buffer + "`");
    visit(scheduled[func].func.body, [&](const For& loop) {
      if (loop.attributes.count("independence_unproven"))
        report.serial_loops.push_back(group.name + network.label + ": loop `" + loop.var.name() + "`");
    });
  });
  for (GraphDecision decision : network.decisions) {
    if (const auto group = group_of.find(decision.node); group != group_of.end()) decision.group = group->second;
    report.decisions.push_back(std::move(decision));
  }
}

void require_some_sizes(const Plan& plan, const std::string& label) {
  try {
    (void)small_sizes(plan);
  } catch (const Error& error) {
    throw Error(error.code(), "profile" + label + ": " + error.message());
  }
}

// What every run is held to, those in which dimensions are 0 too.
void admit_empty_runs(const Graph& model, Plan& general) {
  check(general.symbols.size() == model.symbols.size(), "compile: the general plan is for all sizes");
  for (size_t i = 0; i < model.symbols.size(); ++i) general.symbols[i].may_be_empty = may_be_empty(model.symbols[i]);
  for (size_t i = 0; i < model.inputs_of_caller(); ++i) {
    const std::vector<Expr>& shape = model.values[model.inputs[i]].type.shape;
    for (size_t d = 0; d < general.inputs[i].dims.size(); ++d)
      general.inputs[i].dims[d] = plan_size(shape[d], model.symbols);
  }
  general.equalities.clear();
  for (const Equality& equal : model.equalities) {
    const auto a = as_size(equal.a, model.symbols), b = as_size(equal.b, model.symbols);
    if (a && b) general.equalities.push_back({*a, *b, equal.demanded_by});
  }
}

Plans plan_networks(const Graph& model, const std::vector<Network>& networks,
                    const std::vector<ScheduledFunc>& scheduled, const Target& target, ConstantPool& constants) {
  Plans plans;
  for (const Network& network : networks) {
    Plan plan = plan_network(network.planned, scheduled, target, constants);
    if (&network == &networks.front()) {
      plans.general = std::move(plan);
      admit_empty_runs(model, plans.general);
      continue;
    }
    SpecialPlan& special = plans.special.emplace_back();
    for (const DimensionBounds& sizes : network.sizes) special.sizes.push_back({sizes.low, sizes.high});
    special.plan = std::move(plan);
    require_some_sizes(special.plan, network.label);
  }
  plans.general.constants = constants.infos();
  return plans;
}

}  // namespace

Graph optimise(const Graph& graph, const Target& target, const CompileOptions& options,
               std::vector<GraphDecision>* decisions) {
  return run_passes(graph, {target, options.precision, options.in_place, options.constraints, options.decide, decisions,
                            options.kept_nodes, options.skipped_passes, options.after_pass});
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
  require_nodes(model, "keep_f32", options.kept_nodes);
  require_nodes(model, "unfused", options.unfused_nodes);
  std::vector<Network> networks;
  for (Network& network : networks_of(model, options.profiles)) {
    try {
      Graph graph = optimise(network.graph, target, options, &network.decisions);
      require_sizes_within_limits(graph);
      network.planned = plan_groups(std::move(graph), options.in_place, options.unfused_nodes);
    } catch (const Error& error) {
      if (!network.is_empty_run || error.code() == ErrorCode::internal) throw;
      continue;  // that such runs cannot be had says nothing against others
    }
    networks.push_back(std::move(network));
  }
  end_phase("graph passes and fusion");

  UniqueFuncs unique(target);
  for (Network& network : networks) unique.add(network.planned);
  end_phase("tensor expressions");

  const std::vector<ScheduledFunc> scheduled = schedule_all(unique.funcs(), target, options);
  const std::vector<Kernel> kernels = different_kernels(scheduled);
  report_funcs(unique.funcs(), scheduled, report);
  for (const Network& network : networks) report_groups(network, scheduled, report);
  if (target.backend->requests_of)
    for (const Kernel& kernel : kernels) report.requests[kernel.symbol] = target.backend->requests_of(kernel);
  end_phase("schedules and lowering");

  CodegenOptions codegen;
  codegen.jobs = options.jobs;
  codegen.cache = options.cache;
  CodegenReport code;
  std::vector<std::byte> image = compile_image(kernels, target, codegen, &code);
  report.kernels = static_cast<int>(kernels.size());
  report.cached_kernels = code.cached_kernels;
  end_phase("machine code");

  ConstantPool constants;
  Plans plans = plan_networks(model, networks, scheduled, target, constants);
  std::vector<NDArray> packed = constants.pack(options.jobs);
  small_sizes(plans.general);  // Error(shape): none meet what the model demands of them
  end_phase("memory plan and packing of constants");

  Executable executable(std::move(image), std::move(plans), std::move(packed),
                        {target.architecture, target.name, target.features});
  if (options.threads > 0) executable.set_threads(options.threads);
  for (const auto& [name, function] : options.host_functions) executable.set_host_function(name, function);
  end_phase("loading");
  check_skipped();
  return executable;
}

}  // namespace tw::relay
