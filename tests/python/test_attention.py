"""Attention as graphs write it out, of keys and values that are parts of something, or in another order."""

import numpy as np
import pytest

import tilewright as tw
from conftest import model_of, value

onnxruntime = pytest.importorskip("onnxruntime")

HEADS, SIZE, FAR = 4, 32, 2**62
ALL = {"axis": 2, "step": 1, "start": 0, "end": FAR}
SLICE = ("Slice", ["k", "start", "end", "axis", "step"], ["moved"])
MOVES = {
    "the last ones": ([SLICE], {"start": -33}),
    "all but three": ([SLICE], {"start": 3}),
    "each second": ([SLICE], {"step": 2}),
    "backwards": ([SLICE], {"start": -1, "end": -FAR, "step": -1}),
    "turned round": (
        [
            ("Slice", ["k", "five", "end", "axis"], ["a"]),
            ("Slice", ["k", "start", "five", "axis"], ["b"]),
            ("Concat", ["a", "b"], ["moved"], {"axis": 2}),
        ],
        {"five": 5},
    ),
    "twice": ([("Concat", ["k", "k"], ["moved"], {"axis": 2})], {}),
    "padded": ([("Pad", ["k", "pads"], ["moved"])], {"pads": [0, 0, 2, 0, 0, 0, 1, 0]}),
    "gathered": ([("Gather", ["k", "rows"], ["moved"], {"axis": 2})], {"rows": [*range(30, 0, -2), *range(30)]}),
    "of blocks": (
        [("Reshape", ["k", "blocks"], ["a"]), ("Transpose", ["a"], ["b"], {"perm": [0, 1, 3, 2, 4]})]
        + [("Reshape", ["b", "joined"], ["moved"])],
        {"blocks": [0, HEADS, 3, -1, SIZE], "joined": [0, HEADS, -1, SIZE]},
    ),
}


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("queries, keys", [(1, 48), (7, 48), (1, 3072), (300, 1536)])
@pytest.mark.parametrize("name", MOVES)
def test_moved_keys(name, queries, keys, is_open):
    """Of one query and of several; of so many keys that they are cut into parts."""
    moves, constants = MOVES[name]
    nodes = [
        *moves,
        ("Transpose", ["moved"], ["keys"], {"perm": [0, 1, 3, 2]}),
        ("MatMul", ["q", "keys"], ["scores"]),
        ("Softmax", ["scores"], ["weights"], {"axis": -1}),
        ("MatMul", ["weights", "moved"], ["y"]),
    ]
    used = {input for _, inputs, *_ in moves for input in inputs}
    constants = {n: np.atleast_1d(a) for n, a in {**ALL, **constants}.items() if n in used}
    dims = [["batch", HEADS, n if is_open else size, SIZE] for n, size in (("queries", queries), ("keys", keys))]
    model = model_of(nodes, [value("q", dims[0]), value("k", dims[1])], [value("y", None)], constants, opset=18)
    rng = np.random.default_rng(0)
    feed = {n: rng.random((2, HEADS, size, SIZE), np.float32) - 0.5 for n, size in (("q", queries), ("k", keys))}
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feed)[0]
    np.testing.assert_allclose(tw.compile(model).run(feed)["y"], expected, rtol=1e-4, atol=1e-5)
