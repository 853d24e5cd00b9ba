"""Sequences and optional values that a Loop carries, in as many steps as a run says, beside ONNX Runtime."""

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import tilewright as tw
from test_computed_sizes import BOOL, FLOAT, INT64, floats, info, model_of, node
from test_sequences import constants, optional, refused, require_same, sequence


def loop(nodes, carried, results, count="count", condition="", goes_on="go", kept=()):
    """Carries name: (first value, what it is after a step, its kind: of `info` or `sequence`)."""
    body = helper.make_graph(
        [*nodes, node("Identity", goes_on, "go_on")],
        "body",
        [info("i", INT64, []), info("go", BOOL, []), *(kind(name) for name, (_, _, kind) in carried.items())],
        [info("go_on", BOOL, []), *(kind(after) for _, after, kind in carried.values())]
        + [info(name, FLOAT, None) for name in kept],
    )
    return helper.make_node("Loop", [count, condition, *(f for f, _, _ in carried.values())], list(results), body=body)


def agree(model, feeds, shapes=None, path=None):
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    executable = tw.compile(tw.load(model, shapes=shapes))
    if path:
        executable.save(path / "model.twa")
        executable = tw.load_executable(path / "model.twa")
    for threads in (1, 2):
        executable.threads = threads
        for feed in feeds:
            for wanted, got in zip(session.run(None, feed), executable.run(feed).values(), strict=True):
                require_same(wanted, got)
    return executable


x_and_count = [info("x", FLOAT, ["n", 3]), info("count", INT64, [])]
numbers = constants(zero=[0], one=[1], one0=1, zero0=0, minus_one=-1, two0=2)
first_rows = [
    node("Add", "i one0", "end"),
    node("Reshape", "end one", "end1"),
    node("Slice", "x zero end1", "part"),
    node("Sin", "part", "bent"),
]


def feeds(*pairs):
    return [{"x": floats(n, 3), "count": np.array(count)} for n, count in pairs]


@pytest.mark.parametrize("begins", [False, True])
def test_parts_of_other_sizes(begins, tmp_path):
    nodes = [*first_rows, node("SequenceInsert", "s bent", "t")]
    start = node("SequenceConstruct", "x", "none") if begins else node("SequenceEmpty", "", "none")
    model = model_of(
        [
            start,
            loop(nodes, {"s": ("none", "t", sequence)}, ["all"]),
            node("SequenceLength", "all", "length"),
            node("ConcatFromSequence", "all", "y", axis=0),
        ],
        x_and_count,
        [sequence("all"), info("length", INT64, []), info("y", FLOAT, [None, 3])],
        numbers,
    )
    assert " is repeated " in tw.load(model).explain()
    agree(model, feeds((4, 3), (2, 7), (9, 1)) + (feeds((3, 0)) if begins else []), path=tmp_path)


def test_no_steps_leave_an_empty_sequence():
    nodes = [*first_rows, node("SequenceInsert", "s bent", "t")]
    model = model_of(
        [node("SequenceEmpty", "", "none"), loop(nodes, {"s": ("none", "t", sequence)}, ["all"])],
        x_and_count,
        [sequence("all")],
        numbers,
    )
    executable = agree(model, feeds((4, 0), (3, 2)))
    assert executable.run(feeds((4, 0))[0])["all"] == []


@pytest.mark.parametrize("new_axis", [0, 1])
def test_parts_of_one_size(new_axis):
    outputs = {"y": [None] * (2 + new_axis), "z": [None, 3], "squares": [None, None, 3]}
    nodes = [node("Add", "last x", "next"), node("SequenceInsert", "s next", "t"), node("Mul", "next next", "square")]
    model = model_of(
        [
            node("SequenceEmpty", "", "none"),
            node("Sub", "x x", "zeros"),
            loop(
                nodes,
                {"last": ("zeros", "next", lambda name: info(name, FLOAT, ["n", 3])), "s": ("none", "t", sequence)},
                ["last_x", "all", "squares"],
                kept=["square"],
            ),
            node("ConcatFromSequence", "all", "y", axis=1, new_axis=new_axis),
            node("SequenceAt", "all minus_one", "z"),
        ],
        x_and_count,
        [sequence("all"), *(info(n, FLOAT, shape) for n, shape in outputs.items())],
        numbers,
    )
    agree(model, feeds((4, 3), (2, 7), (9, 1)))


