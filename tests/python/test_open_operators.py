"""Every operator with open dimensions: the cases of ONNX's suite, and what once was refused, wrong, or ended a run."""

import re

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import tilewright as tw
from conftest import INT64, model_of, value

pytest.importorskip("onnxruntime")

import open_cases  # noqa: E402

IS_OPEN = r"dimension \d of .* is open, which this use of the operator cannot be"
MANY = "as many sizes as a run says"
PARTS = "not numbers of one part or two"
# What is refused: the scale of a head, and how its elements are turned, need its size, and trees that of rows; results
# of any rank; and whether numbers are complex is in their last dimension.
REFUSED = {
    **{(operator, opening): PARTS for operator in ("DFT", "STFT") for opening in open_cases.OPENINGS},
    ("ConstantOfShape", "one"): MANY,
    ("ConstantOfShape", "two"): MANY,
    ("ConstantOfShape", "all"): MANY,
    ("Attention", "two"): IS_OPEN,
    ("Attention", "all"): IS_OPEN,
    ("FlexAttention", "two"): IS_OPEN,
    ("FlexAttention", "all"): IS_OPEN,
    ("LinearAttention", "two"): IS_OPEN,
    ("LinearAttention", "all"): IS_OPEN,
    ("RotaryEmbedding", "two"): IS_OPEN,
    ("RotaryEmbedding", "all"): IS_OPEN,
    ("TreeEnsemble", "two"): IS_OPEN,
    ("TreeEnsemble", "all"): IS_OPEN,
}
# Sizes of the result that are inputs are drawn, and fit neither windows nor blocks (test_sampling.py has such that do).
NEVER_RUN = {"test_maxunpool_export_with_output_shape", "test_col2im", "test_affine_grid_2d"}
# Where all is 0 the scale is 1, as ONNX Runtime has it, and 1 / 255 in the reference evaluator.  It takes no notice of
# an LSTM's sequence_lens (test_control_flow.py compares these with ONNX Runtime).
DIFFER = {(operator, opening) for operator in ("DynamicQuantizeLinear", "LSTM") for opening in open_cases.OPENINGS}


@pytest.mark.parametrize("opening", open_cases.OPENINGS)
def test_cases_of_the_suite(opening):
    outcomes = [open_cases.outcome(operator, case, opening) for operator, case in open_cases.cases_of_operators(most=1)]
    assert len(outcomes) > 140
    refused = {(o.operator, opening): o.message for o in outcomes if o.status == "refused"}
    assert refused.keys() == {key for key in REFUSED if key[1] == opening}, refused
    for key, message in refused.items():
        assert re.search(REFUSED[key], message), f"{key}: {message}"
    wrong = {(o.operator, opening): o.message for o in outcomes if o.status == "wrong"}
    assert wrong.keys() == {key for key in DIFFER if key[1] == opening}, wrong
    assert {o.case for o in outcomes if o.status == "right" and not o.runs} <= NEVER_RUN


def compiled(nodes, shape, constants=(), opset=18):
    model = model_of(nodes, [value("x", shape)], [value("y", None)], dict(constants), opset)
    return tw.compile(model), ReferenceEvaluator(model)


def check(executable, reference, shapes):
    rng = np.random.default_rng(0)
    for shape in shapes:
        x = rng.standard_normal(shape).astype(np.float32)
        (want,), (have,) = reference.run(None, {"x": x}), executable.run({"x": x}).values()
        assert have.shape == want.shape
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4, err_msg=str(shape))


FAR = 2**63 - 1


@pytest.mark.parametrize(
    "start, end, step",
    [
        (-1, FAR, 1),
        (-5, FAR, 1),
        (0, -1, 1),
        (0, -5, 1),
        (1, -2, 1),
        (-3, -1, 1),
        (0, FAR, 2),
        (1, FAR, 2),
        (-1, -FAR, -1),
        (FAR, -FAR, -2),
        (-3, -FAR, -1),
        (4, 2, -1),
    ],
)
def test_slices(start, end, step):
    bounds = {name: np.array([n]) for name, n in {"s": start, "e": end, "a": 0, "t": step}.items()}
    executable, reference = compiled([("Slice", ["x", *bounds], ["y"])], ["n", 2], bounds)
    if (start, step) != (-3, -1):  # numpy begins before the first, ONNX at it
        check(executable, reference, [(n, 2) for n in (1, 2, 3, 5, 13)])
    else:
        assert [len(executable.run({"x": np.ones((n, 2), np.float32)})["y"]) for n in (1, 2, 3, 5)] == [1, 1, 1, 3]


