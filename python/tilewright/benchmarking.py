"""Latency and throughput of an executable, with their spread."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .error import Error
from .executable import Executable
from .made_up import made_up_inputs, smallest_sizes
from .notebooks import ShownAsText

PERCENTILES = (50, 90, 95, 99)
FEWEST_RUNS = 5  # of each stream, however long they take


@dataclass(frozen=True)
class Benchmark(ShownAsText):
    """What runs took: seconds of each, in all streams, and by the clock from the first to the last."""

    samples: list[float] = field(repr=False)
    elapsed: float
    streams: int
    threads: int  #: of each stream

    def percentile(self, percent: float) -> float:
        """Seconds within which so many of a hundred runs ended."""
        return float(np.percentile(self.samples, percent))

    @property
    def median(self) -> float:
        """Seconds of a run in the middle."""
        return statistics.median(self.samples)

    @property
    def best(self) -> float:
        """Seconds of the fastest run."""
        return min(self.samples)

    @property
    def throughput(self) -> float:
        """Runs a second, of all streams together."""
        return len(self.samples) / self.elapsed

    def as_dict(self) -> dict[str, Any]:
        """For JSON: times in milliseconds."""
        times = {f"p{percent}_ms": self.percentile(percent) * 1e3 for percent in PERCENTILES}
        return {
            "median_ms": self.median * 1e3, "best_ms": self.best * 1e3, **times, "runs": len(self.samples),
            "runs_per_second": self.throughput, "streams": self.streams, "threads": self.threads,
        }  # fmt: skip

    def __str__(self) -> str:
        spread = f"10 % … 90 %: {self.percentile(10) * 1e3:.3f} … {self.percentile(90) * 1e3:.3f}"
        text = (
            f"median {self.median * 1e3:.3f} ms   ({spread}, 99 %: {self.percentile(99) * 1e3:.3f}, "
            f"best {self.best * 1e3:.3f}, {len(self.samples)} runs, {self.threads} threads)"
        )
        if self.streams > 1:
            text += f"\n{self.throughput:.1f} runs a second in {self.streams} streams"
        return text


def benchmark(
    executable: Executable,
    inputs: Mapping[str, Any] | None = None,
    seconds: float = 3.0,
    warm_up: float = 0.2,
    streams: int = 1,
) -> Benchmark:
    """Runs it for so many seconds, on these inputs or made-up ones, after a warm-up that does not count.

    `streams`: so many clones run at once, each on `executable.threads` threads and inputs of its own, one run after the
    other; with few threads each, that is what a machine can serve.

    Raises Error as `run` does.
    """
    if not isinstance(executable, Executable):
        raise Error("TW1101", f"{type(executable).__name__} is no executable\nhelp: tw.benchmark(tw.compile(model))")
    if isinstance(streams, bool) or not isinstance(streams, int) or not 1 <= streams <= 1024:
        raise Error("TW1101", f"streams={streams!r} is no number of streams\nhelp: use 1 to 1024")
    if not seconds > 0 or not warm_up >= 0:
        raise Error("TW1101", f"seconds={seconds!r}, warm_up={warm_up!r}\nhelp: times to measure for, in seconds")
    if inputs is None:
        least = smallest_sizes(executable.dimensions)
        inputs = made_up_inputs(executable.input_tensors, 0, least)
    runners = [executable, *(executable.clone() for _ in range(streams - 1))]
    samples: list[list[float]] = [[] for _ in runners]
    failures: list[BaseException] = []
    began: list[float] = []
    ready = threading.Barrier(streams)

    def stream(at: int) -> None:
        run, feed = runners[at].run, own_copy(inputs) if at else dict(inputs)
        try:
            end = time.perf_counter() + warm_up
            run(feed)
            while time.perf_counter() < end:
                run(feed)
            ready.wait()
            began.append(time.perf_counter())
            end = time.perf_counter() + seconds
            while len(samples[at]) < FEWEST_RUNS or time.perf_counter() < end:
                start = time.perf_counter()
                run(feed)
                samples[at].append(time.perf_counter() - start)
        except threading.BrokenBarrierError:
            pass  # another stream failed
        except BaseException as error:  # raised where the caller is
            failures.append(error)
            ready.abort()

    others = [threading.Thread(target=stream, args=(at,)) for at in range(1, streams)]
    for other in others:
        other.start()
    stream(0)
    for other in others:
        other.join()
    if failures:
        raise failures.pop()
    return Benchmark(sum(samples, []), time.perf_counter() - min(began), streams, executable.threads)


def own_copy(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays that no other stream writes or reads."""
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in inputs.items()}
