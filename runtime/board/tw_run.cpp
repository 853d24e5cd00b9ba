// tw-run: runs a compiled model on this machine.  One static program, for boards that have nothing else.
//
//   tw-run MODEL.twa [--input NAME=FILE.npy …] [--output-dir DIR] [--expect DIR] [--tolerance X] [--threads N]
//          [--repeat N] [--seed N] [--poison]
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <string_view>

#include "runtime/executable.h"
#include "runtime/npy.h"
#include "runtime/poison.h"

namespace tw {
namespace {

constexpr const char* usage =
    "usage: tw-run MODEL.twa [--input NAME=FILE.npy ...] [--output-dir DIR] [--expect DIR] [--tolerance X]\n"
    "              [--threads N] [--repeat N] [--seed N] [--poison]\n"
    "  --input NAME=FILE.npy  an input; all of the model's are needed\n"
    "  --output-dir DIR       writes DIR/NAME.npy for each output ('/' and ':' in names become '_')\n"
    "  --expect DIR           compares each output with DIR/NAME.npy; exit status 1 where one differs\n"
    "  --tolerance X          how far numbers may be off, as a share of the output's largest; default: 1e-4\n"
    "  --threads N            default: one a core\n"
    "  --repeat N             runs N times and prints the latencies\n"
    "  --seed N               of the random numbers that the model draws, other ones in each run; default: 0\n"
    "  --poison               memory that the model uses holds NaN before each run: for tests of compiled code\n";

struct Options {
  std::string model, output_folder, expected_folder;
  double tolerance = 1e-4;
  std::map<std::string, std::string> inputs;
  int threads = 0, repeat = 1;
  uint64_t seed = 0;
  bool poisons = false;
};

[[noreturn]] void refuse(const std::string& problem) {
  throw Error(ErrorCode::input, problem + "\n  help: tw-run --help");
}

template <class Number = int>
Number parse_number(std::string_view flag, std::string_view text, Number least = 1) {
  Number number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least)
    refuse(std::string(flag) + ": '" + std::string(text) + "' is not a number of " + std::to_string(least) +
           " or more");
  return number;
}

Options parse_options(int count, char** arguments) {
  Options options;
  for (int i = 1; i < count; ++i) {
    std::string_view flag = arguments[i];
    if (!flag.starts_with("--")) {
      if (!options.model.empty()) refuse("two models are named: " + options.model + " and " + std::string(flag));
      options.model = flag;
      continue;
    }
    auto value = [&] {
      if (i + 1 >= count) refuse(std::string(flag) + " needs a value");
      return std::string(arguments[++i]);
    };
    if (flag == "--input") {
      std::string text = value();
      size_t equals = text.find('=');
      if (equals == std::string::npos) refuse("--input " + text + ": NAME=FILE.npy is needed");
      options.inputs[text.substr(0, equals)] = text.substr(equals + 1);
    } else if (flag == "--output-dir") {
      options.output_folder = value();
    } else if (flag == "--expect") {
      options.expected_folder = value();
    } else if (flag == "--tolerance") {
      options.tolerance = parse_number<double>(flag, value(), 0);
    } else if (flag == "--threads") {
      options.threads = parse_number(flag, value());
    } else if (flag == "--repeat") {
      options.repeat = parse_number(flag, value());
    } else if (flag == "--seed") {
      options.seed = parse_number<uint64_t>(flag, value(), 0);
    } else if (flag == "--poison") {
      options.poisons = true;
    } else {
      refuse("unknown option " + std::string(flag));
    }
  }
  if (options.model.empty()) refuse("no model is named");
  return options;
}

std::vector<NDArray> read_inputs(const Plan& plan, Options& options) {
  std::vector<NDArray> arrays;
  std::string missing;
  for (const TensorInfo& info : plan.inputs) {
    auto found = options.inputs.find(info.name);
    if (found == options.inputs.end()) {
      missing += " " + info.name;
      continue;
    }
    arrays.push_back(read_npy(found->second, info.dtype));
    options.inputs.erase(found);
  }
  if (!missing.empty()) refuse("these inputs of the model are missing:" + missing);
  if (!options.inputs.empty()) refuse("the model has no input '" + options.inputs.begin()->first + "'");
  return arrays;
}

// How far the worst element is off, as a share of the largest that is expected; infinite where whole numbers, shapes or
// what is no number differ.
double difference(const NDArray& actual, const NDArray& expected) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  if (actual.shape() != expected.shape()) return infinite;
  const bool is_whole = !actual.dtype().is_float() && !actual.dtype().is_minifloat();
  double worst = 0, largest = 0;
  for (int64_t i = 0; i < element_count(actual.shape()); ++i) {
    if (is_whole) {
      if (actual.get_int(i) != expected.get_int(i)) return infinite;
      continue;
    }
    const double a = actual.get_float(i), e = expected.get_float(i);
    if (std::isfinite(e)) largest = std::max(largest, std::abs(e));
    if (a == e || (std::isnan(a) && std::isnan(e))) continue;
    if (!std::isfinite(a) || !std::isfinite(e)) return infinite;
    worst = std::max(worst, std::abs(a - e));
  }
  return worst == 0 ? 0 : worst / largest;
}