def test_parts_of_an_open_axis():
    nodes = [("Split", ["x"], ["a", "b"], {"num_outputs": 2}), ("Concat", ["b", "a"], ["y"], {"axis": 0})]
    check(*compiled(nodes, ["n", 3]), [(n, 3) for n in (1, 2, 3, 8, 37)])


@pytest.mark.parametrize("counts", [0, 1])
def test_average_pools_that_are_rounded_up(counts):
    attributes = {"kernel_shape": [3], "strides": [2], "pads": [1, 0], "ceil_mode": 1, "count_include_pad": counts}
    executable, reference = compiled([("AveragePool", ["x"], ["y"], attributes)], [1, 2, "n"], opset=19)
    check(executable, reference, [(1, 2, n) for n in (3, 4, 5, 6, 16)])


def test_of_nothing_a_sum_is_zero():
    constants = {name: np.array([n]) for name, n in {"one": 1, "far": FAR, "axis": 0, "two": 2}.items()}
    nodes = [("Slice", ["x", *constants], ["a"]), ("ReduceSum", ["a", "axis"], ["y"], {"keepdims": 0})]
    check(*compiled(nodes, ["n", 5], constants), [(n, 5) for n in (1, 2, 7)])


def test_one_element_is_reflected():
    nodes = [("Pad", ["x", "p"], ["a"], {"mode": "reflect"}), ("Concat", ["a", "c"], ["y"], {"axis": 0})]
    executable, reference = compiled(nodes, ["n", 2], {"p": np.array([1, 0, 0, 0]), "c": np.ones((3, 2), np.float32)})
    check(executable, reference, [(n, 2) for n in (2, 3, 9)])
    assert (executable.run({"x": np.full((1, 2), 7, np.float32)})["y"][:2] == 7).all()


# What had no schedule, or none that compiled.
SCHEDULES = {
    "half of the rows, as one row": (
        [
            ("Split", ["x"], ["a", "b"], {"axis": 1, "num_outputs": 2}),
            ("LayerNormalization", ["a", "s", "s"], ["c"]),
            ("Flatten", ["c"], ["y"], {"axis": 0}),
        ],
        [2, "n", 1],
        {"s": np.ones(1, np.float32)},
    ),
    "transposed in strips": (
        [("ConvTranspose", ["x", "w"], ["y"], {"strides": [2, 3], "pads": [1, 0, 1, 1], "dilations": [2, 1]})],
        ["n", 1, 12, "n"],
        {"w": np.random.default_rng(0).standard_normal((1, 2, 4, 2)).astype(np.float32)},
    ),
    "packed rows": (
        [("Transpose", ["x"], ["a"], {"perm": [0, 2, 1]}), ("MatMul", ["a", "w"], ["y"])],
        [6, 12, "n"],
        {"w": np.random.default_rng(0).standard_normal((12, 40)).astype(np.float32)},
    ),
    "products of sums in a shape": (
        [
            ("Pad", ["x", "p"], ["a"], {"mode": "edge"}),
            ("Reshape", ["a", "s"], ["b"]),
            ("MatMul", ["b", "w"], ["c"]),
            ("Reshape", ["c", "t"], ["y"]),
        ],
        ["n", "n", 10],
        {
            "p": np.array([2, 2, 0, 2, 2, 0]),
            "s": np.array([0, -1, 1]),
            "w": np.ones((1, 4), np.float32),
            "t": np.array([0, -1]),
        },
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name):
    nodes, shape, constants = SCHEDULES[name]
    sizes = [[n if dim == "n" else dim for dim in shape] for n in (1, 2, 5, 16, 37)]
    check(*compiled(nodes, shape, constants), sizes)


@pytest.mark.parametrize("shape", [["n", "m"], [21, "m"], ["n", 21]])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "bool"])
def test_columns_that_only_some_rows_have(dtype, shape):
    """Parts that are transposed where they meet.  Code for each number of rows and each element once took a minute."""
    nodes = [("Transpose", [name], [name + "t"]) for name in "xz"]
    nodes += [("Concat", ["xt", "zt", "xt"], ["y"], {"axis": 0})]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    model = model_of(nodes, [value(name, shape, kind) for name in "xz"], [value("y", None, kind)], {}, opset=18)
    executable, rng = tw.compile(model), np.random.default_rng(0)
    for n, m in [(1, 1), (3, 70), (16, 17), (63, 31), (65, 129)]:
        sizes = [{"n": n, "m": m}.get(size, size) for size in shape]
        x, z = (rng.integers(0, 2 if dtype == "bool" else 99, sizes).astype(dtype) for _ in "xz")
        np.testing.assert_array_equal(executable.run({"x": x, "z": z})["y"], np.concatenate([x.T, z.T, x.T]))


