"""How a tuning job tells of itself: a live line on a terminal, otherwise one line of JSON an event."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

import tilewright as tw

from . import tuning_charts
from .report import console, tilewright_table
from .tuning import milestone

EXPLAINED = 12  # of a task's points, the fastest
NAME_WIDTH = 28  # of a kernel in the progress line, which has one line of a terminal
STATUS_WORDS = {"timeout": "timed out", "crash": "crashed", "spill": "spilled"}


def counted(by_status: dict[str, int]) -> str:
    parts = [f"{count} {STATUS_WORDS.get(status, status)}" for status, count in by_status.items() if count]
    return " · ".join(parts)


def shortened(name: str, most: int = NAME_WIDTH) -> str:
    """The beginning and the end of a long name."""
    if len(name) <= most:
        return name
    end = (most - 1) // 2
    return f"{name[: most - 1 - end]}…{name[-end:]}"


def json_line(event: dict[str, Any]) -> None:
    print(json.dumps(event), flush=True)


@contextmanager
def progress(as_json: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yields what to call with each event."""
    if as_json or not console.is_terminal:
        yield json_line
        return
    with shown(console) as show:
        yield show


@contextmanager
def shown(console: Console) -> Iterator[Callable[[dict[str, Any]], None]]:
    """On a terminal or in a notebook: a line that changes, and above it what is worth keeping."""
    columns = (
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:.0f} %"),
        TimeRemainingColumn(),
        TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis")),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        row: TaskID | None = None
        counts: Counter[str] = Counter()
        start: dict[str, Any] = {}

        def show(event: dict[str, Any]) -> None:
            nonlocal row
            if event["event"] == "start":
                start.update(event)
                row = bar.add_task("the network", total=event["budget"])
            if text := milestone(event):
                console.print(text)
            if row is None:
                return
            bar.update(row, completed=min(event["seconds"], start["budget"]))
            if event["event"] == "tasks":
                start["milliseconds"] = event["milliseconds"]  # with the choices that were adopted
            if event["event"] == "trial":
                counts[event["status"]] += 1
                text = (
                    f"{start['milliseconds']:.2f} ms, {event['predicted_milliseconds']:.2f} expected · "
                    f"{counts.total()} tried: {counted(counts)} · {shortened(event['task'])} ({event['share']:.0%})"
                )
                bar.update(row, description=text)

        yield show


def finished(result: tw.TuneReport, as_json: bool) -> None:
    if console.is_terminal and not as_json:
        console.print(str(result))


def database(summary: dict[str, Any]) -> None:
    table = tilewright_table("", "")
    for name in ("targets", "tasks", "jobs", "records", "confirmations"):
        table.add_row(name, str(summary[name]))
    for status, count in summary["by_status"].items():
        table.add_row(f"  {status}", str(count))
    console.print(table)


def task_facts(database: str, task: str) -> dict[str, Any]:
    """What is known of one task: how its trials ended, those that were measured, and how well they were predicted.

    `task`: its name in a network, a part of one that no other has, or the beginning of its key.  Error(TW1101) when
    there is none or several.
    """
    found = {}
    for section in tuning_charts.read(database):
        for known in section.tasks:
            if task == known["name"]:
                found = {known["key"]: (known, section)}
                break
            if task in known["name"] or known["key"].startswith(task):
                found[known["key"]] = (known, section)
        else:
            continue
        break
    if len(found) != 1:
        names = sorted(known["name"] for known, _ in found.values())
        problem = f"fits {len(names)} tasks: {', '.join(names[:8])}" if names else f"is no task of {database}"
        raise tw.Error("TW1101", f"`{task}` {problem}\nhelp: give the whole name of one, or the beginning of its key")
    ((known, section),) = found.values()
    records = [record for record in section.records if record["task"] == known["key"]]
    trials = [record for record in records if record["detail"] != tuning_charts.FINAL]
    measured = [record for record in trials if record["status"] == "ok"]
    finals = {
        record["decisions"]: record["ratio_to_default"]
        for record in records
        if record["detail"] == tuning_charts.FINAL and record["status"] == "ok"
    }
    pairs = [(record["predicted"], record["ratio_to_default"]) for record in measured if record["predicted"] > 0]
    return {
        "name": known["name"],
        "key": known["key"],
        "groups": known["groups"],
        "seconds": known["seconds"],
        "network_seconds": section.seconds,
        "tried": len(trials),
        "by_status": Counter(record["status"] for record in trials),
        "predictions": len(pairs),
        "rank_correlation": tuning_charts.spearman(pairs) if len(pairs) >= 3 else None,
        "measured": [
            {
                "ratio_to_default": record["ratio_to_default"],
                "predicted": record["predicted"],
                "final": finals.get(record["decisions"]),
                "decisions": record["decisions"],
            }
            for record in sorted(measured, key=lambda record: record["ratio_to_default"])
        ],
    }


def explained(facts: dict[str, Any]) -> str:
    """The same for people, with the fastest points alone."""
    lines = [
        f"{facts['name']}  ({facts['key'][:12]}…)",
        f"{facts['groups']} groups, {1e3 * facts['seconds']:.3f} ms of {1e3 * facts['network_seconds']:.3f} by default",
        f"{facts['tried']} tried: {counted(facts['by_status']) or 'nothing yet'}",
    ]
    if facts["rank_correlation"] is not None:
        lines.append(
            f"predicted before it was measured: rank correlation {facts['rank_correlation']:.2f} over "
            f"{facts['predictions']}"
        )
    if facts["measured"]:
        lines += ["", "  measured  predicted  final  decisions (times by the default's)"]
    for point in facts["measured"][:EXPLAINED]:
        last = "    –" if point["final"] is None else f"{point['final']:5.3f}"
        lines.append(f"  {point['ratio_to_default']:8.3f}  {point['predicted']:9.3f}  {last}  {point['decisions']}")
    return "\n".join(lines)
