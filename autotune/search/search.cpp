#include "autotune/search/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "tensor_ir/structural.h"

namespace tw::autotune {
namespace {

constexpr size_t most_contexts = 24;
constexpr size_t most_sketches = 4096;    // of one context
constexpr double failed_log_ratio = 0.7;  // what a point without a time counts as: twice the default's
constexpr double worst_seed = 0.5;        // ln of the predicted cost of seeds that are to differ
constexpr double worst_neighbour = 0.25;  // ln of what a step of the descent may be predicted to lose
constexpr size_t steps_of_a_decision = 4, descent_trials = 6;
constexpr size_t most_pairs = 18;      // of such steps, around one point
constexpr size_t explored_one_in = 4;  // of a batch
constexpr int most_fruitless = 32;     // trials without a faster one: the search ends, unless what is left fits

std::string name_of(const std::vector<AskedDecision>& asked) {
  std::string name;
  for (const AskedDecision& a : asked) {
    name += a.name + ":";
    for (const Candidate& candidate : a.candidates) name += to_text(candidate.value) + ",";
  }
  return name;
}

double count_points(const std::vector<AskedDecision>& asked) {
  double points = 1;
  for (const AskedDecision& a : asked) points *= static_cast<double>(a.candidates.size());
  return points;
}

// All combinations, the last decision fastest.
std::vector<std::vector<size_t>> combinations(const std::vector<AskedDecision>& asked) {
  std::vector<std::vector<size_t>> all{std::vector<size_t>(asked.size(), 0)};
  for (;;) {
    std::vector<size_t> next = all.back();
    size_t i = asked.size();
    while (i-- > 0) {
      if (++next[i] < asked[i].candidates.size()) break;
      next[i] = 0;
    }
    if (i >= asked.size()) return all;  // came around
    all.push_back(std::move(next));
  }
}

}  // namespace

Search::Search(const Space& space, const Target& target, uint64_t seed, Strategy strategy)
    : space_(space),
      features_(task_features(space.func(), target)),
      strategy_(strategy),
      random_(seed ^ (structural_hash(space.func()) + 0x9e3779b97f4a7c15)) {
  const auto origin = space_.visit({});
  check(origin.has_value(), "search: the default is a schedule");
  seen_.insert("");
  traces_.insert(origin->trace);
  add_context(origin->asked);
  // What is asked may depend on what was decided: one look behind each decision.
  for (const AskedDecision& asked : origin->asked) {
    size_t next = asked.analytic;
    for (size_t c = 0; c < asked.candidates.size(); ++c) {
      if (c == asked.analytic) continue;
      if (next == asked.analytic || asked.candidates[c].cost < asked.candidates[next].cost) next = c;
    }
    if (next == asked.analytic) continue;
    if (const auto point = space_.visit({{asked.name, asked.candidates[next].value}})) add_context(point->asked);
  }
}

void Search::add_context(const std::vector<AskedDecision>& asked) {
  if (contexts_.size() < most_contexts && context_names_.insert(name_of(asked)).second) contexts_.push_back(asked);
}

void Search::add_prior(const Decisions& decisions) {
  priors_.push_back(decisions);
}

const Search::Result* Search::best() const {
  const auto found = results_.find(best_);
  return best_.empty() || found == results_.end() ? nullptr : &found->second;
}

void Search::note(const Decisions& decisions, std::optional<double> log_ratio) {
  const std::string text = to_text(decisions);
  seen_.insert(text);
  std::optional<Point> point = space_.visit(decisions);
  if (!point) return;  // of another version
  traces_.insert(point->trace);
  add_context(point->asked);
  if (results_.count(text)) return;
  ++fruitless_;
  const Result* fastest = best();
  if (log_ratio && *log_ratio < (fastest ? *fastest->log_ratio : 0)) {
    // A gain within the noise is no reason to go on.
    if (*log_ratio < (fastest ? *fastest->log_ratio : 0) - 0.005) fruitless_ = 0;
    best_ = text;
  }
  results_[text] = {std::move(*point), log_ratio};
}

TrainingRow row_of(const std::string& task, const Features& features, const Point& point,
                   std::optional<double> log_ratio) {
  const std::vector<size_t> chosen = chosen_of(point.asked);
  TrainingRow row{task, to_text(point.decisions), features, log_cost(point.asked, chosen),
                  log_ratio.value_or(failed_log_ratio)};
  for (Feature& feature : point_features(point.asked, chosen)) row.features.push_back(std::move(feature));
  return row;
}

std::vector<TrainingRow> Search::rows(const std::string& task) const {
  std::vector<TrainingRow> rows;
  if (results_.empty()) return rows;
  Point by_default;
  by_default.asked = contexts_[0];
  rows.push_back(row_of(task, features_, by_default, 0.0));
  for (const auto& [text, result] : results_) rows.push_back(row_of(task, features_, result.point, result.log_ratio));
  return rows;
}

Decisions Search::decisions_of(const Sketch& sketch) const {
  Decisions decisions;
  const auto& asked = contexts_[sketch.context];
  for (size_t i = 0; i < asked.size(); ++i)
    if (sketch.chosen[i] != asked[i].analytic) decisions[asked[i].name] = asked[i].candidates[sketch.chosen[i]].value;
  return decisions;
}

// The best predicted first.  Contexts that are too large for all of their points: some around the fastest, and some at
// random.
std::vector<Search::Sketch> Search::pool(const CostModel& model) {
  std::vector<Sketch> sketches;
  for (size_t c = 0; c < contexts_.size(); ++c) {
    const auto& asked = contexts_[c];
    std::vector<Chosen> points;
    if (count_points(asked) <= static_cast<double>(most_sketches)) {
      points = combinations(asked);
    } else {
      const auto any = [&](size_t i) { return static_cast<size_t>(random_() % asked[i].candidates.size()); };
      std::vector<Chosen> bases{Chosen(asked.size())};
      for (size_t i = 0; i < asked.size(); ++i) bases[0][i] = asked[i].analytic;
      if (const Result* fastest = best(); fastest && name_of(fastest->point.asked) == name_of(asked))
        bases.push_back(chosen_of(fastest->point.asked));
      std::set<Chosen> different;
      for (const Chosen& base : bases) {
        for (size_t i = 0; i < asked.size(); ++i) {
          for (size_t v = 0; v < asked[i].candidates.size(); ++v) {
            Chosen point = base;
            point[i] = v;
            different.insert(std::move(point));
          }
        }
      }
      for (size_t n = 0; n < most_sketches; ++n) {
        Chosen point = bases[n % bases.size()];
        // A few decisions of a good point, or all of them.
        const size_t changes = n % 4 == 3 ? asked.size() : 2 + n % 2;
        for (size_t k = 0; k < changes; ++k) {
          const size_t i = changes == asked.size() ? k : static_cast<size_t>(random_() % asked.size());
          point[i] = any(i);
        }
        different.insert(std::move(point));
      }
      points.assign(different.begin(), different.end());
    }
    const std::vector<double> scores = model.predict(features_, asked, points);
    for (size_t p = 0; p < points.size(); ++p) sketches.push_back({c, std::move(points[p]), scores[p]});
  }
  std::stable_sort(sketches.begin(), sketches.end(),
                   [](const Sketch& a, const Sketch& b) { return a.score < b.score; });
  return sketches;
}

// One decision of the fastest point, or of the default where none is faster, made otherwise, by a step in its value; or
// a pair of such steps.
std::vector<Search::Sketch> Search::neighbours(const CostModel& model, bool are_pairs) const {
  const Result* fastest = best();
  const auto& asked = fastest ? fastest->point.asked : contexts_[0];
  const double log_ratio = fastest ? *fastest->log_ratio : 0;
  size_t context = 0;
  while (context < contexts_.size() && name_of(contexts_[context]) != name_of(asked)) ++context;
  if (context == contexts_.size()) return {};
  const Chosen origin = chosen_of(asked);
  std::vector<Chosen> points;
  std::vector<size_t> changed;  // the decision, by point
  for (size_t i = 0; i < asked.size(); ++i) {
    const auto& candidates = asked[i].candidates;
    std::vector<size_t> order;
    for (size_t v = 0; v < candidates.size(); ++v)
      if (v != asked[i].chosen) order.push_back(v);
    const Choice& from = candidates[asked[i].chosen].value;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return distance(candidates[a].value, from) < distance(candidates[b].value, from);
    });
    order.resize(std::min(order.size(), steps_of_a_decision));
    for (const size_t v : order) {
      points.push_back(origin);
      points.back()[i] = v;
      changed.push_back(i);
    }
  }
  if (points.empty()) return {};
  const double origin_score = model.predict(features_, asked, {origin})[0];
  std::vector<double> scores = model.predict(features_, asked, points);
  if (are_pairs) {
    // As if both steps lost what each loses alone: as measured, else as predicted.
    std::vector<double> losses;
    for (size_t p = 0; p < points.size(); ++p) {
      const auto found = results_.find(to_text(decisions_of({context, points[p]})));
      losses.push_back(found == results_.end() ? scores[p] - origin_score
                                               : found->second.log_ratio.value_or(failed_log_ratio) - log_ratio);
    }
    const std::vector<Chosen> steps = std::exchange(points, {});
    scores.clear();
    for (size_t a = 0; a < steps.size(); ++a) {
      for (size_t b = a + 1; b < steps.size(); ++b) {
        if (changed[a] == changed[b]) continue;
        points.push_back(steps[a]);
        points.back()[changed[b]] = steps[b][changed[b]];
        scores.push_back(origin_score + losses[a] + losses[b]);
      }
    }
  }
  std::vector<Sketch> sketches;
  for (size_t p = 0; p < points.size(); ++p)
    if (scores[p] < origin_score + worst_neighbour) sketches.push_back({context, points[p], scores[p]});
  std::stable_sort(sketches.begin(), sketches.end(),
                   [](const Sketch& a, const Sketch& b) { return a.score < b.score; });
  if (are_pairs) sketches.resize(std::min(sketches.size(), most_pairs));
  return sketches;
}

