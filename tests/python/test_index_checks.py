"""Indices outside of what they are for: an error at load where they are known, of the run where they are data."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from conftest import INT64, model_of, value

RNG = np.random.default_rng(3)
X = RNG.standard_normal((10, 4)).astype(np.float32)


def indexed(op, indices, shape=(10, 4), output=(None, None), more=(), constant=False, **attributes):
    """op(x, indices, more…), then Neg; indices are an input or known."""
    indices = np.asarray(indices)
    names = {f"m{k}": np.asarray(array) for k, array in enumerate(more)}
    return model_of(
        [(op, ["x", "i", *names], ["a"], attributes), ("Neg", ["a"], ["y"])],
        [value("x", shape)] + ([] if constant else [value("i", list(indices.shape), INT64)]),
        [value("y", output)],
        {**names, **({"i": indices} if constant else {})},
        opset=20,
    )


CASES = [  # operator, attributes, indices that are right, and one of them that is wrong
    ("Gather", {}, [0, 9, -10, 3], 10),
    ("Gather", {"axis": 1}, [[0, 3], [-4, 1]], -5),
    ("GatherElements", {"axis": 0}, [[0, 9, -10, 3], [1, 2, 3, 4]], 10),
    ("GatherND", {}, [[0, 3], [-10, -4], [9, 0]], -11),
]


@pytest.mark.parametrize("op, attributes, right, wrong", CASES, ids=[f"{c[0]}-{c[1].get('axis', '')}" for c in CASES])
def test_an_index_outside_ends_the_run_or_the_import(op, attributes, right, wrong):
    rank = 1 if op == "GatherND" else 2 + np.ndim(right) - 1 if op == "Gather" else 2
    model = indexed(op, right, output=[None] * rank, **attributes)
    executable = tw.compile(model, threads=2)
    bad = np.array(right)
    bad.flat[-2 if op == "GatherND" else -1] = wrong  # of a pair its row
    first = executable.run({"x": X, "i": np.array(right)})["y"]
    with pytest.raises(
        tw.Error, match=f"(?s)^TW1101 node `{op}_0` .{op}.: an index into .* is {wrong}, which is outside"
    ):
        executable.run({"x": X, "i": bad})
    np.testing.assert_array_equal(executable.run({"x": X, "i": np.array(right)})["y"], first)
    with pytest.raises(tw.Error, match=f"(?s)TW1002.*{op}.* is {wrong}, which is outside"):
        tw.load(indexed(op, bad, output=[None] * rank, constant=True, **attributes))
    unchecked = tw.compile(tw.load(model, checks=False), threads=2)
    np.testing.assert_array_equal(unchecked.run({"x": X, "i": np.array(right)})["y"], first)
    assert unchecked.run({"x": X, "i": bad})["y"].shape == first.shape  # of the nearest index


@pytest.mark.parametrize("op, indices, updates", [
    ("ScatterElements", [[0, 1, 2, 3], [9, -10, 4, 5]], (2, 4)),
    ("ScatterND", [[0], [-10], [9]], (3, 4)),
])  # fmt: skip
def test_updates_outside(op, indices, updates):
    model = indexed(op, indices, more=[np.ones(updates, np.float32)])
    executable = tw.compile(model)
    executable.run({"x": X, "i": np.array(indices)})
    bad = np.array(indices)
    bad.flat[0] = 1 << 40
    with pytest.raises(tw.Error, match=f"(?s)^TW1101 node `{op}_0`.* is {1 << 40}, which is outside"):
        executable.run({"x": X, "i": bad})


def test_images_and_positions_outside():
    """Of regions of interest, and of tables of a rotary embedding."""
    regions = model_of(
        [("RoiAlign", ["x", "regions", "i"], ["y"])],
        [value("x", [2, 1, 8, 8]), value("regions", [3, 4]), value("i", [3], INT64)],
        [value("y", None)],
        opset=20,
    )
    feed = {"x": RNG.random((2, 1, 8, 8), np.float32), "regions": np.array([[0, 0, 4, 4]] * 3, np.float32)}
    rotated = model_of(
        [("RotaryEmbedding", ["x", "cos", "sin", "i"], ["y"])],
        [value("x", [1, 2, 3, 8]), value("cos", [5, 4]), value("sin", [5, 4]), value("i", [1, 3], INT64)],
        [value("y", None)],
        opset=23,
    )
    tables = {name: RNG.random((5, 4), np.float32) for name in ("cos", "sin")}
    tables["x"] = RNG.random((1, 2, 3, 8), np.float32)
    for model, given, right, wrong in [
        (regions, feed, [0, 1, 1], [0, 2, 1]),
        (rotated, tables, [[0, 4, 1]], [[0, 1, 5]]),
    ]:
        executable = tw.compile(model)
        executable.run({**given, "i": np.array(right)})
        with pytest.raises(tw.Error, match=f"(?s)^TW1101 node .* is {np.max(wrong)}, which is outside"):
            executable.run({**given, "i": np.array(wrong)})


def test_open_dimensions():
    """The same index is right in a run, and wrong in another."""
    model = model_of(
        [("Gather", ["x", "i"], ["y"])],
        [value("x", ["n", 4]), value("i", ["k"], TensorProto.INT32)],
        [value("y", ["k", 4])],
        opset=20,
    )
    executable = tw.compile(tw.load(model, shapes={"i": (tw.Dim("k", 0),)}), threads=2)
    index = np.array([7, -8], np.int32)
    np.testing.assert_array_equal(executable.run({"x": X, "i": index})["y"], X[index])
    with pytest.raises(tw.Error, match="(?s)^TW1101.*an index into n is 7, which is outside"):
        executable.run({"x": X[:7], "i": index[:1]})
    with pytest.raises(tw.Error, match="(?s)^TW1101.*is -8"):
        executable.run({"x": X[:7], "i": index[1:]})
    assert executable.run({"x": X[:7], "i": index[:0]})["y"].shape == (0, 4)


def test_several_wrong_ones_are_one_error_and_artifacts_check(tmp_path):
    model = model_of(
        [("Gather", ["x", "i"], ["a"]), ("Gather", ["x", "k"], ["b"]), ("Add", ["a", "b"], ["y"])],
        [value("x", [10, 4]), value("i", [2], INT64), value("k", [2], INT64)],
        [value("y", [2, 4])],
        opset=20,
    )
    tw.compile(model).save(tmp_path / "model.twa")
    executable = tw.load_executable(tmp_path / "model.twa")
    with pytest.raises(tw.Error, match="(?s)^TW1101 node `Gather_0`.* is 11"):
        executable.run({"x": X, "i": np.array([3, 11]), "k": np.array([-20, 2])})
    with pytest.raises(tw.Error, match="(?s)^TW1101 node `Gather_1`.* is -20"):
        executable.run({"x": X, "i": np.array([3, 1]), "k": np.array([-20, 2])})


def test_within_loops_the_nearest_is_taken():
    """As documented: a check in each step would cost more than many a step."""
    step = helper.make_graph(
        [helper.make_node("Gather", ["x", "number"], ["row"]), helper.make_node("Identity", ["go"], ["goes"])],
        "step",
        [value("number", [], INT64), value("go", [], TensorProto.BOOL)],
        [value("goes", [], TensorProto.BOOL), value("row", [4])],
    )
    model = model_of(
        [("Loop", ["count", ""], ["y"], {"body": step})],
        [value("x", [10, 4]), value("count", [], INT64)],
        [value("y", [None, 4])],
        opset=20,
    )
    y = tw.compile(model).run({"x": X, "count": np.int64(12)})["y"]
    np.testing.assert_array_equal(y, X[np.minimum(np.arange(12), 9)])
