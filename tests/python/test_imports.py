"""Tilewright beside other frameworks in one process, in any order."""

import importlib.util
import itertools
import re
import subprocess
import sys

import pytest

from conftest import small_network

NEIGHBOURS = [name for name in ("onnx", "onnxruntime", "openvino", "torch") if importlib.util.find_spec(name)]

WORK = """
import sys
import numpy as np
path = sys.argv[1]
x = np.ones((1, 3, 16, 16), np.float32)

def use_tilewright():
    import tilewright as tw
    return tw.compile(tw.load(path), threads=2)(x)[0]

def use_onnx():
    import onnx
    onnx.checker.check_model(path, full_check=True)

def use_onnxruntime():
    import onnxruntime
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]

def use_openvino():
    import openvino
    return openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})([x])[0]

def use_torch():
    import torch
    torch.nn.functional.conv2d(torch.ones(1, 3, 16, 16), torch.ones(8, 3, 3, 3))

answers = [globals()["use_" + name]() for name in sys.argv[2:] * 2]
answers = [a for a in answers if a is not None]
assert len(answers) >= 2
for a in answers:
    np.testing.assert_allclose(a, answers[0], atol=1e-5)
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("imports") / "model.onnx"
    path.write_bytes(small_network().SerializeToString())
    return path


def orders():
    """Each neighbour before and after, and every order of a few."""
    for name in NEIGHBOURS:
        yield from ((name, "tilewright"), ("tilewright", name))
    yield from itertools.permutations(["tilewright", *[n for n in ("onnx", "onnxruntime") if n in NEIGHBOURS]])
    yield ("tilewright", *NEIGHBOURS)
    yield (*NEIGHBOURS, "tilewright")


@pytest.mark.parametrize("order", sorted(set(orders())), ids="-".join)
def test_any_order_of_imports(order, path):
    done = subprocess.run([sys.executable, "-c", WORK, path, *order], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


def test_no_symbol_leaves_the_module():
    import tilewright as tw

    done = subprocess.run(["nm", "-D", "--defined-only", tw._core.__file__], capture_output=True, text=True, check=True)
    symbols = [line.split()[-1] for line in done.stdout.splitlines()]
    assert symbols == ["PyInit__core"]


def test_the_module_needs_only_libraries_of_every_system():
    import tilewright as tw

    done = subprocess.run(["readelf", "-d", tw._core.__file__], capture_output=True, text=True, check=True)
    needed = set(re.findall(r"\(NEEDED\).*\[([^\]]+?)\.so", done.stdout))
    assert "libc" in needed
    system = {"libc", "libm", "libstdc++", "libgcc_s", "libz", "libzstd", "ld-linux-x86-64"}
    assert needed <= system | {"libxgboost"}  # which a wheel carries beside the module


def test_importing_is_light():
    code = "import sys, tilewright; print([m for m in ('rich', 'typer', 'onnx', 'torch') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
