"""The largest and smallest elements, and running sums: beside numpy, with equal, endless and no numbers."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw

TYPES = {
    np.float32: TensorProto.FLOAT,
    np.float64: TensorProto.DOUBLE,
    np.float16: TensorProto.FLOAT16,
    np.int32: TensorProto.INT32,
    np.int64: TensorProto.INT64,
}


def model_of(operator, dtype, shape, number, outputs, **attributes) -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    node = helper.make_node(operator, ["x", "number"], list(outputs), **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [info("x", TYPES[dtype], shape)],
        [info(name, kind or TYPES[dtype], None) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.array(number), "number")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def spread(random, shape, kind):
    x = random.standard_normal(shape) * 100
    if kind == "few values":
        return np.round(x / 50)
    if kind == "skewed":
        return np.exp(x / 10)
    if kind == "equal":
        return x * 0
    if kind == "no numbers":
        x.flat[::7], x.flat[3::11], x.flat[1::13] = np.inf, -np.inf, np.nan
    if kind == "huge":
        return x * 1e36
    return x


def first_of(x, k, largest, axis):
    """Positions of the k first, NaN the greatest, of equals the first."""
    if not largest:
        order = np.argsort(x, axis, kind="stable")
    else:
        order = np.flip(x.shape[axis] - 1 - np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
    return np.take(order, range(k), axis)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("shape", "k", "axis"),
    [((3234,), 300, 0), ((5, 1000), 100, -1), ((1000, 5), 64, 0), ((3, 40, 7), 9, 1), ((2, 100), 100, 1),
     ((64, 513), 9, 1), ((2, 90), 0, 1), ((4, 600), 1, 1)],
)  # fmt: skip
def test_the_first(shape, k, axis, dtype, largest):
    outputs = {"values": None, "places": TensorProto.INT64}
    executable = tw.compile(tw.load(model_of("TopK", dtype, shape, k, outputs, axis=axis, largest=largest)), threads=2)
    random = np.random.default_rng(k)
    for kind in ("plain", "few values", "skewed", "equal", "no numbers", "huge"):
        x = spread(random, shape, kind)
        if np.dtype(dtype).kind == "i":
            x = np.clip(np.nan_to_num(x), -(2.0**31), 2.0**31 - 129)
        with np.errstate(over="ignore"):
            x = x.astype(dtype)
        places = first_of(x, k, largest, axis)
        result = executable.run({"x": x})
        np.testing.assert_array_equal(result["places"], places, err_msg=kind)
        np.testing.assert_array_equal(result["values"], np.take_along_axis(x, places, axis), err_msg=kind)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize(("shape", "axis"), [((64, 512), 1), ((8, 128, 200), 1), ((300, 100), 0), ((9,), 0)])
@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_running_sums(shape, axis, exclusive, reverse, dtype):
    model = model_of("CumSum", dtype, shape, axis, {"y": None}, exclusive=exclusive, reverse=reverse)
    x = np.random.default_rng(5).integers(-3, 4, shape)
    ordered = np.flip(x, axis) if reverse else x
    expected = np.cumsum(ordered, axis) - (ordered if exclusive else 0)
    expected = np.flip(expected, axis) if reverse else expected
    for threads in (1, 2):
        y = tw.compile(tw.load(model), threads=threads).run({"x": x.astype(dtype)})["y"]
        np.testing.assert_array_equal(y.astype(np.int64), expected)
