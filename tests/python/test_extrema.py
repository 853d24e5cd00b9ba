"""The larger and the smaller of a value and a known number: NaN stays NaN, on whichever side it stands."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw


def extremum(op, arguments, constants):
    values = [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in constants.items()]
    graph = helper.make_graph(
        [helper.make_node(op, arguments, ["y"])],
        "extremum",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [37])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [37])],
        values,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString()


@pytest.mark.parametrize(
    ("op", "arguments", "expected"),
    [
        ("Relu", ["x"], lambda x: np.maximum(x, 0)),
        ("Max", ["x", "two"], lambda x: np.maximum(x, 2)),
        ("Max", ["two", "x"], lambda x: np.maximum(2, x)),
        ("Min", ["x", "two"], lambda x: np.minimum(x, 2)),
        ("Min", ["two", "x"], lambda x: np.minimum(2, x)),
        ("Max", ["x", "nothing"], lambda x: np.full_like(x, np.nan)),
        ("Min", ["nothing", "x"], lambda x: np.full_like(x, np.nan)),
        ("Clip", ["x", "zero", "two"], lambda x: np.minimum(np.maximum(x, 0), 2)),
    ],
)
def test_nan_stays(op, arguments, expected):
    constants = {"zero": 0, "two": 2, "nothing": np.nan}
    used = {name: value for name, value in constants.items() if name in arguments}
    x = np.random.default_rng(3).standard_normal(37).astype(np.float32) * 3
    x[[0, 5, 17, 36]] = np.nan
    x[[1, 6]] = [np.inf, -np.inf]
    (y,) = tw.compile(tw.load(extremum(op, arguments, used)), threads=1)(x)
    np.testing.assert_array_equal(y, expected(x).astype(np.float32))
