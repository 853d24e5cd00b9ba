// Element types, their 16-bit conversions, and arrays.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>

#include "runtime/artifact/file_map.h"
#include "runtime/memory.h"
#include "runtime/ndarray.h"

namespace tw {
namespace {

ErrorCode code_of(auto&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode{0};
}

TEST(Storage, LastingBlocksLieOnHugePages) {
#if !defined(__has_feature) || !__has_feature(address_sanitizer)
  constexpr size_t huge_page = 2 << 20;
  EXPECT_TRUE(is_aligned(allocate_lasting_storage(huge_page / 2).get(), huge_page));
  EXPECT_TRUE(is_aligned(allocate_storage(2 * huge_page).get(), huge_page));
#endif
  EXPECT_TRUE(is_aligned(allocate_lasting_storage(1).get()));
  EXPECT_NE(allocate_lasting_storage(0), nullptr);
}

TEST(Storage, CopiesPastCachesAreCopies) {
  std::array<unsigned char, 512> from;
  std::iota(from.begin(), from.end(), static_cast<unsigned char>(1));
  // Whole lines, lines from a source that lies anywhere, and what begins or ends within a line.
  for (const auto& [at, source, bytes] :
       {std::array<size_t, 3>{64, 0, 256}, {0, 3, 128}, {8, 0, 128}, {64, 1, 100}, {0, 0, 0}}) {
    alignas(64) std::array<unsigned char, 512> to{};
    copy_past_caches(to.data() + at, from.data() + source, bytes);
    publish_copies();
    EXPECT_EQ(std::memcmp(to.data() + at, from.data() + source, bytes), 0) << at << " " << bytes;
    EXPECT_EQ(std::count(to.begin(), to.end(), 0),
              std::ssize(to) - static_cast<ptrdiff_t>(bytes) +
                  std::count(from.begin() + source, from.begin() + source + bytes, 0));
  }
}

TEST(NDArray, MayLieInAFile) {
  const auto path = std::filesystem::temp_directory_path() / ("tw_array_" + std::to_string(getpid()));
  std::vector<float> values(1 << 15);
  std::iota(values.begin(), values.end(), 0.0f);
  const std::array<std::byte, 12> before{};
  const std::span<const std::byte> parts[] = {before, std::as_bytes(std::span(values))};
  write_file(path, parts);
  const size_t bytes = values.size() * sizeof(float);
  const NDArray array(f32, {2, 1 << 14}, FileMap::open(path, 12, bytes));
  ASSERT_TRUE(array.file());
  EXPECT_FALSE(array.is_sole_owner()) << "nobody may write to it";
  EXPECT_EQ(array.reshape({1 << 15}).get_float((1 << 15) - 1), values.back());
  array.file()->forget(array.file()->bytes());
  EXPECT_EQ(std::memcmp(array.data(), values.data(), bytes), 0) << "it is read again";
  EXPECT_FALSE(array.clone().file());
  EXPECT_EQ(code_of([&] { FileMap::open(path, 13, bytes); }), ErrorCode::file) << "too short";
  EXPECT_EQ(code_of([&] { FileMap::open(path, bytes + 13, 0); }), ErrorCode::file);
  std::filesystem::remove(path);
}

TEST(DType, TextRoundTrips) {
  for (DType dtype : {f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, boolean}) {
    EXPECT_EQ(parse_dtype(to_string(dtype)), dtype);
    EXPECT_EQ(parse_dtype(to_string(dtype.with_lanes(16))), dtype.with_lanes(16));
  }
  EXPECT_EQ(to_string(bf16.with_lanes(32)), "bf16x32");
  for (const DType dtype : narrow_types) {
    EXPECT_EQ(parse_element_type(to_string(dtype)), dtype);
    EXPECT_EQ(parse_dtype(to_string(dtype)), std::nullopt) << "no type of loops";
    EXPECT_EQ(dtype.bytes(), 1);
    EXPECT_FALSE(dtype.stored().is_narrow());
  }
  EXPECT_EQ(parse_element_type("f32"), f32);
  EXPECT_EQ(parse_element_type("f32x4"), std::nullopt);
  for (const char* wrong : {"", "f", "f33", "f32x", "f32x1", "f32x0", "f32x99999", "f32x4x4", "x4", "F32"}) {
    EXPECT_EQ(parse_dtype(wrong), std::nullopt) << wrong;
  }
}

TEST(Half, EveryF16SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    float value = f16_to_float(static_cast<uint16_t>(bits));
    uint16_t back = float_to_f16(value);
    if (std::isnan(value)) {
      EXPECT_EQ(back, bits | 0x200) << bits;
    } else {
      EXPECT_EQ(back, bits);
    }
  }
}

// Clang converts _Float16 as IEEE says, which makes it an independent reference.
TEST(Half, F16RoundsAsTheCompilerDoes) {
  uint32_t state = 1;
  for (int i = 0; i < 2'000'000; ++i) {
    state = state * 1664525 + 1013904223;
    // Half of the samples in the range where f16 has values, half anywhere.
    uint32_t bits = i % 2 ? state : (state & 0x87ffffff) | (0x30000000 + (state >> 3 & 0x1f000000));
    float value = std::bit_cast<float>(bits);
    if (std::isnan(value)) continue;
    ASSERT_EQ(float_to_f16(value), std::bit_cast<uint16_t>(static_cast<_Float16>(value))) << value;
  }
  EXPECT_EQ(float_to_f16(65519.99f), 0x7bff);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_f16(0x1p-25f), 0);
  EXPECT_EQ(float_to_f16(std::nextafter(0x1p-25f, 1.0f)), 1);
}

