#include "runtime/artifact/elf_image.h"

#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "runtime/error.h"
#include "runtime/machine/cpu_features.h"

namespace tw {
namespace {

constexpr uint64_t largest_image = uint64_t{1} << 30;
constexpr uint16_t machine_cuda = 190;

[[noreturn]] void refuse(const std::string& problem) {
  throw Error(ErrorCode::artifact, "the code image " + problem +
                                       "\n  help: it is damaged or not made by Tilewright; compile the model again");
}

struct Types32 {
  using Header = Elf32_Ehdr;
  using Segment = Elf32_Phdr;
  using Dynamic = Elf32_Dyn;
  using Symbol = Elf32_Sym;
  using Rela = Elf32_Rela;
  using Rel = Elf32_Rel;
  using Word = uint32_t;
  static uint32_t type_of(uint32_t info) { return ELF32_R_TYPE(info); }
};

struct Types64 {
  using Header = Elf64_Ehdr;
  using Segment = Elf64_Phdr;
  using Dynamic = Elf64_Dyn;
  using Symbol = Elf64_Sym;
  using Rela = Elf64_Rela;
  using Rel = Elf64_Rel;
  using Word = uint64_t;
  static uint32_t type_of(uint64_t info) { return static_cast<uint32_t>(ELF64_R_TYPE(info)); }
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

ElfImage::ElfImage(std::span<const std::byte> file) {
  std::string architecture = architecture_of(file);
  if (architecture.empty()) refuse("is not an ELF file that Tilewright makes");
  if (architecture != host_cpu().architecture) require_runnable({architecture, architecture, {}}, "");
  try {
    if constexpr (sizeof(void*) == 8)
      load<Types64>(file);
    else
      load<Types32>(file);
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

// One load; all addresses of the image are kept as 64-bit numbers, so sums cannot wrap on a 32-bit machine.
template <class Types>
struct ElfImage::Loader {
  using Segment = typename Types::Segment;
  using Word = typename Types::Word;

  std::span<const std::byte> file;
  ElfImage& image;
  uint16_t machine = 0;
  uint64_t first_page = 0;  // virtual address of image.base_
  std::vector<Segment> segments{};
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
    auto header = file_record<typename Types::Header>(0, "header");
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
        previous_end = (start + length + page - 1) / page * page;
        segments.push_back(segment);
      }
    }
    if (segments.empty()) refuse("has nothing to load");
    if (dynamic_bytes == 0) refuse("has no dynamic section");
  }

  void map_segments() {
    first_page = segments.front().p_vaddr / page * page;
    uint64_t end = uint64_t{segments.back().p_vaddr} + segments.back().p_memsz;
    image.size_ = static_cast<size_t>((end - first_page + page - 1) / page * page);
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
    uint64_t start = address / page * page, end = (address + bytes + page - 1) / page * page;
    if (mprotect(image.base_ + (start - first_page), static_cast<size_t>(end - start), protection) != 0)
      throw Error(ErrorCode::limit, std::string("cannot protect the code's pages: ") + std::strerror(errno) +
                                        "\n  help: a security policy may forbid making memory executable");
  }

  struct Table {
    uint64_t address = 0, bytes = 0, entry_bytes = 0;
  };

  void relocate(const Table& table, bool has_addends) const {
    if (table.bytes == 0) return;
    const uint64_t record_bytes = has_addends ? sizeof(typename Types::Rela) : sizeof(typename Types::Rel);
    if (table.entry_bytes != record_bytes || table.bytes % record_bytes != 0) refuse("has relocations of an odd size");
    for (uint64_t at = 0; at < table.bytes; at += record_bytes) {
      typename Types::Rela entry{};
      if (has_addends) {
        entry = record<typename Types::Rela>(table.address + at, "relocation table");
      } else {
        auto rel = record<typename Types::Rel>(table.address + at, "relocation table");
        entry.r_offset = rel.r_offset, entry.r_info = rel.r_info;
      }
      uint32_t type = Types::type_of(entry.r_info);
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
    if (table.entry_bytes != sizeof(typename Types::Symbol)) refuse("has symbols of an odd size");
    const auto* text = reinterpret_cast<const char*>(memory(strings.address, strings.bytes, "string table"));
    for (uint64_t i = 1; i < count; ++i) {
      auto symbol = record<typename Types::Symbol>(table.address + i * sizeof(typename Types::Symbol), "symbol table");
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
      image.symbols_[std::string(name, length)] = {image.base_ + (symbol.st_value - first_page),
                                                   (segment->p_flags & PF_X) != 0};
    }
  }

  void read_dynamic() {
    Table rela, rel, symbols, strings;
    uint64_t hash = 0, gnu_hash = 0;
    for (uint64_t at = 0;; at += sizeof(typename Types::Dynamic)) {
      if (at + sizeof(typename Types::Dynamic) > dynamic_bytes) refuse("has a dynamic section that does not end");
      auto entry = record<typename Types::Dynamic>(dynamic_address + at, "dynamic section");
      const uint64_t value = entry.d_un.d_val;
      if (entry.d_tag == DT_NULL) break;
      switch (entry.d_tag) {
        case DT_RELA:
          rela.address = value;
          break;
        case DT_RELASZ:
          rela.bytes = value;
          break;
        case DT_RELAENT:
          rela.entry_bytes = value;
          break;
        case DT_REL:
          rel.address = value;
          break;
        case DT_RELSZ:
          rel.bytes = value;
          break;
        case DT_RELENT:
          rel.entry_bytes = value;
          break;
        case DT_SYMTAB:
          symbols.address = value;
          break;
        case DT_SYMENT:
          symbols.entry_bytes = value;
          break;
        case DT_STRTAB:
          strings.address = value;
          break;
        case DT_STRSZ:
          strings.bytes = value;
          break;
        case DT_HASH:
          hash = value;
          break;
        case DT_GNU_HASH:
          gnu_hash = value;
          break;
        case DT_NEEDED:
          refuse("needs another library");
        case DT_PLTRELSZ:
          if (value) refuse("calls other libraries");
          break;
        case DT_TEXTREL:
          refuse("has relocations in its code");
        case 36:
          if (value) refuse("has packed relocations");
          break;  // DT_RELR
        case DT_INIT:
        case DT_FINI:
        case DT_INIT_ARRAY:
        case DT_FINI_ARRAY:
        case DT_PREINIT_ARRAY:
          refuse("has initialisers");
        default:
          break;
      }
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
      uint64_t end = std::min<uint64_t>(relro_address + relro_bytes,
                                        (uint64_t{owner->p_vaddr} + owner->p_memsz + page - 1) / page * page);
      uint64_t start = relro_address / page * page;
      end = end / page * page;
      if (start < end) protect(start, end - start, PROT_READ);
    }
  }
};

template <class Types>
void ElfImage::load(std::span<const std::byte> file) {
  Loader<Types> loader{file, *this};
  loader.read_headers();
  loader.map_segments();
  loader.read_dynamic();
  loader.protect_segments();
}

}  // namespace tw
