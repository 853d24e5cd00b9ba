// tw-opt: tests that are text.  A file holds cases, separated by `// ----`:
//
//   // RUN: tw-opt --pass unroll_loops --pass simplify_all
//   func f(…) … { … }
//   // =>
//   func f(…) … { … }
//
// The steps run from left to right over the Func:
//   --pass NAME        a pass of passes.def
//   --simplify         the expression simplifier
//   --schedule         the trace that follows the input in a section `// trace:`
//   --lower TARGET     the kernels that targets/lower makes; the last step
//   --verify           the verifier
//   --relay          the input is a graph: tw_opt_relay.h
//   --interpret        the oracle: the Func must compute what the input computes (--param n=5, --tolerance 1e-6)
// A case without a RUN line takes the one of the case before it.  `// error: text` at the end of a line of the input
// says that the case fails there with this text; on a line of its own it says so without a place.
//
// tw-opt FILE…             runs the cases; TW_BLESS=1 rewrites what is expected
// tw-opt STEPS… FILE       applies the steps to a file of funcs and prints the result
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <random>
#include <sstream>

#include "schedule/schedule.h"
#include "targets/lower.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/diagnostic.h"
#include "tensor_ir/interp/interp.h"
#include "tensor_ir/pass.h"
#include "tensor_ir/structural.h"
#include "tensor_ir/text/parser.h"
#include "tensor_ir/text/printer.h"
#include "tensor_ir/verify.h"
#include "tests/tw_opt_relay.h"

namespace {

using namespace tw;

struct Command {
  std::vector<std::pair<std::string, std::string>> steps;  // name, argument
  std::map<std::string, int64_t> parameters;
  double tolerance = 0;
};

Command parse_command(const std::vector<std::string>& words) {
  Command command;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    auto argument = [&] {
      if (i + 1 == words.size()) throw Error(ErrorCode::text, word + " needs an argument");
      return words[++i];
    };
    if (word == "--pass" || word == "--lower") {
      command.steps.emplace_back(word, argument());
    } else if (word == "--verify" || word == "--simplify" || word == "--schedule" || word == "--interpret") {
      command.steps.emplace_back(word, "");
    } else if (word == "--param") {
      std::string value = argument();
      size_t equals = value.find('=');
      if (equals == std::string::npos) throw Error(ErrorCode::text, "--param takes name=value");
      command.parameters[value.substr(0, equals)] = std::stoll(value.substr(equals + 1));
    } else if (word == "--tolerance") {
      command.tolerance = std::stod(argument());
    } else {
      throw Error(ErrorCode::text, "unknown option " + word + "\n  help: " +
                                       suggest_name(word, {"--pass", "--simplify", "--schedule", "--lower", "--verify",
                                                           "--interpret", "--param", "--tolerance"}));
    }
  }
  return command;
}

// ---- steps

Func apply_pass(const Func& f, const std::string& name) {
  PassFunction pass = find_pass(name);
  if (!pass) throw Error(ErrorCode::text, "unknown pass " + name + "\n  help: " + suggest_name(name, pass_names()));
  return run_pass(name, f, pass);
}

Func apply_trace(const Func& f, const std::string& trace) {
  if (trace.empty()) throw Error(ErrorCode::text, "--schedule needs a section `// trace:` after the input");
  return replay(parse_trace(trace), f).func();
}

std::vector<Func> apply_lower(const Func& f, const std::string& target) {
  std::vector<Func> kernels;
  for (const Kernel& kernel : lower(f, parse_target(target), f.name).kernels) kernels.push_back(kernel.func);
  return kernels;
}

// Random arguments of a Func, the same for the same shapes; multiples of 1/4, so that sums do not depend on their
// order.
std::vector<NDArray> random_arguments(const Func& f, const std::map<std::string, int64_t>& parameters) {
  std::mt19937_64 random(1);
  std::vector<NDArray> arrays;
  for (const Buffer& buffer : f.buffers) {
    Shape shape;
    for (const Expr& extent : buffer->shape) shape.push_back(evaluate(extent, parameters).get_int(0));
    NDArray array(buffer->dtype, shape);
    for (int64_t i = 0; i < array.size(); ++i) {
      auto value = static_cast<int64_t>(random() % 33) - 16;
      if (buffer->dtype.is_float())
        array.set_float(i, static_cast<double>(value) / 4);
      else
        array.set_int(i, buffer->dtype.is_bool()               ? value & 1
                         : buffer->dtype.is_unsigned_integer() ? value + 16
                                                               : value);
    }
    arrays.push_back(std::move(array));
  }
  return arrays;
}