std::string file_of(std::string name) {
  std::replace_if(name.begin(), name.end(), [](char c) { return c == '/' || c == ':' || c == '\0'; }, '_');
  return name + ".npy";
}

// Whether all outputs are as expected.
bool run(Options options) {
  Executable executable = Executable::load(options.model);
  executable.set_threads(options.threads);
  executable.set_seed(options.seed);
  std::vector<NDArray> inputs = read_inputs(executable.plan(), options), outputs;
  std::vector<double> times;
  for (int i = 0; i < options.repeat; ++i) {
    auto start = std::chrono::steady_clock::now();
    if (options.poisons) {
      outputs = run_poisoned(executable, inputs);
    } else {
      outputs.clear();  // its storage serves the next run
      outputs = executable.run(inputs);
    }
    times.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  double first = times.front();
  std::sort(times.begin(), times.end());
  std::printf("%s (%s), %d threads: %d runs, first %.3f ms, median %.3f ms, least %.3f ms\n", options.model.c_str(),
              executable.requirements().target.c_str(), executable.threads(), options.repeat, first,
              times[times.size() / 2], times[0]);
  if (!options.output_folder.empty()) std::filesystem::create_directories(options.output_folder);
  bool is_right = true;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& name = executable.plan().outputs[i].name;
    std::string shape, verdict;
    for (int64_t extent : outputs[i].shape()) shape += (shape.empty() ? "" : ",") + std::to_string(extent);
    if (!options.output_folder.empty()) write_npy(std::filesystem::path(options.output_folder) / file_of(name), outputs[i]);
    if (!options.expected_folder.empty()) {
      const std::filesystem::path file = std::filesystem::path(options.expected_folder) / file_of(name);
      const double off = difference(outputs[i], read_npy(file, outputs[i].dtype()));
      const bool is_near = off <= options.tolerance;
      char text[80];
      std::snprintf(text, sizeof text, is_near ? ": as expected, off by %.1e" : ": NOT as expected, off by %.1e", off);
      verdict = text;
      is_right &= is_near;
    }
    std::printf("  %s %s[%s]%s\n", name.c_str(), to_string(outputs[i].dtype()).c_str(), shape.c_str(), verdict.c_str());
  }
  return is_right;
}

}  // namespace
}  // namespace tw

int main(int count, char** arguments) {
  for (int i = 1; i < count; ++i) {
    if (std::string_view(arguments[i]) == "--help") return std::fputs(tw::usage, stdout) < 0;
  }
  try {
    return tw::run(tw::parse_options(count, arguments)) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
