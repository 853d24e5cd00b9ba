"""The command line: what it prints, and what it says to mistakes."""

import subprocess
import sys

import numpy as np
import onnx
import pytest

import tilewright as tw
from conftest import model_of, reference, run_tw, value


@pytest.fixture(scope="module")
def path(network, tmp_path_factory):
    path = tmp_path_factory.mktemp("cli") / "model.onnx"
    onnx.save(network, path)
    return path


@pytest.fixture(scope="module")
def artifact(path):
    target = path.with_suffix(".twa")
    done = run_tw("compile", path, "-o", target)
    assert done.returncode == 0, done.stderr
    assert "kernels" in done.stdout
    return target


def test_doctor_shows_the_machine():
    done = run_tw("doctor")
    assert done.returncode == 0, done.stderr
    for word in ("CPU", "GFLOP/s", "GB/s", "targets", "aarch64"):
        assert word in done.stdout


def test_explain_shows_the_operators(path):
    done = run_tw("explain", path)
    assert done.returncode == 0, done.stderr
    assert "Conv" in done.stdout


def test_explain_works_on_models_that_are_not_supported(tmp_path):
    onnx.save(model_of([("Frobnicate", ["x"], ["y"])], [value("x", [2])], [value("y", [2])]), tmp_path / "m.onnx")
    done = run_tw("explain", tmp_path / "m.onnx")
    assert done.returncode == 0, done.stderr
    assert "Frobnicate" in done.stdout


def test_run_gives_the_outputs(path, artifact, network, tmp_path, x):
    np.save(tmp_path / "x.npy", x)
    for model in (path, artifact):
        done = run_tw("run", model, "-i", f"x={tmp_path / 'x.npy'}", "-o", tmp_path / "out.npz", "-j", 2)
        assert done.returncode == 0, done.stderr
        assert "float32[1, 10]" in done.stdout
        np.testing.assert_allclose(np.load(tmp_path / "out.npz")["y"], reference(network, {"x": x})[0], atol=1e-5)


def test_run_makes_inputs_up_and_says_so(artifact):
    done = run_tw("run", artifact)
    assert done.returncode == 0 and "random" in done.stderr


def test_bench_prints_latency_and_kernels(artifact):
    done = run_tw("bench", artifact, "--kernels", "--seconds", "0.2")
    assert done.returncode == 0, done.stderr
    for word in ("median", "GFLOP/s", "of the measured peak", "share", "timed alone"):
        assert word in done.stdout


def test_inspect_shows_artifacts_of_any_machine(path, artifact, tmp_path):
    done = run_tw("inspect", artifact)
    assert done.returncode == 0 and "f32[1,3,16,16]" in done.stdout
    board = tmp_path / "board.twa"
    assert run_tw("compile", path, "--target", "aarch64", "-o", board).returncode == 0
    done = run_tw("inspect", board)
    assert done.returncode == 0 and "aarch64" in done.stdout


def test_inspect_prints_the_graph(path):
    done = run_tw("inspect", path, "--text")
    assert done.returncode == 0 and "conv" in done.stdout.lower()


def test_shapes_on_the_command_line(tmp_path):
    onnx.save(model_of([("Relu", ["x"], ["y"])], [value("x", ["n", 3])], [value("y", ["n", 3])]), tmp_path / "m.onnx")
    done = run_tw("run", tmp_path / "m.onnx", "--shape", "x=4,3")
    assert done.returncode == 0 and "[4, 3]" in done.stdout