// Error(verify) when the oracle computes something else with `after` than with `before`.
void compare(const Func& before, const Func& after, const Command& command) {
  InterpretOptions options;
  options.parameters = command.parameters;
  std::vector<NDArray> expected = random_arguments(before, command.parameters);
  std::vector<NDArray> actual = random_arguments(after, command.parameters);
  if (expected.size() != actual.size()) throw Error(ErrorCode::verify, "--interpret: the func has other buffers now");
  interpret(before, expected, options);
  interpret(after, actual, options);
  for (size_t i = before.buffers.size() - before.output_count; i < expected.size(); ++i) {
    const std::string& name = before.buffers[i]->name;
    if (expected[i].size() != actual[i].size())
      throw Error(ErrorCode::verify, "--interpret: output " + name + " has another size now");
    for (int64_t j = 0; j < expected[i].size(); ++j) {
      bool is_float = expected[i].dtype().is_float();
      double a = is_float ? expected[i].get_float(j) : static_cast<double>(expected[i].get_int(j));
      double b = is_float ? actual[i].get_float(j) : static_cast<double>(actual[i].get_int(j));
      bool is_close = a == b || (std::isnan(a) && std::isnan(b)) ||
                      std::abs(a - b) <= command.tolerance * std::max(1.0, std::abs(a));
      if (is_close) continue;
      throw Error(ErrorCode::verify, "--interpret: element " + std::to_string(j) + " of " + name + " is " +
                                         std::to_string(b) + ", not " + std::to_string(a));
    }
  }
}

// The text that a list of funcs becomes.
std::string apply(const Command& command, std::vector<Func> funcs, const std::string& trace) {
  const std::vector<Func> inputs = funcs;
  for (const auto& [step, argument] : command.steps) {
    std::vector<Func> results;
    for (size_t i = 0; i < funcs.size(); ++i) {
      Func f = funcs[i];
      if (step == "--pass")
        f = apply_pass(f, argument);
      else if (step == "--verify")
        verify(f);
      else if (step == "--simplify")
        f.body = simplify(f.body);
      else if (step == "--schedule")
        f = apply_trace(f, trace);
      else if (step == "--interpret")
        compare(inputs.at(i), f, command);
      if (step != "--lower") {
        results.push_back(f);
        continue;
      }
      for (Func& kernel : apply_lower(f, argument)) results.push_back(std::move(kernel));
    }
    funcs = std::move(results);
  }
  std::string out;
  for (const Func& f : funcs) {
    std::string text = to_text(f);
    if (!structural_equal(parse_func(text), f))
      throw Error(ErrorCode::internal, "the result does not read back as itself:\n" + text);
    out += text;
  }
  return out;
}

// ---- test files

struct Case {
  std::string run;  // the line as written; empty: inherited
  std::vector<std::string> input, trace, expected;
  bool has_trace = false, has_expected = false;
  int first_line = 1;  // of the input, in the file
  size_t run_at = 0;   // the line of the input that is RUN
  struct ErrorExpectation {
    int line;  // within the case, as errors count; 0: anywhere
    std::string text;
  };
  std::vector<ErrorExpectation> errors;
};

constexpr const char* run_mark = "// RUN: ";
constexpr const char* error_mark = "// error: ";

std::vector<Case> split_cases(const std::string& text) {
  std::vector<Case> cases(1);
  std::istringstream in(text);
  std::vector<std::string>* section = &cases.back().input;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    Case* current = &cases.back();
    if (line == "// ----") {
      cases.emplace_back();
      cases.back().first_line = number + 1;
      section = &cases.back().input;
    } else if (line.starts_with(run_mark) && section == &current->input && current->run.empty()) {
      current->run = line;
      current->run_at = current->input.size();
      current->input.push_back("");
    } else if (line == "// trace:") {
      current->has_trace = true;
      section = &current->trace;
    } else if (line == "// =>") {
      current->has_expected = true;
      section = &current->expected;
    } else {
      size_t at = line.find(error_mark);
      if (section != &current->expected && at != std::string::npos) {
        bool is_alone = line.find_first_not_of(' ') == at;
        current->errors.push_back(
            {is_alone ? 0 : number - current->first_line + 1, line.substr(at + std::strlen(error_mark))});
      }
      section->push_back(line);
    }
  }
  return cases;
}

std::string join(const std::vector<std::string>& lines, bool drops_marks = false) {
  std::string out;
  for (const std::string& line : lines) {
    size_t at = drops_marks ? line.find(error_mark) : std::string::npos;
    out += line.substr(0, at) + "\n";
  }
  return out;
}

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  text.erase(0, text.find_first_not_of('\n') == std::string::npos ? text.size() : text.find_first_not_of('\n'));
  return text;
}

std::string difference(const std::string& expected, const std::string& actual) {
  std::istringstream a(expected), b(actual);
  std::string left, right;
  for (int line = 1;; ++line) {
    bool has_left = static_cast<bool>(std::getline(a, left)), has_right = static_cast<bool>(std::getline(b, right));
    if (has_left == has_right && (!has_left || left == right)) {
      if (!has_left) return "";
      continue;
    }
    return "first difference in line " + std::to_string(line) +
           " of the result:\n  expected: " + (has_left ? left : "(the end)") +
           "\n  got:      " + (has_right ? right : "(the end)") + "\n--- got\n" + actual + "\n---\n";
  }
}

class FileTest {
 public:
  explicit FileTest(const std::filesystem::path& path) : path_(path), name_(path.filename().string()) {
    std::ifstream in(path, std::ios::binary);
    if (!in) throw Error(ErrorCode::file, "cannot read " + path.string());
    std::ostringstream text;
    text << in.rdbuf();
    text_ = text.str();
  }

