"""How a tuning job tells of itself: a live line on a terminal, otherwise one line of JSON an event."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

import tilewright as tw

from .report import console, tilewright_table

STATUS_WORDS = {"timeout": "timed out", "crash": "crashed", "spill": "spilled"}


def counted(by_status: dict[str, int]) -> str:
    parts = [f"{count} {STATUS_WORDS.get(status, status)}" for status, count in by_status.items() if count]
    return " · ".join(parts)


def json_line(event: dict[str, Any]) -> None:
    print(json.dumps(event), flush=True)


@contextmanager
def progress() -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yields what to call with each event."""
    if not console.is_terminal:
        yield json_line
        return
    columns = (
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:.0f} %"),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        row, counts, start = None, Counter(), {}

        def show(event: dict[str, Any]) -> None:
            nonlocal row
            if event["event"] == "start":
                start.update(event)
                row = bar.add_task(f"{event['tasks']} tasks", total=event["budget"])
                console.print(
                    f"{event['tasks']} tasks, {event['milliseconds']:.3f} ms, {event['earlier_trials']} tried before"
                )
            if row is None:
                return
            bar.update(row, completed=min(event["seconds"], start["budget"]))
            if event["event"] == "trial":
                counts[event["status"]] += 1
                text = (
                    f"{start['milliseconds']:.2f} → {event['predicted_milliseconds']:.2f} ms · {event['task']} "
                    f"({event['share']:.0%} of the time) · {counts.total()} tried: {counted(counts)}"
                )
                bar.update(row, description=text)
            if event["event"] == "confirmation":
                verdict = "adopted" if event["adopted"] else "not adopted"
                console.print(
                    f"the model with {event['records']} of them: {event['ratio']:.3f} × its latency, {verdict}"
                )

        yield show


def finished(result: tw.TuneReport) -> None:
    if console.is_terminal:
        console.print(str(result))


def database(summary: dict[str, Any]) -> None:
    table = tilewright_table("", "")
    for name in ("targets", "tasks", "jobs", "records", "confirmations"):
        table.add_row(name, str(summary[name]))
    for status, count in summary["by_status"].items():
        table.add_row(f"  {status}", str(count))
    console.print(table)