MISTAKES = {
    "no_file": (["run", "nothing.onnx"], "TW1001"),
    "no_artifact": (["run", "nothing.twa"], "TW1001"),
    "explain_no_file": (["explain", "nothing.onnx"], "TW1001"),
    "not_a_model": (["compile", "garbage.onnx"], "TW1002"),
    "not_an_artifact": (["inspect", "garbage.twa"], "TW1201"),
    "unknown_target": (["compile", "model.onnx", "--target", "z80"], "TW1301"),
    "precision": (["compile", "model.onnx", "--precision", "int8"], "TW1003"),
    "threads": (["run", "model.onnx", "-j", "0"], "TW1301"),
    "shape_syntax": (["run", "model.onnx", "--shape", "x=abc"], "TW1004"),
    "shape_dimension": (["run", "model.onnx", "--shape", "x=n:3..1,3,16,16"], "TW1004"),
    "size_name": (["run", "open.onnx", "--size", "m=4"], "TW1101"),
    "shape_name": (["run", "model.onnx", "--shape", "typo=1,3"], "TW1004"),
    "open_dimension": (["run", "open.onnx", "--size", "n=0"], "TW1101"),
    "unsupported": (["compile", "unsupported.onnx"], "TW1003"),
    "no_input_file": (["run", "model.onnx", "-i", "x=nothing.npy"], "TW1001"),
    "input_no_array": (["run", "model.onnx", "-i", "x=garbage.twa"], "TW1001"),
    "input_without_name": (["run", "model.onnx", "-i", "two.npy"], "TW1101"),
    "input_of_wrong_shape": (["run", "model.onnx", "-i", "x=two.npy"], "TW1101"),
    "input_of_wrong_name": (["run", "model.onnx", "-i", "y=two.npy"], "TW1101"),
    "artifact_is_compiled": (["compile", "model.twa", "-t", "rpi4", "--precision", "bf16", "-o", "z.twa"], "TW1101"),
    "artifact_is_not_explained": (["explain", "model.twa"], "TW1002"),
    "artifact_is_not_tuned": (["tune", "model.twa", "--db", "t.db"], "TW1002"),
    "tune_without_database": (["tune", "model.onnx"], "TW1101"),
    "output_folder": (["compile", "model.onnx", "-o", "no/such/folder/m.twa"], "TW1001"),
    "output_npz_folder": (["run", "model.onnx", "-o", "no/such/folder/m.npz"], "TW1001"),
}


@pytest.fixture(scope="module")
def folder(network, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mistakes")
    onnx.save(network, folder / "model.onnx")
    onnx.save(model_of([("Relu", ["x"], ["y"])], [value("x", ["n"])], [value("y", ["n"])]), folder / "open.onnx")
    onnx.save(model_of([("Frob", ["x"], ["y"])], [value("x", [2])], [value("y", [2])]), folder / "unsupported.onnx")
    tw.compile(network).save(folder / "model.twa")
    (folder / "garbage.onnx").write_bytes(b"garbage " * 100)
    (folder / "garbage.twa").write_bytes(b"garbage " * 100)
    np.save(folder / "two.npy", np.zeros((1, 2), np.float32))
    return folder


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_ends_with_2_and_its_code(name, folder):
    arguments, code = MISTAKES[name]
    done = run_tw(*arguments, cwd=folder)
    assert done.returncode == 2, done.stdout + done.stderr
    assert code in done.stderr and code not in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--precision", "bf16"],
        ["--precision", "f32"],
        ["--target", "rpi4"],
        ["--shape", "x=1,3,16,16", "--db", "nosuch.db"],
        ["--no-winograd", "--no-strassen", "--in-place", "y=x"],
        ["--profile", "n=1", "--specialise", "--fallback", "onnxruntime"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("command", ["run", "bench"])
def test_options_that_an_artifact_cannot_take_are_refused_by_name(command, options, folder):
    done = run_tw(command, "model.twa", *options, cwd=folder)
    assert done.returncode == 2 and done.stderr.startswith("TW1101")
    for option in options:
        if option.startswith("--"):
            assert option.replace("no-", "") in done.stderr
    assert run_tw("run", "model.twa", "-j", "1", cwd=folder).returncode == 0


def test_version_and_short_help(folder):
    assert run_tw("--version").stdout == f"tilewright {tw.__version__}\n"
    for arguments in (["-h"], ["compile", "-h"]):
        done = run_tw(*arguments)
        assert done.returncode == 0 and "Usage: tw" in done.stdout
    for command in ("explain", "tune", "compile"):
        assert "or a .twa" not in run_tw(command, "-h").stdout


@pytest.mark.parametrize(
    "arguments", [["frobnicate"], ["run"], ["run", "model.onnx", "--frob"], ["bench", "-j", "two", "m"]]
)
def test_wrong_usage_ends_with_2(arguments, folder):
    done = run_tw(*arguments, cwd=folder)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_help_imports_no_compiler():
    """Which takes longer than all that help needs."""
    script = """if True:
        import contextlib, io, sys
        sys.argv = ["tw", "compile", "--help"]
        from tilewright.cli import main
        with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
            main()
        print([name for name in ("numpy", "tilewright._core", "tilewright.executable") if name in sys.modules])
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stdout + done.stderr


def test_all_that_the_package_offers_is_there():
    for name in tw.__all__:
        value = getattr(tw, name)
        assert not isinstance(value, type(tw)) or name == "te", name  # no module in a function's place
    assert set(tw.__all__) <= set(dir(tw))
    with pytest.raises(AttributeError, match="frobnicate"):
        tw.frobnicate  # noqa: B018
