"""Arrays in the GPU's memory: in the emulator everywhere, and on the GPU where there is one.

pytest tests/python/test_device_arrays.py -k gpu -rs
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright as tw
from conftest import ROOT, model_of, run_tw, small_network, value
from tilewright import machine

CASES = ROOT / "tests/python/device_array_cases.py"
EMULATOR = ROOT / "build/tests/cuda_emulator"


def open_sum():
    nodes = [("Add", ["a", "b"], ["c"]), ("Tanh", ["c"], ["y"])]
    return model_of(nodes, [value("a", ["rows", 8]), value("b", ["rows", 8])], [value("y", ["rows", 8])])


def computed_rows():
    return model_of([("NonZero", ["x"], ["y"])], [value("x", [4, 5])], [value("y", [2, "n"], onnx.TensorProto.INT64)])


@pytest.fixture(scope="module", params=["emulated", "gpu"])
def device(request, tmp_path_factory):
    """The environment in which there is one, and a folder with artifacts for it."""
    env, target = os.environ | dict.fromkeys(("CUDA_HOME", "LD_LIBRARY_PATH"), str(EMULATOR)), "cuda:sm_90"
    if request.param == "gpu":
        found = machine.cuda()
        for problem in ("device_problem", "compiler_problem"):
            if found[problem]:
                pytest.skip(found[problem])
        compiler = Path(found["compiler"].split(" from ")[1])
        env, target = os.environ | {"CUDA_HOME": str(compiler.parent)}, f"cuda:sm_{found['devices'][0][1]}"
    folder = tmp_path_factory.mktemp(request.param)
    for name, model in {"net": small_network(), "sum": open_sum(), "rows": computed_rows()}.items():
        onnx.save(model, folder / f"{name}.onnx")
        done = run_tw("compile", folder / f"{name}.onnx", "--target", target, "-o", folder / f"{name}.twa", env=env)
        assert done.returncode == 0, done.stderr
    tw.compile(tw.load(small_network())).save(folder / "cpu.twa")
    return env, folder


@pytest.mark.parametrize("case", re.findall(r"^def (case_\w+)", CASES.read_text(), re.MULTILINE))
def test_case(device, case):
    env, folder = device
    done = subprocess.run([sys.executable, CASES, folder, case], env=env, capture_output=True, text=True)
    if done.returncode == 77:  # device_array_cases.SKIPPED
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stderr[-3000:]


def test_without_a_gpu_it_is_said(executable, x):
    if not machine.cuda()["device_problem"]:
        pytest.skip("there is one")
    with pytest.raises(tw.Error, match="TW1501 there is no NVIDIA driver"):
        tw.to_device(np.zeros(3))
    with pytest.raises(tw.Error, match="TW1101 streams and outputs on the device are for GPUs"):
        executable(x, stream=0)


def test_commands_run_on_other_gpus(tmp_path):
    env = os.environ | dict.fromkeys(("CUDA_HOME", "LD_LIBRARY_PATH"), str(EMULATOR))
    env |= {"CUDA_EMULATOR_CAPABILITY": "90,120"}
    model, artifact = tmp_path / "net.onnx", tmp_path / "net.twa"
    onnx.save(small_network(), model)
    assert run_tw("compile", model, "-t", "cuda:1", "-o", artifact, env=env).returncode == 0
    assert tw._core.inspect_artifact(str(artifact))["target"] == "cuda:sm_120"
    for arguments in (("bench", artifact, "--gpu", 1, "--seconds", 0.1), ("run", model, "-t", "cuda:1")):
        done = run_tw(*arguments, env=env)
        assert done.returncode == 0, done.stderr
    for arguments, text in (
        (("run", artifact), "built for cuda:sm_120, which Emulated GPU, sm_90, does not run"),
        (("run", artifact, "--gpu", 2), "there is no GPU 2: the driver has 2"),
        (("run", model, "-t", "cuda:2"), "are the machine's GPUs: it has no GPU 2"),
        (("run", model, "--gpu", 1), "a GPU is chosen for a model that was compiled for x86"),
        (("tune", model, "-t", "cuda:1", "--db", tmp_path / "t.db"), "tuning measures on GPU 0"),
    ):
        done = run_tw(*arguments, env=env)
        assert done.returncode != 0 and text in " ".join(done.stderr.split()), (arguments, done.stderr)
