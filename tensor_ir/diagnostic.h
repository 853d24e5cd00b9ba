// Located messages:
//
//   error[split]: factor 48 does not divide extent 64 of loop `i`
//     conv.tw:7  for i in 0..64:
//                    ^ extent 64
//     help: use [4, 16], or tail=guard
#pragma once

#include <string>
#include <string_view>

#include "tensor_ir/span.h"

namespace tw {

struct Diagnostic {
  std::string topic;    // "split", "parse", "verify"
  std::string message;
  std::string note;     // beside the caret
  std::string help;
  Span span;
};

// `file` and `source` may be empty: then only message and help are shown.
std::string render(const Diagnostic& diagnostic, const std::string& file, std::string_view source);

}  // namespace tw
