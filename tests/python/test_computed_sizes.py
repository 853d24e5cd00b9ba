"""Operators whose results are as large as the data says, and sizes, counts and axes that a run computes, beside ONNX
Runtime: compiled code, with memory that holds no zeros, for one worker and for more."""

import re

import numpy as np
import onnx
import onnx.reference
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tilewright as tw

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
random = np.random.default_rng(11)


def info(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes, inputs, outputs, initializers=(), opset=18):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def floats(*shape):
    return random.standard_normal(shape).astype(np.float32)


def ints(*values):
    return np.array(values, np.int64)


def number(value, dtype=np.int64):
    return np.array(value, dtype)


def require_agreement(model, feeds):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    executable = tw.compile(tw.load(model))
    for threads in (1, 2):
        executable.threads = threads
        for feed in feeds:
            wanted = session.run(None, feed)
            for expected, got in zip(wanted, executable.run(feed).values(), strict=True):
                assert got.shape == expected.shape and got.dtype == expected.dtype
                np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    return executable


def masks(*shape):
    """None, some, and all."""
    x = floats(*shape)
    return [x * 0, np.maximum(x, 0), x * 0 + 1]


@pytest.mark.parametrize("shape", [(7,), (3, 4), (1, 1), (2, 3, 5)])
def test_coordinates_of_what_is_not_zero(shape):
    model = model_of([node("NonZero", "x", "y")], [info("x", FLOAT, shape)], [info("y", INT64, [len(shape), None])])
    require_agreement(model, [{"x": mask} for mask in masks(*shape)])


def test_what_is_chosen_is_computed_with():
    nodes = [
        node("NonZero", "x", "at"),
        node("Transpose", "at", "rows"),
        node("GatherND", "x rows", "values"),
        node("Exp", "values", "grown"),
        node("ReduceSum", "grown", "sum", keepdims=0),
        node("Shape", "values", "size"),
        node("Concat", "grown grown", "twice", axis=0),
        node("MatMul", "grown_row w", "product"),
    ]
    nodes.insert(6, node("Unsqueeze", "grown axis", "grown_row"))
    initializers = [
        helper.make_tensor("axis", INT64, [1], [1]),
        helper.make_tensor("w", FLOAT, [1, 33], list(range(33))),
    ]
    outputs = [
        info("values", FLOAT, [None]),
        info("sum", FLOAT, []),
        info("size", INT64, [1]),
        info("twice", FLOAT, [None]),
        info("product", FLOAT, [None, 33]),
    ]
    model = model_of(nodes, [info("x", FLOAT, ["a", "b"])], outputs, initializers)
    require_agreement(model, [{"x": mask} for shape in [(3, 4), (1, 1), (40, 37)] for mask in masks(*shape)])


@pytest.mark.parametrize("axis", [None, 0, -1])
def test_compress(axis):
    attributes = {} if axis is None else {"axis": axis}
    model = model_of(
        [node("Compress", "x c", "y", **attributes)],
        [info("x", FLOAT, [4, 6]), info("c", BOOL, ["n"])],
        [info("y", FLOAT, [None] * (1 if axis is None else 2))],
    )
    lengths = {None: (5, 24), 0: (3, 4), -1: (2, 6)}[axis]
    require_agreement(model, [{"x": floats(4, 6), "c": np.arange(n) % k == 0} for n in lengths for k in (1, 2)])


@pytest.mark.parametrize("sorted_", [0, 1])
@pytest.mark.parametrize("kind", [FLOAT, INT64, TensorProto.INT8])
def test_unique_elements(kind, sorted_):
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    model = model_of(
        [node("Unique", "x", "y i v c", sorted=sorted_)],
        [info("x", kind, ["n", "m"])],
        [info("y", kind, [None])] + [info(name, INT64, [None]) for name in "ivc"],
    )
    shapes = [(1, 1), (2, 3), (7, 1), (33, 40)]
    require_agreement(model, [{"x": random.integers(-m, m, s).astype(dtype)} for s in shapes for m in (1, 3, 100)])


