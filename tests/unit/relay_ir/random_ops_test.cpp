// Every operator of the list on random shapes, element types and attributes: whatever `infer` accepts compiles by the
// default schedule, for this machine and for emulated ones in turn, and computes what the oracle computes.  Cases grow
// from the operators' examples by changes that `infer` may refuse; sizes are those around the thresholds of schedules:
// vectors of all targets, two of them, and rows that are unrolled.
//
// TW_CASES=500 TW_SEED=7: a campaign of so many cases an operator.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "relay_ir/compile/compile.h"
#include "relay_ir/ops/common.h"
#include "relay_ir/text/parser.h"
#include "relay_ir/text/printer.h"
#include "tests/unit/machines.h"
#include "tests/unit/relay_ir/run.h"

namespace tw::relay {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t most_elements = 4096;           // of one array
constexpr int64_t most_pairs = int64_t{1} << 22;  // of elements of the inputs and outputs: what the oracle may visit

struct Case {
  std::vector<NDArray> inputs;  // undefined: absent
  NodeAttributes attributes;
  std::vector<TensorType> types;  // of the results
};

class RandomCase {
 public:
  RandomCase(const OpDef& op, uint64_t seed) : op_(op), random_(seed) {}

  // Nothing when nothing that was tried fits.
  std::optional<Case> draw() {
    for (int attempt = 0; attempt < 200; ++attempt) {
      Case drawn = change(op_.examples[below(op_.examples.size())], attempt % 3);
      if (accepts(drawn)) return drawn;
    }
    return std::nullopt;
  }

  bool chance(int percent) { return below(100) < static_cast<size_t>(percent); }
  size_t below(size_t n) { return random_() % n; }

 private:
  template <class T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }

  int64_t any_size() {
    static const Ints sizes = {1,  1,  2,  3,  4,  5,  6,  7,  8,  9,  12, 13, 14, 15, 16,  17,  19, 23,
                               27, 28, 29, 31, 32, 33, 37, 47, 48, 49, 63, 64, 65, 70, 127, 128, 129};
    const size_t size = below(sizes.size());
    return sizes[chance(50) ? size : std::min(size, below(sizes.size()))];
  }

  // More changes for a larger `boldness`; each is refused more often.
  Case change(const OpExample& example, int boldness) {
    std::vector<TensorType> types = example.inputs;
    NodeAttributes attributes = example.attributes;
    // Equal sizes often have to stay equal, also with those that attributes name.
    std::map<int64_t, int64_t> sizes;
    for (const TensorType& type : types)
      for (const Expr& dim : type.shape) sizes[*as_int(dim)] = chance(65) ? any_size() : *as_int(dim);
    const bool follows = chance(60);
    for (const auto& [name, value] : example.attributes.all()) {
      const auto* list = std::get_if<Ints>(&value);
      if (!list || !follows) continue;
      Ints changed = *list;
      for (int64_t& x : changed)
        if (sizes.count(x)) x = sizes[x];
      attributes.set(name, changed);
    }
    const int64_t outer = any_size();
    const bool is_deeper = chance(boldness * 10), is_shallower = !is_deeper && chance(boldness * 5);
    for (TensorType& type : types) {
      for (Expr& dim : type.shape) {
        dim = Expr(sizes[*as_int(dim)]);
        if (chance(boldness * 6)) dim = Expr(chance(50) ? 1 : any_size());
      }
      if (is_deeper && (type.rank() > 0 || chance(20)) && chance(80))
        type.shape.insert(type.shape.begin(), Expr(outer));
      if (is_shallower && type.rank() > 0) type.shape.erase(type.shape.begin());
    }
    if (!types.empty() && chance(25)) {
      static const std::vector<DType> dtypes = {f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, boolean};
      const DType from = pick(types).dtype, to = pick(dtypes);
      for (TensorType& type : types)
        if (type.dtype == from) type.dtype = to;
    }
    if (chance(10) && static_cast<int>(types.size()) > op_.min_inputs()) types.pop_back();
    for (const AttributeDef& def : op_.attributes)
      if (chance(5 + 15 * boldness)) change_attribute(def, attributes);

    Case result;
    result.attributes = attributes;
    for (size_t i = 0; i < types.size(); ++i) {
      const bool is_given = i < example.constant_inputs.size() && example.constant_inputs[i].is_defined();
      result.inputs.push_back(array(types[i], example, is_given ? &example.constant_inputs[i] : nullptr));
    }
    return result;
  }

