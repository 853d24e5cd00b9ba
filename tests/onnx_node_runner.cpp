// Runs ONNX models on given inputs, by the oracle or compiled, for tests that compare the results elsewhere.
//
//   onnx_node_runner oracle | import | TARGET [bf16 | f16 | SEED]    folders on stdin, one a line; other
//   machines are emulated
//
// bf16, f16 and tf32 are the precision that is compiled for; with a seed, what templates leave to decide is decided at
// random.
//
// A folder holds model.onnx and inputs.onnx: a model whose initializers are the inputs, by name.  The results go to
// outputs.bin: for each output a line "dtype d0 d1 …", then its bytes.  Which of them make up sequences and optional
// values is in lists.txt, a line "name kind first count axis" for each, with " w" and the bytes of each word in
// hexadecimal, and " n" and each number.  One line a folder goes to stdout:
//
//   ok | refused | error    TAB    folder    TAB    message
//
// The oracle walks the graph as imported, one node after the other, and reads each node's tensor expression with the
// interpreter: no pass, schedule or code generation is involved.  `import` only imports.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <map>
#include <random>

#include "frontends/onnx/import.h"
#include "frontends/onnx/tensor.h"
#include "relay_ir/compile/compile.h"
#include "relay_ir/evaluate.h"
#include "relay_ir/op.h"
#include "tests/unit/machines.h"

namespace tw {
namespace {

using Arrays = std::map<std::string, NDArray>;

std::vector<std::byte> read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorCode::file, "cannot read " + path.string());
  const std::vector<char> text((std::istreambuf_iterator<char>(file)), {});
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

// Strings by their place among the words of the input that has their name, -1: none of them.
Arrays read_inputs(const std::filesystem::path& path, const std::vector<ListInfo>& lists = {}) {
  const std::vector<std::byte> bytes = read_file(path);
  const frontends::onnx::Model model = frontends::onnx::parse_model(bytes);
  Arrays result;
  for (const frontends::onnx::Tensor& tensor : model.graph.initializers) {
    const std::string name(tensor.name);
    const auto list = std::find_if(lists.begin(), lists.end(), [&](const ListInfo& l) { return l.name == name; });
    const std::vector<std::string> words = list == lists.end() ? std::vector<std::string>() : list->words;
    const auto code_of = [&](std::string_view word) {
      const auto found = std::find(words.begin(), words.end(), word);
      return found == words.end() ? int64_t{-1} : static_cast<int64_t>(found - words.begin());
    };
    result[name] = frontends::onnx::is_text(tensor) ? frontends::onnx::codes_of(tensor, code_of)
                                                    : frontends::onnx::to_array(tensor, {});
  }
  return result;
}

// Of inputs that are sequences or optional: those whose tensors are there.  Open dimensions begin at 1 unless it is
// said that they are 0.
void say_what_is_given(frontends::ImportOptions& options, std::span<const std::byte> bytes, const Arrays& inputs) {
  const frontends::onnx::Model model = frontends::onnx::parse_model(bytes);
  for (const frontends::onnx::ValueInfo& info : model.graph.inputs) {
    const std::string name(info.name);
    using frontends::onnx::ValueKind;
    const bool is_empty = inputs.contains(name) && inputs.at(name).size() == 0;
    if (info.kind == ValueKind::tensor && is_empty)
      for (const int64_t extent : inputs.at(name).shape()) options.shapes[name].emplace_back(extent);
    if (info.kind != ValueKind::sequence && info.kind != ValueKind::optional) continue;
    size_t length = 0;
    for (; inputs.contains(name + "." + std::to_string(length)); ++length) {
      const std::string part = name + "." + std::to_string(length);
      for (const int64_t extent : inputs.at(part).shape()) options.shapes[part].emplace_back(extent);
      options.shapes.try_emplace(part);
    }
    if (length == 0 && info.kind == ValueKind::optional && !inputs.contains(name)) options.absent.insert(name);
    if (length == 0 && info.kind == ValueKind::sequence) options.shapes[name] = {};
  }
}

NDArray input_named(const Arrays& inputs, const std::string& name) {
  const auto found = inputs.find(name);
  if (found == inputs.end()) throw Error(ErrorCode::input, "no input is called " + name);
  return found->second;
}

std::vector<NDArray> run_oracle(const relay::Graph& graph, const Arrays& inputs) {
  std::vector<NDArray> arguments;
  for (size_t i = 0; i < graph.inputs_of_caller(); ++i)
    arguments.push_back(input_named(inputs, graph.values[graph.inputs[i]].name));
  return relay::evaluate(graph, arguments);
}

// One value of each decision that the default schedule asks; what is asked only after these is as analysis prefers, and
// so is all of a Func where a primitive refuses the values together.
ScheduleSource random_schedules(uint64_t seed) {
  return [engine = std::mt19937_64(seed)](const Func& func, const Target& target) mutable {
    Decisions decisions;
    const Schedule by_default = target.decided_schedule(func, target, {});
    for (const AskedDecision& asked : by_default.asked())
      decisions[asked.name] = asked.candidates[engine() % asked.candidates.size()].value;
    try {
      return target.decided_schedule(func, target, decisions);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::schedule) throw;
      return by_default;
    }
  };
}

