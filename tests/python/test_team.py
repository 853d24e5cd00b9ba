"""Whose threads run a model: Tilewright's own, or those of the process's OpenMP runtime."""

import os
import subprocess
import sys

import numpy as np
import onnx
import pytest

import tilewright as tw
from conftest import model_of, reference, value

# A process in which somebody has computed by OpenMP before: how many threads it has, and what it gives.
SCRIPT = """
import ctypes, os, sys, time
import numpy as np
import tilewright as tw

def threads():
    return [open(f"/proc/self/task/{each}/comm").read().strip() for each in os.listdir("/proc/self/task")]

gomp = ctypes.CDLL("libgomp.so.1")
region = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
gomp.GOMP_parallel(region, None, 3, 0)
before = len(threads())
executable = tw.compile(sys.argv[1], threads=3)
executable.team = sys.argv[2] or executable.team
y = executable.run({"x": np.ones((256, 64), np.float32)})["y"]
while len(threads()) - before != threads().count("tilewright"):  # they name themselves once they run
    time.sleep(0.01)
print(executable.team, len(threads()) - before, threads().count("tilewright"), y.min(), y.max())
"""


def run(path, team, **environment):
    command = [sys.executable, "-c", SCRIPT, path, team]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    name, new, ours, *y = done.stdout.split()
    return name, int(new), int(ours), np.array(y, np.float32)


@pytest.mark.parametrize("chosen", [{}, {"TW_TEAM": "openmp"}], ids=["by the property", "by the environment"])
def test_threads_that_are_there_are_used(tmp_path, chosen):
    weight = np.full((64, 256), 0.5, np.float32)
    product = model_of(
        [("MatMul", ["x", "w"], ["y"])], [value("x", [256, 64])], [value("y", [256, 256])], {"w": weight}
    )
    onnx.save(product, tmp_path / "net.onnx")
    name, new, ours, y = run(tmp_path / "net.onnx", "" if chosen else "openmp", **chosen)
    assert (name, new, ours, *y) == ("openmp", 0, 0, 32, 32)
    name, new, ours, y = run(tmp_path / "net.onnx", "own")
    assert (name, new, ours, *y) == ("own", 2, 2, 32, 32)


def test_it_is_chosen_where_a_model_is_compiled_and_kept_by_clones(network, x):
    executable = tw.compile(tw.load(network), threads="openmp")
    assert executable.team == executable.clone().team == "openmp" and executable.threads >= 1
    (expected,) = reference(network, {"x": x})
    for threads in (1, 2, 5):
        executable.threads = threads
        assert executable.team == "openmp"
        for _ in range(20):
            np.testing.assert_allclose(executable.run({"x": x})["y"], expected, atol=1e-5)
    executable.team = "own"
    assert executable.team == "own"


def test_other_names_are_refused(network, monkeypatch):
    with pytest.raises(tw.Error, match="TW1301.*threads='tbb'"):
        tw.compile(network, threads="tbb")
    executable = tw.compile(network)
    with pytest.raises(tw.Error, match="TW1101.*no team 'tbb'"):
        executable.team = "tbb"
    monkeypatch.setenv("TW_TEAM", "tbb")
    with pytest.raises(tw.Error, match="TW1101.*no team 'tbb'"):
        tw.compile(network)
