"""Values of a Loop that grow from step to step, beside ONNX Runtime."""

import copy

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from test_control_flow import array, floats, info, model_of, require_agreement

node = helper.make_node
INT = TensorProto.INT64
unbounded = np.iinfo(np.int64).max


def ints(name, values):
    return numpy_helper.from_array(np.array(values, np.int64), name)


def loop_of(nodes, carried, results, count="count", condition="", goes_on="go", kept=(), kind=TensorProto.FLOAT):
    """Carries name: (first value, what it is after a step, its rank)."""
    body = helper.make_graph(
        [*nodes, node("Identity", [goes_on], ["go_on"])],
        "body",
        [info("i", INT, []), info("go", TensorProto.BOOL, [])]
        + [info(name, kind, None if rank is None else [None] * rank) for name, (_, _, rank) in carried.items()],
        [info("go_on", TensorProto.BOOL, [])]
        + [info(after, kind, None if rank is None else [None] * rank) for _, after, rank in carried.values()]
        + [floats(name, None) for name in kept],
    )
    return node("Loop", [count, condition, *(first for first, _, _ in carried.values())], list(results), body=body)


# A row of x, with a function of it.
a_row = [
    node("Gather", ["x", "i"], ["flat"], axis=0),
    node("Tanh", ["flat"], ["bent"]),
    node("Unsqueeze", ["bent", "zero"], ["row"]),
]
constants = [ints("zero", [0]), ints("one", [1])]
x_and_count = [floats("x", ["n", 5]), info("count", INT, [])]


def empty(name, *shape):
    return numpy_helper.from_array(np.zeros(shape, np.float32), name)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("is_behind", [True, False])
@pytest.mark.parametrize("first", [0, 2])
def test_rows_are_added(axis, is_behind, first):
    parts = ["all", "row"] if is_behind else ["row", "all"]
    row = a_row if axis == 0 else [*a_row, node("Transpose", ["row"], ["column"], perm=[1, 0])]
    parts = [part if axis == 0 or part == "all" else "column" for part in parts]
    nodes = [*row, node("Concat", parts, ["more"], axis=axis)]
    shape = (first, 5) if axis == 0 else (5, first)
    loop = loop_of(nodes, {"all": ("none", "more", 2)}, ["s"])
    model = model_of(
        [loop, node("Neg", ["s"], ["y"])],
        x_and_count,
        [floats("y", [None, None]), floats("s", [None, None])],
        [*constants, empty("none", *shape)],
    )
    assert "; what grows: `s` f32[" in tw.load(model.SerializeToString()).explain()
    executable = require_agreement(model, [{"x": array(9, 5), "count": np.array(k)} for k in (3, 0, 9, 1)])
    require_agreement(model, [{"x": array(40, 5), "count": np.array(33)}], executable)


def test_as_many_steps_as_rows():
    """No number is read: the memory is there when the run begins."""
    nodes = [
        *a_row,
        node("Slice", ["x", "zero", "one"], ["old"]),
        node("Concat", ["all", "row", "row", "old"], ["more"], axis=0),
        node("Exp", ["wide"], ["wide_e"]),
        node("Concat", ["wide_e", "row"], ["wider"], axis=1),
    ]
    loop = loop_of(nodes, {"all": ("none", "more", 2), "wide": ("x0", "wider", 2)}, ["s", "w"])
    shape = [node("Shape", ["x"], ["dims"]), node("Gather", ["dims", "zero"], ["count"])]
    model = model_of(
        [*shape, loop],
        [floats("x", ["n", 5]), floats("x0", [1, "m"])],
        [floats("s", [None, 5]), floats("w", [1, None])],
        [*constants, empty("none", 0, 5)],
    )
    require_agreement(model, [{"x": array(n, 5), "x0": array(1, m)} for n, m in ((3, 4), (1, 1), (17, 2))])
    require_agreement(fixed(model, {"x": (6, 5), "x0": (1, 3)}), [{"x": array(6, 5), "x0": array(1, 3)}])


def fixed(model, shapes):
    fixed = copy.deepcopy(model)
    for value in fixed.graph.input:
        for dim, extent in zip(value.type.tensor_type.shape.dim, shapes[value.name], strict=True):
            dim.Clear()
            dim.dim_value = extent
    return fixed


