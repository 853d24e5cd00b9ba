"""Profilers find names for compiled kernels: TW_PERF_MAP=1 writes /tmp/perf-PID.map."""

import os
import re
import subprocess
import sys
from pathlib import Path

import onnx

from conftest import small_network

SCRIPT = """
import os, sys
import tilewright as tw
executable = tw.compile(sys.argv[1], threads=1)
print(os.getpid(), *[step["kernel"] for step in executable.describe()["steps"] if step["kernel"]], flush=True)
for line in open("/proc/self/maps"):
    if "x" in line.split()[1] and len(line.split()) == 5:
        print(line.split()[0])
"""


def run(tmp_path, setting):
    onnx.save(small_network(), tmp_path / "net.onnx")
    environment = {name: value for name, value in os.environ.items() if name != "TW_PERF_MAP"}
    command = [sys.executable, "-c", SCRIPT, tmp_path / "net.onnx"]
    done = subprocess.run(command, env={**environment, **setting}, capture_output=True, text=True, check=True)
    (process, *kernels), *ranges = (line.split() for line in done.stdout.splitlines())
    return Path(f"/tmp/perf-{process}.map"), kernels, [[int(end, 16) for end in text.split("-")] for (text,) in ranges]


def test_every_kernel_has_its_place_and_its_name(tmp_path):
    path, kernels, mapped = run(tmp_path, {"TW_PERF_MAP": "1"})
    try:
        text = path.read_text()
    finally:
        path.unlink()
    lines = [re.fullmatch(r"([0-9a-f]+) ([0-9a-f]+) (\S+)", line).groups() for line in text.splitlines()]
    assert set(kernels) <= {name for _, _, name in lines} and kernels
    for start, size, name in lines:
        begin, end = int(start, 16), int(start, 16) + int(size, 16)
        assert begin < end and any(low <= begin and end <= high for low, high in mapped), name


def test_nothing_is_written_unless_it_is_asked_for(tmp_path):
    path, _, _ = run(tmp_path, {})
    assert not path.exists()
