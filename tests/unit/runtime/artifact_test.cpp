// The .twa file and the code image in it: round trips, other machines, damage of every kind.
#include "runtime/artifact/artifact.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "runtime/artifact/elf_image.h"
#include "runtime/plan/plan_io.h"
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tests/unit/runtime/test_model.h"

namespace tw {
namespace {

using namespace test;

TEST(Artifact, SavesAndLoads) {
  Folder folder;
  small_executable().save(folder / "small.twa");
  Executable loaded = Executable::load(folder / "small.twa");
  EXPECT_EQ(values(loaded.run(small_inputs())[0]), small_answer()[0]);
  EXPECT_EQ(loaded.requirements().target, small_requirements().target);
  EXPECT_EQ(loaded.plan().metadata.at("model"), "small");
  loaded.verify();
  // Saved again, over itself while it is mapped, it is the same file.
  std::vector<std::byte> first = read_bytes(folder / "small.twa");
  loaded.save(folder / "small.twa");
  EXPECT_EQ(read_bytes(folder / "small.twa"), first);
  EXPECT_EQ(values(loaded.run(small_inputs())[1]), small_answer()[1]);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1) << "a temporary file stayed";
}

// When this fails, the layout of plans has changed: raise artifact_format_version, then the numbers here.
TEST(Artifact, TheLayoutOfPlansIsThatOfItsVersion) {
  Plan plan;
  plan.inputs = {{"x", f32, {1, 3}}};
  plan.outputs = {{"y", i8, {2}}};
  plan.constants = {{"w", bf16, {}}};
  plan.arena_bytes = 4096, plan.workspace_bytes = 64;
  Step step;
  step.kernel = "k0", step.name = "conv";
  step.buffers = {{Storage::input, 0, 0, 12}, {Storage::arena, 0, 64, 128}};
  step.parameters = {7};
  step.tasks = 5, step.waits = false, step.workspace_bytes = 64;
  step.flops = 15, step.bytes = 25;
  step.grid = {4, 3, 2}, step.block = {32, 8, 1}, step.shared_bytes = 65536;
  step.maps = {{1, 2, {64, 3}, {128}, {64, 2}, 128}};
  plan.steps = {step};
  plan.host_calls = {{"f", "libf.so", "{}", {{f32, 1}, {i8, 2}}, 1}};
  plan.metadata = {{"model", "m"}};
  const std::vector<std::byte> bytes = write_plans(plan);
  EXPECT_EQ(artifact_format_version, 12u);
  EXPECT_EQ(bytes.size(), 503u);
  EXPECT_EQ(XXH3_64bits(bytes.data(), bytes.size()), 0x1f730a30fa7f019u);
  EXPECT_EQ(write_plans(read_plans(bytes, "test")), bytes);
}

TEST(Artifact, IsAnElfFileWithANote) {
  Folder folder;
  for (std::string architecture : {"x86_64", "aarch64", "arm"}) {
    std::filesystem::path path = folder / (architecture + ".twa");
    Executable(kernel_image(architecture), small_plan(), small_constants(), small_requirements(architecture))
        .save(path);
    std::string text = finish("readelf -SWn " + path.string()).output;
    EXPECT_NE(text.find("Tilewright"), std::string::npos) << text;
    EXPECT_NE(text.find(".tilewright.constants"), std::string::npos) << text;
    EXPECT_NE(text.find(".dynsym"), std::string::npos) << text;
    EXPECT_EQ(text.find("arning"), std::string::npos) << text;
    EXPECT_EQ(text.find("rror"), std::string::npos) << text;
  }
}

TEST(Artifact, OtherMachinesAreNamed) {
  Folder folder;
  std::string other = host_cpu().architecture == "aarch64" ? "x86_64" : "aarch64";
  Executable(kernel_image(other), small_plan(), small_constants(), {other, "rpi4", {"neon"}})
      .save(folder / "other.twa");
  Caught error = caught([&] { (void)Executable::load(folder / "other.twa"); });
  EXPECT_EQ(error.code, ErrorCode::wrong_machine);
  EXPECT_NE(error.text.find("built for rpi4, this machine is " + host_cpu().architecture), std::string::npos)
      << error.text;
  // It can be inspected nevertheless.
  Artifact artifact = Artifact::open(folder / "other.twa");
  EXPECT_EQ(artifact.requirements.features, std::vector<std::string>{"neon"});
  EXPECT_EQ(artifact.plans.general.steps.size(), 5u);
  artifact.verify_constants();

  MachineRequirements lacking = small_requirements();
  lacking.target = "x86:avx1024";
  lacking.features = {"avx1024", "amx-complex"};
  Executable(kernel_image(), small_plan(), small_constants(), lacking).save(folder / "lacking.twa");
  error = caught([&] { (void)Executable::load(folder / "lacking.twa"); });
  EXPECT_EQ(error.code, ErrorCode::wrong_machine);
  EXPECT_NE(error.text.find("built for x86:avx1024, this CPU lacks avx1024, amx-complex"), std::string::npos)
      << error.text;
}

TEST(Artifact, CudaIsADeviceOfItsOwn) {
  Folder folder;
  Executable executable(kernel_image(), small_plan(), small_constants(), {"cuda", "cuda:sm_90", {}});
  executable.save(folder / "cuda.twa");
  EXPECT_EQ(Artifact::open(folder / "cuda.twa").requirements.target, "cuda:sm_90");
}

TEST(Artifact, FilesThatAreNone) {
  Folder folder;
  auto code = [&](const std::filesystem::path& path) {
    Caught error = caught([&] { (void)Executable::load(path); });
    EXPECT_NE(error.text.find(path.filename().string()), std::string::npos) << error.text;
    EXPECT_NE(error.text.find("help:"), std::string::npos) << error.text;
    return error.code;
  };
  EXPECT_EQ(code(folder / "missing.twa"), ErrorCode::file);
  EXPECT_EQ(code(folder.path()), ErrorCode::file);
  ASSERT_EQ(mkfifo((folder / "pipe.twa").c_str(), 0600), 0);
  EXPECT_EQ(code(folder / "pipe.twa"), ErrorCode::file);
  write_bytes(folder / "empty.twa", {});
  EXPECT_EQ(code(folder / "empty.twa"), ErrorCode::artifact);
  write_bytes(folder / "plain.so", kernel_image());
  EXPECT_EQ(code(folder / "plain.so"), ErrorCode::artifact);
  EXPECT_EQ(caught([&] { small_executable().save(folder / "no-such-folder/x.twa"); }).code, ErrorCode::file);
}

// Whatever is cut off, appended or flipped: an Error that says so.  A flip among the constants is what verify() finds.
TEST(Artifact, EveryDamageIsFound) {
  Folder folder;
  small_executable().save(folder / "good.twa");
  const std::vector<std::byte> good = read_bytes(folder / "good.twa");
  const std::filesystem::path path = folder / "bad.twa";
  auto attempt = [&](std::span<const std::byte> bytes, const std::string& what) {
    write_bytes(path, bytes);
    Caught error = caught([&] { Executable::load(path).verify(); });
    EXPECT_TRUE(error.code == ErrorCode::artifact || error.code == ErrorCode::wrong_machine)
        << what << ": " << error.text;
    EXPECT_NE(error.text.find("bad.twa"), std::string::npos) << what << ": " << error.text;
  };
  int attempts = 0;
  for (size_t i = 0; i <= 200; ++i) {  // lengths from nothing to one byte less
    size_t length = i <= 100 ? i * (good.size() - 1) / 100 : good.size() - 1 - (i - 101);
    attempt(std::span(good).first(length), "cut to " + std::to_string(length));
    ++attempts;
  }
  std::vector<std::byte> longer = good;
  longer.resize(good.size() + 48);
  attempt(longer, "48 zero bytes more");
  for (size_t i = 0; i < 1200; ++i) {  // bits all over the file, and every byte of the note
    size_t byte = i < 800 ? i * good.size() / 800 : good.size() - 1 - (i - 800);
    std::vector<std::byte> flipped = good;
    flipped[byte] ^= std::byte{1} << i % 8;
    attempt(flipped, "bit " + std::to_string(i % 8) + " of byte " + std::to_string(byte));
    ++attempts;
  }
  EXPECT_GE(attempts, 300);
}

// Who writes the checksums anew can still not make the reader look outside the file.
TEST(Artifact, SoundChecksumsDoNotMakeAbsurdNumbersSound) {
  Folder folder;
  small_executable().save(folder / "good.twa");
  const std::vector<std::byte> good = read_bytes(folder / "good.twa");
  uint32_t note_bytes;
  std::memcpy(&note_bytes, good.data() + good.size() - 24, sizeof note_bytes);
  const size_t note = good.size() - note_bytes;
  int loaded = 0;
  for (size_t at = 24; at + 8 + 48 <= note_bytes;
       at += 4) {  // the description: five numbers, then texts and their lengths
    for (uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{good.size()}, uint64_t{1} << 31, uint64_t{1} << 63,
                           ~uint64_t{0}, uint64_t{0x7fffffff7fffffff}}) {
      std::vector<std::byte> bad = good;
      std::memcpy(bad.data() + note + at, &value, sizeof value);
      if (bad == good) continue;
      uint64_t checksum = XXH3_64bits(bad.data() + note, note_bytes - 8);
      std::memcpy(bad.data() + bad.size() - 8, &checksum, sizeof checksum);
      write_bytes(folder / "bad.twa", bad);
      Caught error = caught([&] { (void)Executable::load(folder / "bad.twa"); });
      EXPECT_TRUE(error.code == ErrorCode{0} || error.code == ErrorCode::artifact ||
                  error.code == ErrorCode::wrong_machine)
          << error.text;
      loaded += error.code == ErrorCode{0};
    }
  }
  EXPECT_LT(loaded, 30) << "only the target's name and the padding are free to say anything";
}