@pytest.mark.parametrize("sorted_", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_unique_slices(axis, sorted_):
    model = model_of(
        [node("Unique", "x", "y i v c", axis=axis, sorted=sorted_)],
        [info("x", FLOAT, ["a", "b", "c"])],
        [info("y", FLOAT, [None] * 3)] + [info(name, INT64, [None]) for name in "ivc"],
    )
    shapes = [(1, 1, 1), (4, 3, 2), (2, 9, 1), (30, 2, 2), (2, 2, 30)]
    require_agreement(model, [{"x": random.integers(0, m, s).astype(np.float32)} for s in shapes for m in (1, 2, 4)])


def test_unique_is_nan_as_well():
    model = model_of(
        [node("Unique", "x", "y i v c")], [info("x", FLOAT, ["n"])], [info(k, INT64, [None]) for k in "ivc"]
    )
    x = np.array([np.nan, 1, np.nan, -np.inf, 1, np.inf, np.nan], np.float32)
    _, *wanted = np.unique(x, return_index=True, return_inverse=True, return_counts=True)
    for expected, got in zip(wanted, tw.compile(tw.load(model)).run({"x": x}).values(), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("kind", [FLOAT, TensorProto.DOUBLE])
def test_windows(op, periodic, kind):
    size = info("n", INT64, [])
    window = node(op, "n", "y", periodic=periodic, output_datatype=kind)
    computed = tw.compile(tw.load(model_of([window], [size], [info("y", kind, [None])])))
    for n in (0, 2 - periodic, 10, 400):  # a symmetric window of 1 is 0 / 0 there
        constant = model_of([window], [], [info("y", kind, [n])], [helper.make_tensor("n", INT64, [], [n])])
        (wanted,) = onnx.reference.ReferenceEvaluator(constant).run(None, {})
        for got in (tw.compile(tw.load(constant)).run({}), computed.run({"n": number(n)})):
            np.testing.assert_allclose(got["y"], wanted, rtol=1e-5, atol=1e-6)
    # As many as an open dimension.
    nodes = [node("Size", "x", "n"), window, node("Mul", "x y", "z")]
    if kind == FLOAT:
        model = model_of(nodes, [info("x", FLOAT, ["k"])], [info("z", FLOAT, [None])])
        executable = tw.compile(tw.load(model))
        for n in (2, 31):
            np.testing.assert_allclose(
                executable.run({"x": np.ones(n, np.float32)})["z"], computed.run({"n": number(n)})["y"], atol=1e-6
            )


def boxes(count, most, overlap, score, apart=1):
    """`apart`: places that the boxes are at, far from one another, as detectors set those of classes apart."""
    corners = random.random((2, count, 4)).astype(np.float32)
    corners[:, :, :2] += 2 * random.integers(0, apart, (2, count, 1))
    corners[:, :, 2:] = corners[:, :, :2] + corners[:, :, 2:] * 0.5
    return {
        "boxes": corners,
        "scores": random.random((2, 3, count)).astype(np.float32),
        "most": number(most),
        "overlap": number(overlap, np.float32),
        "score": number(score, np.float32),
    }


@pytest.mark.parametrize("center", [0, 1])
def test_boxes_that_overlap_no_better_one(center):
    model = model_of(
        [node("NonMaxSuppression", "boxes scores most overlap score", "y", center_point_box=center)],
        [info("boxes", FLOAT, [2, "n", 4]), info("scores", FLOAT, [2, 3, "n"]), info("most", INT64, [])]
        + [info(name, FLOAT, []) for name in ("overlap", "score")],
        [info("y", INT64, [None, 3])],
    )
    cases = [
        (10, 3, 0.3, 0.2),
        (50, 100, 0.5, 0),
        (1, 1, 0.5, 0),
        (20, 0, 0.5, 0),
        (20, 5, 0.5, 2),
        (300, 40, 0.1, 0.1),
        (3000, 1000, 0.3, 0.1),
        (3000, 2000, 0.5, 0.2, 20),
        (700, 100, 0.5, 0, 1000),
    ]
    feeds = [boxes(*case) for case in cases]
    wide = boxes(1500, 1000, 0.4, 0, 9)
    wide["boxes"][:, ::50] *= [0.5, -1, 2, 40]  # over all others, some of them turned around
    endless = boxes(600, 600, 0.5, 0, 3)
    endless["boxes"][0, 5:9, 1], endless["boxes"][1, 3:5, 3] = -np.inf, np.inf
    require_agreement(model, [*feeds, wide, endless])


@pytest.mark.parametrize("kind", [INT64, TensorProto.INT32, FLOAT])
def test_ranges(kind):
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    model = model_of(
        [node("Range", "a b c", "y"), node("Add", "y y", "z")],
        [info(name, kind, []) for name in "abc"],
        [info("z", kind, [None])],
    )
    cases = [(0, 10, 3), (5, 5, 1), (10, 0, -3), (0, 1000, 1), (3, -2, 1), (-3, 3, 2)]
    require_agreement(model, [dict(zip("abc", (number(v, dtype) for v in case), strict=True)) for case in cases])


def test_shapes():
    x = floats(4, 6)
    inputs = [info("x", FLOAT, [4, 6]), info("s", INT64, [3])]
    reshape = model_of([node("Reshape", "x s", "y"), node("Softmax", "y", "z")], inputs, [info("z", FLOAT, [None] * 3)])
    executable = require_agreement(
        reshape, [{"x": x, "s": ints(*s)} for s in [(2, 3, 4), (0, -1, 1), (24, 1, 1), (-1, 2, 2)]]
    )
    with pytest.raises(tw.Error, match="TW1101.*= 24.*does not hold") as failure:
        executable.run({"x": x, "s": ints(2, 3, 5)})
    assert "Reshape" in str(failure.value)
    executable.run({"x": x, "s": ints(2, 3, 4)})  # as before
    expand = model_of([node("Expand", "x s", "y"), node("Relu", "y", "z")], inputs, [info("z", FLOAT, [None] * 3)])
    require_agreement(expand, [{"x": x, "s": ints(*s)} for s in [(2, 1, 6), (1, 4, 1), (3, 4, 6)]])
    fill = model_of([node("ConstantOfShape", "s", "y")], inputs[1:], [info("y", FLOAT, [None] * 3)])
    require_agreement(fill, [{"s": ints(*s)} for s in [(2, 1, 6), (1, 0, 1), (3, 40, 6)]])
    tile = model_of([node("Tile", "x s", "y")], [inputs[0], info("s", INT64, [2])], [info("y", FLOAT, [None] * 2)])
    require_agreement(tile, [{"x": x, "s": ints(*s)} for s in [(2, 1), (1, 7), (0, 2)]])


def test_as_many_of_the_largest():
    model = model_of(
        [node("TopK", "x k", "y i")],
        [info("x", FLOAT, [4, "n"]), info("k", INT64, [1])],
        [info("y", FLOAT, [4, None]), info("i", INT64, [4, None])],
    )
    cases = [(6, 2), (6, 6), (6, 0), (100, 37), (513, 512), (1, 1)]
    executable = require_agreement(model, [{"x": floats(4, n), "k": ints(k)} for n, k in cases])
    with pytest.raises(tw.Error, match="TW1101"):
        executable.run({"x": floats(4, 3), "k": ints(4)})


def test_slices():
    model = model_of(
        [node("Slice", "x s e a t", "y")],
        [info("x", FLOAT, [4, 6])] + [info(name, INT64, [2]) for name in "seat"],
        [info("y", FLOAT, [None, None])],
    )
    cases = [
        ((0, 1), (2, 5), (0, 1), (1, 2)),
        ((-1, -1), (-100, -100), (0, 1), (-1, -2)),
        ((0, 0), (2**62, 2**62), (-1, 0), (1, 1)),
        ((3, 2), (1, 9), (0, 1), (1, 3)),
    ]
    require_agreement(
        model, [{"x": floats(4, 6), **dict(zip("seat", (ints(*v) for v in case), strict=True))} for case in cases]
    )


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "ReduceMean", "ReduceLogSumExp", "ReduceL2"])
def test_axes_of_reductions(op, keepdims):
    model = model_of(
        [node(op, "x a", "y", keepdims=keepdims)],
        [info("x", FLOAT, [4, "n", 3]), info("a", INT64, [2])],
        [info("y", FLOAT, [None] * (3 if keepdims else 1))],
    )
    require_agreement(model, [{"x": floats(4, n, 3), "a": ints(*a)} for n in (1, 6) for a in [(0, 1), (-1, 0), (2, 1)]])


