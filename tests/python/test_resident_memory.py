"""What a process that runs an artifact by the C interface keeps in memory: the weights once, mapped, and the arena."""

import subprocess
import sys

import numpy as np
import pytest

import tilewright as tw
from conftest import ROOT, model_of, value

LIBRARY = ROOT / "build/runtime/libtilewright_runtime.so"

# Prints what loading and three runs added to the resident set, in bytes.
PROGRAM = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
P = ctypes.c_void_p

def resident():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(fields["VmRSS"].split()[0]) * 1024

def array(count):
    data = ctypes.create_string_buffer(count * 4 + 64)
    return data, ctypes.addressof(data) + -ctypes.addressof(data) % 64

x, x_start = array(4096)
y, y_start = array(2048)
before = resident()
executable = P()
assert library.tw_load(sys.argv[2].encode(), ctypes.byref(executable)) == 0
loaded = resident()
for _ in range(3):
    size_in, size_out = ctypes.c_size_t(4096 * 4), ctypes.c_size_t(2048 * 4)
    pointers = P(x_start), P(y_start)
    status = library.tw_run(executable, ctypes.byref(pointers[0]), ctypes.byref(size_in),
                            ctypes.byref(pointers[1]), ctypes.byref(size_out))
    assert status == 0
print(loaded - before, resident() - before)
"""


@pytest.mark.skipif(not LIBRARY.exists(), reason="the C library is not built")
def test_weights_are_resident_once(tmp_path):
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((4096, 4096), np.float32), "v": rng.standard_normal((4096, 2048), np.float32)}
    nodes = [("MatMul", ["x", "w"], ["a"]), ("Relu", ["a"], ["b"]), ("MatMul", ["b", "v"], ["y"])]
    model = model_of(nodes, [value("x", [1, 4096])], [value("y", [1, 2048])], weights)
    executable = tw.compile(tw.load(model))
    plan = executable.describe()
    executable.save(tmp_path / "m.twa")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, LIBRARY, tmp_path / "m.twa"], capture_output=True, text=True, check=True
    )
    loaded, ran = map(int, done.stdout.split())
    assert loaded < 8 << 20, "loading reads no weights"
    assert ran > plan["constant_bytes"] // 2, "they are paged in when they are used"
    assert ran <= plan["constant_bytes"] + 1.3 * plan["arena_bytes"] + (30 << 20)