TEST(Artifact, FaultsOfTheCodeNameTheFile) {
  Folder folder;
  Plan plan = small_plan();
  plan.steps[0].kernel = "no_such";
  write_artifact(folder / "m.twa", kernel_image(), plan, small_constants(), small_requirements());
  Caught error = caught([&] { (void)Executable::load(folder / "m.twa"); });
  EXPECT_EQ(error.text.rfind("TW1201 " + (folder / "m.twa").string() + ": step 0 (biased)", 0), 0u) << error.text;
}

TEST(Artifact, ConstantsAreMappedAndCheckedOnDemand) {
  Folder folder;
  small_executable().save(folder / "good.twa");
  std::vector<std::byte> bytes = read_bytes(folder / "good.twa");
  // The last byte of the constants: the bias ends with the value 2.0f, written nowhere else at a 4-byte boundary before
  // it.
  Artifact artifact = Artifact::open(folder / "good.twa");
  const auto* constant = static_cast<const std::byte*>(artifact.constants[1].data());
  size_t place = static_cast<size_t>(constant - artifact.file->bytes().data());
  ASSERT_LT(place, bytes.size()) << "the constant lies in the mapped file";
  EXPECT_EQ(place % 64, 0u);
  bytes[place] ^= std::byte{1};
  write_bytes(folder / "bad.twa", bytes);
  Executable loaded = Executable::load(folder / "bad.twa");
  Caught error = caught([&] { loaded.verify(); });
  EXPECT_EQ(error.code, ErrorCode::artifact);
  EXPECT_NE(error.text.find("constants are damaged"), std::string::npos);
}

