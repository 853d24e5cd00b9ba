"""A tuning job from Python and the command line: tiny, but real."""

import io
import json
import logging
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from functools import partial

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from rich.console import Console

import tilewright as tw
from conftest import ROOT
from tilewright import _core, tune_report
from tilewright.tuning import MEASURE_PROGRAM, seconds_of


@pytest.fixture
def network(tmp_path):
    """A convolution and a product, of a size that takes some time; no 3×3 one, which would leave choices open."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.standard_normal((32, 16, 5, 5)).astype(np.float32) / 20,
        "w2": rng.standard_normal((32 * 14 * 14, 40)).astype(np.float32) / 80,
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["c"], pads=[2, 2, 2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Flatten", ["r"], ["f"]),
        helper.make_node("MatMul", ["f", "w2"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 14, 14])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 40])],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    path = tmp_path / "network.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def cli(*arguments):
    return subprocess.run([sys.executable, "-m", "tilewright", *map(str, arguments)], capture_output=True, text=True)


def test_tuning_end_to_end(network, tmp_path, trials_of_a_task, caplog, capfd):
    db, events = tmp_path / "tune.db", []
    with caplog.at_level(logging.INFO, "tilewright"):
        report = tw.tune(network, db=db, budget="60s", seed=3, threads=1, on_event=events.append)
    assert capfd.readouterr() == ("", "")  # it is logged
    (tasks,) = [record for record in caplog.records if " tried before" in record.getMessage()]
    assert tasks.levelname == "INFO" and "'trial'" not in caplog.text
    assert report.tasks > 0 and report.trials > 0 and not report.skipped
    assert sum(report.by_status.values()) == report.trials
    assert "tried" in str(report)
    assert events[0]["event"] == "start" and events[-1]["event"] == "end"
    assert sum(event["event"] == "trial" for event in events) == report.trials
    assert set(report.by_status) <= {"ok", "spill", "refused", "timeout"}  # neither wrong nor crashing

    plain, tuned = tw.compile(network, threads=1), tw.compile(network, threads=1, db=db)
    x = np.random.default_rng(1).standard_normal((1, 16, 14, 14)).astype(np.float32)
    np.testing.assert_allclose(tuned.run({"x": x})["y"], plain.run({"x": x})["y"], rtol=1e-3, atol=1e-4)
    assert "with schedules from the database" in tuned.report()
    assert "database" not in plain.report()

    # Not for other targets, nor for another number of threads.
    for target, threads in (("cpu", 3), ("x86:sse4", 1), ("aarch64", 1), ("rpi4", 1)):
        assert "0 kernels with schedules from the database" in tw.compile(network, target, threads, db=db).report()

    # The same again goes on: nothing is tried twice.
    again = []
    trials_of_a_task(4)
    tw.tune(network, db=db, budget="60s", seed=3, threads=1, on_event=again.append)
    trials = [(e["key"], e["decisions"]) for e in events + again if e["event"] == "trial"]
    assert len(trials) == len(set(trials)) > report.trials
    assert next(e for e in again if e["event"] == "tasks")["earlier_trials"] == report.trials


def test_choices_of_the_network(tmp_path, caplog):
    """Three 3×3 convolutions, of which two are alike: by Winograd's filtering or not."""
    rng, width = np.random.default_rng(0), 32
    weights = {f"w{i}": rng.standard_normal((width, width, 3, 3)).astype(np.float32) / 17 for i in range(3)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("MaxPool", ["a"], ["b"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["b", "w1"], ["c"], name="second", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c", "w2"], ["d"], name="third", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["d", "b"], ["y"], name="add"),
    ]
    graph = helper.make_graph(
        nodes,
        "convolutions",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, width, 28, 28])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, width, 14, 14])],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx_model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    path, db = tmp_path / "convolutions.onnx", tmp_path / "tune.db"
    onnx.save(onnx_model, path)

    def tuned(constraints=""):
        """A job that tries all choices and one schedule, whatever the clock says."""
        events = []
        _core.tune(
            tw.load(path)._core,
            "cpu",
            str(db),
            1,
            "f32",
            constraints,
            1000.0,
            0,
            str(MEASURE_PROGRAM),
            lambda line: events.append(json.loads(line)),
            lambda: False,
            most_trials=1,
            most_tasks=1,
        )
        return events

    events = tuned()
    tried = [event for event in events if event["event"] == "trial" and event["phase"] == "network"]
    assert events[0]["open_choices"] == 2
    assert {event["task"] for event in tried} == {"winograd of first", "winograd of second"}
    assert len(tried) == 4 and {event["status"] for event in tried} == {"ok"}
    assert {event["decisions"] for event in tried} <= {"winograd=0", "winograd=2", "winograd=4"}

    x = {"x": rng.standard_normal((1, width, 28, 28)).astype(np.float32)}
    (expected,) = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, x)
    used = tw.compile(path, threads=1, db=db)
    assert np.abs(used.run(x)["y"] - expected).max() <= 2e-4 * np.abs(expected).max()
    adopted = events[-1]["choices"]
    assert (f"{adopted} choice" in used.report()) == (adopted > 0)
    assert "Choices of the network, by nodes: winograd=" in used.report()
    assert "winograd" not in tw.compile(path, threads=1, db=db, winograd=False).report()

    again = tuned()
    assert not [event for event in again if event["event"] == "trial" and event["phase"] == "network"]
    assert tuned("winograd=0")[0]["open_choices"] == 0

    shown = cli("db", "show", db, "--task", "winograd of second")
    assert shown.returncode == 0 and "2 groups" in shown.stdout and "2 tried: 2 ok" in shown.stdout
    assert all(event["decisions"] in shown.stdout for event in tried if event["task"] == "winograd of second")
    assert cli("db", "verify", db).returncode == 0
    assert cli("report", db, "-o", tmp_path / "report.html").returncode == 0
    assert "winograd of second" in (tmp_path / "report.html").read_text(encoding="utf-8")

    # Records of another build are left aside, and that is said.
    with closing(sqlite3.connect(db)) as connection, connection:
        # Of a choice: the network asks for it whatever was adopted.
        query = "SELECT digest FROM records WHERE status = 'ok' AND decisions LIKE 'winograd=%'"
        (record,) = connection.execute(query).fetchone()
        connection.execute("UPDATE records SET compiler = 'older'")
        connection.execute("INSERT INTO confirmations VALUES ('by hand', ?, 'model', 0.9, 1, 0)", (record,))
    with caplog.at_level(logging.WARNING, "tilewright"):
        outdated = tw.compile(path, threads=1, db=db)
    assert "another build of Tilewright, and are not used: tune again" in caplog.text
    assert outdated.stale_records >= 1 and "were not used: tune again" in outdated.report()


