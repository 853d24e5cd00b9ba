// What the products of a network are made of, and what is stored between its kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/dtype.h"

namespace tw::relay {

enum class Precision : uint8_t {
  f32,
  tf32,  // operands of products are rounded to it as they are multiplied; everything else is f32
  bf16,
  f16,  // weights, operands of products and values between kernels are stored so
};

std::string to_string(Precision precision);
std::optional<Precision> parse_precision(std::string_view text);
DType storage_of(Precision precision);  // of what need not be f32

}  // namespace tw::relay
