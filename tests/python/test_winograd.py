"""Convolutions of 3×3, or 3, by Winograd's minimal filtering, where analysis chooses it and it is allowed.

Edges, pads and partial blocks: tests/unit/relay_ir/winograd_test.cpp.
"""

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
    assert uses_winograd(executable)
    assert np.abs(actual - expected).max() <= 5e-5 * np.abs(expected).max()


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


@pytest.mark.parametrize(("batch", "pads", "residual"), [("batch", [1, 1, 1, 1], True), (2, [0, 2, 1, 0], False)])
def test_open_maps(batch, pads, residual):
    """Only a run knows how many tiles there are, and in how many columns."""
    fixed = batch if batch != "batch" else 1
    model = onnx.load_model_from_string(convolution(48, 72, 9, 9, pads, fixed, residual)[0])
    for tensor, names in [(model.graph.input[0], "hw"), *[(t, "rc") for t in model.graph.input[1:]]]:
        for axis, name in zip((2, 3), names, strict=True):
            tensor.type.tensor_type.shape.dim[axis].dim_param = name
        if batch == "batch":
            tensor.type.tensor_type.shape.dim[0].dim_param = batch
    model.graph.output[0].type.tensor_type.ClearField("shape")
    model = model.SerializeToString()
    executable = tw.compile(tw.load(model), threads=2)
    assert uses_winograd(executable)
    assert "On one core" not in executable.report()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for height, width in [(2, 3), (4, 4), (7, 5), (14, 14), (31, 6), (40, 57)]:
        for images in (1, 3) if batch == "batch" else (batch,):
            feed = convolution(48, 72, height, width, pads, images, residual)[1]
            expected = session.run(None, feed)[0]
            assert np.abs(executable.run(feed)["y"] - expected).max() <= 5e-5 * np.abs(expected).max()


def convolution_of(window, pads, names, sizes, seed, channels=48):
    """A model y = relu(conv(x, w)) to 64 channels more, with open `names` or fixed `sizes`: batch and map."""
    rng = np.random.default_rng(seed)
    weight = rng.standard_normal((channels + 64, channels, *window)) / np.sqrt(channels * np.prod(window))
    weight = weight.astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=pads),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    batch, *of_map = names or sizes
    graph = helper.make_graph(
        nodes,
        "convolution",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, channels, *of_map])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


def check_at(model, sizes, seed, channels=48):
    rng = np.random.default_rng(seed)
    for batch, *of_map in sizes:
        check(model, {"x": rng.standard_normal((batch, channels, *of_map)).astype(np.float32)})


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("slices", [1, 3])
def test_slices(slices, is_open):
    """Of video: windows of 3×3×3 elements, and of 3×3 in each slice."""
    size = (2, 5, 26, 19)
    names = ["n", "d", "h", "w"] if is_open else None
    model = convolution_of((slices, 3, 3), [slices // 2, 1, 1] * 2, names, size, slices)
    check_at(model, [(1, 1, 2, 3), size, (3, 2, 9, 40)] if is_open else [size], slices)


@pytest.mark.parametrize("is_open", [False, True])
def test_sequences(is_open):
    """Tiles along the only axis there is."""
    model = convolution_of((3,), [1, 1], ["n", "length"] if is_open else None, (2, 700), 3, 384)
    check_at(model, [(1, 1), (1, 5), (2, 700), (3, 64)] if is_open else [(2, 700)], 3, 384)


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("window", [(1, 3), (3, 1), (3, 1, 1)])
def test_one_axis_of_a_map(window, is_open):
    """The others are as many maps."""
    size = (2, 36, 40) if len(window) == 2 else (2, 9, 14, 15)
    names = list("nhw") if len(window) == 2 else list("ndhw")
    model = convolution_of(window, [extent // 2 for extent in window] * 2, names if is_open else None, size, 3, 384)
    smallest = (1,) * len(size)
    check_at(model, [smallest, size, (3, *(extent + 3 for extent in size[1:]))] if is_open else [size], 3, 384)


@pytest.mark.parametrize("residual", [False, True])
def test_a_map_of_many_blocks(residual):
    check(*convolution(64, 64, 56, 56, [1, 1, 1, 1], residual=residual))


def test_it_can_be_switched_off():
    model, feed = convolution(64, 64, 28, 28, [1, 1, 1, 1])
    assert uses_winograd(tw.compile(tw.load(model)))
    direct = tw.compile(tw.load(model), winograd=False)
    assert not uses_winograd(direct)
    expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feed)[0]
    assert np.abs(direct.run(feed)["y"] - expected).max() <= 5e-6 * np.abs(expected).max()