TEST(Half, Bf16RoundsToNearestEven) {
  EXPECT_EQ(float_to_bf16(1.0f), 0x3f80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // a tie, to even
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0x7f800001u)))));
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    if (float value = bf16_to_float(static_cast<uint16_t>(bits)); !std::isnan(value)) {
      ASSERT_EQ(float_to_bf16(value), bits);
    }
  }
}

TEST(Minifloat, EveryCodeSurvivesTheRoundTrip) {
  for (const DType dtype : narrow_types) {
    if (!dtype.is_minifloat()) continue;
    for (int code = 0; code < 1 << dtype.bits; ++code) {
      const float value = minifloat_to_float(dtype, static_cast<uint8_t>(code));
      const uint8_t back = float_to_minifloat(dtype, value);
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(minifloat_to_float(dtype, back))) << to_string(dtype) << " " << code;
      } else {
        EXPECT_EQ(back, code) << to_string(dtype);
      }
    }
  }
}

// What a number becomes is the code of the nearest one; of two as near, that with an even code.
TEST(Minifloat, RoundsToTheNearestCode) {
  for (const DType dtype : narrow_types) {
    if (!dtype.is_minifloat() || dtype == f8e8m0) continue;
    const int largest = minifloat_format(dtype).largest;
    const double most = minifloat_to_float(dtype, static_cast<uint8_t>(largest));
    for (int i = 0; i <= 3000; ++i) {
      const auto value = static_cast<float>(i % 2 ? most * i / 3000 : most * std::pow(2.0, -i / 100.0));
      int nearest = 0;
      for (int code = 1; code <= largest; ++code) {
        const auto distance = [&](int c) {
          return std::fabs(double{value} - minifloat_to_float(dtype, static_cast<uint8_t>(c)));
        };
        if (distance(code) < distance(nearest) || (distance(code) == distance(nearest) && code % 2 == 0))
          nearest = code;
      }
      ASSERT_EQ(float_to_minifloat(dtype, value), nearest) << to_string(dtype) << " of " << value;
    }
  }
}

TEST(Minifloat, HasTheLimitsOfItsFormat) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const auto through = [](DType dtype, float value) {
    return minifloat_to_float(dtype, float_to_minifloat(dtype, value));
  };
  EXPECT_EQ(through(f8e4m3fn, 464.0f), 448.0f) << "a tie, to even";
  EXPECT_TRUE(std::isnan(through(f8e4m3fn, 465.0f)));
  EXPECT_TRUE(std::isnan(through(f8e4m3fn, -infinity)));
  EXPECT_EQ(through(f8e4m3fn, 0x1p-9f), 0x1p-9f);
  EXPECT_EQ(through(f8e4m3fnuz, 240.0f), 240.0f);
  EXPECT_TRUE(std::isnan(through(f8e4m3fnuz, 300.0f)));
  EXPECT_EQ(float_to_minifloat(f8e4m3fnuz, -0.0f), 0);
  EXPECT_EQ(through(f8e5m2, 57344.0f), 57344.0f);
  EXPECT_EQ(through(f8e5m2, -1e9f), -infinity);
  EXPECT_EQ(through(f8e5m2fnuz, 0x1p-17f), 0x1p-17f);
  EXPECT_TRUE(std::isnan(through(f8e5m2fnuz, infinity)));
  EXPECT_EQ(through(f4e2m1, 1e9f), 6.0f);
  EXPECT_EQ(through(f4e2m1, 2.5f), 2.0f);
  EXPECT_EQ(through(f4e2m1, -0.3f), -0.5f);
  EXPECT_EQ(through(f8e8m0, 3.0f), 4.0f);
  EXPECT_EQ(through(f8e8m0, 2.9f), 2.0f);
  EXPECT_EQ(through(f8e8m0, 0x1p-127f), 0x1p-127f);
  EXPECT_TRUE(std::isnan(through(f8e8m0, -1.0f)));
}

