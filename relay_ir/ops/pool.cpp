// Pooling: maximum (with indices), sum and average over windows; unpooling, and the image that windows make.
#include <algorithm>

#include "relay_ir/ops/common.h"
#include "relay_ir/ops/window.h"

namespace tw::relay {
namespace {

using Ints = std::vector<int64_t>;

std::vector<AttributeDef> pool_attributes() {
  std::vector<AttributeDef> attributes = window_attributes();
  attributes.insert(attributes.begin(), {"kernel", Ints{}, true, "size of the window in each dimension"});
  return attributes;
}

Window window_of(const OpCall& c) {
  return window_of(c, c.attributes.get_ints("kernel"));
}

std::vector<Expr> extents_of(const Window& window) {
  return {window.kernel.begin(), window.kernel.end()};
}

// Where element r of the window at output position s lies in the data, which may be outside.
te::Indices window_position(const Window& window, const te::Indices& s, const te::Indices& r) {
  te::Indices result{s[0], s[1]};
  for (size_t d = 0; d < window.kernel.size(); ++d) {
    result.push_back(s[2 + d] * window.strides[d] + r[d] * window.dilations[d] - window.pads[d]);
  }
  return result;
}

bool has_pads(const Window& window) {
  return std::any_of(window.pads.begin(), window.pads.end(), [](int64_t pad) { return pad != 0; });
}

Expr inside_of(const te::Tensor& x, const Window& window, const te::Indices& position) {
  Expr inside = bool_imm(true);
  for (size_t d = 0; d < window.kernel.size(); ++d) {
    if (window.pads[d] != 0) inside = inside && position[2 + d] >= 0;
    if (window.pads[window.kernel.size() + d] != 0) inside = inside && position[2 + d] < x.shape()[2 + d];
  }
  return inside;
}

// x with the lowest value around it.
te::Tensor pad_lowest(const te::Tensor& x, const Window& window) {
  if (!has_pads(window)) return x;
  const size_t rank = window.kernel.size();
  std::vector<Expr> shape{x.shape()[0], x.shape()[1]};
  for (size_t d = 0; d < rank; ++d) shape.push_back(x.shape()[2 + d] + (window.pads[d] + window.pads[rank + d]));
  return te::compute("pad", shape, {x}, [&](const te::Indices& s) {
    te::Indices position{s[0], s[1]};
    for (size_t d = 0; d < rank; ++d) position.push_back(s[2 + d] - window.pads[d]);
    const Expr inside = inside_of(x, window, position);
    return select(inside, load(x.buffer(), position, inside), lowest_of(x.dtype()));
  });
}

// 16-bit floats are compared in f32, which they fit, so that each is widened once and none is rounded in between.
te::Tensor max_pool(const OpCall& c, const te::Tensor& x, const std::vector<Expr>& shape) {
  const Window window = window_of(c);
  const te::Tensor padded = pad_lowest(x, window);
  Window inner = window;
  std::fill(inner.pads.begin(), inner.pads.end(), 0);
  const DType accumulator = accumulator_of(x.dtype());
  const te::Tensor largest = te::reduce("max_pool", shape, extents_of(window), te::Combiner::max, {padded},
                                        [&](const te::Indices& s, const te::Indices& r) {
                                          return cast(accumulator, padded(window_position(inner, s, r)));
                                        });
  return cast_stage(largest, x.dtype());
}

std::vector<TensorType> infer_pool(const OpCall& c, DType dtype) {
  const TensorType& x = c.inputs[0];
  c.require(x.rank() >= 3, "data is [n, c, d…]");
  TensorType y{dtype, {x.shape[0], x.shape[1]}};
  append_window_shape(c, window_of(c), x, y);
  return {y};
}

void add_examples(OpDef& op, const std::vector<DType>& dtypes) {
  for (const DType dtype : dtypes) {
    op.examples.push_back(
        {{tensor_type(dtype, {1, 2, 5, 5})},
         attributes_of({{"kernel", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}})});
    op.examples.push_back(
        {{tensor_type(dtype, {2, 2, 7})}, attributes_of({{"kernel", Ints{2}}, {"dilations", Ints{2}}})});
  }
}
AxisUses pool_axes(const OpCall& c) {
  return window_axes(c, window_of(c));
}

OpDef max_pool_op() {
  OpDef op;
  op.name = "max_pool";
  op.kind = OpKind::reduction;
  op.doc = "The largest element of each window; outside the data there is none.";
  op.input_names = {"x"};
  op.attributes = pool_attributes();
  op.facts = plain_facts(pool_axes, Rounding::moves);
  op.infer = [](const OpCall& c) {
    c.require(!c.inputs[0].dtype.is_bool(), "takes numbers");
    return infer_pool(c, c.inputs[0].dtype);
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    return {max_pool(c, in[0], c.outputs[0].shape)};
  };
  add_examples(op, {f32, f16, u8});
  return op;
}

OpDef max_pool_indices_op() {
  OpDef op;
  op.name = "max_pool_indices";
  op.kind = OpKind::composite;
  op.doc =
      "Where each window's largest element lies: its offset in the whole of x, as i64; of equals the first in the "
      "window.";
  op.input_names = {"x"};
  op.attributes = pool_attributes();
  op.attributes.push_back({"column_major", 0, false, "1: the spatial dimensions count first dimension fastest"});
  op.facts = plain_facts(pool_axes, Rounding::exact);
  op.infer = [](const OpCall& c) {
    c.require(!c.inputs[0].dtype.is_bool(), "takes numbers");
    return infer_pool(c, i64);
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const te::Tensor& x = in[0];
    const Window window = window_of(c);
    const std::vector<Expr>&shape = c.outputs[0].shape, extents = extents_of(window);
    const te::Tensor best = max_pool(c, x, shape);
    const Expr count = product_of(extents);
    const te::Tensor first = te::reduce(
        "first", shape, extents, te::Combiner::min, {x, best}, [&](const te::Indices& s, const te::Indices& r) {
          const te::Indices position = window_position(window, s, r);
          const Expr inside = inside_of(x, window, position), value = load(x.buffer(), position, inside);
          Expr is_best = equal(value, best(s));
          if (value.dtype().is_float()) is_best = is_best || call(Intrinsic::is_nan, {value});
          return select(inside && is_best, flatten_index(r, extents), count - 1);
        });
    const bool column_major = c.attributes.get_int("column_major") != 0;
    return {te::compute("max_pool_indices", shape, {first}, [&](const te::Indices& s) {
      te::Indices position = window_position(window, s, unflatten_index(first(s), extents));
      std::vector<Expr> dims(x.shape().begin(), x.shape().end());
      if (column_major) std::reverse(position.begin() + 2, position.end()), std::reverse(dims.begin() + 2, dims.end());
      return flatten_index(position, dims);
    })};
  };
  add_examples(op, {f32});
  return op;
}

OpDef sum_pool_op(const std::string& name, bool is_average) {
  OpDef op;
  op.name = name;
  op.kind = OpKind::reduction;
  op.doc = is_average
               ? "The mean of each window.  Elements outside the data count only with count_pads, and never those "
                 "of the last `uncounted` rows of the end pads.  f16 and bf16 accumulate in f32."
               : "The sum of each window.  f16 and bf16 accumulate in f32.";
  op.input_names = {"x"};
  op.attributes = pool_attributes();
  if (is_average) {
    op.attributes.push_back({"count_pads", 0, false, "1: pads count as zeros"});
    op.attributes.push_back({"uncounted", Ints{}, false, "rows of the end pads that never count; empty: none"});
  }
  op.facts = plain_facts(pool_axes, Rounding::keeps);
  op.infer = [=](const OpCall& c) {
    c.require(c.inputs[0].dtype.is_float(), "takes floats");
    const std::vector<TensorType> types = infer_pool(c, c.inputs[0].dtype);
    if (!is_average || c.attributes.get_ints("uncounted").empty()) return types;
    const Window window = window_of(c);
    const size_t rank = window.kernel.size();
    const Ints& uncounted = c.attributes.get_ints("uncounted");
    c.require(uncounted.size() == rank, "uncounted has a number for each dimension of the window");
    for (size_t d = 0; d < rank; ++d)
      c.require(0 <= uncounted[d] && uncounted[d] <= window.pads[rank + d], "uncounted rows are rows of the end pads");
    return types;
  };
  op.compute = [=](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const te::Tensor& x = in[0];
    const Window window = window_of(c);
    const size_t rank = window.kernel.size();
    const te::Tensor padded = pad_window(x, window, x.dtype());
    Window inner = window;
    std::fill(inner.pads.begin(), inner.pads.end(), 0);
    const DType accumulator = accumulator_of(x.dtype());
    const te::Tensor sum = te::reduce(is_average ? "window_sum" : name, c.outputs[0].shape, extents_of(window),
                                      te::Combiner::sum, {padded}, [&](const te::Indices& s, const te::Indices& r) {
                                        return cast(accumulator, padded(window_position(inner, s, r)));
                                      });
    if (!is_average) return {cast_stage(sum, x.dtype())};
    const bool count_pads = c.attributes.get_int("count_pads") != 0;
    Ints uncounted = c.attributes.get_ints("uncounted");
    if (uncounted.empty()) uncounted.assign(rank, 0);
    return {te::compute(name, sum.shape(), {sum}, [&](const te::Indices& s) {
      Expr count(1);
      for (size_t d = 0; d < rank; ++d) {
        const int64_t counted_end_pad = window.pads[rank + d] - uncounted[d];
        const int64_t before = count_pads ? window.pads[d] : 0, after = count_pads ? counted_end_pad : 0;
        if (before == window.pads[d] && after == window.pads[rank + d]) {
          count = count * window.kernel[d];
          continue;
        }
        // Window elements k with -before ≤ start + k·dilation < extent + after.
        const Expr start = s[2 + d] * window.strides[d] - window.pads[d];
        const int64_t dilation = window.dilations[d];
        auto first_from = [&](const Expr& bound) {  // the least k ≥ 0 with start + k·dilation ≥ bound, at most kernel
          return min(max(floor_div(bound - start + (dilation - 1), dilation), 0), window.kernel[d]);
        };
        count = count * max(first_from(x.shape()[2 + d] + after) - first_from(Expr(-before)), 1);
      }
      return cast(x.dtype(), sum(s) / cast(accumulator, count));
    })};
  };
  add_examples(op, {f32, f16});
  return op;
}

OpDef max_unpool_op() {
  OpDef op;
  op.name = "max_unpool";
  op.kind = OpKind::opaque;
  op.doc = "Zeros of the given shape, with each element of x at the offset that indices gives.";
  op.input_names = {"x", "indices"};
  op.attributes = {{"shape", std::vector<Expr>{}, true, "of the result"}};
  op.facts = plain_facts(unknown_axes, Rounding::exact);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    c.require(c.inputs[1].dtype == i64, "indices are i64");
    c.require(c.inputs[0].rank() == c.inputs[1].rank(), "x and indices have one shape");
    for (int d = 0; d < c.inputs[0].rank(); ++d)
      c.require_equal(c.inputs[0].shape[d], c.inputs[1].shape[d], "x and indices have one shape");
    return {{c.inputs[0].dtype, c.attributes.get_dims("shape")}};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const std::vector<Expr>& shape = c.outputs[0].shape;
    return te::opaque("max_unpool", in, {{c.outputs[0].dtype, shape}}, [&](const std::vector<Buffer>& out) {
      const Var clear("p"), element("e");
      const Expr total = product_of(shape), count = product_of(in[0].shape());
      const te::Indices from = unflatten_index(element, in[0].shape());
      const Expr target = data_index(in[1](from), total);
      return seq({make_stmt<For>(clear, total, LoopKind::serial,
                                 store(out[0], unflatten_index(clear, shape), zero_of(out[0]->dtype))),
                  make_stmt<For>(element, count, LoopKind::serial,
                                 store(out[0], unflatten_index(target, shape), in[0](from)))});
    });
  };
  op.examples = {{{tensor_type(f32, {1, 1, 2}), tensor_type(i64, {1, 1, 2})},
                  attributes_of({{"shape", Ints{1, 1, 4}}}),
                  {NDArray(), int_array({1, 3}).reshape({1, 1, 2})}}};
  return op;
}

// Windows whose extents may be open: how they step over an image, and how many there are in each dimension.
struct FoldWindows {
  std::vector<Expr> extents, counts;
  Window step;
};

FoldWindows fold_windows(const OpCall& c) {
  const std::vector<Expr>&image = c.attributes.get_dims("image"), &extents = c.attributes.get_dims("kernel");
  OpCall of_image = c;
  of_image.inputs[0].shape.resize(2, Expr(1));
  of_image.inputs[0].shape.insert(of_image.inputs[0].shape.end(), image.begin(), image.end());
  FoldWindows windows{extents, {}, window_of(of_image, Ints(extents.size(), 1))};
  for (size_t d = 0; d < extents.size(); ++d) {
    const int64_t extent = as_int(extents[d]).value_or(1);
    c.require(extent >= 1 && extent < window_limit, "kernel is at least 1");
    const Expr reach = simplify((extents[d] - 1) * windows.step.dilations[d] + 1);
    windows.counts.push_back(window_count(c, windows.step, d, image[d], reach));
  }
  return windows;
}

OpDef fold_op() {
  OpDef op;
  op.name = "fold";
  op.kind = OpKind::reduction;
  op.doc =
      "An image [n, c, d…] as the sum of its windows, columns of x [n, c · kernel, windows].  f16 and bf16 accumulate "
      "in f32.";
  op.input_names = {"x"};
  op.attributes = window_attributes();
  op.attributes.push_back({"kernel", std::vector<Expr>{}, true, "size of the window in each dimension"});
  op.attributes.push_back({"image", std::vector<Expr>{}, true, "its size in each dimension"});
  op.facts = plain_facts(unknown_axes, Rounding::exact);
  op.infer = [](const OpCall& c) -> std::vector<TensorType> {
    const TensorType& x = c.inputs[0];
    c.require(!x.dtype.is_bool() && x.rank() == 3, "takes numbers [n, c · kernel, windows]");
    const FoldWindows windows = fold_windows(c);
    const Expr size = simplify(product_of(windows.extents)), channels = simplify(floor_div(x.shape[1], size));
    c.require_equal(x.shape[1], simplify(channels * size), "the rows of x are those of a window, for each channel");
    c.require_equal(x.shape[2], simplify(product_of(windows.counts)), "the columns of x are the windows of the image");
    TensorType y{x.dtype, {x.shape[0], channels}};
    for (const Expr& dim : c.attributes.get_dims("image")) y.shape.push_back(dim);
    return {y};
  };
  op.compute = [](const OpCall& c, const std::vector<te::Tensor>& in) -> std::vector<te::Tensor> {
    const te::Tensor& x = in[0];
    const auto [extents, counts, step] = fold_windows(c);
    const te::Tensor sum = te::reduce(
        "fold", c.outputs[0].shape, extents, te::Combiner::sum, in, [&](const te::Indices& s, const te::Indices& r) {
          Expr inside = bool_imm(true);
          te::Indices block;
          for (size_t d = 0; d < extents.size(); ++d) {
            const Expr start = s[2 + d] + step.pads[d] - r[d] * step.dilations[d];
            block.push_back(floor_div(start, step.strides[d]));
            inside = inside && start >= 0 && block[d] < counts[d];
            if (step.strides[d] > 1) inside = inside && equal(floor_mod(start, step.strides[d]), 0);
          }
          const Expr row = s[1] * product_of(extents) + flatten_index(r, extents);
          return cast(accumulator_of(x.dtype()), load(x.buffer(), {s[0], row, flatten_index(block, counts)}, inside));
        });
    return {cast_stage(sum, x.dtype())};
  };
  op.examples = {
      {{tensor_type(f32, {2, 12, 12})},
       attributes_of(
           {{"image", Ints{5, 4}}, {"kernel", Ints{2, 3}}, {"pads", Ints{0, 1, 1, 1}}, {"strides", Ints{2, 1}}})}};
  return op;
}

}  // namespace

std::vector<OpDef> pool_family() {
  return {max_pool_op(),
          max_pool_indices_op(),
          sum_pool_op("sum_pool", false),
          sum_pool_op("average_pool", true),
          max_unpool_op(),
          fold_op()};
}

}  // namespace tw::relay
