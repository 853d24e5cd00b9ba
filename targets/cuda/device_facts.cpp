#include "targets/cuda/device_facts.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/rounding.h"

namespace tw::cuda {
namespace {

constexpr int64_t KiB = 1 << 10, MiB = 1 << 20;

constexpr DeviceFacts known[] = {
    {75, "TITAN RTX", 72, 6 * MiB, 1.77, 672, 64, 32, 16, 0, 0, 0, false, 64 * KiB, 64 * KiB, 0},
    {80, "A100 SXM 80GB", 108, 40 * MiB, 1.41, 2039, 64, 64, 32, 1024, 2048, 0, false, 164 * KiB, 163 * KiB, KiB},
    {86, "GeForce RTX 3090 Ti", 84, 6 * MiB, 1.86, 1008, 128, 48, 16, 256, 1024, 0, false, 100 * KiB, 99 * KiB, KiB},
    {89, "GeForce RTX 4090", 128, 72 * MiB, 2.52, 1008, 128, 48, 24, 256, 1024, 512, false, 100 * KiB, 99 * KiB, KiB},
    {90, "H100 SXM", 132, 50 * MiB, 1.98, 3350, 128, 64, 32, 2048, 4096, 4096, true, 228 * KiB, 227 * KiB, KiB},
    {100, "B200", 148, 126 * MiB, 1.96, 8000, 128, 64, 32, 4096, 8192, 8192, true, 228 * KiB, 227 * KiB, KiB},
    {120, "GeForce RTX 5090", 170, 96 * MiB, 2.41, 1792, 128, 48, 24, 256, 1024, 512, false, 100 * KiB, 99 * KiB, KiB},
};

}  // namespace

const DeviceFacts* device_facts(int compute_capability) {
  const auto* found = std::find_if(std::begin(known), std::end(known), [&](const DeviceFacts& device) {
    return device.compute_capability == compute_capability;
  });
  return found == std::end(known) ? nullptr : found;
}

// As NVIDIA's occupancy calculator has it: registers are given to warps, 256 at a time, by four schedulers that each
// have a quarter of them; shared memory to blocks, 128 bytes at a time (1 KiB before sm_80: there 256).
Occupancy occupancy_of(const DeviceFacts& device, int threads, int registers, int64_t shared_bytes) {
  constexpr int schedulers = 4, register_unit = 256;
  const int warps = static_cast<int>(divide_up(std::max(threads, 1), threads_of_warp));
  const int64_t of_warp = round_up(int64_t{std::max(registers, 1)} * threads_of_warp, register_unit);
  const int64_t register_warps = registers_of_multiprocessor / schedulers / of_warp * schedulers;
  const int64_t of_block = round_up(shared_bytes + device.block_reserve, device.compute_capability < 80 ? 256 : 128);
  const std::pair<int64_t, std::string_view> limits[] = {
      {device.warps / warps, "warps"},
      {device.blocks, "blocks"},
      {register_warps / warps, "registers"},
      {of_block > 0 ? device.shared_bytes / of_block : device.blocks, "shared memory"},
  };
  const auto least = *std::min_element(std::begin(limits), std::end(limits),
                                       [](const auto& a, const auto& b) { return a.first < b.first; });
  return {static_cast<int>(least.first), static_cast<double>(least.first * warps) / device.warps, least.second};
}

}  // namespace tw::cuda
