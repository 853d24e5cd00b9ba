// Small Funcs of every kind that schedules meet, for tests that compare a scheduled or lowered form with the original.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/ndarray.h"
#include "tensor_ir/te.h"

namespace tw::test {

struct SampleFunc {
  std::string name;
  Func func;
};

// The parameter of this name is known at compile time.
void mark_constant(Func& f, const std::string& buffer);

// C[i, j] = Σ A[i, k] B[k, j]; weights: B is known at compile time.
Func matmul(int64_t m, int64_t n, int64_t k, bool is_transposed = false, bool has_constant_weights = false,
            DType dtype = f32);
// …, then relu(C + bias) + residual
Func matmul_epilogue(int64_t m, int64_t n, int64_t k);
// A product of small elements with a wide sum (f32 or i32), batched where `batch` > 1; the result is stored as
// `result`.
Func narrow_matmul(int64_t batch, int64_t m, int64_t n, int64_t k, DType a, DType b, DType sum, DType result,
                   bool has_constant_weights);
// The same of a 3×3 window, over channels in blocks, of which the last may not be full; the result has its channels
// last.
Func narrow_conv(int64_t channels, int64_t filters, int64_t size, DType dtype, DType sum, int64_t groups = 1,
                 int64_t block = 16);
// The halves of the columns, of weights: C[:, :n] * sigmoid(C[:, n:]).
Func glu(int64_t m, int64_t n, int64_t k);
// Gates i o f c of A·Bᵀ + x, n units each: the state, the cell, and the state once more.
Func lstm_step(int64_t m, int64_t n, int64_t k);
// Gates z r h likewise, reset after the product: two of its stages use the update gate.
Func gru_step(int64_t m, int64_t n, int64_t k);
Func batched_matmul(int64_t batch, int64_t m, int64_t n, int64_t k, bool is_transposed);
// NCHW, weights OIHW (constant), padded on all sides, then bias and relu.
Func conv2d(int64_t channels, int64_t filters, int64_t size, int64_t kernel, int64_t stride, int64_t padding,
            int64_t dilation = 1);
// …, in groups of `inputs` channels of X and `outputs` of the result; relu.
Func grouped_conv2d(int64_t groups, int64_t inputs, int64_t outputs, int64_t size, int64_t kernel, int64_t stride,
                    int64_t padding);
Func depthwise(int64_t channels, int64_t size, int64_t kernel, int64_t stride, int64_t padding);
// A product that makes many channels of few, relu, and a depthwise convolution of these with as many pads as keep the
// map, relu; in blocks of 16 channels.
Func inverted_residual(int64_t inputs, int64_t channels, int64_t size, int64_t kernel, int64_t stride);
Func max_pool(int64_t channels, int64_t size, int64_t kernel, int64_t stride, int64_t padding);
Func global_average(int64_t channels, int64_t size);
Func softmax(int64_t rows, int64_t columns);
Func layer_norm(int64_t rows, int64_t columns);
Func attention(int64_t heads, int64_t length, int64_t width);
// Sums of e^x and of it times y over what each row sees: the first one so many elements, and some rows perhaps none.
Func causal_softmax(int64_t length, int64_t first = 1);
Func transpose(int64_t rows, int64_t columns);
Func broadcast_add(int64_t batch, int64_t channels, int64_t size);
Func row_sum(int64_t rows, int64_t columns);
Func column_sum(int64_t batch, int64_t rows, int64_t columns);
Func gelu(int64_t rows, int64_t columns);

// All of them, small enough for the oracle, with extents that do not divide.
std::vector<SampleFunc> sample_funcs();

// Random arrays for the buffers of f at these values of its parameters, seeded; outputs are zero.
std::vector<NDArray> random_buffers(const Func& f, uint64_t seed,
                                    const std::map<std::string, int64_t>& parameters = {});
// Largest |a - b| / max(1, |b|) over all elements.
double largest_difference(const NDArray& a, const NDArray& b);

}  // namespace tw::test
