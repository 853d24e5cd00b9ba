// LSTM, GRU and RNN: all of x · W is one product, then comes a loop whose steps have one product of the state each.
#pragma once

#include "frontends/emit.h"

namespace tw::frontends {

using Activation = std::function<ValueId(ValueId)>;

struct RecurrentNetwork {
  ValueId x;                         // [steps, batch, inputs]
  ValueId weight;                    // [directions, gates · hidden, inputs]
  ValueId state_weight;              // [directions, gates · hidden, hidden]
  ValueId bias = no_value;           // [directions, 2 · gates · hidden]: of x, then of the state
  ValueId lengths = no_value;        // [batch]; absent: all steps
  std::vector<ValueId> states = {};  // the first of each state [directions, batch, hidden], or no_value
  ValueId peepholes = no_value;      // of an LSTM, i o f: [directions, 3 · hidden]
  // What becomes of the data and of each step's state before they are multiplied with weights; nothing: they stay.
  std::function<ValueId(ValueId)> operand = {};
  std::vector<Activation> activations = {};  // of each direction, one after the other
  bool is_reverse = false, is_bidirectional = false;
  bool batch_first = false;          // batch stands before steps and directions in x, states and results
  bool linear_before_reset = false;  // of a GRU
};

// Results: all outputs [steps, directions, batch, hidden], then each state after the last step.
std::vector<ValueId> emit_rnn(Builder& b, const RecurrentNetwork& network);   // activations: f
std::vector<ValueId> emit_lstm(Builder& b, const RecurrentNetwork& network);  // gates i o f c, activations f g h
std::vector<ValueId> emit_gru(Builder& b, const RecurrentNetwork& network);   // gates z r h, activations f g

}  // namespace tw::frontends
