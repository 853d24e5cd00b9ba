"""Tuning for a GPU, which is the emulator's: here and behind a device server.

Under its own name the emulator's times are kept by nobody; under another it passes for a GPU, whose clock goes on with
each block of threads, so that what is faster is the same each time.
"""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, contextmanager

import numpy as np
import onnx
import pytest

from conftest import ROOT, model_of, run_tw, value

EMULATOR = str(ROOT / "build/tests/cuda_emulator")
COMPILER = os.environ | {"CUDA_HOME": EMULATOR, "TW_CACHE": "off"}  # of kernels; there is no GPU
EMULATED = COMPILER | {"LD_LIBRARY_PATH": EMULATOR}
GPU = EMULATED | {"CUDA_EMULATOR_NAME": "Test GPU"}

JOB = """
import functools, json, sys
import tilewright as tw
from tilewright import _core
arguments = json.loads(sys.argv[1])
_core.tune = functools.partial(_core.tune, most_trials=arguments.pop("trials"))
tw.tune(**arguments, budget="1h", threads=1, on_event=lambda event: print(json.dumps(event), flush=True))
"""


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """Two products, of which one is softmax's rows, too."""
    rng = np.random.default_rng(0)
    weights = {name: (rng.standard_normal((64, 64)) / 8).astype(np.float32) for name in ("w1", "w2")}
    nodes = [("MatMul", ["x", "w1"], ["a"]), ("Softmax", ["a"], ["b"]), ("MatMul", ["b", "w2"], ["y"])]
    path = tmp_path_factory.mktemp("network") / "network.onnx"
    onnx.save(model_of(nodes, [value("x", [64, 64])], [value("y", [64, 64])], weights), path)
    return path