  int cases = 0, failures = 0;

  void run() {
    std::vector<Case> all = split_cases(text_);
    std::string command;
    bool is_blessed = false;
    for (Case& c : all) {
      if (!c.run.empty()) command = c.run.substr(std::strlen(run_mark));
      if (command.empty()) {
        fail(c, "no RUN line");
        continue;
      }
      if (!command.starts_with("tw-opt")) continue;  // another driver's
      ++cases;
      is_blessed |= run_case(c, command);
    }
    if (is_blessed) write(all);
  }

 private:
  void fail(const Case& c, const std::string& what) {
    ++failures;
    std::cout << "FAILED " << path_.string() << ":" << c.first_line << "\n" << what << "\n";
  }

  // True: the expectation was rewritten.
  bool run_case(Case& c, const std::string& command) {
    std::istringstream words(command);
    std::vector<std::string> list{std::istream_iterator<std::string>(words), {}};
    list.erase(list.begin());
    std::string result;
    bool is_error = false;
    try {
      const std::string text = join(c.input, true);
      result = !list.empty() && list[0] == "--relay"
                   ? apply_relay(list, text, name_)
                   : apply(parse_command(list), parse_funcs(text, name_), join(c.trace, true));
    } catch (const Error& e) {
      is_error = true;
      result = e.what();
    }
    result = trimmed(result);
    if (!c.errors.empty() || (is_error && !c.has_expected)) check_errors(c, is_error, result);
    if (!c.has_expected && !c.errors.empty()) return false;
    bool is_same = c.has_expected && trimmed(join(c.expected)) == result;
    if (is_same) return false;
    if (std::getenv("TW_BLESS") && !(is_error && !c.has_expected)) {
      c.has_expected = true;
      c.expected = {result, ""};
      return true;
    }
    if (!c.has_expected) {
      if (!is_error)
        fail(c, "nothing is expected: write `// =>` or `// error: text`, or run with TW_BLESS=1. The result is\n" +
                    result);
      return false;
    }
    fail(c, difference(trimmed(join(c.expected)), result));
    return false;
  }

  void check_errors(const Case& c, bool is_error, const std::string& result) {
    if (!is_error) return fail(c, "an error is expected, but the result is\n" + result);
    if (c.errors.empty()) return fail(c, "an error that is not expected:\n" + result);
    for (const Case::ErrorExpectation& expected : c.errors) {
      std::string place = name_ + ":" + std::to_string(expected.line) + "  ";
      if (result.find(expected.text) == std::string::npos)
        fail(c, "expected an error with `" + expected.text + "`, got\n" + result);
      else if (expected.line && result.find(place) == std::string::npos)
        fail(c, "expected the error in line " + std::to_string(expected.line) + " of the case" + ", got\n" + result);
    }
  }

  void write(const std::vector<Case>& all) const {
    std::string out;
    for (size_t i = 0; i < all.size(); ++i) {
      const Case& c = all[i];
      if (i) out += "// ----\n";
      for (size_t line = 0; line < c.input.size(); ++line) {
        out += (!c.run.empty() && line == c.run_at ? c.run : c.input[line]) + "\n";
      }
      if (c.has_trace) out += "// trace:\n" + join(c.trace);
      if (c.has_expected) out += "// =>\n" + trimmed(join(c.expected)) + "\n";
    }
    std::ofstream(path_, std::ios::binary) << out;
    std::cout << "blessed " << path_.string() << "\n";
  }

  std::filesystem::path path_;
  std::string name_, text_;
};

int run_tests(const std::vector<std::string>& arguments) {
  std::vector<std::filesystem::path> paths;
  for (const std::string& argument : arguments) {
    if (!std::filesystem::is_directory(argument)) {
      paths.emplace_back(argument);
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(argument)) {
      if (entry.path().extension() == ".tw") paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  int cases = 0, failures = 0;
  for (const std::filesystem::path& path : paths) {
    FileTest test(path);
    test.run();
    cases += test.cases;
    failures += test.failures;
  }
  std::cout << cases << " cases in " << paths.size() << " files, " << failures << " failures\n";
  return failures > 0 || cases == 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  try {
    if (arguments.empty())
      throw Error(ErrorCode::text,
                  "which file?\n  help: tw-opt FILE… runs tests; tw-opt --pass NAME FILE prints a result");
    if (!arguments[0].starts_with("--")) return run_tests(arguments);
    std::string path = arguments.back();
    arguments.pop_back();
    std::ifstream in(path, std::ios::binary);
    if (!in) throw Error(ErrorCode::file, "cannot read " + path);
    std::ostringstream text;
    text << in.rdbuf();
    std::cout << (arguments[0] == "--relay" ? apply_relay(arguments, text.str(), path)
                                            : apply(parse_command(arguments), parse_funcs(text.str(), path), ""));
    return 0;
  } catch (const std::exception& e) {
    std::cerr << e.what() << "\n";
    return 2;
  }
}
