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

x_count, y_count = map(int, sys.argv[3:])
x, x_start = array(x_count)
y, y_start = array(y_count)
before = resident()
executable = P()
assert library.tw_load(sys.argv[2].encode(), ctypes.byref(executable)) == 0
loaded = resident()
for _ in range(3):
    size_in, size_out = ctypes.c_size_t(x_count * 4), ctypes.c_size_t(y_count * 4)
    pointers = P(x_start), P(y_start)
    status = library.tw_run(executable, ctypes.byref(pointers[0]), ctypes.byref(size_in),
                            ctypes.byref(pointers[1]), ctypes.byref(size_out))
    assert status == 0
print(loaded - before, resident() - before)
"""


pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="the C library is not built")


def resident_after_load_and_run(model, x_count, y_count, folder):
    """What both added, and the plan."""
    executable = tw.compile(tw.load(model))
    executable.save(folder / "m.twa")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, LIBRARY, folder / "m.twa", str(x_count), str(y_count)],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded, ran = map(int, done.stdout.split())
    return loaded, ran, executable.describe()


def test_weights_are_resident_once(tmp_path):
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((4096, 4096), np.float32), "v": rng.standard_normal((4096, 2048), np.float32)}
    nodes = [("MatMul", ["x", "w"], ["a"]), ("Relu", ["a"], ["b"]), ("MatMul", ["b", "v"], ["y"])]
    model = model_of(nodes, [value("x", [1, 4096])], [value("y", [1, 2048])], weights)
    loaded, ran, plan = resident_after_load_and_run(model, 4096, 2048, tmp_path)
    assert loaded < 8 << 20, "loading reads no weights"
    assert ran > plan["constant_bytes"] // 2, "they are paged in when they are used"
    assert ran <= plan["constant_bytes"] + 1.3 * plan["arena_bytes"] + (30 << 20)


def test_deep_convolutions_stay_near_the_size_of_their_weights(tmp_path):
    """Winograd's larger weights are for layers with few of them."""
    rng = np.random.default_rng(0)
    layers = [(256, 14)] * 5 + [(512, 7)] * 2
    weights, nodes, last = {}, [], "x"
    for i, (channels, size) in enumerate(layers):
        if i and size != layers[i - 1][1]:
            nodes += [("MaxPool", [last], ["p"], {"kernel_shape": [2, 2], "strides": [2, 2]})]
            nodes += [("Concat", ["p", "p"], ["q"], {"axis": 1})]
            last = "q"
        weights[f"w{i}"] = rng.standard_normal((channels, channels, 3, 3), np.float32) / np.float32(48)
        nodes += [("Conv", [last, f"w{i}"], [f"c{i}"], {"pads": [1, 1, 1, 1]}), ("Relu", [f"c{i}"], [f"r{i}"])]
        last = f"r{i}"
    original = sum(w.nbytes for w in weights.values())
    model = model_of(nodes, [value("x", [1, 256, 14, 14])], [value(last, [1, 512, 7, 7])], weights)
    _, ran, plan = resident_after_load_and_run(model, 256 * 14 * 14, 512 * 7 * 7, tmp_path)
    assert ran <= original + 1.3 * plan["arena_bytes"] + (30 << 20)
