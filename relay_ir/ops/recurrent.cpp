// LSTM, GRU and RNN, unrolled: all of x · W is one product, then one product of the state a step.
#include <algorithm>

#include "relay_ir/ops/common.h"

namespace tw::relay {
namespace {

using Context = OnnxNodeContext;
using Ints = std::vector<int64_t>;

constexpr int64_t max_steps = 512;  // beyond that the unrolled graph gets too large

struct Activation {
  std::string name;
  double alpha, beta;
};

// Of all directions, in ONNX's order, with the defaults of each.
std::vector<Activation> activations_of(Context& c, const std::vector<std::string>& defaults, int64_t directions) {
  std::vector<std::string> names = c.attribute_strings("activations");
  if (names.empty()) {
    for (int64_t d = 0; d < directions; ++d) names.insert(names.end(), defaults.begin(), defaults.end());
  }
  if (names.size() != defaults.size() * static_cast<size_t>(directions)) c.refuse("activations of another number");
  const std::vector<double> alphas = c.attribute_floats("activation_alpha", {}),
                            betas = c.attribute_floats("activation_beta", {});
  size_t next_alpha = 0, next_beta = 0;
  std::vector<Activation> result;
  for (std::string name : names) {
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char letter) { return std::tolower(letter); });
    Activation a{name, 0, 0};
    struct Known {
      const char* name;
      bool has_alpha, has_beta;
      double alpha, beta;
    };
    static constexpr Known known[] = {{"relu", false, false, 0, 0},          {"tanh", false, false, 0, 0},
                                      {"sigmoid", false, false, 0, 0},       {"affine", true, true, 1, 0},
                                      {"leakyrelu", true, false, 0.01, 0},   {"thresholdedrelu", true, false, 1, 0},
                                      {"hardsigmoid", true, true, 0.2, 0.5}, {"elu", true, false, 1, 0},
                                      {"softsign", false, false, 0, 0},      {"softplus", false, false, 0, 0}};
    const auto* found =
        std::find_if(std::begin(known), std::end(known), [&](const Known& k) { return name == k.name; });
    if (found == std::end(known)) c.refuse("activation " + name);
    a.alpha = found->has_alpha && next_alpha < alphas.size() ? alphas[next_alpha++] : found->alpha;
    a.beta = found->has_beta && next_beta < betas.size() ? betas[next_beta++] : found->beta;
    result.push_back(a);
  }
  return result;
}

ValueId activate(Context& c, const Activation& a, ValueId x) {
  const DType dtype = dtype_of(c, x);
  if (a.name == "affine") {
    return emit_binary(c, "add", emit_binary(c, "multiply", x, emit_scalar(c, dtype, a.alpha)),
                       emit_scalar(c, dtype, a.beta));
  }
  if (a.name == "leakyrelu") return c.emit("leaky_relu", {x}, attributes_of({{"alpha", a.alpha}}));
  if (a.name == "thresholdedrelu") return c.emit("thresholded_relu", {x}, attributes_of({{"alpha", a.alpha}}));
  if (a.name == "hardsigmoid")
    return c.emit("hard_sigmoid", {x}, attributes_of({{"alpha", a.alpha}, {"beta", a.beta}}));
  if (a.name == "elu") return c.emit("elu", {x}, attributes_of({{"alpha", a.alpha}}));
  return c.emit(a.name, {x});
}

// What the three have in common: data in [steps, batch, inputs], parameters of one direction.
struct Sequence {
  int64_t steps, batch, inputs, hidden, directions, gates;
  bool batch_first;
  std::string direction;
  ValueId x, lengths;  // lengths: [batch, 1] as i64, or no_value
};

Sequence sequence_of(Context& c, int64_t gates) {
  Sequence s;
  s.batch_first = c.attribute_int("layout", 0) != 0;
  s.direction = c.attribute_string("direction", "forward");
  if (s.direction != "forward" && s.direction != "reverse" && s.direction != "bidirectional")
    c.refuse("direction=\"" + s.direction + "\"");
  if (c.has_attribute("clip")) c.refuse("clip");
  s.x = c.input(0);
  if (rank_of(c, s.x) != 3 || rank_of(c, c.input(1)) != 3 || rank_of(c, c.input(2)) != 3)
    c.refuse("inputs of another rank than 3");
  if (s.batch_first) s.x = emit_transpose(c, s.x, {1, 0, 2});
  const Ints dims = dims_of(c, s.x), weight = dims_of(c, c.input(1)), recurrence = dims_of(c, c.input(2));
  s.steps = dims[0], s.batch = dims[1], s.inputs = dims[2], s.directions = weight[0], s.hidden = recurrence[2],
  s.gates = gates;
  if (s.directions != (s.direction == "bidirectional" ? 2 : 1) || weight[1] != gates * s.hidden ||
      weight[2] != s.inputs || recurrence[0] != s.directions || recurrence[1] != gates * s.hidden) {
    c.refuse("weights that do not fit the data");
  }
  if (!dtype_of(c, s.x).is_float()) c.refuse("data of type " + to_string(dtype_of(c, s.x)));
  if (s.steps < 1 || s.steps > max_steps) c.refuse("a sequence of " + std::to_string(s.steps) + " steps");
  s.lengths = no_value;
  if (c.has_input(4)) {
    s.lengths = emit_reshape(c, emit_cast(c, c.input(4), i64), {s.batch, 1});
    const NDArray* known = c.constant(s.lengths);
    bool is_full = known != nullptr;
    for (int64_t i = 0; known && i < known->size(); ++i) is_full = is_full && known->get_int(i) == s.steps;
    if (is_full) s.lengths = no_value;
  }
  return s;
}