@pytest.mark.parametrize(
    "nodes, shape, dtype, bad",
    [
        ([("MaxPool", ["x"], ["y"], {"kernel_shape": [3]})], [1, 1, "n"], None, (1, 1, 2)),
        ([("TopK", ["x", "k"], ["y", "i"])], ["n"], None, (2,)),
        ([("Pad", ["x", "p"], ["y"])], ["n"], None, (2,)),
        ([("GatherElements", ["c", "x"], ["y"], {"axis": 1})], ["n", 2], INT64, (4, 2)),
        ([("ScatterElements", ["c", "x", "x_"], ["y"], {"axis": 1})], ["n", 2], INT64, (4, 2)),
    ],
)
def test_sizes_that_would_read_elsewhere(nodes, shape, dtype, bad):
    """These once read or wrote foreign memory."""
    constants = {"k": np.array([3]), "p": np.array([-2, -1]), "c": np.ones((3, 2), np.float32)}
    if nodes[0][0] == "ScatterElements":
        nodes = [("Cast", ["x"], ["x_"], {"to": 1}), *nodes]
    model = model_of(nodes, [value("x", shape, dtype or 1)], [value("y", None)], constants, 18)
    x = np.zeros(bad, np.int64 if dtype else np.float32)
    with pytest.raises(tw.Error, match=r"TW1101 (.|\n)*demands"):
        tw.compile(model).run({"x": x})


def test_sizes_that_do_not_grow_together():
    executable, _ = compiled([("Reshape", ["x", "s"], ["y"])], ["n", "m"], {"s": np.array([2, 12])})
    assert executable.run({"x": np.ones((3, 8), np.float32)})["y"].shape == (2, 12)
    with pytest.raises(tw.Error, match="TW1101"):
        executable.run({"x": np.ones((5, 5), np.float32)})


