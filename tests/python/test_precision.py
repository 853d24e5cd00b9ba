"""Products in 16-bit floats: exact where the numbers are, near f32 otherwise, with and without the instruction."""

import numpy as np
import pytest

import tilewright as tw
from conftest import model_of, reference, value


def whole(rng, *shape):
    """Small whole numbers: bf16 and f16 hold them, and f32 their sums."""
    return rng.integers(-3, 4, shape).astype(np.float32)


def convolutional(numbers, seed=0):
    """Wide, depthwise and strided convolutions, a residual sum, a concatenation, a dense layer."""
    rng = np.random.default_rng(seed)
    return model_of(
        [
            ("Conv", ["x", "w1"], ["a"], {"pads": [1, 1, 1, 1]}),
            ("Relu", ["a"], ["b"]),
            ("Conv", ["b", "w2", "b2"], ["c"], {"pads": [1, 1, 1, 1]}),
            ("Add", ["c", "b"], ["d"]),
            ("MaxPool", ["d"], ["p"], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
            ("Conv", ["p", "w3"], ["e"], {"group": 32, "pads": [1, 1, 1, 1]}),
            ("Conv", ["p", "w4"], ["f"], {}),
            ("Concat", ["e", "f"], ["g"], {"axis": 1}),
            ("Conv", ["g", "w5"], ["h"], {"strides": [2, 2]}),
            ("Flatten", ["h"], ["i"]),
            ("Gemm", ["i", "w6", "b6"], ["y"], {"transB": 1}),
        ],
        [value("x", [1, 3, 13, 13])],
        [value("y", [1, 70]), value("b", [1, 32, 13, 13])],
        {
            "w1": numbers(rng, 32, 3, 3, 3),
            "w2": numbers(rng, 32, 32, 3, 3),
            "b2": numbers(rng, 32),
            "w3": numbers(rng, 32, 1, 3, 3),
            "w4": numbers(rng, 48, 32, 1, 1),
            "w5": numbers(rng, 20, 80, 3, 3),
            "w6": numbers(rng, 70, 20 * 3 * 3),
            "b6": numbers(rng, 70),
        },
    )


def products(numbers, seed=0):
    """Many rows, one row, batches of values that are no constants, an odd inner extent."""
    rng = np.random.default_rng(seed)
    return model_of(
        [
            ("MatMul", ["x", "w1"], ["a"]),
            ("Transpose", ["a"], ["t"], {"perm": [0, 2, 1]}),
            ("MatMul", ["a", "t"], ["s"]),
            ("MatMul", ["s", "a"], ["y"]),
            ("MatMul", ["v", "w2"], ["z"]),
            ("MatMul", ["v", "w3"], ["o"]),
            ("MatMul", ["o", "w4"], ["q"]),
        ],
        [value("x", [2, 21, 24]), value("v", [1, 40])],
        [value("y", [2, 21, 38]), value("z", [1, 130]), value("q", [1, 9])],
        {
            "w1": numbers(rng, 24, 38),
            "w2": numbers(rng, 40, 130),
            "w3": numbers(rng, 40, 7),
            "w4": numbers(rng, 7, 9),
        },
    )


def feeds(model, numbers, seed=1):
    rng = np.random.default_rng(seed)
    return {i.name: numbers(rng, *(d.dim_value for d in i.type.tensor_type.shape.dim)) for i in model.graph.input}


@pytest.mark.parametrize("precision", ["bf16", "f16"])
@pytest.mark.parametrize("target", ["cpu", "x86:avx2"])
@pytest.mark.parametrize("make", [convolutional, products])
def test_whole_numbers_stay_exact_where_nothing_is_rounded(make, target, precision):
    def tiny(rng, *shape):  # mostly zeros, so that what is stored in between is small as well
        return whole(rng, *shape).clip(-1, 1) * (rng.random(shape) < 0.05)

    def numbers(rng, *shape):
        return tiny(rng, *shape).astype(np.float32)

    model = make(numbers)
    feed = feeds(model, whole)
    # Winograd's filtering, for what stays f32, rounds.
    outputs = tw.compile(tw.load(model), target=target, precision=precision, winograd=False).run(feed)
    for got, expected in zip(outputs.values(), reference(model, feed), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("precision", ["bf16", "f16"])
@pytest.mark.parametrize("make", [convolutional, products])
def test_results_are_near_those_of_f32(make, precision):
    def numbers(rng, *shape):
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)).astype(np.float32)

    model = make(numbers)
    feed = feeds(model, numbers)
    outputs = tw.compile(tw.load(model), precision=precision).run(feed)
    plain = tw.compile(tw.load(model)).run(feed)
    for name, expected in plain.items():
        assert outputs[name].dtype == np.float32
        assert np.abs(outputs[name] - expected).max() <= 3e-2 * np.abs(expected).max()
    assert any(not np.array_equal(outputs[name], plain[name]) for name in plain)  # something was rounded


@pytest.mark.parametrize("target", ["cpu", "x86:avx512+avx512bf16", "x86:avx512"])
@pytest.mark.parametrize(
    ("data", "weight", "attributes"),
    [
        ((1, 3, 29, 31), (20, 3, 7, 7), {"strides": [2, 2], "pads": [3, 3, 3, 3]}),
        ((2, 3, 24, 24), (16, 3, 4, 4), {"strides": [4, 4]}),
        ((1, 1, 20, 33), (8, 1, 3, 5), {"pads": [1, 0, 2, 4]}),
        ((1, 5, 23, 23), (33, 5, 3, 2), {}),
        ((1, 3, 40), (24, 3, 3), {"pads": [1, 1]}),
        ((1, 3, 21, 21), (16, 3, 3, 3), {"dilations": [2, 2], "pads": [2, 2, 2, 2]}),
        ((1, 3, 21, 21), (16, 3, 3, 3), {"dilations": [2, 1]}),
        ((1, 24, 14, 14), (40, 24, 1, 1), {}),
        ((1, 40, 14, 15), (24, 40, 3, 3), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
        ((1, 56, 9, 9), (72, 56, 1, 1), {}),
        ((1, 64, 14, 14), (64, 16, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
        ((2, 64, 9, 9), (96, 32, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
        ((1, 64, 15, 15), (64, 8, 3, 3), {"group": 8, "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((1, 32, 9, 9), (64, 4, 3, 3), {"group": 8}),
        ((1, 48, 9, 9), (48, 24, 3, 3), {"group": 2, "pads": [1, 1, 1, 1]}),
        ((1, 48, 9, 9), (48, 3, 3, 3), {"group": 16, "pads": [1, 1, 1, 1]}),
        ((1, 24, 9, 9), (24, 8, 3, 3), {"group": 3, "pads": [1, 1, 1, 1]}),
    ],
)
def test_few_channels_half_blocks_and_groups_take_pairs(target, data, weight, attributes):
    """Pairs along the window's rows, where a column of zeros is no part of the result, in half blocks of channels, and
    in groups, some of which are multiplied as one."""
    rng = np.random.default_rng(0)
    nodes = [("Conv", ["x", "w"], ["y"], attributes)]
    model = model_of(nodes, [value("x", data)], [value("y", None)], {"w": whole(rng, *weight)})
    feed = {"x": whole(rng, *data)}
    try:
        got = tw.compile(tw.load(model), target=target, precision="bf16", winograd=False).run(feed)["y"]
    except tw.Error as error:
        if error.code != "TW1202":
            raise
        pytest.skip("this machine lacks the instructions")
    np.testing.assert_array_equal(got, reference(model, feed)[0])
