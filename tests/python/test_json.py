"""Every command's result for scripts: with --json one object on stdout, and nothing else there."""

import json

import onnx
import pytest
import typer

from conftest import model_of, run_tw, small_network, value

# What they print is not one result: rows as lines of JSON, and a server.
OTHERS = {"db export", "device serve"}
COMMANDS = {
    "doctor": ["--no-measure"],
    "explain": ["net.onnx"],
    "compile": ["net.onnx", "-o", "other.twa"],
    "deploy": ["net.onnx", "-o", "folder"],
    "run": ["net.twa"],
    "bench": ["net.twa", "--seconds", "0.01"],
    "check": ["net.onnx"],
    "compare": ["net.onnx", "--no-propose"],
    "reduce": ["wrong.onnx", "-o", "small.onnx"],
    "tune": ["net.onnx", "--db", "tune.db", "--explain", "a+b"],
    "db show": ["tune.db"],
    "db merge": ["tune.db", "tune.db"],
    "db verify": ["tune.db"],
    "db prune": ["tune.db"],
    "report": ["tune.db", "-o", "report.html"],
    "device key": ["fleet.key"],
    "inspect": ["net.twa"],
    "kit make": ["-o", "kit", "--only", "operation-not-bool"],
    "kit read": ["results"],
}
KEYS = {
    "doctor": {"tilewright", "machine", "targets", "cuda", "boards"},
    "explain": {"operators", "flops", "parameter_bytes", "refused", "nodes"},
    "compile": {"artifact", "bytes", "target", "kernels", "seconds"},
    "deploy": {"folder", "bytes", "target", "files"},
    "run": {"y"},
    "reduce": {"model", "failure", "nodes", "nodes_before", "command"},
    "tune": {"name", "key", "tried", "by_status", "measured"},
    "db show": {"tasks", "records", "by_status"},
    "kit make": {"folder", "cases", "left_out"},
    "kit read": {"device", "counts", "failed", "rates"},
    "inspect": {"file", "target", "architecture", "steps"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("json")
    onnx.save(small_network(), folder / "net.onnx")
    nodes = [("Relu", ["x"], ["a"]), ("Nonsense", ["a"], ["y"])]
    onnx.save(model_of(nodes, [value("x", [4])], [value("y", [4])]), folder / "wrong.onnx")
    assert run_tw("compile", "net.onnx", cwd=folder).returncode == 0
    tuned = run_tw("tune", "net.onnx", "--db", "tune.db", "--budget", "2s", "-j", "1", cwd=folder)
    events = [json.loads(line) for line in tuned.stdout.splitlines()]
    assert tuned.returncode == 0 and events[-1]["event"] == "end", tuned.stderr
    names = [event["task"] for event in events if event["event"] == "trial"]
    passed = {"name": "a", "kind": "suite", "status": "passed", "outputs": []}
    facts = {"tilewright": "1", "target": "cuda:sm_90", "compiler": "", "device": {"name": "GPU"}, "ceilings": {}}
    (folder / "results").mkdir()
    (folder / "results/results.json").write_text(json.dumps({**facts, "is_complete": True, "cases": [passed]}))
    return folder, names[0]


def all_commands() -> list[str]:
    from tilewright.cli import app

    group = typer.main.get_command(app)
    found = []
    for name, command in group.commands.items():
        found += [f"{name} {inner}" for inner in command.commands] if hasattr(command, "commands") else [name]
    return found


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_command_prints_one_object(folder, command):
    where, task = folder
    arguments = [task if argument == "a+b" else argument for argument in COMMANDS[command]]
    done = run_tw(*command.split(), *arguments, "--json", cwd=where)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = done.stdout.splitlines()
    facts = json.loads(line)
    assert isinstance(facts, dict) and KEYS.get(command, set()) <= facts.keys()


def test_no_command_is_left_out():
    assert set(all_commands()) == COMMANDS.keys() | OTHERS | {"device show"}


def test_a_device_tells_of_itself(tmp_path):
    import subprocess
    import sys

    assert run_tw("device", "key", "k", cwd=tmp_path).returncode == 0
    command = [sys.executable, "-m", "tilewright", "device", "serve", "--key-file", "k", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as server:
        address = server.stdout.readline().split()[-1]
        shown = run_tw("device", "show", address, "--key-file", "k", "--json", cwd=tmp_path)
        server.terminate()
    assert shown.returncode == 0 and json.loads(shown.stdout)["threads"] >= 1, shown.stderr


def test_what_is_refused_is_there_for_scripts(folder):
    where, _ = folder
    facts = json.loads(run_tw("explain", "wrong.onnx", "--json", cwd=where).stdout)
    assert [row["operator"] for row in facts["refused"]] == ["Nonsense"]


def test_lines_are_not_wrapped_where_they_are_piped(folder):
    where, _ = folder
    lines = run_tw(
        "inspect", "net.twa", cwd=where, env={"PATH": "/usr/bin:/bin", "TW_CACHE": "off"}
    ).stdout.splitlines()
    kernels = [line for line in lines if "conv_" in line]
    assert kernels and all(line.split()[0].isdigit() for line in kernels)