def test_axes_that_come_and_go():
    model = model_of(
        [node("Unsqueeze", "x a", "y"), node("Squeeze", "y a", "z")],
        [info("x", FLOAT, [4, 1, 3]), info("a", INT64, [2])],
        [info("y", FLOAT, [None] * 5), info("z", FLOAT, [None] * 3)],
    )
    require_agreement(model, [{"x": floats(4, 1, 3), "a": ints(*a)} for a in [(0, 1), (-1, 0), (2, 4), (3, 1)]])


def test_padding_splitting_and_one_hot():
    pad = model_of(
        [node("Pad", "x p v a", "y")],
        [info("x", FLOAT, [2, 3]), info("p", INT64, [2]), info("v", FLOAT, []), info("a", INT64, [1])],
        [info("y", FLOAT, [None, None])],
    )
    value = number(2.5, np.float32)
    feeds = [{"x": floats(2, 3), "p": ints(*p), "v": value, "a": ints(a)} for p in [(1, 2), (0, 0)] for a in (0, -1)]
    require_agreement(pad, feeds)
    split = model_of(
        [node("Split", "x s", "y z", axis=1)],
        [info("x", FLOAT, [2, 7]), info("s", INT64, [2])],
        [info("y", FLOAT, [2, None]), info("z", FLOAT, [2, None])],
    )
    require_agreement(split, [{"x": floats(2, 7), "s": ints(*s)} for s in [(3, 4), (1, 6), (7, 0)]])
    one_hot = model_of(
        [node("OneHot", "i d v", "y")],
        [info("i", INT64, [3]), info("d", INT64, []), info("v", FLOAT, [2])],
        [info("y", FLOAT, [3, None])],
    )
    values = np.array([0.5, 2], np.float32)
    require_agreement(one_hot, [{"i": ints(1, -1, 9), "d": number(d), "v": values} for d in (3, 10)])


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("by", ["scales", "sizes"])
def test_resizing(mode, by):
    model = model_of(
        [helper.make_node("Resize", ["x", "", "s"] if by == "scales" else ["x", "", "", "s"], ["y"], mode=mode)],
        [info("x", FLOAT, [1, 2, 5, 6]), info("s", FLOAT if by == "scales" else INT64, [4])],
        [info("y", FLOAT, [None] * 4)],
    )
    if by == "scales":
        sizes = [np.array(s, np.float32) for s in [(1, 1, 2, 2), (1, 1, 0.6, 1.5), (1, 1, 1, 1)]]
    else:
        sizes = [ints(*s) for s in [(1, 2, 10, 12), (1, 2, 3, 9), (1, 2, 5, 6)]]
    require_agreement(model, [{"x": floats(1, 2, 5, 6), "s": s} for s in sizes])


