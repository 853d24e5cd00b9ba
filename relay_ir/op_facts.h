// What passes may know of an operator without knowing its name: how its results lie to its inputs, what it does to
// rounded data, whether it is a linear form, how it is updated in place.  Each operator states all of it beside its
// mathematics; a field that is left out does not compile, and a test tries what is stated on the operator's examples.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tensor_ir/te.h"

namespace tw::relay {

struct Graph;
struct Node;
struct OpCall;

// What positions along one axis of the first result read of an input.
struct AxisUse {
  enum class Kind : uint8_t {
    unknown,  // data decides, or several axes together
    fixed,    // the same at every position: the input has no such axis, or one element along it
    same,     // position p reads p of the input's `axis`
    runs,     // positions one after the other read elements of `axis` at equal distances
    window,   // position p reads some of `axis` around p · stride
    whole,    // every position reads all of `axis`
  };
  struct Run {  // positions to … to + count - 1 read from, from + step, …
    int64_t to = 0, from = 0, count = 0, step = 1;
  };
  Kind kind = Kind::unknown;
  int axis = -1;
  std::vector<Run> runs = {};                  // empty: where they lie is known in a run only
  int64_t stride = 1, size = 1, dilation = 1;  // of a window: between neighbours' windows; its elements; between these

  bool is_same(int of_axis) const { return kind == Kind::same && axis == of_axis; }
};
// By input, then by axis of the first result.
using AxisUses = std::vector<std::vector<AxisUse>>;
using AxesFunction = AxisUses (*)(const OpCall&);

// What an operator does with floats that are stored in fewer bits than it computes in.
enum class Rounding : uint8_t {
  unstated,
  exact,       // wants all bits: exponentials, roots, comparisons, roundings, indices, running sums …
  keeps,       // its loops widen what they read, and its result is as exact as that
  moves,       // its result's elements are elements of its input
  widens,      // computes in f32 whatever it takes, and rounds its result to its type
  multiplies,  // products of its operands, which may be rounded; sums in f32
};

// A sum of products of data (input 0) and weights (input 1): linear in either.
struct Linear {
  int data_axis = 0, weight_axis = 0;    // multiplied with one another and added up, a window besides
  int result_axis = 0, filter_axis = 0;  // the result's position along the one picks the filter along the other;
                                         // filter_axis -1: several axes of the weights together
  int64_t groups = 1;                    // into which the data's axis is split, each with filters of its own
  bool has_window = false;
};
using LinearFunction = std::optional<Linear> (*)(const OpCall&);
inline constexpr LinearFunction not_linear = nullptr;

// The loops that write the changed elements alone to `result`, which holds the first input.  They read no other value
// of its shape.
using UpdateFunction = Stmt (*)(const OpCall&, const std::vector<te::Tensor>& inputs, const Buffer& result);
inline constexpr UpdateFunction makes_all_anew = nullptr;

// In row-major order: the element of input 0 at which the result begins, where its elements are neighbours there, too.
using PartFunction = std::optional<Expr> (*)(const OpCall&);
inline constexpr PartFunction no_part = nullptr;

inline constexpr int all_inputs = 1 << 10;

struct OpFacts {
  AxesFunction axes;
  Rounding rounding;
  int operands;  // so many inputs, from the first on, are data that may be rounded; the rest are scales, masks, …
  LinearFunction linear;
  UpdateFunction update;
  PartFunction part;   // beside what axes say of parts
  bool takes_strides;  // reads its operands and writes its result with any strides, so that it takes up what moves them
};

// Of operators that are neither linear forms nor updated in place, and that walk rows as they lie.
OpFacts plain_facts(AxesFunction axes, Rounding rounding, int operands = all_inputs);
// …of linear forms.
OpFacts linear_facts(AxesFunction axes, Rounding rounding, int operands, LinearFunction linear);
// …of operators whose result is their first input but for some elements, at places that data decides.
OpFacts updated_facts(UpdateFunction update, int operands);

// …of operators whose result is elements of their input, often a part of it as it lies.
OpFacts part_facts(AxesFunction axes, PartFunction part);

// ---------------------------------------------------------------------------------------------------------------
// For operators that state them

AxisUse same_axis(int axis);
AxisUse whole_axis(int axis);
AxisUse fixed_axis();
AxisUses unknown_axes(const OpCall& call);
// Inputs are broadcast to the result by numpy's rules.
AxisUses broadcast_axes(const OpCall& call);
// Axes of input 0 are the result's, by number; what is known of the other inputs is nothing.
AxisUses aligned_axes(const OpCall& call);

// ---------------------------------------------------------------------------------------------------------------
// For passes that ask

AxisUses axes_of(const Graph& graph, const Node& node);
std::optional<Linear> linear_of(const Graph& graph, const Node& node);
// Elements of one input in another order or fewer of them, found by a stride and an offset for each axis.
bool is_strided(const Graph& graph, const Node& node);
// …all of them, in another order.
bool is_permutation(const Graph& graph, const Node& node);
// Whole inputs, one after the other along an axis.
bool joins_whole(const Graph& graph, const Node& node);
// …which is this one of the result.
int joined_axis(const Graph& graph, const Node& node);
// …so that in row-major order all elements of one stand behind all of those before it.
bool joins_end_to_end(const Graph& graph, const Node& node);

}  // namespace tw::relay
