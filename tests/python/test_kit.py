"""Kits for GPUs: made here, run on the emulated GPU by another Python, without numpy or a compiler."""

import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest

import tilewright as tw
from conftest import ROOT, run_tw, small_network
from tilewright import gpus_tried, kit_operations, machine, te
from tilewright.kit_case import Case, shares
from tilewright.kit_runner import comparing
from tilewright.kit_runner.running import Worker

EMULATOR = ROOT / "build/tests/cuda_emulator"
ENVIRONMENT = os.environ | dict.fromkeys(("CUDA_HOME", "LD_LIBRARY_PATH"), str(EMULATOR))
CASES = (
    "operation-add-f16",
    "operation-exp-f32",
    "operation-philox-u64",
    "kernel-softmax-7x33",
    "network-*",
    "suite-*",
)


def other_python() -> str:
    """A Python that is not ours, where there is one."""
    found = [shutil.which(name) for name in ("python3.9", "python3.10", "python3.12", "python3.13")]
    for path in [*filter(None, found), "/usr/bin/python3", "/usr/local/bin/python3"]:
        version = "import sys; print(sys.version_info >= (3, 9) and sys.executable)"
        done = subprocess.run([path, "-c", version], capture_output=True, text=True) if os.path.exists(path) else None
        if done and done.returncode == 0 and Path(done.stdout.strip()).exists():
            return done.stdout.strip()
    return sys.executable


