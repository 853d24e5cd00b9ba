"""The package as it is installed: complete by itself, where there is neither a compiler nor LLVM."""

import os
import stat
import subprocess
import sys
import sysconfig

import numpy as np
import onnx
import pytest

from conftest import ROOT, model_of, value

SCRIPT = """
import os, sys
import numpy as np
import tilewright as tw

assert tw.__file__.startswith(sys.argv[1]), tw.__file__
x = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
executable = tw.compile(sys.argv[2])
np.testing.assert_allclose(executable.run({"x": x})["y"], 2 * x.sum(1, keepdims=True) + np.zeros((64, 96)), atol=1e-3)
tw.compile(sys.argv[2], target="rpi4").save("board.twa")  # for another machine
report = tw.tune(sys.argv[2], db="tune.db", budget="1s", threads=1)  # by the program that measures
assert report.tasks == 1 and not report.skipped, report
print("done")
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = ["cmake", "--install", ROOT / "build", "--component", "python", "--prefix", folder]
    subprocess.run(command, check=True, capture_output=True)
    # What scikit-build-core takes besides: the sources of the package.
    for source in (ROOT / "python" / "tilewright").iterdir():
        if source.suffix in (".py", ".typed"):
            (folder / "tilewright" / source.name).write_bytes(source.read_bytes())
    return folder


def test_it_has_the_notices_of_what_is_in_it(site):
    licenses = {path.name for path in (site / "tilewright" / "licenses").iterdir()}
    wanted = {"Apache-2.0", "llvm-22-dev", "liblld-22-dev", "libxgboost0", "libdmlc0", "libgomp1", "libsqlite3-dev",
              "libprotozero-dev", "libxxhash-dev", "nlohmann-json3-dev", "pybind11"}  # fmt: skip
    assert licenses == {f"{name}.txt" for name in wanted}
    for path in (site / "tilewright" / "licenses").iterdir():
        assert "opyright" in path.read_text(errors="replace"), path.name
    text = (ROOT / "pyproject.toml").read_text()
    assert 'license = "Apache-2.0"' in text and "Apache License, Version 2.0" in (ROOT / "LICENSE").read_text()
    assert (site / "tilewright" / "tw-measure").stat().st_mode & stat.S_IXUSR


def test_it_works_without_a_compiler_on_the_path(site, tmp_path):
    weight = np.full((128, 96), 2, np.float32)
    model = model_of([("MatMul", ["x", "w"], ["y"])], [value("x", [64, 128])], [value("y", [64, 96])], {"w": weight})
    onnx.save(model, tmp_path / "m.onnx")
    (tmp_path / "bin").mkdir()  # with nothing in it
    path = [str(site), sysconfig.get_path("purelib")]
    environment = {"PATH": str(tmp_path / "bin"), "PYTHONPATH": os.pathsep.join(path), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(site), "m.onnx"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr
