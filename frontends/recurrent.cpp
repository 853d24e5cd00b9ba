#include "frontends/recurrent.h"

#include "frontends/control.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::frontends {
namespace {

using Ints = std::vector<int64_t>;
using Dims = std::vector<Expr>;

// So many steps become as many nodes, whose kernels know each other; more, and numbers that a run says, become a loop.
constexpr int64_t most_unrolled = 8;

// What the three have in common: data in [steps, batch, inputs].
struct Sequence {
  const RecurrentNetwork& network;
  Expr steps, batch;
  int64_t inputs, hidden, directions, gates;
  ValueId x, lengths;  // lengths: [batch, 1] as i64, or no_value
};

Sequence sequence_of(Builder& b, const RecurrentNetwork& network, int64_t gates) {
  ValueId x = network.x;
  if (rank_of(b, x) != 3 || rank_of(b, network.weight) != 3 || rank_of(b, network.state_weight) != 3)
    b.refuse("inputs of another rank than 3");
  if (network.batch_first) x = emit_transpose(b, x, {1, 0, 2});
  const Dims& shape = b.type(x).shape;
  const Ints weight = dims_of(b, network.weight), recurrence = dims_of(b, network.state_weight);
  b.require_equal(shape[2], Expr(weight[2]), "the data's last dimension is that of the weights");
  Sequence s{network, shape[0], shape[1], weight[2], recurrence[2], weight[0], gates, x, no_value};
  if (s.directions != (network.is_bidirectional ? 2 : 1) || weight[1] != gates * s.hidden ||
      recurrence[0] != s.directions || recurrence[1] != gates * s.hidden) {
    b.refuse("weights that do not fit the data");
  }
  if (!dtype_of(b, x).is_float()) b.refuse("data of type " + to_string(dtype_of(b, x)));
  if (network.lengths != no_value) {
    s.lengths = emit_reshape_open(b, emit_cast(b, network.lengths, i64), {s.batch, 1});
    const NDArray* known = b.constant(s.lengths);
    bool is_full = known != nullptr;
    for (int64_t i = 0; known && i < known->size(); ++i) is_full = is_full && is_const_int(s.steps, known->get_int(i));
    if (is_full) s.lengths = no_value;
  }
  return s;
}

// [directions, …] of one direction, without that dimension.
ValueId of_direction(Builder& b, ValueId x, int64_t d) {
  Dims dims = b.type(x).shape;
  dims.erase(dims.begin());
  return emit_reshape_open(b, emit_slice(b, x, 0, d, 1), dims);
}

ValueId initial_state(Builder& b, const Sequence& s, ValueId state, int64_t d) {
  if (state == no_value) return emit_broadcast_open(b, emit_scalar(b, dtype_of(b, s.x), 0), {s.batch, Expr(s.hidden)});
  if (s.network.batch_first) state = emit_transpose(b, state, {1, 0, 2});
  return of_direction(b, state, d);
}

// x · weightᵀ
ValueId product(Builder& b, const Sequence& s, ValueId x, ValueId weight) {
  if (s.network.operand) x = s.network.operand(x);
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
// What the steps of one direction use: the weights of the state, its bias and peepholes, or no_value.
struct StepWeights {
  ValueId state = no_value, bias = no_value, peepholes = no_value;
};
// One step of direction d: x · Wᵀ (+ input biases) of this step and the states before it, to the states after; the
// first state is the output.
using Step = std::function<States(int64_t d, const StepWeights& weights, ValueId gates, const States& states)>;

// The step, but past a sequence's end the state stays and the output is zero.
States step_within(Builder& b, ValueId lengths, const Expr& at, States next, const States& states, ValueId& output) {
  output = next[0];
  if (lengths == no_value) return next;
  const ValueId runs = b.emit("less", {b.emit_sizes({at}, {}), lengths});
  for (size_t i = 0; i < next.size(); ++i) next[i] = b.emit("where", {runs, next[i], states[i]});
  output = b.emit("where", {runs, output, emit_scalar(b, dtype_of(b, output), 0)});
  return next;
}

// Outputs [steps, batch, hidden], then the states after the last step.
States run_steps(Builder& b, const Sequence& s, int64_t d, const StepWeights& weights, ValueId gates, States states,
                 const Step& step) {
  const bool backwards = s.network.is_reverse || d == 1;
  const auto position = [&](const Expr& number) { return simplify(backwards ? s.steps - 1 - number : number); };
  const auto count = as_int(s.steps);
  if (!count || *count > most_unrolled) {
    const auto results = emit_loop(
        b, s.steps, no_value, states, {backwards},
        [&](Region& region, const Var& number, const States& before) -> LoopStep {
          const Expr at = position(number);
          const StepWeights within{region.capture(weights.state), region.capture(weights.bias),
                                   region.capture(weights.peepholes)};
          const ValueId own = emit_pick(b, region.capture(gates), 0, at);
          LoopStep after;
          ValueId output;
          after.carried = step_within(b, region.capture(s.lengths), at, step(d, within, own, before), before, output);
          after.kept = {output};
          return after;
        });
    States all{results.back()};
    all.insert(all.end(), results.begin(), results.end() - 1);
    return all;
  }
  std::vector<ValueId> outputs(static_cast<size_t>(*count));
  for (int64_t number = 0; number < *count; ++number) {
    const int64_t at = *as_int(position(number));
    ValueId output;
    states = step_within(b, s.lengths, at, step(d, weights, emit_pick(b, gates, 0, at), states), states, output);
    outputs[static_cast<size_t>(at)] = emit_reshape_open(b, output, {Expr(1), s.batch, Expr(s.hidden)});
  }
  States all{emit_concat(b, outputs, 0)};
  all.insert(all.end(), states.begin(), states.end());
  return all;
}

// The product of all of x with the weights is one; the states' products are made step by step.
std::vector<ValueId> run_directions(Builder& b, const Sequence& s, bool has_bias_in_step,
                                    const std::function<ValueId(int64_t d)>& input_bias, const Step& step) {
  const RecurrentNetwork& network = s.network;
  std::vector<ValueId> outputs;
  std::vector<States> last(network.states.size());
  for (int64_t d = 0; d < s.directions; ++d) {
    ValueId gates = product(b, s, emit_reshape_open(b, s.x, {s.steps * s.batch, Expr(s.inputs)}),
                            of_direction(b, network.weight, d));
    if (network.bias != no_value) gates = b.emit("add", {gates, input_bias(d)});
    gates = emit_reshape_open(b, gates, {s.steps, s.batch, Expr(s.gates * s.hidden)});
    StepWeights weights{of_direction(b, network.state_weight, d)};
    if (has_bias_in_step && network.bias != no_value) weights.bias = half_bias(b, s, d, true);
    if (network.peepholes != no_value) weights.peepholes = of_direction(b, network.peepholes, d);
    States states;
    for (const ValueId state : network.states) states.push_back(initial_state(b, s, state, d));
    const States all = run_steps(b, s, d, weights, gates, states, step);
    outputs.push_back(emit_reshape_open(b, all[0], {s.steps, Expr(1), s.batch, Expr(s.hidden)}));
    for (size_t i = 0; i < last.size(); ++i)
      last[i].push_back(emit_reshape_open(b, all[1 + i], {Expr(1), s.batch, Expr(s.hidden)}));
  }
  std::vector<ValueId> results{emit_concat(b, outputs, 1)};
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
  return run_directions(b, s, false, bias,
                        [&](int64_t d, const StepWeights& weights, ValueId gates, const States& states) -> States {
                          const ValueId from_state = product(b, s, states[0], weights.state);
                          return {network.activations[d](b.emit("add", {gates, from_state}))};
                        });
}

std::vector<ValueId> emit_lstm(Builder& b, const RecurrentNetwork& network) {
  const Sequence s = sequence_of(b, network, 4);
  auto bias = [&](int64_t d) { return whole_bias(b, s, d); };
  return run_directions(
      b, s, false, bias, [&](int64_t d, const StepWeights& weights, ValueId gates, const States& states) -> States {
        const Activation *f = &network.activations[3 * d], *g = f + 1, *h = f + 2;
        const ValueId all = b.emit("add", {gates, product(b, s, states[0], weights.state)});
        auto gate = [&](int64_t index, int64_t peephole, ValueId cell) {
          ValueId x = columns(b, all, index, 1, s.hidden);
          if (network.peepholes != no_value) {
            const ValueId p = rows(b, weights.peepholes, peephole, 1, s.hidden);
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
  return run_directions(
      b, s, true, bias, [&](int64_t d, const StepWeights& weights, ValueId gates, const States& states) -> States {
        const Activation *f = &network.activations[2 * d], *g = f + 1;
        auto from_state = [&](ValueId state, int64_t first, int64_t count) {
          const ValueId y = product(b, s, state, rows(b, weights.state, first, count, s.hidden));
          return weights.bias == no_value ? y : b.emit("add", {y, rows(b, weights.bias, first, count, s.hidden)});
        };
        const bool is_joined = network.linear_before_reset;  // one product for all three
        const ValueId sums = from_state(states[0], 0, is_joined ? 3 : 2);
        const auto gate = [&](int64_t index) {
          return b.emit("add", {columns(b, gates, index, 1, s.hidden), columns(b, sums, index, 1, s.hidden)});
        };
        const ValueId z = (*f)(gate(0)), r = (*f)(gate(1));
        const ValueId h_in = columns(b, gates, 2, 1, s.hidden);
        const ValueId h_state = is_joined ? b.emit("multiply", {r, columns(b, sums, 2, 1, s.hidden)})
                                          : from_state(b.emit("multiply", {r, states[0]}), 2, 1);
        const ValueId h = (*g)(b.emit("add", {h_in, h_state}));
        const ValueId one = emit_scalar(b, dtype_of(b, z), 1);
        return {
            b.emit("add", {b.emit("multiply", {b.emit("subtract", {one, z}), h}), b.emit("multiply", {z, states[0]})})};
      });
}

}  // namespace tw::frontends