def loop(condition, kept, count="count"):
    """Rows of x, until `stop` of them are done or there are no more."""
    body = helper.make_graph(
        [
            node("Gather", "x i", "row", axis=0),
            node("Add", "s row", "t"),
            node("Less", "i stop", "below"),
            node("And" if condition else "Or", "below go" if condition else "go go", "again"),
            node("Mul", "t t", "square"),
        ],
        "body",
        [info("i", INT64, []), info("go", BOOL, []), info("s", FLOAT, [3])],
        [info("again", BOOL, []), info("t", FLOAT, [3])] + [info("square", FLOAT, [3])] * kept,
    )
    return helper.make_node("Loop", [count, "go0", "s0"], ["last", "all"][: 1 + kept], body=body)


@pytest.mark.parametrize("condition", [False, True])
@pytest.mark.parametrize("kept", [0, 1])
def test_loops_that_data_ends(condition, kept):
    inputs = [info("count", INT64, []), info("x", FLOAT, [8, 3]), info("stop", INT64, [])]
    outputs = [info("last", FLOAT, [3]), info("all", FLOAT, [None, 3])][: 1 + kept]
    initializers = [helper.make_tensor("s0", FLOAT, [3], [1, 2, 3]), helper.make_tensor("go0", BOOL, [], [1])]
    model = model_of([loop(condition, kept)], inputs, outputs, initializers)
    feeds = [{"count": number(n), "x": floats(8, 3), "stop": number(s)} for n in (8, 0, 3) for s in (0, 5, 100)]
    require_agreement(model, feeds)


