// Kernels on disk: found by content, made again when anything that they depend on differs or they are damaged.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <fstream>

#include "targets/compile_image.h"
#include "tensor_ir/text/parser.h"

namespace tw {
namespace {

namespace fs = std::filesystem;

std::vector<Kernel> scaling(const std::string& factor, const Target& target) {
  const Func func = parse_func("func f(x: f32[64]) -> (y: f32[64]) {\n  for i in 0..64 parallel {\n    y[i] = x[i] * " +
                               factor + "f\n  }\n}");
  return lower(func, target, "scale").kernels;
}

class KernelCacheTest : public testing::Test {
 protected:
  KernelCacheTest()
      : directory_(fs::temp_directory_path() / ("tilewright-cache-test-" + std::to_string(getpid()))),
        target_(parse_target("x86:avx2")),
        kernels_(scaling("2.0", target_)) {
    fs::remove_all(directory_);
  }
  ~KernelCacheTest() override { fs::remove_all(directory_); }

  // The image, and how many of its kernels were in the cache.
  std::pair<std::vector<std::byte>, int> compile(const std::vector<Kernel>& kernels, const Target& target) {
    KernelCache cache(directory_);
    CodegenOptions options;
    options.cache = &cache;
    CodegenReport report;
    auto image = compile_image(kernels, target, options, &report);
    problems_ = cache.take_problems();
    return {image, report.cached_kernels};
  }
  int found(const std::vector<Kernel>& kernels, const Target& target) { return compile(kernels, target).second; }

  fs::path only_entry() const {
    std::vector<fs::path> files;
    for (const auto& file : fs::directory_iterator(directory_))
      if (file.path().filename().string().starts_with("llvmcache-")) files.push_back(file.path());
    EXPECT_EQ(files.size(), 1u);
    return files.at(0);
  }

  fs::path directory_;
  Target target_;
  std::vector<Kernel> kernels_;
  std::vector<std::string> problems_;  // of the last compilation
};

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

TEST_F(KernelCacheTest, TheSecondCompilationFindsTheSameCode) {
  const auto without = compile_image(kernels_, target_);
  const auto [first, found_first] = compile(kernels_, target_);
  const auto [second, found_second] = compile(kernels_, target_);
  EXPECT_EQ(found_first, 0);
  EXPECT_EQ(found_second, 1);
  EXPECT_EQ(first, without);
  EXPECT_EQ(second, without);
}

TEST_F(KernelCacheTest, OtherWorkIsNotFound) {
  EXPECT_EQ(found(kernels_, target_), 0);
  EXPECT_EQ(found(scaling("3.0", target_), target_), 0);
  std::vector<Kernel> renamed = kernels_;
  renamed[0].symbol = renamed[0].func.name = "other";  // an object carries its symbol
  EXPECT_EQ(found(renamed, target_), 0);
  EXPECT_EQ(found(kernels_, target_), 1);
}

TEST_F(KernelCacheTest, OtherTargetsAreNotFound) {
  EXPECT_EQ(found(kernels_, target_), 0);
  Target with_feature = target_;
  with_feature.features.push_back("avx512f");
  EXPECT_EQ(found(kernels_, with_feature), 0);
  Target tuned = target_;
  tuned.cpu = "znver4";
  EXPECT_EQ(found(kernels_, tuned), 0);
  const Target board = parse_target("aarch64");
  EXPECT_EQ(found(scaling("2.0", board), board), 0);
  Target renamed = target_;  // the same machine by another name
  renamed.name = "cpu";
  EXPECT_EQ(found(kernels_, renamed), 1);
}

TEST_F(KernelCacheTest, OtherCompilersHaveOtherKeys) {
  ASSERT_FALSE(compiler_build_id().empty());
  const std::string key = cache_key(kernels_[0], target_, compiler_build_id());
  EXPECT_EQ(key, cache_key(kernels_[0], target_, compiler_build_id()));
  EXPECT_NE(key, cache_key(kernels_[0], target_, compiler_build_id() + "x"));
  EXPECT_EQ(key.size(), 32u);
  KernelCache cache(directory_);
  cache.store(cache_key(kernels_[0], target_, "an older compiler"), "its code");
  EXPECT_EQ(found(kernels_, target_), 0);
}

TEST_F(KernelCacheTest, DamagedEntriesAreMadeAgain) {
  const auto [image, none] = compile(kernels_, target_);
  const fs::path path = only_entry();
  const std::string whole = read(path);
  std::vector<std::string> damaged = {"", whole.substr(0, 10), whole.substr(0, whole.size() - 1), whole + "x"};
  for (size_t at = 0; at < whole.size(); at += 97) {
    damaged.push_back(whole);
    damaged.back()[at] ^= 1;
  }
  for (const std::string& content : damaged) {
    write(path, content);
    const auto [again, found_count] = compile(kernels_, target_);
    EXPECT_EQ(found_count, 0);
    EXPECT_EQ(again, image);
    ASSERT_EQ(problems_.size(), 1);
    EXPECT_TRUE(problems_[0].starts_with("the cached kernel " + path.string() + " is damaged")) << problems_[0];
    EXPECT_EQ(read(path), whole);
  }
  EXPECT_EQ(found(kernels_, target_), 1);
}

// A directory that cannot be made, also by root: its parent is a file.
TEST_F(KernelCacheTest, DirectoriesThatCannotBeWrittenCostOnlyTime) {
  fs::create_directories(directory_);
  write(directory_ / "file", "");
  KernelCache cache(directory_ / "file" / "cache");
  CodegenOptions options;
  options.cache = &cache;
  const std::vector<Kernel> kernels = {kernels_[0], [&] {
                                         Kernel other = scaling("3.0", target_)[0];
                                         other.symbol = other.func.name = "other";
                                         return other;
                                       }()};
  const auto image = compile_image(kernels, target_, options);
  EXPECT_EQ(image, compile_image(kernels, target_));
  const std::vector<std::string> problems = cache.take_problems();
  ASSERT_EQ(problems.size(), 1) << "said once";
  EXPECT_TRUE(problems[0].starts_with("compiled kernels cannot be kept in")) << problems[0];
  EXPECT_TRUE(cache.take_problems().empty());
  EXPECT_EQ(cache.size().entries, 0);
}

void last_used(const fs::path& path, std::chrono::hours ago) {
  const timespec then{std::time(nullptr) - ago.count() * 3600, 0}, both[] = {then, then};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), both, 0), 0);
}

