#include "runtime/artifact/file_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "runtime/error.h"
#include "runtime/rounding.h"

namespace tw {
namespace {

[[noreturn]] void refuse_file(const std::filesystem::path& path, const std::string& action, const std::string& reason) {
  throw Error(ErrorCode::file,
              path.string() + ": cannot " + action + ": " + reason + "\n  help: check the path and its permissions");
}

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

std::shared_ptr<const FileMap> FileMap::open(const std::filesystem::path& path) {
  return open(path, 0, UINT64_MAX);
}

std::shared_ptr<const FileMap> FileMap::open(const std::filesystem::path& path, uint64_t first, uint64_t count) {
  // O_NONBLOCK: a FIFO without a writer must not hang us before fstat tells what it is.
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) refuse_file(path, "open it", std::strerror(errno));
  struct stat status;
  if (fstat(file.fd, &status) != 0) refuse_file(path, "read it", std::strerror(errno));
  if (!S_ISREG(status.st_mode)) refuse_file(path, "read it", "it is not an ordinary file");
  const auto size = static_cast<uint64_t>(status.st_size);
  if (count == UINT64_MAX) count = size - std::min(first, size);
  if (first > size || count > size - first) refuse_file(path, "read it", "it is too short");
  const uint64_t before = first % static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  if (count > uint64_t{PTRDIFF_MAX} - before)
    refuse_file(path, "map it", std::to_string(count) + " bytes exceed this machine's address space");

  std::shared_ptr<FileMap> map(new FileMap);
  if (count == 0) return map;
  void* data = mmap(nullptr, static_cast<size_t>(before + count), PROT_READ, MAP_PRIVATE, file.fd,
                    static_cast<off_t>(first - before));
  if (data == MAP_FAILED) refuse_file(path, "map it", std::strerror(errno));
  map->before_ = static_cast<size_t>(before);
  map->data_ = static_cast<const std::byte*>(data) + before;
  map->size_ = static_cast<size_t>(count);
  return map;
}

std::shared_ptr<const FileMap> FileMap::copy_of(std::span<const std::byte> bytes) {
  std::shared_ptr<FileMap> map(new FileMap);
  map->is_copy_ = true;
  if (bytes.empty()) return map;
  void* data = mmap(nullptr, bytes.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    throw Error(ErrorCode::limit, "no memory for a copy of " + std::to_string(bytes.size()) + " bytes");
  map->data_ = static_cast<const std::byte*>(data);
  map->size_ = bytes.size();
  std::memcpy(data, bytes.data(), bytes.size());
  (void)mprotect(data, bytes.size(), PROT_READ);
  return map;
}

FileMap::~FileMap() {
  if (data_) munmap(const_cast<std::byte*>(data_ - before_), before_ + size_);
}

void FileMap::forget(std::span<const std::byte> part) const {
  if (is_copy_) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = round_up(reinterpret_cast<uintptr_t>(part.data()), page);
  const auto end = reinterpret_cast<uintptr_t>(part.data() + part.size()) / page * page;
  // Of a private mapping that nobody can write: what is read again is the file's.
  if (begin < end) (void)madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

void write_file(const std::filesystem::path& path, std::span<const std::span<const std::byte>> parts) {
  std::string temporary = path.string() + ".XXXXXX";
  Descriptor file{mkostemp(temporary.data(), O_CLOEXEC)};
  if (file.fd < 0) refuse_file(path, "write it", std::strerror(errno));
  auto fail = [&](int error) {
    unlink(temporary.c_str());
    refuse_file(path, "write it", std::strerror(error));
  };
  for (std::span<const std::byte> part : parts) {
    while (!part.empty()) {
      ssize_t written = ::write(file.fd, part.data(), std::min(part.size(), size_t{1} << 30));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail(errno);
      part = part.subspan(static_cast<size_t>(written));
    }
  }
  // mkstemp makes it private; an artifact is an ordinary file, so it gets what the umask allows.
  mode_t mask = umask(0);
  umask(mask);
  if (fchmod(file.fd, 0666 & ~mask) != 0) fail(errno);
  if (rename(temporary.c_str(), path.c_str()) != 0) fail(errno);
}

}  // namespace tw
