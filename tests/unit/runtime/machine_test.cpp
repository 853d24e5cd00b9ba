// What the runtime knows of the machine, and .npy files.
#include "runtime/machine/machine.h"

#include <gtest/gtest.h>

#include <sstream>

#include "runtime/npy.h"
#include "tests/unit/runtime/test_model.h"

namespace tw {
namespace {

using namespace test;

TEST(HostCpu, AgreesWithTheKernel) {
  const HostCpu& cpu = host_cpu();
  EXPECT_TRUE(std::is_sorted(cpu.features.begin(), cpu.features.end()));
  if (cpu.architecture != "x86_64") return;
  std::ifstream info("/proc/cpuinfo");
  std::string flags;
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("flags", 0) == 0) flags = line + " ";
  }
  // The kernel's name of each feature that code here is compiled for.
  const std::pair<const char*, const char*> names[] = {{"sse3", "pni"},
                                                       {"ssse3", "ssse3"},
                                                       {"sse4.1", "sse4_1"},
                                                       {"sse4.2", "sse4_2"},
                                                       {"avx", "avx"},
                                                       {"avx2", "avx2"},
                                                       {"fma", "fma"},
                                                       {"f16c", "f16c"},
                                                       {"avx512f", "avx512f"},
                                                       {"avx512bw", "avx512bw"},
                                                       {"avx512vl", "avx512vl"},
                                                       {"avx512dq", "avx512dq"},
                                                       {"avx512cd", "avx512cd"},
                                                       {"avx512vnni", "avx512_vnni"},
                                                       {"avx512bf16", "avx512_bf16"},
                                                       {"avx512fp16", "avx512_fp16"},
                                                       {"avxvnni", "avx_vnni"},
                                                       {"amx-tile", "amx_tile"},
                                                       {"amx-bf16", "amx_bf16"},
                                                       {"amx-int8", "amx_int8"},
                                                       {"bmi", "bmi1"},
                                                       {"bmi2", "bmi2"},
                                                       {"movbe", "movbe"},
                                                       {"popcnt", "popcnt"},
                                                       {"lzcnt", "abm"},
                                                       {"avx512vbmi", "avx512vbmi"},
                                                       {"gfni", "gfni"}};
  for (auto [ours, kernel] : names) {
    EXPECT_EQ(cpu.has(ours), flags.find(" " + std::string(kernel) + " ") != std::string::npos) << ours;
  }
}

TEST(HostCpu, RequirementsAreCompared) {
  const HostCpu old{"x86_64", "", {"avx", "avx2", "fma"}};
  EXPECT_EQ(reason_not_runnable({"x86_64", "x86:avx2", {"avx2", "fma"}}, old), "");
  EXPECT_EQ(reason_not_runnable({"x86_64", "x86:avx512", {"avx2", "avx512f", "avx512bw"}}, old),
            "this CPU lacks avx512f, avx512bw");
  EXPECT_EQ(reason_not_runnable({"aarch64", "rpi4", {}}, old), "this machine is x86_64, the code is for aarch64");
  Caught error = caught([&] { require_runnable({"x86_64", "x86:avx512", {"avx512f"}}, "m.twa", old); });
  EXPECT_EQ(error.code, ErrorCode::wrong_machine);
  EXPECT_EQ(error.text.rfind("TW1202 m.twa: built for x86:avx512, this CPU lacks avx512f\n  help: ", 0), 0u)
      << error.text;
}

TEST(Machine, FiguresAreSane) {
  for (const int threads : {1, 2}) {
    for (const auto& measure : {measure_peak_flops, measure_read_bandwidth, measure_copy_bandwidth}) {
      const double figure = measure(threads, 0.05);
      EXPECT_GT(figure, 1e7);  // on a busy machine under the sanitizers
      EXPECT_LT(figure, 2e13);
    }
  }
  const CacheSizes caches = cache_sizes();
  EXPECT_GE(caches.l1_data, 8 << 10);
  EXPECT_GE(caches.l1_ways, 1);
  EXPECT_GE(caches.l2, caches.l1_data);
}

TEST(Npy, EveryTypeRoundTrips) {
  Folder folder;
  for (DType dtype : {f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, boolean}) {
    for (Shape shape : {Shape{}, Shape{5}, Shape{2, 3}, Shape{0, 4}}) {
      NDArray array(dtype, shape);
      for (int64_t i = 0; i < array.size(); ++i) array.set_int(i, i % 2);
      write_npy(folder / "a.npy", array);
      NDArray back = read_npy(folder / "a.npy", dtype);
      EXPECT_EQ(back.dtype(), dtype);
      EXPECT_EQ(back.shape(), shape);
      EXPECT_EQ(std::memcmp(back.data(), array.data(), array.byte_size()), 0);
    }
  }
}

TEST(Npy, DamageIsRefused) {
  Folder folder;
  write_npy(folder / "good.npy", NDArray::from<float>(f32, {2, 2}, std::vector<float>{1, 2, 3, 4}));
  const std::vector<std::byte> good = read_bytes(folder / "good.npy");
  EXPECT_EQ(good.size() % 64, 16u) << "the data start at a multiple of 64";
  for (size_t length = 0; length < good.size(); ++length) {
    write_bytes(folder / "bad.npy", std::span(good).first(length));
    EXPECT_EQ(caught([&] { (void)read_npy(folder / "bad.npy", f32); }).code, ErrorCode::input) << length;
  }
  auto with_header = [&](const std::string& header) {
    std::string text =
        std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' + header + std::string(64, '\0');
    write_bytes(folder / "bad.npy", std::as_bytes(std::span(text)));
    return caught([&] { (void)read_npy(folder / "bad.npy", f32); }).code;
  };
  EXPECT_EQ(with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }\n"), ErrorCode{0});
  EXPECT_EQ(with_header("{'descr': '>f4', 'fortran_order': False, 'shape': (2, 2), }\n"), ErrorCode::input);
  EXPECT_EQ(with_header("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }\n"), ErrorCode::input);
  EXPECT_EQ(with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (2, -2), }\n"), ErrorCode::input);
  EXPECT_EQ(with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999, 99999999), }\n"),
            ErrorCode::input);
  EXPECT_EQ(with_header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }\n"), ErrorCode::input);
  EXPECT_EQ(with_header("{'descr': '<f4', 'shape': (2, 2), }\n"), ErrorCode::input);
  EXPECT_EQ(with_header("{'descr': '<f4', 'fortran_order': False, 'shape': "), ErrorCode::input);
}

}  // namespace
}  // namespace tw
