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
