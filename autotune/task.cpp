#include "autotune/task.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tensor_ir/digest.h"
#include "tensor_ir/match.h"
#include "tensor_ir/structural.h"
#include "tensor_ir/text/printer.h"

namespace tw::autotune {
namespace {

bool has_data_dependent_index(const Func& func) {
  bool found = false;
  const auto look = [&](const std::vector<Expr>& indices) {
    for (const Expr& index : indices) visit(index, [&](const Load&) { found = true; });
  };
  visit(func.body, [&](const Load& load) { look(load.indices); }, [&](const Store& store) { look(store.indices); });
  return found;
}

}  // namespace

std::string task_key(const Func& func) {
  return structural_digest(func);
}

bool has_constant_shapes(const Func& func) {
  return func.parameters.empty() && std::all_of(func.buffers.begin(), func.buffers.end(),
                                                [](const Buffer& buffer) { return const_shape(buffer).has_value(); });
}

std::string target_facts(const Target& target, int threads) {
  nlohmann::json facts;
  std::vector<std::string> features = target.features;
  std::sort(features.begin(), features.end());
  nlohmann::json instructions, products;
  for (const MachineInstruction& instruction : target.instructions)
    instructions.push_back({{"name", to_text(instruction.intrinsic)}, {"cycles", instruction.cycles}});
  for (const Intrinsic product : target.tiles.products) products.push_back(to_text(product));
  const auto level = [](const CacheLevel& cache) {
    return nlohmann::json{{"bytes", cache.bytes}, {"ways", cache.ways}, {"rate", cache.rate}};
  };
  facts["architecture"] = target.architecture;
  facts["triple"] = target.triple;
  facts["cpu"] = target.cpu;
  facts["features"] = features;
  facts["instructions"] = instructions;
  facts["vector_bits"] = target.vector_bits;
  facts["vector_registers"] = target.vector_registers;
  facts["has_masks"] = target.has_masks;
  facts["has_fma"] = target.has_fma;
  facts["has_power_scaling"] = target.has_power_scaling;
  facts["has_f16"] = target.has_f16;
  facts["has_f16_conversion"] = target.has_f16_conversion;
  facts["fma_ports"] = target.fma_ports;
  facts["fma_latency"] = target.fma_latency;
  facts["load_ports"] = target.load_ports;
  facts["l1"] = level(target.l1);
  facts["l2"] = level(target.l2);
  facts["l3"] = level(target.l3);
  facts["core_to_core_rate"] = target.core_to_core_rate;
  facts["memory_rate"] = target.memory_rate;
  facts["core_memory_rate"] = target.core_memory_rate;
  facts["core_stream_rate"] = target.core_stream_rate;
  facts["tiles"] = {{"products", products},
                    {"registers", target.tiles.registers},
                    {"rows", target.tiles.rows},
                    {"row_bytes", target.tiles.row_bytes},
                    {"product_latency", target.tiles.product_latency},
                    {"load_cycles", target.tiles.load_cycles}};
  facts["compute_capability"] = target.compute_capability;
  facts["shared_bytes"] = target.shared_bytes;
  facts["scheduled_for_threads"] = target.threads;
  facts["own_template"] = target.own_template;
  facts["threads"] = target.compute_capability > 0 ? 1 : threads;  // whose host only starts kernels
  return facts.dump();
}

std::string target_key(const Target& target, int threads) {
  return digest_of(target_facts(target, threads));
}

std::string compiler_key() {
  std::string text;
  for (const char byte : compiler_build_id()) {
    constexpr char digits[] = "0123456789abcdef";
    text += digits[static_cast<unsigned char>(byte) >> 4];
    text += digits[static_cast<unsigned char>(byte) & 15];
  }
  return text;
}

std::vector<Task> find_tasks(const std::vector<relay::CompileReport::Piece>& pieces,
                             const std::vector<StepProfile>& profile, const Target& target) {
  if (!target.decided_schedule) return {};
  // Kernels may be shared by pieces: each takes its part.
  std::map<std::string, StepProfile> sums;
  std::map<std::string, int> users;
  for (const StepProfile& step : profile) {
    StepProfile& sum = sums[step.kernel];
    sum.seconds += step.seconds, sum.flops += step.flops, sum.bytes += step.bytes;
  }
  for (const auto& piece : pieces)
    for (const std::string& kernel : piece.kernels) users[kernel] += piece.groups;
  std::vector<Task> tasks;
  for (const auto& piece : pieces) {
    if (!has_constant_shapes(piece.func) || has_data_dependent_index(piece.func)) continue;
    const Schedule schedule = target.decided_schedule(piece.func, target, {});
    const bool is_open = std::any_of(schedule.asked().begin(), schedule.asked().end(),
                                     [](const AskedDecision& asked) { return asked.candidates.size() > 1; });
    if (!is_open) continue;
    Task task{task_key(piece.func), piece.name, piece.func, piece.groups};
    for (const std::string& kernel : piece.kernels) {
      const double part = static_cast<double>(piece.groups) / users[kernel];
      task.seconds += part * sums[kernel].seconds;
      task.flops += part * sums[kernel].flops, task.bytes += part * sums[kernel].bytes;
    }
    const auto same = std::find_if(tasks.begin(), tasks.end(), [&](const Task& t) { return t.key == task.key; });
    if (same != tasks.end()) {
      same->groups += task.groups, same->seconds += task.seconds;
      same->flops += task.flops, same->bytes += task.bytes;
    } else {
      tasks.push_back(std::move(task));
    }
  }
  std::stable_sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) { return a.seconds > b.seconds; });
  return tasks;
}

std::string model_key(const std::vector<relay::CompileReport::Piece>& pieces) {
  std::vector<std::string> keys;
  for (const auto& piece : pieces) keys.push_back(task_key(piece.func) + "*" + std::to_string(piece.groups));
  std::sort(keys.begin(), keys.end());
  std::string text;
  for (const std::string& key : keys) text += key + "\n";
  return digest_of(text);
}

}  // namespace tw::autotune