def test_branches_with_results_of_other_sizes():
    some = helper.make_graph([node("Slice", "x zero k", "y1")], "some", [], [info("y1", FLOAT, [None, 3])])
    none = helper.make_graph([node("Slice", "x zero one", "y2")], "none", [], [info("y2", FLOAT, [None, 3])])
    model = model_of(
        [helper.make_node("If", ["c"], ["y"], then_branch=some, else_branch=none), node("Exp", "y", "z")],
        [info("c", BOOL, []), info("x", FLOAT, ["n", 3]), info("k", INT64, [1])],
        [info("z", FLOAT, [None, 3]), info("y", FLOAT, [None, 3])],
        [helper.make_tensor("zero", INT64, [1], [0]), helper.make_tensor("one", INT64, [1], [1])],
    )
    feeds = [
        {"c": np.array(c), "x": floats(n, 3), "k": ints(k)} for c in (True, False) for n in (1, 9) for k in (0, 1, 5)
    ]
    require_agreement(model, feeds)


def test_sizes_of_branches_that_nobody_reads_else():
    some = helper.make_graph([node("NonZero", "x", "y1")], "some", [], [info("y1", INT64, [1, None])])
    others = [node("Neg", "x", "n"), node("Relu", "n", "r"), node("NonZero", "r", "y2")]
    other = helper.make_graph(others, "other", [], [info("y2", INT64, [1, None])])
    model = model_of(
        [helper.make_node("If", ["c"], ["y"], then_branch=some, else_branch=other), node("Shape", "y", "z")],
        [info("c", BOOL, []), info("x", FLOAT, ["n"])],
        [info("z", INT64, [2])],
    )
    require_agreement(model, [{"c": np.array(c), "x": x} for c in (True, False) for x in masks(7)])


def filtered():
    return model_of(
        [node("NonZero", "x", "at"), node("Gather", "x at", "rows"), node("Squeeze", "rows zero", "y")],
        [info("x", FLOAT, ["n"])],
        [info("y", FLOAT, [None])],
        [helper.make_tensor("zero", INT64, [1], [0])],
    )


def test_artifacts_and_profiles(tmp_path):
    model = tw.load(filtered())
    executable = tw.compile(model, profiles=[{"n": 40}])
    path = tmp_path / "m.twa"
    executable.save(path)
    loaded = tw.load_executable(path)
    for n in (40, 1, 7):
        x = np.maximum(floats(n), 0)
        for each in (executable, loaded):
            np.testing.assert_array_equal(each.run({"x": x})["y"], x[x != 0])
    profile = loaded.profile({"x": np.ones(40, np.float32)})
    assert len(profile.kernels) > 2


def test_what_is_read_is_explained():
    assert re.search(r"control +`\w+` reads the size \w+: 0\.\. in a run", tw.load(filtered()).explain())


def test_results_of_unknown_size_are_not_written_to_arrays_of_the_caller():
    executable = tw.compile(tw.load(filtered()))
    with pytest.raises(tw.Error, match="TW1101.*only the run computes"):
        executable.run({"x": np.ones(4, np.float32)}, out={"y": np.empty(4, np.float32)})
