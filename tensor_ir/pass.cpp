#include "tensor_ir/pass.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include "tensor_ir/diagnostic.h"
#include "tensor_ir/passes/passes.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/verify.h"

namespace tw {
namespace {

struct Row {
  std::string_view name;
  bool is_optional;
  PassFunction function;
};

const std::vector<Row>& rows() {
  static const std::vector<Row> table = {
#define PASS(name, is_optional) {#name, is_optional, name},
#include "tensor_ir/passes.def"
  };
  return table;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
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

bool is_skipped(std::string_view name) {
  std::vector<std::string> skipped = split_commas(environment("TW_SKIP"));
  if (skipped.empty()) return false;
  std::vector<std::string> optional;
  for (const Row& row : rows()) {
    if (row.is_optional) optional.emplace_back(row.name);
  }
  for (const std::string& skip : skipped) {
    if (std::find(optional.begin(), optional.end(), skip) != optional.end()) continue;
    throw Error(ErrorCode::text,
                "TW_SKIP: `" + skip + "` is no optional pass\n  help: " + suggest_name(skip, optional));
  }
  return std::find(skipped.begin(), skipped.end(), name) != skipped.end();
}

// Shared by all threads: kernels are compiled side by side.
struct Records {
  std::mutex mutex;
  std::vector<PassTime> times;
  std::map<std::string, int> dumps;  // passes dumped so far, by the name of the Func

  static Records& instance() {
    static Records records;
    return records;
  }
};

std::string file_name(const std::string& name) {
  std::string out = name.empty() ? "_" : name.substr(0, 100);
  std::replace_if(
      out.begin(), out.end(), [](unsigned char c) { return !std::isalnum(c) && c != '_' && c != '-'; }, '_');
  return out;
}

void write_dump(const std::string& folder, const Func& f, int number, std::string_view pass) {
  std::error_code ignored;  // what cannot be made cannot be written either, which is reported
  std::filesystem::create_directories(folder, ignored);
  std::string digits = std::to_string(number);
  std::filesystem::path path =
      std::filesystem::path(folder) /
      (file_name(f.name) + "." + (digits.size() < 2 ? "0" : "") + digits + "_" + std::string(pass) + ".tw");
  std::ofstream out(path, std::ios::binary);
  out << to_text(f);
  out.close();
  if (!out)
    throw Error(ErrorCode::file,
                "TW_DUMP: cannot write " + path.string() + "\n  help: TW_DUMP names a folder that can be written to");
}

// Times one pass and keeps the text before it for dumps.
class PassScope {
 public:
  PassScope(std::string_view name, const Func& before)
      : name_(name), folder_(environment("TW_DUMP")), start_(std::chrono::steady_clock::now()) {
    if (folder_.empty()) return;
    Records& records = Records::instance();
    {
      std::lock_guard lock(records.mutex);
      number_ = ++records.dumps[before.name];
    }
    if (number_ == 1) write_dump(folder_, before, 0, "input");
    start_ = std::chrono::steady_clock::now();
  }

  void finish(const Func& after) {
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    Records& records = Records::instance();
    {
      std::lock_guard lock(records.mutex);
      auto it = std::find_if(records.times.begin(), records.times.end(),
                             [&](const PassTime& time) { return time.name == name_; });
      if (it == records.times.end()) it = records.times.insert(it, {std::string(name_), 0, 0});
      it->seconds += seconds;
      ++it->runs;
    }
    if (!folder_.empty()) write_dump(folder_, after, number_, name_);
  }

 private:
  std::string_view name_;
  std::string folder_;
  int number_ = 0;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace

Func run_pass(std::string_view name, const Func& f, const std::function<Func(const Func&)>& pass) {
  if (is_skipped(name)) return f;
  PassScope scope(name, f);
  Func after;
  try {
    after = pass(f);
  } catch (const Error& e) {
    throw Error(e.code(), std::string(e.message()) + "\n  in pass " + std::string(name) + " of func `" + f.name + "`");
  }
  scope.finish(after);
  std::string verifies = environment("TW_VERIFY");
  if (!verifies.empty() && verifies != "0") {
    try {
      verify(after);
    } catch (const Error& e) {
      throw Error(ErrorCode::internal,
                  "pass " + std::string(name) + ": " + e.message() + "\n  before the pass:\n" + to_text(f));
    }
  }
  return after;
}

std::vector<PassTime> pass_times() {
  std::lock_guard lock(Records::instance().mutex);
  return Records::instance().times;
}

PassFunction find_pass(std::string_view name) {
  for (const Row& row : rows()) {
    if (row.name == name) return row.function;
  }
  return nullptr;
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const Row& row : rows()) names.emplace_back(row.name);
  return names;
}

}  // namespace tw
