"""Folders for boards: complete by themselves, and they run where they were compiled for, here under an emulator."""

import shutil
import subprocess

import numpy as np
import onnx
import pytest

import tilewright as tw
from conftest import model_of, put_on_board, run_tw, small_network, value

TARGETS = {
    "x86:sse4": ("qemu-x86_64", "x86_64-linux-gnu", "/"),
    "rpi4": ("qemu-aarch64", "aarch64-linux-gnu", "/usr/aarch64-linux-gnu"),
    "armv7": ("qemu-arm", "arm-linux-gnueabihf", "/usr/arm-linux-gnueabihf"),
}


def shell(command, folder):
    return subprocess.run(["sh", "-c", str(command)], cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("target", TARGETS)
def test_a_folder_runs_after_it_was_copied(target, tmp_path):
    emulator, triple, libraries = TARGETS[target]
    onnx.save(small_network(), tmp_path / "net.onnx")
    made = run_tw("deploy", tmp_path / "net.onnx", "--target", target, "-o", tmp_path / "made")
    assert made.returncode == 0 and "./check.sh" in made.stdout, made.stderr
    folder = put_on_board(shutil.move(tmp_path / "made", tmp_path / "copied to"), emulator)
    checked = shell("./check.sh --threads 2", folder)
    assert checked.returncode == 0 and "y f32[1,10]: as expected" in checked.stdout, checked.stdout + checked.stderr

    # With another answer it says so.
    answer = np.load(folder / "expected" / "y.npy")
    np.save(folder / "expected" / "y.npy", answer + 0.5 * np.abs(answer).max())
    checked = shell("./check.sh", folder)
    assert checked.returncode == 1 and "NOT as expected" in checked.stdout, checked.stdout + checked.stderr
    assert shell("./check.sh --tolerance 1", folder).returncode == 0

    # The example in C, with the shared library and with the static one.
    for goal in ("run_artifact", "static"):
        built = shell(f"make -B {goal} CC='clang-22 --target={triple} -fuse-ld=lld-22'", folder / "example")
        assert built.returncode == 0, built.stderr
        ran = shell(f"{emulator} -L {libraries} ./run_artifact ../model.twa", folder / "example")
        assert ran.returncode == 0 and "output y f32[1,10]" in ran.stdout, ran.stderr

    text = (folder / "README.md").read_text()
    assert "# net\n" in text and f"compiled for {target}" in text and "- input `x`: `f32[1,3,16,16]`" in text
    for name in (path.name for path in folder.iterdir() if path.name != "tw-run.static"):
        assert name in text or name == "README.md", name


def test_pkg_config_and_cmake_find_the_library(tmp_path):
    folder = tw.deploy(tw.compile(tw.load(small_network())), tmp_path / "folder")
    source = folder / "example" / "run_artifact.c"
    flags = f"PKG_CONFIG_PATH='{folder}/lib/pkgconfig' pkg-config tilewright"
    built = shell(
        f"clang-22 {source} $({flags} --cflags --libs) -Wl,-rpath,'{folder}/lib' -o by_pkg_config && "
        f"./by_pkg_config {folder}/model.twa",
        tmp_path,
    )
    assert built.returncode == 0 and "output y" in built.stdout, built.stderr
    assert shell(f"{flags} --modversion", tmp_path).stdout.strip() == tw.__version__
    assert "-lstdc++" in shell(f"{flags} --static --libs", tmp_path).stdout

    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(user C)\nfind_package(tilewright REQUIRED)\n"
        f"add_executable(shared {source})\ntarget_link_libraries(shared tilewright::runtime)\n"
        f"add_executable(whole {source})\ntarget_link_libraries(whole tilewright::runtime_static)\n"
    )
    built = shell(
        f"cmake -G Ninja -B b -DCMAKE_C_COMPILER=clang-22 -DCMAKE_PREFIX_PATH='{folder}' && ninja -C b && "
        f"b/shared {folder}/model.twa && b/whole {folder}/model.twa",
        tmp_path,
    )
    assert built.returncode == 0 and built.stdout.count("output y") == 2, built.stdout + built.stderr


