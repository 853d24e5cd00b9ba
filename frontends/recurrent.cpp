#include "frontends/recurrent.h"

namespace tw::frontends {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t max_steps = 512;  // beyond that the unrolled graph gets too large

// What the three have in common: data in [steps, batch, inputs].
struct Sequence {
  const RecurrentNetwork& network;
  int64_t steps, batch, inputs, hidden, directions, gates;
  ValueId x, lengths;  // lengths: [batch, 1] as i64, or no_value
};

Sequence sequence_of(Builder& b, const RecurrentNetwork& network, int64_t gates) {
  ValueId x = network.x;
  if (rank_of(b, x) != 3 || rank_of(b, network.weight) != 3 || rank_of(b, network.state_weight) != 3)
    b.refuse("inputs of another rank than 3");
  if (network.batch_first) x = emit_transpose(b, x, {1, 0, 2});
  const Ints dims = dims_of(b, x), weight = dims_of(b, network.weight), recurrence = dims_of(b, network.state_weight);
  Sequence s{network, dims[0], dims[1], dims[2], recurrence[2], weight[0], gates, x, no_value};
  if (s.directions != (network.is_bidirectional ? 2 : 1) || weight[1] != gates * s.hidden || weight[2] != s.inputs ||
      recurrence[0] != s.directions || recurrence[1] != gates * s.hidden) {
    b.refuse("weights that do not fit the data");
  }
  if (!dtype_of(b, x).is_float()) b.refuse("data of type " + to_string(dtype_of(b, x)));
  if (s.steps < 1 || s.steps > max_steps) b.refuse("a sequence of " + std::to_string(s.steps) + " steps");
  if (network.lengths != no_value) {
    s.lengths = emit_reshape(b, emit_cast(b, network.lengths, i64), {s.batch, 1});
    const NDArray* known = b.constant(s.lengths);
    bool is_full = known != nullptr;
    for (int64_t i = 0; known && i < known->size(); ++i) is_full = is_full && known->get_int(i) == s.steps;
    if (is_full) s.lengths = no_value;
  }
  return s;
}

// [directions, …] of one direction, without that dimension.
ValueId of_direction(Builder& b, ValueId x, int64_t d) {
  Ints dims = dims_of(b, x);
  dims.erase(dims.begin());
  return emit_reshape(b, emit_slice(b, x, 0, d, 1), dims);
}

ValueId initial_state(Builder& b, const Sequence& s, ValueId state, int64_t d) {
  if (state == no_value) return emit_broadcast(b, emit_scalar(b, dtype_of(b, s.x), 0), {s.batch, s.hidden});
  if (s.network.batch_first) state = emit_transpose(b, state, {1, 0, 2});
  return of_direction(b, state, d);
}

// x · weightᵀ
ValueId product(Builder& b, ValueId x, ValueId weight) {
  return b.emit("matmul", {x, weight}, attributes_of({{"transpose_b", int64_t{1}}}));
}

ValueId columns(Builder& b, ValueId x, int64_t first, int64_t count, int64_t hidden) {
  return emit_slice(b, x, rank_of(b, x) - 1, first * hidden, count * hidden);
}

// Rows [first, first + count) · hidden of a weight, or elements of a bias.
ValueId rows(Builder& b, ValueId x, int64_t first, int64_t count, int64_t hidden) {
  return emit_slice(b, x, 0, first * hidden, count * hidden);
}

// The two halves of the bias: of the input and of the state.
ValueId half_bias(Builder& b, const Sequence& s, int64_t d, bool of_state) {
  return rows(b, of_direction(b, s.network.bias, d), of_state ? s.gates : 0, s.gates, s.hidden);
}

ValueId whole_bias(Builder& b, const Sequence& s, int64_t d) {
  return b.emit("add", {half_bias(b, s, d, false), half_bias(b, s, d, true)});
}

using States = std::vector<ValueId>;
// One step of direction d: x · Wᵀ (+ input biases) of this step and the states before it, to the states after; the
// first state is the output.
using Step = std::function<States(int64_t d, ValueId gates, const States& states)>;

std::vector<ValueId> unroll(Builder& b, const Sequence& s, const std::function<ValueId(int64_t d)>& input_bias,
                            const Step& step) {
  const RecurrentNetwork& network = s.network;
  std::vector<std::vector<ValueId>> outputs(s.steps);
  std::vector<States> last(network.states.size());
  for (int64_t d = 0; d < s.directions; ++d) {
    const bool backwards = network.is_reverse || d == 1;
    ValueId gates = product(b, emit_reshape(b, s.x, {s.steps * s.batch, s.inputs}), of_direction(b, network.weight, d));
    if (network.bias != no_value) gates = b.emit("add", {gates, input_bias(d)});
    States states;
    for (const ValueId state : network.states) states.push_back(initial_state(b, s, state, d));
    for (int64_t t = 0; t < s.steps; ++t) {
      const int64_t at = backwards ? s.steps - 1 - t : t;
      States next = step(d, emit_slice(b, gates, 0, at * s.batch, s.batch), states);
      ValueId output = next[0];
      if (s.lengths != no_value) {  // past a sequence's end the state stays and the output is zero
        const ValueId runs = b.emit("less", {emit_ints(b, {at}, {}, i64), s.lengths});
        for (size_t i = 0; i < next.size(); ++i) next[i] = b.emit("where", {runs, next[i], states[i]});
        output = b.emit("where", {runs, output, emit_scalar(b, dtype_of(b, output), 0)});
      }
      outputs[at].push_back(emit_reshape(b, output, {1, 1, s.batch, s.hidden}));
      states = next;
    }
    for (size_t i = 0; i < states.size(); ++i) last[i].push_back(emit_reshape(b, states[i], {1, s.batch, s.hidden}));
  }
  std::vector<ValueId> by_step;
  for (const auto& directions : outputs) by_step.push_back(emit_concat(b, directions, 1));
  std::vector<ValueId> results{emit_concat(b, by_step, 0)};
  for (const States& state : last) results.push_back(emit_concat(b, state, 0));
  if (network.batch_first) {
    results[0] = emit_transpose(b, results[0], {2, 0, 1, 3});
    for (size_t i = 1; i < results.size(); ++i) results[i] = emit_transpose(b, results[i], {1, 0, 2});
  }
  return results;
}

}  // namespace

