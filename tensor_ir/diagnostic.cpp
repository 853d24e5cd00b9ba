#include "tensor_ir/diagnostic.h"

#include <algorithm>
#include <cctype>

namespace tw {
namespace {

constexpr size_t shown_columns = 100;  // of a source line; a longer one is cut around the caret
constexpr size_t shown_names = 12;

std::string_view line_of(std::string_view source, int32_t line) {
  size_t begin = 0;
  for (int32_t current = 1; current < line; ++current) {
    size_t end = source.find('\n', begin);
    if (end == std::string_view::npos) return {};
    begin = end + 1;
  }
  std::string_view text = source.substr(begin, source.find('\n', begin) - begin);
  if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
  return text;
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t above = row[j];
      bool same =
          std::tolower(static_cast<unsigned char>(a[i - 1])) == std::tolower(static_cast<unsigned char>(b[j - 1]));
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (same ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string render(const Diagnostic& diagnostic, const std::string& file, std::string_view source) {
  std::string out = "error";
  if (!diagnostic.topic.empty()) out += "[" + diagnostic.topic + "]";
  out += ": " + diagnostic.message + "\n";
  if (diagnostic.span.line > 0 && !source.empty()) {
    std::string_view text = line_of(source, diagnostic.span.line);
    size_t caret = std::min<size_t>(std::max(diagnostic.span.column - 1, 0), text.size());
    size_t begin = caret > shown_columns / 2 && text.size() > shown_columns ? caret - shown_columns / 2 : 0;
    // Neither indentation nor control characters may move the caret away from what it points at.
    while (begin < caret && (text[begin] == ' ' || text[begin] == '\t')) ++begin;
    std::string shown(text.substr(begin, shown_columns));
    std::replace_if(shown.begin(), shown.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
    std::string place =
        "  " + (file.empty() ? std::string("<text>") : file) + ":" + std::to_string(diagnostic.span.line) + "  ";
    // A caret under UTF-8 text counts characters, not bytes.
    auto is_continuation = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; };
    size_t pad = place.size() + (caret - begin) -
                 std::count_if(shown.begin(), shown.begin() + std::min(caret - begin, shown.size()), is_continuation);
    out += place + shown + "\n" + std::string(pad, ' ') + "^";
    if (!diagnostic.note.empty()) out += " " + diagnostic.note;
    out += "\n";
  }
  if (!diagnostic.help.empty()) out += "  help: " + diagnostic.help + "\n";
  out.pop_back();
  return out;
}

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  std::string best;
  size_t best_distance = std::max<size_t>(1, name.size() / 3) + 1;
  if (name.size() > 64) return best;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > 64 || candidate == name) continue;
    size_t distance = edit_distance(name, candidate);
    if (distance < best_distance && distance < std::max(name.size(), candidate.size())) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string suggest_name(std::string_view name, const std::vector<std::string>& candidates) {
  std::string nearest = nearest_name(name, candidates);
  if (!nearest.empty()) return "did you mean `" + nearest + "`?";
  std::string out;
  for (size_t i = 0; i < candidates.size() && i < shown_names; ++i) out += (i ? ", " : "known here: ") + candidates[i];
  if (candidates.size() > shown_names) out += ", …";
  return out;
}

}  // namespace tw
