"""Whether a model fails: what a compilation and a run of it do, in a process that may crash or hang."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from .error import Error
from .onnx_parts import Case


@dataclass(frozen=True)
class Failure:
    """What a model does: "ok", "differs", "error TW1404", "crash SIGSEGV", or "hang".

    "unusable": nothing could be found out, for the other side does not take the model; `detail` says why.  `node`:
    where it differs first, if that was asked for.
    """

    kind: str
    detail: str = ""
    node: str = ""

    def is_like(self, other: Failure) -> bool:
        return self.kind == other.kind


def pipes_of(child: subprocess.Popen[bytes]) -> tuple[IO[bytes], IO[bytes]]:
    """stdin and stdout."""
    assert child.stdin is not None and child.stdout is not None
    return child.stdin, child.stdout


class Judge:
    """A process that judges one model after the other; it is started again when it is lost."""

    def __init__(
        self, against: str | dict[str, Any], options: dict[str, Any], tolerance: float | None, time_limit: float
    ):
        self._request = {"against": against, "options": options, "tolerance": tolerance}
        self._time_limit = time_limit
        self._child: subprocess.Popen[bytes] | None = None
        self._received = b""  # from it, and not yet looked at
        self._folder = tempfile.TemporaryDirectory(prefix="tw-reduce-")
        self._log = Path(self._folder.name, "log")

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._end()
        self._folder.cleanup()

    def _end(self) -> int:
        child, self._child = self._child, None
        if child is None:
            return 0
        child.kill()
        for pipe in pipes_of(child):
            pipe.close()
        return child.wait()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tilewright.failure_worker"]
        with open(self._log, "wb") as log:
            child = subprocess.Popen(  # Ctrl-C is for us
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        self._child = child
        self._received = b""
        if self._answer(child, 60.0) != b"ready":
            self._end()
            raise Error("TW1001", f"the process that tries models cannot be started: {self._said()}")
        return child

    def _answer(self, child: subprocess.Popen[bytes], seconds: float | None) -> bytes | None:
        """A line; b"" when the process has ended, None when it takes too long."""
        _, stdout = pipes_of(child)
        end = None if seconds is None else time.monotonic() + seconds
        while b"\n" not in self._received:
            left = None if end is None else max(0.0, end - time.monotonic())
            if not select.select([stdout], [], [], left)[0]:
                return None
            part = os.read(stdout.fileno(), 1 << 16)
            if not part:
                return b""
            self._received += part
        line, _, self._received = self._received.partition(b"\n")
        return line

    def judge(self, case: Case, wants_node: bool = False) -> Failure:
        """`wants_node`: where it differs first, by `tw.compare`; else outputs alone are compared."""
        child = self._child or self._start()
        path = Path(self._folder.name)
        (path / "model.onnx").write_bytes(case.model.SerializeToString())
        for k, array in enumerate(case.inputs.values()):
            np.save(path / f"{k}.npy", np.ascontiguousarray(array).reshape(-1).view(np.uint8), allow_pickle=False)
        types = [(name, array.dtype.name, array.shape) for name, array in case.inputs.items()]
        request = {**self._request, "folder": str(path), "inputs": types, "wants_node": wants_node}
        try:
            stdin, _ = pipes_of(child)
            stdin.write(json.dumps(request).encode() + b"\n")
            stdin.flush()
            line = self._answer(child, self._time_limit)
            if line == b"ran":  # the other side may take its time
                line = self._answer(child, None)
        except BrokenPipeError:
            line = b""
        if line:
            return Failure(**json.loads(line))
        if line is None:
            self._end()
            return Failure("hang", f"no end after {self._time_limit:.0f} s")
        status = child.wait()
        self._end()
        name = signal.Signals(-status).name if status < 0 else f"status {status}"
        return Failure(f"crash {name}", self._said())

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-500:].strip()
