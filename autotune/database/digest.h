// 128 bits of what a text says, as 32 hexadecimal digits: the same on every platform.
#pragma once

#include <string>
#include <string_view>

namespace tw::autotune {

std::string digest_of(std::string_view text);

}  // namespace tw::autotune
