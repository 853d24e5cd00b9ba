"""What rules of ONNX's operators once did otherwise than defined, or refused: found by changing models of its suite."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw


def model(op, feed, kinds, constants=(), opset=18, **attributes):
    """One node: its inputs are the feed and the constants, in this order, its outputs are of these types."""
    names = [*feed, *dict(constants)]
    node = helper.make_node(op, names, [f"y{i}" for i in range(len(kinds))], **attributes)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feed.items()
    ]
    outputs = [helper.make_tensor_value_info(f"y{i}", kind, None) for i, kind in enumerate(kinds)]
    tensors = [numpy_helper.from_array(a, n) for n, a in dict(constants).items()]
    graph = helper.make_graph([node], "g", infos, outputs, initializer=tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def run(*arguments, **options):
    made = model(*arguments, **options)
    return list(tw.compile(tw.load(made)).run(arguments[1]).values())


def floats(*shape, dtype=np.float32):
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


def test_statistics_of_a_normalization_are_f32():
    feed = {"x": floats(3, 5, dtype=np.float64), "scale": np.ones(5)}
    y, mean, deviation = run("LayerNormalization", feed, [TensorProto.DOUBLE, TensorProto.FLOAT, TensorProto.FLOAT])
    assert y.dtype == np.float64 and mean.dtype == deviation.dtype == np.float32
    np.testing.assert_allclose(mean, feed["x"].mean(1, keepdims=True), rtol=1e-5, atol=1e-7)


def test_shrink_of_integers_takes_a_bias_between_two():
    x = np.array([0, 1, 34, 200], np.uint8)
    (y,) = run("Shrink", {"x": x}, [TensorProto.UINT8], bias=0.3, lambd=1.5)
    np.testing.assert_array_equal(y, [0, 0, 33, 199])


def test_ignored_targets_lose_nothing_whatever_their_probability():
    feed = {"x": np.array([[-1, np.nan], [-2, -3]], np.float32), "t": np.array([1, 0])}
    losses = {
        reduction: run("NegativeLogLikelihoodLoss", feed, [TensorProto.FLOAT], ignore_index=1, reduction=reduction)[0]
        for reduction in ("none", "mean")
    }
    np.testing.assert_array_equal(losses["none"], [0, 2])
    assert losses["mean"] == 2


def test_defaults_of_attributes_are_f32():
    """As those that are written down, whatever the type of the data."""
    x = np.array([-1.0])
    np.testing.assert_array_equal(run("LeakyRelu", {"x": x}, [TensorProto.DOUBLE])[0], [-float(np.float32(0.01))])


def test_an_exponent_of_a_power_keeps_its_digits():
    """In f16 it would be 3."""
    feed = {"x": np.array([-2, 10], np.float16), "e": np.array([3.0001, 3.0001], np.float32)}
    (y,) = run("Pow", feed, [TensorProto.FLOAT16])
    assert np.isnan(y[0]) and y[1] == np.float16(10**3.0001)