  void change_attribute(const AttributeDef& def, NodeAttributes& attributes) {
    const AttributeValue now = attributes.has(def.name) ? attributes.all().at(def.name) : def.default_value;
    if (std::holds_alternative<int64_t>(now)) {
      attributes.set(def.name, pick(Ints{-2, -1, 0, 1, 2, 3, std::get<int64_t>(now) + 1}));
    } else if (const auto* real = std::get_if<double>(&now)) {
      attributes.set(def.name, pick(std::vector<double>{*real / 2, *real + 0.25, 1.0}));
    } else if (std::holds_alternative<std::string>(now)) {
      static const std::vector<std::string> words = {
          "none",    "add",     "mul",       "min",          "max",    "constant", "edge",   "reflect",
          "wrap",    "f32",     "f64",       "f16",          "bf16",   "i8",       "i32",    "i64",
          "u8",      "bool",    "forward",   "tanh",         "erf",    "linear",   "sum",    "cubic",
          "nearest", "reverse", "ij,jk->ki", "bij,bjk->bik", "ij->ji", "ij,ij->",  "i,j->ij"};
      attributes.set(def.name, pick(words));
    } else if (const auto* list = std::get_if<Ints>(&now)) {
      Ints changed = *list;
      switch (below(5)) {
        case 0:
          std::shuffle(changed.begin(), changed.end(), random_);
          break;
        case 1:
          changed.push_back(static_cast<int64_t>(below(4)));
          break;
        case 2:
          if (!changed.empty()) changed.pop_back();
          break;
        default:
          if (!changed.empty()) changed[below(changed.size())] += pick(Ints{-2, -1, 1, 2, 3});
      }
      attributes.set(def.name, changed);
    }
  }

  // `given`: values that suit the operator, of some other shape perhaps.
  NDArray array(const TensorType& type, const OpExample& example, const NDArray* given) {
    const Shape shape = *static_shape(type);
    if (element_count(shape) > most_elements) return NDArray(type.dtype, {0});  // refused below
    NDArray result(type.dtype, shape);
    const bool keeps = given && given->shape() == shape && chance(50);
    std::uniform_real_distribution<double> real(example.low, example.high);
    for (int64_t i = 0; i < result.size(); ++i) {
      const int64_t from = given && given->size() > 0 ? (keeps ? i : static_cast<int64_t>(below(given->size()))) : 0;
      if (type.dtype.is_float()) {
        result.set_float(i, given && given->dtype().is_float() ? given->get_float(from) : real(random_));
      } else if (given && !given->dtype().is_float()) {
        result.set_int(i, given->get_int(from));
      } else {
        const auto low = static_cast<int64_t>(std::floor(type.dtype.is_unsigned_integer() ? 0 : example.low));
        const auto high = std::max(low + 1, static_cast<int64_t>(example.high));
        result.set_int(i, type.dtype.is_bool()
                              ? static_cast<int64_t>(below(2))
                              : low + static_cast<int64_t>(below(static_cast<size_t>(high - low + 1))));
      }
    }
    return result;
  }

  bool accepts(Case& drawn) {
    std::vector<TensorType> types;
    std::vector<bool> present;
    const std::vector<const NDArray*> unknown(drawn.inputs.size(), nullptr);
    int64_t inputs = 0, outputs = 0;
    for (const NDArray& input : drawn.inputs) {
      types.push_back(type_of(input)), present.push_back(true);
      inputs += input.size();
    }
    if (inputs > most_elements || (inputs == 0 && !drawn.inputs.empty())) return false;
    try {
      drawn.types = infer_types(op_, types, present, unknown, drawn.attributes);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::shape) return false;
      throw;
    }
    for (const TensorType& type : drawn.types) {
      const int64_t count = element_count(*static_shape(type));
      if (count > most_elements) return false;
      outputs += count;
    }
    return outputs <= most_elements && inputs * outputs <= most_pairs;
  }

  const OpDef& op_;
  std::mt19937_64 random_;
};

// A node with its inputs, some of them constants, some after or before an elementwise operator that may fuse.
void add_case(Graph& graph, const OpDef& op, const Case& drawn, RandomCase& random, std::vector<NDArray>& inputs) {
  std::vector<ValueId> arguments;
  for (const NDArray& array : drawn.inputs) {
    const std::string name = "x" + std::to_string(graph.values.size());
    if (!arguments.empty() && random.chance(35)) {
      arguments.push_back(graph.add_constant(name, array));
      continue;
    }
    arguments.push_back(graph.add_value(name, type_of(array)));
    graph.inputs.push_back(arguments.back());
    inputs.push_back(array);
  }
  if (!arguments.empty() && drawn.inputs[0].dtype().is_float() && random.chance(20))
    arguments[0] = graph.add_node("abs", {arguments[0]})[0];
  for (ValueId result : graph.add_node(op.name, arguments, drawn.attributes)) {
    if (graph.values[result].type.dtype.is_float() && random.chance(30)) result = graph.add_node("relu", {result})[0];
    graph.outputs.push_back(result);
  }
}

// Relative to the larger of 1 and the value; sums run in another order.
double tolerance_of(DType dtype) {
  if (!dtype.is_float()) return 0;
  return dtype == f64 ? 1e-9 : dtype == f32 ? 1e-4 : dtype == f16 ? 2e-2 : 1e-1;
}

