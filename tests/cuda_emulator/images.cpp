#include "tests/cuda_emulator/images.h"

#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

namespace tw::cuda_emulator {
namespace {

size_t elf_bytes(const void* image) {
  Elf64_Ehdr head;
  std::memcpy(&head, image, sizeof head);
  return head.e_shoff + size_t{head.e_shentsize} * head.e_shnum;
}

// Machine code of a GPU runs on later ones of its major version.
bool runs_code_of(int capability) {
  const int own = capabilities().at(static_cast<size_t>(own_gpu()));
  return capability == 0 || (capability / 10 == own / 10 && capability <= own);
}

// Of PTX, what the emulator's NVRTC has put in; empty, with a result: the driver does not take it.
std::string compile(const std::string& ptx, Result& result) {
  const auto after = [&](const std::string& word) {
    const size_t at = ptx.find(word);
    return at == std::string::npos ? "" : ptx.substr(at + word.size(), ptx.find('\n', at) - at - word.size());
  };
  const std::string version = after(".version "), architecture = after(".target sm_"), digits = after("// image ");
  result = invalid_image;
  if (version.empty() || architecture.empty()) return "";
  const int ptx_cuda = (std::stoi(version) + 4) * 1000 + std::stoi(version.substr(version.find('.') + 1)) * 10;
  const bool is_of_one = architecture.ends_with('a');
  const int capability = std::stoi(architecture), own = capabilities().at(static_cast<size_t>(own_gpu()));
  result = ptx_cuda > cuda_version()                             ? unsupported_ptx
           : (is_of_one ? capability == own : capability <= own) ? success
                                                                 : no_binary;
  std::string image;
  for (size_t i = 0; result == success && i + 1 < digits.size(); i += 2)
    image += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
  return image;
}

LoadedModule open_image(const void* image) {
  const int file = memfd_create("cuda_module", MFD_CLOEXEC);
  const size_t bytes = elf_bytes(image);
  const bool is_written = write(file, image, bytes) == static_cast<ssize_t>(bytes);
  void* library =
      is_written ? dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;
  return {file, library, library ? static_cast<Module*>(dlsym(library, "tw_module")) : nullptr, own_gpu()};
}

}  // namespace

Result load(const void* image, LoadedModule& loaded) {
  const bool is_elf = std::memcmp(image, ELFMAG, SELFMAG) == 0;
  Result result = success;
  const std::string compiled = is_elf ? "" : compile(static_cast<const char*>(image), result);
  if (result != success) return result;
  loaded = open_image(is_elf ? image : compiled.data());
  if (loaded.module && (!is_elf || runs_code_of(loaded.module->compute_capability))) return success;
  unload(loaded);
  return no_binary;  // of another GPU, or of another machine
}

void unload(const LoadedModule& loaded) {
  if (loaded.library) dlclose(loaded.library);
  close(loaded.file);
}

}  // namespace tw::cuda_emulator