// Bytes of memory that this process has in use.
int64_t resident_bytes() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(Artifact, LoadingReadsNoConstants) {
  Folder folder;
  Plan plan = small_plan();
  std::vector<NDArray> constants = small_constants();
  const int64_t large = 64 << 20;
  plan.constants.push_back({"large", u8, {large}});
  constants.emplace_back(u8, Shape{large});
  std::memset(constants.back().data(), 1, large);
  Executable(kernel_image(), plan, constants, small_requirements()).save(folder / "large.twa");
  const int64_t before = resident_bytes();
  Executable loaded = Executable::load(folder / "large.twa");
  EXPECT_LT(resident_bytes() - before, large / 4);
  EXPECT_EQ(values(loaded.run(small_inputs())[0]), small_answer()[0]);
  loaded.verify();
  EXPECT_GT(resident_bytes() - before, large / 2);
}

TEST(ElfImage, LoadsAndFindsSymbols) {
  for (const char* linked : {"sysv", host_cpu().architecture.c_str()}) {
    ElfImage image(kernel_image(linked));
    EXPECT_NE(image.function("add"), nullptr) << linked;
    EXPECT_NE(image.function("record_call"), nullptr) << linked;
    EXPECT_EQ(static_cast<const float* const*>(image.symbol("tables"))[0][2], 3.0f) << linked;
  }
  ElfImage image(kernel_image());
  EXPECT_NE(image.function("add"), nullptr);
  EXPECT_EQ(image.function("missing"), nullptr);
  EXPECT_EQ(image.function("counter"), nullptr) << "data is not code";
  const float* counter = static_cast<const float*>(image.symbol("counter"));
  ASSERT_NE(counter, nullptr);
  EXPECT_EQ(counter[2], 7.0f);
  const float* zeros = static_cast<const float*>(image.symbol("zeros"));
  EXPECT_EQ(std::accumulate(zeros, zeros + 1000, 0.0f), 0.0f);
  auto tables = static_cast<const float* const*>(image.symbol("tables"));
  EXPECT_EQ(tables[1][3], 400.0f);
}

