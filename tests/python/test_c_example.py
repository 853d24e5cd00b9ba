"""The example in C, by the very lines that it says."""

import re
import shlex
import subprocess

import numpy as np
import onnx

from conftest import ROOT, model_of, run_tw, value


def test_it_is_built_and_run_as_it_says(tmp_path):
    text = (ROOT / "examples/c/run_artifact.c").read_text()
    build, compile_, run = re.findall(r"^ \*   (\S.*)$", text, re.MULTILINE)
    for name in ("examples", "runtime", "build"):  # the project's folder, in which nothing is to be left
        (tmp_path / name).symlink_to(ROOT / name)
    subprocess.run(["sh", "-c", build], cwd=tmp_path, check=True)
    onnx.save(
        model_of([("Add", ["x", "b"], ["y"])], [value("x", [2, 3])], [value("y", [2, 3])], {"b": np.float32(1.5)}),
        tmp_path / "model.onnx",
    )
    assert compile_.startswith("./dev run tw ")
    assert run_tw(*shlex.split(compile_)[3:], cwd=tmp_path).returncode == 0
    done = subprocess.run(["sh", "-c", run], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "2.5" in done.stdout, done.stdout + done.stderr
