"""Values of a Loop whose sizes its steps decide: by data, by the number of the step, or as often as much."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from test_control_flow import array, floats, info, model_of, require_agreement
from test_growing_values import constants, empty, ints, loop_of, unbounded, x_and_count

node = helper.make_node
INT, BOOL = TensorProto.INT64, TensorProto.BOOL

# Rows of x whose first element is more than the number of the step, less 2.
chosen_rows = [
    node("Gather", ["x", "first"], ["column"], axis=1),
    node("Cast", ["i"], ["step"], to=TensorProto.FLOAT),
    node("Sub", ["step", "two"], ["limit"]),
    node("Greater", ["column", "limit"], ["mask"]),
    node("Compress", ["x", "mask"], ["rows"], axis=0),
]
numbers = [ints("first", 0), numpy_helper.from_array(np.float32(2), "two")]


def rows_of(n):
    return np.linspace(-4, 4, n, dtype=np.float32)[:, None] + array(n, 5)


def feeds(*pairs):
    return [{"x": rows_of(n), "count": np.array(count)} for n, count in pairs]


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("is_behind", [True, False])
@pytest.mark.parametrize("condition", ["", "most", "none"])
def test_rows_that_data_chooses(first, is_behind, condition):
    parts = ["all", "rows"] if is_behind else ["rows", "all"]
    nodes = [*chosen_rows, node("Concat", parts, ["more"], axis=0)]
    if condition:
        nodes += [node("ReduceSum", ["mask_i"], ["found"], keepdims=0), node("Greater", ["found", "one0"], ["again"])]
        nodes.insert(4, node("Cast", ["mask"], ["mask_i"], to=INT))
    loop = loop_of(
        nodes,
        {"all": ("start", "more", 2)},
        ["s"],
        count={"": "count", "most": "count", "none": ""}[condition],
        goes_on="again" if condition else "go",
    )
    model = model_of(
        [loop, node("Neg", ["s"], ["y"])],
        x_and_count,
        [floats("y", [None, 5]), floats("s", [None, 5])],
        [*constants, *numbers, ints("one0", 1), empty("start", first, 5)],
    )
    if condition != "none":
        assert "; what grows: `s` f32[" in tw.load(model.SerializeToString()).explain()
    executable = require_agreement(model, feeds((9, 3), (1, 0), (30, 4), (2, 9)))
    require_agreement(model, feeds((300, 6), (5, 2)), executable)


@pytest.mark.parametrize("axis", [0, 1])
def test_twice_as_much(axis):
    nodes = [node("Concat", ["all", "all"], ["more"], axis=axis), node("ReduceMax", ["more"], ["most"], keepdims=0)]
    loop = loop_of(nodes, {"all": ("x", "more", 2)}, ["s", "largest"], kept=["most"])
    model = model_of([loop], x_and_count, [floats("s", [None, None]), floats("largest", [None])], constants)
    require_agreement(model, feeds((3, 4), (2, 1), (5, 10), (1, 3)))


def test_as_many_rows_as_the_step_says():
    """1, then 2, then 3 rows more."""
    nodes = [
        node("Add", ["i", "one"], ["end"]),
        node("Slice", ["x", "zero", "end"], ["rows"]),
        node("Exp", ["rows"], ["bent"]),
        node("Concat", ["all", "bent"], ["more"], axis=0),
    ]
    loop = loop_of(nodes, {"all": ("none", "more", 2)}, ["s"])
    model = model_of([loop], x_and_count, [floats("s", [None, 5])], [*constants, empty("none", 0, 5)])
    require_agreement(model, feeds((9, 3), (9, 0), (4, 7), (40, 33)))


def test_rows_go_away():
    """What is left of a value is chosen again and again; another one has as many rows."""
    nodes = [
        node("ReduceSum", ["all"], ["sums"], keepdims=0),
        node("ReduceMean", ["all"], ["means"], axes=[1], keepdims=0),
        node("Abs", ["means"], ["sizes"]),
        node("Less", ["sizes", "limit"], ["mask"]),
        node("Compress", ["all", "mask"], ["rows"], axis=0),
        node("Mul", ["rows", "two"], ["more"]),
        node("Compress", ["ids", "mask"], ["ids_out"], axis=0),
        node("Add", ["sums", "total"], ["total_out"]),
    ]
    body = helper.make_graph(
        [*nodes, node("Identity", ["go"], ["go_on"])],
        "body",
        [info("i", INT, []), info("go", BOOL, []), floats("all", [None, 5]), info("ids", INT, [None])]
        + [floats("total", [])],
        [info("go_on", BOOL, []), floats("more", [None, 5]), info("ids_out", INT, [None]), floats("total_out", [])],
    )
    shape = [node("Shape", ["x"], ["dims"], end=1), node("Reshape", ["dims", "scalar"], ["n"])]
    shape += [node("Range", ["zero0", "n", "one0"], ["ids0"])]
    loop = node("Loop", ["count", "", "x", "ids0", "nothing"], ["s", "left", "t"], body=body)
    model = model_of(
        [*shape, loop],
        [*x_and_count, floats("limit", [])],
        [floats("s", [None, 5]), info("left", INT, [None]), floats("t", [])],
        [*constants, *numbers, ints("zero0", 0), ints("one0", 1), ints("scalar", [])]
        + [numpy_helper.from_array(np.float32(0), "nothing")],
    )
    require_agreement(model, [{**f, "limit": np.array(3, np.float32)} for f in feeds((9, 3), (40, 2), (3, 9), (7, 0))])


def test_two_values_of_one_size():
    """Both get the chosen rows, and are added in each step."""
    nodes = [
        *chosen_rows,
        node("Concat", ["all", "rows"], ["more"], axis=0),
        node("Sin", ["rows"], ["bent"]),
        node("Concat", ["bent", "other"], ["other_more"], axis=0),
        node("Add", ["more", "other_more"], ["both"]),
        node("ReduceSum", ["both"], ["sum"], keepdims=0),
        node("Add", ["t", "sum"], ["t_out"]),
    ]
    carried = {"all": ("none", "more", 2), "other": ("none", "other_more", 2), "t": ("start", "t_out", 0)}
    loop = loop_of(nodes, carried, ["s", "o", "u"])
    model = model_of(
        [loop, node("Mul", ["s", "o"], ["y"])],
        x_and_count,
        [floats("y", [None, 5]), floats("u", [])],
        [*constants, *numbers, empty("none", 0, 5), numpy_helper.from_array(np.float32(0), "start")],
    )
    require_agreement(model, feeds((9, 3), (20, 5), (3, 0)))


def test_what_is_kept_is_of_a_size_that_data_decides():
    """The rows that are chosen are the same in each step, as many as the data says."""
    nodes = [
        node("Gather", ["x", "first"], ["column"], axis=1),
        node("Greater", ["column", "two"], ["mask"]),
        node("Compress", ["x", "mask"], ["rows"], axis=0),
        node("Cast", ["i"], ["step"], to=TensorProto.FLOAT),
        node("Mul", ["rows", "step"], ["kept_rows"]),
        node("ReduceSum", ["kept_rows"], ["kept_sum"], keepdims=0),
        node("NonZero", ["mask"], ["places"]),
        node("Cast", ["places"], ["kept_places"], to=TensorProto.FLOAT),
        node("Identity", ["s_in"], ["s_out"]),
    ]
    kept = ["kept_rows", "kept_sum", "kept_places"]
    loop = loop_of(nodes, {"s_in": ("two", "s_out", 0)}, ["s", "k", "t", "p"], kept=kept)
    model = model_of(
        [loop],
        x_and_count,
        [floats("s", []), floats("k", [None, None, 5]), floats("t", [None]), floats("p", [None, None, None])],
        [*constants, *numbers],
    )
    require_agreement(model, feeds((9, 3), (20, 9), (3, 1)))


def test_what_is_kept_is_of_one_size():
    """Another number of rows in each step cannot be put together, as a run says."""
    nodes = [*chosen_rows, node("Identity", ["rows"], ["kept_rows"]), node("Identity", ["s_in"], ["s_out"])]
    loop = loop_of(nodes, {"s_in": ("two", "s_out", 0)}, ["s", "k"], kept=["kept_rows"])
    model = model_of([loop], x_and_count, [floats("s", []), floats("k", [None, None, 5])], [*constants, *numbers])
    executable = tw.compile(tw.load(model.SerializeToString()))
    with pytest.raises(tw.Error, match="TW1101"):
        executable.run(feeds((9, 4))[0])


@pytest.mark.parametrize("what", ["row", "rows", "itself"])
@pytest.mark.parametrize("axis", [0, 1])
def test_what_was_there_is_read_beside_what_is_added(what, axis):
    """The old value, two that grow from it, and what comes of both, in memory that the old one may share."""
    added = {"row": "one_row", "rows": "rows", "itself": "all"}[what] if axis == 0 else "all"
    nodes = [
        *chosen_rows,
        node("Slice", ["x", "zero", "one"], ["one_row"]),
        node("Concat", ["all", added], ["more"], axis=axis),
        node("Concat", ["all", "all", added], ["other"], axis=axis),
        node("Exp", ["all"], ["bent"]),
        node("ReduceSum", ["bent"], ["old_sum"], keepdims=0),
        node("ReduceMax", ["other"], ["other_most"], keepdims=0),
        node("ReduceMax", ["more"], ["most"], keepdims=0),
        node("Sum", ["t", "old_sum", "other_most", "most"], ["t_out"]),
        node("Identity", ["all"], ["before_out"]),
    ]
    carried = {"all": ("start", "more", 2), "t": ("nothing", "t_out", 0), "before": ("start", "before_out", 2)}
    loop = loop_of(nodes, carried, ["s", "u", "b"])
    model = model_of(
        [loop],
        x_and_count,
        [floats("s", [None, None]), floats("u", []), floats("b", [None, None])],
        [*constants, *numbers, numpy_helper.from_array(np.float32(0), "nothing")]
        + [numpy_helper.from_array(array(2, 5), "start")],
    )
    require_agreement(model, feeds((9, 3), (20, 5), (3, 0), (5, 8)))


@pytest.mark.parametrize("inner_count", ["three", "i", "count"])
def test_loops_in_each_other(inner_count):
    inner = helper.make_graph(
        [
            node("Cast", ["j"], ["jf"], to=TensorProto.FLOAT),
            node("Add", ["rows", "jf"], ["own"]),
            node("Concat", ["part", "own", "part"], ["longer"], axis=0),
            node("Identity", ["go2"], ["go_on2"]),
        ],
        "inner",
        [info("j", INT, []), info("go2", BOOL, []), floats("part", [None, 5])],
        [info("go_on2", BOOL, []), floats("longer", [None, 5])],
    )
    nodes = [
        *chosen_rows,
        node("Slice", ["all", "zero", "one"], ["begin"]),
        node("Loop", [inner_count, "", "begin"], ["more"], body=inner),
    ]
    loop = loop_of(nodes, {"all": ("none", "more", 2)}, ["s"])
    model = model_of(
        [loop], x_and_count, [floats("s", [None, 5])], [*constants, *numbers, ints("three", 3)] + [empty("none", 1, 5)]
    )
    require_agreement(model, feeds((7, 2), (7, 0), (3, 4), (12, 3)))


@pytest.mark.parametrize("is_branch_last", [True, False])
def test_a_branch_says_whether_rows_are_added(is_branch_last):
    def branch(nodes, name):
        return helper.make_graph(nodes, name, [], [floats(f"{name}_out", [None, 5])])

    added = branch([node("Concat", ["all", "rows"], ["added_out"], axis=0)], "added")
    same = branch([node("Slice", ["all", "zero", "count1"], ["same_out"])], "same")
    result = "more" if is_branch_last else "some"
    nodes = [
        *chosen_rows,
        node("Mod", ["i", "two_i"], ["odd"]),
        node("Equal", ["odd", "zero0"], ["is_even"]),
        node("If", ["is_even"], [result], then_branch=added, else_branch=same),
    ]
    if not is_branch_last:
        nodes += [node("Exp", ["some"], ["all_e"]), node("Tanh", ["all_e"], ["more"])]
    loop = loop_of(nodes, {"all": ("none", "more", 2)}, ["s"])
    model = model_of(
        [node("Unsqueeze", ["count", "zero"], ["count1"]), loop],
        x_and_count,
        [floats("s", [None, 5])],
        [*constants, *numbers, ints("two_i", 2), ints("zero0", 0), empty("none", 1, 5)],
    )
    require_agreement(model, feeds((7, 2), (7, 0), (3, 5), (12, 3)))


def test_a_size_that_is_bounded():
    """A table of 8 rows bounds how large a value may become, which a run makes sure of."""
    nodes = [
        *chosen_rows,
        node("Concat", ["all", "rows"], ["longer"], axis=0),
        node("Shape", ["longer"], ["dims"], end=1),
        node("Slice", ["table", "zero", "dims"], ["places"]),
        node("Add", ["longer", "places"], ["more"]),
    ]
    loop = loop_of(nodes, {"all": ("none", "more", 2)}, ["s"])
    table = numpy_helper.from_array(array(8, 5), "table")
    model = model_of([loop], x_and_count, [floats("s", [None, 5])], [*constants, *numbers, empty("none", 0, 5), table])
    executable = require_agreement(model, [{"x": np.full((3, 5), 3, np.float32), "count": np.array(2)}])
    with pytest.raises(tw.Error, match="TW1101"):
        executable.run({"x": np.full((3, 5), 3, np.float32), "count": np.array(3)})


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_artifacts_and_threads(threads, tmp_path):
    nodes = [*chosen_rows, node("Concat", ["all", "rows"], ["more"], axis=0)]
    loop = loop_of(
        [*nodes, node("Less", ["i", "count"], ["again"])], {"all": ("none", "more", 2)}, ["s"], "most", "", "again"
    )
    model = model_of(
        [loop, node("Exp", ["s"], ["y"])],
        x_and_count,
        [floats("y", [None, 5])],
        [*constants, *numbers, empty("none", 0, 5), ints("most", unbounded)],
    )
    tw.compile(tw.load(model.SerializeToString())).save(tmp_path / "model.twa")
    executable = tw.load_executable(tmp_path / "model.twa")
    executable.threads = threads
    require_agreement(model, feeds((3, 4), (4000, 3), (1, 0), (90, 60)), executable)


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_products_of_chosen_rows_in_16_bits(precision):
    nodes = [
        *chosen_rows,
        node("MatMul", ["rows", "w"], ["product"]),
        node("Tanh", ["product"], ["bent"]),
        node("Concat", ["all", "bent"], ["more"], axis=0),
    ]
    loop = loop_of(nodes, {"all": ("none", "more", 2)}, ["s"])
    weights = numpy_helper.from_array(array(5, 5), "w")
    outputs = [floats("s", [None, 5])]
    model = model_of([loop], x_and_count, outputs, [*constants, *numbers, weights, empty("none", 0, 5)])
    exact, rounded = (tw.compile(tw.load(model.SerializeToString()), precision=p) for p in ("f32", precision))
    for feed in feeds((9, 3), (4, 0), (30, 5)):
        wanted, got = exact.run(feed)["s"], rounded.run(feed)["s"]
        assert got.shape == wanted.shape
        np.testing.assert_allclose(got, wanted, atol=0.02)


def test_the_element_of_a_step_and_steps_behind_the_last():
    nodes = [
        node("Unsqueeze", ["i", "first"], ["from"]),
        node("Add", ["from", "one"], ["to"]),
        node("Slice", ["x", "from", "to"], ["row"]),
        node("Add", ["sum", "row"], ["next"]),
        node("Neg", ["next"], ["kept"]),
    ]
    loop = loop_of(nodes, {"sum": ("start", "next", 2)}, ["s", "y"], kept=["kept"])
    outputs = [floats("s", [1, 5]), floats("y", [None, 1, 5])]
    model = model_of([loop], x_and_count, outputs, [*constants, ints("first", 0), empty("start", 1, 5)])
    executable = require_agreement(model, feeds((9, 3), (4, 4), (30, 1)))
    with pytest.raises(tw.Error, match="TW1101.*Add"):
        executable.run(feeds((4, 5))[0])


def test_how_many_steps_are_done_is_known_where_nothing_has_elements():
    nodes = [node("Neg", ["s"], ["next"]), node("Less", ["i", "two0"], ["again"])]
    loop = loop_of(nodes, {"s": ("x", "next", 2)}, ["last", "y"], goes_on="again", kept=["next"])
    inputs = [floats("x", ["n", 5]), info("count", INT, [])]
    model = model_of([loop], inputs, [floats("last", None), floats("y", None)], [ints("two0", 2)])
    executable = tw.compile(tw.load(model.SerializeToString(), shapes={"x": (tw.Dim("n", 0), 5)}))
    pairs = [(n, count) for n in (0, 2) for count in (1, 2, 9)]
    require_agreement(model, feeds(*pairs), executable)