TEST(ElfImage, NoPageIsWritableAndExecutable) {
  ElfImage image(kernel_image());
  auto code = reinterpret_cast<uintptr_t>(image.function("add")),
       data = reinterpret_cast<uintptr_t>(image.symbol("counter")),
       table = reinterpret_cast<uintptr_t>(image.symbol("tables"));
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);) {
    unsigned long start, end;
    char protection[5];
    ASSERT_EQ(std::sscanf(line.c_str(), "%lx-%lx %4s", &start, &end, protection), 3);
    auto holds = [&](uintptr_t address) { return address >= start && address < end; };
    found += holds(code) + holds(data) + holds(table);
    if (holds(code)) EXPECT_STREQ(protection, "r-xp");
    if (holds(data)) EXPECT_STREQ(protection, "rw-p");
    if (holds(table)) EXPECT_STREQ(protection, "r--p") << "relocated constants become read-only";
  }
  EXPECT_EQ(found, 3);
}

TEST(ElfImage, RefusesWhatNeedsAnotherLibraryOrMachine) {
  Caught error = caught([] { ElfImage image(read_bytes(std::string(TW_TEST_IMAGES) + "/foreign.so")); });
  EXPECT_EQ(error.code, ErrorCode::artifact);
  error = caught([] { ElfImage image(kernel_image(host_cpu().architecture == "aarch64" ? "x86_64" : "aarch64")); });
  EXPECT_EQ(error.code, ErrorCode::wrong_machine);
  EXPECT_EQ(ElfImage::architecture_of(kernel_image("arm")), "arm");
  EXPECT_EQ(ElfImage::architecture_of(kernel_image("aarch64")), "aarch64");
  for (size_t length : {0, 1, 4, 16, 40, 63}) {
    error = caught([&] { ElfImage image(std::span<const std::byte>(kernel_image()).first(length)); });
    EXPECT_EQ(error.code, ErrorCode::artifact) << length;
  }
}

// No checksum protects the loader here: it must find every lie itself.  Code bytes are left alone, because a changed
// instruction is still code; nothing is run.
TEST(ElfImage, SurvivesDamagedImages) {
  const std::vector<std::byte> good = kernel_image();
  for (size_t length = 0; length < good.size(); length += 1 + good.size() / 400) {
    Caught error = caught([&] { ElfImage image(std::span(good).first(length)); });
    EXPECT_TRUE(error.code == ErrorCode{0} || error.code == ErrorCode::artifact) << error.text;
  }
  Elf64_Ehdr header;
  std::memcpy(&header, good.data(), sizeof header);
  uint32_t state = 7;
  int refused = 0;
  for (int i = 0; i < 6000; ++i) {
    std::vector<std::byte> bad = good;
    for (int change = 0; change <= i % 3; ++change) {
      state = state * 1664525 + 1013904223;
      // A third in the headers, the rest anywhere: the dynamic section, symbols and relocations are all small.
      size_t byte =
          i % 3 ? (state >> 8) % good.size() : (state >> 8) % (sizeof header + header.e_phnum * sizeof(Elf64_Phdr));
      bad[byte] = i % 2 ? bad[byte] ^ (std::byte{1} << (state >> 4) % 8) : static_cast<std::byte>(state >> 16);
    }
    Caught error = caught([&] { ElfImage image(bad); });
    EXPECT_TRUE(error.code == ErrorCode{0} || error.code == ErrorCode::artifact ||
                error.code == ErrorCode::wrong_machine || error.code == ErrorCode::limit)
        << error.text;
    refused += error.code != ErrorCode{0};
  }
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace tw
