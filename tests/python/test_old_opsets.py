"""Forms that operators had before opset 7, which no other runtime takes any more: beside numpy."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw


def run(op, opset, feed, outputs=1, kinds=None, **attributes):
    """The node's results; inputs and results of unknown sizes are left to the importer."""
    names = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, list(feed), names, **attributes)
    kinds = kinds or [TensorProto.FLOAT] * outputs
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feed.items()
        ],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(names, kinds, strict=True)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)
    return list(tw.compile(tw.load(model.SerializeToString())).run(feed).values())


def floats(*shape, seed=0):
    return np.random.default_rng(seed).uniform(0.5, 2, shape).astype(np.float32)


OPERATIONS = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Pow": np.power}


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize(
    ("shape", "axis", "as_now"),
    [((3, 4), 1, (3, 4, 1)), ((5,), None, (5,)), ((2, 3), 0, (2, 3, 1, 1)), ((3,), -3, (3, 1, 1)), ((1,), None, ())],
)
def test_the_second_input_lies_along_axes(op, shape, axis, as_now):
    a, b = floats(2, 3, 4, 5), floats(*shape, seed=1)
    given = {"broadcast": 1} | ({} if axis is None else {"axis": axis})
    (got,) = run(op, 6, {"a": a, "b": b}, **given)
    np.testing.assert_allclose(got, OPERATIONS[op](a, b.reshape(as_now)), rtol=1e-5)


@pytest.mark.parametrize(("op", "function"), [("Greater", np.greater), ("Less", np.less), ("Equal", np.equal)])
def test_comparisons_along_an_axis(op, function):
    a, b = (np.random.default_rng(seed).integers(0, 3, shape) for seed, shape in ((0, (2, 3, 4)), (1, (3,))))
    a, b = (x.astype(np.int32 if op == "Equal" else np.float32) for x in (a, b))
    (got,) = run(op, 6, {"a": a, "b": b}, kinds=[TensorProto.BOOL], broadcast=1, axis=1)
    np.testing.assert_array_equal(got, function(a, b[:, None]))


def test_an_axis_past_the_end_is_refused():
    with pytest.raises(tw.Error, match="axis=2 with inputs of rank 3 and 2"):
        run("Add", 6, {"a": floats(2, 3, 4), "b": floats(3, 4)}, broadcast=1, axis=2)


def test_slopes_are_of_channels():
    x, slope = floats(2, 3, 4) - 1, floats(3, seed=1)
    (got,) = run("PRelu", 6, {"x": x, "slope": slope})
    np.testing.assert_allclose(got, np.where(x < 0, slope[:, None] * x, x), rtol=1e-6)


def test_products_with_a_row():
    a, b, c = floats(3, 4), floats(4, 5, seed=1), floats(5, seed=2)
    (got,) = run("Gemm", 6, {"a": a, "b": b, "c": c}, broadcast=1)
    np.testing.assert_allclose(got, a @ b + c, rtol=1e-5)


def test_batch_norm_is_told_that_it_is_a_test():
    x, parameters = floats(2, 3, 4, 4), {name: floats(3, seed=i) for i, name in enumerate("sbmv")}
    (got,) = run("BatchNormalization", 6, {"x": x, **parameters}, is_test=1)
    s, b, m, v = (array[:, None, None] for array in parameters.values())
    np.testing.assert_allclose(got, (x - m) / np.sqrt(v + 1e-5) * s + b, rtol=1e-4, atol=1e-5)
    with pytest.raises(tw.Error, match="is_test=0"):
        run("BatchNormalization", 6, {"x": x, **parameters})


def test_attributes_that_became_inputs():
    x = floats(2, 3, 4)
    np.testing.assert_array_equal(run("Reshape", 1, {"x": x}, shape=[0, -1])[0], x.reshape(2, 12))
    np.testing.assert_array_equal(
        run("Pad", 1, {"x": x}, paddings=[0, 1, 0, 2, 0, 1], value=3.0)[0],
        np.pad(x, ((0, 2), (1, 0), (0, 1)), constant_values=3),
    )
    np.testing.assert_array_equal(
        run("Cast", 1, {"x": x}, kinds=[TensorProto.INT32], to="INT32")[0], x.astype(np.int32)
    )
    np.testing.assert_array_equal(run("Clip", 1, {"x": x}, min=0.75)[0], np.maximum(x, np.float32(0.75)))
    with pytest.raises(tw.Error, match="elements of type complex128"):
        run("Cast", 1, {"x": x}, kinds=[TensorProto.INT32], to="COMPLEX128")


def test_tiles_along_one_axis():
    x = floats(2, 3, 4)
    node = helper.make_node("Tile", ["x", "tiles", "axis"], ["y"])
    constants = [numpy_helper.from_array(np.float32(1), "axis")]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", x.shape), ("tiles", []))
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([node], "g", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 1)], ir_version=3)
    executable = tw.compile(tw.load(model.SerializeToString()))
    for tiles in (1, 3):
        np.testing.assert_array_equal(
            executable.run({"x": x, "tiles": np.float32(tiles)})["y"], np.tile(x, (1, tiles, 1))
        )


def test_other_forms_of_the_first_opset():
    x = floats(1, 3, 4, 4)
    np.testing.assert_array_equal(run("Concat", 1, {"a": x, "b": x})[0], np.concatenate([x, x], 1))
    parts = run("Split", 1, {"x": x}, outputs=2, axis=2, split=[1, 3])
    np.testing.assert_array_equal(np.concatenate(parts, 2), x)
    assert parts[0].shape == (1, 3, 1, 4)
    np.testing.assert_array_equal(
        run("Upsample", 1, {"x": x}, height_scale=2.0, width_scale=3.0)[0], x.repeat(2, 2).repeat(3, 3)
    )
    np.testing.assert_allclose(
        run("GlobalLpPool", 1, {"x": x}, p=3.0)[0], (np.abs(x) ** 3).sum((2, 3), keepdims=True) ** (1 / 3), rtol=1e-5
    )
    with pytest.raises(tw.Error, match="p=1.5"):
        run("GlobalLpPool", 1, {"x": x}, p=1.5)
