"""Runs in which open dimensions are 0: no detections, no tokens, no past; against ONNX Runtime."""

import re

import numpy as np
import pytest

import tilewright as tw
from conftest import from_zero, model_of, value

pytest.importorskip("onnxruntime")

from random_graphs import run_onnxruntime  # noqa: E402

RNG = np.random.default_rng(0)


def weights(*shape):
    return (RNG.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)


def feed_at(executable, sizes):
    """Inputs of these sizes of the open dimensions."""
    feed = {}
    for name, text in executable.inputs.items():
        kind, dims = re.fullmatch(r"(\w+)\[(.*)\]", text).groups()
        shape = [eval(dim, {}, sizes) for dim in dims.split(",") if dim.strip()]
        feed[name] = RNG.standard_normal(shape).astype(np.float32) if kind == "f32" else RNG.integers(0, 4, shape)
    return feed


def check(executable, model, *runs):
    for sizes in runs:
        feed = feed_at(executable, sizes)
        wanted = run_onnxruntime(model, list(feed.values()))
        for have, want in zip(executable.run(feed).values(), wanted, strict=True):
            assert have.shape == want.shape, sizes
            np.testing.assert_allclose(have, want, rtol=1e-4, atol=1e-4, err_msg=str(sizes))


def decoder(heads=2, width=8):
    """A layer of a decoder: keys and values of the tokens before come in, those of all tokens go out."""
    nodes, constants = [], {"split": np.array([0, 0, heads, width // heads], np.int64)}
    for name in "qkv":
        constants[f"w{name}"] = weights(width, width)
        nodes += [
            ("MatMul", ["x", f"w{name}"], [f"{name}0"]),
            ("Reshape", [f"{name}0", "split"], [f"{name}1"]),
            ("Transpose", [f"{name}1"], [f"{name}2"], {"perm": [0, 2, 1, 3]}),
        ]
    constants |= {"merge": np.array([0, 0, width], np.int64), "wo": weights(width, width)}
    nodes += [
        ("Concat", ["past_k", "k2"], ["present_k"], {"axis": 2}),
        ("Concat", ["past_v", "v2"], ["present_v"], {"axis": 2}),
        ("Transpose", ["present_k"], ["kt"], {"perm": [0, 1, 3, 2]}),
        ("MatMul", ["q2", "kt"], ["scores"]),
        ("Add", ["scores", "mask"], ["masked"]),
        ("Softmax", ["masked"], ["weights"], {"axis": -1}),
        ("MatMul", ["weights", "present_v"], ["heads"]),
        ("Transpose", ["heads"], ["rows"], {"perm": [0, 2, 1, 3]}),
        ("Reshape", ["rows", "merge"], ["merged"]),
        ("MatMul", ["merged", "wo"], ["out"]),
        ("Add", ["out", "x"], ["y"]),
    ]
    past = ["batch", heads, "past", width // heads]
    inputs = [value("x", ["batch", "seq", width]), value("past_k", past), value("past_v", past)]
    inputs.append(value("mask", ["batch", 1, "seq", "total"]))
    return model_of(nodes, inputs, [value(name, None) for name in ("y", "present_k", "present_v")], constants, 17)


PASTS = [(2, 3, 4), (1, 0, 1), (2, 0, 4), (0, 3, 4), (0, 0, 4), (2, 3, 0), (2, 0, 0), (0, 3, 0), (0, 0, 0)]
PASTS = [{"batch": b, "past": p, "seq": s, "total": p + s} for b, p, s in PASTS]


def test_a_decoder_without_past(tmp_path):
    model = decoder()
    executable = tw.compile(model, shapes=from_zero(model))
    assert {low for low, _ in executable.dimensions.values()} == {0}
    check(executable, model, *PASTS)
    executable.save(tmp_path / "decoder.twa")
    check(tw.load_executable(tmp_path / "decoder.twa"), model, *PASTS)


def test_profiles_and_sizes_of_the_run():
    model = decoder()
    check(
        tw.compile(model, shapes=from_zero(model), profiles=[{"past": 0, "batch": 1}, {"past": (0, 8)}]), model, *PASTS
    )
    check(tw.compile(model, shapes=from_zero(model), specialise=True), model, *PASTS)


CONVOLUTIONS = [
    ("Conv", ["x", "w"], ["a"], {"pads": [1, 1, 1, 1]}),
    ("Relu", ["a"], ["b"]),
    ("MaxPool", ["b"], ["c"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("GlobalAveragePool", ["c"], ["d"]),
    ("Flatten", ["d"], ["e"]),
    ("Gemm", ["e", "v"], ["f"]),
    ("Softmax", ["f"], ["y"], {"axis": -1}),
]


def convolutions():
    dims = ["batch", 3, "height", "width"]
    constants = {"w": weights(16, 3, 3, 3), "v": weights(16, 10)}
    return model_of(CONVOLUTIONS, [value("x", dims)], [value("y", None)], constants, 17)


def test_an_empty_batch_of_pictures():
    model = convolutions()
    executable = tw.compile(model, shapes=from_zero(model))
    check(executable, model, {"batch": 0, "height": 9, "width": 12}, {"batch": 2, "height": 9, "width": 12})
    with pytest.raises(tw.Error, match=r"(?s)'height', dimension 2 of input 'x', is 0.*node `\w+` \(\w+\) demands"):
        executable.run({"x": np.zeros((1, 3, 0, 8), np.float32)})


@pytest.mark.parametrize("model", [convolutions(), decoder()])
def test_kernels_do_not_depend_on_whether_a_dimension_may_be_0(model):
    """A run with elements has those of a model that never runs without."""
    sizes = {"batch": 2, "seq": 3, "past": 4, "total": 7, "height": 12, "width": 12}
    kernels = [
        [step["kernel"] for step in executable.describe(feed_at(executable, sizes))["steps"]]
        for executable in (tw.compile(model, shapes=from_zero(model)), tw.compile(model))
    ]
    assert kernels[0] == kernels[1]


def test_bounds_say_whether_0_is_a_size():
    model = model_of([("Relu", ["x"], ["y"])], [value("x", ["n", 3])], [value("y", None)])
    x = np.zeros((0, 3), np.float32)
    assert tw.compile(model, shapes={"x": (tw.Dim("n", 0, 64), 3)}).run({"x": x})["y"].shape == (0, 3)
    assert tw.compile(model, shapes={"x": (0, 3)}).run({"x": x})["y"].shape == (0, 3)
    with pytest.raises(tw.Error, match="'n', dimension 0 of input 'x', is 0, but the model was compiled for 1 or more"):
        tw.compile(model).run({"x": x})
    with pytest.raises(tw.Error, match="0 <= low <= high"):
        tw.Dim("n", -1)


REDUCTIONS = {
    "ReduceSum": 0.0,
    "ReduceProd": 1.0,
    "ReduceL2": 0.0,
    "ReduceLogSumExp": -np.inf,
    "ReduceMax": -np.inf,
    "ReduceMin": np.inf,
}


@pytest.mark.parametrize("operator", REDUCTIONS)
def test_reductions_of_nothing(operator):
    nodes = [(operator, ["x", "axes"], ["y"], {"keepdims": 0})]
    model = model_of(nodes, [value("x", ["n", 3])], [value("y", None)], {"axes": np.array([0])}, 20)
    executable = tw.compile(model, shapes=from_zero(model))
    np.testing.assert_array_equal(executable.run({"x": np.zeros((0, 3), np.float32)})["y"], [REDUCTIONS[operator]] * 3)
    check(executable, model, {"n": 5})


def test_positions_that_need_an_element():
    """The first row of none: there is none."""
    model = model_of([("Gather", ["x", "at"], ["y"])], [value("x", ["n", 3])], [value("y", None)],
                     {"at": np.array(0)}, 17)  # fmt: skip
    executable = tw.compile(model, shapes=from_zero(model))
    with pytest.raises(
        tw.Error, match=r"is 0, but the model was compiled for 1 or more, as node `\w+` \(Gather\) demands"
    ):
        executable.run({"x": np.zeros((0, 3), np.float32)})


def test_a_recurrent_network_without_steps():
    constants = {"w": weights(1, 16, 3)[0:1], "r": weights(1, 16, 4)}
    nodes = [("LSTM", ["x", "w", "r"], ["y", "h", "c"], {"hidden_size": 4})]
    model = model_of(nodes, [value("x", ["n", "b", 3])], [value(name, None) for name in "yhc"], constants, 17)
    executable = tw.compile(model, shapes=from_zero(model))
    y, h, c = executable.run({"x": np.zeros((0, 2, 3), np.float32)}).values()
    assert y.shape == (0, 1, 2, 4) and not h.any() and not c.any() and h.shape == c.shape == (1, 2, 4)
    check(executable, model, {"n": 5, "b": 2})
    y, h, c = executable.run({"x": np.zeros((5, 0, 3), np.float32)}).values()  # which ends ONNX Runtime's process
    assert y.shape == (5, 1, 0, 4) and h.shape == c.shape == (1, 0, 4)
