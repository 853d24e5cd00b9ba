"""A 1×1 convolution and the depthwise one that reads it, as one kernel: right at every edge, and only where it pays."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw


def block(inputs, channels, height, width, window=3, stride=1, pads=None, batch=1, activation="relu6"):
    """y = conv(act(depthwise(act(conv(conv(x)))))) with seeded weights: an inverted residual block and one before."""
    rng = np.random.default_rng(inputs * channels + height)
    nodes, weights = [], []

    def constant(name, value):
        weights.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def conv(name, x, outputs, per_group, window=1, **attributes):
        scale = 1 / np.sqrt(per_group * window * window)
        weight = constant(f"{name}.w", rng.standard_normal((outputs, per_group, window, window)) * scale)
        bias = constant(f"{name}.b", rng.standard_normal(outputs))
        nodes.append(helper.make_node("Conv", [x, weight, bias], [name], name=name, **attributes))
        return name

    def activated(x):
        if activation == "relu6":
            limits = [constant(f"{x}.low", 0), constant(f"{x}.high", 6)]
            nodes.append(helper.make_node("Clip", [x, *limits], [f"{x}.a"]))
        elif activation == "silu":
            nodes.append(helper.make_node("Sigmoid", [x], [f"{x}.s"]))
            nodes.append(helper.make_node("Mul", [x, f"{x}.s"], [f"{x}.a"]))
        else:
            return x
        return f"{x}.a"

    expanded = activated(conv("expand", conv("before", "x", inputs, inputs), channels, inputs))
    pads = pads or [window // 2] * 4
    depthwise = conv("depthwise", expanded, channels, 1, window, group=channels, strides=[stride] * 2, pads=pads)
    y = conv("y", activated(depthwise), inputs, channels)
    shape = (batch, inputs, height, width)
    graph = helper.make_graph(
        nodes,
        "block",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, None)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return model.SerializeToString(), {"x": rng.standard_normal(shape).astype(np.float32)}


def is_streamed(executable) -> bool:
    return not any(step["name"].startswith("depthwise") for step in executable.describe()["steps"])


def check(model, feed, threads, streamed=None):
    executable = tw.compile(tw.load(model), threads=threads)
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feed)[0]
    actual = executable.run(feed)["y"]
    assert np.abs(actual - expected).max() <= 2e-5 * np.abs(expected).max()
    assert streamed is None or is_streamed(executable) == streamed


# 64 MiB of channels leave any core's second cache.
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("stride", "activation"), [(1, "relu6"), (2, "silu"), (1, "none")])
def test_large_maps_are_streamed(stride, activation, threads):
    check(*block(16, 96, 420, 416, 3, stride, activation=activation), threads, streamed=True)


# The rows that strips of five share are computed twice, which is worth it on machines with wide vectors alone.
@pytest.mark.parametrize(("stride", "activation"), [(2, "silu"), (1, "none")])
def test_large_windows(stride, activation):
    check(*block(16, 96, 420, 416, 5, stride, activation=activation), 2)


@pytest.mark.parametrize("pads", [[0, 0, 1, 1], [1, 2, 0, 0], [0, 0, 0, 0]])
def test_pads_of_large_maps(pads):
    check(*block(16, 96, 421, 417, pads=pads, stride=2), 2, streamed=True)


def test_channels_that_fill_no_vector():
    check(*block(16, 70, 301, 303), 2, streamed=False)


def test_small_maps_stay_apart():
    check(*block(32, 192, 14, 14), 2, streamed=False)
