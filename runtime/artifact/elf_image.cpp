#include "runtime/artifact/elf_image.h"

#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/artifact/perf_map.h"
#include "runtime/error.h"
#include "runtime/machine/cpu_features.h"
#include "runtime/rounding.h"

namespace tw {
namespace {

constexpr uint64_t largest_image = uint64_t{1} << 30;
constexpr uint16_t machine_cuda = 190;

[[noreturn]] void refuse(const std::string& problem) {
  throw Error(ErrorCode::artifact, "the code image " + problem +
                                       "\n  help: it is damaged or not made by Tilewright; compile the model again");
}

// Entries of the dynamic section of images that need what is not done here.
struct Refused {
  int64_t tag;
  const char* problem;
  bool is_refused_as_zero = true;
};
constexpr Refused refused_entries[] = {
    {DT_NEEDED, "needs another library"},
    {DT_PLTRELSZ, "calls other libraries", false},
    {DT_TEXTREL, "has relocations in its code"},
    {DT_RELR, "has packed relocations", false},
    {DT_INIT, "has initialisers"},
    {DT_FINI, "has initialisers"},
    {DT_INIT_ARRAY, "has initialisers"},
    {DT_FINI_ARRAY, "has initialisers"},
    {DT_PREINIT_ARRAY, "has initialisers"},
};

uint32_t relative_relocation(uint16_t machine) {
  switch (machine) {
    case EM_X86_64:
      return R_X86_64_RELATIVE;
    case EM_AARCH64:
      return R_AARCH64_RELATIVE;
    default:
      return R_ARM_RELATIVE;
  }
}

}  // namespace

std::string ElfImage::architecture_of(std::span<const std::byte> file) {
  if (file.size() < sizeof(Elf32_Ehdr) || std::memcmp(file.data(), ELFMAG, SELFMAG) != 0) return "";
  const auto* ident = reinterpret_cast<const unsigned char*>(file.data());
  if (ident[EI_DATA] != ELFDATA2LSB || ident[EI_VERSION] != EV_CURRENT) return "";
  uint16_t machine;
  std::memcpy(&machine, file.data() + offsetof(Elf32_Ehdr, e_machine),
              sizeof machine);  // the same place in both classes
  if (ident[EI_CLASS] == ELFCLASS32) return machine == EM_ARM ? "arm" : "";
  if (ident[EI_CLASS] != ELFCLASS64) return "";
  return machine == EM_X86_64 ? "x86_64" : machine == EM_AARCH64 ? "aarch64" : machine == machine_cuda ? "cuda" : "";
}

// One load; all addresses of the image are kept as 64-bit numbers, so sums cannot wrap on a 32-bit machine.
struct ElfImage::Loader {
  using Segment = ElfW(Phdr);
  using Word = ElfW(Addr);

