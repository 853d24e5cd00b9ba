"""Shapes at which code was wrong or could not be made, as cases for random_graphs.differences."""

import numpy as np
import onnx

from conftest import model_of, value


def one(name, op, x, constants=None, **attributes):
    nodes = [(op, ["x", *(constants or {})], ["y"], attributes)]
    model = model_of(nodes, [value("x", x.shape)], [onnx.ValueInfoProto(name="y")], constants or {}, 18)
    return name, model, [x]


def cases():
    rng = np.random.default_rng(0)

    def array(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    # ARMv7: loads of three channels, side by side, from addresses 16 bytes apart.
    for channels in (3, 51):
        weights = {"w": array(channels, 1, 3, 3)}
        x = array(1, channels, 21, 21)
        yield one(f"dilated-{channels}", "Conv", x, weights, group=channels, dilations=[2, 2], pads=[2] * 4)
    # Stages over rows that reduce an axis which is not the last: fewer elements behind it than lanes, some more, and
    # more than a tile of vectors.
    for behind in ([3], [5], [16], [37], [64], [70], [7, 3], [140]):
        for op in ("Softmax", "LogSoftmax"):
            yield one(f"{op}-{'x'.join(map(str, behind))}", op, array(16, 40, *behind), axis=1)
        axes = {"axes": np.array([1], np.int64)}
        name = f"ReduceLogSumExp-{'x'.join(map(str, behind))}"
        yield one(name, "ReduceLogSumExp", array(16, 40, *behind), axes, keepdims=0)
    yield one("Softmax-few", "Softmax", array(2, 32, 5), axis=1)
    yield one("Softmax-short", "Softmax", array(16, 6, 9), axis=1)
    # Transposed convolutions by phases: windows shorter and longer than the steps, in one to three dimensions, cut and
    # extended, with groups, and with pads beyond the window, where elements of x are used nowhere.
    for name, shape, weights, attributes in (
        ("4s2", (1, 20, 7, 9), (20, 12, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("3s2", (2, 20, 7, 9), (20, 12, 3, 3), {"strides": [2, 2], "pads": [1, 0, 0, 1], "output_padding": [1, 1]}),
        ("2s2", (1, 32, 6, 6), (32, 16, 2, 2), {"strides": [2, 2]}),
        ("3s1", (1, 32, 6, 6), (32, 16, 3, 3), {"pads": [1, 1, 1, 1]}),
        ("2s3", (1, 8, 5, 5), (8, 3, 2, 2), {"strides": [3, 3], "output_padding": [2, 1]}),
        ("16s8", (1, 21, 5, 6), (21, 1, 16, 16), {"strides": [8, 8], "pads": [4] * 4, "group": 21}),
        ("5x2s3x1", (1, 8, 5, 6), (8, 2, 5, 2), {"strides": [3, 1], "pads": [3, 0, 1, 1], "group": 4}),
        ("beyond", (1, 4, 9), (4, 4, 2), {"strides": [2], "pads": [2, 2]}),
        ("1d", (1, 32, 50), (32, 16, 16), {"strides": [8], "pads": [4, 4]}),
        ("3d", (1, 4, 3, 4, 5), (4, 6, 3, 3, 3), {"strides": [2, 2, 1], "pads": [1] * 6}),
    ):
        yield one(f"ConvTranspose-{name}", "ConvTranspose", array(*shape), {"w": array(*weights)}, **attributes)
    # Windows for one filter or a few, whose vectors lie along the rows; rows of whole vectors, and with a rest.
    for filters in (1, 2, 3):
        for channels, width in ((32, 48), (16, 37), (3, 20)):
            weights = {"w": array(filters, channels, 3, 3), "b": array(filters)}
            x = array(2, channels, 9, width)
            yield one(f"Conv-few-{filters}-{channels}-{width}", "Conv", x, weights, pads=[1] * 4)
