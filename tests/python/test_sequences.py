"""Sequences and optional values whose length is known when the model is loaded, beside ONNX Runtime."""

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
    refused(model, "Loop", "sequences that grow in as many steps as a run says")
    refused(model_of(growing_loop(), inputs, outputs, constants(count=10**6)), "more than 1024 steps")


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


def test_a_sequence_comes_out_as_its_tensors():
    model = model_of([node("SplitToSequence", "x", "s", axis=0)], [info("x", FLOAT, [3, "n"])], [sequence("s")])
    x = floats(3, 5)
    (wanted,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    results = tw.compile(tw.load(model)).run({"x": x})
    assert list(results) == ["s.0", "s.1", "s.2"]
    for expected, got in zip(wanted, results.values(), strict=True):
        np.testing.assert_array_equal(got, expected)


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


def test_lists_that_only_a_run_knows_are_refused():
    at = [node("SequenceAt", "s i", "y")]
    outputs = [info("y", FLOAT, [None])]
    refused(
        model_of(at, [sequence("s"), info("i", INT64, [])], outputs),
        "s: a sequence, whose length only a run knows",
    )
    made = [node("SequenceConstruct", "x x", "s"), *at]
    refused(
        model_of(made, [info("x", FLOAT, [2]), info("i", INT64, [])], outputs), "SequenceAt", "input 1 must be known"
    )
    length = "the length of the sequence is known only in a run: "
    split = node("SplitToSequence", "x size", "y", axis=0)
    refused(
        model_of([split], [info("x", FLOAT, [4]), info("size", INT64, [])], [sequence("y")]),
        length + "`split`, the size of its tensors, is computed; give it as a constant, or as a list of sizes",
    )
    refused(
        model_of([split], [info("x", FLOAT, [4]), info("size", INT64, ["k"])], [sequence("y")]),
        length + "dimension 0 of i64[k] is open",
        "fix `k` with shapes=",
    )
    split = node("SplitToSequence", "x", "y", axis=0)
    refused(
        model_of([split], [info("x", FLOAT, ["n"])], [sequence("y")]),
        length + "dimension 0 of f32[n] is open",
        "fix `n` with shapes=, or give `split` as a list of sizes",
    )
