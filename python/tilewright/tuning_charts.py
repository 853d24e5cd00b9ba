"""What a tuning database tells, as one HTML page with charts that needs no network (`tw report`).

    page = tuning_charts.page(tuning_charts.read("tune.db"))

A section is a network on a target: its latency over the time of the jobs, what each task saved, where the winners
stand between the machine's roofs, how sure the figures are, how well the search predicted, and what failed.
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from typing import Any

from . import _core
from .charts import ACCENT, Worked, chart, page_of_charts, plotly, roofline, short
from .error import Error

STATUSES = {  # with their colours
    "ok": "#15803d",
    "spill": "#a16207",
    "refused": "#64748b",
    "timeout": "#c2410c",
    "crash": "#b91c1c",
    "wrong": "#7e22ce",
}
BEFORE, AFTER = "#cbd5e1", "#1d4ed8"
SHOWN_TASKS = 20  # in a chart, those that take most of the time
FINAL = "final"  # the detail of records of finals: measured again, for longer and beside the default
LEAST_GAP = 600  # seconds without a trial: between two jobs, not a part of them


@dataclass
class Section:
    """A network on a target, by one version of the space and build of the compiler."""

    name: str
    target: dict[str, Any]
    machine: str
    seconds: float  # of a run with default schedules
    tasks: list[dict[str, Any]]
    peak_flops: float
    bandwidth: float
    jobs: list[dict[str, Any]]
    records: list[dict[str, Any]] = field(default_factory=list)  # in the order of time
    confirmations: list[dict[str, Any]] = field(default_factory=list)

    def best(self) -> dict[str, dict[str, Any]]:
        """By task: the fastest record that is faster than the default beyond doubt; of finals, where there were any."""
        best: dict[str, dict[str, Any]] = {}
        decided = {record["task"] for record in self.records if record["detail"] == FINAL}
        for record in self.records:
            if not is_faster(record) or (record["task"] in decided and record["detail"] != FINAL):
                continue
            known = best.get(record["task"])
            if known is None or record["ratio_to_default"] < known["ratio_to_default"]:
                best[record["task"]] = record
        return best

    def ratio(self) -> float:
        """Of the network as it is compiled from the database now, as it was measured; 1: nothing is in use."""
        adopted = [c for c in self.confirmations if c["verdict"] > 0]
        return adopted[-1]["ratio"] if adopted else 1.0

    def running_seconds(self) -> list[float]:
        """For each record, how long the jobs had worked: pauses between them are left out."""
        elapsed, result, before = 0.0, [], self.jobs[0]["started_at"]
        for record in self.records:
            step = max(0, record["measured_at"] - before)
            elapsed += step if step < LEAST_GAP else 1.0
            before = record["measured_at"]
            result.append(elapsed)
        return result


def is_faster(record: dict[str, Any]) -> bool:
    return bool(record["status"] == "ok" and record["ratio_high"] < 1 and record["ratio_to_default"] < 1)


def read(database: str) -> list[Section]:
    """Error(TW1001) when there is no such database."""
    tables: dict[str, list[dict[str, Any]]] = defaultdict(list)

    def keep(line: str) -> None:
        row = json.loads(line)
        tables[row.pop("table")].append(row)

    _core.database_lines(database, keep)
    facts = {row["key"]: json.loads(row["facts"]) for row in tables["targets"]}
    records = defaultdict(list)
    for row in tables["records"]:
        records[row["target"], row["space"], row["compiler"], row["task"]].append(row)
    confirmations = defaultdict(list)
    for row in tables["confirmations"]:
        confirmations[row["model"], row["record"]].append(row)
    groups = defaultdict(list)
    for job in tables["jobs"]:
        groups[job["model"], job["target"], job["space"], job["compiler"]].append(job)

    sections = []
    for (model, target, space, compiler), jobs in groups.items():
        jobs.sort(key=lambda job: job["started_at"])
        last = jobs[-1]
        measured = next((job for job in reversed(jobs) if job["peak_flops"] > 0), last)
        tasks = sorted(json.loads(last["tasks"]), key=lambda task: -task["seconds"])
        section = Section(
            last["name"],
            facts.get(target, {}),
            last["machine"],
            last["seconds"],
            tasks,
            measured["peak_flops"],
            measured["bandwidth"],
            jobs,
        )
        for task in tasks:
            section.records += records[target, space, compiler, task["key"]]
        section.records.sort(key=lambda record: (record["measured_at"], record["digest"]))
        for record in section.records:
            section.confirmations += confirmations[model, record["digest"]]
        section.confirmations.sort(key=lambda c: c["measured_at"])
        sections.append(section)
    return sorted(sections, key=lambda s: -s.jobs[-1]["started_at"])


def spearman(pairs: list[tuple[float, float]]) -> float:
    """Rank correlation; 0 for fewer than three pairs or where one side is all alike.  Equal values share a rank."""
    if len(pairs) < 3:
        return 0.0
    return _core.rank_correlation([x for x, _ in pairs], [y for _, y in pairs])


class Charts:
    """The charts of one section, as pieces of HTML.  Each is empty where there is nothing to show."""

    def __init__(self, section: Section):
        self.go = plotly()
        self.section = section
        self.best = section.best()
        self.names = {task["key"]: task["name"] for task in section.tasks}

    def latency(self) -> str:
        s = self.section
        best: dict[str, float] = {}  # by task
        times, latencies = [0.0], [s.seconds * 1e3]
        share = {task["key"]: task["seconds"] for task in s.tasks}
        for seconds, record in zip(s.running_seconds(), s.records, strict=True):
            if is_faster(record) and record["ratio_to_default"] < best.get(record["task"], 1.0):
                best[record["task"]] = record["ratio_to_default"]
            times.append(seconds / 60)
            latencies.append((s.seconds - sum(share[task] * (1 - ratio) for task, ratio in best.items())) * 1e3)
        if not s.records:
            return ""
        traces = [
            self.go.Scatter(
                x=times, y=latencies, line={"shape": "hv", "color": AFTER}, name="expected of the winners so far"
            )
        ]
        if s.ratio() < 1:
            traces.append(
                self.go.Scatter(
                    x=[times[-1]],
                    y=[s.seconds * s.ratio() * 1e3],
                    mode="markers",
                    marker={"size": 12, "color": ACCENT},
                    name="measured of the whole network",
                )
            )
        return chart(
            "Latency over time",
            "What a run should take with the best schedules known at each moment, each task's gain as it was measured "
            "alone, and what the network took with those that were adopted.",
            traces,
            xaxis_title="minutes of tuning",
            yaxis_title="milliseconds",
        )

    def saved(self) -> str:
        tasks = self.section.tasks[:SHOWN_TASKS][::-1]
        labels = [f"{i}. {short(task['name'])}" for i, task in zip(range(len(tasks), 0, -1), tasks, strict=True)]
        before = [task["seconds"] * 1e3 for task in tasks]
        after = [
            t["seconds"] * 1e3 * self.best.get(t["key"], {"ratio_to_default": 1})["ratio_to_default"] for t in tasks
        ]
        hover = [self.best[t["key"]]["decisions"] if t["key"] in self.best else "the default" for t in tasks]
        return chart(
            "Time by task",
            f"In a run, the {len(tasks)} tasks that take most of it: before, and with the best schedule found. "
            "A choice of the network, such as winograd, stands beside the kernels that compute it.",
            [
                self.go.Bar(y=labels, x=before, orientation="h", marker_color=BEFORE, name="default"),
                self.go.Bar(
                    y=labels, x=after, orientation="h", marker_color=AFTER, name="tuned", width=0.4, hovertext=hover
                ),
            ]
            if tasks
            else [],
            height=120 + 26 * len(tasks),
            barmode="overlay",
            xaxis_title="milliseconds",
            yaxis={"automargin": True},
        )

    def roofline(self) -> str:
        s = self.section

        def worked(ratio: Callable[[dict[str, Any]], float]) -> list[Worked]:
            return [
                Worked(t["name"], t["seconds"] * ratio(t), t["flops"], t["bytes"], t["seconds"] / s.seconds)
                for t in s.tasks
            ]

        def best(task: dict[str, Any]) -> float:
            return self.best[task["key"]]["ratio_to_default"] if task["key"] in self.best else 1.0

        groups = {("default", BEFORE): worked(lambda _: 1.0), ("tuned", AFTER): worked(best)}
        note = "Winograd's filtering does fewer operations than are counted, and may pass it."
        return roofline(groups, s.peak_flops, s.bandwidth, note)

    def confidence(self) -> str:
        rows = [(t, self.best[t["key"]]) for t in self.section.tasks if t["key"] in self.best][:SHOWN_TASKS][::-1]
        if not rows:
            return ""
        # The interval was measured against the incumbent of then; it is shown around the ratio to the default.
        center = [r["ratio_to_default"] for _, r in rows]
        scale = [r["ratio_to_default"] / r["ratio"] for _, r in rows]
        return chart(
            "Confidence",
            "Of the winners: time by the default's, with the 95 % confidence interval of the median.",
            [
                self.go.Scatter(
                    x=center,
                    y=[short(t["name"]) for t, _ in rows],
                    mode="markers",
                    marker_color=AFTER,
                    error_x={
                        "type": "data",
                        "symmetric": False,
                        "array": [
                            max(0.0, (r["ratio_high"] - r["ratio"]) * k) for (_, r), k in zip(rows, scale, strict=True)
                        ],
                        "arrayminus": [
                            max(0.0, (r["ratio"] - r["ratio_low"]) * k) for (_, r), k in zip(rows, scale, strict=True)
                        ],
                    },
                    hovertext=[r["decisions"] for _, r in rows],
                )
            ],
            height=120 + 26 * len(rows),
            xaxis_title="time, by the default's",
            yaxis={"automargin": True},
        )

    def model_error(self) -> str:
        rows = [r for r in self.section.records if r["status"] == "ok" and r["predicted"] > 0 and r["detail"] != FINAL]
        if not rows:
            return ""
        by_task = defaultdict(list)
        for r in rows:
            by_task[r["task"]].append((r["predicted"], r["ratio_to_default"]))
        ranks = [spearman(pairs) for pairs in by_task.values() if len(pairs) >= 3]
        mean = f"{sum(ranks) / len(ranks):.2f}" if ranks else "unknown"
        return chart(
            "The search's predictions",
            f"Time by the default's: as predicted before each measurement, and as measured. Mean rank correlation "
            f"within a task: {mean}.",
            [
                self.go.Scatter(
                    x=[r["predicted"] for r in rows],
                    y=[r["ratio_to_default"] for r in rows],
                    mode="markers",
                    marker={"color": AFTER, "opacity": 0.5},
                    hovertext=[f"{short(self.names[r['task']])}: {r['decisions']}" for r in rows],
                )
            ],
            xaxis={"type": "log", "title": "predicted"},
            yaxis={"type": "log", "title": "measured"},
        )

    def outcomes(self) -> str:
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for record in self.section.records:
            counts[record["task"]][record["status"]] += 1
        tasks = [t for t in self.section.tasks if t["key"] in counts][:SHOWN_TASKS][::-1]
        traces = [
            self.go.Bar(
                y=[short(t["name"]) for t in tasks],
                x=[counts[t["key"]][status] for t in tasks],
                orientation="h",
                name=status,
                marker_color=color,
            )
            for status, color in STATUSES.items()
            if any(counts[t["key"]][status] for t in tasks)
        ]
        outcomes = chart(
            "How trials ended",
            "ok: right and timed; spill: more values than registers, not run; refused: no such schedule; the others "
            "ended in their own process and were not used.",
            traces,
            height=120 + 26 * len(tasks),
            barmode="stack",
            xaxis_title="trials",
            yaxis={"automargin": True},
        )
        bad = [r for r in self.section.records if r["status"] in ("crash", "wrong", "timeout")]
        if bad:
            rows = "".join(
                f"<tr><td>{escape(short(self.names[r['task']]))}</td><td>{escape(r['decisions'])}</td>"
                f"<td>{escape(r['status'])}</td><td>{escape(r['detail'][:200])}</td></tr>"
                for r in bad[-50:]
            )
            outcomes += f"<table><tr><th>task</th><th>decisions</th><th>ended</th><th>detail</th></tr>{rows}</table>"
        return outcomes


def summary(section: Section) -> str:
    counts = Counter(record["status"] for record in section.records)
    before, after = section.seconds * 1e3, section.seconds * section.ratio() * 1e3
    ended = ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status]) or "none"
    facts = section.target
    cells = {
        "latency": f"{before:.3f} → {after:.3f} ms ({section.ratio() - 1:+.1%})",
        "trials": f"{len(section.records)}: {ended}",
        "tasks": f"{len(section.tasks)}, of which {len(section.best())} have a faster schedule or choice",
        "machine": f"{section.machine}, {facts.get('threads', '?')} threads, {facts.get('vector_bits', '?')} bits",
        "jobs": f"{len(section.jobs)}, the last on "
        + time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(section.jobs[-1]["started_at"])),
    }
    rows = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in cells.items())
    return f"<table>{rows}</table>"


def page(sections: list[Section], title: str = "Tuning report") -> str:
    """Error(TW1001) when there is no job to report, or plotly is not installed."""
    if not sections:
        raise Error("TW1001", "the database has no jobs to report\nhelp: `tw tune MODEL --db DATABASE` makes one")
    parts = []
    for section in sections:
        charts = Charts(section)
        parts.append(f"<section><h2>{escape(section.name)}</h2>{summary(section)}")
        for piece in (
            charts.latency,
            charts.saved,
            charts.roofline,
            charts.confidence,
            charts.model_error,
            charts.outcomes,
        ):
            parts.append(piece())
        parts.append("</section>")
    return page_of_charts(title, "".join(parts))