std::vector<ValueId> emit_rnn(Builder& b, const RecurrentNetwork& network) {
  const Sequence s = sequence_of(b, network, 1);
  auto bias = [&](int64_t d) { return whole_bias(b, s, d); };
  return unroll(b, s, bias, [&](int64_t d, ValueId gates, const States& states) -> States {
    const ValueId from_state = product(b, states[0], of_direction(b, network.state_weight, d));
    return {network.activations[d](b.emit("add", {gates, from_state}))};
  });
}

std::vector<ValueId> emit_lstm(Builder& b, const RecurrentNetwork& network) {
  const Sequence s = sequence_of(b, network, 4);
  auto bias = [&](int64_t d) { return whole_bias(b, s, d); };
  return unroll(b, s, bias, [&](int64_t d, ValueId gates, const States& states) -> States {
    const Activation *f = &network.activations[3 * d], *g = f + 1, *h = f + 2;
    const ValueId all = b.emit("add", {gates, product(b, states[0], of_direction(b, network.state_weight, d))});
    auto gate = [&](int64_t index, int64_t peephole, ValueId cell) {
      ValueId x = columns(b, all, index, 1, s.hidden);
      if (network.peepholes != no_value) {
        const ValueId p = rows(b, of_direction(b, network.peepholes, d), peephole, 1, s.hidden);
        x = b.emit("add", {x, b.emit("multiply", {p, cell})});
      }
      return (*f)(x);
    };
    const ValueId input = gate(0, 0, states[1]), forget = gate(2, 2, states[1]);
    const ValueId candidate = (*g)(columns(b, all, 3, 1, s.hidden));
    const ValueId cell =
        b.emit("add", {b.emit("multiply", {forget, states[1]}), b.emit("multiply", {input, candidate})});
    const ValueId output = gate(1, 1, cell);
    return {b.emit("multiply", {output, (*h)(cell)}), cell};
  });
}

std::vector<ValueId> emit_gru(Builder& b, const RecurrentNetwork& network) {
  const Sequence s = sequence_of(b, network, 3);
  auto bias = [&](int64_t d) { return half_bias(b, s, d, false); };
  return unroll(b, s, bias, [&](int64_t d, ValueId gates, const States& states) -> States {
    const Activation *f = &network.activations[2 * d], *g = f + 1;
    const ValueId weight = of_direction(b, network.state_weight, d);
    const ValueId state_bias = network.bias != no_value ? half_bias(b, s, d, true) : no_value;
    auto from_state = [&](ValueId state, int64_t first, int64_t count) {
      const ValueId y = product(b, state, rows(b, weight, first, count, s.hidden));
      return state_bias == no_value ? y : b.emit("add", {y, rows(b, state_bias, first, count, s.hidden)});
    };
    const ValueId zr = b.emit("add", {columns(b, gates, 0, 2, s.hidden), from_state(states[0], 0, 2)});
    const ValueId z = (*f)(columns(b, zr, 0, 1, s.hidden));
    const ValueId r = (*f)(columns(b, zr, 1, 1, s.hidden));
    const ValueId h_in = columns(b, gates, 2, 1, s.hidden);
    const ValueId h_state = network.linear_before_reset ? b.emit("multiply", {r, from_state(states[0], 2, 1)})
                                                        : from_state(b.emit("multiply", {r, states[0]}), 2, 1);
    const ValueId h = (*g)(b.emit("add", {h_in, h_state}));
    const ValueId one = emit_scalar(b, dtype_of(b, z), 1);
    return {b.emit("add", {b.emit("multiply", {b.emit("subtract", {one, z}), h}), b.emit("multiply", {z, states[0]})})};
  });
}

}  // namespace tw::frontends
