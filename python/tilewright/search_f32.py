"""Nodes that have to stay in f32 for the outputs of a model in 16 bits to be within a tolerance.

First as many as it takes, those with the largest error of their own first; then each that is not needed goes.  (After
the delta debugging of Precimonious: Rubio-González et al., "Precimonious: Tuning Assistant for Floating-Point
Precision", SC 2013.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .differences import Difference, difference
from .sides import Arrays

if TYPE_CHECKING:
    from .compare import Comparer
    from .comparison import NodeDifference


@dataclass(frozen=True)
class Kept:
    """`nodes` as `keep_f32` of `tw.compile` takes them; `is_enough`: the outputs are within the tolerance with them."""

    nodes: list[str]
    is_enough: bool
    worst: float  # of the outputs, as a share of the magnitude
    tried: int  # compilations

    def __str__(self) -> str:
        if not self.is_enough:
            return (
                f"with all nodes in f32 the outputs are still off by {self.worst:.3g}, beyond the tolerance: "
                "it is not the precision"
            )
        return (
            f"proposed: keep {len(self.nodes)} nodes in f32, and the outputs are off by {self.worst:.3g} "
            f"({self.tried} compilations tried): tw.compile(…, keep_f32={self.nodes!r})"
        )


class Search:
    def __init__(self, comparer: Comparer, expected: Arrays):
        self.comparer, self.expected = comparer, expected
        self._tried: dict[frozenset[str], list[Difference]] = {}

    def outputs(self, keep: Sequence[str]) -> list[Difference]:
        key = frozenset(keep)
        if key not in self._tried:
            comparer = self.comparer
            # The executable's own options: the outputs are those of what the user compiles.
            options = dataclasses.replace(comparer.executable._made_from[1], in_place={}, keep_f32=key)
            core, _ = options.run(comparer.network.graph)
            given = core.run(comparer.inputs)
            places = comparer.network.output_values
            pairs = [(a, self.expected[at]) for a, at in zip(given, places, strict=True) if at in self.expected]
            self._tried[key] = [difference(ours, theirs) for ours, theirs in pairs]
        return self._tried[key]

    def is_enough(self, keep: Sequence[str]) -> bool:
        return all(d.is_within(self.comparer.tolerance) for d in self.outputs(keep))

    def result(self, keep: Sequence[str], is_enough: bool) -> Kept:
        worst = max(d.relative for d in self.outputs(keep))
        return Kept(list(keep), is_enough, worst, len(self._tried))


def nodes_to_keep(comparer: Comparer, rows: Sequence[NodeDifference], expected: Arrays) -> Kept:
    errors: dict[str, float] = {}
    for row in rows:
        if row.own is not None and comparer.network.graph.has_node(row.node):
            errors[row.node] = max(errors.get(row.node, 0.0), row.own.relative)
    ranked = sorted(errors, key=errors.__getitem__, reverse=True)
    search, count = Search(comparer, expected), 1
    while not search.is_enough(ranked[:count]):
        if count >= len(ranked):
            return search.result(ranked, False)
        count = min(2 * count, len(ranked))
    keep, size = ranked[:count], (count + 1) // 2
    while size >= 1:  # from those with the smallest errors on, in parts that become smaller
        for end in range(len(keep), 0, -size):
            fewer = keep[: max(0, end - size)] + keep[end:]
            if search.is_enough(fewer):
                keep = fewer
        size //= 2
    return search.result([node.name for node in comparer.network.nodes if node.name in keep], True)
