"""Machines that measure for tuning jobs: who may ask, what is refused, and what becomes of a job whose devices fail."""

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import tilewright as tw
from conftest import ROOT, model_of, run_tw, value
from tilewright import _core
from tilewright.device import Lost, TcpDevice, open_devices
from tilewright.device_wire import Key, Refused, digest, make_key
from tilewright.device_worker import MEASURE_PROGRAM, Failed, Server, Worker

BOARDS = ROOT / "build" / "boards"


@pytest.fixture(scope="session")
def key(tmp_path_factory):
    path = tmp_path_factory.mktemp("key") / "fleet.key"
    make_key(path)
    return Key(path)


@pytest.fixture(scope="session")
def worker():
    return Worker()


@pytest.fixture
def serve(worker, key):
    """Starts servers in this process."""
    servers = []

    def start(worker=worker, key=key, **options):
        server = Server(worker, key, "127.0.0.1", 0, **options)
        server.lines = []
        server.log = server.lines.append
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="session")
def network():
    """A convolution and a product, with some schedules each."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": (rng.standard_normal((16, 8, 3, 3)) / 9).astype(np.float32),
        "w2": (rng.standard_normal((16 * 8 * 8, 24)) / 32).astype(np.float32),
    }
    nodes = [
        ("Conv", ["x", "w1"], ["c"], {"pads": [1, 1, 1, 1]}),
        ("Relu", ["c"], ["r"]),
        ("Flatten", ["r"], ["f"]),
        ("MatMul", ["f", "w2"], ["y"]),
    ]
    return model_of(nodes, [value("x", [1, 8, 8, 8])], [value("y", [1, 24])], weights)


def tune(network, db, devices, key, seconds=60, **options):
    events = []
    report = tw.tune(
        network, db=db, budget=seconds, threads=1, devices=devices, key_file=key.path, on_event=events.append, **options
    )
    return report, [event for event in events if event["event"] == "trial"]


# Keys and messages.


def test_key_files(tmp_path, key):
    assert key.path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(tw.Error, match="TW1001.*is there already"):
        make_key(key.path)
    copy = tmp_path / "copy.key"
    copy.write_bytes(key.path.read_bytes())
    copy.chmod(0o644)
    with pytest.raises(tw.Error, match="TW1001(.|\n)*read by others(.|\n)*chmod 600"):
        Key(copy)
    for content in ("", "no key", key.path.read_text()[:200], key.path.read_text().replace("A", "B")):
        copy.write_text(content)
        copy.chmod(0o600)
        with pytest.raises(tw.Error, match="TW1001.*is no key file"):
            Key(copy)
    with pytest.raises(tw.Error, match="TW1001"):
        Key(tmp_path / "missing")


def test_what_a_machine_says(serve, key, worker):
    device = TcpDevice(serve().address, key)
    assert json.loads(device.reach()) == worker.facts
    assert worker.facts["threads"] >= 1 and not worker.facts["is_emulated"]


def test_another_key_is_refused_by_both_sides(serve, key, tmp_path, worker):
    make_key(tmp_path / "other.key")
    other = Key(tmp_path / "other.key")
    server = serve()
    with pytest.raises(Lost, match="same key"):
        TcpDevice(server.address, other).reach()
    with pytest.raises(Lost, match="same key"):
        TcpDevice(serve(key=other).address, key).reach()
    assert json.loads(TcpDevice(server.address, key).reach()) == worker.facts
    assert any("refused" in line for line in server.lines)


def test_strangers_do_not_keep_jobs_out(serve, key):
    server = serve()
    address = server.address.removeprefix("tcp://").rsplit(":", 1)
    strangers = [socket.create_connection((address[0], int(address[1]))) for _ in range(4)]
    strangers[0].sendall(b"GET / HTTP/1.1\r\n\r\n")
    with contextlib.suppress(OSError):  # turned away while they talk
        strangers[1].sendall(bytes(100000))
    strangers[2].close()
    assert TcpDevice(server.address, key).reach()
    for stranger in strangers:
        stranger.close()


def channel_to(server, key):
    host, port = server.address.removeprefix("tcp://").rsplit(":", 1)
    channel = key.secure(socket.create_connection((host, int(port))), False, 5)
    channel.send({"kind": "hello", "version": 1})
    assert channel.receive()[0]["kind"] == "facts"
    return channel


@pytest.mark.parametrize(
    "raw",
    [
        struct.pack(">I", 1 << 31),
        struct.pack(">I", 2) + b"[]",
        struct.pack(">I", 4) + b"\xff\xfe\x00\x00",
        struct.pack(">I", 30) + b"[" * 30,
        struct.pack(">I", 30) + b'{"kind":"measure","sizes":[]} ',
        struct.pack(">I", 30) + b'{"kind":"measure","sizes":[-1]}'[:30],
        struct.pack(">I", 34) + b'{"kind":"measure","sizes":[999999]}'[:34],
    ],
)
def test_messages_that_are_none_end_the_connection_only(serve, key, raw):
    server = serve()
    channel = channel_to(server, key)
    channel.connection.sendall(raw)
    with pytest.raises((Refused, OSError)):
        channel.receive(seconds=5)
    assert TcpDevice(server.address, key).reach()


def request_of(*sent, **changes):
    names = [digest(part) for part in sent]
    return {"kind": "measure", "parts": names, "most_bytes": 1000, "seconds": 5.0, **changes}


@pytest.mark.parametrize(
    "changes",
    [
        {"parts": ["a", "b", "c", "d"]},
        {"parts": None},
        {"seconds": 1e9},
        {"seconds": "1"},
        {"seconds": float("nan")},
        {"most_bytes": -1},
        {"most_bytes": 1 << 60},
        {"kind": "run"},
    ],
)
def test_requests_that_are_none(serve, key, changes):
    server = serve()
    channel = channel_to(server, key)
    channel.send(request_of(b"1", b"2", b"3", b"4", **changes))
    with pytest.raises((Refused, OSError)):
        channel.receive(seconds=5)


def test_parts_are_limited_and_compared(serve, key):
    server = serve(most_bytes=10000)
    for sent in ([bytes(20000)], [b"another", b"2", b"3", b"4"], []):
        channel = channel_to(server, key)
        channel.send(request_of(b"1", b"2", b"3", b"4"))
        assert channel.receive()[0] == {"kind": "need", "parts": [0, 1, 2, 3], "sizes": []}
        with pytest.raises((Refused, OSError)):  # refused while it is sent, or behind that
            channel.send({"kind": "parts"}, sent)
            channel.receive(seconds=5)
    assert TcpDevice(server.address, key).reach()


def test_parts_that_are_no_request_are_answered(serve, key):
    device = TcpDevice(serve().address, key)
    device.reach()
    answer = device.call([b"1", b"2", b"3", b"4"], 4096, 10.0)
    assert b"request, byte" in answer
    assert device.call([b"1", b"2", b"3", b"4"], 4096, 10.0) == answer
    with pytest.raises(Lost, match="more than 10 bytes"):
        device.call([b"1", b"2", b"3", b"4"], 10, 10.0)
    assert device.call([b"1", b"2", b"3", b"4"], 4096, 10.0) == answer  # the connection is as before


def test_one_job_at_a_time(serve, key, monkeypatch):
    server = serve()
    first, second, third = (TcpDevice(server.address, key) for _ in range(3))
    first.reach()
    leaving = threading.Timer(1.5, first.close)
    leaving.start()
    assert second.reach()  # once the first has left
    monkeypatch.setattr("tilewright.device.BUSY_SECONDS", 0)
    with pytest.raises(Lost, match="busy with another job"):
        third.reach()


# What runs.


@pytest.fixture
def endless(tmp_path):
    """Stands for a tw-measure that never answers, and says where it runs."""
    path = tmp_path / "endless"
    path.write_text(
        f"#!/bin/sh\n[ $1 = --facts ] && exec {Worker().command[0]} --facts\n"
        f"echo $$ > {tmp_path}/pid\nexec sleep 1000\n"
    )
    path.chmod(0o755)
    return path


def is_running(pid_file):
    try:
        os.kill(int(pid_file.read_text()), 0)
    except (OSError, ValueError):
        return False
    return True


def wait_for(condition):
    """Gives up where it waits in vain."""
    deadline = time.monotonic() + 600
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_hangs_is_ended(serve, key, endless, tmp_path):
    worker = Worker(endless)
    with pytest.raises(Failed, match="in time"):
        worker.measure([b""] * 4, 100, 0.3)
    wait_for(lambda: not is_running(tmp_path / "pid"))
    # A job that leaves ends what runs for it, and the next is served.
    server = serve(worker)
    device = TcpDevice(server.address, key)
    device.reach()
    with pytest.raises(Lost, match="in time"):
        device.call([b"", b"1", b"2", b"3"], 100, 0.8)
    wait_for(lambda: not is_running(tmp_path / "pid"))
    device.reach()
    (tmp_path / "pid").unlink(missing_ok=True)

    def interrupt_what_runs():
        wait_for(lambda: is_running(tmp_path / "pid"))
        device.interrupt()

    threading.Thread(target=interrupt_what_runs).start()
    with pytest.raises(Lost):
        device.call([b"", b"1", b"2", b"3"], 100, 3000)
    wait_for(lambda: not is_running(tmp_path / "pid"))


def test_programs_that_are_none(tmp_path):
    for program in ("/no-such-program", "/bin/true", "/bin/false"):
        with pytest.raises(tw.Error, match="TW1001(.|\n)*--program"):
            Worker(program)


# Jobs.


def test_a_job_on_two_devices(network, serve, key, tmp_path, trials_of_a_task):
    servers = [serve(), serve()]
    counts = {}
    for server in servers:
        measure = server.worker.measure

        def counted(*arguments, server=server, measure=measure):
            counts[server.address] = counts.get(server.address, 0) + 1
            return measure(*arguments)

        server.worker = type("Counted", (), {"facts": server.worker.facts, "measure": staticmethod(counted)})
    report, trials = tune(network, tmp_path / "t.db", [server.address for server in servers], key)
    assert report.trials == len(trials)
    assert report.lost_devices == [] and report.skipped == []
    assert set(report.by_status) <= {"ok", "spill", "refused", "timeout"}
    assert len(trials) > 2 and len(counts) == 2
    # It is this machine, so its records are this machine's.  One schedule may be of several kernels.
    compiled = tw.compile(network, threads=1, db=tmp_path / "t.db").report()
    assert f"schedules from the database ({report.adopted - report.choices} record" in compiled


def test_choices_of_the_network_are_tried_on_the_device(serve, key, tmp_path):
    rng = np.random.default_rng(0)
    weights = {name: (rng.standard_normal((32, 32, 3, 3)) / 17).astype(np.float32) for name in ("w1", "w2")}
    nodes = [("Conv", ["x", "w1"], ["c"], {"pads": [1, 1, 1, 1]}), ("Conv", ["c", "w2"], ["y"], {})]
    model = tw.load(model_of(nodes, [value("x", [1, 32, 14, 14])], [value("y", [1, 32, 12, 12])], weights))
    events, db, server = [], tmp_path / "t.db", serve()
    _core.tune(
        model._core,
        "cpu",
        str(db),
        1,
        "f32",
        "",
        1000.0,
        0,
        str(MEASURE_PROGRAM),
        lambda line: events.append(json.loads(line)),
        lambda: False,
        devices=open_devices([server.address], key.path),
        most_trials=1,
        most_tasks=1,
    )
    tried = [event for event in events if event["event"] == "trial" and event["phase"] == "network"]
    assert events[0]["open_choices"] == 2 and len(tried) == 4
    assert {event["status"] for event in tried} == {"ok"} and all(event["ratio"] > 0 for event in tried)
    adopted = events[-1]["choices"]
    assert (f"{adopted} choice" in tw.compile(model, threads=1, db=db).report()) == (adopted > 0)


class Liar:
    """Holds the key, and answers what it likes: `answer` is called with the channel, once a request was sent."""

    def __init__(self, key, facts, answer):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "tcp://{}:{}".format(*self.listener.getsockname())
        self.key, self.facts, self.answer = key, facts, answer
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                channel = self.key.secure(self.listener.accept()[0], True, 5)
                channel.receive()
                channel.send({"kind": "facts", "facts": self.facts})
                while True:
                    head, _ = channel.receive(seconds=600)
                    channel.send({"kind": "need", "parts": list(range(len(head["parts"])))})
                    channel.receive(1 << 30, 60)
                    self.answer(channel)
            except (OSError, Refused):
                channel.close()


def endless_bytes(channel):
    for _ in range(10000):
        channel.connection.sendall(struct.pack(">I", 1 << 16) + b" " * (1 << 16))


LIES = {
    "nothing": lambda channel: channel.send({"kind": "answer"}, [b""]),
    "garbage": lambda channel: channel.send({"kind": "answer"}, [os.urandom(5000)]),
    "too much": lambda channel: channel.send({"kind": "answer"}, [bytes(1 << 22)]),
    "no parts": lambda channel: channel.send({"kind": "answer"}),
    "absurd sizes": lambda channel: channel.connection.sendall(
        struct.pack(">I", 50) + b'{"kind":"answer","sizes":[999999999999999999999]}'.ljust(50)
    ),
    "endless bytes": endless_bytes,
    "hangs up": lambda channel: channel.close(),
}


def test_lies_cost_only_what_ran(network, serve, key, worker, tmp_path, trials_of_a_task):
    liars = [Liar(key, worker.facts, lie).address for lie in LIES.values()]
    report, trials = tune(network, tmp_path / "t.db", [*liars, serve().address], key)
    assert len(trials) > 0 and set(report.by_status) <= {"ok", "spill", "refused", "timeout"}
    assert not report.skipped
    assert {line.split(": ")[0] for line in report.lost_devices} <= set(liars)


def test_facts_that_are_none(network, key, worker, tmp_path):
    for facts in ({}, None, {**worker.facts, "threads": -1}, {**worker.facts, "features": 3}):
        liar = Liar(key, facts, LIES["nothing"])
        with pytest.raises(tw.Error, match="TW1501.*none of the job's devices(.|\n)*in words"):
            tune(network, tmp_path / "t.db", [liar.address], key)


def test_devices_of_two_kinds_are_refused(network, serve, key, worker, tmp_path):
    other = Liar(key, {**worker.facts, "l2_bytes": 12345}, LIES["nothing"])
    with pytest.raises(tw.Error, match="TW1301.*of one kind"):
        tune(network, tmp_path / "t.db", [serve().address, other.address], key)


def start_server(key):
    process = subprocess.Popen(
        [sys.executable, "-m", "tilewright", "device", "serve", "--key-file", key.path, "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    line = process.stdout.readline()
    assert " measures at tcp://127.0.0.1:" in line
    return process, line.split()[-1]


def test_devices_that_die(network, key, tmp_path):
    servers = [start_server(key) for _ in range(2)]
    db = tmp_path / "t.db"
    try:
        assert "threads" in run_tw("device", "show", servers[0][1], "--key-file", key.path).stdout
        after = {3: servers[0][0], 6: servers[1][0]}
        events = []

        def on_event(event):
            events.append(event)
            tried = sum(event["event"] == "trial" for event in events)
            if event["event"] == "trial" and tried in after:
                after[tried].send_signal(signal.SIGKILL)

        with pytest.raises(tw.Error, match="TW1501.*last of the job's devices(.|\n)*goes on from there"):
            tw.tune(
                network,
                db=db,
                budget=600,
                threads=1,
                devices=[address for _, address in servers],
                key_file=key.path,
                on_event=on_event,
            )
    finally:
        for process, _ in servers:
            process.kill()
            process.wait()
    kept = sum(event["event"] == "trial" for event in events)
    lost = [event["device"] for event in events if event["event"] == "device_lost"]
    assert kept >= 6 and sorted(lost) == sorted(address for _, address in servers)
    assert all("seconds" in event for event in events)
    shown = run_tw("db", "show", db).stdout
    assert f"records {kept}" in " ".join(shown.split())


def test_command_line(network, serve, key, tmp_path):
    import onnx

    onnx.save(network, tmp_path / "n.onnx")
    made = run_tw("device", "key", tmp_path / "new.key")
    assert made.returncode == 0 and Key(tmp_path / "new.key")
    model, server = tmp_path / "n.onnx", serve()
    arguments = ["tune", model, "--budget", "1s", "-j", "1", "--device", server.address]
    result = run_tw(*arguments, "--key-file", key.path, "--db", tmp_path / "t.db")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout.splitlines()[-1])["event"] == "end"
    refused = run_tw(*arguments, "--db", tmp_path / "t.db")
    assert refused.returncode == 2 and "TW1101" in refused.stderr and "tw device key" in refused.stderr
    assert run_tw("device", "serve").returncode == 2
    nobody = run_tw(*arguments[:-1], "tcp://127.0.0.1:1", "--key-file", key.path, "--db", tmp_path / "t.db")
    assert nobody.returncode == 2 and "TW1501 none of the job's devices can be reached" in nobody.stderr


@pytest.mark.parametrize("bad", ["rack", "tcp://rack", "tcp://:5", "rack:port", "rack:99999"])
def test_addresses_that_are_none(key, bad):
    with pytest.raises(tw.Error, match="TW1101(.|\n)*tcp://HOST:PORT"):
        open_devices([bad], key.path)


# Boards in the emulator: whether candidates compute what they should; how fast, no emulator knows.


def test_an_emulated_board(network, serve, key, tmp_path, trials_of_a_task):
    board = Worker(BOARDS / "aarch64" / "tw-measure", ["qemu-aarch64"])
    assert board.facts["architecture"] == "aarch64" and board.facts["is_emulated"]
    server = serve(board)
    with pytest.raises(tw.Error, match="TW1301.*emulated(.|\n)*--check"):
        tune(network, tmp_path / "t.db", [server.address], key, target="rpi4")
    assert not (tmp_path / "t.db").exists()
    report, trials = tune(network, None, [server.address], key, target="rpi4", check=True)
    assert len(trials) >= 1 and set(report.by_status) <= {"ok", "spill", "refused", "timeout"}
    assert "ok" in report.by_status and not report.skipped and report.adopted == 0
    with pytest.raises(tw.Error, match="TW1301.*on these devices"):
        tune(network, None, [server.address], key, target="x86:avx2", check=True)
    with pytest.raises(tw.Error, match="TW1301.*lacks dotprod"):
        tune(network, None, [serve(cortex_a53()).address], key, target="rpi5", check=True)


def cortex_a53():
    return Worker(BOARDS / "aarch64" / "tw-measure", ["qemu-aarch64", "-cpu", "cortex-a53"])


def test_a_check_keeps_nothing(network, tmp_path):
    with pytest.raises(tw.Error, match="TW1101.*keeps no records"):
        tw.tune(network, db=tmp_path / "t.db", check=True)


# Ray.


def test_ray(network, tmp_path, trials_of_a_task):
    from tilewright.ray_devices import RayPool

    with RayPool("local") as pool:
        assert len(pool.devices) == 1
        lost = []

        def on_event(event):
            if event["event"] == "trial" and not lost:
                lost.append(pool.devices[0].actor)
                pool.ray.kill(lost[0])  # the next candidate runs on a new one

        report = tw.tune(network, db=tmp_path / "t.db", budget=60, threads=1, devices=pool.devices, on_event=on_event)
        assert report.trials > 1 and set(report.by_status) <= {"ok", "spill", "refused", "timeout"}
        assert pool.devices[0].actor is not lost[0]


def test_ray_that_is_not_there(monkeypatch):
    from tilewright.ray_devices import RayPool

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(tw.Error, match="TW1501.*Ray cluster"):
        RayPool("auto")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(tw.Error, match="TW1501 Ray is not installed(.|\n)*tilewright.ray"):
        RayPool()