size_t Search::count_unseen(const std::vector<Sketch>& sketches) const {
  return static_cast<size_t>(std::count_if(sketches.begin(), sketches.end(), [&](const Sketch& sketch) {
    return !seen_.count(to_text(decisions_of(sketch)));
  }));
}

bool Search::take(std::optional<Point> point, std::vector<Point>& batch) {
  if (!point) return false;
  add_context(point->asked);
  seen_.insert(to_text(point->decisions));
  if (!traces_.insert(point->trace).second) return false;  // the same schedule by other decisions
  batch.push_back(std::move(*point));
  return true;
}

bool Search::take(const Sketch& sketch, std::vector<Point>& batch) {
  const Decisions decisions = decisions_of(sketch);
  return seen_.insert(to_text(decisions)).second && take(space_.visit(decisions), batch);
}

void Search::take_seeds(const std::vector<Sketch>& sketches, size_t most, std::vector<Point>& batch) {
  for (const Decisions& prior : priors_) {
    if (batch.size() >= std::max<size_t>(1, most / 2)) break;
    Point point = space_.nearest(prior);
    if (!seen_.count(to_text(point.decisions))) take(std::move(point), batch);
  }
  const size_t analytic = batch.size() + std::max<size_t>(1, (most - std::min(most, batch.size())) / 2);
  for (const Sketch& sketch : sketches) {
    if (batch.size() >= std::min(analytic, most)) break;
    take(sketch, batch);
  }
  // Those that are farthest from all that was taken.
  std::vector<std::pair<const Sketch*, double>> others;  // with the distance to the nearest
  const double worst = (sketches.empty() ? 0 : sketches[0].score) + worst_seed;
  for (const Sketch& sketch : sketches) {
    if (sketch.score > worst || others.size() >= 1000) break;
    if (!seen_.count(to_text(decisions_of(sketch))))
      others.emplace_back(&sketch, std::numeric_limits<double>::infinity());
  }
  const auto far = [&](const Decisions& from, const Decisions& to) {
    double sum = 0;
    for (const auto& [name, value] : to) {
      const auto same = from.find(name);
      sum += same == from.end() ? 1 : distance(value, same->second);
    }
    for (const auto& [name, value] : from) sum += to.count(name) ? 0 : 1;
    return sum;
  };
  size_t measured_from = 0;
  while (batch.size() < most && !others.empty()) {
    for (; measured_from < batch.size(); ++measured_from)
      for (auto& [sketch, least] : others)
        least = std::min(least, far(batch[measured_from].decisions, decisions_of(*sketch)));
    const auto farthest = std::max_element(others.begin(), others.end(),
                                           [](const auto& a, const auto& b) { return a.second < b.second; });
    take(*farthest->first, batch);
    others.erase(farthest);
  }
}

