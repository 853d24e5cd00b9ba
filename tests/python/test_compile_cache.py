"""Kernels that were compiled before, as the command line and Python meet them; and what a report says."""

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import known_shapes
import tilewright as tw
from conftest import ROOT, model_of, run_tw, small_network, value
from test_kernel_cases import CASES

DEMO_MODELS = ROOT / ".cache/demo/models"
DEMO_SHAPES = {"det": (1, 3, 320, 640), "cls": (1, 3, 48, 192), "rec": (1, 3, 48, 640)}


def counts(executable: tw.Executable) -> tuple[int, int]:
    return executable._report["kernels"], executable._report["cached_kernels"]


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TW_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_second_compilation_finds_every_kernel(cache, x):
    model = tw.load(small_network())
    cold, warm = tw.compile(model), tw.compile(model)
    assert counts(cold) == (len(list(cache.glob("llvmcache-*"))), 0)
    assert counts(warm) == (counts(cold)[0],) * 2
    np.testing.assert_array_equal(cold(x)[0], warm(x)[0])


def test_a_changed_layer_leaves_the_others(cache):
    def network(last: str) -> onnx.ModelProto:
        nodes = [("Softmax", ["x"], ["a"]), ("Transpose", ["a"], ["b"], {"perm": [1, 0]}), (last, ["b"], ["y"])]
        return model_of(nodes, [value("x", [48, 64])], [value("y", [64, 48])])

    tw.compile(tw.load(network("Softmax")))
    kernels, cached = counts(tw.compile(tw.load(network("LogSoftmax"))))
    assert 0 < cached < kernels


def test_other_processes_find_them_too(cache, tmp_path):
    onnx.save(small_network(), tmp_path / "m.onnx")
    first = run_tw("compile", tmp_path / "m.onnx", "-v")
    second = run_tw("compile", tmp_path / "m.onnx", "-v")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert ", 0 of which were in the cache" in first.stdout
    kernels = len(list(cache.glob("llvmcache-*")))
    assert f"in {kernels} kernels, {kernels} of which were in the cache" in second.stdout
    doctor = run_tw("doctor", "--no-measure").stdout
    assert f"{kernels} in {cache}" in doctor


def test_off_means_off(tmp_path, monkeypatch):
    monkeypatch.setenv("TW_CACHE", "off")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = tw.load(small_network())
    tw.compile(model)
    assert counts(tw.compile(model))[1] == 0
    assert not list(tmp_path.iterdir())


def test_a_damaged_entry_is_said_and_replaced(cache, x, caplog, tmp_path):
    model = tw.load(small_network())
    expected = tw.compile(model)(x)[0]
    for entry in cache.glob("llvmcache-*"):
        entry.write_bytes(entry.read_bytes()[:-8] + bytes(8))
    code = "import sys, tilewright as tw; tw.compile(tw.load(sys.stdin.buffer.read()))"
    done = subprocess.run(
        [sys.executable, "-c", code], input=small_network().SerializeToString(), capture_output=True, check=True
    )
    assert done.stderr.decode().count("is damaged; it is compiled again") == len(list(cache.glob("llvmcache-*")))
    again = tw.compile(model)
    assert counts(again)[0] == counts(again)[1]
    next(cache.glob("llvmcache-*")).write_bytes(b"")
    with caplog.at_level(logging.WARNING, "tilewright"):
        tw.compile(model)
    assert "is damaged; it is compiled again" in caplog.text
    next(cache.glob("llvmcache-*")).write_bytes(b"")
    onnx.save(small_network(), tmp_path / "m.onnx")
    shown = run_tw("compile", tmp_path / "m.onnx")
    assert "is damaged; it is compiled again" in shown.stderr and "is damaged" not in shown.stdout
    np.testing.assert_array_equal(again(x)[0], expected)


def test_reports(executable, tmp_path):
    assert "machine code" in executable.report() and "kernels" in executable.report()
    executable.save(tmp_path / "m.twa")
    assert "artifact" in tw.load_executable(tmp_path / "m.twa").report()
    executable._report["serial_loops"].append("conv1: loop `i`")
    try:
        assert executable.report().endswith("not proven independent:\n  conv1: loop `i`")
    finally:
        executable._report["serial_loops"].pop()


def test_the_report_names_what_should_be_in_registers(executable):
    executable._report["spilled_buffers"].append("softmax1: `softmax_sum`")
    try:
        assert executable.report().endswith("indexed by variables:\n  softmax1: `softmax_sum`")
    finally:
        executable._report["spilled_buffers"].pop()


@pytest.mark.parametrize("target", ["x86:avx512", "x86:avx2", "rpi4", "armv7"])
def test_what_should_be_in_registers_is(target):
    for name, model, _ in known_shapes.cases():
        assert tw.compile(tw.load(model), target=target)._report["spilled_buffers"] == [], name


def test_no_loop_of_a_small_network_stays_serial(executable):
    assert executable._report["serial_loops"] == []


@pytest.mark.parametrize("case", [case for case in CASES if case.bytes < 4e6], ids=lambda case: case.name)
def test_no_loop_of_a_known_shape_stays_serial(case):
    assert tw.compile(tw.load(case.model()))._report["serial_loops"] == []


# Of vectors of every width: which tails a loop has follows from it.
@pytest.mark.parametrize("target", ["aarch64", "x86:avx2", "x86:avx512"])
@pytest.mark.parametrize("name", DEMO_SHAPES)
def test_no_loop_of_the_demo_stays_serial(name, target):
    path = next(DEMO_MODELS.glob(f"*_{name}_*.onnx"), None)
    if path is None:
        pytest.skip("the demo's networks are not here: ./dev demo downloads them")
    assert tw.compile(tw.load(path, shapes={"x": DEMO_SHAPES[name]}), target)._report["serial_loops"] == []
