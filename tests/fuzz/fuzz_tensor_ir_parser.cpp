// libFuzzer over the parser of tensor_ir: whatever parses must print and read back as itself, and be judged by the
// verifier.
#include <cstdint>
#include <cstdlib>

#include "tensor_ir/structural.h"
#include "tensor_ir/text/parser.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/verify.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<tw::Func> funcs;
  try {
    funcs = tw::parse_funcs({reinterpret_cast<const char*>(data), size});
  } catch (const tw::Error& e) {
    if (e.code() != tw::ErrorCode::text) std::abort();
    return 0;
  }
  for (const tw::Func& f : funcs) {
    std::string text = tw::to_text(f);
    tw::Func again = tw::parse_func(text);
    if (!tw::structural_equal(f, again) || tw::structural_hash(f) != tw::structural_hash(again) ||
        tw::to_text(again) != text)
      std::abort();
    try {
      tw::verify(f);
    } catch (const tw::Error& e) {
      if (e.code() != tw::ErrorCode::verify) std::abort();
    }
  }
  return 0;
}
