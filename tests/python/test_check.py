"""tw.check: a model's outputs beside ONNX Runtime's, and a constant input."""

import json

import numpy as np
import onnx
import pytest

import tilewright as tw
from conftest import model_of, run_tw, small_network, value
from fault_networks import FAULTS, network


@pytest.mark.parametrize("against", ["onnxruntime", "oracle", {"precision": "f32"}], ids=str)
def test_what_is_right_agrees(against):
    found = tw.check(small_network(), against)
    assert found.ok and list(found.outputs) == list(tw.load(small_network()).outputs)
    assert "the outputs agree" in str(found) and json.dumps(found.to_dict())


@pytest.mark.parametrize("fault", list(FAULTS)[:3])
def test_a_fault_is_seen(fault, monkeypatch, tmp_path):
    monkeypatch.setenv("TW_CACHE", str(tmp_path))
    monkeypatch.setenv("TW_FAULT", f"{fault}@{FAULTS[fault]}")
    found = tw.check(network())
    assert not found.ok and "they differ" in str(found)
    assert found.outputs["y"].relative > found.tolerance


def test_inputs_and_constants_of_the_callers():
    model = model_of([("Mul", ["x", "k"], ["y"])], [value("x", [3]), value("k", [])], [value("y", [3])])
    found = tw.check(model, inputs={"x": np.ones(3, np.float32)}, constants={"k": 2.5})
    assert found.ok and found.outputs["y"].ours == 2.5
    with pytest.raises(tw.Error, match="TW1101.*'x' is missing"):
        tw.check(model, inputs={}, constants={"k": 1})


def test_nothing_that_could_be_compared_is_no_agreement():
    model = model_of([("RandomNormal", [], ["y"], {"shape": [3]})], [], [value("y", [3])])
    with pytest.raises(tw.Error, match="TW1003.*random"):
        tw.check(model)


def test_on_the_command_line(tmp_path):
    onnx.save(small_network(), tmp_path / "m.onnx")
    done = run_tw("check", "m.onnx", cwd=tmp_path)
    assert done.returncode == 0 and "the outputs agree" in done.stdout, done.stderr
    assert json.loads(run_tw("check", "m.onnx", "--json", cwd=tmp_path).stdout)["ok"]
    assert "no node differs" in run_tw("check", "m.onnx", "--nodes", cwd=tmp_path).stdout
    strict = run_tw("check", "m.onnx", "--precision", "bf16", "--tolerance", "1e-6", cwd=tmp_path)
    assert strict.returncode == 1 and "they differ" in strict.stdout
    tw.compile(small_network()).save(tmp_path / "m.twa")
    wrong = run_tw("check", "m.twa", cwd=tmp_path)
    assert wrong.returncode == 2 and "TW1101" in wrong.stderr
