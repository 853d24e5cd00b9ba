#include "autotune/confirm.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "autotune/clock.h"

namespace tw::autotune {
namespace {

constexpr double most_doubt = 1.02;   // that the network may be slower by, at the upper end of the interval
constexpr double not_faster = 1.005;  // in the network: such a proposal is left out
constexpr size_t least_samples = 5;
constexpr int most_traces = 200;

bool is_no_slower(const Ratio& ratio) {
  return ratio.median <= 1 && ratio.high <= most_doubt;
}

}  // namespace

std::vector<Record> confirm(std::vector<Proposal> proposals, const Confirming& with) {
  const auto by_gain = [](const Proposal& a, const Proposal& b) { return a.gain > b.gain; };
  std::stable_sort(proposals.begin(), proposals.end(), by_gain);
  bool is_judged = false;  // each by itself
  while (!proposals.empty() && with.has_time()) {
    ConfirmationRound round;
    std::vector<Record> records;
    for (const Proposal& proposal : proposals) records.push_back(proposal.record);
    round.records = records.size();
    Executable tuned = with.compile(records);
    round.detail = with.find_difference(tuned);
    if (round.detail.empty() && !is_judged) {
      is_judged = true;
      const auto ratios = with.compare_tasks(tuned);
      const size_t before = proposals.size();
      std::erase_if(proposals, [&](Proposal& proposal) {
        const auto ratio = ratios.find(proposal.record.task);
        if (ratio == ratios.end()) return false;
        proposal.gain *= (1 - ratio->second.median) / std::max(0.01, 1 - proposal.record.ratio_to_default);
        return ratio->second.median > not_faster;
      });
      if (proposals.size() < before) {
        round.detail = std::to_string(before - proposals.size()) + " are not faster in the network";
        std::stable_sort(proposals.begin(), proposals.end(), by_gain);
        with.on_round(round);
        continue;
      }
    }
    if (round.detail.empty()) {
      round.ratio = with.compare(tuned);
      round.is_adopted = is_no_slower(round.ratio);
    }
    const size_t half = proposals.size() / 2;
    if (!round.is_adopted && (!round.detail.empty() || round.ratio.low > 1))
      round.slower.assign(records.begin() + static_cast<std::ptrdiff_t>(half), records.end());
    with.on_round(round);
    if (round.is_adopted) return records;
    proposals.resize(half);
  }
  return {};
}

std::vector<NDArray> made_up_inputs(const Plan& plan, uint64_t seed) {
  std::vector<NDArray> inputs;
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  for (const TensorInfo& tensor : plan.inputs) {
    NDArray array(tensor.dtype, tensor.shape);
    std::memset(array.data(), tensor.dtype.is_bool() ? 1 : 0, array.byte_size());
    for (int64_t i = 0; tensor.dtype.is_float() && i < array.size(); ++i) array.set_float(i, normal(random));
    inputs.push_back(std::move(array));
  }
  return inputs;
}

std::vector<Sample> time_networks(Executable& with, Executable& without, const std::vector<NDArray>& inputs,
                                  double seconds) {
  std::vector<NDArray> outputs = with.run(inputs);
  without.run_into(inputs, outputs);
  const auto time = [&](Executable& executable) {
    constexpr int gpu_repetitions = 3;
    if (executable.is_of_gpu()) return executable.time_run(inputs, gpu_repetitions);
    const double start = seconds_now();
    executable.run_into(inputs, outputs);
    return seconds_now() - start;
  };
  std::vector<Sample> samples;
  for (const double start = seconds_now(); samples.size() < least_samples || seconds_now() - start < seconds;) {
    Sample sample;
    sample.incumbent = time(without);
    sample.candidate = time(with);
    sample.candidate += time(with);
    sample.incumbent += time(without);
    samples.push_back(sample);
  }
  return samples;
}

std::map<std::string, double> seconds_of_steps(Executable& executable, const std::vector<NDArray>& inputs) {
  std::map<uint32_t, std::pair<double, double>> steps;
  for (const StepSpan& span : executable.trace(inputs, 1)) {
    const auto [step, is_new] = steps.try_emplace(span.step, span.start, span.end);
    if (is_new) continue;
    step->second = {std::min(step->second.first, span.start), std::max(step->second.second, span.end)};
  }
  std::map<std::string, double> seconds;
  for (const auto& [step, span] : steps) seconds[executable.plan().steps.at(step).name] += span.second - span.first;
  return seconds;
}

std::map<std::string, std::vector<Sample>> compare_steps(Executable& with, Executable& without,
                                                         const StepComparison& comparison) {
  std::map<std::string, std::vector<Sample>> samples;
  const auto time = [&](Executable& executable, const std::map<std::string, std::string>& counts_for) {
    std::map<std::string, double> seconds;
    for (const auto& [name, taken] : comparison.time_steps(executable))
      if (const auto what = counts_for.find(name); what != counts_for.end()) seconds[what->second] += taken;
    return seconds;
  };
  const double start = seconds_now();
  const auto has_time = [&] { return seconds_now() - start < comparison.seconds; };
  for (int round = 0; round < comparison.rounds || (round < most_traces && has_time()); ++round) {
    std::map<std::string, double> ours, theirs;
    if (round % 2) ours = time(with, comparison.with);
    theirs = time(without, comparison.without);
    if (round % 2 == 0) ours = time(with, comparison.with);
    for (const auto& [what, taken] : theirs)
      if (const auto same = ours.find(what); same != ours.end() && taken > 0 && same->second > 0)
        samples[what].push_back({taken, same->second});
  }
  return samples;
}

}  // namespace tw::autotune
