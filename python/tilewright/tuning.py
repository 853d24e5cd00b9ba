"""Tuning: a job that searches for faster schedules of a model's kernels and keeps them in a database."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rich.console import Console

from . import _core
from .device import Device, open_devices
from .device_worker import MEASURE_PROGRAM
from .dimension import SizeProfile, described_profiles
from .error import Error
from .interrupt import run_stoppable
from .model import Model, Source, load
from .notebooks import ShownAsText
from .operators import functions_of, schedules_of
from .options import checked_path, checked_precision, checked_target, checked_threads, constraints_of, gpu_of
from .schedule import Schedule, name_of_template
from .watched import is_watched

logger = logging.getLogger(__name__)

UNITS = {"s": 1, "m": 60, "h": 3600}


@dataclass
class TuneReport(ShownAsText):
    """What a job did: counts of trials by how they ended, and the model's latency before and after."""

    tasks: int = 0
    trials: int = 0
    by_status: dict[str, int] = field(default_factory=dict)
    adopted: int = 0  #: records in use now
    choices: int = 0  #: of them: how passes of the graph make the network; the others are schedules
    ratio: float = 1.0  #: latency with them by latency by default, measured side by side
    before_milliseconds: float = 0.0
    after_milliseconds: float = 0.0
    was_stopped: bool = False
    skipped: list[str] = field(default_factory=list)  #: tasks that could not be measured, and why
    lost_devices: list[str] = field(default_factory=list)  #: that were given up, and why

    def __str__(self) -> str:
        counts = [f"{count} {status}" for status, count in sorted(self.by_status.items())]
        used = f"{self.adopted - self.choices} tuned schedules"
        if self.choices:
            used += f" and {self.choices} choice{'s'[: self.choices != 1]} of the network"
        lines = [
            f"{self.tasks} tasks, {self.trials} tried: {', '.join(counts) or 'nothing left to try'}",
            f"{self.before_milliseconds:.3f} → {self.after_milliseconds:.3f} ms with {used}",
        ]
        lines += [f"not tuned: {reason}" for reason in self.skipped]
        lines += [f"lost: {reason}" for reason in self.lost_devices]
        return "\n".join(lines)


def tell(report: TuneReport, send: Callable[[Any], None], line: str) -> None:
    """An event of a job that has this report."""
    send((report, line))


def milestone(event: dict[str, Any]) -> str | None:
    """An event in words; None of what is too small for that."""
    match event["event"]:
        case "start":
            return f"{event['milliseconds']:.3f} ms, {event['open_choices']} choices of the network"
        case "choices_skipped":
            return f"choices of the network are not tried: {event['reason']}"
        case "tasks":
            chosen = f" with {event['choices']} choices made otherwise" if event["choices"] else ""
            earlier = f"{event['earlier_trials']} tried before"
            return f"{event['tasks']} tasks, {event['milliseconds']:.3f} ms{chosen}, {earlier}"
        case "confirmation":
            verdict = "adopted" if event["adopted"] else "not adopted"
            return f"the model with {event['records']} of them: {event['ratio']:.3f} × its latency, {verdict}"
        case "stopping":
            return "stopping after the current candidate; Ctrl-C again ends at once"
    return None


def log(event: dict[str, Any]) -> None:
    if text := milestone(event):
        logger.info("%s", text)
    elif event["event"] == "device_lost":
        logger.warning("lost: %s: %s", event["device"], event["reason"])
    elif event["event"] == "skipped":
        logger.warning("not tuned: %s: %s", event["task"], event["reason"])
    else:
        logger.debug("%s", event)


def joined(reports: Sequence[TuneReport]) -> TuneReport:
    """Of jobs that follow each other, one a profile; milliseconds are those of a run at each."""
    whole = TuneReport()
    for report in reports:
        for name in ("tasks", "trials", "adopted", "choices", "before_milliseconds", "after_milliseconds"):
            setattr(whole, name, getattr(whole, name) + getattr(report, name))
        for status, count in report.by_status.items():
            whole.by_status[status] = whole.by_status.get(status, 0) + count
        whole.skipped += [reason for reason in report.skipped if reason not in whole.skipped]
        whole.lost_devices += report.lost_devices
        whole.was_stopped |= report.was_stopped
    whole.ratio = math.prod(report.ratio for report in reports) ** (1 / len(reports))
    return whole


def seconds_of(budget: str | float) -> float:
    """60, "60s", "10m", "8h" or "1h30m" in seconds."""
    if isinstance(budget, (int, float)) and not isinstance(budget, bool):
        seconds = float(budget)
    else:
        text = str(budget)
        parts = re.findall(r"(\d+(?:\.\d+)?)([smh])", text)
        is_whole = "".join(number + unit for number, unit in parts) == text
        seconds = sum(float(number) * UNITS[unit] for number, unit in parts) if is_whole else 0.0
    if not 0 < seconds < 1e8:
        raise Error("TW1101", f"budget={budget!r} is no time\nhelp: write 60s, 10m or 8h")
    return seconds


