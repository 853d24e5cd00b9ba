#include "runtime/device/control.h"

#include <limits>
#include <string>

namespace tw {

Error failed_check(const Step& step, int64_t a, int64_t b) {
  return {ErrorCode::input, step.kernel + " does not hold: the one is " + std::to_string(a) + ", the other " +
                                std::to_string(b) + (step.name.empty() ? "" : "; " + step.name + " demands it") +
                                "\n  help: give inputs of other sizes"};
}

Error failed_demand(const std::string& text, int64_t number) {
  return {ErrorCode::input, text + " is " + std::to_string(number) + ", which is outside\n  help: give other inputs"};
}

Error failed_read(const Step& step, int64_t number, int64_t low, int64_t high) {
  const bool has_end = high != std::numeric_limits<int64_t>::max();
  return {ErrorCode::input, step.kernel + " is " + std::to_string(number) + ", but " + step.name + " can take " +
                                std::to_string(low) + (has_end ? " to " + std::to_string(high) : " or more") +
                                "\n  help: give other inputs"};
}

int64_t number_at(const void* address, int64_t bytes) {
  return bytes == 8   ? *static_cast<const int64_t*>(address)
         : bytes == 4 ? *static_cast<const int32_t*>(address)
                      : *static_cast<const uint8_t*>(address);
}

}  // namespace tw
