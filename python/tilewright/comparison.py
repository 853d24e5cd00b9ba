"""What `tw.compare` finds, and how it is told."""

from __future__ import annotations

import dataclasses
import io
import math
import os
from dataclasses import dataclass, field
from typing import Any

from .differences import Difference, Summary
from .html_page import write_page
from .notebooks import ShownAsText
from .proposal import Proposal

SHOWN = 20  # rows of the table, the worst
LONGEST_NAME = 36  # of a node or value in the table


@dataclass(frozen=True)
class NodeDifference:
    """One output of one node: `own` is what the node adds to equal inputs, `total` what its value is off altogether.

    `place`: of the value in the graph.
    """

    place: int
    node: str
    operator: str
    output: str
    own: Difference | None  #: of a value that was known when the model was loaded: None
    total: Difference
    differs: bool  #: by itself, by more than the tolerance
    is_off: bool  #: its value is, perhaps because what it reads is


@dataclass(frozen=True)
class FirstDifference:
    """The node with which differences begin; `place` as of NodeDifference."""

    place: int
    node: str
    operator: str
    output: str
    own: Difference
    total: Difference
    ours: Summary
    theirs: Summary
    inputs: dict[str, Summary]
    #: "all values": seen in one run that gives all of them.  "single values": that run is right, for it fuses less; a
    #: run that gives this value alone besides the outputs is not.  "outputs alone": only the executable itself is
    #: wrong, and none that gives any other value besides.  "accumulated": no node is off by itself.
    found_by: str
    beside: list[str] = field(default_factory=list)  #: nodes whose values hide the difference when they are asked for
    without_pass: str | None = None  #: an optional pass without which the difference is gone

    def __str__(self) -> str:
        how = {
            "all values": "on the same inputs it gives other values",
            "single values": "its value is right where all values are asked for, and fusion ends at each; in a run "
            "that asks for this one alone it is not",
            "outputs alone": "only the executable itself gives other values, and none that gives one value more",
            "accumulated": "no node differs by itself; here what has accumulated is beyond the tolerance first",
        }[self.found_by]
        shown = self.total if self.found_by in ("accumulated", "outputs alone") else self.own
        lines = [
            f"first: `{self.node}` ({self.operator}), output `{self.output}`: {how}",
            f"  difference {shown.absolute:.3g}, {shown.relative:.3g} of the magnitude; worst at {list(shown.index)}: "
            f"{shown.ours:.8g} for {shown.theirs:.8g}",
            f"  ours   {self.ours}",
            f"  theirs {self.theirs}",
            *(f"  reads  `{name}` {text}" for name, text in self.inputs.items()),
        ]
        if self.beside:
            lines.append(f"  hidden where these values are asked for: {', '.join(self.beside)}")
        if self.without_pass:
            lines.append(f"  gone without the pass {self.without_pass}: skip={[self.without_pass]!r} leaves it out")
        return "\n".join(lines)


@dataclass
class Check(ShownAsText):
    """What `tw.check` found, by name of the model's outputs."""

    ours: str
    theirs: str
    tolerance: float
    outputs: dict[str, Difference]
    not_compared: list[str]  #: outputs that the other side does not give so

    @property
    def ok(self) -> bool:
        """All outputs that could be compared are within the tolerance, and there is one."""
        return bool(self.outputs) and all(d.is_within(self.tolerance) for d in self.outputs.values())

    def __str__(self) -> str:
        lines = [f"{self.ours} against {self.theirs}", *lines_of_outputs(self.outputs, self.not_compared)]
        verdict = "the outputs agree" if self.ok else "they differ; `tw check --nodes`, or tw.compare, says where"
        if not self.outputs:
            verdict = "nothing could be compared"
        return "\n".join([*lines, f"{verdict} (tolerance {self.tolerance:.3g})"])

    def to_dict(self) -> dict[str, Any]:
        """For JSON: numbers, strings, lists and dicts; infinite differences as strings."""
        return {"ok": self.ok, **plain(dataclasses.asdict(self))}


def lines_of_outputs(outputs: dict[str, Difference], not_compared: list[str]) -> list[str]:
    lines = []
    for name, d in outputs.items():
        lines.append(f"output `{name}`: {d.absolute:.3g}, {d.relative:.3g} of its magnitude")
        if d.finite < 1:
            lines[-1] += f"; only {d.finite:.1%} of its elements are numbers, give other inputs to compare the rest"
    if not_compared:
        lines.append(f"not compared: {', '.join(not_compared)}, which the other side does not give so")
    return lines


@dataclass
class Comparison(ShownAsText):
    """What `tw.compare` found.  `rows` are in the order of nodes, `outputs` by name of the model's outputs."""

    ours: str
    theirs: str
    tolerance: float  #: of outputs, and of values with what they have inherited
    node_tolerance: float  #: of what a node adds
    outputs: dict[str, Difference]
    not_compared: list[str]  #: outputs that the other side does not give as such: they are parts of sequences, or known
    rows: list[NodeDifference]
    first: FirstDifference | None
    proposal: Proposal | None = None  #: which nodes to compile otherwise

    @property
    def ok(self) -> bool:
        """No node differs by itself, and the outputs are within the tolerance."""
        return self.first is None

    @property
    def explanation(self) -> str:
        """What is called a difference, for people."""
        return (
            "A node differs where on equal inputs it gives a value that is off by more than "
            f"{self.node_tolerance:.3g} of the value's magnitude, its largest element; outputs may be off by "
            f"{self.tolerance:.3g}. Whole numbers and truths have to be equal."
        )

    def worst(self, count: int) -> list[NodeDifference]:
        """Rows that differ, then those that are furthest off, in the order of nodes."""

        def weight(row: NodeDifference) -> tuple[bool, float]:
            return row.differs, row.total.relative if row.own is None else row.own.relative

        chosen = {id(row) for row in sorted(self.rows, key=weight, reverse=True)[:count]}
        return [row for row in self.rows if id(row) in chosen]

    def __str__(self) -> str:
        from rich.console import Console

        from .report import tilewright_table

        table = tilewright_table("node", "operator", "output", ">own", ">in all", ">share", "")
        for row in self.worst(SHOWN):
            own = "" if row.own is None else f"{row.own.absolute:.2e}"
            names = (tail(row.node), row.operator, tail(row.output))
            table.add_row(*names, own, f"{row.total.absolute:.2e}", share(row), verdict(row))
        text = io.StringIO()
        Console(file=text, width=120, highlight=False, markup=False).print(table)
        lines = [f"{self.ours} against {self.theirs}", self.explanation, "", text.getvalue().rstrip("\n")]
        if len(self.rows) > SHOWN:
            lines.append(f"… the worst {SHOWN} of {len(self.rows)} values")
        lines.append("")
        lines += lines_of_outputs(self.outputs, self.not_compared)
        lines.append("no node differs" if self.ok else str(self.first))
        if self.proposal:
            lines.append(str(self.proposal))
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """For JSON: numbers, strings, lists and dicts; infinite differences as strings."""
        return {"ok": self.ok, **plain(dataclasses.asdict(self))}

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Writes one page with a chart and a table of all values, for reading without a network."""
        from .compare_page import page

        write_page(path, page(self))


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def tail(name: str) -> str:
    """Of a long name the end, in which names that begin alike differ."""
    return name if len(name) <= LONGEST_NAME else f"…{name[1 - LONGEST_NAME :]}"


def share(row: NodeDifference) -> str:
    return f"{(row.total if row.own is None else row.own).relative:.1e}"


def verdict(row: NodeDifference) -> str:
    return "DIFFERS" if row.differs else "inherits" if row.is_off else ""
