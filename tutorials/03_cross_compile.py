"""Tutorial 03: compile for a board, and run it under an emulator.

    ./dev run python tutorials/03_cross_compile.py

The artifact holds code, plan and weights; on the board, `tw-run` or the C library loads it.  No compiler, no Python and
no toolchain is needed there, nor a cross toolchain here.  `tw deploy` makes the folder of step 3 from the shell.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw

folder = Path(tempfile.mkdtemp())
rng = np.random.default_rng(0)

# 1. A small network. ----------------------------------------

w1 = (rng.standard_normal((16, 3, 3, 3)) / 5).astype(np.float32)
w2 = (rng.standard_normal((10, 16)) / 4).astype(np.float32)
graph = helper.make_graph(
    [
        helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["c"]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("Gemm", ["d", "w2"], ["e"], transB=1),
        helper.make_node("Softmax", ["e"], ["y"], axis=-1),
    ],
    "board",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 32, 32])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
    initializer=[numpy_helper.from_array(w1, "w1"), numpy_helper.from_array(w2, "w2")],
)
model = tw.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
x = rng.standard_normal((1, 3, 32, 32)).astype(np.float32)
here = tw.compile(model).run({"x": x})["y"]

# 2. Compile it for a board. ----------------------------------------
# `tw doctor` lists the targets; "rpi4" is a Raspberry Pi 4, "armv7" any 32-bit one with NEON.

for target, emulator in (("rpi4", "qemu-aarch64"), ("armv7", "qemu-arm")):
    executable = tw.compile(model, target=target)
    artifact = folder / f"{target}.twa"
    executable.save(artifact)
    plan = executable.describe()
    print(f"{target}: {artifact.stat().st_size / 1e3:.0f} kB, {len(plan['steps'])} kernels, needs {plan['features']}")

    # It cannot run here, and says so instead of dying of an illegal instruction.
    try:
        tw.load_executable(artifact).run({"x": x})
    except tw.Error as error:
        print(f"  here: {str(error).splitlines()[0]}")

    # 3. Run it. ----------------------------------------
    # The folder is all that the board needs: copy it there and run ./check.sh.  Here tw-run is started under qemu.

    board = tw.deploy(executable, folder / f"{target}_board", {"x": x}, {"y": here})
    if not shutil.which(emulator):
        raise SystemExit(f"{emulator} is missing: ./dev setup installs qemu-user")
    options = ["--input", "x=inputs/x.npy", "--expect", "expected", "--output-dir", "."]
    done = subprocess.run([emulator, "./tw-run", "model.twa", *options], cwd=board, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    there = np.load(board / "y.npy")
    print(f"  {done.stdout.strip()}")
    print(f"  largest difference from this CPU: {np.abs(there - here).max():.1e}\n")
    np.testing.assert_allclose(there, here, atol=1e-5)
