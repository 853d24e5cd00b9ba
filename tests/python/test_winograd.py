"""3×3 convolutions by Winograd's minimal filtering: right at every edge, and only where they are allowed."""

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw


def convolution(inputs, outputs, height, width, pads, batch=1, residual=False):
    """y = relu(conv(x, w) + bias [+ r]) with seeded weights; r has y's shape."""
    rng = np.random.default_rng(inputs * outputs + height)
    weight = (rng.standard_normal((outputs, inputs, 3, 3)) / np.sqrt(9 * inputs)).astype(np.float32)
    bias = rng.standard_normal(outputs).astype(np.float32)
    shape = (batch, outputs, height + pads[0] + pads[2] - 2, width + pads[1] + pads[3] - 2)
    values = [("x", (batch, inputs, height, width))] + ([("r", shape)] if residual else [])
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=pads)]
    if residual:
        nodes.append(helper.make_node("Add", ["c", "r"], ["s"]))
    nodes.append(helper.make_node("Relu", ["s" if residual else "c"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "convolution",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in values],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(bias, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    feed = {name: rng.standard_normal(dims).astype(np.float32) for name, dims in values}
    return model.SerializeToString(), feed


def uses_winograd(executable) -> bool:
    return any("winograd" in step["kernel"] for step in executable.describe()["steps"])


def check(model, feed, threads=2):
    executable = tw.compile(tw.load(model), threads=threads)
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feed)[0]
    actual = executable.run(feed)["y"]
    assert np.abs(actual - expected).max() <= 5e-5 * np.abs(expected).max()
    return executable


@pytest.mark.parametrize("size", [3, 4, 5, 7, 8, 13, 14, 17, 28, 31])
def test_every_edge_of_a_map(size):
    check(*convolution(32, 48, size, size + 3, [1, 1, 1, 1]))


@pytest.mark.parametrize(("inputs", "outputs"), list(itertools.product([16, 24, 33, 64], [16, 40, 65])))
def test_channels_that_fill_no_block(inputs, outputs):
    check(*convolution(inputs, outputs, 14, 14, [1, 1, 1, 1]))


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [2, 0, 1, 3], [0, 1, 2, 0]])
def test_pads(pads):
    check(*convolution(32, 32, 12, 11, pads))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_batch_and_residual(threads):
    check(*convolution(64, 64, 10, 9, [1, 1, 1, 1], batch=3, residual=True), threads=threads)


@pytest.mark.parametrize(("height", "width", "residual"), [(18, 15, True), (14, 14, False), (28, 28, True)])
def test_open_batch(height, width, residual):
    """Images have tiles of their own, of which the last block is partial."""
    model = onnx.load_model_from_string(convolution(64, 80, height, width, [1, 1, 1, 1], residual=residual)[0])
    for tensor in [*model.graph.input, *model.graph.output]:
        tensor.type.tensor_type.shape.dim[0].dim_param = "batch"
    model = model.SerializeToString()
    executable = tw.compile(tw.load(model), threads=2)
    assert uses_winograd(executable)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for batch in (1, 2, 5):
        feed = convolution(64, 80, height, width, [1, 1, 1, 1], batch, residual)[1]
        expected = session.run(None, feed)[0]
        assert np.abs(executable.run(feed)["y"] - expected).max() <= 5e-5 * np.abs(expected).max()


def test_a_map_of_many_blocks():
    executable = check(*convolution(64, 64, 56, 56, [1, 1, 1, 1]))
    assert uses_winograd(executable)


def test_it_can_be_switched_off():
    model, feed = convolution(64, 64, 28, 28, [1, 1, 1, 1])
    assert uses_winograd(tw.compile(tw.load(model)))
    direct = tw.compile(tw.load(model), winograd=False)
    assert not uses_winograd(direct)
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feed)[0]
    assert np.abs(direct.run(feed)["y"] - expected).max() <= 5e-6 * np.abs(expected).max()
