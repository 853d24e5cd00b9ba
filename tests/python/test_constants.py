"""Inputs that are constants: a sampling rate, a switch, a table."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from conftest import model_of, reference, run_tw, value

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def branch(op, name):
    return helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [value(name, [2, 3])])


def switched(rate_shape=()):
    """As voice detectors have it: another way for each sampling rate."""
    return model_of(
        [
            ("Equal", ["sr", "wanted"], ["is_it"]),
            ("If", ["is_it"], ["y"], {"then_branch": branch("Exp", "a"), "else_branch": branch("Neg", "b")}),
        ],
        [value("x", [2, 3]), value("sr", list(rate_shape), INT64)],
        [value("y", [2, 3])],
        {"wanted": np.array(16000, np.int64).reshape(rate_shape)},
    )


@pytest.mark.parametrize("shape", [(), (1,)], ids=["number", "list"])
@pytest.mark.parametrize("rate", [16000, 8000, np.int32(16000), [16000], 16000.0], ids=repr)
def test_a_branch_is_decided_when_the_model_is_loaded(shape, rate):
    model = tw.load(switched(shape), constants={"sr": rate})
    assert model.inputs == {"x": "f32[2,3]"} and "if(" not in model.text
    given = np.asarray(rate, np.int64).reshape(shape)
    (expected,) = reference(switched(shape), {"x": X, "sr": given})
    np.testing.assert_allclose(tw.compile(model).run({"x": X})["y"], expected, rtol=1e-6)


def scaled():
    return model_of(
        [("Mul", ["x", "factors"], ["z"]), ("Reshape", ["z", "shape"], ["y"])],
        [value("x", [2, 3]), value("factors", ["n"]), value("shape", [2], INT64)],
        [value("y", [None, None])],
    )


def test_arrays_are_constants_too():
    constants = {"factors": [1, 2, 3], "shape": np.array([3, 2])}
    model = tw.load(scaled(), constants=constants)
    assert model.outputs == {"y": "f32[3,2]"}
    np.testing.assert_array_equal(tw.compile(model).run({"x": X})["y"], (X * [1, 2, 3]).reshape(3, 2))
    assert "Mul" in tw.explain(scaled(), constants=constants)


def test_it_is_compared_with_onnxruntime_by_node(tmp_path):
    assert tw.compare(tw.load(scaled(), constants={"factors": 2.5, "shape": [6, 1]} | {"factors": [2.5]})).ok
    result = tw.compare(tw.load(switched(), constants={"sr": 16000}), "onnxruntime", {"x": X})
    assert result.ok
    tw.load(switched(), constants={"sr": 16000}).explain_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("constants", "mentions"),
    [
        ({"typo": 1}, "`typo`.*no input is called so"),
        ({"sr": 16000.5}, "`sr`.*no i64"),
        ({"sr": [1, 2]}, "`sr`.*dimensions"),
        ({"x": np.zeros((3, 2))}, "`x`.*sizes"),
        ({"sr": "16000"}, r"constants\['sr'\]"),
        ([("sr", 1)], "is no dict"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_told_so(constants, mentions):
    with pytest.raises(tw.Error, match=f"(?s)TW1004.*{mentions}"):
        tw.load(switched(), constants=constants)


def test_an_input_that_has_a_default_gets_another():
    """An initializer that is listed as an input: models give inputs their defaults so."""
    model = scaled()
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(3, np.float32), "factors"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([6, 1]), "shape"))
    for constants, factor in (({}, 1), ({"factors": [2, 2, 2]}, 2)):
        y = tw.compile(tw.load(model, constants=constants)).run({"x": X})["y"]
        np.testing.assert_array_equal(y, (X * factor).reshape(6, 1))


def test_truths_and_small_numbers():
    model = model_of(
        [("Where", ["c", "x", "low"], ["y"])],
        [value("x", [2]), value("c", [], BOOL), value("low", [], FLOAT)],
        [value("y", [2])],
    )
    executable = tw.compile(tw.load(model, constants={"c": False, "low": 3}))
    assert executable.run({"x": np.zeros(2, np.float32)})["y"].tolist() == [3, 3]
    with pytest.raises(tw.Error, match="TW1004.*`c`.*no bool"):
        tw.load(model, constants={"c": 2})


def test_on_the_command_line(tmp_path):
    onnx.save(switched(), tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", X)
    for rate, first in (("16000", "1"), ("8000", "-0")):
        done = run_tw("run", "m.onnx", "--set", f"sr={rate}", "-i", "x=x.npy", cwd=tmp_path)
        assert done.returncode == 0 and f" {first} " in done.stdout, done.stderr
    assert run_tw("compile", "m.onnx", "--set", "sr=8000", cwd=tmp_path).returncode == 0
    assert run_tw("compare", "m.onnx", "--set", "sr=8000", cwd=tmp_path).returncode == 0
    for wrong in ("sr", "sr=abc", "sr=nothing.npy"):
        done = run_tw("run", "m.onnx", "--set", wrong, cwd=tmp_path)
        assert done.returncode == 2 and "TW1004 --set" in done.stderr
    done = run_tw("run", "m.twa", "--set", "sr=16000", cwd=tmp_path)
    assert done.returncode == 2 and "--set" in done.stderr
