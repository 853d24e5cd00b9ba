"""Nodes that have to be compiled otherwise for a model's outputs to be within a tolerance: in f32, or unfused.

First as many as it takes, the most suspicious ones first; then each that is not needed goes.  (After Precimonious:
Rubio-González et al., "Precimonious: Tuning Assistant for Floating-Point Precision", SC 2013.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .differences import Difference, difference
from .sides import Arrays

if TYPE_CHECKING:
    from .comparing import Comparer
    from .comparison import FirstDifference, NodeDifference


@dataclass(frozen=True)
class Proposal:
    """`nodes` for `option` of `tw.compile`; `is_enough`: the outputs are within the tolerance with them."""

    option: str  #: keep_f32 or unfused
    nodes: list[str]
    is_enough: bool
    worst: float  #: of the outputs, as a share of the magnitude
    tried: int  #: compilations

    def __str__(self) -> str:
        tried = f"{self.worst:.3g} of their magnitude ({self.tried} compilations tried)"
        if not self.is_enough:
            return f"not even {self.option}= with all nodes is enough: the outputs are off by {tried}"
        return f"proposed: {self.option}={self.nodes!r}, with which the outputs are off by {tried}"


class Search:
    def __init__(self, comparer: Comparer, expected: Arrays, option: str):
        self.comparer, self.expected, self.option = comparer, expected, option
        self._tried: dict[frozenset[str], list[Difference]] = {}

    def outputs(self, nodes: Sequence[str]) -> list[Difference]:
        key = frozenset(nodes)
        if key not in self._tried:
            comparer = self.comparer
            # The executable's own options: the outputs are those of what the user compiles.
            made_from = comparer.executable._compilation
            named = getattr(made_from, self.option) | key
            options = dataclasses.replace(made_from, in_place={}, **{self.option: named})
            given = options.run(comparer.network.graph)[0].run(comparer.inputs)
            places = comparer.network.output_values
            pairs = [(a, self.expected[at]) for a, at in zip(given, places, strict=True) if at in self.expected]
            self._tried[key] = [difference(ours, theirs) for ours, theirs in pairs]
        return self._tried[key]

    def is_enough(self, nodes: Sequence[str]) -> bool:
        return all(d.is_within(self.comparer.tolerance) for d in self.outputs(nodes))

    def run(self, ranked: Sequence[str]) -> Proposal:
        count = 1
        while not self.is_enough(ranked[:count]):
            if count >= len(ranked):
                return self._result(ranked, False)
            count = min(2 * count, len(ranked))
        needed, size = list(ranked[:count]), (count + 1) // 2
        while size >= 1:  # from the least suspicious on, in parts that become smaller
            for end in range(len(needed), 0, -size):
                fewer = needed[: max(0, end - size)] + needed[end:]
                if self.is_enough(fewer):
                    needed = fewer
            size //= 2
        order = {node.name: k for k, node in enumerate(self.comparer.network.nodes)}
        return self._result(sorted(needed, key=order.__getitem__), True)

    def _result(self, nodes: Sequence[str], is_enough: bool) -> Proposal:
        worst = max(d.relative for d in self.outputs(nodes))
        return Proposal(self.option, list(nodes), is_enough, worst, len(self._tried))


def computed(comparer: Comparer, names: Sequence[str]) -> list[str]:
    """Those that the graph has nodes of, each once."""
    return [name for name in dict.fromkeys(names) if comparer.network.graph.has_node(name)]


def nodes_to_keep(comparer: Comparer, rows: Sequence[NodeDifference], expected: Arrays) -> Proposal:
    """In f32: those with the largest error of their own are tried first."""
    errors = [(row.own.relative, row.node) for row in rows if row.own]
    ranked = [node for _, node in sorted(errors, key=lambda each: each[0], reverse=True)]
    return Search(comparer, expected, "keep_f32").run(computed(comparer, ranked))


def nodes_to_leave_alone(comparer: Comparer, first: FirstDifference, expected: Arrays) -> Proposal:
    """Unfused: the first that differs and what it reads are tried first, then what is near these."""
    names = [node.name for node in comparer.network.nodes]
    at = names.index(first.node)
    near = sorted(names, key=lambda name: abs(names.index(name) - at))
    return Search(comparer, expected, "unfused").run(computed(comparer, [*first.beside, first.node, *near]))
