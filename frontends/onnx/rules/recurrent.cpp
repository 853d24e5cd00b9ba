// LSTM, GRU and RNN.
#include "frontends/recurrent.h"

#include <algorithm>

#include "frontends/onnx/rules/quantize.h"

namespace tw::frontends::onnx {
namespace {

struct KnownActivation {
  std::string_view name;  // in small letters
  std::string_view op;
  bool has_alpha, has_beta;
  double alpha, beta;  // defaults
};

constexpr KnownActivation known_activations[] = {{"relu", "relu", false, false, 0, 0},
                                                 {"tanh", "tanh", false, false, 0, 0},
                                                 {"sigmoid", "sigmoid", false, false, 0, 0},
                                                 {"affine", "affine", true, true, 1, 0},
                                                 {"leakyrelu", "leaky_relu", true, false, 0.01, 0},
                                                 {"thresholdedrelu", "thresholded_relu", true, false, 1, 0},
                                                 {"hardsigmoid", "hard_sigmoid", true, true, 0.2, 0.5},
                                                 {"elu", "elu", true, false, 1, 0},
                                                 {"softsign", "softsign", false, false, 0, 0},
                                                 {"softplus", "softplus", false, false, 0, 0}};

ValueId activate(Context& c, const KnownActivation& a, double alpha, double beta, ValueId x) {
  if (a.op == "affine") {
    const DType dtype = dtype_of(c, x);
    return c.emit("add", {c.emit("multiply", {x, emit_scalar(c, dtype, alpha)}), emit_scalar(c, dtype, beta)});
  }
  NodeAttributes attributes;
  if (a.has_alpha) attributes.set("alpha", alpha);
  if (a.has_beta) attributes.set("beta", beta);
  return c.emit(std::string(a.op), {x}, attributes);
}

// Of all directions, with the defaults of each.
std::vector<Activation> activations_of(Context& c, const std::vector<std::string>& defaults, size_t directions) {
  std::vector<std::string> names = c.attribute_strings("activations");
  if (names.empty()) {
    for (size_t d = 0; d < directions; ++d) names.insert(names.end(), defaults.begin(), defaults.end());
  }
  if (names.size() != defaults.size() * directions) c.refuse("activations of another number");
  const std::vector<double> alphas = c.attribute_floats("activation_alpha", {}),
                            betas = c.attribute_floats("activation_beta", {});
  size_t next_alpha = 0, next_beta = 0;
  std::vector<Activation> result;
  for (std::string name : names) {
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char letter) { return std::tolower(letter); });
    const auto* found = std::find_if(std::begin(known_activations), std::end(known_activations),
                                     [&](const KnownActivation& known) { return name == known.name; });
    if (found == std::end(known_activations)) c.refuse("activation " + name);
    const double alpha = found->has_alpha && next_alpha < alphas.size() ? alphas[next_alpha++] : found->alpha;
    const double beta = found->has_beta && next_beta < betas.size() ? betas[next_beta++] : found->beta;
    result.push_back([&c, found, alpha, beta](ValueId x) { return activate(c, *found, alpha, beta, x); });
  }
  return result;
}

using Emit = std::vector<ValueId> (*)(Builder&, const RecurrentNetwork&);

// `states`: how many initial states are inputs, from the fifth on.  `weights`: the second input and the third, which
// may be made of these.
RecurrentNetwork network_of(Context& c, std::pair<ValueId, ValueId> weights, size_t states,
                            const std::vector<std::string>& activations) {
  RecurrentNetwork network{c.input(0), weights.first, weights.second, c.optional_input(3), c.optional_input(4)};
  const std::string direction = c.attribute_string("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
    c.refuse("direction=\"" + direction + "\"");
  if (c.has_attribute("clip")) c.refuse("clip");
  if (c.attribute_int("input_forget", 0) != 0) c.refuse("input_forget=1");
  for (size_t i = 0; i < states; ++i) network.states.push_back(c.optional_input(5 + i));
  network.peepholes = c.optional_input(7);
  const auto require_rank = [&](ValueId value, int rank, const char* what) {
    if (value != no_value && rank_of(c, value) != rank)
      c.refuse(what + std::string(" of another rank than ") + std::to_string(rank));
  };
  require_rank(network.weight, 3, "weights");
  require_rank(network.state_weight, 3, "weights");
  require_rank(network.bias, 2, "a bias");
  require_rank(c.optional_input(4), 1, "lengths");
  for (const ValueId state : network.states) require_rank(state, 3, "a state");
  require_rank(network.peepholes, 2, "peepholes");
  network.is_reverse = direction == "reverse";
  network.is_bidirectional = direction == "bidirectional";
  network.activations = activations_of(c, activations, network.is_bidirectional ? 2 : 1);
  network.batch_first = c.attribute_int("layout", 0) != 0;
  network.linear_before_reset = c.attribute_int("linear_before_reset", 0) != 0;
  return network;
}

using Emit = std::vector<ValueId> (*)(Builder&, const RecurrentNetwork&);

Rule recurrent_rule(const std::string& op_type, Emit emit, size_t states, std::vector<std::string> activations) {
  return {op_type, "", 7,
          [=](Context& c) { return emit(c, network_of(c, {c.input(1), c.input(2)}, states, activations)); }};
}

const std::vector<std::string> lstm_activations = {"Sigmoid", "Tanh", "Tanh"};

// Of weights of 8 bits, transposed, with one scale a direction or one a column of it; the data, and each step's state,
// are rounded to 8 bits of their own range before they are multiplied.
std::vector<ValueId> import_dynamic_quantize_lstm(Context& c) {
  const auto weights = [&](size_t i, size_t scale) {
    const ValueId codes = c.input(i);
    if (rank_of(c, codes) != 3) c.refuse("weights of another rank than 3");
    const auto spread = [&](ValueId p) {
      const std::vector<Expr> dims = c.type(p).shape;
      return emit_reshape_open(c, p, {dims.at(0), Expr(1), dims.size() == 2 ? dims[1] : Expr(1)});
    };
    const ValueId real = emit_dequantized(c, codes, spread(c.input(scale)), spread(c.input(scale + 1)), f32);
    return emit_transpose(c, real, {0, 2, 1});
  };
  RecurrentNetwork network = network_of(c, {weights(1, 8), weights(2, 10)}, 2, lstm_activations);
  network.operand = [&](ValueId x) { return emit_dequantized(c, emit_quantized_dynamically(c, x)); };
  return emit_lstm(c, network);
}

}  // namespace

std::vector<Rule> recurrent_rules() {
  return {
      recurrent_rule("RNN", emit_rnn, 1, {"Tanh"}),
      recurrent_rule("LSTM", emit_lstm, 2, lstm_activations),
      {"DynamicQuantizeLSTM", microsoft, 1, import_dynamic_quantize_lstm},
      recurrent_rule("GRU", emit_gru, 1, {"Sigmoid", "Tanh"}),
  };
}

}  // namespace tw::frontends::onnx
