#include "targets/kernel_cache.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "runtime/artifact/file_map.h"
#include "targets/llvm/prune.h"
#include "tensor_ir/digest.h"
#include "tensor_ir/structural.h"
#include "tensor_ir/text/printer.h"

namespace tw {
namespace {

namespace fs = std::filesystem;

struct Header {
  char magic[8] = {'T', 'W', 'K', 'E', 'R', 'N', 'L', '1'};
  uint64_t bytes = 0;     // of the code that follows
  uint64_t checksum = 0;  // of it
};

std::optional<std::string> read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::string content{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) return std::nullopt;
  return content;
}

// Everything that code generation asks a target for.
std::string code_facts(const Target& target) {
  std::string text = target.architecture + ' ' + target.triple + ' ' + target.cpu;
  for (const std::string& feature : target.features) text += ' ' + feature;
  for (const auto& [name, value] : target.function_attributes) text += ' ' + name + '=' + value;
  for (const int64_t fact : {int64_t{target.vector_bits}, int64_t{target.vector_registers}, int64_t{target.has_masks},
                             int64_t{target.has_fma}, int64_t{target.has_power_scaling}, int64_t{target.has_f16},
                             int64_t{target.has_f16_conversion}, int64_t{target.compute_capability}})
    text += ' ' + std::to_string(fact);
  for (const MachineInstruction& instruction : target.instructions) text += ' ' + to_text(instruction.intrinsic);
  for (const Intrinsic product : target.tiles.products) text += ' ' + to_text(product);
  for (const int fact : {target.tiles.registers, target.tiles.rows, target.tiles.row_bytes})
    text += ' ' + std::to_string(fact);
  return text;
}

}  // namespace

KernelCache::KernelCache(fs::path directory, int64_t limit) : directory_(std::move(directory)), limit_(limit) {}

std::unique_ptr<KernelCache> KernelCache::from_environment() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value ? value : "");
  };
  if (const std::string chosen = variable("TW_CACHE"); !chosen.empty()) {
    return chosen == "off" ? nullptr : std::make_unique<KernelCache>(chosen);
  }
  // A relative XDG_CACHE_HOME is invalid by its specification.
  if (const fs::path caches = variable("XDG_CACHE_HOME"); caches.is_absolute()) {
    return std::make_unique<KernelCache>(caches / "tilewright");
  }
  if (const fs::path home = variable("HOME"); home.is_absolute()) {
    return std::make_unique<KernelCache>(home / ".cache" / "tilewright");
  }
  return nullptr;
}

std::optional<std::string> KernelCache::find(const std::string& key) {
  const fs::path path = directory_ / (pruned_prefix + key);
  std::optional<std::string> content = read_file(path);
  if (!content) return std::nullopt;
  Header header;
  const Header expected;
  if (content->size() >= sizeof header) std::memcpy(&header, content->data(), sizeof header);
  const std::string_view code = std::string_view(*content).substr(std::min(content->size(), sizeof header));
  if (code.size() != header.bytes || code.empty() || std::memcmp(header.magic, expected.magic, sizeof header.magic) ||
      header.checksum != hash_of(code)) {
    std::error_code ignored;
    fs::remove(path, ignored);
    const std::lock_guard lock(mutex_);
    problems_.push_back("the cached kernel " + path.string() + " is damaged; it is compiled again");
    return std::nullopt;
  }
  utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // used now; where that cannot be noted, it was used earlier
  content->erase(0, sizeof header);
  return content;
}

void KernelCache::store(const std::string& key, std::string_view code) {
  Header header;
  header.bytes = code.size();
  header.checksum = hash_of(code);
  try {
    if (fs::create_directories(directory_)) fs::permissions(directory_, fs::perms::owner_all);
    const std::span<const std::byte> parts[] = {std::as_bytes(std::span(&header, 1)), std::as_bytes(std::span(code))};
    write_file(directory_ / (pruned_prefix + key), parts);
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_unwritable_, true)) return;
    problems_.push_back("compiled kernels cannot be kept in " + directory_.string() + ": " + error.what() +
                        "\n  help: set TW_CACHE to a directory that can be written, or to off");
  }
}

std::vector<std::string> KernelCache::take_problems() {
  const std::lock_guard lock(mutex_);
  return std::exchange(problems_, {});
}

KernelCache::Size KernelCache::size() const {
  Size size;
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_, ignored)) {
    if (!entry.path().filename().string().starts_with(pruned_prefix)) continue;
    ++size.entries;
    if (const auto bytes = entry.file_size(ignored); !ignored) size.bytes += static_cast<int64_t>(bytes);
  }
  return size;
}

void KernelCache::evict() {
  std::error_code ignored;
  if (!fs::is_directory(directory_, ignored)) return;
  prune_folder(directory_.string(), limit_);
}

// ---------------------------------------------------------------------------------------------------------------
// Keys

std::string cache_key(std::string_view text, const Target& target, std::string_view build) {
  const std::string facts = code_facts(target);
  std::string content;
  for (const std::string_view part : {build, std::string_view(facts), text}) {
    content += std::to_string(part.size()) + ':';
    content += part;
  }
  return digest_of(content);
}

std::string cache_key(const Kernel& kernel, const Target& target, std::string_view build) {
  const std::string text = kernel.symbol + ' ' + to_text(kernel.workspace_bytes) + ' ' + structural_digest(kernel.func);
  return cache_key(std::string_view(text), target, build);
}

const std::string& compiler_build_id() {
  static const std::string id = [] {
    struct Search {
      uintptr_t address;
      std::string found;
    } search{reinterpret_cast<uintptr_t>(&compiler_build_id), ""};
    dl_iterate_phdr(
        [](dl_phdr_info* module, size_t, void* data) {
          auto& wanted = *static_cast<Search*>(data);
          const std::span headers(module->dlpi_phdr, module->dlpi_phnum);
          const bool is_ours = std::any_of(headers.begin(), headers.end(), [&](const ElfW(Phdr) & header) {
            return header.p_type == PT_LOAD && wanted.address - (module->dlpi_addr + header.p_vaddr) < header.p_memsz;
          });
          if (!is_ours) return 0;
          for (const ElfW(Phdr) & header : headers) {
            if (header.p_type != PT_NOTE) continue;
            const char* at = reinterpret_cast<const char*>(module->dlpi_addr + header.p_vaddr);
            const char* end = at + header.p_memsz;
            while (at + sizeof(ElfW(Nhdr)) <= end) {
              ElfW(Nhdr) note;
              std::memcpy(&note, at, sizeof note);
              const char* owner = at + sizeof note;
              const char* content = owner + (note.n_namesz + 3) / 4 * 4;
              if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(owner, "GNU", 4) == 0)
                wanted.found.assign(content, note.n_descsz);
              at = content + (note.n_descsz + 3) / 4 * 4;
            }
          }
          return 1;
        },
        &search);
    return search.found;
  }();
  return id;
}

}  // namespace tw