def run_kit(folder, *options):
    """Where there is nothing but the standard library (-S), and LIBRARY_PATH leads to the emulated driver."""
    command = [other_python(), "-S", folder / "kit.py", *options]
    return subprocess.run(command, env=ENVIRONMENT, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kit")
    onnx.save(small_network(), folder / "net.onnx")
    only = [part for name in CASES for part in ("--only", name)]
    made = run_tw("kit", "make", "net.onnx", "--suite", "300", *only, "-o", "made", env=ENVIRONMENT, cwd=folder)
    assert made.returncode == 0 and "kit.py" in made.stdout, made.stdout + made.stderr
    return Path(shutil.move(folder / "made", folder / "copied"))


def test_it_is_complete_and_says_what_to_do(kit):
    assert {path.name for path in kit.iterdir()} >= {
        "README.md", "kit.py", "kit_runner", "libtilewright_runtime.so", "manifest.json", "cases",
    }  # fmt: skip
    manifest = json.loads((kit / "manifest.json").read_text())
    assert {case["kind"] for case in manifest["cases"]} == {"operation", "kernel", "network", "suite"}
    assert list(manifest["unpredicted"]) == ["network-net"]  # NVIDIA's programs do not read what the emulator runs
    assert {path.name for path in (kit / "cases").iterdir()} == {case["name"] for case in manifest["cases"]}
    text = (kit / "README.md").read_text()
    assert "cuda:sm_90" in text and "compute capability 9.0" in text and "Send that\nfolder back" in text
    assert all(len(line) <= 120 for line in text.splitlines() if not line.startswith("|"))


def test_all_cases_pass_and_networks_are_measured(kit, tmp_path):
    done = run_kit(kit, "-o", tmp_path / "results")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Emulated GPU" in done.stdout and "network: 1 passed" in done.stdout
    results = json.loads((tmp_path / "results/results.json").read_text())
    assert results["is_complete"] and results["device"]["capability_major"] == 9
    assert results["ceilings"]["copy_rate"] > 0
    (network,) = [case for case in results["cases"] if case["kind"] == "network"]
    assert len(network["kernels"]) > 2 and network["run_seconds"] > 0
    assert all(kernel["seconds"] > 0 and kernel["bytes"] > 0 for kernel in network["kernels"])

    read = run_tw("kit", "read", tmp_path / "results")
    assert read.returncode == 0 and read.stdout.strip() in done.stdout
    facts = json.loads(run_tw("kit", "read", tmp_path / "results", "--json").stdout)
    assert facts["failed"] == [] and facts["counts"]["operation"] == {"passed": 3}
    assert facts["rates"][0]["name"] == "network-net" and facts["rates"][0]["seconds"] > 0


def a_gpus_results(**changes):
    cases = [{"name": "a", "kind": "operation", "status": "passed", "outputs": []}] * 3
    device = {"name": "Some GPU", "driver": 13010}
    facts = {"tilewright": "1", "target": "cuda:sm_89", "compiler": "", "is_complete": True, "ceilings": {}}
    return facts | {"device": device, "cases": cases} | changes


def test_gpus_that_ran_a_kit_are_put_down_as_tried(tmp_path):
    known, results = tmp_path / "known.json", tmp_path / "results.json"
    shutil.copy(gpus_tried.FILE, known)
    results.write_text(json.dumps(a_gpus_results()))
    for _ in range(2):  # the second time in the place of the first
        done = run_tw("kit", "read", results, "--tried", known)
        assert done.returncode == 0, done.stderr
    made = gpus_tried.Tried("cuda:sm_89", "Some GPU", "for CUDA 13.1", 3)
    assert gpus_tried.read(known) == [made, *gpus_tried.read()]
    assert "cuda:sm_89" in gpus_tried.never_tried(["cpu", "cuda:sm_80", "cuda:sm_89"], gpus_tried.read())
    assert gpus_tried.never_tried(["cpu", "cuda:sm_80", "cuda:sm_89"], [made]) == ["cuda:sm_80"]

    failed = [*a_gpus_results()["cases"], {"name": "b", "kind": "kernel", "status": "crashed", "message": "it ended"}]
    for changes, why in (
        ({"cases": failed}, "1 of 4 cases did not pass"),
        ({"is_complete": False}, "not all cases were run"),
    ):
        results.write_text(json.dumps(a_gpus_results(**changes)))
        done = run_tw("kit", "read", results, "--tried", known)
        assert done.returncode == 2 and f"Some GPU is not put down as tried: {why}" in done.stderr, done
    assert gpus_tried.read(known) == [made, *gpus_tried.read()]
    results.write_text(json.dumps(a_gpus_results()))
    for text, why in (("{", "is no list of GPUs"), ('[{"a": 1}]', "is no list of GPUs")):
        known.write_text(text)
        done = run_tw("kit", "read", results, "--tried", known)
        assert done.returncode == 2 and why in done.stderr, done
    done = run_tw("kit", "read", results, "--tried", tmp_path / "none.json")
    assert done.returncode == 2 and "none.json cannot be read" in done.stderr, done


def test_the_doctor_says_what_no_gpu_has_run():
    done = run_tw("doctor", "--no-measure")
    for row in gpus_tried.read():
        assert row.target in machine.targets() and row.passed > 0
        assert str(row) in done.stdout, done.stdout
    assert "never tried" in done.stdout and "cuda:sm_75" in done.stdout


@pytest.fixture
def broken(kit, tmp_path):
    """With a wrong value, a damaged artifact, a kernel that reads beyond all memory, and one that is only timed."""
    folder = shutil.copytree(kit, tmp_path / "broken")
    place = folder / "cases/operation-exp-f32"
    expected = np.fromfile(place / "expected.bin", np.float32)
    at = int(np.flatnonzero(expected == 1)[-1])
    expected[at] = 1.5
    (place / "expected.bin").write_bytes(expected.tobytes())
    place = folder / "cases/operation-add-f16/model.twa.gz"
    data = bytearray(gzip.decompress(place.read_bytes()))
    place.write_bytes(gzip.compress(data[: len(data) // 2]))
    script = """
import sys
from pathlib import Path
import numpy as np
from tilewright import te
from tilewright.kit_case import Case
text = "func f(X: f32[4]) -> (R: f32[4]) { for i in 0..4 { block R(spatial vi: 4 = i) { R[vi] = X[vi + 512] } } }"
numbers = [np.zeros(4, np.float32)]
Case("crashes", "operation", te.build(te.parse(text), "cuda:sm_90"), numbers, numbers).write(Path(sys.argv[1]))
executable = te.build(te.parse(text.replace(" + 512", "")), "cuda:sm_90")
Case("times", "time", executable, is_timed=True, made_up=True).write(Path(sys.argv[2]))
"""
    subprocess.run(
        [sys.executable, "-c", script, folder / "cases/crashes", folder / "cases/times"], env=ENVIRONMENT, check=True
    )
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["cases"].insert(0, {"name": "crashes", "kind": "operation"})
    manifest["cases"].append({"name": "times", "kind": "time", "bytes": 32.0, "operations": 4.0})
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder, at, np.fromfile(folder / "cases/operation-exp-f32/inputs.bin", np.float32)


def test_what_is_wrong_is_reported_and_the_others_run(broken, tmp_path):
    folder, at, x = broken
    done = run_kit(folder, "-o", tmp_path / "results")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"wrong  operation-exp-f32: R: 1 of 594 elements; at {at} of {x[at]} 1.0 instead of 1.5" in done.stdout
    assert re.search(r"crashed  crashes: its process ended: SIG\w+", done.stdout), done.stdout
    assert re.search(r"failed  operation-add-f16: TW1201 ", done.stdout), done.stdout
    assert "operation: 1 crashed, 1 failed, 1 wrong, 1 passed" in done.stdout
    assert "network: 1 passed" in done.stdout and "time: 1 passed" in done.stdout
    row = json.loads(run_tw("kit", "read", tmp_path / "results", "--json").stdout)["rates"][-1]
    assert row["name"] == "times" and row["kernels"] == 1
    assert row["bytes_per_second"] == pytest.approx(32 / row["seconds"])
    assert row["operations_per_second"] == pytest.approx(4 / row["seconds"])
    kept = np.load(tmp_path / "results/outputs/operation-exp-f32/R.npy")
    assert kept.dtype == np.float32 and kept[at] == 1
    read = run_tw("kit", "read", tmp_path / "results/results.json")
    assert read.returncode == 1 and "instead of 1.5" in read.stdout


def test_predictions_are_compared_by_their_order(tmp_path):
    cases = [
        {
            "name": f"time-{at}", "kind": "time", "status": "passed", "least_seconds": {"f": least},
            "kernels": [{"name": "f", "kernel": "f", "seconds": seconds, "operations": 1.0, "bytes": 1.0}],
        }
        for at, (least, seconds) in enumerate([(1e-6, 3e-6), (2e-6, 4e-6), (4e-6, 8e-6), (3e-6, 9e-6)])
    ]  # fmt: skip
    others = {"tilewright": "1", "target": "cuda:sm_90", "compiler": "13.0", "is_complete": True, "ceilings": {}}
    (tmp_path / "results.json").write_text(json.dumps({**others, "device": {"name": "GPU"}, "cases": cases}))
    read = run_tw("kit", "read", tmp_path)
    assert read.returncode == 0 and "measured ones of 4 kernels: rank correlation 0.800" in read.stdout, read.stderr
    facts = json.loads(run_tw("kit", "read", tmp_path, "--json").stdout)
    assert facts["prediction"] == {"kernels": 4, "rank_correlation": pytest.approx(0.8)}


def test_some_cases_are_run_and_time_is_limited(kit, tmp_path):
    done = run_kit(kit, "-o", tmp_path / "some", "--only", "operation-*", "--device", "0")
    assert done.returncode == 0 and "operation: 3 passed" in done.stdout and "network" not in done.stdout
    done = run_kit(kit, "-o", tmp_path / "none", "--only", "nothing")
    assert done.returncode == 1 and "no case is called nothing" in done.stderr
    done = run_kit(kit, "-o", tmp_path / "none", "--seconds", "-1")
    assert done.returncode == 1 and "not all cases were run" in done.stdout


def test_without_a_driver_it_says_so(kit, tmp_path):
    command = [sys.executable, kit / "kit.py", "-o", tmp_path / "results"]
    done = subprocess.run(command, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True)
    if "Emulated" in done.stdout or done.returncode == 0:
        pytest.skip("this machine has a GPU")
    assert done.returncode == 1 and "there is no NVIDIA driver" in done.stderr
    assert run_tw("kit", "read", tmp_path / "results").returncode == 1


def test_what_takes_too_long_is_ended(kit, tmp_path):
    worker = Worker(kit, ENVIRONMENT, tmp_path / "log")
    request = {"job": "case", "name": "operation-philox-u64", "kept": None}
    assert worker.ask(request, 0.0)["status"] == "too slow"
    assert worker.ask(request, 60.0)["status"] == "passed"
    worker.close()


def test_mistakes_are_told(tmp_path, network):
    with pytest.raises(tw.Error, match="TW1301 x86:avx2 is no GPU"):
        tw.make_kit(tmp_path / "kit", "x86:avx2")
    executable = tw.compile(network)
    with pytest.raises(tw.Error, match="TW1202 net is compiled for"):
        tw.make_kit(tmp_path / "kit", "cuda:sm_90", {"net": executable})
    (tmp_path / "file").write_text("{}")
    with pytest.raises(tw.Error, match="TW1001.*file"):
        tw.make_kit(tmp_path / "file", only=["operation-not-bool"])
    for path, problem in (("nothing", "cannot be read"), ("file", "is not what a kit's runner writes")):
        read = run_tw("kit", "read", tmp_path / path)
        assert read.returncode == 2 and "TW1001" in read.stderr and problem in read.stderr


def test_every_function_of_numbers_has_cases():
    """Those of vectors, memory and instructions are tested where schedules put them in."""
    rows = re.findall(r"^INTRINSIC\((\w+), (-?\d+), (\w+)\)", (ROOT / "tensor_ir/intrinsics.def").read_text(), re.M)
    names = {name for name, _, kind in rows if kind in ("math", "predicate", "bits")}
    operations = list(kit_operations.operations())
    assert names <= {each.name for each in operations}
    assert len({each.case_name for each in operations}) == len(operations)
    counts = {name: int(count) for name, count, _ in rows}
    assert all(counts[name] == kit_operations.ARGUMENTS.get(name, 1) for name in kit_operations.ULPS)


def output(array, **limits):
    exact = {"ulps": 0, "relative": 0.0, "absolute": 0.0, "zero_signs": False}
    return {"dtype": tw._core.dtype_name(array), "shape": [*array.shape], **exact, **limits}


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
def test_floats_are_compared_by_their_neighbours(dtype):
    want = np.array([0.0, 1, -1, np.nan, np.inf, 3], dtype)
    next_one = np.array(1 + float(ml_dtypes.finfo(dtype).eps), dtype)
    have = np.array([-0.0, next_one, -1, -np.nan, np.inf, 3], dtype)

    def wrong(**limits):
        return comparing.compare(want.tobytes(), have.tobytes(), output(want, **limits))["wrong"]

    assert [wrong(), wrong(ulps=1), wrong(ulps=1, zero_signs=True), wrong(relative=0.1)] == [1, 0, 1, 0]
    found = comparing.compare(want.tobytes(), have.tobytes(), output(want))
    assert found["largest_ulps"] == 1 and found["worst"]["index"] == 1
    for at, other in ((3, 0), (4, 1), (4, -np.inf), (0, np.nan)):
        changed = want.copy()
        changed[at] = other
        limits = output(want, relative=0.5, absolute=10.0, ulps=5)
        assert comparing.compare(want.tobytes(), changed.tobytes(), limits)["wrong"] == 1, (at, other)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64, np.bool_])
def test_whole_numbers_are_equal(dtype):
    want, have = np.array([0, 1, 1], dtype), np.array([0, 1, 0], dtype)
    found = comparing.compare(want.tobytes(), have.tobytes(), output(want))
    assert found["wrong"] == 1 and found["worst"]["index"] == 2


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int8, np.uint16, np.int64, np.bool_])
def test_numpy_reads_what_it_keeps(dtype):
    for shape in ((), (3,), (2, 3), (0, 4)):
        array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
        read = np.load(io.BytesIO(comparing.npy(output(array), array.tobytes())))
        assert read.dtype == array.dtype and read.shape == shape and np.array_equal(read, array)
    bits = np.load(io.BytesIO(comparing.npy({"dtype": "bf16", "shape": [2]}, b"\x80\x3f\x00\x40")))
    assert bits.view(ml_dtypes.bfloat16).tolist() == [1, 2]


