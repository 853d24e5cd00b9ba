"""What a machine does that measures for tuning jobs: runs `tw-measure` on what it is sent.

`Worker` runs one request in a process; `Server` lets one job at a time ask for it over the network.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import socket
import struct
import subprocess
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .device_wire import MOST_PARTS, VERSION, Channel, Key, Refused, digest
from .error import Error

logger = logging.getLogger(__name__)
MEASURE_PROGRAM = Path(__file__).parent / "tw-measure"
REQUEST_PARTS = 4  # autotune/measure/message.h
MOST_SECONDS = 3600.0
HANDSHAKE_SECONDS = 5.0
IDLE_SECONDS = 3600.0
MOST_HANDSHAKES = 8


class Failed(Exception):
    """The program gave no answer; says why."""


class Worker:
    """Runs `tw-measure`, here or, by a command before it, in an emulator or on a board: ("ssh", "board")."""

    def __init__(
        self,
        program: str | os.PathLike[str] = MEASURE_PROGRAM,
        run_with: Sequence[str] = (),
        is_emulated: bool = False,
    ):
        self.command = [*run_with, os.fspath(program)]
        try:
            shown = subprocess.run(
                [*self.command, "--facts"], stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True
            )
            facts = json.loads(shown.stdout)
            facts["is_emulated"] = bool(is_emulated or facts["is_emulated"])
        except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
            raise Error(
                "TW1001",
                f"{' '.join(self.command)} does not say what it runs on: {error}\n"
                "help: --program names the tw-measure of that machine; `./dev build board_runners` makes static ones",
            ) from None
        self.facts = facts

    def measure(
        self, parts: Sequence[bytes], most_bytes: int, seconds: float, is_gone: Callable[[], bool] = lambda: False
    ) -> bytes:
        """The answer to a request.  Failed when there is none in time, or nobody wants it any more."""
        with subprocess.Popen(
            [*self.command, "--job"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                return self._exchange(
                    process, parts, most_bytes, time.monotonic() + min(seconds, MOST_SECONDS), is_gone
                )
            finally:
                try:
                    os.killpg(process.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def _exchange(
        self,
        process: subprocess.Popen[bytes],
        parts: Sequence[bytes],
        most_bytes: int,
        deadline: float,
        is_gone: Callable[[], bool],
    ) -> bytes:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None and stdout is not None
        sizes = struct.pack(f"<{len(parts)}Q", *map(len, parts))
        to_write = [memoryview(part) for part in (sizes, *parts)]
        answer = bytearray()
        os.set_blocking(stdin.fileno(), False)
        with selectors.DefaultSelector() as selector:
            selector.register(stdin, selectors.EVENT_WRITE)
            selector.register(stdout, selectors.EVENT_READ)
            while True:
                if time.monotonic() > deadline:
                    raise Failed("tw-measure gave no answer in time")
                if is_gone():
                    raise Failed("nobody waits for the answer")
                for key, _ in selector.select(0.1):
                    if key.fileobj is stdout:
                        chunk = os.read(stdout.fileno(), 1 << 20)
                        if not chunk:
                            if process.wait(5) != 0:
                                raise Failed(f"tw-measure ended with {process.returncode}")
                            return bytes(answer)
                        answer += chunk
                        if len(answer) > most_bytes:
                            raise Failed(f"tw-measure answers with more than {most_bytes} bytes")
                        continue
                    try:
                        written = os.write(stdin.fileno(), to_write[0][: 1 << 20])
                        to_write[0] = to_write[0][written:]
                        while to_write and not to_write[0]:
                            del to_write[0]
                    except BrokenPipeError:
                        to_write.clear()
                    if not to_write:
                        selector.unregister(stdin)
                        stdin.close()


class Server:
    """Listens, and serves one job at a time; others that hold the key are told that it is busy."""

    def __init__(self, worker: Worker, key: Key, host: str, port: int, most_bytes: int = 1 << 30):
        self.worker, self.key, self.most_bytes = worker, key, most_bytes
        self.busy = threading.Lock()
        self.handshakes = threading.Semaphore(MOST_HANDSHAKES)
        try:
            self.listener = socket.create_server((host, port), backlog=MOST_HANDSHAKES)
        except OSError as error:
            raise Error("TW1001", f"{host}:{port} cannot be listened at: {error.strerror or error}") from None
        self.address = "tcp://{}:{}".format(*self.listener.getsockname()[:2])
        self.log: Callable[[str], None] = logger.info

    def serve_forever(self) -> None:
        while True:
            try:
                connection, peer = self.listener.accept()
            except OSError:
                return
            if not self.handshakes.acquire(blocking=False):
                connection.close()
                continue
            threading.Thread(target=self._serve, args=(connection, f"{peer[0]}:{peer[1]}"), daemon=True).start()

    def close(self) -> None:
        self.listener.close()

    def _serve(self, connection: socket.socket, peer: str) -> None:
        try:
            try:
                channel = self.key.secure(connection, True, HANDSHAKE_SECONDS)
            finally:
                self.handshakes.release()
        except (OSError, Refused, ValueError) as error:
            self.log(f"{peer} refused: {error}")
            connection.close()
            return
        try:
            head, _ = channel.receive(seconds=HANDSHAKE_SECONDS)
            if head["kind"] != "hello" or head.get("version") != VERSION:
                channel.send({"kind": "failed", "reason": "another version of Tilewright measures here"})
                return
            if not self.busy.acquire(timeout=1):
                channel.send({"kind": "busy"})
                return
            try:
                self.log(f"{peer} measures")
                channel.send({"kind": "facts", "facts": self.worker.facts})
                self._serve_job(channel)
            finally:
                self.busy.release()
        except (OSError, Refused, ValueError) as error:
            self.log(f"{peer} left: {error}")
        finally:
            channel.close()

    def _serve_job(self, channel: Channel) -> None:
        kept: OrderedDict[str, bytes] = OrderedDict()  # parts of earlier requests, by digest
        while True:
            head, _ = channel.receive(seconds=IDLE_SECONDS)
            wanted, most_bytes, seconds = checked_request(head)
            channel.send({"kind": "need", "parts": [i for i, name in enumerate(wanted) if name not in kept]})
            _, sent = channel.receive(self.most_bytes, seconds)
            for part in sent:
                kept[digest(part)] = part
            if not all(name in kept for name in wanted):
                raise Refused("parts that are not those of the request")
            parts = [kept[name] for name in wanted]
            for name in wanted:
                kept.move_to_end(name)
            while len(kept) > REQUEST_PARTS and sum(map(len, kept.values())) > self.most_bytes:
                kept.popitem(last=False)
            try:
                answer = self.worker.measure(parts, most_bytes, seconds, lambda: is_closed(channel))
            except (Failed, OSError, subprocess.SubprocessError) as error:
                channel.send({"kind": "failed", "reason": str(error)[:1000]})
                continue
            channel.send({"kind": "answer"}, [answer], seconds)


def checked_request(head: dict[str, Any]) -> tuple[list[str], int, float]:
    wanted, most_bytes, seconds = head.get("parts"), head.get("most_bytes"), head.get("seconds")
    if not (
        head["kind"] == "measure"
        and isinstance(wanted, list)
        and len(wanted) == REQUEST_PARTS <= MOST_PARTS
        and all(isinstance(name, str) and len(name) == 64 for name in wanted)
        and type(most_bytes) is int
        and 0 <= most_bytes < 1 << 33
        and isinstance(seconds, (int, float))
        and not isinstance(seconds, bool)
        and 0 < seconds <= MOST_SECONDS
    ):
        raise Refused("no request")
    return wanted, most_bytes, float(seconds)


def is_closed(channel: Channel) -> bool:
    """Whether the job has gone, which says nothing while it waits."""
    with selectors.DefaultSelector() as selector:
        selector.register(channel.connection, selectors.EVENT_READ)
        return bool(selector.select(0))
