"""Sequences and optional values, known when the model is loaded or in a run, beside ONNX Runtime."""

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import tilewright as tw
from test_computed_sizes import BOOL, FLOAT, INT64, floats, info, ints, model_of, node, number, require_agreement


def sequence(name, shape=None):
    return helper.make_tensor_sequence_value_info(name, FLOAT, shape)


def constants(**values):
    kinds = {name: FLOAT if isinstance(v, float) else INT64 for name, v in values.items()}
    return [helper.make_tensor(name, kinds[name], np.shape(v), np.ravel(v).tolist()) for name, v in values.items()]


def refused(model, *texts):
    with pytest.raises(tw.Error, match="TW1003") as failure:
        tw.load(model)
    for text in texts:
        assert text in str(failure.value)


@pytest.mark.parametrize("split, keepdims", [(None, 1), (None, 0), (4, 1), ([1, 4, 2], 1)])
def test_parts_by_index(split, keepdims):
    inputs = "x" if split is None else "x split"
    shape = [None] * (3 if keepdims else 2)
    model = model_of(
        [
            node("SplitToSequence", inputs, "s", axis=1, keepdims=keepdims),
            node("SequenceAt", "s last", "z"),
            node("SequenceAt", "s first", "a"),
            node("SequenceLength", "s", "n"),
            node("Exp", "z", "y"),
        ],
        [info("x", FLOAT, ["n", 7, 2])],
        [info("y", FLOAT, shape), info("a", FLOAT, shape), info("n", INT64, [])],
        constants(last=-1, first=0, **({} if split is None else {"split": split})),
    )
    require_agreement(model, [{"x": floats(n, 7, 2)} for n in (1, 5)])


def test_parts_whose_sizes_a_run_says():
    model = model_of(
        [
            node("SplitToSequence", "x sizes", "s", axis=0),
            node("SequenceAt", "s one", "y"),
            node("SequenceErase", "s one", "t"),
            node("ConcatFromSequence", "t", "z", axis=0),
        ],
        [info("x", FLOAT, ["n", 2]), info("sizes", INT64, [3])],
        [info("y", FLOAT, [None, 2]), info("z", FLOAT, [None, 2])],
        constants(one=1),
    )
    require_agreement(model, [{"x": floats(sum(s), 2), "sizes": ints(*s)} for s in [(1, 2, 3), (4, 1, 1), (2, 7, 5)]])


