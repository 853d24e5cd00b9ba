#include "tensor_ir/pass_scope.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "runtime/error.h"
#include "tensor_ir/diagnostic.h"

namespace tw {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool is_set(const char* name) {
  const std::string value = environment(name);
  return !value.empty() && value != "0";
}

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

struct PassTime {
  std::string name;
  double seconds = 0;
  int64_t runs = 0;
};

// Shared by all threads: kernels are compiled side by side.
struct Records {
  std::mutex mutex;
  std::vector<PassTime> times;       // in the order of first runs
  std::map<std::string, int> dumps;  // passes dumped so far, by the name of the program
  std::set<std::string> optional;    // passes that asked whether they are skipped

  ~Records() {
    if (!is_set("TW_TIMES")) return;
    for (const PassTime& time : times)
      std::fprintf(stderr, "%10.3f ms in %6lld runs of %s\n", time.seconds * 1e3, static_cast<long long>(time.runs),
                   time.name.c_str());
  }
  static Records& instance() {
    static Records records;
    return records;
  }
};

void add_time(std::string_view pass, double seconds) {
  Records& records = Records::instance();
  std::lock_guard lock(records.mutex);
  auto it =
      std::find_if(records.times.begin(), records.times.end(), [&](const PassTime& time) { return time.name == pass; });
  if (it == records.times.end()) it = records.times.insert(it, {std::string(pass)});
  it->seconds += seconds;
  ++it->runs;
}

std::string file_name(const std::string& name) {
  std::string out = name.empty() ? "_" : name.substr(0, 100);
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return !std::isalnum(c) && c != '_' && c != '-'; }, '_');
  return out;
}

void write_file(const std::string& folder, const std::string& name, const std::string& text) {
  std::error_code ignored;  // what cannot be made cannot be written either, which is reported
  std::filesystem::create_directories(folder, ignored);
  const std::filesystem::path path = std::filesystem::path(folder) / name;
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (!out)
    throw Error(ErrorCode::file,
                "TW_DUMP: cannot write " + path.string() + "\n  help: TW_DUMP names a folder that can be written to");
}

void write_dump(const std::string& folder, const PassSubject& program, int number, std::string_view pass) {
  const std::string digits = std::to_string(number);
  write_file(folder,
             file_name(program.name) + "." + (digits.size() < 2 ? "0" : "") + digits + "_" + std::string(pass) + ".tw",
             program.text());
}

}  // namespace

bool is_skipped(std::string_view optional_pass) {
  Records& records = Records::instance();
  {
    std::lock_guard lock(records.mutex);
    records.optional.emplace(optional_pass);
  }
  const auto skipped = split_commas(environment("TW_SKIP"));
  return std::find(skipped.begin(), skipped.end(), optional_pass) != skipped.end();
}

void check_skipped() {
  Records& records = Records::instance();
  std::lock_guard lock(records.mutex);
  for (const std::string& name : split_commas(environment("TW_SKIP"))) {
    if (records.optional.count(name)) continue;
    const std::vector<std::string> known(records.optional.begin(), records.optional.end());
    throw Error(ErrorCode::text, "TW_SKIP: `" + name + "` is no optional pass\n  help: " + suggest_name(name, known));
  }
}

void dump_source(const std::string& name, std::string_view extension, const std::string& text) {
  const std::string folder = environment("TW_DUMP");
  if (!folder.empty()) write_file(folder, file_name(name) + "." + std::string(extension), text);
}

void run_in_scope(std::string_view pass, const PassSubject& before, const std::function<PassSubject()>& run) {
  const std::string folder = environment("TW_DUMP");
  int number = 0;
  if (!folder.empty()) {
    {
      std::lock_guard lock(Records::instance().mutex);
      number = ++Records::instance().dumps[before.name];
    }
    if (number == 1) write_dump(folder, before, 0, "input");
  }
  const auto start = std::chrono::steady_clock::now();
  PassSubject after;
  try {
    after = run();
  } catch (const Error& e) {
    throw Error(e.code(), std::string(e.message()) + "\n  in pass " + std::string(pass) + " of " + before.kind + " `" +
                              before.name + "`");
  }
  add_time(pass, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  if (!folder.empty()) write_dump(folder, after, number, pass);
  if (!is_set("TW_VERIFY")) return;
  try {
    after.verify();
  } catch (const Error& e) {
    throw Error(ErrorCode::internal,
                "pass " + std::string(pass) + ": " + e.message() + "\n  before the pass:\n" + before.text());
  }
}

}  // namespace tw
