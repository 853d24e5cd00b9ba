"""Where the time of a run goes: kernels timed alone, and workers watched in a run."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .error import Error
from .notebooks import bars


@dataclass(frozen=True)
class Kernel:
    """One step of a run, timed alone."""

    name: str  #: the graph's nodes that it computes
    #: Of a function of the host its name; "" of control flow, which is timed with the kernels that it goes to.
    symbol: str
    seconds: float  #: of all that a run does of it
    flops: float
    bytes: float
    is_on_host: bool = False  #: a function of the host, no kernel of ours


@dataclass(frozen=True)
class Span:
    """One worker's share of one step, in seconds since the run began."""

    worker: int
    step: int
    start: float
    end: float


@dataclass(frozen=True)
class Profile:
    """Time of each kernel.  `str()` of it is a table, slowest first."""

    kernels: list[Kernel]
    spans: list[Span] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Of all kernels together, each timed alone."""
        return sum(kernel.seconds for kernel in self.kernels)

    @property
    def host_share(self) -> float:
        """Of the time: functions of the host, as operators in Python and parts that ONNX Runtime computes."""
        return sum(kernel.seconds for kernel in self.kernels if kernel.is_on_host) / (self.seconds or 1.0)

    def _repr_html_(self) -> str:
        total = self.seconds or 1.0
        rows = [
            (k.seconds / total, (f"{k.seconds * 1e6:.1f}", f"{k.seconds / total:.1%}", k.name))
            for k in sorted(self.kernels, key=lambda k: -k.seconds)
            if k.symbol
        ]
        return bars(("µs", "share", "kernel"), rows)

    def to_perfetto(self, path: str | os.PathLike[str]) -> None:
        """Writes the run as a trace that https://ui.perfetto.dev and chrome://tracing open: a track for each worker.

        Gaps are waiting at barriers.  Rates are those of the whole step in this run, from its first worker's start to
        its last one's end.
        """
        try:
            Path(path).write_text(json.dumps({"traceEvents": self._events(), "displayTimeUnit": "ms"}) + "\n")
        except OSError as error:
            raise Error("TW1001", f"{path} cannot be written: {error.strerror}") from None

    def _events(self) -> list[dict[str, Any]]:
        """In Chrome's Trace Event Format: X is a complete event, M metadata; ts and dur are microseconds."""
        begin: dict[int, float] = {}
        end: dict[int, float] = {}
        for span in self.spans:
            begin[span.step] = min(span.start, begin.get(span.step, span.start))
            end[span.step] = max(span.end, end.get(span.step, span.end))
        events: list[dict[str, Any]] = [{"ph": "M", "pid": 1, "name": "process_name", "args": {"name": "tilewright"}}]
        for worker in sorted({span.worker for span in self.spans}):
            name = {"name": f"worker {worker}"}
            events.append({"ph": "M", "pid": 1, "tid": worker, "name": "thread_name", "args": name})
        for span in self.spans:
            kernel, seconds = self.kernels[span.step], max(end[span.step] - begin[span.step], 1e-9)
            events.append(
                {
                    "ph": "X",
                    "cat": "kernel",
                    "pid": 1,
                    "tid": span.worker,
                    "name": kernel.name,
                    "ts": span.start * 1e6,
                    "dur": (span.end - span.start) * 1e6,
                    "args": {
                        "step": span.step,
                        "kernel": kernel.symbol,
                        "MFLOP": kernel.flops / 1e6,
                        "GFLOP/s": round(kernel.flops / seconds / 1e9, 2),
                        "GB/s": round(kernel.bytes / seconds / 1e9, 2),
                        "alone µs": round(kernel.seconds * 1e6, 3),
                    },
                }
            )
        return events

    def __str__(self) -> str:
        total = self.seconds or 1.0
        lines = [f"{'µs':>10} {'share':>6} {'GFLOP/s':>8} {'GB/s':>7}  kernel"]
        kernels = [kernel for kernel in self.kernels if kernel.symbol]
        for k in sorted(kernels, key=lambda k: -k.seconds):
            rates = (k.flops / k.seconds / 1e9, k.bytes / k.seconds / 1e9) if k.seconds else (0.0, 0.0)
            lines.append(f"{k.seconds * 1e6:10.1f} {k.seconds / total:6.1%} {rates[0]:8.1f} {rates[1]:7.1f}  {k.name}")
        on_host = sum(kernel.is_on_host for kernel in kernels)
        calls = f" and {on_host} calls of the host's functions, {self.host_share:.1%} of the time" if on_host else ""
        return "\n".join([*lines, f"{self.seconds * 1e6:10.1f} in {len(kernels) - on_host} kernels{calls}"])
