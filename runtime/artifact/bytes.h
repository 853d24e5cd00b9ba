// Little-endian records in memory: a writer, and a reader that checks every length before it uses it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "runtime/error.h"
#include "runtime/rounding.h"

namespace tw {

static_assert(std::endian::native == std::endian::little, "Tilewright runs on little-endian machines");

class ByteWriter {
 public:
  template <class T>
    requires std::is_arithmetic_v<T>
  void put(T value) {
    put_bytes(std::as_bytes(std::span(&value, 1)));
  }
  void put_bytes(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  void put_text(std::string_view text) {
    put(static_cast<uint32_t>(text.size()));
    put_bytes(std::as_bytes(std::span(text)));
  }
  void pad_to(size_t alignment) { bytes_.resize(round_up(bytes_.size(), alignment)); }
  size_t size() const { return bytes_.size(); }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// Error(artifact) "WHERE, byte N: …" on anything that does not fit.
class ByteReader {
 public:
  ByteReader(std::span<const std::byte> bytes, std::string where) : bytes_(bytes), where_(std::move(where)) {}

  template <class T>
    requires std::is_arithmetic_v<T>
  T get() {
    T value;
    std::span<const std::byte> raw = get_bytes(sizeof(T));
    std::memcpy(&value, raw.data(), sizeof(T));
    return value;
  }
  std::span<const std::byte> get_bytes(size_t count) {
    if (count > remaining()) fail("it ends in the middle of a record");
    std::span<const std::byte> result = bytes_.subspan(position_, count);
    position_ += count;
    return result;
  }
  std::string get_text() {
    std::span<const std::byte> raw = get_bytes(get<uint32_t>());
    return {reinterpret_cast<const char*>(raw.data()), raw.size()};
  }
  // The length of a list whose elements take at least `least_bytes` each, so that nobody allocates for an absurd one.
  size_t get_count(size_t least_bytes) {
    auto count = get<uint32_t>();
    if (count > remaining() / least_bytes) fail("a list of " + std::to_string(count) + " elements does not fit");
    return count;
  }
  size_t remaining() const { return bytes_.size() - position_; }
  [[noreturn]] void fail(const std::string& problem) const {
    throw Error(ErrorCode::artifact, where_ + ", byte " + std::to_string(position_) + ": " + problem +
                                         "\n  help: the artifact is damaged; compile the model again");
  }

 private:
  std::span<const std::byte> bytes_;
  std::string where_;
  size_t position_ = 0;
};

}  // namespace tw