// [directions, …] of one direction, without that dimension.
ValueId of_direction(Context& c, ValueId x, int64_t d) {
  Ints dims = dims_of(c, x);
  dims.erase(dims.begin());
  return emit_reshape(c, emit_slice(c, x, 0, d, 1), dims);
}

ValueId initial_state(Context& c, const Sequence& s, size_t input, int64_t d) {
  if (!c.has_input(input)) {
    return emit_broadcast(c, emit_scalar(c, dtype_of(c, s.x), 0), {s.batch, s.hidden});
  }
  ValueId state = c.input(input);
  if (s.batch_first) state = emit_transpose(c, state, {1, 0, 2});
  return of_direction(c, state, d);
}

// a · bᵀ
ValueId product(Context& c, ValueId a, ValueId b) {
  return c.emit("matmul", {a, b}, attributes_of({{"transpose_b", int64_t{1}}}));
}

ValueId columns(Context& c, ValueId x, int64_t first, int64_t count, int64_t hidden) {
  return emit_slice(c, x, rank_of(c, x) - 1, first * hidden, count * hidden);
}

// Rows [first, first + count) · hidden of a weight, or elements of a bias.
ValueId rows(Context& c, ValueId x, int64_t first, int64_t count, int64_t hidden) {
  return emit_slice(c, x, 0, first * hidden, count * hidden);
}

using States = std::vector<ValueId>;
// One step of direction d: x · Wᵀ (+ input biases) of this step and the states before it, to the states after; the
// first state is the output.
using Step = std::function<States(int64_t d, ValueId gates, const States& states)>;

std::vector<ValueId> unroll(Context& c, const Sequence& s, const std::vector<size_t>& initial_inputs,
                            const std::function<ValueId(int64_t d)>& input_bias, const Step& step) {
  std::vector<std::vector<ValueId>> outputs(s.steps);
  std::vector<States> last(initial_inputs.size());
  for (int64_t d = 0; d < s.directions; ++d) {
    const bool backwards = s.direction == "reverse" || d == 1;
    ValueId gates = product(c, emit_reshape(c, s.x, {s.steps * s.batch, s.inputs}), of_direction(c, c.input(1), d));
    if (const ValueId bias = input_bias(d); bias != no_value) gates = emit_binary(c, "add", gates, bias);
    States states;
    for (const size_t input : initial_inputs) states.push_back(initial_state(c, s, input, d));
    for (int64_t t = 0; t < s.steps; ++t) {
      const int64_t at = backwards ? s.steps - 1 - t : t;
      States next = step(d, emit_slice(c, gates, 0, at * s.batch, s.batch), states);
      ValueId output = next[0];
      if (s.lengths != no_value) {  // past a sequence's end the state stays and the output is zero
        const ValueId runs = emit_binary(c, "less", emit_ints(c, {at}, {}, i64), s.lengths);
        for (size_t i = 0; i < next.size(); ++i) next[i] = c.emit("where", {runs, next[i], states[i]});
        output = c.emit("where", {runs, output, emit_scalar(c, dtype_of(c, output), 0)});
      }
      outputs[at].push_back(emit_reshape(c, output, {1, 1, s.batch, s.hidden}));
      states = next;
    }
    for (size_t i = 0; i < states.size(); ++i) last[i].push_back(emit_reshape(c, states[i], {1, s.batch, s.hidden}));
  }
  std::vector<ValueId> by_step;
  for (const auto& directions : outputs) by_step.push_back(emit_concat(c, directions, 1));
  std::vector<ValueId> results{emit_concat(c, by_step, 0)};
  for (const States& state : last) results.push_back(emit_concat(c, state, 0));
  if (s.batch_first) {
    results[0] = emit_transpose(c, results[0], {2, 0, 1, 3});
    for (size_t i = 1; i < results.size(); ++i) results[i] = emit_transpose(c, results[i], {1, 0, 2});
  }
  return results;
}

// The two halves of B: of the input and of the state.
ValueId half_bias(Context& c, const Sequence& s, int64_t d, bool of_state) {
  return rows(c, of_direction(c, c.input(3), d), of_state ? s.gates : 0, s.gates, s.hidden);
}

