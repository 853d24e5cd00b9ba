"""Compiles a model for AArch64 and runs it under qemu, as it would run on a board."""

import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tilewright as tw

RUNNER = Path(__file__).resolve().parents[1] / "build/boards/aarch64/tw-run"


@dataclass
class Answer:
    output: np.ndarray
    compile_seconds: float
    run_seconds: float
    artifact_bytes: int


def run(model: tw.Model, x: np.ndarray, target: str = "aarch64") -> Answer:
    """The model's one output for its one input `x`."""
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if emulator is None:
        raise SystemExit("qemu-aarch64 is missing: ./dev setup installs it (package qemu-user)")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        start = time.perf_counter()
        executable = tw.compile(model, target=target)
        executable.save(folder / "model.twa")
        compiled = time.perf_counter()
        np.save(folder / "x.npy", x)
        command = [emulator, RUNNER, folder / "model.twa", "--input", f"x={folder / 'x.npy'}", "--output-dir", folder]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"tw-run failed under qemu: {done.stderr or done.stdout}")
        (name,) = executable.outputs
        output = np.load(folder / f"{name.replace('/', '_').replace(':', '_')}.npy")
        size = (folder / "model.twa").stat().st_size
        return Answer(output, compiled - start, time.perf_counter() - compiled, size)