@pytest.mark.parametrize("most", [12, "count", unbounded])
def test_rows_are_added_until_a_condition(most):
    nodes = [
        *a_row,
        node("Concat", ["all", "row"], ["more"], axis=0),
        node("ReduceSum", ["more"], ["sum"], keepdims=0),
        node("Less", ["sum", "limit"], ["again"]),
    ]
    loop = loop_of(
        nodes,
        {"all": ("none", "more", 2)},
        ["s", "kept"][: 1 + (most != unbounded)],
        count="count" if most == "count" else "most",
        goes_on="again",
        kept=["bent"] if most != unbounded else [],
    )
    outputs = [floats("y", [None, 5]), floats("s", [None, 5])] + [floats("kept", [None, 5])] * (most != unbounded)
    inputs = [floats("x", ["n", 5]), floats("limit", [])] + [info("count", INT, [])] * (most == "count")
    constant = [*constants, empty("none", 0, 5)] + [numpy_helper.from_array(np.array(most), "most")] * (most != "count")
    model = model_of([loop, node("Neg", ["s"], ["y"])], inputs, outputs, constant)
    x = np.abs(array(12, 5))
    feeds = [{"x": x, "limit": np.array(limit, np.float32)} for limit in (0.5, 100 if most != unbounded else 2, 2, 0)]
    if most == "count":
        feeds = [{**feed, "count": np.array(count)} for feed in feeds for count in (0, 5, 12)]
    require_agreement(model, feeds)


def test_loops_in_each_other():
    """Each step adds i-th rows three times, with a turn's number."""
    inner = helper.make_graph(
        [
            node("Cast", ["j"], ["jf"], to=TensorProto.FLOAT),
            node("Add", ["row", "jf"], ["own"]),
            node("Concat", ["part", "own"], ["longer"], axis=0),
            node("Identity", ["go2"], ["go_on2"]),
        ],
        "inner",
        [info("j", INT, []), info("go2", TensorProto.BOOL, []), floats("part", [None, 5])],
        [info("go_on2", TensorProto.BOOL, []), floats("longer", [None, 5])],
    )
    nodes = [*a_row, node("Loop", ["three", "", "all"], ["more"], body=inner)]
    loop = loop_of(nodes, {"all": ("none", "more", 2)}, ["s"])
    model = model_of([loop], x_and_count, [floats("s", [None, 5])], [*constants, ints("three", 3), empty("none", 0, 5)])
    require_agreement(model, [{"x": array(7, 5), "count": np.array(k)} for k in (0, 1, 7)])


def test_parts_of_another_size_in_each_step():
    """What is before the step's row is summed up: nothing is carried that grows."""
    nodes = [
        node("Add", ["i", "one"], ["end"]),
        node("Slice", ["x", "zero", "end"], ["part"]),
        node("Softmax", ["part"], ["soft"], axis=0),
        node("ReduceSum", ["soft"], ["sum"], keepdims=0),
        node("Add", ["s_in", "sum"], ["s_out"]),
    ]
    loop = loop_of(nodes, {"s_in": ("s0", "s_out", 0)}, ["s"])
    model = model_of([loop], [*x_and_count, floats("s0", [])], [floats("s", [])], constants)
    require_agreement(
        model, [{"x": array(7, 5), "s0": np.array(0.3, np.float32), "count": np.array(k)} for k in (0, 1, 7)]
    )