def test_a_share_of_the_largest_is_allowed_but_of_whole_numbers():
    arrays = [np.array([1.0, -8, np.inf]), np.array([5]), np.zeros((0, 3))]
    assert [limits.absolute for limits in shares(0.5, arrays)] == [4, 0, 0]


def test_kernels_that_are_built_alone_run_on_all_threads(tmp_path):
    """te.build for a GPU, as the cases of operations are."""
    func = te.parse(
        "func f(X: f32[777]) -> (R: f32[777]) { for i in 0..777 { block R(spatial vi: 777 = i) { R[vi] = -X[vi] } } }"
    )
    steps = te.build(func, "cuda:sm_90").describe()["steps"]
    assert np.prod(steps[0]["grid"]) * np.prod(steps[0]["block"]) >= 777


def test_cases_say_their_tensors(tmp_path):
    func = te.parse(
        "func f(X: bf16[4]) -> (R: u8[4]) { for i in 0..4 { block R(spatial vi: 4 = i) { R[vi] = u8(X[vi]) } } }"
    )
    x = np.zeros(4, ml_dtypes.bfloat16)
    Case("a", "operation", te.build(func), [x], [np.zeros(4, np.uint8)]).write(tmp_path / "a")
    facts = json.loads((tmp_path / "a/case.json").read_text())
    assert [(t["name"], t["dtype"], t["shape"]) for t in (*facts["inputs"], *facts["outputs"])] == [
        ("X", "bf16", [4]), ("R", "u8", [4]),
    ]  # fmt: skip