def test_command_line(network, tmp_path):
    db = tmp_path / "tune.db"
    result = cli("tune", network, "--budget", "3s", "--db", db, "-j", "1")
    assert result.returncode == 0, result.stderr
    events = [json.loads(line) for line in result.stdout.splitlines()]
    assert [events[0]["event"], events[-1]["event"]] == ["start", "end"]

    shown = cli("db", "show", db)
    assert shown.returncode == 0 and "records" in shown.stdout
    assert cli("db", "verify", db).returncode == 0
    page = cli("report", db, "-o", tmp_path / "report.html")
    assert page.returncode == 0 and "</html>" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert cli("db", "export", db, "-o", tmp_path / "rows.jsonl").returncode == 0
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert {row["table"] for row in rows} >= {"targets", "tasks"}
    merged = cli("db", "merge", tmp_path / "other.db", tmp_path / "rows.jsonl", db)
    assert f"{len(rows)} new rows" in merged.stdout and "0 new rows" in merged.stdout
    assert cli("db", "export", tmp_path / "other.db").stdout == (tmp_path / "rows.jsonl").read_text()
    assert cli("db", "prune", tmp_path / "other.db").returncode == 0
    compiled = cli("compile", network, "-o", tmp_path / "n.twa", "--db", db, "-j", "1", "-v")
    assert compiled.returncode == 0 and "schedules from the database" in compiled.stdout


def test_damaged_rows_are_found(network, tmp_path, trials_of_a_task):
    db = tmp_path / "tune.db"
    tw.tune(network, db=db, budget="60s", threads=1)
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE targets SET facts = '{}'")
    connection.close()
    result = cli("db", "verify", db)
    assert result.returncode == 1 and "key" in result.stdout


