// The operators: every example runs by the oracle and agrees with the inferred types; shapes broadcast as numpy's do.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "relay_ir/op.h"
#include "relay_ir/ops/common.h"
#include "tensor_ir/arith/simplify.h"
#include "tensor_ir/dimension.h"
#include "tensor_ir/interp/interp.h"
#include "tensor_ir/match.h"

namespace tw::relay {
namespace {

NDArray random_array(const TensorType& type, double low, double high, std::mt19937& random) {
  NDArray array(type.dtype, *static_shape(type));
  std::uniform_real_distribution<double> real(low, high);
  std::uniform_int_distribution<int64_t> whole(
      static_cast<int64_t>(type.dtype.is_unsigned_integer() && low < 0 ? 0 : low), static_cast<int64_t>(high));
  for (int64_t i = 0; i < array.size(); ++i) {
    if (type.dtype.is_float())
      array.set_float(i, real(random));
    else
      array.set_int(i, type.dtype.is_bool() ? random() & 1 : whole(random));
  }
  return array;
}

std::vector<NDArray> example_inputs(const OpExample& example, std::mt19937& random) {
  std::vector<NDArray> inputs;
  for (size_t i = 0; i < example.inputs.size(); ++i) {
    const bool is_given = i < example.constant_inputs.size() && example.constant_inputs[i].is_defined();
    inputs.push_back(is_given ? example.constant_inputs[i]
                              : random_array(example.inputs[i], example.low, example.high, random));
  }
  return inputs;
}

class EachOp : public testing::TestWithParam<const OpDef*> {};

TEST_P(EachOp, IsComplete) {
  const OpDef& op = *GetParam();
  EXPECT_FALSE(op.doc.empty());
  EXPECT_TRUE(op.infer && op.compute);
  EXPECT_FALSE(op.examples.empty());
  for (const AttributeDef& attribute : op.attributes) EXPECT_FALSE(attribute.doc.empty()) << attribute.name;
}

TEST_P(EachOp, ExamplesRunByTheOracle) {
  const OpDef& op = *GetParam();
  std::mt19937 random(7);
  for (const OpExample& example : op.examples) {
    NodeAttributes attributes = example.attributes;
    const std::vector<bool> present(example.inputs.size(), true);
    const std::vector<const NDArray*> unknown(example.inputs.size(), nullptr);
    const std::vector<TensorType> types = infer_types(op, example.inputs, present, unknown, attributes);
    const std::vector<NDArray> outputs = evaluate_op(op, example.attributes, example_inputs(example, random));
    ASSERT_EQ(outputs.size(), types.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_EQ(to_string(type_of(outputs[i])), to_string(types[i]));
      for (int64_t k = 0; outputs[i].dtype().is_float() && k < outputs[i].size(); ++k) {
        EXPECT_TRUE(std::isfinite(outputs[i].get_float(k))) << "element " << k;
      }
    }
  }
}

TEST_P(EachOp, StatesItsFacts) {
  const OpDef& op = *GetParam();
  EXPECT_TRUE(op.facts.axes);
  EXPECT_NE(op.facts.rounding, Rounding::unstated);
  EXPECT_GT(op.facts.operands, 0);
  const bool is_moving = op.facts.rounding == Rounding::moves;
  EXPECT_TRUE(!is_moving || op.kind == OpKind::view || op.kind == OpKind::injective || op.name == "max_pool");
}

// Positions of the result's axis that may change where position `at` of the input's does; nothing: all.
std::optional<std::set<int64_t>> touched(const AxisUse& use, int64_t at) {
  if (use.kind == AxisUse::Kind::same) return std::set{at};
  if (use.kind != AxisUse::Kind::runs) return std::nullopt;
  std::set<int64_t> positions;
  for (const AxisUse::Run& run : use.runs)
    for (int64_t i = 0; i < run.count; ++i)
      if (run.from + i * run.step == at) positions.insert(run.to + i);
  return positions;
}

int64_t position_along(const Shape& shape, size_t axis, int64_t flat) {
  for (size_t d = shape.size(); --d > axis;) flat /= shape[d];
  return flat % shape[axis];
}

// What is stated of axes, against the mathematics: a change of an input shows where it may, and nowhere else.
TEST_P(EachOp, AxesAreAsStated) {
  const OpDef& op = *GetParam();
  std::mt19937 random(11);
  for (const OpExample& example : op.examples) {
    NodeAttributes attributes = example.attributes;
    const std::vector<bool> present(example.inputs.size(), true);
    const std::vector<const NDArray*> unknown(example.inputs.size(), nullptr);
    const std::vector<TensorType> types = infer_types(op, example.inputs, present, unknown, attributes);
    const AxisUses uses = op.facts.axes({op, attributes, example.inputs, present, unknown, types});
    ASSERT_EQ(uses.size(), example.inputs.size());
    const std::vector<NDArray> inputs = example_inputs(example, random);
    const NDArray before = evaluate_op(op, example.attributes, inputs)[0];
    for (size_t i = 0; i < inputs.size(); ++i) {
      const bool is_given = i < example.constant_inputs.size() && example.constant_inputs[i].is_defined();
      for (size_t d = 0; d < uses[i].size() && !is_given; ++d) {
        const AxisUse& use = uses[i][d];
        if (use.kind != AxisUse::Kind::same && use.kind != AxisUse::Kind::runs) continue;
        for (int64_t at = 0; at < inputs[i].shape()[use.axis]; ++at) {
          std::vector<NDArray> changed = inputs;
          changed[i] = inputs[i].clone();
          const NDArray other = random_array(example.inputs[i], example.low, example.high, random);
          for (int64_t e = 0; e < other.size(); ++e) {
            if (position_along(other.shape(), use.axis, e) != at) continue;
            other.dtype().is_float() ? changed[i].set_float(e, other.get_float(e))
                                     : changed[i].set_int(e, other.get_int(e));
          }
          const NDArray after = evaluate_op(op, example.attributes, changed)[0];
          const auto may_change = touched(use, at);
          for (int64_t e = 0; e < after.size(); ++e) {
            const bool is_equal = after.dtype().is_float() ? after.get_float(e) == before.get_float(e)
                                                           : after.get_int(e) == before.get_int(e);
            ASSERT_TRUE(is_equal || may_change->count(position_along(after.shape(), d, e)))
                << "input " << i << " at " << at << " of axis " << use.axis << " changes element " << e;
          }
        }
      }
    }
  }
}

// Whoever takes narrow types moves their elements as it moves others; cast and bitcast have examples of their own.
TEST_P(EachOp, MovesNarrowTypes) {
  const OpDef& op = *GetParam();
  if (!op.takes_narrow || op.name == "cast" || op.name == "bitcast") return;
  if (op.kind == OpKind::contraction) return;  // which multiplies those that it takes
  std::mt19937 random(13);
  for (const OpExample& example : op.examples) {
    const std::vector<NDArray> drawn = example_inputs(example, random);
    for (const DType narrow : {i4, f8e5m2, f4e2m1}) {
      std::vector<NDArray> wide = drawn, moved = drawn;
      for (size_t i = 0; i < drawn.size(); ++i) {
        if (!drawn[i].is_defined() || drawn[i].dtype() != f32) continue;
        wide[i] = drawn[i].clone(), moved[i] = NDArray(narrow, drawn[i].shape());
        for (int64_t e = 0; e < drawn[i].size(); ++e) {
          const auto value = static_cast<int64_t>(random() % 4) - 2;
          wide[i].set_int(e, value), moved[i].set_int(e, value);
        }
      }
      const NDArray expected = evaluate_op(op, example.attributes, wide)[0];
      if (expected.dtype() != f32) continue;
      const NDArray got = evaluate_op(op, example.attributes, moved)[0];
      ASSERT_EQ(got.dtype(), narrow);
      for (int64_t e = 0; e < got.size(); ++e) EXPECT_EQ(got.get_float(e), expected.get_float(e)) << to_string(narrow);
    }
  }
}

TEST_P(EachOp, PartsAreAsStated) {
  const OpDef& op = *GetParam();
  std::mt19937 random(12);
  for (const OpExample& example : op.examples) {
    if (!op.facts.part) continue;
    NodeAttributes attributes = example.attributes;
    const std::vector<bool> present(example.inputs.size(), true);
    const std::vector<const NDArray*> unknown(example.inputs.size(), nullptr);
    const std::vector<TensorType> types = infer_types(op, example.inputs, present, unknown, attributes);
    const auto part = op.facts.part({op, attributes, example.inputs, present, unknown, types});
    if (!part) continue;
    const int64_t first = as_int(simplify(*part)).value();
    const std::vector<NDArray> inputs = example_inputs(example, random);
    const NDArray result = evaluate_op(op, example.attributes, inputs)[0];
    for (int64_t e = 0; e < result.size(); ++e) {
      if (result.dtype().is_float()) {
        EXPECT_EQ(result.get_float(e), inputs[0].get_float(first + e));
      } else {
        EXPECT_EQ(result.get_int(e), inputs[0].get_int(first + e));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, EachOp, testing::ValuesIn(test::ops_of_arrays()),
                         [](const auto& info) { return info.param->name; });

TEST(Ops, RefuseWrongTypes) {
  const NDArray whole = int_array({1, 2}), real = float_array({1, 2}), three = float_array({1, 2, 3});
  auto fails = [](const char* op, std::vector<NDArray> inputs, const NodeAttributes& attributes = {}) {
    try {
      evaluate_op(*find_op(op), attributes, inputs);
    } catch (const Error& error) {
      return error.code() == ErrorCode::shape;
    }
    return false;
  };
  EXPECT_TRUE(fails("add", {whole, real}));
  EXPECT_TRUE(fails("add", {real, three}));
  EXPECT_TRUE(fails("add", {real}));
  EXPECT_TRUE(fails("exp", {whole}));
  EXPECT_TRUE(fails("matmul", {real, real}));
  EXPECT_TRUE(fails("softmax", {real}, attributes_of({{"axis", int64_t{1}}})));
  EXPECT_TRUE(fails("transpose", {real}, attributes_of({{"perm", std::vector<int64_t>{0, 0}}})));
  EXPECT_TRUE(fails("reshape", {real}, attributes_of({{"shape", std::vector<int64_t>{3}}})));
  EXPECT_TRUE(fails("slice", {real},
                    attributes_of({{"axes", std::vector<int64_t>{0}},
                                   {"starts", std::vector<int64_t>{1}},
                                   {"sizes", std::vector<int64_t>{2}}})));
  EXPECT_TRUE(fails("relu", {real}, attributes_of({{"alpha", 1.0}})));
}

// Tried one by one, each product of two of them costs a proof: here hundreds of thousands.
TEST(Ops, ManyKnownEqualitiesAreSoonTried) {
  const Var n = dimension("n", {1}), m = dimension("m", {1});
  std::vector<Equality> known;
  for (int i = 2; i < 400; ++i) {
    const Expr windows = floor_div(n + floor_mod(Expr(i) - floor_mod(n, i), i), i);
    known.push_back({windows * Expr(i) + floor_mod(m + windows, 7), m * Expr(i), ""});
  }
  EXPECT_THROW(require_equal(n, m, known, ""), UnprovenDimensions);
  EXPECT_NO_THROW(require_equal(n * known[9].a * known[90].b, known[9].b * n * known[90].a, known, ""));
}

TEST(Ops, WhatIsNotNegativeSaysNothingOfProducts) {
  const Var n = dimension("n", {1}), m = dimension("m", {1}), k = dimension("k", {1});
  const std::vector<Equality> known{{min(n - k, 0), Expr(0), ""}, {min(m - k, 0), Expr(0), ""}};
  EXPECT_THROW(require_equal(n, m, known, ""), UnprovenDimensions);
}

// a + b of random shapes that fit each other, element by element.
TEST(Ops, BroadcastAsNumpyDoes) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    const int rank = static_cast<int>(random() % 5);
    Shape full(rank), a_shape, b_shape;
    for (int64_t& dim : full) dim = 1 + static_cast<int64_t>(random() % 4);
    auto part = [&] {
      Shape shape(full.begin() + (rank == 0 ? 0 : static_cast<int>(random() % (rank + 1))), full.end());
      for (int64_t& dim : shape) dim = random() % 3 == 0 ? 1 : dim;
      return shape;
    };
    a_shape = part(), b_shape = part();
    const NDArray a = random_array(tensor_type(i32, a_shape), -50, 50, random);
    const NDArray b = random_array(tensor_type(i32, b_shape), -50, 50, random);
    const NDArray sum = evaluate_op(*find_op("add"), {}, {a, b})[0];
    const Shape& shape = sum.shape();
    ASSERT_EQ(shape.size(), std::max(a_shape.size(), b_shape.size()));
    auto read = [&](const NDArray& x, int64_t flat) {
      int64_t offset = 0, stride = 1;
      for (size_t d = shape.size(); d-- > 0;) {
        const int64_t index = flat % shape[d];
        flat /= shape[d];
        const size_t skip = shape.size() - x.shape().size();
        if (d < skip) continue;
        const int64_t extent = x.shape()[d - skip];
        offset += (extent == 1 ? 0 : index) * stride;
        stride *= extent;
      }
      return x.get_int(offset);
    };
    for (int64_t i = 0; i < sum.size(); ++i) EXPECT_EQ(sum.get_int(i), read(a, i) + read(b, i));
  }
}

// Reshapes keep the order of elements, whatever runs of dimensions the shapes have in common.
TEST(Ops, ReshapeKeepsTheOrder) {
  std::mt19937 random(5);
  auto factors = [&](int64_t total) {
    Shape shape;
    while (total > 1) {
      std::vector<int64_t> divisors;
      for (int64_t d = 2; d <= total; ++d) {
        if (total % d == 0) divisors.push_back(d);
      }
      shape.push_back(divisors[random() % divisors.size()]);
      total /= shape.back();
      if (random() % 4 == 0) shape.push_back(1);
    }
    return shape;
  };
  const OpDef& op = *find_op("reshape");
  for (int round = 0; round < 60; ++round) {
    const int64_t total = std::vector<int64_t>{1, 12, 24, 60, 36}[random() % 5];
    const Shape from = factors(total), to = factors(total);
    // evaluate_op copies views; the expression itself is what is tested.
    NodeAttributes attributes = attributes_of({{"shape", to}});
    const std::vector<TensorType> inputs{tensor_type(i64, from)};
    const std::vector<TensorType> outputs = infer_types(op, inputs, {true}, {nullptr}, attributes);
    const te::Tensor x = te::placeholder("x", inputs[0].shape, i64);
    const OpCall call{op, attributes, inputs, {true}, {nullptr}, outputs};
    const Func func = te::make_func("reshape", {x}, op.compute(call, {x}));
    NDArray data(i64, from), result(i64, to);
    for (int64_t i = 0; i < total; ++i) data.set_int(i, i);
    interpret(func, {data, result});
    for (int64_t i = 0; i < total; ++i) EXPECT_EQ(result.get_int(i), i);
  }
}

}  // namespace
}  // namespace tw::relay
