#include "tests/unit/sample_funcs.h"

#include <cmath>
#include <random>

#include "schedule/schedule.h"
#include "tensor_ir/interp/interp.h"
#include "tensor_ir/match.h"

namespace tw::test {
namespace {

using te::Indices;
using te::Tensor;

Expr relu(const Expr& x) {
  return call(Intrinsic::maximum, {x, zero_of(x.dtype())});
}

Tensor product(const std::string& name, const Tensor& a, const Tensor& b, bool is_transposed) {
  const Expr k = a.shape()[1], n = is_transposed ? b.shape()[0] : b.shape()[1];
  return te::reduce(name, {a.shape()[0], n}, {k}, te::Combiner::sum, {a, b}, [&](const Indices& s, const Indices& r) {
    return a({s[0], r[0]}) * (is_transposed ? b({s[1], r[0]}) : b({r[0], s[1]}));
  });
}

Tensor pad(const Tensor& x, int64_t padding, double value) {
  if (padding == 0) return x;
  std::vector<Expr> shape = x.shape();
  shape[2] = shape[2] + 2 * padding, shape[3] = shape[3] + 2 * padding;
  return te::compute(x.buffer()->name + "_padded", shape, {x}, [&](const Indices& s) {
    const Expr h = s[2] - padding, w = s[3] - padding;
    const Expr inside = (h >= 0) && (h < x.shape()[2]) && (w >= 0) && (w < x.shape()[3]);
    return select(inside, load(x.buffer(), {s[0], s[1], h, w}, inside), const_of(x.dtype(), value));
  });
}

int64_t output_size(int64_t size, int64_t kernel, int64_t stride, int64_t padding) {
  return (size + 2 * padding - kernel) / stride + 1;
}

}  // namespace

void mark_constant(Func& f, const std::string& buffer) {
  for (Buffer& parameter : f.buffers) {
    if (parameter->name != buffer) continue;
    BufferNode node = *parameter.get();
    node.is_constant = true;
    const Buffer constant(std::move(node));
    f.body = replace_buffer(f.body, parameter, constant);
    parameter = constant;
  }
}

Func matmul(int64_t m, int64_t n, int64_t k, bool is_transposed, bool has_constant_weights, DType dtype) {
  const Tensor a = te::placeholder("A", {m, k}, dtype);
  const Tensor b = is_transposed ? te::placeholder("B", {n, k}, dtype) : te::placeholder("B", {k, n}, dtype);
  Func f = te::make_func("matmul", {a, b}, {product("C", a, b, is_transposed)});
  if (has_constant_weights) mark_constant(f, "B");
  return f;
}

Func matmul_epilogue(int64_t m, int64_t n, int64_t k) {
  const Tensor a = te::placeholder("A", {m, k}), b = te::placeholder("B", {k, n});
  const Tensor bias = te::placeholder("bias", {n}), residual = te::placeholder("residual", {m, n});
  const Tensor c = product("C", a, b, false);
  const Tensor biased = te::compute("biased", {m, n}, {c, bias}, [&](const Indices& s) { return c(s) + bias({s[1]}); });
  const Tensor active = te::compute("active", {m, n}, {biased}, [&](const Indices& s) { return relu(biased(s)); });
  const Tensor out =
      te::compute("out", {m, n}, {active, residual}, [&](const Indices& s) { return active(s) + residual(s); });
  Func f = te::make_func("matmul_epilogue", {a, b, bias, residual}, {out});
  mark_constant(f, "B");
  return f;
}

Func glu(int64_t m, int64_t n, int64_t k) {
  const Tensor a = te::placeholder("A", {m, k}), b = te::placeholder("B", {k, 2 * n});
  const Tensor c = product("C", a, b, false);
  const Tensor out = te::compute(
      "out", {m, n}, {c}, [&](const Indices& s) { return c(s) * call(Intrinsic::sigmoid, {c({s[0], s[1] + n})}); });
  Func f = te::make_func("glu", {a, b}, {out});
  mark_constant(f, "B");
  return f;
}

Func lstm_step(int64_t m, int64_t n, int64_t k) {
  const Tensor a = te::placeholder("A", {m, k}), b = te::placeholder("B", {4 * n, k});
  const Tensor x = te::placeholder("x", {m, 4 * n}), before = te::placeholder("before", {m, n});
  const Tensor sums = product("C", a, b, true);
  const auto gate = [&](const Indices& s, int64_t part, Intrinsic f) {
    const Indices place{s[0], s[1] + part * n};
    return call(f, {sums(place) + x(place)});
  };
  const Tensor cell = te::compute("cell", {m, n}, {sums, x, before}, [&](const Indices& s) {
    return gate(s, 2, Intrinsic::sigmoid) * before(s) + gate(s, 0, Intrinsic::sigmoid) * gate(s, 3, Intrinsic::tanh);
  });
  const Tensor out = te::compute("out", {m, n}, {sums, x, cell}, [&](const Indices& s) {
    return gate(s, 1, Intrinsic::sigmoid) * call(Intrinsic::tanh, {cell(s)});
  });
  Func f = te::make_func("lstm_step", {a, b, x, before}, {out, cell, out});
  mark_constant(f, "B");
  return f;
}

Func gru_step(int64_t m, int64_t n, int64_t k) {
  const Tensor a = te::placeholder("A", {m, k}), b = te::placeholder("B", {3 * n, k});
  const Tensor x = te::placeholder("x", {m, 3 * n}), before = te::placeholder("before", {m, n});
  const Tensor sums = product("C", a, b, true);
  const auto part = [&](const Tensor& t, const Indices& s, int64_t index) { return t({s[0], s[1] + index * n}); };
  const Tensor update = te::compute("update", {m, n}, {sums, x}, [&](const Indices& s) {
    return call(Intrinsic::sigmoid, {part(sums, s, 0) + part(x, s, 0)});
  });
  const Tensor out = te::compute("out", {m, n}, {sums, x, update, before}, [&](const Indices& s) {
    const Expr reset = call(Intrinsic::sigmoid, {part(sums, s, 1) + part(x, s, 1)});
    const Expr next = call(Intrinsic::tanh, {part(x, s, 2) + reset * part(sums, s, 2)});
    return (const_of(f32, 1) - update(s)) * next + update(s) * before(s);
  });
  Func f = te::make_func("gru_step", {a, b, x, before}, {out});
  mark_constant(f, "B");
  return f;
}

Func batched_matmul(int64_t batch, int64_t m, int64_t n, int64_t k, bool is_transposed) {
  const Tensor a = te::placeholder("A", {batch, m, k});
  const Tensor b = is_transposed ? te::placeholder("B", {batch, n, k}) : te::placeholder("B", {batch, k, n});
  const Tensor c =
      te::reduce("C", {batch, m, n}, {k}, te::Combiner::sum, {a, b}, [&](const Indices& s, const Indices& r) {
        return a({s[0], s[1], r[0]}) * (is_transposed ? b({s[0], s[2], r[0]}) : b({s[0], r[0], s[2]}));
      });
  return te::make_func("batched_matmul", {a, b}, {c});
}

Func conv2d(int64_t channels, int64_t filters, int64_t size, int64_t kernel, int64_t stride, int64_t padding,
            int64_t dilation) {
  const Tensor x = te::placeholder("X", {1, channels, size, size});
  const Tensor w = te::placeholder("W", {filters, channels, kernel, kernel}), bias = te::placeholder("bias", {filters});
  const Tensor padded = pad(x, padding, 0);
  const int64_t out = output_size(size, (kernel - 1) * dilation + 1, stride, padding);
  const std::vector<Expr> shape = {1, filters, out, out};
  std::vector<Expr> extents{channels};
  if (kernel > 1) extents.insert(extents.end(), {kernel, kernel});
  const Tensor y =
      te::reduce("conv", shape, extents, te::Combiner::sum, {padded, w}, [&](const Indices& s, const Indices& r) {
        const Expr u = kernel > 1 ? Expr(r[1]) : Expr(0), v = kernel > 1 ? Expr(r[2]) : Expr(0);
        return padded({s[0], r[0], s[2] * stride + u * dilation, s[3] * stride + v * dilation}) * w({s[1], r[0], u, v});
      });
  const Tensor result =
      te::compute("out", shape, {y, bias}, [&](const Indices& s) { return relu(y(s) + bias({s[1]})); });
  Func f = te::make_func("conv2d", {x, w, bias}, {result});
  mark_constant(f, "W"), mark_constant(f, "bias");
  return f;
}

Func grouped_conv2d(int64_t groups, int64_t inputs, int64_t outputs, int64_t size, int64_t kernel, int64_t stride,
                    int64_t padding) {
  const Tensor x = te::placeholder("X", {1, groups * inputs, size, size}),
               w = te::placeholder("W", {groups * outputs, inputs, kernel, kernel});
  const Tensor padded = pad(x, padding, 0);
  const int64_t out = output_size(size, kernel, stride, padding);
  const std::vector<Expr> shape = {1, groups * outputs, out, out};
  const Tensor y = te::reduce(
      "grouped", shape, {inputs, kernel, kernel}, te::Combiner::sum, {padded, w},
      [&](const Indices& s, const Indices& r) {
        return padded({s[0], floor_div(s[1], outputs) * inputs + r[0], s[2] * stride + r[1], s[3] * stride + r[2]}) *
               w({s[1], r[0], r[1], r[2]});
      });
  const Tensor result = te::compute("out", shape, {y}, [&](const Indices& s) { return relu(y(s)); });
  Func f = te::make_func("grouped_conv2d", {x, w}, {result});
  mark_constant(f, "W");
  return f;
}

Func depthwise(int64_t channels, int64_t size, int64_t kernel, int64_t stride, int64_t padding) {
  const Tensor x = te::placeholder("X", {1, channels, size, size}),
               w = te::placeholder("W", {channels, 1, kernel, kernel});
  const Tensor padded = pad(x, padding, 0);
  const int64_t out = output_size(size, kernel, stride, padding);
  const Tensor y =
      te::reduce("depthwise", {1, channels, out, out}, {kernel, kernel}, te::Combiner::sum, {padded, w},
                 [&](const Indices& s, const Indices& r) {
                   return padded({s[0], s[1], s[2] * stride + r[0], s[3] * stride + r[1]}) * w({s[1], 0, r[0], r[1]});
                 });
  Func f = te::make_func("depthwise", {x, w}, {y});
  mark_constant(f, "W");
  return f;
}

Func inverted_residual(int64_t inputs, int64_t channels, int64_t size, int64_t kernel, int64_t stride) {
  const int64_t padding = kernel / 2, out = output_size(size, kernel, stride, padding);
  const Tensor x = te::placeholder("X", {1, inputs, size, size}), w = te::placeholder("W", {channels, inputs, 1, 1}),
               f = te::placeholder("F", {channels, 1, kernel, kernel});
  const Tensor sums = te::reduce(
      "expanded", {1, channels, size, size}, {inputs}, te::Combiner::sum, {x, w},
      [&](const Indices& s, const Indices& r) { return x({s[0], r[0], s[2], s[3]}) * w({s[1], r[0], 0, 0}); });
  const Tensor expanded = te::compute("made", sums.shape(), {sums}, [&](const Indices& s) { return relu(sums(s)); });
  const Tensor padded = pad(expanded, padding, 0);
  const Tensor y = te::reduce("depthwise", {1, channels, out, out}, {1, kernel, kernel}, te::Combiner::sum, {padded, f},
                              [&](const Indices& s, const Indices& r) {
                                return padded({s[0], s[1], s[2] * stride + r[1], s[3] * stride + r[2]}) *
                                       f({s[1], r[0], r[1], r[2]});
                              });
  const Tensor result = te::compute("out", y.shape(), {y}, [&](const Indices& s) { return relu(y(s)); });
  Func func = te::make_func("inverted_residual", {x, w, f}, {result});
  mark_constant(func, "W"), mark_constant(func, "F");
  Schedule blocked(func);
  const Var n("n"), c("c"), h("h"), v("v");
  for (const char* image : {"X", "out"})
    blocked.transform_layout(image, {{n, c, h, v}, {n, floor_div(c, 16), h, v, floor_mod(c, 16)}});
  return blocked.func();
}

Func max_pool(int64_t channels, int64_t size, int64_t kernel, int64_t stride, int64_t padding) {
  const Tensor x = te::placeholder("X", {1, channels, size, size});
  const Tensor padded = pad(x, padding, -INFINITY);
  const int64_t out = output_size(size, kernel, stride, padding);
  const Tensor y = te::reduce("pool", {1, channels, out, out}, {kernel, kernel}, te::Combiner::max, {padded},
                              [&](const Indices& s, const Indices& r) {
                                return padded({s[0], s[1], s[2] * stride + r[0], s[3] * stride + r[1]});
                              });
  return te::make_func("max_pool", {x}, {y});
}

Func global_average(int64_t channels, int64_t size) {
  const Tensor x = te::placeholder("X", {1, channels, size, size});
  const Tensor sum = te::reduce("sum", {1, channels, 1, 1}, {size, size}, te::Combiner::sum, {x},
                                [&](const Indices& s, const Indices& r) { return x({s[0], s[1], r[0], r[1]}); });
  const Tensor mean = te::compute("mean", {1, channels, 1, 1}, {sum}, [&](const Indices& s) {
    return sum(s) / float_imm(f32, static_cast<double>(size * size));
  });
  return te::make_func("global_average", {x}, {mean});
}

Func softmax(int64_t rows, int64_t columns) {
  const Tensor x = te::placeholder("X", {rows, columns});
  const Tensor largest = te::reduce("largest", {rows}, {columns}, te::Combiner::max, {x},
                                    [&](const Indices& s, const Indices& r) { return x({s[0], r[0]}); });
  const Tensor power = te::compute("power", {rows, columns}, {x, largest},
                                   [&](const Indices& s) { return call(Intrinsic::exp, {x(s) - largest({s[0]})}); });
  const Tensor total = te::reduce("total", {rows}, {columns}, te::Combiner::sum, {power},
                                  [&](const Indices& s, const Indices& r) { return power({s[0], r[0]}); });
  const Tensor y =
      te::compute("Y", {rows, columns}, {power, total}, [&](const Indices& s) { return power(s) / total({s[0]}); });
  return te::make_func("softmax", {x}, {y});
}

Func layer_norm(int64_t rows, int64_t columns) {
  const Tensor x = te::placeholder("X", {rows, columns}), scale = te::placeholder("scale", {columns});
  const Expr count = float_imm(f32, static_cast<double>(columns));
  const Tensor sum = te::reduce("sum", {rows}, {columns}, te::Combiner::sum, {x},
                                [&](const Indices& s, const Indices& r) { return x({s[0], r[0]}); });
  const Tensor mean = te::compute("mean", {rows}, {sum}, [&](const Indices& s) { return sum(s) / count; });
  const Tensor squares =
      te::reduce("squares", {rows}, {columns}, te::Combiner::sum, {x, mean}, [&](const Indices& s, const Indices& r) {
        const Expr d = x({s[0], r[0]}) - mean({s[0]});
        return d * d;
      });
  const Tensor y = te::compute("Y", {rows, columns}, {x, mean, squares, scale}, [&](const Indices& s) {
    return (x(s) - mean({s[0]})) * call(Intrinsic::rsqrt, {squares({s[0]}) / count + float_imm(f32, 1e-5)}) *
           scale({s[1]});
  });
  return te::make_func("layer_norm", {x, scale}, {y});
}

Func attention(int64_t heads, int64_t length, int64_t width) {
  const Tensor q = te::placeholder("Q", {heads, length, width}), k = te::placeholder("K", {heads, length, width}),
               v = te::placeholder("V", {heads, length, width});
  const Tensor scores =
      te::reduce("scores", {heads, length, length}, {width}, te::Combiner::sum, {q, k},
                 [&](const Indices& s, const Indices& r) { return q({s[0], s[1], r[0]}) * k({s[0], s[2], r[0]}); });
  const Tensor largest = te::reduce("largest", {heads, length}, {length}, te::Combiner::max, {scores},
                                    [&](const Indices& s, const Indices& r) { return scores({s[0], s[1], r[0]}); });
  const Tensor power = te::compute("power", {heads, length, length}, {scores, largest}, [&](const Indices& s) {
    return call(Intrinsic::exp, {scores(s) - largest({s[0], s[1]})});
  });
  const Tensor total = te::reduce("total", {heads, length}, {length}, te::Combiner::sum, {power},
                                  [&](const Indices& s, const Indices& r) { return power({s[0], s[1], r[0]}); });
  const Tensor weights = te::compute("weights", {heads, length, length}, {power, total},
                                     [&](const Indices& s) { return power(s) / total({s[0], s[1]}); });
  const Tensor out = te::reduce(
      "out", {heads, length, width}, {length}, te::Combiner::sum, {weights, v},
      [&](const Indices& s, const Indices& r) { return weights({s[0], s[1], r[0]}) * v({s[0], r[0], s[2]}); });
  return te::make_func("attention", {q, k, v}, {out});
}

Func causal_softmax(int64_t length, int64_t first) {
  const Tensor x = te::placeholder("X", {length, length}), y = te::placeholder("Y", {length});
  const Tensor scores = te::compute("scores", {length, length}, {x}, [&](const Indices& s) {
    return select(s[1] < s[0] + first, x(s), float_imm(f32, -std::numeric_limits<double>::infinity()));
  });
  const Tensor largest = te::reduce("largest", {length}, {length}, te::Combiner::max, {scores},
                                    [&](const Indices& s, const Indices& r) { return scores({s[0], r[0]}); });
  const Tensor power = te::compute("power", {length, length}, {scores, largest}, [&](const Indices& s) {
    const Expr shift = largest({s[0]});
    const Expr finite = first > 0 ? shift : call(Intrinsic::maximum, {shift, float_imm(f32, -3e38)});
    return call(Intrinsic::exp, {scores(s) - finite});
  });
  const Tensor total = te::reduce("total", {length}, {length}, te::Combiner::sum, {power},
                                  [&](const Indices& s, const Indices& r) { return power({s[0], r[0]}); });
  const Tensor mixed = te::reduce("mixed", {length}, {length}, te::Combiner::sum, {power, y},
                                  [&](const Indices& s, const Indices& r) { return power({s[0], r[0]}) * y({r[0]}); });
  return te::make_func("causal_softmax", {x, y}, {total, mixed});
}

Func transpose(int64_t rows, int64_t columns) {
  const Tensor x = te::placeholder("X", {rows, columns});
  return te::make_func("transpose", {x},
                       {te::compute("Y", {columns, rows}, {x}, [&](const Indices& s) { return x({s[1], s[0]}); })});
}

Func broadcast_add(int64_t batch, int64_t channels, int64_t size) {
  const Tensor x = te::placeholder("X", {batch, channels, size}), bias = te::placeholder("bias", {channels});
  return te::make_func(
      "broadcast_add", {x, bias},
      {te::compute("Y", {batch, channels, size}, {x, bias}, [&](const Indices& s) { return x(s) + bias({s[1]}); })});
}

Func row_sum(int64_t rows, int64_t columns) {
  const Tensor x = te::placeholder("X", {rows, columns});
  return te::make_func("row_sum", {x},
                       {te::reduce("Y", {rows}, {columns}, te::Combiner::sum, {x},
                                   [&](const Indices& s, const Indices& r) { return x({s[0], r[0]}); })});
}

Func column_sum(int64_t batch, int64_t rows, int64_t columns) {
  const Tensor x = te::placeholder("X", {batch, rows, columns});
  return te::make_func("column_sum", {x},
                       {te::reduce("Y", {batch, columns}, {rows}, te::Combiner::sum, {x},
                                   [&](const Indices& s, const Indices& r) { return x({s[0], r[0], s[1]}); })});
}

Func gelu(int64_t rows, int64_t columns) {
  const Tensor x = te::placeholder("X", {rows, columns});
  return te::make_func("gelu", {x}, {te::compute("Y", {rows, columns}, {x}, [&](const Indices& s) {
                         const Expr e = call(Intrinsic::erf, {x(s) * float_imm(f32, M_SQRT1_2)});
                         return x(s) * float_imm(f32, 0.5) * (e + float_imm(f32, 1.0));
                       })});
}

Func narrow_matmul(int64_t batch, int64_t m, int64_t n, int64_t k, DType a_type, DType b_type, DType sum, DType result,
                   bool has_constant_weights) {
  const bool is_batched = batch > 1;
  const auto shape = [&](int64_t rows, int64_t columns) {
    return is_batched ? std::vector<Expr>{batch, rows, columns} : std::vector<Expr>{rows, columns};
  };
  const Tensor a = te::placeholder("A", shape(m, k), a_type), b = te::placeholder("B", shape(k, n), b_type);
  const Tensor c =
      te::reduce("C", shape(m, n), {k}, te::Combiner::sum, {a, b}, [&](const Indices& s, const Indices& r) {
        Indices ia = s, ib = s;
        ia.back() = r[0], ib[ib.size() - 2] = r[0];
        return cast(sum, a(ia)) * cast(sum, b(ib));
      });
  const Tensor out = te::compute("out", shape(m, n), {c}, [&](const Indices& s) { return cast(result, relu(c(s))); });
  Func f = te::make_func("narrow_matmul", {a, b}, {out});
  if (has_constant_weights) mark_constant(f, "B");
  return f;
}

Func narrow_conv(int64_t channels, int64_t filters, int64_t size, DType dtype, DType sum, int64_t groups,
                 int64_t block) {
  const int64_t inputs = channels / groups, outputs = filters / groups;
  const Tensor x = te::placeholder("X", {1, (channels + block - 1) / block, size, size, block}, dtype);
  const Tensor w = te::placeholder("W", {filters, inputs, 3, 3}, dtype);
  const Tensor y = te::reduce(
      "Y", {1, size - 2, size - 2, filters}, {inputs, 3, 3}, te::Combiner::sum, {x, w},
      [&](const Indices& s, const Indices& r) {
        const Expr channel = groups == 1 ? Expr(r[0]) : floor_div(s[3], outputs) * inputs + r[0];
        return cast(sum, x({s[0], floor_div(channel, block), s[1] + r[1], s[2] + r[2], floor_mod(channel, block)})) *
               cast(sum, w({s[3], r[0], r[1], r[2]}));
      });
  Func f = te::make_func("narrow_conv", {x, w}, {y});
  mark_constant(f, "W");
  return f;
}

std::vector<SampleFunc> sample_funcs() {
  return {
      {"matmul_bf16", narrow_matmul(1, 15, 40, 18, bf16, bf16, f32, bf16, true)},
      {"matmul_bf16_weights", narrow_matmul(1, 9, 32, 16, f32, bf16, f32, f32, true)},
      {"matvec_bf16", narrow_matmul(1, 1, 70, 24, bf16, bf16, f32, f32, true)},
      {"matmul_bf16_odd", narrow_matmul(1, 7, 33, 17, bf16, bf16, f32, f32, true)},
      {"batched_matmul_bf16", narrow_matmul(3, 20, 35, 12, bf16, bf16, f32, f32, false)},
      {"matmul_u8s8", narrow_matmul(1, 15, 40, 24, u8, i8, i32, i32, true)},
      {"matmul_s8u8", narrow_matmul(1, 15, 40, 24, i8, u8, i32, i32, true)},
      {"batched_matmul_s8s8", narrow_matmul(2, 20, 35, 12, i8, i8, i32, i32, false)},
      {"conv_bf16", narrow_conv(32, 48, 9, bf16, f32)},
      {"matmul_bf16_tiles", narrow_matmul(1, 64, 64, 96, bf16, bf16, f32, bf16, true)},
      {"matmul_bf16_tails", narrow_matmul(1, 37, 24, 48, bf16, bf16, f32, f32, true)},
      {"batched_matmul_bf16_tails", narrow_matmul(2, 53, 80, 64, bf16, bf16, f32, f32, false)},
      {"matmul_s8s8_tiles", narrow_matmul(1, 33, 48, 128, i8, i8, i32, i32, true)},
      {"conv_bf16_tiles", narrow_conv(64, 32, 20, bf16, f32)},
      {"conv_s8s8_tiles", narrow_conv(40, 32, 9, i8, i32, 1, 64)},
      {"conv_s8s8_partial_block", narrow_conv(88, 20, 7, i8, i32, 1, 32)},
      {"grouped_bf16", narrow_conv(64, 64, 9, bf16, f32, 4)},
      {"grouped_bf16_uneven", narrow_conv(64, 96, 7, bf16, f32, 2)},
      {"matmul_16", matmul(16, 32, 16)},
      {"matmul_odd", matmul(29, 37, 19)},
      {"matmul_weights", matmul(17, 70, 24, false, true)},
      {"matmul_transposed", matmul(30, 33, 20, true)},
      {"matmul_transposed_weights", matmul(30, 33, 20, true, true)},
      {"matrix_vector", matmul(1, 70, 33, false, true)},
      {"matmul_epilogue", matmul_epilogue(15, 40, 18)},
      {"glu", glu(11, 20, 24)},
      {"lstm_step", lstm_step(1, 24, 18)},
      {"gru_step", gru_step(1, 40, 18)},
      {"lstm_step_rows", lstm_step(7, 20, 18)},
      {"batched_matmul", batched_matmul(3, 9, 17, 20, false)},
      {"batched_matmul_transposed", batched_matmul(2, 11, 18, 16, true)},
      {"conv_3x3", conv2d(5, 18, 9, 3, 1, 1)},
      {"conv_3x3_stride_2", conv2d(3, 16, 11, 3, 2, 1)},
      {"conv_3x3_dilated", conv2d(8, 18, 9, 3, 1, 6, 6)},
      {"conv_1x1", conv2d(16, 33, 7, 1, 1, 0)},
      {"grouped", grouped_conv2d(3, 4, 6, 5, 3, 1, 1)},
      {"depthwise", depthwise(18, 8, 3, 1, 1)},
      {"depthwise_stride_2", depthwise(6, 9, 3, 2, 1)},
      {"inverted_residual", inverted_residual(24, 32, 10, 3, 1)},
      {"inverted_residual_stride_2", inverted_residual(16, 48, 13, 5, 2)},
      {"max_pool", max_pool(17, 9, 3, 2, 1)},
      {"global_average", global_average(20, 7)},
      {"softmax", softmax(7, 50)},
      {"softmax_short", softmax(9, 5)},
      {"layer_norm", layer_norm(6, 70)},
      {"attention", attention(2, 18, 16)},
      {"transpose", transpose(19, 35)},
      {"broadcast_add", broadcast_add(3, 5, 21)},
      {"row_sum", row_sum(11, 77)},
      {"column_sum", column_sum(2, 9, 128)},
      {"gelu", gelu(5, 39)},
  };
}

std::vector<NDArray> random_buffers(const Func& f, uint64_t seed, const std::map<std::string, int64_t>& parameters) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> floats(-1, 1);
  std::uniform_int_distribution<int64_t> integers(-4, 4);
  std::vector<NDArray> result;
  for (const Buffer& buffer : f.buffers) {
    Shape shape;
    for (const Expr& extent : buffer->shape) shape.push_back(evaluate(extent, parameters).get_int(0));
    NDArray array(buffer->dtype, shape);
    std::memset(array.data(), 0, array.byte_size());
    for (int64_t i = 0; !f.is_output(buffer) && i < array.size(); ++i) {
      if (buffer->dtype.is_float())
        array.set_float(i, floats(random));
      else
        array.set_int(i, buffer->dtype.is_signed_integer() ? integers(random) : std::abs(integers(random)));
    }
    result.push_back(array);
  }
  return result;
}

double largest_difference(const NDArray& a, const NDArray& b) {
  check(a.shape() == b.shape(), "largest_difference: equal shapes");
  double largest = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    const double x = a.dtype().is_float() ? a.get_float(i) : static_cast<double>(a.get_int(i));
    const double y = b.dtype().is_float() ? b.get_float(i) : static_cast<double>(b.get_int(i));
    if (std::isnan(x) != std::isnan(y)) return INFINITY;
    if (std::isnan(x) || x == y) continue;
    largest = std::max(largest, std::abs(x - y) / std::max(1.0, std::abs(y)));
  }
  return largest;
}

}  // namespace tw::test