std::vector<NDArray> run_compiled(const relay::Graph& graph, const Target& target, const std::string& form,
                                  const Arrays& inputs) {
  relay::CompileOptions options;
  options.threads = 1;
  options.jobs = 1;
  if (const auto precision = relay::parse_precision(form))
    options.precision = *precision;
  else if (!form.empty())
    options.schedule = random_schedules(std::stoull(form));
  Executable executable = relay::compile(graph, target, options);
  std::vector<NDArray> arguments;
  for (const TensorInfo& info : executable.plan().inputs) arguments.push_back(input_named(inputs, info.name));
  const test::Machine* machine = test::find_machine(target.name);
  return machine ? test::run_on(*machine, executable, arguments) : run_poisoned(executable, arguments);
}

void write_outputs(const std::filesystem::path& path, const std::vector<NDArray>& outputs) {
  std::ofstream file(path, std::ios::binary);
  for (const NDArray& output : outputs) {
    file << to_string(output.dtype());
    for (const int64_t dim : output.shape()) file << ' ' << dim;
    file << '\n';
    if (output.byte_size() > 0) {
      file.write(static_cast<const char*>(output.data()), static_cast<std::streamsize>(output.byte_size()));
    }
  }
  if (!file.flush()) throw Error(ErrorCode::file, "cannot write " + path.string());
}

void write_lists(const std::filesystem::path& path, const std::vector<ListInfo>& lists) {
  std::ofstream file(path);
  for (const ListInfo& list : lists) {
    file << list.name << ' ' << to_string(list.kind) << ' ' << list.first << ' ' << list.count << ' ' << list.axis;
    for (const std::string& word : list.words) {
      file << " w" << std::hex << std::setfill('0');
      for (const unsigned char byte : word) file << std::setw(2) << int{byte};
      file << std::dec;
    }
    for (const int64_t number : list.numbers) file << " n" << number;
    file << '\n';
  }
  if (!file.flush()) throw Error(ErrorCode::file, "cannot write " + path.string());
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::replace(text.begin(), text.end(), '\t', ' ');
  return text;
}

int run(const std::string& mode, const std::string& form) {
  const bool is_oracle = mode == "oracle";
  const bool is_import = mode == "import";
  const Target target = is_oracle || is_import ? Target{} : parse_target(mode);
  std::string folder;
  while (std::getline(std::cin, folder)) {
    std::string status = "ok", message;
    try {
      frontends::ImportOptions options;
      options.folder = folder;
      const std::vector<std::byte> model = read_file(folder + "/model.onnx");
      Arrays inputs = is_import ? Arrays() : read_inputs(folder + "/inputs.onnx");
      say_what_is_given(options, model, inputs);
      const relay::Graph graph = frontends::import_onnx(model, options);
      if (!is_import) {
        inputs = read_inputs(folder + "/inputs.onnx", graph.input_lists);
        write_outputs(folder + "/outputs.bin",
                      is_oracle ? run_oracle(graph, inputs) : run_compiled(graph, target, form, inputs));
        write_lists(folder + "/lists.txt", graph.output_lists);
      }
    } catch (const Error& error) {
      status = error.code() == ErrorCode::unsupported ? "refused" : "error";
      message = error.what();
    } catch (const std::exception& error) {
      status = "error", message = error.what();
    }
    std::printf("%s\t%s\t%s\n", status.c_str(), folder.c_str(), one_line(message).c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace tw

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::fprintf(stderr, "usage: onnx_node_runner oracle | import | TARGET [bf16 | f16 | SEED]    folders on stdin\n");
    return 2;
  }
  return tw::run(argv[1], argc == 3 ? argv[2] : "");
}