  std::span<const std::byte> file;
  ElfImage& image;
  uint16_t machine = 0;
  uint64_t first_page = 0;  // virtual address of image.base_
  std::vector<Segment> segments{};
  std::vector<CodeRange> functions{};
  uint64_t dynamic_address = 0, dynamic_bytes = 0, relro_address = 0, relro_bytes = 0;
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));

  template <class T>
  T file_record(uint64_t offset, const char* what) const {
    if (offset > file.size() || file.size() - offset < sizeof(T)) refuse(std::string("ends inside its ") + what);
    T value;
    std::memcpy(&value, file.data() + offset, sizeof(T));
    return value;
  }

  // The loaded segment that holds [address, address + bytes), or null.
  const Segment* segment_of(uint64_t address, uint64_t bytes) const {
    for (const Segment& segment : segments) {
      uint64_t start = segment.p_vaddr;
      if (address >= start && address - start <= segment.p_memsz && bytes <= segment.p_memsz - (address - start))
        return &segment;
    }
    return nullptr;
  }

  std::byte* memory(uint64_t address, uint64_t bytes, const char* what) const {
    if (!segment_of(address, bytes)) refuse(std::string("has a ") + what + " outside its segments");
    return image.base_ + (address - first_page);
  }

  template <class T>
  T record(uint64_t address, const char* what) const {
    T value;
    std::memcpy(&value, memory(address, sizeof(T), what), sizeof(T));
    return value;
  }

  void read_headers() {
    auto header = file_record<ElfW(Ehdr)>(0, "header");
    machine = header.e_machine;
    if (header.e_type != ET_DYN) refuse("is not a shared object");
    if (header.e_phentsize != sizeof(Segment)) refuse("has program headers of an odd size");
    uint64_t previous_end = 0;
    for (unsigned i = 0; i < header.e_phnum; ++i) {
      auto segment = file_record<Segment>(uint64_t{header.e_phoff} + uint64_t{i} * sizeof(Segment), "program headers");
      const uint64_t start = segment.p_vaddr, length = segment.p_memsz;
      if (segment.p_type == PT_TLS || segment.p_type == PT_INTERP) refuse("needs a dynamic linker");
      if (segment.p_type != PT_LOAD && segment.p_type != PT_DYNAMIC && segment.p_type != PT_GNU_RELRO) continue;
      if (start > largest_image || length > largest_image || start + length > largest_image)
        refuse("has a segment of an absurd size");
      if (segment.p_type == PT_DYNAMIC) {
        dynamic_address = start, dynamic_bytes = length;
      } else if (segment.p_type == PT_GNU_RELRO) {
        relro_address = start, relro_bytes = length;
      } else if (length > 0) {
        if (segment.p_filesz > length || segment.p_offset > file.size() ||
            segment.p_filesz > file.size() - segment.p_offset)
          refuse("ends inside a segment");
        if ((segment.p_flags & PF_W) && (segment.p_flags & PF_X))
          refuse("has a segment that is writable and executable");
        // Segments come in ascending order; two of them on one page could not be protected apart.
        if (start / page * page < previous_end)
          refuse("has segments that share a page of this machine (" + std::to_string(page) + " bytes)");
        previous_end = round_up(start + length, page);
        segments.push_back(segment);
      }
    }
    if (segments.empty()) refuse("has nothing to load");
    if (dynamic_bytes == 0) refuse("has no dynamic section");
  }

  void map_segments() {
    first_page = segments.front().p_vaddr / page * page;
    uint64_t end = uint64_t{segments.back().p_vaddr} + segments.back().p_memsz;
    image.size_ = static_cast<size_t>(round_up(end - first_page, page));
    void* mapping = mmap(nullptr, image.size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED)
      throw Error(ErrorCode::limit,
                  "cannot map " + std::to_string(image.size_) + " bytes for the code: " + std::strerror(errno));
    image.base_ = static_cast<std::byte*>(mapping);
    for (const Segment& segment : segments) {
      protect(segment.p_vaddr, segment.p_memsz, PROT_READ | PROT_WRITE);
      std::memcpy(memory(segment.p_vaddr, segment.p_filesz, "segment"), file.data() + segment.p_offset,
                  segment.p_filesz);
    }
  }

  void protect(uint64_t address, uint64_t bytes, int protection) const {
    uint64_t start = address / page * page, end = round_up(address + bytes, page);
    if (mprotect(image.base_ + (start - first_page), static_cast<size_t>(end - start), protection) != 0)
      throw Error(ErrorCode::limit, std::string("cannot protect the code's pages: ") + std::strerror(errno) +
                                        "\n  help: a security policy may forbid making memory executable");
  }

  struct Table {
    uint64_t address = 0, bytes = 0, entry_bytes = 0;
  };

  void relocate(const Table& table, bool has_addends) const {
    if (table.bytes == 0) return;
    const uint64_t record_bytes = has_addends ? sizeof(ElfW(Rela)) : sizeof(ElfW(Rel));
    if (table.entry_bytes != record_bytes || table.bytes % record_bytes != 0) refuse("has relocations of an odd size");
    for (uint64_t at = 0; at < table.bytes; at += record_bytes) {
      ElfW(Rela) entry{};
      if (has_addends) {
        entry = record<ElfW(Rela)>(table.address + at, "relocation table");
      } else {
        auto rel = record<ElfW(Rel)>(table.address + at, "relocation table");
        entry.r_offset = rel.r_offset, entry.r_info = rel.r_info;
      }
      const auto type =
          static_cast<uint32_t>(sizeof(Word) == 8 ? ELF64_R_TYPE(entry.r_info) : ELF32_R_TYPE(entry.r_info));
      if (type != relative_relocation(machine))
        refuse("has a relocation of type " + std::to_string(type) + "; only relative ones are made");
      const Segment* segment = segment_of(entry.r_offset, sizeof(Word));
      if (!segment || !(segment->p_flags & PF_W)) refuse("has a relocation outside its writable segments");
      std::byte* target = memory(entry.r_offset, sizeof(Word), "relocation");
      Word addend = static_cast<Word>(entry.r_addend);
      if (!has_addends) std::memcpy(&addend, target, sizeof addend);
      if (addend > first_page + image.size_) refuse("has a relocation that points outside it");
      Word value = static_cast<Word>(reinterpret_cast<uintptr_t>(image.base_) - first_page + addend);
      std::memcpy(target, &value, sizeof value);
    }
  }

  // How many dynamic symbols there are follows from the hash table alone.
  uint64_t count_symbols(uint64_t hash, uint64_t gnu_hash) const {
    if (hash) return record<uint32_t>(hash + 4, "hash table");  // nchain
    if (!gnu_hash) refuse("has no table of symbols");
    auto buckets = record<uint32_t>(gnu_hash, "hash table"), first = record<uint32_t>(gnu_hash + 4, "hash table");
    uint64_t filter_words = record<uint32_t>(gnu_hash + 8, "hash table");
    uint64_t bucket_table = gnu_hash + 16 + filter_words * sizeof(Word);
    uint64_t chain_table = bucket_table + uint64_t{buckets} * 4, last = 0;
    for (uint64_t i = 0; i < buckets; ++i)
      last = std::max<uint64_t>(last, record<uint32_t>(bucket_table + i * 4, "hash table"));
    if (last == 0) return first;
    if (last < first) refuse("has a broken hash table");
    while (!(record<uint32_t>(chain_table + (last - first) * 4, "hash table") & 1)) ++last;
    return last + 1;
  }

  void read_symbols(const Table& table, const Table& strings, uint64_t count) {
    if (table.entry_bytes != sizeof(ElfW(Sym))) refuse("has symbols of an odd size");
    const auto* text = reinterpret_cast<const char*>(memory(strings.address, strings.bytes, "string table"));
    for (uint64_t i = 1; i < count; ++i) {
      auto symbol = record<ElfW(Sym)>(table.address + i * sizeof(ElfW(Sym)), "symbol table");
      if (symbol.st_name >= strings.bytes) refuse("has a symbol without a name");
      const char* name = text + symbol.st_name;
      size_t length = strnlen(name, strings.bytes - symbol.st_name);
      if (length == strings.bytes - symbol.st_name) refuse("has a symbol whose name does not end");
      if (symbol.st_shndx == SHN_UNDEF)
        refuse("needs the symbol '" + std::string(name, length) + "' of another library");
      unsigned type = symbol.st_info & 0xf;
      if (type != STT_FUNC && type != STT_OBJECT && type != STT_NOTYPE) continue;
      // Bit 0 of an ARM function says that it is Thumb code.
      uint64_t place = machine == EM_ARM && type == STT_FUNC ? symbol.st_value & ~Word{1} : symbol.st_value;
      const Segment* segment = segment_of(place, 1);
      if (!segment) {
        if (type == STT_NOTYPE) continue;  // markers that the linker puts at the ends of sections
        refuse("has the symbol '" + std::string(name, length) + "' outside its segments");
      }
      const bool is_executable = (segment->p_flags & PF_X) != 0;
      std::byte* address = image.base_ + (symbol.st_value - first_page);
      image.symbols_[std::string(name, length)] = {address, is_executable};
      if (is_executable && type == STT_FUNC)
        functions.push_back({reinterpret_cast<uintptr_t>(image.base_ + (place - first_page)), symbol.st_size,
                             std::string(name, length)});
    }
  }

  void read_dynamic() {
    Table rela, rel, symbols, strings;
    uint64_t hash = 0, gnu_hash = 0;
    const std::pair<int64_t, uint64_t*> places[] = {
        {DT_RELA, &rela.address},
        {DT_RELASZ, &rela.bytes},
        {DT_RELAENT, &rela.entry_bytes},
        {DT_REL, &rel.address},
        {DT_RELSZ, &rel.bytes},
        {DT_RELENT, &rel.entry_bytes},
        {DT_SYMTAB, &symbols.address},
        {DT_SYMENT, &symbols.entry_bytes},
        {DT_HASH, &hash},
        {DT_STRTAB, &strings.address},
        {DT_STRSZ, &strings.bytes},
        {DT_GNU_HASH, &gnu_hash},
    };
    for (uint64_t at = 0;; at += sizeof(ElfW(Dyn))) {
      if (at + sizeof(ElfW(Dyn)) > dynamic_bytes) refuse("has a dynamic section that does not end");
      const auto entry = record<ElfW(Dyn)>(dynamic_address + at, "dynamic section");
      if (entry.d_tag == DT_NULL) break;
      for (const Refused& what : refused_entries)
        if (entry.d_tag == what.tag && (entry.d_un.d_val != 0 || what.is_refused_as_zero)) refuse(what.problem);
      for (const auto& [tag, value] : places)
        if (entry.d_tag == tag) *value = entry.d_un.d_val;
    }
    relocate(rela, true);
    relocate(rel, false);
    read_symbols(symbols, strings, count_symbols(hash, gnu_hash));
  }

  void protect_segments() {
    for (const Segment& segment : segments) {
      int protection = (segment.p_flags & PF_R ? PROT_READ : 0) | (segment.p_flags & PF_W ? PROT_WRITE : 0) |
                       (segment.p_flags & PF_X ? PROT_READ | PROT_EXEC : 0);
      if (segment.p_flags & PF_X) {
        char* start = reinterpret_cast<char*>(memory(segment.p_vaddr, segment.p_memsz, "segment"));
        __builtin___clear_cache(start, start + segment.p_memsz);
      }
      protect(segment.p_vaddr, segment.p_memsz, protection);
    }
    // What only relocation had to write.  The linker pads it to a page, so it may end past its segment.
    const Segment* owner = relro_bytes ? segment_of(relro_address, 1) : nullptr;
    if (owner && (owner->p_flags & PF_W)) {
      uint64_t end =
          std::min<uint64_t>(relro_address + relro_bytes, round_up(uint64_t{owner->p_vaddr} + owner->p_memsz, page));
      uint64_t start = relro_address / page * page;
      end = end / page * page;
      if (start < end) protect(start, end - start, PROT_READ);
    }
  }
};

ElfImage::ElfImage(std::span<const std::byte> file) {
  std::string architecture = architecture_of(file);
  if (architecture.empty()) refuse("is not an ELF file that Tilewright makes");
  if (architecture != host_cpu().architecture) require_runnable({architecture, architecture, {}}, "");
  try {
    Loader loader{file, *this};
    loader.read_headers();
    loader.map_segments();
    loader.read_dynamic();
    loader.protect_segments();
    add_to_perf_map(loader.functions);
  } catch (...) {
    if (base_) munmap(base_, size_);
    throw;
  }
}

ElfImage::~ElfImage() {
  if (base_) munmap(base_, size_);
}

void* ElfImage::symbol(const std::string& name) const {
  auto found = symbols_.find(name);
  return found == symbols_.end() ? nullptr : found->second.address;
}

void* ElfImage::function(const std::string& name) const {
  auto found = symbols_.find(name);
  return found == symbols_.end() || !found->second.is_executable ? nullptr : found->second.address;
}

}  // namespace tw
