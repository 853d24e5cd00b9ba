// Located messages:
//
//   error[split]: factor 48 does not divide extent 64 of loop `i`
//     conv.tw:7  for i in 0..64:
//                    ^ extent 64
//     help: use [4, 16], or tail=guard
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tensor_ir/text/span.h"

namespace tw {

struct Diagnostic {
  std::string topic;  // "split", "parse", "verify"
  std::string message;
  std::string note;  // beside the caret
  std::string help;
  Span span;
};

// `file` and `source` may be empty: then only message and help are shown.
std::string render(const Diagnostic& diagnostic, const std::string& file, std::string_view source);

// The candidate that `name` is most likely a misspelling of; empty when none is near.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);
// A help line for an unknown name: "did you mean `x`?", else "known here: a, b, c"; empty when nothing is known.
std::string suggest_name(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace tw