std::string difference(const NDArray& got, const NDArray& expected) {
  if (got.dtype() != expected.dtype() || got.shape() != expected.shape()) return "another type";
  const double tolerance = tolerance_of(got.dtype());
  for (int64_t i = 0; i < got.size(); ++i) {
    if (!got.dtype().is_float()) {
      if (got.get_int(i) == expected.get_int(i)) continue;
      return "element " + std::to_string(i) + " is " + std::to_string(got.get_int(i)) + ", not " +
             std::to_string(expected.get_int(i));
    }
    const double a = got.get_float(i), b = expected.get_float(i);
    if (a == b || (std::isnan(a) && std::isnan(b)) || std::abs(a - b) <= tolerance * std::max(1.0, std::abs(b)))
      continue;
    return "element " + std::to_string(i) + " is " + std::to_string(a) + ", not " + std::to_string(b);
  }
  return "";
}

std::string run(const Graph& graph, const tw::test::Machine& machine, const std::vector<NDArray>& inputs,
                const std::vector<NDArray>& expected) {
  Executable executable = compile(graph, parse_target(machine.target));
  const auto outputs = tw::test::run_on(machine, executable, inputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string problem = difference(outputs[i], expected[i]);
    if (!problem.empty()) return graph.output_name(i) + ": " + problem;
  }
  return "";
}

int64_t number(const char* variable, int64_t usual) {
  const char* wanted = std::getenv(variable);
  return wanted ? std::atoll(wanted) : usual;
}

class RandomOps : public testing::TestWithParam<const OpDef*> {};

TEST_P(RandomOps, ComputeWhatTheOracleComputes) {
  const OpDef& op = *GetParam();
  const int64_t count = number("TW_CASES", 4), first_seed = number("TW_SEED", 1);
  const int64_t batch = std::clamp<int64_t>(count / 2, 1, 8);
  const auto own_number = static_cast<int64_t>(std::find(all_ops().begin(), all_ops().end(), &op) - all_ops().begin());
  int64_t accepted = 0;
  for (int64_t begin = 0; begin < count && !HasFailure(); begin += batch) {
    // Each second batch runs here, the others on one of the others.
    const int64_t turn = own_number + begin / batch / 2, others = std::size(tw::test::machines) - 1;
    const tw::test::Machine& machine = tw::test::machines[begin / batch % 2 == 0 ? 0 : 1 + turn % others];
    Graph together;
    together.name = "g";
    std::vector<NDArray> inputs, expected;
    struct Single {
      Graph graph;
      std::vector<NDArray> inputs, expected;
      int64_t seed;
    };
    std::vector<Single> singles;
    for (int64_t n = begin; n < std::min(begin + batch, count); ++n) {
      const auto seed = static_cast<uint64_t>(first_seed + n);
      RandomCase random(op, seed);
      const std::optional<Case> drawn = random.draw();
      if (!drawn) continue;
      Single single;
      single.graph.name = "g";
      single.seed = first_seed + n;
      RandomCase choices(op, seed), same(op, seed);
      add_case(single.graph, op, *drawn, choices, single.inputs);
      try {
        single.expected = test::evaluate(single.graph, single.inputs);
      } catch (const Error& error) {
        // Indices out of range and division by zero, of integers drawn at random.
        if (error.code() == ErrorCode::verify) continue;
        ADD_FAILURE() << "TW_SEED=" << seed << "\n" << error.what() << "\n" << to_text(single.graph);
        continue;
      }
      add_case(together, op, *drawn, same, inputs);
      expected.insert(expected.end(), single.expected.begin(), single.expected.end());
      singles.push_back(std::move(single));
      ++accepted;
    }
    if (singles.empty()) continue;
    std::string problem;
    try {
      problem = run(together, machine, inputs, expected);
    } catch (const Error& error) {
      problem = error.what();
    }
    if (problem.empty()) continue;
    // Which one?
    bool is_found = false;
    for (const Single& single : singles) {
      try {
        const std::string own = run(single.graph, machine, single.inputs, single.expected);
        if (own.empty()) continue;
        ADD_FAILURE() << "TW_SEED=" << single.seed << " on " << machine.target << "\n"
                      << own << "\n"
                      << to_text(single.graph);
      } catch (const Error& error) {
        ADD_FAILURE() << "TW_SEED=" << single.seed << " on " << machine.target << "\n"
                      << error.what() << "\n"
                      << to_text(single.graph);
      }
      is_found = true;
      break;
    }
    EXPECT_TRUE(is_found) << "together only: " << problem << "\n" << to_text(together);
  }
  EXPECT_GE(accepted, count / 2);
}

INSTANTIATE_TEST_SUITE_P(Ops, RandomOps, testing::ValuesIn(test::ops_of_arrays()),
                         [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace tw::relay