@pytest.mark.parametrize("text, seconds", [("60s", 60), ("10m", 600), ("8h", 28800), ("1h30m", 5400), (2.5, 2.5)])
def test_budgets(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("bad", ["", "10", "ten minutes", "-5s", "0s", 0, -1, True, "5s!"])
def test_budgets_that_are_none(bad):
    with pytest.raises(tw.Error, match="TW1101"):
        seconds_of(bad)


def test_bad_use(network, tmp_path):
    with pytest.raises(tw.Error, match="TW1101.*database"):
        tw.tune(network)
    with pytest.raises(tw.Error, match="TW1003.*precision"):
        tw.tune(network, db=tmp_path / "t.db", precision="f8")
    with pytest.raises(tw.Error, match="TW1301"):
        tw.tune(network, "rpi4", db=tmp_path / "t.db", budget="1s")
    with pytest.raises(tw.Error, match="TW1001.*no database"):
        tw.compile(network, db=tmp_path / "missing.db")
    (tmp_path / "text.db").write_text("these are no records\n" * 100)
    with pytest.raises(tw.Error, match="TW1001"):
        tw.compile(network, db=tmp_path / "text.db")
    with pytest.raises(tw.Error, match="TW1001"):
        tw.tune(network, db=tmp_path / "text.db", budget="1s")
    assert cli("db", "show", tmp_path / "missing.db").returncode == 2


def test_killed_jobs_lose_nothing():
    """A short form of `./dev test --campaign kills`."""
    script = ROOT / "tests/campaigns/kills.py"
    done = subprocess.run([sys.executable, script, "--count", "3"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no committed trial lost" in done.stdout


def hears_interrupts():
    """In a child: whoever runs the tests in the background has it ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def started_job(network, db):
    """A job that has reported its first trial."""
    command = [sys.executable, "-m", "tilewright", "tune", network, "--db", db, "--budget", "10m", "-j", "1"]
    process = subprocess.Popen(
        [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=hears_interrupts
    )
    lines = []
    for line in process.stdout:
        lines.append(json.loads(line))
        if lines[-1]["event"] == "trial":
            break
    return process, lines


def test_interrupted_once_it_confirms_and_ends(network, tmp_path):
    process, lines = started_job(network, tmp_path / "tune.db")
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    lines += [json.loads(line) for line in output.splitlines()]
    assert lines[-1]["event"] == "end" and lines[-1]["was_stopped"]
    assert "stopping" in [line["event"] for line in lines]
    assert cli("db", "verify", tmp_path / "tune.db").returncode == 0


def test_interrupted_twice_it_ends_at_once(network, tmp_path):
    process, lines = started_job(network, tmp_path / "tune.db")
    process.send_signal(signal.SIGINT)
    time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    ended = [json.loads(line)["event"] for line in output.splitlines()]
    assert process.returncode == 130 and "Traceback" not in errors
    assert "what was tried is kept" in errors or ended[-1:] == ["end"]  # the second came too late to matter
    assert cli("db", "verify", tmp_path / "tune.db").returncode == 0
    rows = cli("db", "export", tmp_path / "tune.db").stdout
    assert sum(event["event"] == "trial" for event in lines) <= rows.count('"table":"records"')


@pytest.mark.parametrize("code", ["asks", "does not ask"])
def test_ctrl_c_is_heard_whatever_runs(code):
    """By what is said and when, of a job that is in compiled code: once is told at once, twice ends within a second."""
    script = f"""if True:
        import ctypes, json, sys, time
        from tilewright import interrupt

        def job(send, is_stopping):
            send("begun")
            end = time.monotonic() + 20
            while time.monotonic() < end:
                if {code == "asks"!r}:
                    is_stopping()
                ctypes.CDLL(None).usleep(400_000)

        def say(what):
            print(json.dumps([what, time.monotonic()]), flush=True)

        try:
            interrupt.run_stoppable(job, say, lambda: say("stopping"))
        except KeyboardInterrupt:
            say("ended")
        import os
        os._exit(0)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, preexec_fn=hears_interrupts
    )
    assert json.loads(process.stdout.readline())[0] == "begun"
    for expected in ("stopping", "ended"):
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        what, told = json.loads(process.stdout.readline())
        assert what == expected
        assert told - sent < 5, "a busy machine is given time; alone it is less than a second"
    process.communicate(timeout=60)


@pytest.mark.parametrize("width", [80, 120])
def test_the_progress_is_one_line(width, monkeypatch):
    """Whatever the kernels are called; its figures are those of the same moment."""
    console = Console(file=io.StringIO(), force_terminal=True, width=width, legacy_windows=False)
    monkeypatch.setattr(tune_report, "console", console)
    name = "node_conv2d_/model/backbone/layers.11/blocks.3/attention/projection/Conv+Add_1234+HardSwish_1235"
    trial = {"event": "trial", "seconds": 3, "status": "ok", "task": name, "share": 0.25, "predicted_milliseconds": 3.1}
    with tune_report.progress(False) as on_event:
        on_event({"event": "start", "seconds": 0, "budget": 60, "milliseconds": 7.27, "open_choices": 3})
        on_event({"event": "tasks", "seconds": 2, "tasks": 4, "milliseconds": 3.49, "choices": 3, "earlier_trials": 0})
        for status in ("ok", "timeout", "refused", "crash"):
            on_event({**trial, "status": status})
        on_event({"event": "stopping", "seconds": 4})
    frames = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", console.file.getvalue()).replace("\r", "\n").split("\n")
    assert max(len(line.rstrip()) for line in frames) <= width
    (last,) = {line.rstrip() for line in frames if "4 tried" in line}
    assert "3.49 ms, 3.10 expected" in last and "7.27" not in last
    assert "Ctrl-C again ends at once" in console.file.getvalue()
    assert tune_report.shortened(name).startswith("node_conv2d_") and tune_report.shortened(name).endswith("_1235")


def test_channels_that_do_not_fill_a_block_are_tuned(tmp_path, trials_of_a_task):
    """24 channels are a block of 16 and half a one, whose other half nobody writes or reads."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.standard_normal((24, 8, 1, 1)).astype(np.float32) / 3,
        "w2": rng.standard_normal((24, 1, 3, 3)).astype(np.float32) / 3,
        "w3": rng.standard_normal((40, 24, 3, 3)).astype(np.float32) / 15,
    }
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w2"], ["c"], group=24, pads=[1, 1, 1, 1]),
        helper.make_node("HardSwish", ["c"], ["d"]),
        helper.make_node("Conv", ["d", "w3"], ["e"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Exp", ["e"], ["f"]),
        helper.make_node("GlobalAveragePool", ["f"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 28, 28])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 40, 1, 1])],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    trials_of_a_task(3)
    report = tw.tune(model, db=tmp_path / "t.db", budget="60s", threads=1)
    assert not report.skipped and "wrong" not in report.by_status and report.by_status["ok"] >= 4
    x = {"x": rng.standard_normal((1, 8, 28, 28)).astype(np.float32)}
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, x)[0]
    np.testing.assert_allclose(tw.compile(model, db=tmp_path / "t.db", threads=1).run(x)["y"], expected, rtol=1e-4)


def test_what_a_callback_raises_ends_the_job(network, tmp_path):
    def on_event(event):
        if event["event"] == "trial":
            raise ValueError("enough")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="enough"):
        tw.tune(network, db=tmp_path / "tune.db", budget="60s", threads=1, on_event=on_event)
    assert cli("db", "verify", tmp_path / "tune.db").returncode == 0
    assert signal.getsignal(signal.SIGINT) is before


def test_where_it_is_ignored_it_stays_so(network, tmp_path):
    """As of jobs that nohup has put into the background."""
    ignores = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    command = [
        sys.executable,
        "-m",
        "tilewright",
        "tune",
        network,
        "--db",
        tmp_path / "t.db",
        "--budget",
        "4s",
        "-j",
        "1",
    ]
    process = subprocess.Popen([*map(str, command)], stdout=subprocess.PIPE, text=True, preexec_fn=ignores)
    for line in process.stdout:
        if json.loads(line)["event"] == "trial":
            break
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and not json.loads(output.splitlines()[-1])["was_stopped"]


def test_a_command_ends_at_once(network, tmp_path):
    """Of bench, which would run compiled code for a minute; shells call the end by the signal 130."""
    own = tmp_path / "own.py"
    own.write_text('import sys\nprint("begun", file=sys.stderr, flush=True)\noperators = []\n')
    command = [sys.executable, "-m", "tilewright", "bench", network, "--operators", own, "--seconds", "60"]
    process = subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True, preexec_fn=hears_interrupts)
    assert process.stderr.readline() == "begun\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGINT and errors in ("", "no --input: seeded random inputs\n")


@pytest.mark.parametrize("trials", [2, 5])
def test_one_task_is_explained(network, tmp_path, trials_of_a_task, trials):
    db, events = tmp_path / "tune.db", []
    trials_of_a_task(trials)
    tw.tune(network, db=db, budget="60s", threads=1, on_event=events.append)
    tried = [event for event in events if event["event"] == "trial"]
    task, key = tried[0]["task"], tried[0]["key"]
    own = [event for event in tried if event["key"] == key]
    for arguments in (["tune", network, "--db", db, "--explain", task], ["db", "show", db, "--task", key[:10]]):
        result = cli(*arguments)
        assert result.returncode == 0, result.stderr
        assert task in result.stdout and f"{len(own)} tried" in result.stdout
        measured = [event for event in own if event["status"] == "ok"]
        if not measured and trials == 2:  # a busy machine gives up on both
            continue
        best = min(measured, key=lambda event: event["ratio_to_default"])
        assert best["decisions"] in result.stdout
        assert ("rank correlation" in result.stdout) == (len(measured) >= 3)
    unknown = cli("db", "show", db, "--task", "nothing of the kind")
    assert unknown.returncode == 2 and "TW1101" in unknown.stderr


def test_convergence_campaign(tmp_path):
    """A short form of `./dev test --campaign convergence`."""
    script = ROOT / "tests/campaigns/convergence.py"
    result = subprocess.run(
        [sys.executable, script, "--trials", "5", "--threads", "1", "--kernels", "1", "-o", tmp_path / "curves.html"],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "share" in result.stdout and "over 1 kernels" in result.stdout
    assert (tmp_path / "curves.html").stat().st_size > 1000


def test_a_template_of_ones_own(network, tmp_path, trials_of_a_task):
    asked = []

    def rows_of_four(schedule):
        """Of products only; asked for with each kernel."""
        asked.append(schedule.func.name)
        (block, *_) = schedule.blocks()
        loops = schedule.loops(block)
        if len(loops) != 3:
            return False
        size = schedule.decide("size", [2, 4, 8], analytic=4)
        schedule.split(loops[1], [None, size])
        return True

    x = np.random.default_rng(1).standard_normal((1, 16, 14, 14)).astype(np.float32)
    expected = tw.compile(network, threads=1).run({"x": x})["y"]
    ours = tw.compile(network, threads=1, template=rows_of_four)
    np.testing.assert_allclose(ours.run({"x": x})["y"], expected, rtol=1e-3, atol=1e-4)
    assert len(set(asked)) >= 2

    db, events = tmp_path / "tune.db", []
    tw.tune(network, db=db, budget="60s", threads=1, template=rows_of_four, on_event=events.append)
    assert any("size=" in event["decisions"] for event in events if event["event"] == "trial")
    tuned = tw.compile(network, threads=1, template=rows_of_four, db=db)
    np.testing.assert_allclose(tuned.run({"x": x})["y"], expected, rtol=1e-3, atol=1e-4)
    # Records with a template are for it alone.
    assert "0 kernels with schedules from the database" in tw.compile(network, threads=1, db=db).report()


def test_templates_that_fail(network):
    def raises(schedule):
        raise ValueError("as it is")

    for template, message in ((raises, "as it is"), (lambda s: None, "neither True nor False"), (3, "no template")):
        with pytest.raises(tw.Error, match=f"(?s)TW1401.*{message}"):
            tw.compile(network, threads=1, template=template)
    with pytest.raises(tw.Error, match="TW1401.*schedules of your own"):
        tw.compile(network, "cuda:sm_90", template=raises)
