#include "tensor_ir/text/syntax.h"

#include <algorithm>
#include <charconv>

#include "tensor_ir/scalar_meaning.h"

namespace tw::syntax {
namespace {

std::string escape(std::string_view value, char quote) {
  static constexpr char hex[] = "0123456789abcdef";
  std::string out(1, quote);
  for (char c : value) {
    auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\')
      out += {'\\', c};
    else if (c == '\n')
      out += "\\n";
    else if (byte < 0x20 || byte == 0x7f)
      out += {'\\', 'x', hex[byte >> 4], hex[byte & 15]};
    else
      out += c;
  }
  return out + quote;
}

}  // namespace

std::optional<DType> special_float(std::string_view word, bool& is_nan) {
  if (!word.starts_with("inf_") && !word.starts_with("nan_")) return std::nullopt;
  is_nan = word[0] == 'n';
  std::optional<DType> dtype = parse_dtype(word.substr(4));
  if (!dtype || !dtype->is_float() || dtype->lanes != 1) return std::nullopt;
  return dtype;
}

std::string bounds_text(const DimensionBounds& bounds) {
  if (bounds == DimensionBounds{}) return "";
  const bool has_end = bounds.high != DimensionBounds{}.high;
  return ": " + std::to_string(bounds.low) + ".." + (has_end ? std::to_string(bounds.high) : "");
}

bool is_reserved(std::string_view name) {
  bool is_nan;
  return std::find(std::begin(reserved_words), std::end(reserved_words), name) != std::end(reserved_words) ||
         special_float(name, is_nan).has_value();
}

bool is_plain_name(std::string_view name) {
  if (name.empty() || !is_letter(name[0])) return false;
  for (size_t i = 1; i < name.size(); ++i) {
    if (is_letter(name[i]) || is_digit(name[i])) continue;
    if (name[i] != '.' || i + 1 == name.size() || name[i + 1] == '.') return false;
  }
  return true;
}

std::string quote_name(std::string_view name) {
  return is_plain_name(name) && !is_reserved(name) ? std::string(name) : escape(name, '`');
}

std::string quote_key(std::string_view key) {
  size_t colon = key.find(':');
  bool is_plain = colon == std::string_view::npos
                      ? is_plain_name(key)
                      : is_plain_name(key.substr(0, colon)) && is_plain_name(key.substr(colon + 1));
  return is_plain ? std::string(key) : escape(key, '`');
}

std::string quote_string(std::string_view value) {
  return escape(value, '"');
}

std::string float_digits(DType dtype, double value) {
  char buffer[40];
  char* end = buffer + sizeof buffer;
  std::to_chars_result result{};
  if (dtype.bits == 64) {
    result = std::to_chars(buffer, end, value);
  } else if (dtype.bits == 32) {
    result = std::to_chars(buffer, end, static_cast<float>(value));
  } else {
    for (int digits = 1; digits <= 9; ++digits) {
      result = std::to_chars(buffer, end, static_cast<float>(value), std::chars_format::general, digits);
      float read = 0;
      std::from_chars(buffer, result.ptr, read);
      if (meaning::round_to(dtype, read) == value) break;
    }
  }
  std::string digits(buffer, result.ptr);
  if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
  return digits;
}

}  // namespace tw::syntax
