// libFuzzer over what the runtime reads: code images, plans, artifacts and .npy files.  The first byte chooses. Nothing
// is run; an Error is the only way out.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "runtime/artifact/artifact.h"
#include "runtime/artifact/elf_image.h"
#include "runtime/npy.h"
#include "runtime/plan/plan_io.h"

namespace {

// The bytes as a file in memory, for readers that map files.
struct MemoryFile {
  int descriptor = memfd_create("fuzz", MFD_CLOEXEC);
  std::string path = "/proc/self/fd/" + std::to_string(descriptor);

  explicit MemoryFile(std::span<const std::byte> bytes) {
    if (descriptor < 0 || write(descriptor, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
      std::abort();
  }
  ~MemoryFile() { close(descriptor); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size)).subspan(1);
  // An ELF file chooses itself, so that images serve as they are.
  try {
    switch (data[0]) {
      case 0x7f:
        tw::ElfImage(std::as_bytes(std::span(data, size)));
        break;
      case 'p':
        (void)tw::find_plans_problem(tw::read_plans(bytes, "fuzz"));
        break;
      case 'n':
        for (const tw::DType expected : {tw::bf16, tw::f8e5m2}) {
          try {
            (void)tw::read_npy(MemoryFile(bytes).path, expected);
          } catch (const tw::Error&) {
          }
        }
        break;
      default:
        tw::Artifact::open(MemoryFile(bytes).path).verify_constants();
    }
  } catch (const tw::Error& error) {
    if (error.code() == tw::ErrorCode::internal || error.code() == tw::ErrorCode::file) std::abort();
  }
  return 0;
}
