"""What users do, start to end, by the shell scripts of examples/scripts."""

import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest

from conftest import ROOT, model_of, reference, small_network, value

SCRIPTS = ROOT / "examples" / "scripts"


@pytest.fixture
def desk(tmp_path):
    """A folder to work in, and a shell in which `tw` and `python3` are ours."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, command in {"tw": "-m tilewright", "python3": ""}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {command} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    onnx.save(small_network(), tmp_path / "net.onnx")

    def start(script, *arguments, **options) -> subprocess.Popen:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        # The tests may run where Ctrl-C is ignored, which programs inherit.
        heeds = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), "start_new_session": True}
        command = ["sh", SCRIPTS / script, *map(str, arguments)]
        return subprocess.Popen(command, cwd=tmp_path, env=environment, **pipes, **heeds, **options)

    def run(script, *arguments) -> tuple[int, str, str]:
        process = start(script, *arguments)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    run.start, run.folder, run.programs = start, tmp_path, programs
    return run


def test_a_model_is_compiled_for_a_board_and_copied_there(desk):
    board = desk.folder / "board"  # its file system
    board.mkdir()
    (desk.programs / "scp").write_text(f'#!/bin/sh\n[ "$3" = pi@board: ] && cp -r "$2" {board}\n')
    # A shell there, where programs of the board's processor run: by the emulator.
    (desk.programs / "ssh").write_text(
        f'#!/bin/sh\n[ "$1" = pi@board ] || exit 255\ncd {board}\n'
        "for folder in *; do mv $folder/tw-run $folder/tw-run.arm; done\n"
        "for folder in *; do printf '#!/bin/sh\\nexec qemu-aarch64 ./tw-run.arm \"$@\"\\n' > $folder/tw-run; done\n"
        'chmod +x */tw-run\nexec sh -c "$2"\n'
    )
    for name in ("scp", "ssh"):
        (desk.programs / name).chmod(0o755)
    status, out, err = desk("deploy_to_a_board.sh", "net.onnx", "rpi4", "pi@board")
    assert status == 0, out + err
    assert "20 runs" in out and "y f32[1,10]: as expected" in out
    # And it notices a board that computes something else.
    shutil.rmtree(board)
    board.mkdir()
    (desk.programs / "scp").write_text(
        f'#!/bin/sh\ncp -r "$2" {board} && cp {board}/net-rpi4/inputs/x.npy {board}/net-rpi4/expected/y.npy\n'
    )
    assert desk("deploy_to_a_board.sh", "net.onnx", "rpi4", "pi@board")[0] == 1


def events_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]


def test_a_job_is_interrupted_goes_on_and_reports(desk):
    events = desk.folder / "net.jsonl"
    job = desk.start("tune_overnight.sh", "net.onnx", "8h")
    until = time.monotonic() + 200
    while not events.exists() or not any(event["event"] == "trial" for event in events_of(events)):
        assert job.poll() is None and time.monotonic() < until
        time.sleep(0.1)
    os.killpg(job.pid, signal.SIGINT)  # what a terminal does for Ctrl-C
    out, err = job.communicate(timeout=200)
    assert job.returncode == 130, out + err
    tried = sum(event["event"] == "trial" for event in events_of(events))
    assert tried >= 1 and "everything is as it was written" in out and (desk.folder / "net.html").exists()
    (desk.folder / "net.html").unlink()
    status, out, err = desk("tune_overnight.sh", "net.onnx", "3s")
    assert status == 0, out + err
    again = [event for event in events_of(events) if event["event"] == "tasks"][-1]
    assert again["earlier_trials"] >= tried
    assert "</html>" in (desk.folder / "net.html").read_text(encoding="utf-8") and (desk.folder / "net.twa").exists()


def test_a_model_is_checked_beside_onnx_runtime(desk):
    status, out, err = desk("check_before_shipping.sh", "net.onnx")
    assert status == 0, out + err
    # In 16 bits and with a tolerance that they cannot meet, a small model is left that shows it.
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((64, 64)).astype(np.float32) for name in ("v", "w")}
    nodes = [("MatMul", ["x", "v"], ["a"]), ("Relu", ["a"], ["b"]), ("MatMul", ["b", "w"], ["y"])]
    onnx.save(model_of(nodes, [value("x", [8, 64])], [value("y", [8, 64])], weights), desk.folder / "wide.onnx")
    status, out, err = desk("check_before_shipping.sh", "wide.onnx", "--precision", "f16", "--tolerance", "1e-6")
    assert status == 1, out + err
    assert "</html>" in (desk.folder / "wide.differences.html").read_text(encoding="utf-8")
    assert len(onnx.load(desk.folder / "wide.small.onnx").graph.node) < 3


def test_a_regression_fails_a_build(desk):
    status, out, err = desk("bench_in_ci.sh", "net.onnx", "baseline.json", "1e6")
    assert status == 0 and "1.00 times the baseline's" in out, out + err
    baseline = json.loads((desk.folder / "baseline.json").read_text())
    assert baseline["runs"] > 5
    # As if it had been a million times as fast, which no noise of the machine hides.
    (desk.folder / "baseline.json").write_text(json.dumps({**baseline, "median_ms": baseline["median_ms"] / 1e6}))
    assert desk("bench_in_ci.sh", "net.onnx", "baseline.json", "0.1")[0] == 1


def asked(path: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    file = io.BytesIO()
    np.savez(file, **inputs)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(len(file.getvalue()).to_bytes(8, "little") + file.getvalue())
        answer = connection.makefile("rb")
        return dict(np.load(io.BytesIO(answer.read(int.from_bytes(answer.read(8), "little")))))


def test_eight_threads_of_one_process_serve(desk):
    path = Path(tempfile.mkdtemp()) / "socket"  # whose path has to be short
    server = desk.start("serve_eight_threads.sh", "net.onnx", path)
    try:
        lines = []
        for line in server.stdout:
            lines.append(line)
            if "threads answer" in line:
                break
        assert any("runs a second in 8 streams" in line for line in lines), lines
        rng = np.random.default_rng(0)
        requests = [rng.standard_normal((1, 3, 16, 16)).astype(np.float32) for _ in range(64)]
        with ThreadPoolExecutor(16) as clients:
            answers = list(clients.map(lambda x: asked(path, {"x": x})["y"], requests))
        model = small_network()
        for x, answer in zip(requests, answers, strict=True):
            np.testing.assert_allclose(answer, reference(model, {"x": x})[0], atol=1e-5)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.communicate()


def test_every_script_says_how_it_is_called_and_has_a_story():
    scripts = sorted(SCRIPTS.glob("*.sh"))
    text = Path(__file__).read_text()
    for script in scripts:
        assert f"#   {script.name} MODEL.onnx" in script.read_text() and f'"{script.name}"' in text
    assert len(scripts) == 5