@pytest.mark.parametrize("count", ["count", "most", ""])
def test_until_a_condition(count):
    nodes = [
        *first_rows,
        node("SequenceInsert", "s bent", "t"),
        node("ReduceSum", "bent", "sum", keepdims=0),
        node("Less", "sum limit", "again"),
    ]
    model = model_of(
        [
            node("SequenceEmpty", "", "none"),
            node("Less", "zero0 count", "begins"),
            loop(nodes, {"s": ("none", "t", sequence)}, ["all"], count, "begins", goes_on="again"),
        ],
        [*x_and_count, info("limit", FLOAT, [])],
        [sequence("all")],
        [*numbers, *constants(most=50)],
    )
    values = [{**f, "limit": np.array(limit, np.float32)} for f in feeds((9, 30), (5, 20)) for limit in (-9, 0.5, 1.5)]
    agree(model, [{**f, "x": np.abs(f["x"])} for f in values])


def test_parts_come_and_go():
    """A part is put in at a place of the step, the first one goes where there are more than two, and one is read."""

    def branch(nodes, name):
        return helper.make_graph(nodes, name, [], [sequence(f"{name}_out")])

    nodes = [
        *first_rows,
        node("SequenceLength", "s", "length"),
        node("Mod", "i length", "place"),
        node("SequenceAt", "s place", "old"),
        node("ReduceMean", "old zero", "mean", keepdims=1),
        node("Add", "bent mean", "new"),
        node("SequenceInsert", "s new place", "longer"),
        node("Less", "two0 length", "is_long"),
        helper.make_node(
            "If",
            ["is_long"],
            ["t"],
            then_branch=branch([node("SequenceErase", "longer zero0", "less_out")], "less"),
            else_branch=branch([node("Identity", "longer", "same_out")], "same"),
        ),
    ]
    model = model_of(
        [node("SequenceConstruct", "x", "start"), loop(nodes, {"s": ("start", "t", sequence)}, ["all"])],
        x_and_count,
        [sequence("all")],
        numbers,
    )
    agree(model, feeds((4, 3), (2, 7), (9, 1), (5, 0)))


def test_parts_that_differ_in_several_dimensions(tmp_path):
    """Rows and columns, and of other ranks: nothing that one tensor could be."""
    nodes = [
        *first_rows,
        node("Transpose", "bent", "columns", perm=[1, 0]),
        node("ReduceSum", "part", "sums", keepdims=0),
        node("SequenceInsert", "s bent", "s1"),
        node("SequenceInsert", "s1 columns", "s2"),
        node("SequenceInsert", "u columns zero0", "u1"),
        node("SequenceInsert", "u1 sums", "u2"),
    ]
    carried = {"s": ("start", "s2", sequence), "u": ("none", "u2", sequence)}
    model = model_of(
        [
            node("SequenceConstruct", "x", "start"),
            node("SequenceEmpty", "", "none"),
            loop(nodes, carried, ["all", "ranks"]),
            node("SequenceAt", "all minus_one", "y"),
            node("SequenceAt", "all zero0", "z"),
            node("SequenceErase", "all minus_one", "less"),
        ],
        x_and_count,
        [sequence(n) for n in ("all", "ranks", "less")] + [info(n, FLOAT, [None, None]) for n in "yz"],
        numbers,
    )
    agree(model, feeds((4, 3), (2, 7), (9, 1), (3, 3)), path=tmp_path)