std::vector<ValueId> import_rnn(Context& c) {
  const Sequence s = sequence_of(c, 1);
  const auto f = activations_of(c, {"Tanh"}, s.directions);
  auto bias = [&](int64_t d) {
    return c.has_input(3) ? emit_binary(c, "add", half_bias(c, s, d, false), half_bias(c, s, d, true)) : no_value;
  };
  return unroll(c, s, {5}, bias, [&](int64_t d, ValueId gates, const States& states) -> States {
    return {activate(c, f[d], emit_binary(c, "add", gates, product(c, states[0], of_direction(c, c.input(2), d))))};
  });
}

// Gates i, o, f, c; peepholes i, o, f.
std::vector<ValueId> import_lstm(Context& c) {
  const Sequence s = sequence_of(c, 4);
  const auto activations = activations_of(c, {"Sigmoid", "Tanh", "Tanh"}, s.directions);
  const bool has_peepholes = c.has_input(7);
  if (c.attribute_int("input_forget", 0) != 0) c.refuse("input_forget=1");
  auto bias = [&](int64_t d) {
    return c.has_input(3) ? emit_binary(c, "add", half_bias(c, s, d, false), half_bias(c, s, d, true)) : no_value;
  };
  return unroll(c, s, {5, 6}, bias, [&](int64_t d, ValueId gates, const States& states) -> States {
    const Activation *f = &activations[3 * d], *g = f + 1, *h = f + 2;
    const ValueId all = emit_binary(c, "add", gates, product(c, states[0], of_direction(c, c.input(2), d)));
    auto gate = [&](int64_t index, int64_t peephole, ValueId cell) {
      ValueId x = columns(c, all, index, 1, s.hidden);
      if (has_peepholes) {
        const ValueId p = rows(c, of_direction(c, c.input(7), d), peephole, 1, s.hidden);
        x = emit_binary(c, "add", x, emit_binary(c, "multiply", p, cell));
      }
      return activate(c, *f, x);
    };
    const ValueId input = gate(0, 0, states[1]), forget = gate(2, 2, states[1]);
    const ValueId candidate = activate(c, *g, columns(c, all, 3, 1, s.hidden));
    const ValueId cell = emit_binary(c, "add", emit_binary(c, "multiply", forget, states[1]),
                                     emit_binary(c, "multiply", input, candidate));
    const ValueId output = gate(1, 1, cell);
    return {emit_binary(c, "multiply", output, activate(c, *h, cell)), cell};
  });
}

// Gates z, r, h.
std::vector<ValueId> import_gru(Context& c) {
  const Sequence s = sequence_of(c, 3);
  const auto activations = activations_of(c, {"Sigmoid", "Tanh"}, s.directions);
  const bool linear_first = c.attribute_int("linear_before_reset", 0) != 0;
  auto bias = [&](int64_t d) { return c.has_input(3) ? half_bias(c, s, d, false) : no_value; };
  return unroll(c, s, {5}, bias, [&](int64_t d, ValueId gates, const States& states) -> States {
    const Activation *f = &activations[2 * d], *g = f + 1;
    const ValueId weight = of_direction(c, c.input(2), d);
    const ValueId state_bias = c.has_input(3) ? half_bias(c, s, d, true) : no_value;
    auto from_state = [&](ValueId state, int64_t first, int64_t count) {
      const ValueId y = product(c, state, rows(c, weight, first, count, s.hidden));
      return state_bias == no_value ? y : emit_binary(c, "add", y, rows(c, state_bias, first, count, s.hidden));
    };
    const ValueId zr = emit_binary(c, "add", columns(c, gates, 0, 2, s.hidden), from_state(states[0], 0, 2));
    const ValueId z = activate(c, *f, columns(c, zr, 0, 1, s.hidden));
    const ValueId r = activate(c, *f, columns(c, zr, 1, 1, s.hidden));
    const ValueId h_in = columns(c, gates, 2, 1, s.hidden);
    const ValueId h_state = linear_first ? emit_binary(c, "multiply", r, from_state(states[0], 2, 1))
                                         : from_state(emit_binary(c, "multiply", r, states[0]), 2, 1);
    const ValueId h = activate(c, *g, emit_binary(c, "add", h_in, h_state));
    const ValueId one = emit_scalar(c, dtype_of(c, z), 1);
    return {emit_binary(c, "add", emit_binary(c, "multiply", emit_binary(c, "subtract", one, z), h),
                        emit_binary(c, "multiply", z, states[0]))};
  });
}

}  // namespace

OpFamily recurrent_family() {
  OpFamily family;
  family.onnx_rules = {
      {"RNN", "", 7, import_rnn},
      {"LSTM", "", 7, import_lstm},
      {"GRU", "", 7, import_gru},
  };
  return family;
}

}  // namespace tw::relay
