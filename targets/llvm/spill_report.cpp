#include "targets/llvm/spill_report.h"

#include <algorithm>
#include <map>

namespace tw {
namespace {

// The bytes that LLVM says this line spills or reloads ("16-byte Folded Spill"); 0 when it does neither.
int bytes_before(std::string_view line, std::string_view word) {
  const size_t at = line.find(word);
  if (at == std::string_view::npos) return 0;
  const size_t byte = line.rfind("-byte", at);
  if (byte == std::string_view::npos) return 0;
  size_t first = byte;
  while (first > 0 && isdigit(static_cast<unsigned char>(line[first - 1]))) --first;
  return first == byte ? 0 : std::stoi(std::string(line.substr(first, byte - first)));
}

struct Loop {
  size_t first, last;  // lines: its label, its backward jump
};

}  // namespace

// A loop is what lies between a label and a later jump back to it; it is an inner loop when it contains no other.
std::vector<InnerLoopReport> report_inner_loops(std::string_view assembly, const std::string& kernel) {
  std::vector<std::string_view> lines;
  for (size_t at = 0; at < assembly.size();) {
    const size_t end = std::min(assembly.find('\n', at), assembly.size());
    lines.push_back(assembly.substr(at, end - at));
    at = end + 1;
  }
  std::map<std::string_view, size_t> labels;
  std::vector<Loop> loops;
  for (size_t n = 0; n < lines.size(); ++n) {
    std::string_view line = lines[n];
    if (line.substr(0, 2) == ".L" && line.find(':') != std::string_view::npos) {
      labels[line.substr(0, line.find(':'))] = n;
      continue;
    }
    const size_t target = line.find(".L");
    if (target == std::string_view::npos || line.empty() || line[0] != '\t' || line.find('(') != std::string_view::npos)
      continue;
    std::string_view name = line.substr(target);
    name = name.substr(0, name.find_first_of(" \t,"));
    if (const auto found = labels.find(name); found != labels.end()) loops.push_back({found->second, n});
  }
  constexpr int vector_bytes = 16;
  std::vector<InnerLoopReport> reports;
  for (const Loop& loop : loops) {
    const bool is_outer = std::any_of(loops.begin(), loops.end(), [&](const Loop& other) {
      return (other.first != loop.first || other.last != loop.last) && other.first >= loop.first &&
             other.last <= loop.last;
    });
    if (is_outer) continue;
    InnerLoopReport report;
    report.kernel = kernel;
    report.line = static_cast<int>(loop.first) + 1;
    for (size_t n = loop.first; n <= loop.last; ++n) {
      report.vector_spills += bytes_before(lines[n], "Spill") >= vector_bytes;
      report.vector_reloads += bytes_before(lines[n], "Reload") >= vector_bytes;
    }
    reports.push_back(report);
  }
  return reports;
}

}  // namespace tw
