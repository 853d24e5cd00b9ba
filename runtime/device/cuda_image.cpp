#include "runtime/device/cuda_image.h"

#include <cstdint>
#include <cstring>

#include "runtime/error.h"

namespace tw {

std::vector<std::byte> join_ptx(std::vector<std::byte> cubin, std::string_view ptx) {
  std::vector<std::byte> image = std::move(cubin);
  const uint64_t bytes = ptx.size() + 1;
  const auto text = std::as_bytes(std::span(ptx)), length = std::as_bytes(std::span(&bytes, 1));
  image.insert(image.end(), text.begin(), text.end());
  image.push_back(std::byte{0});
  image.insert(image.end(), length.begin(), length.end());
  return image;
}

std::string_view ptx_of(std::span<const std::byte> image) {
  uint64_t bytes = 0;
  if (image.size() > sizeof bytes) std::memcpy(&bytes, image.data() + image.size() - sizeof bytes, sizeof bytes);
  if (bytes == 0 || bytes > image.size() - sizeof bytes || image[image.size() - sizeof bytes - 1] != std::byte{0})
    throw Error(ErrorCode::artifact, "the code has no PTX\n  help: it is damaged; compile the model again");
  const auto text = image.last(bytes + sizeof bytes).first(bytes - 1);
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

std::string_view cuda_version_of(std::string_view ptx) {
  constexpr std::string_view before = "Cuda compilation tools, release ";
  const size_t at = ptx.find(before);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = ptx.substr(at + before.size());
  return rest.substr(0, rest.find_first_not_of("0123456789."));
}

}  // namespace tw