def tune(
    model: Model | Source,
    target: str = "cpu",
    db: str | os.PathLike[str] | None = None,
    budget: str | float = "10m",
    seed: int = 0,
    on_event: Callable[[dict[str, Any]], None] | None = None,
    threads: int | None = None,
    precision: str = "f32",
    winograd: bool = True,
    strassen: bool = True,
    devices: Sequence[str | Device] = (),
    key_file: str | os.PathLike[str] | None = None,
    check: bool = False,
    template: Callable[[Schedule], bool] | None = None,
    profiles: Sequence[SizeProfile] | None = None,
    progress: bool | None = None,
) -> TuneReport:
    """Tries what a model leaves open for as long as `budget` says, and keeps what it learns in `db`.

    First choices of the network: which convolutions go by Winograd's filtering and in which tiles, which products
    by Strassen's algorithm, which convolutions are one kernel, where attention goes over its keys in parts.  Then
    schedules for the kernels of the network that is fastest.

    Every candidate runs in a process of its own, with limits, and its outputs are checked before its time counts.
    `tw.compile(model, db=db)` with the same target, threads, precision, winograd, strassen and template uses what made
    the model no slower.  The same call again goes on where this one ended.  `on_event` is called with each event as a
    dict.  Ctrl-C once ends the search after the current candidate, with an event "stopping" at once; twice it raises
    KeyboardInterrupt within a second.

    `devices` measure instead of this machine, all at once: addresses where `tw device serve` runs with the same key
    file, or objects (tilewright.device.Device).  They are machines of one kind, which target="cpu" then means,
    and target="cuda" their GPU.  With `check` the job tries candidates and keeps nothing, which is all that an emulated
    device is good for.

    `profiles`, as of `tw.compile`: the model at these sizes is tuned instead, one after the other in equal shares of
    the budget.  Kernels of dimensions that stay open keep their defaults.

    `progress`: shows a line of what the job does; None: in notebooks and at Python's prompt, without `on_event`.

    Raises Error: what `load` raises; TW1001, the database cannot be used; TW1101, the budget is no time; TW1301, the
    target cannot be measured here or on the devices; TW1501, no device can be reached.
    """
    if check == (db is not None):
        raise Error(
            "TW1101",
            "tune needs a database\nhelp: tw.tune(model, db='tune.db'); it is made where there is none"
            if db is None
            else "a check keeps no records, and takes no database",
        )
    checked_precision(precision)
    seconds, workers = seconds_of(budget), checked_threads(threads)
    if gpu := gpu_of(checked_target(target)):
        raise Error("TW1301", f'tuning measures on GPU 0\nhelp: CUDA_VISIBLE_DEVICES={gpu}, with target="cuda"')
    if not isinstance(model, Model):
        model = load(model)
    addresses = [device for device in devices if isinstance(device, str)]
    reached = [device for device in devices if not isinstance(device, str)]
    if addresses:
        reached += open_devices(addresses, key_file)
    graphs = [_core.specialise(model._core, sizes) for sizes in described_profiles(profiles)] or [model._core]
    reports: list[TuneReport] = []
    start = time.monotonic()
    listeners: list[Callable[[dict[str, Any]], None]] = [log, on_event] if on_event else [log]

    def tell_all(event: dict[str, Any]) -> None:
        for listener in listeners:
            listener(event)

    def receive(sent: tuple[TuneReport, str]) -> None:
        report, line = sent
        event = {"seconds": time.monotonic() - start, **json.loads(line)}
        if event["event"] == "device_lost":
            report.lost_devices.append(f"{event['device']}: {event['reason']}")
        if event["event"] == "skipped":
            report.skipped.append(f"{event['task']}: {event['reason']}")
        if event["event"] == "end":
            for name, value in event.items():
                if hasattr(report, name):
                    setattr(report, name, value)
        tell_all(event)

    def stopping() -> None:
        tell_all({"event": "stopping", "seconds": time.monotonic() - start})

    def search(send: Callable[[Any], None], is_stopping: Callable[[], bool]) -> None:
        for at, graph in enumerate(graphs):
            if reports and is_stopping():
                break
            reports.append(TuneReport())
            _core.tune(
                graph,
                checked_target(target),
                os.path.join(folder, "check.db") if check else checked_path(db, "db"),
                workers,
                precision,
                constraints_of(winograd, strassen),
                max(start + seconds - time.monotonic(), 1e-3) / (len(graphs) - at),
                int(seed) & (2**64 - 1),
                str(MEASURE_PROGRAM),
                partial(tell, reports[-1], send),
                is_stopping,
                own_template=template,
                template_name=name_of_template(template),
                operator_schedules=schedules_of(model._operators),
                devices=reached,
                is_check=check,
                functions=functions_of(model._operators),
            )

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        if on_event is None and is_watched() if progress is None else progress:
            from .tune_report import shown

            listeners.append(stack.enter_context(shown(Console(stderr=True))))
        run_stoppable(search, receive, stopping)
    report = joined(reports)
    if check:
        report.adopted = report.choices = 0
    return report
