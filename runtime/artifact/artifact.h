// The .twa file: a linked ELF shared object with the plan and the constants appended to it.  It stays a valid ELF file:
// `readelf -S` lists the added sections, `readelf -n` the note.
//
//   offset 0      the code image, exactly as linked, but for the header's reference to the section table
//   4096-aligned  .tilewright.plan       the plans (plan_io.h)
//   4096-aligned  .tilewright.constants  the constants in plan order, each at a multiple of 64, mapped and never parsed
//                 section names and the section table: the image's own sections and the three added ones
//   last          .note.tilewright       an ELF note "Tilewright", type 1
//
// The note's description holds the place and length of everything, the machine's requirements, and ends, which is the
// end of the file, with a tail of 48 bytes: checksum of the constants; checksum of all else before the note; total
// length of the file; bytes of the note; format version; the magic "TILEWRT1"; checksum of the note up to here.
// Checksums are XXH3-64.
//
// A reader starts at the tail.  open() verifies all but the constants' checksum, so that loading takes time in
// proportion to the code, and constants are paged in when they are used.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "runtime/artifact/file_map.h"
#include "runtime/plan/plan.h"

namespace tw {

inline constexpr uint32_t artifact_format_version = 12;  // one more whenever the layout of anything in it changes

class Artifact {
 public:
  // For any machine.  Error(file | artifact), never anything worse, whatever the file holds.
  static Artifact open(const std::filesystem::path& path);
  // `name`: of the file, for messages.
  static Artifact read(std::shared_ptr<const FileMap> file, const std::filesystem::path& name);

  std::shared_ptr<const FileMap> file;
  std::span<const std::byte> image;
  Plans plans;
  std::vector<NDArray> constants;  // views of the map, which they keep: read only
  MachineRequirements requirements;

  // Reads all constants; Error(artifact) when they are not those that were saved.
  void verify_constants() const;

 private:
  std::filesystem::path path_;
  std::span<const std::byte> constant_bytes_;
  uint64_t constants_checksum_ = 0;
};

// The bytes of `image` must be an ELF file; the constants those that the plan describes.
void write_artifact(const std::filesystem::path& path, std::span<const std::byte> image, const Plans& plans,
                    const std::vector<NDArray>& constants, const MachineRequirements& requirements);
// What that writes.
std::vector<std::byte> artifact_bytes(std::span<const std::byte> image, const Plans& plans,
                                      const std::vector<NDArray>& constants, const MachineRequirements& requirements);

}  // namespace tw