def test_what_a_model_has_comes_along(tmp_path):
    """Open dimensions, names with slashes, quotes and spaces, 16 bits, and inputs of one's own."""
    weight = np.random.default_rng(0).standard_normal((24, 16)).astype(np.float32)
    model = model_of(
        [("MatMul", ["/in 'a'", "w"], ["/h:0"]), ("Relu", ["/h:0"], ["out/b c"])],
        [value("/in 'a'", ["rows", 24])],
        [value("out/b c", ["rows", 16])],
        {"w": weight},
    )
    network = tw.load(model, shapes={"/in 'a'": (tw.Dim("rows", 1, 64), 24)})
    executable = tw.compile(network, precision="f16")
    x = np.random.default_rng(1).standard_normal((5, 24)).astype(np.float32)
    folder = tw.deploy(executable, tmp_path / "f", {"/in 'a'": x})
    checked = shell("./check.sh", folder)
    assert checked.returncode == 0 and "out/b c f32[5,16]: as expected" in checked.stdout, checked.stderr
    assert "--tolerance 0.002" in (folder / "check.sh").read_text()
    assert "`rows` is any size from 1 to 64" in (folder / "README.md").read_text()
    # One's own expectation, and one's own tolerance.
    tw.deploy(executable, tmp_path / "f", {"/in 'a'": x}, {"out/b c": np.maximum(x @ weight, 0) + 1}, tolerance=1e-3)
    assert shell("./check.sh", folder).returncode == 1


def test_an_artifact_has_nothing_to_be_compared_with(tmp_path):
    onnx.save(small_network(), tmp_path / "net.onnx")
    assert run_tw("compile", "net.onnx", "-t", "x86:sse4", cwd=tmp_path).returncode == 0
    made = run_tw("deploy", "net.twa", "-o", "folder", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert not (tmp_path / "folder" / "expected").exists()
    checked = shell("./check.sh", tmp_path / "folder")
    assert checked.returncode == 0 and "expected" not in checked.stdout, checked.stderr
    refused = run_tw("deploy", "net.twa", "-t", "rpi4", "-o", "folder", cwd=tmp_path)
    assert refused.returncode == 2 and "cannot change it: --target" in refused.stderr


def test_what_cannot_be_deployed_is_refused(tmp_path, network):
    own = tw.Operator("my", "Twice", types=lambda x: x, function=lambda x: [2 * x])
    model = model_of([("Twice", ["x"], ["y"], {"domain": "my"})], [value("x", [4])], [value("y", [4])])
    with pytest.raises(tw.Error, match=r"TW1102.*my\.Twice.*\n.*libr"):
        tw.deploy(tw.compile(tw.load(model, operators=[own])), tmp_path / "f")
    executable = tw.compile(network)
    with pytest.raises(tw.Error, match="TW1101.*expected has no"):
        tw.deploy(executable, tmp_path / "f", expected={})
    with pytest.raises(tw.Error, match="TW1101.*missing"):
        tw.deploy(executable, tmp_path / "f", {"wrong": np.zeros(3)})
    (tmp_path / "file").write_text("")
    with pytest.raises(tw.Error, match="TW1001.*file"):
        tw.deploy(executable, tmp_path / "file")
    with pytest.raises(tw.Error, match="TW1001.*no path"):
        tw.deploy(executable, 3)


def test_a_package_without_the_runtime_says_which_it_has(tmp_path, network, monkeypatch):
    from tilewright import deploying

    (tmp_path / "boards" / "aarch64").mkdir(parents=True)
    shutil.copy(deploying.BOARDS / "aarch64" / "tw-run", tmp_path / "boards" / "aarch64")
    monkeypatch.setattr(deploying, "BOARDS", tmp_path / "boards")
    with pytest.raises(tw.Error, match="TW1202 there is no runtime for arm in this package\nhelp: it has aarch64"):
        tw.deploy(tw.compile(network, target="armv7"), tmp_path / "f")
