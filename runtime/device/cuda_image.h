// What kernels for a target such as cuda:sm_80+ptx are: a cubin, and their PTX for GPUs that are newer than it.
//
//   0  the cubin, an ELF file  |  PTX, which ends with a zero  |  bytes of it and its zero: uint64_t
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace tw {

inline constexpr const char* ptx_feature = "ptx";  // of the requirements of such an image

std::vector<std::byte> join_ptx(std::vector<std::byte> cubin, std::string_view ptx);
// Of such an image; it ends with a zero.  Error(artifact).
std::string_view ptx_of(std::span<const std::byte> image);
// Of the CUDA whose compiler made it: "13.0"; empty where it does not say.
std::string_view cuda_version_of(std::string_view ptx);

}  // namespace tw
