#include "schedule/decisions.h"

#include <algorithm>
#include <charconv>

#include "runtime/error.h"
#include "schedule/edit.h"

namespace tw {
namespace {

constexpr size_t longest_choice = 16;

[[noreturn]] void refuse_text(std::string_view word) {
  throw Error(ErrorCode::text, "`" + std::string(word.substr(0, 80)) + "` is no decision\n  help: write name=14x2");
}

bool is_name(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return c == '_' || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  });
}

}  // namespace

int64_t decided(const Decisions& decisions, const std::string& name) {
  const auto found = decisions.find(name);
  return found == decisions.end() ? 0 : found->second.at(0);
}

bool AskedDecision::choose(const Choice& value) {
  const auto is_value = [&](const Candidate& candidate) { return candidate.value == value; };
  const auto found = std::find_if(candidates.begin(), candidates.end(), is_value);
  if (found == candidates.end()) return false;
  chosen = static_cast<size_t>(found - candidates.begin());
  return true;
}

AskedDecision ask(const std::string& name, std::vector<Candidate> candidates, const Choice& analytic) {
  AskedDecision asked{name, std::move(candidates)};
  check(asked.choose(analytic), "decide: the analytic choice is a candidate");
  asked.analytic = asked.chosen;
  return asked;
}

std::string to_text(const Choice& choice) {
  std::string text;
  for (const int64_t number : choice) text += (text.empty() ? "" : "x") + std::to_string(number);
  return text;
}

std::string to_text(const Decisions& decisions) {
  std::string text;
  for (const auto& [name, choice] : decisions) text += (text.empty() ? "" : " ") + name + "=" + to_text(choice);
  return text;
}

Decisions parse_decisions(std::string_view text) {
  Decisions decisions;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t equals = std::min(word.find('='), word.size());
    const std::string_view name = word.substr(0, equals);
    Choice choice;
    for (const char *at = word.data() + equals, *last = word.data() + word.size(); at != last;) {
      int64_t number = 0;
      const auto [rest, error] = std::from_chars(at + 1, last, number);  // behind `=` or `x`
      if (error != std::errc() || (rest != last && *rest != 'x') || choice.size() == longest_choice) refuse_text(word);
      choice.push_back(number);
      at = rest;
    }
    if (!is_name(name) || choice.empty() || !decisions.emplace(name, choice).second) refuse_text(word);
  }
  return decisions;
}

Choice Schedule::decide(const std::string& name, std::vector<Candidate> candidates, const Choice& analytic) {
  AskedDecision asked = ask(name, std::move(candidates), analytic);
  for (int n = 1; std::any_of(asked_.begin(), asked_.end(), [&](const auto& a) { return a.name == asked.name; }); ++n) {
    asked.name = name + "_" + std::to_string(n);
  }
  if (const auto decided = decisions_.find(asked.name); decided != decisions_.end() && !asked.choose(decided->second)) {
    refuse("decide", "`" + asked.name + "` cannot be " + to_text(decided->second) + " here", Stmt(),
           "the decision was made for another Func or by another version: decide again");
  }
  asked_.push_back(std::move(asked));
  return asked_.back().value();
}

void Schedule::require_all_asked() const {
  for (const auto& [name, choice] : decisions_) {
    if (std::any_of(asked_.begin(), asked_.end(), [&](const AskedDecision& a) { return a.name == name; })) continue;
    refuse("decide", "nothing asks for `" + name + "`, which was decided as " + to_text(choice), Stmt(),
           "the decision was made for another Func or by another version: decide again");
  }
}

}  // namespace tw
