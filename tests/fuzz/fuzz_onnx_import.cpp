// libFuzzer over the ONNX importer: whatever the bytes, the answer is a graph that verifies and reads back from its
// text, or an Error that is the user's; explain never fails where import does not.
#include <cstdint>
#include <cstdlib>

#include "frontends/onnx/import.h"
#include "frontends/report.h"
#include "relay_ir/text/parser.h"
#include "relay_ir/verify.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  tw::relay::Graph graph;
  try {
    graph = tw::frontends::import_onnx(bytes);
  } catch (const tw::Error& e) {
    if (e.code() == tw::ErrorCode::internal) std::abort();
    return 0;
  }
  tw::relay::verify(graph);
  (void)tw::frontends::explain(tw::frontends::read_onnx(bytes));
  tw::relay::ConstantTable constants;
  const std::string text = tw::relay::to_text(graph, &constants);
  if (tw::relay::to_text(tw::relay::parse_graph(text, "fuzz", constants)) != text) std::abort();
  return 0;
}