@pytest.mark.parametrize("ends", [False, True])
def test_a_greedy_decoder(ends):
    """A layer of attention whose cache of keys and values grows by a token each step, and so do the tokens."""
    width, words = 8, 11
    nodes = [
        node("Gather", ["ids", "last"], ["token"], axis=1),
        node("Gather", ["table", "token"], ["h"], axis=0),
        node("MatMul", ["h", "wq"], ["q"]),
        node("MatMul", ["h", "wk"], ["k1"]),
        node("MatMul", ["h", "wv"], ["v1"]),
        node("Concat", ["keys", "k1"], ["keys_out"], axis=1),
        node("Concat", ["values", "v1"], ["values_out"], axis=1),
        node("Transpose", ["keys_out"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["scores"]),
        node("Softmax", ["scores"], ["weights"], axis=-1),
        node("MatMul", ["weights", "values_out"], ["mixed"]),
        node("Add", ["mixed", "h"], ["out"]),
        node("MatMul", ["out", "head"], ["logits"]),
        node("ArgMax", ["logits"], ["next"], axis=2, keepdims=0),
        node("Concat", ["ids", "next"], ["ids_out"], axis=1),
        node("Equal", ["next", "stop"], ["is_stop"]),
        node("Not", ["is_stop"], ["is_open"]),
        node("Reshape", ["is_open", "scalar"], ["again"]),
    ]
    body = helper.make_graph(
        [*nodes, node("Identity", ["again" if ends else "go"], ["go_on"])],
        "body",
        [info("i", INT, []), info("go", TensorProto.BOOL, []), info("ids", INT, [1, None])]
        + [floats(n, [1, None, width]) for n in ("keys", "values")],
        [info("go_on", TensorProto.BOOL, []), info("ids_out", INT, [1, None])]
        + [floats(n, [1, None, width]) for n in ("keys_out", "values_out")],
    )
    loop = node("Loop", ["count", "", "prompt", "k0", "v0"], ["tokens", "k", "v"], body=body)
    weights = {n: (width, width) for n in ("wq", "wk", "wv")} | {"head": (width, words), "table": (words, width)}
    model = model_of(
        [loop],
        [info("prompt", INT, [1, "p"]), info("count", INT, []), info("stop", INT, [])],
        [info("tokens", INT, [1, None]), floats("k", [1, None, width]), floats("v", [1, None, width])],
        [numpy_helper.from_array(array(*shape) * 6, name) for name, shape in weights.items()]
        + [ints("last", [-1]), ints("scalar", []), empty("k0", 1, 0, width), empty("v0", 1, 0, width)],
    )
    feeds = [
        {"prompt": np.array([[3, 1, 4][:p]]), "count": np.array(count), "stop": np.array(stop)}
        for p, count, stop in ((1, 20, 2), (3, 1, 2), (2, 40, 5), (3, 0, 5), (1, 30, 7))
    ]
    require_agreement(model, feeds)


def test_masks_are_pasted():
    """As torchvision's Mask R-CNN does: each mask is resized to its box and put into the image, and all are stacked."""
    nodes = [
        node("Gather", ["masks", "i"], ["mask"], axis=0),
        node("Gather", ["boxes", "i"], ["box"], axis=0),
        node("Slice", ["box", "zero", "two"], ["low"]),
        node("Slice", ["box", "two", "four"], ["high"]),
        node("Sub", ["high", "low"], ["extent"]),
        node("Concat", ["one", "one", "extent"], ["size"], axis=0),
        node("Unsqueeze", ["mask", "zero_one"], ["mask4"]),
        node(
            "Resize", ["mask4", "", "", "size"], ["large"], mode="linear", coordinate_transformation_mode="half_pixel"
        ),
        node("Squeeze", ["large", "zero_one"], ["large2"]),
        node("Sub", ["image_size", "high"], ["behind"]),
        node("Concat", ["low", "behind"], ["pads"], axis=0),
        node("Pad", ["large2", "pads"], ["pasted"]),
        node("Unsqueeze", ["pasted", "zero"], ["one_more"]),
        node("Concat", ["all", "one_more"], ["more"], axis=0),
    ]
    loop = loop_of(nodes, {"all": ("none", "more", 3)}, ["s"])
    shape = [node("Shape", ["masks"], ["dims"]), node("Gather", ["dims", "zero"], ["count1"])]
    shape += [node("Reshape", ["count1", "scalar"], ["count"])]
    model = model_of(
        [*shape, loop],
        [floats("masks", ["n", 4, 4]), info("boxes", INT, ["n", 4])],
        [floats("s", [None, 20, 24])],
        [*constants, ints("two", [2]), ints("four", [4]), ints("zero_one", [0, 1]), ints("image_size", [20, 24])]
        + [ints("scalar", []), empty("none", 0, 20, 24)],
    )
    random = np.random.default_rng(5)

    def feed(n):
        low = random.integers(0, 10, (n, 2))
        return {"masks": array(n, 4, 4), "boxes": np.concatenate([low, low + random.integers(1, 10, (n, 2))], 1)}

    require_agreement(model, [feed(n) for n in (3, 1, 8)])


def test_keypoints_are_found():
    """As torchvision's Keypoint R-CNN does: the place of the largest of each resized heatmap, and how large it is."""
    nodes = [
        node("Gather", ["maps", "i"], ["map"], axis=0),
        node("Gather", ["sizes", "i"], ["extent"], axis=0),
        node("Concat", ["one", "channels", "extent"], ["size"], axis=0),
        node("Unsqueeze", ["map", "zero"], ["map4"]),
        node(
            "Resize", ["map4", "", "", "size"], ["large"], mode="linear", coordinate_transformation_mode="align_corners"
        ),
        node("Reshape", ["large", "flat"], ["rows"]),
        node("ArgMax", ["rows"], ["place"], axis=1, keepdims=0),
        node("Gather", ["extent", "one"], ["w"], axis=0),
        node("Div", ["place", "w"], ["y_at"]),
        node("Mul", ["y_at", "w"], ["whole"]),
        node("Sub", ["place", "whole"], ["x_at"]),
        node("Unsqueeze", ["x_at", "zero"], ["x_row"]),
        node("Unsqueeze", ["y_at", "zero"], ["y_row"]),
        node("Concat", ["x_row", "y_row"], ["both"], axis=0),
        node("Cast", ["both"], ["xy"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["xy", "zero"], ["xy_row"]),
        node("ReduceMax", ["rows"], ["best"], axes=[1], keepdims=0),
        node("Unsqueeze", ["best", "zero"], ["best_row"]),
        node("Concat", ["xys", "xy_row"], ["xys_out"], axis=0),
        node("Concat", ["scores", "best_row"], ["scores_out"], axis=0),
    ]
    loop = loop_of(nodes, {"xys": ("xys0", "xys_out", 3), "scores": ("scores0", "scores_out", 2)}, ["p", "s"])
    model = model_of(
        [loop, node("Transpose", ["p"], ["points"], perm=[0, 2, 1])],
        [floats("maps", ["n", 3, 6, 6]), info("sizes", INT, ["n", 2]), info("count", INT, [])],
        [floats("points", [None, 3, 2]), floats("s", [None, 3])],
        [*constants, ints("channels", [3]), ints("flat", [3, -1]), empty("xys0", 0, 2, 3), empty("scores0", 0, 3)],
    )
    random = np.random.default_rng(6)
    require_agreement(
        model,
        [{"maps": array(n, 3, 6, 6), "sizes": random.integers(6, 30, (n, 2)), "count": np.array(n)} for n in (2, 1, 7)],
    )


def test_what_becomes_something_else_is_refused():
    nodes = [node("Unsqueeze", ["all", "zero"], ["more"])]
    model = model_of(
        [loop_of(nodes, {"all": ("none", "more", None)}, ["s"])],
        x_and_count,
        [floats("s", None)],
        [*constants, empty("none", 1, 2)],
    )
    with pytest.raises(
        tw.Error, match=r"(?s)TW1003.*a value that is f32\[1, 2\] before and f32\[1, 1, 2\] after a step"
    ):
        tw.load(model.SerializeToString())


@pytest.mark.parametrize("most", ["count", "most"])
def test_artifacts_grow_too(most, tmp_path):
    nodes = [*a_row, node("Concat", ["all", "row"], ["more"], axis=0), node("Less", ["i", "limit"], ["again"])]
    loop = loop_of(nodes, {"all": ("none", "more", 2)}, ["s"], count=most, goes_on="again")
    constant = [*constants, empty("none", 0, 5), ints("most", unbounded)]
    model = model_of([loop], [*x_and_count, info("limit", INT, [])], [floats("s", [None, 5])], constant)
    tw.compile(tw.load(model.SerializeToString())).save(tmp_path / "model.twa")
    executable = tw.load_executable(tmp_path / "model.twa")
    feeds = [{"x": array(90, 5), "count": np.array(80), "limit": np.array(n)} for n in (0, 3, 70, 5)]
    require_agreement(model, feeds, executable)
