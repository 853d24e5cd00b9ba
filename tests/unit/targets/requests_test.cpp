// How warps reach memory, as targets/cuda/requests.h tells it of hand-written loops.
#include "targets/cuda/requests.h"

#include <gtest/gtest.h>

#include "tests/unit/cuda_device.h"

namespace tw {
namespace {

// Of two warps; a sector has 32 bytes.
TEST(CudaRequests, AreToldByLoops) {
  const auto expect = [](const std::string& body, int64_t requests, int64_t sectors, int64_t least,
                         int64_t unknown = 0) {
    const Kernel kernel = test::flat_kernel(
        "func f(A: f32[4096], I: i64[64]) -> (C: f32[4096]) { for t in 0..64 thread.x { " + body + " } }");
    const MemoryRequests found = cuda::requests_of(kernel);
    EXPECT_EQ(found.requests, requests) << body;
    EXPECT_EQ(found.sectors, sectors) << body;
    EXPECT_EQ(found.least_sectors, least) << body;
    EXPECT_EQ(found.unknown, unknown) << body;
  };
  expect("C[t] = A[t]", 4, 16, 16);
  expect("C[t] = A[t + 1]", 4, 18, 16);
  expect("C[t] = A[0]", 4, 10, 10);
  expect("C[t] = A[t * 8]", 4, 72, 16);
  expect("C[ramp(t * 4, 1, 4)] = A[ramp(t * 4, 1, 4)]", 4, 64, 64);
  // Two accesses of 16 bytes each.
  expect("C[ramp(t * 8, 1, 8)] = A[ramp(t * 8, 1, 8)]", 8, 256, 128);
  expect("C[t] = A[I[t]]", 4, 24, 24, 2);
  expect("if t < 8 { C[t] = 1.0f }", 1, 1, 1);
  expect("for i in 0..3 { let k = i * 64 + t C[k] = A[k] }", 4, 16, 16);
}

}  // namespace
}  // namespace tw