def started(network, env=GPU, trials=3, target="cuda", **options):
    arguments = {"model": str(network), "target": target, "trials": trials, **options}
    return subprocess.Popen(
        [sys.executable, "-c", JOB, json.dumps(arguments, default=str)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def tuned(network, env=GPU, **options):
    """The events of a job that ran to its end."""
    output, errors = (process := started(network, env, **options)).communicate(timeout=300)
    assert process.returncode == 0, errors
    return [json.loads(line) for line in output.splitlines()]


def refused(network, env=GPU, **options):
    _, errors = (process := started(network, env, **options)).communicate(timeout=300)
    assert process.returncode != 0
    return errors


def trials_of(events):
    return [(event["key"], event["decisions"]) for event in events if event["event"] == "trial"]


def records_of(db):
    with closing(sqlite3.connect(db)) as connection:
        return connection.execute("SELECT task, decisions, status, machine, detail FROM records").fetchall()


def compiled(network, db, folder, env=GPU, target="cuda", threads=1):
    """The report of a network with schedules from a database, and what it computes on the GPU."""
    artifact, x = folder / "n.twa", np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)
    done = run_tw("compile", network, "--target", target, "--db", db, "-j", threads, "-o", artifact, "-v", env=env)
    assert done.returncode == 0, done.stderr
    if env is not GPU or target != "cuda":
        return done.stdout
    np.savez(folder / "x.npz", x=x)
    ran = run_tw("run", artifact, "--input", folder / "x.npz", "-o", folder / "y.npz", env=env)
    assert ran.returncode == 0, ran.stderr
    weights = [onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(network).graph.initializer]
    a = np.exp(x @ weights[0])
    np.testing.assert_allclose(
        np.load(folder / "y.npz")["y"], a / a.sum(1, keepdims=True) @ weights[1], rtol=1e-3, atol=1e-4
    )
    return done.stdout


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_a_check_in_the_emulator(network, precision):
    events = tuned(network, EMULATED, precision=precision, check=True, trials=2)
    tried = [event for event in events if event["event"] == "trial"]
    assert len(tried) >= 4 and {event["status"] for event in tried} == {"ok"}, tried
    decided = " ".join(event["decisions"] for event in tried)
    of_products = ["thread_tile="] if precision == "f32" else ["warp_tile=", "multiplier="]
    assert any(name in decided for name in of_products) and "row_tile=" in decided, decided


def test_an_emulators_times_are_not_kept(network, tmp_path):
    errors = refused(network, EMULATED, db=tmp_path / "t.db")
    assert "TW1301 the GPU is emulated" in errors and "--check" in errors
    assert not (tmp_path / "t.db").exists()


def test_where_there_is_no_gpu(network, tmp_path):
    errors = refused(network, COMPILER, target="cuda:sm_90", db=tmp_path / "t.db")
    assert "TW1301" in errors and "there is no GPU" in errors and "--device" in errors
    assert "compute capability 90" in refused(network, target="cuda:sm_80", db=tmp_path / "t.db")


def test_what_is_faster_is_used(network, tmp_path):
    db = tmp_path / "t.db"
    events = tuned(network, db=db)
    assert events[-1]["event"] == "end" and events[-1]["adopted"] > 0 and events[-1]["ratio"] < 1, events[-1]
    assert {machine for *_, machine, _ in records_of(db)} == {"Test GPU"}
    assert f"({events[-1]['adopted']} record" in compiled(network, db, tmp_path)
    # However many threads the host has, and where no GPU is; for no other architecture.
    assert f"({events[-1]['adopted']} record" in compiled(network, db, tmp_path, COMPILER, "cuda:sm_90", 2)
    for target in ("cuda:sm_80", "cpu"):
        assert "0 kernels with schedules from the database" in compiled(network, db, tmp_path, COMPILER, target)
    # The same again goes on.
    again = tuned(network, db=db, trials=5)
    assert next(event for event in again if event["event"] == "tasks")["earlier_trials"] == len(trials_of(events))
    assert len(set(trials_of(events + again))) == len(trials_of(events + again)) > len(trials_of(events))
    assert run_tw("db", "verify", db).returncode == 0


def test_killed_it_goes_on(network, tmp_path):
    db, tried = tmp_path / "t.db", []
    for kill_after in (1, 2):
        process = started(network, db=db, trials=4)
        for line in process.stdout:
            if line.startswith("{") and (event := json.loads(line))["event"] == "trial":
                tried.append((event["key"], event["decisions"]))
                kill_after -= 1
                if kill_after == 0:
                    break
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert run_tw("db", "verify", db).returncode == 0
        assert set(tried) <= {record[:2] for record in records_of(db)}
    events = tuned(network, db=db, trials=4)
    searched = [record[:2] for record in records_of(db) if record[-1] != "final"]
    assert set(tried + trials_of(events)) <= set(searched) and len(set(searched)) == len(searched)


def test_merged_records_are_used(network, tmp_path):
    databases = [tmp_path / "a.db", tmp_path / "b.db"]
    adopted = [tuned(network, db=db, seed=seed, trials=2)[-1]["adopted"] for seed, db in enumerate(databases)]
    assert run_tw("db", "merge", tmp_path / "both.db", *databases).returncode == 0
    both = {record[:2] for record in records_of(tmp_path / "both.db")}
    assert both == {record[:2] for db in databases for record in records_of(db)}
    report = compiled(network, tmp_path / "both.db", tmp_path)
    assert min(adopted) > 0 and "0 kernels with schedules" not in report


# Behind a device server: the job's own machine has a compiler, and no GPU.


@pytest.fixture(scope="module")
def key(tmp_path_factory):
    path = tmp_path_factory.mktemp("key") / "fleet.key"
    assert run_tw("device", "key", path).returncode == 0
    return path


@contextmanager
def served(key, env=GPU):
    process = subprocess.Popen(
        [sys.executable, "-m", "tilewright", "device", "serve", "--key-file", key, "--listen", "127.0.0.1:0"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        line = process.stdout.readline()
        assert " measures at tcp://" in line
        yield line.split()[-1], line, process
    finally:
        process.kill()
        process.communicate()


def test_a_gpu_behind_a_server(network, key, tmp_path):
    db = tmp_path / "t.db"
    with served(key) as (address, said, _):
        assert "Test GPU, sm_90" in said
        events = tuned(network, COMPILER, db=db, devices=[address], key_file=key)
    assert events[-1]["adopted"] > 0 and {event.get("status", "ok") for event in events} == {"ok"}
    assert {machine for *_, machine, _ in records_of(db)} == {"Test GPU"}
    assert f"({events[-1]['adopted']} record" in compiled(network, db, tmp_path)


def test_servers_that_die(network, key, tmp_path):
    db = tmp_path / "t.db"
    with served(key) as (first, _, dies), served(key) as (second, _, _):
        job = started(network, COMPILER, db=db, trials=4, devices=[first, second], key_file=key)
        events = []
        for line in job.stdout:
            events.append(json.loads(line))
            if len(trials_of(events)) == 2:
                dies.kill()
        assert job.wait() == 0, job.stderr.read()
        job.stderr.close()
    assert any(event["event"] == "device_lost" for event in events)
    assert {event.get("status", "ok") for event in events} == {"ok"} and events[-1]["event"] == "end"
    assert len(set(trials_of(events))) == len(trials_of(events))


def test_servers_that_are_refused(network, key, tmp_path):
    db = tmp_path / "t.db"
    with (
        served(key, EMULATED) as (emulated, said, _),
        served(key) as (gpu, _, _),
        served(key, COMPILER) as (none, _, _),
    ):
        assert "emulated" in said
        options = {"db": db, "key_file": key}
        assert "the devices are emulated" in refused(network, COMPILER, devices=[emulated], **options)
        assert not db.exists()
        assert "of one kind" in refused(network, COMPILER, devices=[gpu, emulated], **options)
        assert "it has none" in refused(network, COMPILER, devices=[none], **options)
        assert "there is no GPU" in refused(network, COMPILER, devices=[none], target="cuda:sm_90", **options)
        checked = tuned(network, COMPILER, devices=[emulated], key_file=key, check=True, trials=1)
    assert {event.get("status", "ok") for event in checked} == {"ok"}


def test_records_of_another_gpu_are_told_of(network, tmp_path):
    db = tmp_path / "t.db"
    tuned(network, db=db)
    assert "measured on Test GPU), the others" in compiled(network, db, tmp_path)
    options = ("--target", "cuda", "--db", db, "-o", tmp_path / "n.twa")
    assert "are used" not in run_tw("compile", network, *options, env=GPU).stderr
    done = run_tw("compile", network, *options, env=GPU | {"CUDA_EMULATOR_NAME": "Other GPU"})
    assert done.returncode == 0 and "measured on Test GPU are used for this machine's Other GPU" in done.stderr