TEST(NDArray, HoldsNarrowTypes) {
  NDArray array(i4, {4});
  for (int i = 0; i < 4; ++i) array.set_int(i, 5 + i);
  EXPECT_EQ(array.byte_size(), 4u);
  EXPECT_EQ(array.get_int(2), 7);
  EXPECT_EQ(array.get_int(3), -8) << "the low bits";
  array.set_float(0, 100);
  EXPECT_EQ(array.get_int(0), 7) << "saturates";
  array.as<uint8_t>()[1] = 0x0f;
  EXPECT_EQ(array.get_int(1), -1) << "the low bits count";
  EXPECT_EQ(array.stored().dtype(), i8);
  NDArray unsigned_array(u2, {1});
  unsigned_array.set_float(0, -3);
  EXPECT_EQ(unsigned_array.get_int(0), 0);
  NDArray floats(f8e5m2, {1});
  floats.set_int(0, 9);
  EXPECT_EQ(floats.get_float(0), 8) << "a tie, to even";
}

TEST(NDArray, HoldsEveryType) {
  for (DType dtype : {f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, boolean}) {
    NDArray array(dtype, {2, 3});
    EXPECT_TRUE(is_aligned(array.data()));
    for (int i = 0; i < 6; ++i) array.set_int(i, i % 2);
    EXPECT_EQ(array.get_int(3), 1) << to_string(dtype);
    EXPECT_EQ(array.get_float(3), 1.0) << to_string(dtype);
    array.set_float(2, 1.0);
    EXPECT_EQ(array.get_int(2), 1) << to_string(dtype);
    EXPECT_EQ(array.byte_size(), static_cast<size_t>(6 * dtype.bytes()));
  }
}

TEST(NDArray, IntegersSaturate) {
  NDArray bytes(i8, {3});
  bytes.set_float(0, 1e9);
  bytes.set_float(1, -1e9);
  bytes.set_float(2, std::nan(""));
  EXPECT_EQ(bytes.get_int(0), 127);
  EXPECT_EQ(bytes.get_int(1), -128);
  EXPECT_EQ(bytes.get_int(2), 0);
  NDArray wide(u64, {1});
  wide.set_float(0, 1e30);
  EXPECT_EQ(wide.as<uint64_t>()[0], std::numeric_limits<uint64_t>::max());
}

TEST(NDArray, CopiesShareAndClonesDoNot) {
  NDArray array = NDArray::from<float>(f32, {4}, std::vector<float>{1, 2, 3, 4});
  NDArray view = array.reshape({2, 2}), clone = array.clone();
  array.set_float(0, 9);
  EXPECT_EQ(view.get_float(0), 9);
  EXPECT_EQ(clone.get_float(0), 1);
  EXPECT_EQ(code_of([&] { (void)array.reshape({3}); }), ErrorCode::internal);
  EXPECT_EQ(code_of([&] { (void)array.get_float(4); }), ErrorCode::internal);
}

TEST(NDArray, EmptyAndHugeShapes) {
  EXPECT_TRUE(NDArray(f32, {0, 5}).is_defined());
  EXPECT_EQ(element_count(Shape{int64_t{1} << 62, 4, 0}), 0);
  EXPECT_EQ(element_count(Shape{}), 1);
  EXPECT_EQ(code_of([] { NDArray(f32, {int64_t{1} << 40, int64_t{1} << 40}); }), ErrorCode::limit);
  EXPECT_EQ(code_of([] { NDArray(f64, {int64_t{1} << 61}); }), ErrorCode::limit);
  EXPECT_EQ(code_of([] { NDArray(f32, {-1}); }), ErrorCode::shape);
}

TEST(NDArray, LargeOnesAreZeroPagesAlignedToTwoMegabytes) {
  NDArray array(f32, {8 << 20});
#if !__has_feature(address_sanitizer)
  EXPECT_EQ(reinterpret_cast<uintptr_t>(array.data()) % (2 << 20), 0u);
#endif
  array.set_float(0, 1);
  array.set_float((8 << 20) - 1, 2);
  EXPECT_EQ(array.get_float((8 << 20) - 1), 2);
}

TEST(Error, HasACodeAndALocation) {
  Error error(ErrorCode::unsupported, "model.onnx: no");
  EXPECT_STREQ(error.what(), "TW1003 model.onnx: no");
  EXPECT_EQ(error.code_text(), "TW1003");
  try {
    check(1 + 1 == 3, "arithmetic holds");
    FAIL();
  } catch (const Error& thrown) {
    EXPECT_EQ(thrown.code(), ErrorCode::internal);
    EXPECT_NE(std::string(thrown.what()).find("array_test.cpp"), std::string::npos);
    EXPECT_NE(std::string(thrown.what()).find("arithmetic holds"), std::string::npos);
  }
}

}  // namespace
}  // namespace tw
