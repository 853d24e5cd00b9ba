#include "runtime/error.h"

namespace tw {
namespace {

std::string text_of(ErrorCode code) {
  return "TW" + std::to_string(static_cast<int>(code));
}

}  // namespace

Error::Error(ErrorCode code, const std::string& message)
    : std::runtime_error(text_of(code) + " " + message), code_(code) {}

std::string Error::code_text() const {
  return text_of(code_);
}

void internal_error(const std::string& message, std::source_location where) {
  throw Error(ErrorCode::internal, std::string("internal error at ") + where.file_name() + ":" +
                                       std::to_string(where.line()) + " (" + where.function_name() + "): " + message +
                                       "\n  help: this is a bug of Tilewright; please report it with the model");
}

}  // namespace tw