def test_a_sequence_within_a_loop_of_another():
    inner = helper.make_graph(
        [
            node("SequenceInsert", "u bent", "v"),
            node("Identity", "go2", "go_on2"),
        ],
        "inner",
        [info("j", INT64, []), info("go2", BOOL, []), sequence("u")],
        [info("go_on2", BOOL, []), sequence("v")],
    )
    nodes = [*first_rows, helper.make_node("Loop", ["i", "", "s"], ["t"], body=inner)]
    model = model_of(
        [node("SequenceEmpty", "", "none"), loop(nodes, {"s": ("none", "t", sequence)}, ["all"])],
        x_and_count,
        [sequence("all")],
        numbers,
    )
    agree(model, feeds((4, 3), (2, 5), (9, 2)))


def test_sequences_that_stay_as_they_are():
    """Two tensors, which change places in each step: known tensors, of which nothing is packed."""
    nodes = [
        node("SequenceAt", "s zero0", "a"),
        node("SequenceAt", "s one0", "b"),
        node("Add", "b x", "b1"),
        node("SequenceConstruct", "b1 a", "t"),
    ]
    model = model_of(
        [node("Neg", "x", "y"), node("SequenceConstruct", "x y", "pair")]
        + [loop(nodes, {"s": ("pair", "t", sequence)}, ["all"])],
        x_and_count,
        [sequence("all")],
        numbers,
    )
    agree(model, feeds((4, 3), (2, 4), (1, 0)))


def test_more_steps_than_are_written_out():
    nodes = [node("SequenceInsert", "s x", "t")]
    model = model_of(
        [node("SequenceEmpty", "", "none"), loop(nodes, {"s": ("none", "t", sequence)}, ["all"], "most")],
        x_and_count[:1],
        [sequence("all")],
        constants(most=1500),
    )
    agree(model, [{"x": floats(2, 3)}])


def with_optional(kind, first):
    """As ONNX's loop16_seq_none: nothing, or a sequence, to which parts are added."""

    def branch(nodes, name):
        return helper.make_graph(nodes, name, [], [sequence(name)])

    nodes = [
        *first_rows,
        node("OptionalHasElement", "o", "has"),
        helper.make_node(
            "If",
            ["has"],
            ["s"],
            then_branch=branch([node("OptionalGetElement", "o", "there")], "there"),
            else_branch=branch([node("SequenceConstruct", "first", "made")], "made"),
        ),
        node("SequenceInsert", "s bent", "t"),
    ]
    body = helper.make_graph(
        [*nodes, node("Identity", "go", "go_on")],
        "body",
        [info("i", INT64, []), info("go", BOOL, []), optional("o", kind)],
        [info("go_on", BOOL, []), sequence("t")],
    )
    return model_of(
        [helper.make_node("Loop", ["count", "", "given"], ["all"], body=body)],
        [*x_and_count, info("first", FLOAT, first), optional("given", kind)],
        [sequence("all")],
        numbers,
    )


@pytest.mark.parametrize("first", [(), (2, 3), (3,)])
def test_an_optional_value_that_becomes_one(first):
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None))
    model = with_optional(kind, first)
    for given in (None, [(1, 3)], [(), (2, 2)]):
        shapes = {"given": given}
        if given is not None:
            shapes |= {f"given.{k}": part for k, part in enumerate(shapes.pop("given"))}
        executable = tw.compile(tw.load(model, shapes=shapes))
        for feed in feeds((4, 3), (2, 5), (3, 1), (3, 0)):
            feed |= {"first": floats(*first), "given": None if given is None else [floats(*s) for s in given]}
            x, count = feed["x"], int(feed["count"])
            wanted = [feed["first"]] if given is None else feed["given"]
            wanted = wanted + [np.sin(x[: k + 1]) for k in range(count)]
            got = executable.run(feed)["all"]
            require_same(None if count == 0 and given is None else wanted, got)


def test_what_steps_cannot_give_is_refused():
    nodes = [node("SequenceAt", "s zero0", "a"), node("Concat", "a a", "b", axis=0), node("Cast", "b", "c", to=INT64)]
    nodes += [node("SequenceConstruct", "c", "t")]
    model = model_of(
        [node("SequenceConstruct", "x", "start"), loop(nodes, {"s": ("start", "t", sequence)}, ["all"])],
        x_and_count,
        [sequence("all")],
        numbers,
    )
    refused(model, "Loop", "a value that is f32[")
