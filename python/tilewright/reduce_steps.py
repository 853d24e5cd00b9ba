"""The steps of a reduction: each proposes smaller models, and keeps one that still fails.

Nodes and outputs go by delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input",
IEEE TSE 28(2), 2002), sizes by halving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from .onnx_models import names_read
from .onnx_parts import Case, Parts

Item = TypeVar("Item")
MOST_DIMENSIONS = 8  # of a constant that may be a shape


def minimised(items: Sequence[Item], fails: Callable[[list[Item]], bool]) -> list[Item]:
    """ddmin: a part of the items, which fail together, of which none can go alone."""
    kept, parts = list(items), 2
    while len(kept) > 1:
        size = -(-len(kept) // parts)
        chunks = [kept[k : k + size] for k in range(0, len(kept), size)]
        found = next((chunk for chunk in chunks if fails(chunk)), None)
        if found is not None:
            kept, parts = found, 2
            continue
        others = ([item for other in chunks if other is not chunk for item in other] for chunk in chunks)
        found = next((rest for rest in others if len(chunks) > 2 and fails(rest)), None)
        if found is not None:
            kept, parts = found, max(parts - 1, 2)
        elif size == 1:
            break
        else:
            parts = min(2 * parts, len(kept))
    return kept


def around(case: Case, name: str) -> Iterator[list[int]]:
    """Places of the node and of those that it is made of, one step further each time, up to a half of all."""
    nodes = case.model.graph.node
    maker = {output: k for k, node in enumerate(nodes) for output in node.output}
    kept = {k for k, node in enumerate(nodes) if node.name == name}
    while kept and len(kept) <= max(1, len(nodes) // 2):
        yield sorted(kept)
        more = kept | {maker[read] for k in kept for read in names_read(nodes[k]) if read in maker}
        if more == kept:
            return
        kept = more


def copied(parts: Parts, case: Case) -> Any:
    model = parts.onnx.ModelProto()
    model.CopyFrom(case.model)
    return model


def without_attributes(parts: Parts, case: Case) -> Iterator[Case]:
    """An attribute less, which then has its default; or an optional input less."""
    for k, node in enumerate(case.model.graph.node):
        for at in range(len(node.attribute)):
            model = copied(parts, case)
            del model.graph.node[k].attribute[at]
            yield Case(model, case.inputs)
        for at in range(len(node.input) - 1, 0, -1):
            if not node.input[at]:
                continue
            model = copied(parts, case)
            inputs = [*node.input[:at], "", *node.input[at + 1 :]]
            while inputs and not inputs[-1]:
                inputs.pop()
            model.graph.node[k].input[:] = inputs
            yield without_unused(Case(model, case.inputs))


def without_unused(case: Case) -> Case:
    """Inputs and weights that no node reads go."""
    graph = case.model.graph
    read = {name for node in graph.node for name in names_read(node)}
    for values in (graph.input, graph.initializer):
        for value in [value for value in values if value.name not in read]:
            values.remove(value)
    return Case(case.model, {name: array for name, array in case.inputs.items() if name in read})


def shrunk(array: np.ndarray, size: int, smaller: int) -> np.ndarray:
    for axis, extent in enumerate(array.shape):
        if extent == size:
            array = np.take(array, range(smaller), axis)
    return np.ascontiguousarray(array)


def with_size(parts: Parts, case: Case, size: int, smaller: int, changes_numbers: bool) -> Case:
    """Every dimension of this size is smaller, of inputs and weights alike; with `changes_numbers`, so are the numbers
    in shapes and attributes that say so."""
    model = copied(parts, case)
    numpy_helper = parts.onnx.numpy_helper
    inputs = {name: shrunk(array, size, smaller) for name, array in case.inputs.items()}
    for tensor in model.graph.initializer:
        array = shrunk(numpy_helper.to_array(tensor), size, smaller)
        if changes_numbers and array.dtype == np.int64 and array.size <= MOST_DIMENSIONS:
            array = np.where(array == size, smaller, array)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for node in model.graph.node if changes_numbers else ():
        for attribute in node.attribute:
            attribute.ints[:] = [smaller if number == size else number for number in attribute.ints]
            if attribute.i == size:
                attribute.i = smaller
    for value in model.graph.input:
        value.CopyFrom(parts.info(value.name, inputs[value.name]))
    return Case(model, inputs)


def sizes_of(parts: Parts, case: Case) -> list[int]:
    """Of dimensions, the largest first."""
    shapes = [array.shape for array in case.inputs.values()]
    shapes += [tuple(tensor.dims) for tensor in case.model.graph.initializer]
    return sorted({extent for shape in shapes for extent in shape if extent > 1}, reverse=True)


def with_smaller_sizes(parts: Parts, case: Case) -> Iterator[Case]:
    for size in sizes_of(parts, case):
        for smaller in sorted({1, 2, size // 2, size - 1}):
            if 0 < smaller < size:
                for changes_numbers in (False, True):
                    yield with_size(parts, case, size, smaller, changes_numbers)
