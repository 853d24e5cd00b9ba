"""Finding where a difference comes from: by single values where all of them hide it, and by leaving passes out."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from . import _core
from .differences import Difference, difference
from .error import Error
from .sides import Arrays, run_cut

if TYPE_CHECKING:
    from .comparing import Comparer
    from .comparison import FirstDifference, NodeDifference

# A value that is asked for alone may round otherwise than where all are: so many times what had accumulated there.
SLACK = 4.0


class SingleValues:
    """What values are when they are asked for one by one, beside an output that is off."""

    def __init__(self, comparer: Comparer, rows: Sequence[NodeDifference], expected: Arrays, output: int):
        self.comparer, self.expected, self.output = comparer, expected, output
        self.clean = {row.place: row.total.relative for row in rows}
        self._seen: dict[int, Arrays] = {}

    def at(self, place: int) -> Arrays:
        if place not in self._seen:
            made = self.comparer.ours.single(self.comparer.inputs, place)
            self._seen[place] = {key: made[key] for key in (place, self.output)}
        return self._seen[place]

    def is_wrong(self, place: int, asked: int | None = None) -> bool:
        """`asked`: which value is asked for, if not this one."""
        made = self.at(place if asked is None else asked)[place]
        allowed = self.comparer.tolerance + SLACK * self.clean.get(place, 0.0)
        return not difference(made, self.expected[place]).is_within(allowed)


def parents(comparer: Comparer, place: int) -> list[int]:
    node = comparer.network.maker[place]
    return [at for _, at in node.inputs if at in comparer.network.maker]


def before(comparer: Comparer, place: int) -> list[int]:
    """The value and those that it is made of, in the order of nodes."""
    found, waiting = set(), [place]
    while waiting:
        at = waiting.pop()
        if at not in found:
            found.add(at)
            waiting += parents(comparer, at)
    return [at for at in comparer.network.maker if at in found]


def alone(
    comparer: Comparer, rows: Sequence[NodeDifference], outputs: dict[str, Difference], expected: Arrays
) -> FirstDifference | None:
    """The first value that is wrong when it is asked for alone, by bisection and then from there to what it reads."""
    network = comparer.network
    names = [name for name, _ in network.graph.outputs]
    off = [name for name, d in outputs.items() if not d.is_within(comparer.tolerance)]
    output = network.output_values[names.index(off[0])]
    single = SingleValues(comparer, rows, expected, output)
    if output not in network.maker or not single.is_wrong(output):
        return None
    order = [at for at in before(comparer, output) if at in expected]
    low, high = -1, len(order) - 1  # what is wrong stays so in most of what is made of it
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if single.is_wrong(order[middle]) else (middle, high)
    place = order[high]
    while wrong := [at for at in parents(comparer, place) if at in expected and single.is_wrong(at)]:
        place = wrong[0]
    row = next(row for row in rows if row.place == place)
    made = single.at(place)[place]
    own = difference(made, expected[place])
    read = [at for at in parents(comparer, place) if at in expected]
    beside = [network.maker[at].name for at in read if not single.is_wrong(output, at)]
    return comparer.described(row, own, own, made, expected[place], expected, "single values", beside)


def culprit_pass(comparer: Comparer, first: FirstDifference, made: Arrays, reference: np.ndarray) -> str | None:
    """An optional pass without which the difference is gone: of the node alone, if it differs alone, too.

    `reference`: what the value should be.
    """
    network, ours = comparer.network, comparer.ours
    place = first.place
    if place not in network.maker:
        return None  # it is known before any pass
    if first.found_by == "all values":
        graphs = [(made, [place]), ({}, network.watched)]
    else:
        graphs = [({}, list(dict.fromkeys([*network.computed_outputs, place])))]

    def differs(given: Arrays, wanted: list[int], skip: Sequence[str]) -> bool:
        options = dataclasses.replace(ours.options, skip=ours.options.skip | frozenset(skip))
        side = dataclasses.replace(ours, options=options)
        found = difference(run_cut(network, side.run, comparer.inputs, given, wanted)[place], reference)
        return not found.is_within(comparer.node_tolerance)

    for given, wanted in graphs:
        try:
            if differs(given, wanted, []):  # else it takes more than the node alone
                return bisected(functools.partial(differs, given, wanted))
        except Error:  # some code needs one of the passes
            return None
    return None


def bisected(differs: Callable[[Sequence[str]], bool]) -> str | None:
    """The pass that has to be left out, if it is one."""
    passes = _core.optional_passes()
    if differs(passes):
        return None  # it is none of them
    while len(passes) > 1:
        half = passes[: len(passes) // 2]
        passes = passes[len(half) :] if differs(half) else half
    return None if differs(passes) else passes[0]