@pytest.mark.parametrize("new_axis", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_insertion_removal_and_concatenation(axis, new_axis):
    model = model_of(
        [
            node("SequenceEmpty", "", "none"),
            node("SequenceInsert", "none a", "s0"),
            node("SequenceInsert", "s0 b minus_one", "s1"),
            node("SequenceConstruct", "c a", "other"),
            node("SequenceAt", "other zero", "d"),
            node("SequenceInsert", "s1 d one", "s2"),
            node("SequenceInsert", "s2 b", "s3"),
            node("SequenceErase", "s3 minus_two", "s4"),
            node("Identity", "s4", "s5"),
            node("ConcatFromSequence", "s5", "y", axis=axis, new_axis=new_axis),
        ],
        [info(name, FLOAT, ["n", 3]) for name in "abc"],
        [info("y", FLOAT, [None] * (2 + new_axis))],
        constants(zero=0, one=1, minus_one=-1, minus_two=-2),
    )
    require_agreement(model, [{name: floats(n, 3) for name in "abc"} for n in (1, 4)])


def growing_loop(count="count"):
    """x, 2x, 3x … in a sequence."""
    body = helper.make_graph(
        [
            node("Identity", "go", "again"),
            node("Add", "last x", "next"),
            node("SequenceInsert", "s next", "t"),
            node("Mul", "next next", "square"),
        ],
        "body",
        [info("i", INT64, []), info("go", BOOL, []), info("last", FLOAT, ["n"]), sequence("s", ["n"])],
        [info("again", BOOL, []), info("next", FLOAT, ["n"]), sequence("t", ["n"]), info("square", FLOAT, ["n"])],
    )
    return [
        node("SequenceEmpty", "", "none"),
        node("Sub", "x x", "zeros"),
        helper.make_node("Loop", [count, "", "zeros", "none"], ["last", "all", "squares"], body=body),
        node("ConcatFromSequence", "all", "y", axis=0, new_axis=1),
    ]


def test_sequences_that_grow_in_known_steps():
    outputs = [info("last", FLOAT, ["n"]), info("y", FLOAT, [None, "n"]), info("squares", FLOAT, [None, "n"])]
    inputs = [info("x", FLOAT, ["n"])]
    model = model_of(growing_loop(), inputs, outputs, constants(count=5))
    require_agreement(model, [{"x": floats(n)} for n in (1, 9)])
    model = model_of(growing_loop(), [*inputs, info("count", INT64, [])], outputs)
    require_agreement(model, [{"x": floats(n), "count": np.array(count)} for n, count in ((1, 1), (9, 6))])


def test_the_same_for_each_of_a_sequence():
    body = helper.make_graph(
        [node("Mul", "u v", "w"), node("Add", "w x", "z"), node("Shape", "u", "size")],
        "body",
        [info("u", FLOAT, None), info("v", FLOAT, None)],
        [info("z", FLOAT, None), info("size", INT64, [1])],
    )
    model = model_of(
        [
            node("SequenceConstruct", "a b x", "s"),
            helper.make_node("SequenceMap", ["s", "x"], ["t", "sizes"], body=body),
            node("ConcatFromSequence", "t", "y", axis=0),
            node("ConcatFromSequence", "sizes", "n", axis=0),
        ],
        [info(name, FLOAT, ["n"]) for name in "abx"],
        [info("y", FLOAT, [None]), info("n", INT64, [3])],
    )
    require_agreement(model, [{name: floats(n) for name in "abx"} for n in (1, 4)])


def branches(first, second):
    graphs = [
        helper.make_graph(
            [node("Neg", "b", f"n{k}"), node("SequenceConstruct", inputs, f"r{k}")], f"g{k}", [], [sequence(f"r{k}")]
        )
        for k, inputs in enumerate((first, second))
    ]
    return model_of(
        [
            helper.make_node("If", ["c"], ["s"], then_branch=graphs[0], else_branch=graphs[1]),
            node("SequenceAt", "s one", "y"),
        ],
        [info("c", BOOL, []), info("a", FLOAT, ["n"]), info("b", FLOAT, ["n"])],
        [info("y", FLOAT, ["n"])],
        constants(one=1),
    )


@pytest.mark.parametrize("second", ["n1 a", "n1 a b"])  # of the same length, and of another
def test_branches_with_sequences(second):
    feeds = [{"c": np.array(c), "a": floats(n), "b": floats(n)} for c in (True, False) for n in (1, 5)]
    require_agreement(branches("a n0", second), feeds)


def test_sequences_within_branches_and_loops():
    """A region takes the tensors that it uses of a sequence outside."""
    chosen = [
        helper.make_graph([node("SequenceAt", f"s {at}", f"r{k}")], f"g{k}", [], [info(f"r{k}", FLOAT, ["n"])])
        for k, at in enumerate(("zero", "one"))
    ]
    body = helper.make_graph(
        [node("Identity", "go", "again"), node("SequenceAt", "s one", "step"), node("Add", "t step", "u")],
        "body",
        [info("i", INT64, []), info("go", BOOL, []), info("t", FLOAT, ["n"])],
        [info("again", BOOL, []), info("u", FLOAT, ["n"])],
    )
    model = model_of(
        [
            node("SequenceConstruct", "a b", "s"),
            helper.make_node("If", ["c"], ["y"], then_branch=chosen[0], else_branch=chosen[1]),
            helper.make_node("Loop", ["count", "", "y"], ["z"], body=body),
        ],
        [info("c", BOOL, []), info("count", INT64, [])] + [info(name, FLOAT, ["n"]) for name in "ab"],
        [info("z", FLOAT, ["n"])],
        constants(zero=0, one=1),
    )
    feeds = [
        {"c": np.array(c), "count": number(k), "a": floats(3), "b": floats(3)} for c in (True, False) for k in (0, 2)
    ]
    require_agreement(model, feeds)


def require_same(expected, got):
    if isinstance(expected, list) or expected is None:
        assert type(got) is type(expected) and len(got or []) == len(expected or [])
        for want, have in zip(expected or [], got or [], strict=True):
            require_same(want, have)
    else:
        assert got.shape == expected.shape and got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def require_lists(model, feeds):
    """Compiled, and saved and loaded again."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    executable = tw.compile(tw.load(model))
    for feed in feeds:
        require_same(session.run(None, feed), list(executable.run(feed).values()))
    return executable


def test_a_sequence_comes_out_as_a_list(tmp_path):
    model = model_of([node("SplitToSequence", "x", "s", axis=0)], [info("x", FLOAT, [3, "n"])], [sequence("s")])
    x = floats(3, 5)
    executable = require_lists(model, [{"x": x}])
    assert executable.outputs == tw.load(model).outputs == {"s": "sequence(f32[1,n],f32[1,n],f32[1,n])"}
    assert "s sequence(f32[1, n], f32[1, n], f32[1, n])" in tw.load(model).explain()
    executable.save(tmp_path / "m.twa")
    loaded = tw.load_executable(tmp_path / "m.twa")
    require_same(list(x[:, None]), loaded.run({"x": x})["s"])
    require_same([list(x[:, None])], loaded(x))
    mine = [np.empty((1, 5), np.float32) for _ in range(3)]
    assert all(a is b for a, b in zip(loaded.run({"x": x}, out={"s": mine})["s"], mine, strict=True))
    require_same(list(x[:, None]), mine)
    with pytest.raises(tw.Error, match=r"TW1101.*out\['s'\] is no list of 3 arrays"):
        loaded.run({"x": x}, out={"s": mine[:2]})


def test_sequences_without_anything_and_values_that_are_absent():
    tensor = helper.make_tensor_type_proto(FLOAT, ["n"])
    model = model_of(
        [
            node("SequenceEmpty", "", "s"),
            helper.make_node("Optional", [], ["o"], type=tensor),
            node("Optional", "x", "p"),
            node("Neg", "x", "y"),
        ],
        [info("x", FLOAT, ["n"])],
        [
            sequence("s"),
            helper.make_value_info("o", helper.make_optional_type_proto(tensor)),
            helper.make_value_info("p", helper.make_optional_type_proto(tensor)),
            info("y", FLOAT, ["n"]),
        ],
    )
    executable = tw.compile(tw.load(model))
    results = executable.run({"x": (x := floats(3))})
    require_same([[], None, x, -x], list(results.values()))
    assert executable.outputs == {"s": "sequence()", "o": "optional()", "p": "f32[n]", "y": "f32[n]"}


def split_by(size_is_known, keepdims=1, axis=0, at=None):
    """All that is done to the parts of x; their number is computed."""
    shape = [None] * (1 + keepdims)
    split = "x size" if size_is_known is not None else "x"
    return [
        node("SplitToSequence", split, "s", axis=axis, keepdims=keepdims),
        node("SequenceLength", "s", "n"),
        node("SequenceAt", f"s {at or 'one'}", "a"),
        node("SequenceErase", f"s {at or 'one'}", "t"),
        node("SequenceErase", "s", "u"),
        node("SequenceInsert", f"u a {at or 'one'}", "v"),
        node("SequenceInsert", "v a", "w"),
        node("ConcatFromSequence", "w", "y", axis=axis if keepdims else 0, new_axis=1 - keepdims),
    ], [
        sequence("s"),
        sequence("t"),
        sequence("w"),
        info("n", INT64, []),
        info("a", FLOAT, shape),
        info("y", FLOAT, [None, None]),
    ]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("place", ["one", "i"])
def test_parts_of_a_size_that_a_run_says(axis, place, tmp_path):
    nodes, outputs = split_by(True, axis=axis, at=place)
    inputs = [info("x", FLOAT, [6, 7]), info("size", INT64, []), info("i", INT64, [])]
    model = model_of(nodes, inputs, outputs, constants(one=1))
    feeds = [{"x": floats(6, 7), "size": number(k), "i": number(i)} for k in (1, 2, 3, 5) for i in (0, 1, -1)]
    executable = require_lists(model, feeds)
    executable.save(tmp_path / "m.twa")
    loaded = tw.load_executable(tmp_path / "m.twa")
    require_same(executable(*feeds[3].values()), loaded(*feeds[3].values()))
    for bad in ({"size": number(0)}, {"size": number(-1)}, {"i": number(7)}, {"i": number(-8)}):
        if place == "one" and "i" in bad:
            continue
        with pytest.raises(tw.Error, match="TW1101.*node `S"):
            executable.run({**feeds[0], **bad})
    with pytest.raises(tw.Error, match="TW1101.*out.*only a run knows how many"):
        executable.run(feeds[0], out={"s": []})


@pytest.mark.parametrize("size, keepdims", [(2, 1), (None, 1), (None, 0)])
@pytest.mark.parametrize("axis", [0, 1])
def test_parts_of_an_open_dimension(axis, size, keepdims):
    nodes, outputs = split_by(size, keepdims, axis)
    shape = ["n", 3] if axis == 0 else [3, "n"]
    model = model_of(nodes, [info("x", FLOAT, shape)], outputs, constants(one=1, **({"size": size} if size else {})))
    require_lists(model, [{"x": floats(*[n if d == "n" else d for d in shape])} for n in (4, 5, 9)])


def test_as_many_parts_as_a_run_says():
    nodes, outputs = split_by(True)
    model = model_of(nodes, [info("x", FLOAT, ["n", 2]), info("size", INT64, ["k"])], outputs, constants(one=1))
    feeds = [{"x": floats(sum(s), 2), "size": ints(*s)} for s in [(1, 2), (4, 0, 1, 3), (2, 2, 2, 2, 2)]]
    executable = require_lists(model, feeds)
    for sizes in [(1, 3), (1, -2, 3), (3, 0, -1)]:
        with pytest.raises(tw.Error, match="TW1101"):
            executable.run({"x": floats(2, 2), "size": ints(*sizes)})


def test_positions_that_a_run_says_in_known_sequences():
    """Of tensors of one shape, and of one that differ along an axis."""
    model = model_of(
        [
            node("SequenceConstruct", "a b a", "s"),
            node("SequenceAt", "s i", "y"),
            node("SequenceInsert", "s b i", "t"),
            node("SequenceErase", "t i", "u"),
            node("SequenceInsert", "s c i", "v"),
            node("SequenceAt", "v i", "z"),
        ],
        [info("a", FLOAT, [2, 3]), info("b", FLOAT, [2, 3]), info("c", FLOAT, [2, 5]), info("i", INT64, [])],
        [info("y", FLOAT, [2, 3]), sequence("t"), sequence("u"), sequence("v"), info("z", FLOAT, [2, None])],
    )
    feed = {"a": floats(2, 3), "b": floats(2, 3), "c": floats(2, 5)}
    executable = require_lists(model, [{**feed, "i": number(i)} for i in (0, 1, 2, -1, -3)])
    with pytest.raises(tw.Error, match="TW1101.*node `SequenceAt_1"):
        executable.run({**feed, "i": number(3)})


@pytest.mark.parametrize("keepdims", [0, 1])
def test_the_same_for_each_of_as_many_as_a_run_says(keepdims):
    body = helper.make_graph(
        [node("Mul", "u v", "w"), node("Add", "w p", "z"), node("ReduceSum", "u", "t", keepdims=0)],
        "body",
        [info("u", FLOAT, None), info("v", FLOAT, None), info("p", FLOAT, None)],
        [info("z", FLOAT, None), info("t", FLOAT, None)],
    )
    model = model_of(
        [
            node("SplitToSequence", "a", "s", axis=0, keepdims=keepdims),
            node("SplitToSequence", "b", "r", axis=0, keepdims=keepdims),
            helper.make_node("SequenceMap", ["s", "r", "p"], ["y", "sums"], body=body),
            node("ConcatFromSequence", "sums", "all", axis=0, new_axis=1),
        ],
        [info("a", FLOAT, ["n", 3]), info("b", FLOAT, ["n", 3]), info("p", FLOAT, [3])],
        [sequence("y"), info("all", FLOAT, [None])],
    )
    require_lists(model, [{"a": floats(n, 3), "b": floats(n, 3), "p": floats(3)} for n in (1, 4)])


@pytest.mark.parametrize("first, second", [("a", "a b a"), ("a b", "c"), ("a b", "")])
def test_branches_with_sequences_of_other_lengths(first, second):
    graphs = []
    for k, inputs in enumerate((first, second)):
        made = node("SequenceConstruct", inputs, f"r{k}") if inputs else node("SequenceEmpty", "", f"r{k}")
        graphs.append(helper.make_graph([made], f"g{k}", [], [sequence(f"r{k}")]))
    model = model_of(
        [
            helper.make_node("If", ["q"], ["s"], then_branch=graphs[0], else_branch=graphs[1]),
            node("SequenceLength", "s", "n"),
        ],
        [info("q", BOOL, []), info("a", FLOAT, [2, 3]), info("b", FLOAT, [2, 3]), info("c", FLOAT, [2, 5])],
        [sequence("s"), info("n", INT64, [])],
    )
    feed = {"a": floats(2, 3), "b": floats(2, 3), "c": floats(2, 5)}
    require_lists(model, [{**feed, "q": np.array(q)} for q in (True, False)])


def optional_branches(content, kind):
    """`o` is absent, or what `content` makes as `e`."""
    absent = helper.make_graph([helper.make_node("Optional", [], ["r0"], type=kind)], "g0", [], [optional("r0", kind)])
    there = helper.make_graph([*content, node("Optional", "e", "r1")], "g1", [], [optional("r1", kind)])
    return helper.make_node("If", ["c"], ["o"], then_branch=absent, else_branch=there)


def optional(name, kind):
    return helper.make_value_info(name, helper.make_optional_type_proto(kind))


TENSOR = helper.make_tensor_type_proto(FLOAT, None)


@pytest.mark.parametrize(
    "content, kind, made",
    [
        ([node("Neg", "x", "e")], TENSOR, lambda x: -x),
        ([node("NonZero", "x", "at"), node("Cast", "at", "e", to=FLOAT)], TENSOR, lambda x: [[0, 2]]),
        (
            [node("Neg", "x", "n"), node("SequenceConstruct", "x n x", "e")],
            helper.make_sequence_type_proto(TENSOR),
            lambda x: [x, -x, x],
        ),
        (
            [node("SplitToSequence", "x size", "e", axis=0)],
            helper.make_sequence_type_proto(TENSOR),
            lambda x: [x[:2], x[2:]],
        ),
    ],
)
def test_values_that_are_there_on_a_condition(content, kind, made, tmp_path):
    model = model_of(
        [optional_branches(content, kind), node("OptionalHasElement", "o", "has")],
        [info("c", BOOL, []), info("x", FLOAT, [3]), info("size", INT64, [])],
        [optional("o", kind), info("has", BOOL, [])],
    )
    executable = tw.compile(tw.load(model))
    executable.save(tmp_path / "m.twa")
    x = np.array([1, 0, 2], np.float32)
    for made_by in (executable, tw.load_executable(tmp_path / "m.twa")):
        for absent in (True, False):
            got, has = made_by(np.array(absent), x, number(2))
            assert has.item() is not absent
            want = made(x)
            want = want if isinstance(want, np.ndarray) or kind is not TENSOR else np.array(want, np.float32)
            require_same(None if absent else want, got)


def test_what_is_absent_cannot_be_taken():
    kind = helper.make_tensor_type_proto(FLOAT, [3])
    model = model_of(
        [
            optional_branches([node("Neg", "x", "e")], kind),
            node("OptionalGetElement", "o", "g"),
            node("Exp", "g", "y"),
        ],
        [info("c", BOOL, []), info("x", FLOAT, [3])],
        [info("y", FLOAT, [3])],
    )
    executable = tw.compile(tw.load(model))
    assert executable.outputs == {"y": "f32[3]"}
    x = floats(3)
    require_same(np.exp(-x), executable(np.array(False), x)[0])
    with pytest.raises(tw.Error, match="TW1101.*node `OptionalGetElement_1.*` demands it"):
        executable(np.array(True), x)


def test_a_branch_within_a_branch_asks_for_what_is_there():
    kind = helper.make_tensor_type_proto(FLOAT, ["n"])
    graphs = [
        helper.make_graph(
            [node("OptionalGetElement", "i", "g"), node("Optional", "g", "r2")], "g2", [], [optional("r2", kind)]
        ),
        helper.make_graph([node("Optional", "x", "r3")], "g3", [], [optional("r3", kind)]),
    ]
    first = optional_branches([node("Neg", "x", "e")], kind)
    first.output[0] = "i"
    model = model_of(
        [
            first,
            node("OptionalHasElement", "i", "has"),
            helper.make_node("If", ["has"], ["o"], then_branch=graphs[0], else_branch=graphs[1]),
            node("OptionalGetElement", "o", "y"),
        ],
        [info("c", BOOL, []), info("x", FLOAT, ["n"])],
        [info("y", FLOAT, ["n"])],
    )
    executable = tw.compile(tw.load(model))
    for n in (2, 5):
        x = floats(n)
        require_same(x, executable(np.array(True), x)[0])
        require_same(-x, executable(np.array(False), x)[0])


def with_bias(has_bias):
    """A function's way to say that it has a bias."""
    tensor = helper.make_tensor_type_proto(FLOAT, ["n"])
    given = node("Optional", "b", "o") if has_bias else helper.make_node("Optional", [], ["o"], type=tensor)
    graphs = [
        helper.make_graph(
            [node("OptionalGetElement", "o", "e"), node("Add", "x e", "r0")], "g0", [], [info("r0", FLOAT, ["n"])]
        ),
        helper.make_graph([node("Identity", "x", "r1")], "g1", [], [info("r1", FLOAT, ["n"])]),
    ]
    return model_of(
        [
            given,
            node("OptionalHasElement", "o", "has"),
            helper.make_node("If", ["has"], ["y"], then_branch=graphs[0], else_branch=graphs[1]),
        ],
        [info("x", FLOAT, ["n"]), info("b", FLOAT, ["n"])],
        [info("y", FLOAT, ["n"]), info("has", BOOL, [])],
    )


@pytest.mark.parametrize("has_bias", [False, True])
def test_optional_values(has_bias):
    require_agreement(with_bias(has_bias), [{"x": floats(n), "b": floats(n)} for n in (1, 4)])


def test_an_input_that_is_a_sequence(tmp_path):
    model = model_of(
        [
            node("SequenceInsert", "s x", "t"),
            node("SequenceAt", "s one", "a"),
            node("ConcatFromSequence", "t", "y", axis=0),
        ],
        [sequence("s", [None, 3]), info("x", FLOAT, ["n", 3])],
        [sequence("t"), info("a", FLOAT, [None, 3]), info("y", FLOAT, [None, 3])],
        constants(one=1),
    )
    refused(model, "s: a sequence, whose length is not known", 'shapes={"s": [(…), …]}')
    loaded = tw.load(model, shapes={"s": [(2, 3), ("n", 3)]})
    assert loaded.inputs == {"s": "sequence(f32[2,3],f32[n,3])", "x": "f32[n,3]"}
    assert "input       s sequence(f32[2, 3], f32[n, 3])" in loaded.explain()
    executable = tw.compile(loaded)
    executable.save(tmp_path / "m.twa")
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for runs in (executable, tw.load_executable(tmp_path / "m.twa")):
        assert runs.inputs == loaded.inputs and list(runs.input_tensors) == ["s.0", "s.1", "x"]
        for n in (1, 4):
            feed = {"s": [floats(2, 3), floats(n, 3)], "x": floats(n, 3)}
            wanted = session.run(None, feed)
            require_same(wanted, list(runs.run(feed).values()))
            require_same(wanted, runs(*feed.values()))
            apart = {"s.0": feed["s"][0], "s.1": feed["s"][1], "x": feed["x"]}
            require_same(wanted, list(runs.run(apart).values()))
    with pytest.raises(tw.Error, match=r"TW1101.*input\['s'\] is no list of 2 arrays"):
        executable.run({**feed, "s": feed["s"][:1]})
    with pytest.raises(tw.Error, match=r"(?s)TW1101.*the inputs are s: sequence"):
        executable.run({"x": feed["x"]})


def test_a_sequence_without_tensors_as_an_input():
    model = model_of([node("SequenceInsert", "s x", "t")], [sequence("s"), info("x", FLOAT, [3])], [sequence("t")])
    executable = tw.compile(tw.load(model, shapes={"s": []}))
    assert executable.inputs == {"s": "sequence()", "x": "f32[3]"}
    require_same([x := floats(3)], executable.run({"s": [], "x": x})["t"])


def test_optional_values_as_inputs():
    kind = helper.make_tensor_type_proto(FLOAT, ["n"])
    absent = helper.make_graph([node("Identity", "x", "r0")], "g0", [], [info("r0", FLOAT, ["n"])])
    there = helper.make_graph(
        [node("OptionalGetElement", "b", "g"), node("Add", "x g", "r1")], "g1", [], [info("r1", FLOAT, ["n"])]
    )
    model = model_of(
        [
            node("OptionalHasElement", "b", "has"),
            helper.make_node("If", ["has"], ["y"], then_branch=there, else_branch=absent),
        ],
        [info("x", FLOAT, ["n"]), optional("b", kind)],
        [info("y", FLOAT, ["n"])],
    )
    x, b = floats(4), floats(4)
    executable = tw.compile(tw.load(model))
    assert executable.inputs == {"x": "f32[n]", "b": "f32[n]"}
    require_same(x + b, executable.run({"x": x, "b": b})["y"])
    executable = tw.compile(tw.load(model, shapes={"b": None}))
    assert executable.inputs == {"x": "f32[n]", "b": "optional()"}
    require_same(x, executable.run({"x": x, "b": None})["y"])
    require_same(x, executable.run({"x": x})["y"])
    with pytest.raises(tw.Error, match=r"TW1101.*input\['b'\] is absent in this model"):
        executable.run({"x": x, "b": b})
    with pytest.raises(tw.Error, match="TW1004.*`x` is said to be absent"):
        tw.load(model, shapes={"x": None})


def test_parts_that_differ_in_several_dimensions():
    made = [node("SequenceConstruct", "x z x", "s"), node("SequenceAt", "s i", "y"), node("SequenceErase", "s i", "t")]
    made += [node("SequenceInsert", "s w i", "u")]
    shapes = {"x": [2, "n"], "z": ["n", 2], "w": [1, 1]}
    model = model_of(
        made,
        [*(info(name, FLOAT, shape) for name, shape in shapes.items()), info("i", INT64, [])],
        [info("y", FLOAT, [None, None]), sequence("t"), sequence("u")],
    )
    feeds = [
        {"x": floats(2, n), "z": floats(n, 2), "w": floats(1, 1), "i": np.array(i)} for n in (1, 5) for i in (0, 1, -1)
    ]
    require_lists(model, feeds)
    assert "output      t ragged(" in tw.load(model).explain()


def test_lists_that_cannot_be_had_are_refused():
    at = [node("SequenceAt", "s i", "y")]
    outputs = [info("y", FLOAT, [None])]
    refused(
        model_of(at, [sequence("s"), info("i", INT64, [])], outputs),
        "s: a sequence, whose length is not known",
    )
    made = [node("SequenceConstruct", "x z", "s"), *at]
    refused(
        model_of(made, [info("x", FLOAT, [2]), info("z", FLOAT, [2, 2]), info("i", INT64, [])], outputs),
        "SequenceAt",
        "a part of a sequence whose parts are of different ranks",
    )
