"""Quantised convolutions and products: to the bit, with and without the CPU's dot products of bytes."""

import numpy as np
import pytest
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

import tilewright as tw
from conftest import model_of, reference, value

KINDS = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8, np.int32: TensorProto.INT32}


def integers(rng, dtype, *shape):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def results(model, feed):
    """On this CPU, and on one without any instruction for it."""
    return [list(tw.compile(tw.load(model), target=t).run(feed).values()) for t in ("cpu", "x86:sse4")]


def check(model, feed):
    expected = reference(model, feed)
    for got in results(model, feed):
        for one, other in zip(got, expected, strict=True):
            np.testing.assert_array_equal(one, other)


def product(data, zero, weight=np.int8):
    rng = np.random.default_rng(0)
    model = model_of(
        [("MatMulInteger", ["a", "b", "za"], ["y"])],
        [value("a", [21, 40], KINDS[data])],
        [value("y", [21, 70], TensorProto.INT32)],
        {"za": np.array(zero, data), "b": integers(rng, weight, 40, 70)},
    )
    return model, {"a": integers(rng, data, 21, 40)}


@pytest.mark.parametrize("data", [np.uint8, np.int8])
@pytest.mark.parametrize("zero", [0, 3])
def test_integer_products(data, zero):
    check(*product(data, zero))


def convolution(data, zero):
    rng = np.random.default_rng(1)
    model = model_of(
        [("ConvInteger", ["x", "w", "zx"], ["y"], {"pads": [1, 1, 1, 1], "strides": [2, 1]})],
        [value("x", [1, 32, 9, 11], KINDS[data])],
        [value("y", [1, 48, 5, 11], TensorProto.INT32)],
        {"w": integers(rng, np.int8, 48, 32, 3, 3), "zx": np.array(zero, data)},
    )
    return model, {"x": integers(rng, data, 1, 32, 9, 11)}


@pytest.mark.parametrize("data", [np.uint8, np.int8])
@pytest.mark.parametrize("zero", [0, 5])
def test_integer_convolutions(data, zero):
    model, feed = convolution(data, zero)
    x = feed["x"]
    wide = np.pad(x.astype(np.int64) - zero, ((0, 0), (0, 0), (1, 1), (1, 1)))
    w = np.asarray(model.graph.initializer[0].raw_data and np.frombuffer(model.graph.initializer[0].raw_data, np.int8))
    w = w.reshape(48, 32, 3, 3).astype(np.int64)
    expected = sum(
        np.einsum("nchw,oc->nohw", wide[:, :, i : i + 9 : 2, j : j + 11], w[:, :, i, j])
        for i in range(3)
        for j in range(3)
    )
    for got in results(model, feed):
        np.testing.assert_array_equal(got[0], expected)


def layers(data):
    rng = np.random.default_rng(2)
    half = np.array(128 if data == np.uint8 else 0, data)
    zero, scale = np.array(0, np.int8), np.array(0.02, np.float32)
    model = model_of(
        [
            ("QLinearConv", ["x", "s", "h", "w1", "s", "z", "s4", "h", "b1"], ["a"], {"pads": [1, 1, 1, 1]}),
            ("QLinearConv", ["a", "s4", "h", "w2", "sw", "zw", "s5", "h"], ["c"], {}),
            ("Flatten", ["c"], ["d"]),
            ("QLinearMatMul", ["d", "s5", "h", "w3", "s", "z", "s4", "h"], ["y"]),
        ],
        [value("x", [1, 16, 6, 6], KINDS[data])],
        [value("y", [1, 20], KINDS[data]), value("c", [1, 24, 6, 6], KINDS[data])],
        {
            "s": scale,
            "s4": np.array(0.7, np.float32),
            "s5": np.array(1.1, np.float32),
            "h": half,
            "z": zero,
            "w1": integers(rng, np.int8, 32, 16, 3, 3),
            "b1": rng.integers(-900, 900, 32).astype(np.int32),
            "w2": integers(rng, np.int8, 24, 32, 1, 1),
            "sw": rng.uniform(0.01, 0.03, 24).astype(np.float32),
            "zw": np.zeros(24, np.int8),
            "w3": integers(rng, np.int8, 24 * 36, 20),
        },
    )
    return model, {"x": integers(rng, data, 1, 16, 6, 6)}


@pytest.mark.parametrize("data", [np.uint8, np.int8])
def test_quantised_layers_follow_each_other(data):
    model, feed = layers(data)
    with_dot, without = results(model, feed)
    # Not ONNX Runtime, whose sums of products saturate on CPUs without an instruction for them.
    peer = ReferenceEvaluator(model).run(None, feed)
    for one, other, near in zip(with_dot, without, peer, strict=True):
        np.testing.assert_array_equal(one, other)
        assert np.abs(one.astype(int) - near.astype(int)).max() <= 1
