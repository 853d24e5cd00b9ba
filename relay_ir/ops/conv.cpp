// Convolutions of any rank, with groups, dilation and strides, and their transposes.
#include <algorithm>
#include <utility>

#include "relay_ir/ops/common.h"
#include "relay_ir/ops/window.h"
#include "tensor_ir/arith/simplify.h"

namespace tw::relay {
namespace {

// The input channel of group-local channel `local` for output channel `out`.
Expr input_channel(const Expr& out, const Expr& local, int64_t groups, int64_t outputs_per_group,
                   int64_t inputs_per_group) {
  if (groups == 1) return local;
  const Expr group = outputs_per_group == 1 ? out : floor_div(out, outputs_per_group);
  return inputs_per_group == 1 ? group : group * inputs_per_group + local;
}
// Channels of one group each: their positions are the result's.
AxisUse channel_use(int64_t groups, int64_t inputs, int64_t outputs) {
  if (groups == 1) return whole_axis(1);
  if (groups == inputs && groups == outputs) return same_axis(1);
  return {.kind = AxisUse::Kind::window, .axis = 1, .size = inputs / groups};
}

AxisUses conv_axes(const OpCall& c) {
  const std::vector<int64_t> weight = const_dims(c, c.inputs[1]);
  const int64_t groups = c.attributes.get_int("groups");
  AxisUses uses = window_axes(c, window_of(c, {weight.begin() + 2, weight.end()}));
  uses[0][1] = channel_use(groups, weight[1] * groups, weight[0]);
  uses[1].assign(uses[0].size(), fixed_axis());
  uses[1][1] = same_axis(0);
  return uses;
}

OpDef conv_op() {
  OpDef op;
  op.name = "conv";
  op.takes_narrow = true;
  op.kind = OpKind::contraction;
  op.doc =
      "Convolution of any rank.  y[n, o, p…] = Σ x[n, c, p·stride + k·dilation - pad …] · w[o, c, k…] over the "
      "channels c "
      "of o's group and the window k; outside x is 0.  f16 and bf16 accumulate in f32.";
  op.input_names = {"x", "weight"};
  op.attributes = window_attributes();
  op.attributes.push_back({"groups", 1, false, "channels are split into this many independent groups"});
  op.attributes.push_back(result_attribute());
  op.attributes.push_back(operands_attribute());
  op.decisions = {{"fuse_expansion", "1: one kernel with the convolution that makes its channels"},
                  {"fuse_padding", "1: one kernel with the pad that makes its data"}};
  op.facts = linear_facts(conv_axes, Rounding::multiplies, 2, [](const OpCall& c) -> std::optional<Linear> {
    return Linear{.data_axis = 1,
                  .weight_axis = 1,
                  .result_axis = 1,
                  .filter_axis = 0,
                  .groups = c.attributes.get_int("groups"),
                  .has_window = true};
  });
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType &x = c.inputs[0], &w = c.inputs[1];
    const DType result = contraction_dtype(c);
    c.require(x.rank() >= 3 && x.rank() == w.rank(), "data is [n, c, d…], weight [o, c, k…]");
    const std::vector<int64_t> weight = const_dims(c, w);
    const int64_t groups = c.attributes.get_int("groups");
    c.require(groups >= 1 && weight[0] % groups == 0, "groups divide the output channels");
    c.require_equal(x.shape[1], Expr(weight[1] * groups), "channels of data and weight differ");
    TensorType y{result, {x.shape[0], Expr(weight[0])}};
    const Window window = window_of(c, {weight.begin() + 2, weight.end()});
    append_window_shape(c, window, x, y);
    return {y};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const te::Tensor& w = in[1];
    const std::vector<int64_t> weight = const_dims(c, c.inputs[1]);
    const Window window = window_of(c, {weight.begin() + 2, weight.end()});
    const int64_t groups = c.attributes.get_int("groups"), per_group = weight[0] / groups;
    const DType result = c.outputs[0].dtype, accumulator = accumulator_of(result);
    // What is multiplied in f32 is better widened once than in every product.
    const bool has_words = !c.attributes.get_string("result").empty() && in[0].dtype() == w.dtype();
    const bool is_code = in[0].dtype().is_integer() && accumulator.is_float();
    const bool is_widened = groups > 1 && (is_half(in[0].dtype()) || is_code) && !has_words;
    te::Tensor x = pad_window(in[0], window, is_widened ? accumulator : in[0].dtype());
    if (is_widened && is_code) x = cast_stage(x, accumulator);  // whose pads are there before: its zero point
    std::vector<Expr> extents{w.shape()[1]};
    for (const int64_t k : window.kernel)
      if (k > 1) extents.emplace_back(k);
    const te::Tensor y = te::reduce(
        "conv", c.outputs[0].shape, extents, te::Combiner::sum, {x, w},
        [&](const te::Indices& s, const te::Indices& r) {
          te::Indices data{s[0], input_channel(s[1], r[0], groups, per_group, weight[1])}, filter{s[1], r[0]};
          auto k = r.begin() + 1;  // of the dimensions that have more than one
          for (size_t d = 0; d < window.kernel.size(); ++d) {
            filter.push_back(window.kernel[d] > 1 ? Expr(*k++) : Expr(0));
            data.push_back(s[2 + d] * window.strides[d] + filter.back() * window.dilations[d]);
          }
          return factor_of(c, 0, x(data)) * factor_of(c, 1, w(filter));
        });
    return {cast_stage(y, result)};
  };
  using Ints = std::vector<int64_t>;
  op.examples = {
      {{tensor_type(f32, {1, 3, 6, 6}), tensor_type(f32, {4, 3, 3, 3})},
       attributes_of({{"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 2}}})},
      {{tensor_type(f32, {2, 4, 7}), tensor_type(f32, {8, 1, 3})},
       attributes_of({{"groups", 4}, {"dilations", Ints{2}}, {"pads", Ints{2, 1}}})},
      {{tensor_type(f16, {1, 2, 3, 4, 4}), tensor_type(f16, {2, 2, 1, 2, 2})}, {}},
      {{tensor_type(i32, {1, 4, 5, 5}), tensor_type(i32, {4, 2, 1, 1})}, attributes_of({{"groups", 2}})},
      {{tensor_type(u8, {1, 4, 5, 5}), tensor_type(i8, {4, 4, 3, 3})}, attributes_of({{"result", "i32"}})},
      {{tensor_type(u8, {1, 4, 5, 5}), tensor_type(f32, {4, 1, 3, 3})},
       attributes_of({{"result", "f32"}, {"groups", 4}, {"pads", Ints{1, 1, 1, 1}}})},
      {{tensor_type(f8e4m3fn, {1, 4, 5, 5}), tensor_type(f8e5m2, {4, 1, 3, 3})},
       attributes_of({{"result", "f32"}, {"groups", 4}, {"pads", Ints{1, 1, 1, 1}}})},
      {{tensor_type(f32, {1, 4, 5, 5}), tensor_type(f32, {4, 4, 3, 3})}, attributes_of({{"operands", "tf32"}})},
      {{tensor_type(f8e4m3fn, {1, 4, 5, 5}), tensor_type(f8e4m3fn, {4, 4, 3, 3})},
       attributes_of({{"result", "f32"}, {"pads", Ints{1, 1, 1, 1}}})}};
  return op;
}

struct TransposeWindow {
  Window window;               // pads: cut away from the full result
  std::vector<int64_t> extra;  // output_padding: rows added at the end
  std::vector<Expr> size;      // extents that are left
};

TransposeWindow transpose_window(const OpCall& c) {
  const std::vector<int64_t> w = const_dims(c, c.inputs[1]);
  TransposeWindow t{window_of(c, {w.begin() + 2, w.end()}), c.attributes.get_ints("output_padding"), {}};
  const size_t rank = t.window.kernel.size();
  if (t.extra.empty()) t.extra.assign(rank, 0);
  c.require(t.extra.size() == rank, "output_padding has a number for each dimension of the window");
  for (size_t d = 0; d < rank; ++d) {
    const int64_t more = t.window.reach(d) + t.extra[d] - t.window.pads[d] - t.window.pads[rank + d];
    t.size.push_back(simplify((c.inputs[0].shape[2 + d] - 1) * t.window.strides[d] + more));
    c.require_at_most(Expr(0), t.size[d], "pads cut away more than there is");
  }
  return t;
}
AxisUses conv_transpose_axes(const OpCall& c) {
  const std::vector<int64_t> weight = const_dims(c, c.inputs[1]);
  const int64_t groups = c.attributes.get_int("groups");
  AxisUses uses = unknown_axes(c);
  uses[0][0] = same_axis(0);
  uses[0][1] = channel_use(groups, weight[0], weight[1] * groups);
  return uses;
}

OpDef conv_transpose_op() {
  OpDef op;
  op.name = "conv_transpose";
  op.kind = OpKind::contraction;
  op.doc =
      "The transpose of a convolution: every element of x adds x · w[c, o, k…] to the result at its position · stride "
      "+ "
      "k · dilation - pad.  weight is [c, o / groups, k…].";
  op.input_names = {"x", "weight"};
  op.attributes = window_attributes();
  op.attributes.push_back({"groups", 1, false, "channels are split into this many independent groups"});
  op.attributes.push_back({"output_padding", std::vector<int64_t>{}, false, "rows added at the end of each dimension"});
  op.facts = linear_facts(conv_transpose_axes, Rounding::exact, 2, [](const OpCall& c) -> std::optional<Linear> {
    const int64_t groups = c.attributes.get_int("groups");
    return Linear{.data_axis = 1,
                  .weight_axis = 0,
                  .result_axis = 1,
                  .filter_axis = groups == 1 ? 1 : -1,
                  .groups = groups,
                  .has_window = true};
  });
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType &x = c.inputs[0], &w = c.inputs[1];
    c.require(x.dtype == w.dtype && x.dtype.is_float(), "data and weight have one type of floats");
    c.require(x.rank() >= 3 && x.rank() == w.rank(), "data is [n, c, d…], weight [c, o, k…]");
    const std::vector<int64_t> weight = const_dims(c, w);
    const int64_t groups = c.attributes.get_int("groups");
    c.require(groups >= 1 && weight[0] % groups == 0, "groups divide the channels");
    c.require_equal(x.shape[1], Expr(weight[0]), "channels of data and weight differ");
    TensorType y{x.dtype, {x.shape[0], Expr(weight[1] * groups)}};
    for (const Expr& size : transpose_window(c).size) y.shape.push_back(size);
    return {y};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const te::Tensor &x = in[0], &w = in[1];
    const TransposeWindow t = transpose_window(c);
    const Window& window = t.window;
    const size_t rank = window.kernel.size();
    const int64_t groups = c.attributes.get_int("groups"), outputs = *as_int(w.shape()[1]),
                  inputs = *as_int(w.shape()[0]) / groups;
    const DType accumulator = accumulator_of(x.dtype());
    auto channel = [&](const Expr& out, const Expr& local) {
      return input_channel(out, local, groups, outputs, inputs);
    };
    auto output_in_group = [&](const Expr& out) { return groups == 1 ? out : floor_mod(out, outputs); };

    // Windows that tile the result: each result element has one source element and one weight.
    bool is_tiling = true;
    for (size_t d = 0; d < rank; ++d) {
      is_tiling = is_tiling && window.kernel[d] == window.strides[d] && window.dilations[d] == 1 && t.extra[d] == 0 &&
                  window.pads[d] == 0 && window.pads[rank + d] == 0;
    }
    if (is_tiling) {
      const te::Tensor y = te::reduce("conv_transpose", c.outputs[0].shape, {Expr(inputs)}, te::Combiner::sum, {x, w},
                                      [&](const te::Indices& s, const te::Indices& r) {
                                        te::Indices data{s[0], channel(s[1], r[0])},
                                            filter{channel(s[1], r[0]), output_in_group(s[1])};
                                        for (size_t d = 0; d < rank; ++d) {
                                          data.push_back(floor_div(s[2 + d], window.strides[d]));
                                          filter.push_back(floor_mod(s[2 + d], window.strides[d]));
                                        }
                                        return cast(accumulator, x(data)) * cast(accumulator, w(filter));
                                      });
      return {cast_stage(y, x.dtype())};
    }

    // Otherwise zeros are put between the elements and around them, and the window runs backwards.
    std::vector<Expr> spread_shape{x.shape()[0], x.shape()[1]};
    for (size_t d = 0; d < rank; ++d) {
      spread_shape.push_back(simplify(t.size[d] + (window.kernel[d] - 1) * window.dilations[d]));
    }
    const te::Tensor spread = te::compute("spread", spread_shape, {x}, [&](const te::Indices& s) {
      te::Indices data{s[0], s[1]};
      Expr is_element = bool_imm(true);
      for (size_t d = 0; d < rank; ++d) {
        const int64_t lead = (window.kernel[d] - 1) * window.dilations[d] - window.pads[d];
        const Expr position = s[2 + d] - lead, index = floor_div(position, window.strides[d]);
        if (window.strides[d] != 1) is_element = is_element && equal(floor_mod(position, window.strides[d]), 0);
        is_element = is_element && in_bounds(index, x.shape()[2 + d]);
        data.push_back(index);
      }
      return load(x.buffer(), data, is_element);
    });
    std::vector<Expr> extents{Expr(inputs)};
    for (const int64_t k : window.kernel) extents.emplace_back(k);
    const te::Tensor y = te::reduce("conv_transpose", c.outputs[0].shape, extents, te::Combiner::sum, {spread, w},
                                    [&](const te::Indices& s, const te::Indices& r) {
                                      te::Indices data{s[0], channel(s[1], r[0])},
                                          filter{channel(s[1], r[0]), output_in_group(s[1])};
                                      for (size_t d = 0; d < rank; ++d) {
                                        data.push_back(s[2 + d] + r[1 + d] * window.dilations[d]);
                                        filter.push_back(Expr(window.kernel[d] - 1) - r[1 + d]);
                                      }
                                      return cast(accumulator, spread(data)) * cast(accumulator, w(filter));
                                    });
    return {cast_stage(y, x.dtype())};
  };
  using Ints = std::vector<int64_t>;
  op.examples = {
      {{tensor_type(f32, {1, 3, 4, 4}), tensor_type(f32, {3, 2, 2, 2})}, attributes_of({{"strides", Ints{2, 2}}})},
      {{tensor_type(f32, {1, 4, 3, 3}), tensor_type(f32, {4, 1, 3, 3})},
       attributes_of(
           {{"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}, {"output_padding", Ints{1, 1}}, {"groups", 2}})},
      {{tensor_type(f16, {1, 2, 5}), tensor_type(f16, {2, 3, 3})}, attributes_of({{"dilations", Ints{2}}})}};
  return op;
}

}  // namespace
std::vector<OpDef> conv_family() {
  return {conv_op(), conv_transpose_op()};
}

}  // namespace tw::relay