def test_attention_beside_a_cache():
    """Of a decoder: shared heads, open batch, tokens and cache, each token sees those before it."""
    heads = {"q_num_heads": 4, "kv_num_heads": 2}
    inputs = [value("q", ["b", "t", 32]), value("k", ["b", "t", 16]), value("v", ["b", "t", 16])]
    inputs += [value(name, ["b", 2, "past", 8]) for name in ("pk", "pv")]
    node = ("Attention", ["q", "k", "v", "", "pk", "pv"], ["y", "nk", "nv"], {"is_causal": 1, **heads})
    model = model_of([node], inputs, [value(name, None) for name in ("y", "nk", "nv")], opset=23)
    executable, reference = tw.compile(model), ReferenceEvaluator(model)
    assert executable.outputs["nk"] == "f32[b,2,past+t,8]"
    rng = np.random.default_rng(0)
    for b, t, past in [(1, 1, 1), (2, 5, 3), (1, 1, 37), (3, 19, 1)]:
        shapes = {"q": (b, t, 32), "k": (b, t, 16), "v": (b, t, 16), "pk": (b, 2, past, 8), "pv": (b, 2, past, 8)}
        feed = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        for have, want in zip(executable.run(feed).values(), reference.run(None, feed), strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("has_padding", [False, True])
def test_attention_of_a_prompt(has_padding, tmp_path, monkeypatch):
    """As it is exported: positions are compared, and what nobody may see is added as -inf."""
    constants = {"zero": np.array(0), "one": np.array(1), "none": np.float32(-np.inf), "nil": np.float32(0)}
    constants |= {"keys": np.array([0, 1, 2]), "queries": np.array([0, 1, 3]), "heads": np.array([1, 2])}
    nodes = [
        ("Shape", ["x"], ["count"], {"start": 2, "end": 3}),
        ("Squeeze", ["count"], ["n"]),
        ("Range", ["zero", "n", "one"], ["positions"]),
        ("Unsqueeze", ["positions", "keys"], ["of_keys"]),
        ("Unsqueeze", ["positions", "queries"], ["of_queries"]),
        ("LessOrEqual", ["of_keys", "of_queries"], ["before"]),
        ("Unsqueeze", ["seen", "heads"], ["given"]),
        ("And", ["before", "given"], ["both"]),
        ("Where", ["both" if has_padding else "before", "nil", "none"], ["mask"]),
        ("Transpose", ["x"], ["columns"], {"perm": [0, 1, 3, 2]}),
        ("MatMul", ["x", "columns"], ["scores"]),
        ("Add", ["scores", "mask"], ["masked"]),
        ("Softmax", ["masked"], ["weights"]),
        ("IsNaN", ["weights"], ["empty"]),
        ("Where", ["empty", "nil", "weights"], ["filled"]),
        ("MatMul", ["filled", "x"], ["y"]),
    ]
    inputs = [value("x", ["b", 2, "n", 16]), value("seen", ["b", "n"], TensorProto.BOOL)]
    model = model_of(nodes, inputs, [value("y", None)], constants, opset=18)
    monkeypatch.setenv("TW_DUMP", str(tmp_path))
    executable, reference = tw.compile(model), ReferenceEvaluator(model)
    (graph,) = tmp_path.glob("*recognise_causal.tw")
    assert "zero_if_masked = 1, causal = 1" in graph.read_text()
    rng = np.random.default_rng(0)
    for b, n in [(1, 1), (2, 7), (3, 70), (1, 131), (2, 200)]:
        x = rng.standard_normal((b, 2, n, 16)).astype(np.float32)
        seen = rng.random((b, n)) < 0.8
        seen[0, : n // 3] = False  # padding on the left: rows that see nothing
        feed = {"x": x, "seen": seen}
        (want,), (have,) = reference.run(None, feed), executable.run(feed).values()
        np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-5, err_msg=str((b, n)))


def test_sizes_that_divide_by_what_may_be_nothing():
    """Rows from the third to the fourth: of two rows there would be none, and a size is divided by their number."""
    constants = {"two": [2], "four": [4], "zero": [0], "most": [3, -1]}
    nodes = [
        ("Slice", ["x", "two", "four", "zero"], ["rows"]),
        ("Shape", ["rows"], ["count"], {"start": 0, "end": 1}),
        ("Concat", ["count", "most"], ["shape"], {"axis": 0}),
        ("Reshape", ["k", "shape"], ["table"]),
        ("ReduceSum", ["rows"], ["total"], {"keepdims": 0}),
        ("Mul", ["table", "total"], ["y"]),
    ]
    inputs = [value("x", ["n", 5]), value("k", [2, "m"])]
    model = model_of(nodes, inputs, [value("y", None)], {n: np.array(a) for n, a in constants.items()}, opset=18)
    executable, reference = tw.compile(model), ReferenceEvaluator(model)
    rng = np.random.default_rng(0)
    for n, m in [(3, 3), (3, 6), (4, 3), (7, 12)]:
        feed = {"x": rng.random((n, 5), np.float32), "k": rng.random((2, m), np.float32)}
        np.testing.assert_allclose(executable.run(feed)["y"], reference.run(None, feed)[0], rtol=1e-5)
    with pytest.raises(tw.Error, match="TW1101"):
        executable.run({"x": np.ones((2, 5), np.float32), "k": np.ones((2, 3), np.float32)})
