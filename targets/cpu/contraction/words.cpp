// Contractions of small elements whose atom is a dot product of the target: g neighbours along k, which lie side by
// side in A's memory and are put so in B's panels.
#include "targets/cpu/contraction/packing.h"
#include "targets/cpu/default_schedule.h"

namespace tw::cpu {

std::optional<Plan> plan_of_words(Schedule& schedule, const BlockRef& block, const BlockAnalysis& analysis,
                                  const Target& target) {
  const DType sum = analysis.write.buffer->dtype;
  const auto atom = dot_of(analysis.reads[0].buffer->dtype, analysis.reads[1].buffer->dtype, sum, target);
  if (!atom) return std::nullopt;
  const int lanes = target.lanes(sum);
  std::optional<Words> words;
  const auto has_words = [&](const Contraction& c) {
    if (c.is_grouped() && c.group % lanes != 0) return false;
    words = find_words(c, atom->k(), lanes);
    return words.has_value();
  };
  auto matched = match_contraction(schedule, block, analysis, lanes, has_words);
  if (!matched) matched = match_across(schedule, block, analysis, has_words);
  if (!matched) return std::nullopt;
  Plan c;
  static_cast<Contraction&>(c) = *matched;
  c.atom = *atom;
  c.split = {words->split(atom->steps)};
  c.is_scattered = c.reduce.size() == 1;
  c.is_memory_bound = is_memory_bound(c.read_b().buffer, count_most_iterations(analysis, c.rows), target);
  const auto packing = choose_packing(schedule, c, target);
  if (!packing) return std::nullopt;
  c.packing = *packing;
  c.tile = decide_tile(schedule, product_of(c), target);
  return c;
}

}  // namespace tw::cpu
