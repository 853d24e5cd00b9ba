"""The package as pip installs it from the wheel: complete by itself, where there is neither a compiler nor LLVM."""

import re
import stat

import numpy as np
import onnx
import pytest

from conftest import ROOT, model_of, newest_wheel, put_on_board, small_network, value

README_LINES = re.search(r"```python\n(import tilewright as tw\n.*?)```", (ROOT / "README.md").read_text(), re.S)[1]
SCRIPT = """
import numpy as np
import tilewright as tw

x = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
executable = tw.compile("m.onnx")
np.testing.assert_allclose(executable.run({"x": x})["y"], 2 * x.sum(1, keepdims=True) + np.zeros((64, 96)), atol=1e-3)
report = tw.tune("m.onnx", db="tune.db", budget="1s", threads=1)  # by the program that measures
assert report.tasks == 1 and not report.skipped, report
print("done")
"""
EMULATORS = {"x86:sse4": "qemu-x86_64", "rpi4": "qemu-aarch64", "armv7": "qemu-arm"}


def test_the_wheel_is_for_manylinux_and_not_larger_than_it_was():
    wheel = newest_wheel()
    assert re.fullmatch(r"tilewright-[\d.]+-cp3\d+-cp3\d+-manylinux_2_\d+_x86_64\.whl", wheel.name), wheel.name
    assert wheel.stat().st_size < 45e6


def test_it_has_the_notices_of_what_is_in_it(installed):
    licenses = {path.name for path in (installed.package / "licenses").iterdir()}
    wanted = {"Apache-2.0", "llvm-22-dev", "liblld-22-dev", "libxgboost0", "libdmlc0", "libgomp1", "libsqlite3-dev",
              "libprotozero-dev", "libxxhash-dev", "nlohmann-json3-dev", "pybind11"}  # fmt: skip
    assert licenses == {f"{name}.txt" for name in wanted}
    for path in (installed.package / "licenses").iterdir():
        assert "opyright" in path.read_text(errors="replace"), path.name
    text = (ROOT / "pyproject.toml").read_text()
    assert 'license = "Apache-2.0"' in text and "Apache License, Version 2.0" in (ROOT / "LICENSE").read_text()
    assert (installed.package / "_core.pyi").exists()
    assert (installed.package / "tw-measure").stat().st_mode & stat.S_IXUSR
    assert {path.name for path in (installed.package / "boards").iterdir()} == {"aarch64", "arm", "common", "x86_64"}


def test_it_compiles_and_tunes_without_a_compiler_on_the_path(installed, tmp_path):
    weight = np.full((128, 96), 2, np.float32)
    model = model_of([("MatMul", ["x", "w"], ["y"])], [value("x", [64, 128])], [value("y", [64, 96])], {"w": weight})
    onnx.save(model, tmp_path / "m.onnx")
    done = installed.run("-c", SCRIPT, cwd=tmp_path)
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr
    where = installed.run("-c", "import tilewright; print(tilewright.__file__)", cwd=tmp_path).stdout
    assert where.startswith(str(installed.package))


def test_the_lines_of_the_readme_do_what_they_say(installed, tmp_path):
    model = model_of([("Relu", ["x"], ["y"])], [value("x", ["n", 3, 224, 224])], [value("y", ["n", 3, 224, 224])])
    onnx.save(model, tmp_path / "model.onnx")
    before = "import numpy as np\narray = np.ones((1, 3, 224, 224), np.float32)\n"
    done = installed.run("-c", f"{before}{README_LINES}\nassert (outputs['y'] == array).all()", cwd=tmp_path)
    assert done.returncode == 0 and "Relu" in done.stdout, done.stderr
    assert (tmp_path / "model.twa").exists()


@pytest.mark.parametrize("target", EMULATORS)
def test_it_makes_folders_that_run_on_boards(installed, tmp_path, target):
    onnx.save(small_network(), tmp_path / "net.onnx")
    made = installed.run("-m", "tilewright", "deploy", "net.onnx", "--target", target, "-o", "folder", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    folder = put_on_board(tmp_path / "folder", EMULATORS[target])
    checked = installed.run("-c", "import subprocess; exit(subprocess.call('./check.sh'))", cwd=folder)
    assert checked.returncode == 0 and "as expected" in checked.stdout, checked.stderr


def test_the_command_is_there_and_imports_no_compiler_for_its_help(installed):
    tw = installed.python.with_name("tw")
    assert tw.exists() and tw.stat().st_mode & stat.S_IXUSR
    script = (
        "import sys, runpy; sys.argv[:] = ['tw', '--help']\ntry: runpy.run_module('tilewright', run_name='__main__')"
    )
    script += "\nexcept SystemExit: print([name for name in ('numpy', 'tilewright._core') if name in sys.modules])"
    done = installed.run("-c", script)
    assert done.returncode == 0 and "deploy" in done.stdout and done.stdout.endswith("[]\n"), done.stdout + done.stderr