void Search::take_ranked(const std::vector<Sketch>& sketches, size_t most, std::vector<Point>& batch) {
  const size_t explored = most / explored_one_in, ranked = batch.size() + most - explored;
  std::vector<const Sketch*> others;
  for (const Sketch& sketch : sketches) {
    if (batch.size() < ranked) {
      take(sketch, batch);
    } else if (!seen_.count(to_text(decisions_of(sketch)))) {
      others.push_back(&sketch);
      if (others.size() >= 2000) break;
    }
  }
  for (size_t n = 0; n < explored && !others.empty();) {
    // Of the better half, but one in a batch of all.
    const size_t among = n == 0 ? others.size() : (others.size() + 1) / 2;
    const size_t at = static_cast<size_t>(random_() % among);
    n += take(*others[at], batch);
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

std::vector<Point> Search::next_batch(const CostModel& model, size_t most) {
  if (strategy_ == Strategy::evolution) return next_generation(most);
  std::vector<Point> batch;
  const auto size = [&](int wanted) { return std::min(most, static_cast<size_t>(wanted)); };
  const int batches = count() < seed_trials ? -1 : (count() - seed_trials) / batch_trials;
  if (batches >= model_batches) {
    phase_ = "descent";
    for (const bool are_pairs : {false, true}) {
      if (!batch.empty()) break;
      for (const Sketch& sketch : neighbours(model, are_pairs))
        if (batch.size() < size(descent_trials)) take(sketch, batch);
    }
  }
  if (batch.empty()) {
    const std::vector<Sketch> sketches = pool(model);
    if (batches < 0) {
      phase_ = "seeds";
      take_seeds(sketches, size(seed_trials - count()), batch);
    } else if (batches < model_batches || fruitless_ < most_fruitless || count_unseen(sketches) <= most) {
      phase_ = "batch";
      take_ranked(sketches, size(batch_trials), batch);
    }
  }
  // To the default, and to the fastest so far.
  const auto predict = [&](const std::vector<AskedDecision>& asked) {
    return model.predict(features_, asked, {chosen_of(asked)})[0];
  };
  const double by_default = predict(contexts_[0]);
  double fastest = best() ? predict(best()->point.asked) : by_default, first = fastest;
  for (Point& point : batch) {
    const double predicted = predict(point.asked);
    point.predicted = std::exp(predicted - by_default);
    first = std::min(first, predicted);
  }
  predicted_gain_ = fastest - first;
  return batch;
}

}  // namespace tw::autotune