TEST_F(KernelCacheTest, TheLeastRecentlyUsedGoFirst) {
  KernelCache cache(directory_, 1 << 20);
  const std::string code(100'000, 'x');
  for (int i = 0; i < 12; ++i) {
    const std::string key = "entry" + std::to_string(i);
    cache.store(key, code);
    last_used(directory_ / ("llvmcache-" + key), std::chrono::hours(100 - i));
  }
  EXPECT_TRUE(cache.find("entry0"));  // used now
  cache.evict();
  EXPECT_TRUE(cache.find("entry0"));
  EXPECT_FALSE(cache.find("entry1"));
  EXPECT_TRUE(cache.find("entry11"));
  EXPECT_LE(cache.size().bytes, 1 << 20);
  EXPECT_EQ(cache.size().entries, 10);
}

TEST_F(KernelCacheTest, WhatDeadWritersLeftGoesInItsTurnAndNothingElse) {
  KernelCache cache(directory_, 1000);
  cache.store("key", std::string(900, 'x'));
  write(directory_ / "llvmcache-other.a1b2c3", std::string(500, 'x'));
  write(directory_ / "notes.txt", std::string(5000, 'x'));
  for (const char* name : {"llvmcache-other.a1b2c3", "notes.txt"}) last_used(directory_ / name, std::chrono::hours(2));
  cache.evict();
  EXPECT_FALSE(fs::exists(directory_ / "llvmcache-other.a1b2c3"));
  EXPECT_TRUE(fs::exists(directory_ / "notes.txt"));
  EXPECT_TRUE(cache.find("key"));
}

// Readers see a whole entry or none while others write, evict and write again.
TEST_F(KernelCacheTest, ProcessesShareADirectory) {
  const auto code_of = [](int i) { return std::string(20'000 + i, static_cast<char>('a' + i)); };
  std::vector<pid_t> children;
  for (int p = 0; p < 4; ++p) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      KernelCache cache(directory_, 60'000);
      bool is_right = true;
      for (int round = 0; round < 200; ++round) {
        const int i = (round * 7 + p) % 5;
        if (const auto code = cache.find(std::to_string(i)))
          is_right &= *code == code_of(i);
        else
          cache.store(std::to_string(i), code_of(i));
        if (round % 10 == 0) cache.evict();
      }
      _exit(is_right ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

TEST_F(KernelCacheTest, TheEnvironmentSaysWhere) {
  const auto set = [](const char* cache, const char* caches, const char* home) {
    for (const auto& [name, value] : {std::pair("TW_CACHE", cache), {"XDG_CACHE_HOME", caches}, {"HOME", home}}) {
      value ? setenv(name, value, 1) : unsetenv(name);
    }
    const auto made = KernelCache::from_environment();
    return made ? made->directory().string() : "none";
  };
  std::map<std::string, std::optional<std::string>> before;
  for (const char* name : {"TW_CACHE", "XDG_CACHE_HOME", "HOME"}) {
    const char* value = getenv(name);
    before[name] = value ? std::optional<std::string>(value) : std::nullopt;
  }
  EXPECT_EQ(set("/a", "/b", "/c"), "/a");
  EXPECT_EQ(set("off", "/b", "/c"), "none");
  EXPECT_EQ(set(nullptr, "/b", "/c"), "/b/tilewright");
  EXPECT_EQ(set("", "relative", "/c"), "/c/.cache/tilewright");
  EXPECT_EQ(set(nullptr, nullptr, nullptr), "none");
  for (const auto& [name, value] : before) value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
}

}  // namespace
}  // namespace tw
