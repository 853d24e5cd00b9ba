// libFuzzer over the parser of graphs: whatever parses must print and read back as itself.
#include <cstdint>
#include <cstdlib>

#include "relay_ir/text/parser.h"
#include "relay_ir/verify.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tw::relay::Graph graph;
  try {
    graph = tw::relay::parse_graph({reinterpret_cast<const char*>(data), size});
  } catch (const tw::Error& e) {
    if (e.code() != tw::ErrorCode::text) std::abort();
    return 0;
  }
  tw::relay::ConstantTable constants;
  const std::string text = tw::relay::to_text(graph, &constants);
  if (tw::relay::to_text(tw::relay::parse_graph(text, "fuzz", constants)) != text) std::abort();
  try {
    tw::relay::verify(graph);
  } catch (const tw::Error& e) {
    if (e.code() != tw::ErrorCode::verify) std::abort();
  }
  return 0;
}
