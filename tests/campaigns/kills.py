"""Kills a tuning job at random moments and lets the same command go on.

    ./dev test --campaign kills [--count 200]

After each kill: what the job had reported as tried is in the database, which is whole, and nothing in it was tried
twice by the search.  At the end the job runs to its end and its schedules are used.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from tilewright import Error, _core  # noqa: E402


def small_network(path: Path) -> Path:
    """Convolutions and a product, with some hundred schedules between them."""
    rng = np.random.default_rng(0)

    def weights(name, *shape):
        array = rng.standard_normal(shape) / np.prod(shape[1:]) ** 0.5
        return numpy_helper.from_array(array.astype(np.float32), name)

    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w1"], ["a"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("Conv", ["b", "w2"], ["c"]),
            helper.make_node("Flatten", ["c"], ["d"]),
            helper.make_node("MatMul", ["d", "w3"], ["y"]),
        ],
        "kills",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 14, 14])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64])],
        [weights("w1", 32, 16, 3, 3), weights("w2", 48, 32, 1, 1), weights("w3", 48 * 14 * 14, 64)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def job(model: Path, database: Path, events: Path, budget: str, seed: int) -> subprocess.Popen:
    command = [sys.executable, "-m", "tilewright", "tune", model, "--db", database, "--budget", budget, "-j", "1"]
    environment = {"PYTHONPATH": str(ROOT / "python"), "PATH": "/usr/bin:/bin"}
    with open(events, "w") as output:
        return subprocess.Popen(
            [*map(str, command), "--seed", str(seed)], stdout=output, stderr=subprocess.STDOUT, env=environment
        )


def trials_in(events: Path) -> list[tuple[str, str]]:
    """Of whole lines: the last may be cut."""
    found = []
    for line in events.read_text().splitlines(keepends=True):
        if line.endswith("\n") and line.startswith("{") and (event := json.loads(line))["event"] == "trial":
            found.append((event["key"], event["decisions"]))
    return found


def rows_of(database: Path, table: str) -> list[dict]:
    rows = []
    _core.database_lines(str(database), lambda line: rows.append(json.loads(line)))
    return [row for row in rows if row["table"] == table]


def is_made(database: Path) -> bool:
    """False: the job was killed before it had committed so much as the tables."""
    if not database.exists():
        return False
    try:
        rows_of(database, "records")
    except Error as error:
        if "this database is empty" not in str(error):
            raise
        return False
    return True


def campaign(count: int, seed: int, folder: Path) -> dict[str, int]:
    rng = random.Random(seed)
    model, database, events = small_network(folder / "m.onnx"), folder / "tune.db", folder / "events.jsonl"
    killed, reported, longest = 0, 0, 4.0
    while killed < count:
        if not killed % 8 and database.exists():  # anew, so that there is something left to try
            database.unlink()
            reported = 0
        process = job(model, database, events, "60s", seed)
        start = time.monotonic()
        delay = rng.uniform(0.2, longest)
        while process.poll() is None and time.monotonic() - start < delay:
            time.sleep(0.001)
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            killed += 1
        else:  # the job was faster: it must have ended well
            assert process.returncode == 0, events.read_text()
            longest = max(1.0, 0.8 * longest)
        tried = trials_in(events)
        reported += len(tried)
        if not is_made(database):
            assert not tried
            continue
        if problems := _core.database_verify(str(database)):
            raise AssertionError(f"after kill {killed}: {problems}")
        stored = [(row["task"], row["decisions"]) for row in rows_of(database, "records") if row["detail"] != "final"]
        assert set(tried) <= set(stored), f"after kill {killed} a committed trial is lost: {set(tried) - set(stored)}"
        # A kill between a commit and its report leaves one row that no report tells of.
        assert reported <= len(stored) <= reported + killed, (reported, len(stored), killed)
    process = job(model, database, events, "8s", seed)
    assert process.wait() == 0, events.read_text()
    assert not _core.database_verify(str(database))
    stored = [(row["task"], row["decisions"]) for row in rows_of(database, "records") if row["detail"] != "final"]
    return {"kills": killed, "rows": len(stored)}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = campaign(arguments.count, arguments.seed, Path(folder))
    print(f"{result['kills']} kills, no committed trial lost, database whole; {result['rows']} rows at the end")
