"""Small ONNX models for the tests."""

import fcntl
import functools
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw

# What one run of the tests has compiled, no other finds; test_compile_cache.py says otherwise for itself.
os.environ["TW_CACHE"] = "off"

ROOT = Path(__file__).resolve().parents[2]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def pytest_configure(config):
    # Kernels for GPUs are made by the compiler that is pinned: a process keeps the first one that it opens.  Processes
    # that tests start say by themselves which they want.
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        os.environ.pop(variable, None)


def value(name, shape, dtype=FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model_of(nodes, inputs, outputs, initializers=(), opset=17, check=False) -> onnx.ModelProto:
    """A model from nodes like ("Relu", ["x"], ["y"], {attributes}); arrays in a dict become initializers."""
    made = [helper.make_node(op, i, o, **(rest[0] if rest else {})) for op, i, o, *rest in nodes]
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in dict(initializers).items()]
    graph = helper.make_graph(made, "g", list(inputs), list(outputs), initializer=tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    if check:
        onnx.checker.check_model(model, full_check=True)
    return model


def attention_model(batch, heads, queries, keys, size, mask, kind) -> onnx.ModelProto:
    """softmax(q kᵀ / √size + m) v, as exporters write it."""
    inputs = {"q": [batch, heads, queries, size], "k": [batch, heads, keys, size], "v": [batch, heads, keys, size]}
    scale = np.array(size**-0.5, helper.tensor_dtype_to_np_dtype(kind))
    nodes = [("Transpose", ["k"], ["l"], {"perm": [0, 1, 3, 2]}), ("MatMul", ["q", "l"], ["s"])]
    nodes += [("Mul", ["s", "c"], ["t"])]
    if mask:
        inputs["m"] = mask
        nodes.append(("Add", ["t", "m"], ["u"]))
    nodes += [("Softmax", ["u" if mask else "t"], ["p"], {"axis": -1}), ("MatMul", ["p", "v"], ["y"])]
    values = [value(name, shape, kind) for name, shape in inputs.items()]
    return model_of(nodes, values, [value("y", inputs["q"], kind)], {"c": scale})


def small_network(seed=0) -> onnx.ModelProto:
    """Convolution, pooling, a residual sum, a dense layer and a softmax; input x f32[1,3,16,16], output y f32[1,10]."""
    rng = np.random.default_rng(seed)

    def weights(*shape):
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    return model_of(
        [
            ("Conv", ["x", "w1", "b1"], ["a"], {"pads": [1, 1, 1, 1], "strides": [2, 2]}),
            ("Relu", ["a"], ["b"]),
            ("Conv", ["b", "w2"], ["c"], {"pads": [1, 1, 1, 1], "group": 8}),
            ("Add", ["c", "b"], ["d"]),
            ("GlobalAveragePool", ["d"], ["e"]),
            ("Flatten", ["e"], ["f"]),
            ("Gemm", ["f", "w3", "b3"], ["g"], {"transB": 1}),
            ("Softmax", ["g"], ["y"], {"axis": -1}),
        ],
        [value("x", [1, 3, 16, 16])],
        [value("y", [1, 10])],
        {
            "w1": weights(8, 3, 3, 3),
            "b1": weights(8),
            "w2": weights(8, 1, 3, 3),
            "w3": weights(10, 8),
            "b3": weights(10),
        },
        check=True,
    )


def reference(model: onnx.ModelProto, feed: dict) -> list[np.ndarray]:
    """The outputs that ONNX's own evaluator gives."""
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator(model).run(None, feed)


def run_tw(*arguments, env=os.environ, **options) -> subprocess.CompletedProcess:
    """The command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "tilewright", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**env, "COLUMNS": "120"},
        **options,
    )


@pytest.fixture(scope="session")
def network():
    return small_network()


@pytest.fixture(scope="session")
def executable(network):
    import tilewright as tw

    return tw.compile(tw.load(network), threads=2)


@pytest.fixture
def trials_of_a_task(monkeypatch):
    """Sets how many trials a task gets, 2 at first: what a job has tried at its end does not depend on the clock."""
    from tilewright import _core

    tune = _core.tune

    def limit(count):
        monkeypatch.setattr(_core, "tune", functools.partial(tune, most_trials=count))

    limit(2)
    return limit


@pytest.fixture
def x():
    return np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)


@dataclass(frozen=True)
class Installed:
    """The package in an environment of its own, on whose path there are neither compilers nor LLVM."""

    python: Path
    package: Path
    environment: dict[str, str]

    def run(self, *arguments, **options) -> subprocess.CompletedProcess:
        command = [str(self.python), *map(str, arguments)]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=300, **options)


def newest_wheel() -> Path:
    """`./dev wheel` makes it where it is older than a source."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    others = ("tests/", "docs/", "tutorials/", "demo/", "tools/", "setup/", ".")  # that are not in it
    packed = [ROOT / name for name in listed if name and not name.startswith(others)]
    newest = max(path.stat().st_mtime for path in packed if path.exists())
    (ROOT / "dist").mkdir(exist_ok=True)
    with open(ROOT / "dist" / ".lock", "w") as lock:  # the tests run in several processes
        fcntl.flock(lock, fcntl.LOCK_EX)
        wheels = sorted((ROOT / "dist").glob("tilewright-*.whl"), key=lambda path: path.stat().st_mtime)
        if not wheels or wheels[-1].stat().st_mtime < newest:
            subprocess.run([ROOT / "dev", "wheel"], check=True)
            wheels = list((ROOT / "dist").glob("tilewright-*.whl"))
    return max(wheels, key=lambda path: path.stat().st_mtime)


def put_on_board(folder: Path, emulator: str) -> Path:
    """Gives a folder of `tw deploy` a machine of its kind: an emulator starts its tw-run."""
    runner = folder / "tw-run"
    runner.rename(folder / "tw-run.static")
    runner.write_text(f'#!/bin/sh\nexec {emulator} ./tw-run.static "$@"\n')
    runner.chmod(0o755)
    return folder


@pytest.fixture(scope="session")
def installed(tmp_path_factory) -> Installed:
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python, "install", "--no-deps"]
    subprocess.run([*install, "--no-index", newest_wheel()], check=True, capture_output=True)
    (site,) = (folder / "venv").glob("lib/python3*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))  # numpy, rich, typer, onnx
    (folder / "bin").mkdir()
    for program in ("sh", "dirname", "qemu-x86_64", "qemu-aarch64", "qemu-arm"):
        (folder / "bin" / program).symlink_to(shutil.which(program))
    path = f"{folder / 'venv' / 'bin'}{os.pathsep}{folder / 'bin'}"
    environment = {"PATH": path, "HOME": str(folder), "TW_CACHE": "off", "COLUMNS": "120"}
    return Installed(python, site / "tilewright", environment)


def from_zero(model):
    """shapes= in which every dimension that the model leaves open may be 0."""
    dims = {i.name: i.type.tensor_type.shape.dim for i in model.graph.input}
    return {
        name: tuple(tw.Dim(d.dim_param, 0) if d.dim_param else d.dim_value for d in shape)
        for name, shape in dims.items()
        if any(d.dim_param for d in shape)
    }
