#include "runtime/artifact/artifact.h"

#include <elf.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>

#include "runtime/artifact/bytes.h"
#include "runtime/artifact/elf_image.h"
#include "runtime/memory.h"
#include "runtime/plan/plan_io.h"
#include "runtime/rounding.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tw {
namespace {

constexpr size_t page_alignment = 4096;
constexpr char magic[8] = {'T', 'I', 'L', 'E', 'W', 'R', 'T', '1'};
constexpr char note_owner[12] = "Tilewright";  // padded to a multiple of 4, as notes are
constexpr uint32_t note_owner_bytes = 11, note_type = 1, note_head_bytes = 12 + sizeof note_owner;

struct Tail {
  uint64_t constants_checksum;
  uint64_t code_checksum;
  uint64_t total_bytes;
  uint32_t note_bytes;
  uint32_t format_version;
  char magic[8];
  uint64_t note_checksum;
};
static_assert(sizeof(Tail) == 48);

[[noreturn]] void refuse_artifact(const std::filesystem::path& path, const std::string& problem,
                                  const char* help = nullptr) {
  throw Error(ErrorCode::artifact, path.string() + ": " + problem + "\n  help: " +
                                       (help ? help : "copy the file again, or compile the model again"));
}

class Hash {
 public:
  Hash() { XXH3_64bits_reset(&state_); }
  Hash& add(std::span<const std::byte> bytes) {
    if (!bytes.empty()) XXH3_64bits_update(&state_, bytes.data(), bytes.size());
    return *this;
  }
  uint64_t value() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

size_t aligned(size_t offset, size_t alignment) {
  return round_up(offset, alignment);
}

struct Region {
  const char* name;
  uint32_t type;
  size_t offset, bytes, alignment;
};

// The section names and table that end the file's ELF part, and the image's header that refers to them.
struct SectionTable {
  std::vector<std::byte> header;  // replaces the first bytes of the image
  std::vector<std::byte> names;
  std::vector<std::byte> table;
};

// The table lists the image's sections (where it has a sound table) and `added`; `note` is placed behind the table.
template <class Header, class Section>
SectionTable make_sections(std::span<const std::byte> image, std::vector<Region> added, size_t names_offset,
                           size_t note_bytes) {
  Header header;
  std::memcpy(&header, image.data(), sizeof header);
  std::vector<Section> sections;
  ByteWriter names;
  const uint64_t table_bytes = uint64_t{header.e_shnum} * sizeof(Section);
  if (header.e_shentsize == sizeof(Section) && header.e_shnum > 0 && header.e_shstrndx < header.e_shnum &&
      header.e_shoff <= image.size() && table_bytes <= image.size() - header.e_shoff) {
    sections.resize(header.e_shnum);
    std::memcpy(sections.data(), image.data() + header.e_shoff, static_cast<size_t>(table_bytes));
    const Section& old = sections[header.e_shstrndx];
    if (old.sh_offset <= image.size() && old.sh_size <= image.size() - old.sh_offset)
      names.put_bytes(image.subspan(old.sh_offset, old.sh_size));
    else
      sections.clear();
  }
  if (sections.empty()) {
    sections.resize(1);  // the null section
    names.put('\0');
  }
  auto name_at = [&](const char* text) {
    size_t at = names.size();
    names.put_bytes(std::as_bytes(std::span(text, std::strlen(text) + 1)));
    return static_cast<uint32_t>(at);
  };
  auto section_of = [&](const Region& region) {
    Section section{};
    section.sh_name = name_at(region.name);
    section.sh_type = region.type;
    section.sh_offset = region.offset;
    section.sh_size = region.bytes;
    section.sh_addralign = region.alignment;
    return section;
  };
  Section name_section = section_of({".tilewright.names", SHT_STRTAB, names_offset, 0, 1});
  for (const Region& region : added) sections.push_back(section_of(region));
  Section note = section_of({".note.tilewright", SHT_NOTE, 0, note_bytes, 4});
  names.pad_to(8);
  name_section.sh_size = names.size();
  size_t table_offset = names_offset + names.size();
  note.sh_offset = table_offset + (sections.size() + 2) * sizeof(Section);
  sections.push_back(note);
  sections.push_back(name_section);
  check(sections.size() < SHN_LORESERVE, "artifact: the image has fewer than 65,000 sections");
  header.e_shoff = table_offset;
  header.e_shnum = static_cast<uint16_t>(sections.size());
  header.e_shentsize = sizeof(Section);
  header.e_shstrndx = static_cast<uint16_t>(sections.size() - 1);

  SectionTable result;
  auto header_bytes = std::as_bytes(std::span(&header, 1));
  result.header.assign(header_bytes.begin(), header_bytes.end());
  result.names = std::move(names.bytes());
  auto raw = std::as_bytes(std::span(sections));
  result.table.assign(raw.begin(), raw.end());
  return result;
}

std::vector<size_t> constant_offsets(const std::vector<NDArray>& constants, size_t& total) {
  std::vector<size_t> offsets;
  total = 0;
  for (const NDArray& constant : constants) {
    total = aligned(total, storage_alignment);
    offsets.push_back(total);
    total += constant.byte_size();
  }
  return offsets;
}

using Parts = std::span<const std::span<const std::byte>>;

// The parts of the file in order, to who writes them.  `name`: of the file, for messages.
void make_artifact(const std::string& name, std::span<const std::byte> image, const Plans& plans,
                   const std::vector<NDArray>& constants, const MachineRequirements& requirements,
                   const std::function<void(Parts)>& write) {
  const bool is_elf32 = image.size() > EI_CLASS && static_cast<unsigned char>(image[EI_CLASS]) == ELFCLASS32;
  check(image.size() >= sizeof(Elf64_Ehdr) && std::memcmp(image.data(), ELFMAG, SELFMAG) == 0,
        "write_artifact: the image is an ELF file");
  check(constants.size() == plans.general.constants.size(), "write_artifact: one array a constant of the plan");

  static const std::array<std::byte, page_alignment> zeros{};
  std::vector<std::span<const std::byte>> parts;
  size_t position = 0;
  auto append = [&](std::span<const std::byte> bytes) {
    parts.push_back(bytes);
    position += bytes.size();
  };
  auto pad = [&](size_t alignment) { append(std::span(zeros).first(aligned(position, alignment) - position)); };

  const std::vector<std::byte> plan_bytes = write_plans(plans);
  size_t constants_bytes;
  const std::vector<size_t> offsets = constant_offsets(constants, constants_bytes);
  const size_t plan_offset = aligned(image.size(), page_alignment);
  const size_t constants_offset = aligned(plan_offset + plan_bytes.size(), page_alignment);
  const size_t names_offset = aligned(constants_offset + constants_bytes, 8);

  ByteWriter note;
  note.put(note_owner_bytes);
  note.put(uint32_t{0});  // descsz, below
  note.put(note_type);
  note.put_bytes(std::as_bytes(std::span(note_owner)));
  for (size_t value : {image.size(), plan_offset, plan_bytes.size(), constants_offset, constants_bytes})
    note.put(static_cast<uint64_t>(value));
  note.put_text(requirements.architecture);
  note.put_text(requirements.target);
  note.put(static_cast<uint32_t>(requirements.features.size()));
  for (const std::string& feature : requirements.features) note.put_text(feature);
  note.pad_to(8);
  const size_t note_bytes = note.size() + sizeof(Tail);
  const auto description_bytes = static_cast<uint32_t>(note_bytes - note_head_bytes);
  std::memcpy(note.bytes().data() + 4, &description_bytes, sizeof description_bytes);

  const std::vector<Region> added = {
      {".tilewright.plan", SHT_PROGBITS, plan_offset, plan_bytes.size(), page_alignment},
      {".tilewright.constants", SHT_PROGBITS, constants_offset, constants_bytes, page_alignment}};
  const SectionTable sections = is_elf32
                                    ? make_sections<Elf32_Ehdr, Elf32_Shdr>(image, added, names_offset, note_bytes)
                                    : make_sections<Elf64_Ehdr, Elf64_Shdr>(image, added, names_offset, note_bytes);

  append(sections.header);
  append(image.subspan(sections.header.size()));
  pad(page_alignment);
  append(plan_bytes);
  pad(page_alignment);
  const size_t first_constant_part = parts.size();
  for (size_t i = 0; i < constants.size(); ++i) {
    append(std::span(zeros).first(constants_offset + offsets[i] - position));
    append({static_cast<const std::byte*>(constants[i].data()), constants[i].byte_size()});
  }
  const size_t last_constant_part = parts.size();
  pad(8);
  append(sections.names);
  append(sections.table);
  if (is_elf32 && position + note_bytes > UINT32_MAX)
    throw Error(ErrorCode::limit, name + ": the artifact would exceed 4 GB, which a 32-bit machine cannot load");

  Tail tail{};
  Hash code, constant;
  for (size_t i = 0; i < parts.size(); ++i) {
    (i >= first_constant_part && i < last_constant_part ? constant : code).add(parts[i]);
  }
  tail.constants_checksum = constant.value();
  tail.code_checksum = code.value();
  tail.total_bytes = position + note_bytes;
  tail.note_bytes = static_cast<uint32_t>(note_bytes);
  tail.format_version = artifact_format_version;
  std::memcpy(tail.magic, magic, sizeof magic);
  note.put_bytes(std::as_bytes(std::span(&tail, 1)).first(offsetof(Tail, note_checksum)));
  note.put(Hash().add(note.bytes()).value());
  append(note.bytes());
  write(parts);
}

}  // namespace

void write_artifact(const std::filesystem::path& path, std::span<const std::byte> image, const Plans& plans,
                    const std::vector<NDArray>& constants, const MachineRequirements& requirements) {
  make_artifact(path.string(), image, plans, constants, requirements, [&](Parts parts) { write_file(path, parts); });
}

std::vector<std::byte> artifact_bytes(std::span<const std::byte> image, const Plans& plans,
                                      const std::vector<NDArray>& constants, const MachineRequirements& requirements) {
  std::vector<std::byte> bytes;
  make_artifact("the artifact in memory", image, plans, constants, requirements, [&](Parts parts) {
    for (const std::span<const std::byte> part : parts) bytes.insert(bytes.end(), part.begin(), part.end());
  });
  return bytes;
}

Artifact Artifact::open(const std::filesystem::path& path) {
  return read(FileMap::open(path), path);
}

Artifact Artifact::read(std::shared_ptr<const FileMap> file, const std::filesystem::path& path) {
  Artifact result;
  result.path_ = path;
  result.file = std::move(file);
  const std::span<const std::byte> bytes = result.file->bytes();

  Tail tail;
  if (bytes.size() < sizeof tail + note_head_bytes)
    refuse_artifact(path, "not a Tilewright artifact: it has " + std::to_string(bytes.size()) + " bytes");
  std::memcpy(&tail, bytes.data() + bytes.size() - sizeof tail, sizeof tail);
  if (std::memcmp(tail.magic, magic, sizeof magic) != 0)
    refuse_artifact(path,
                    "not a Tilewright artifact, or its end is missing (" + std::to_string(bytes.size()) + " bytes)");
  if (tail.format_version != artifact_format_version)
    refuse_artifact(path,
                    "it has format version " + std::to_string(tail.format_version) + "; this build reads version " +
                        std::to_string(artifact_format_version),
                    "compile the model with this version of Tilewright, or load it with the one that made it");
  if (tail.total_bytes != bytes.size())
    refuse_artifact(path, "it has " + std::to_string(bytes.size()) + " bytes, and was written with " +
                              std::to_string(tail.total_bytes));
  if (tail.note_bytes < note_head_bytes + sizeof tail || tail.note_bytes > bytes.size())
    refuse_artifact(path, "its note has an absurd size");

  const size_t note_offset = bytes.size() - tail.note_bytes;
  const std::span<const std::byte> note = bytes.subspan(note_offset);
  if (Hash().add(note.first(note.size() - sizeof tail.note_checksum)).value() != tail.note_checksum)
    refuse_artifact(path, "its note is damaged (wrong checksum)");

  ByteReader in(note.subspan(note_head_bytes, note.size() - note_head_bytes - sizeof tail), path.string() + ": note");
  const auto image_bytes = in.get<uint64_t>(), plan_offset = in.get<uint64_t>(), plan_bytes = in.get<uint64_t>(),
             constants_offset = in.get<uint64_t>(), constants_bytes = in.get<uint64_t>();
  MachineRequirements& requirements = result.requirements;
  requirements.architecture = in.get_text();
  requirements.target = in.get_text();
  requirements.features.resize(in.get_count(4));
  for (std::string& feature : requirements.features) feature = in.get_text();

  auto is_ordered = [&](uint64_t start, uint64_t length, uint64_t end) {
    return start <= end && length <= end - start;
  };
  if (!is_ordered(0, image_bytes, plan_offset) || !is_ordered(plan_offset, plan_bytes, constants_offset) ||
      !is_ordered(constants_offset, constants_bytes, note_offset) || constants_offset % page_alignment != 0)
    refuse_artifact(path, "its parts lie outside it");
  const auto constants_end = static_cast<size_t>(constants_offset + constants_bytes);
  if (Hash()
          .add(bytes.first(static_cast<size_t>(constants_offset)))
          .add(bytes.subspan(constants_end, note_offset - constants_end))
          .value() != tail.code_checksum)
    refuse_artifact(path, "its code or plan is damaged (wrong checksum)");

  result.image = bytes.first(static_cast<size_t>(image_bytes));
  result.plans = read_plans(bytes.subspan(static_cast<size_t>(plan_offset), static_cast<size_t>(plan_bytes)),
                            path.string() + ": plan");
  if (std::string problem = find_plans_problem(result.plans); !problem.empty())
    refuse_artifact(path, "its plan is malformed: " + problem);

  result.constant_bytes_ = bytes.subspan(static_cast<size_t>(constants_offset), static_cast<size_t>(constants_bytes));
  result.constants_checksum_ = tail.constants_checksum;
  size_t position = 0;
  for (const TensorInfo& info : result.plans.general.constants) {
    position = aligned(position, storage_alignment);
    auto* data = const_cast<std::byte*>(result.constant_bytes_.data()) + position;
    NDArray constant(info.dtype, info.shape, data, result.file);
    if (position > constants_bytes || constant.byte_size() > constants_bytes - position)
      refuse_artifact(path, "its constants are cut off");
    position += constant.byte_size();
    result.constants.push_back(std::move(constant));
  }
  if (position != constants_bytes) refuse_artifact(path, "its constants are not those of its plan");
  return result;
}

void Artifact::verify_constants() const {
  if (Hash().add(constant_bytes_).value() != constants_checksum_)
    refuse_artifact(path_, "its constants are damaged (wrong checksum)");
}

}  // namespace tw
