"""The kit's cases of ONNX's own tests of operators, as the package onnx has them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .executable import compile
from .kit_case import Case, Limits, Work
from .model import load
from .onnx_models import needed

# Of ONNX's suite those that need no download: single nodes, and small models.
KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")
PRECISIONS = {"f16": 2**-9, "bf16": 2**-6}  # of the types of few bits, which round each result


def works(target: str, every: int) -> list[Work]:
    """What makes one case in `every`."""
    needed("onnx")
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests = [test for kind in KINDS for test in load_model_tests(kind=kind)][::every]

    names = ["suite-" + test.name.removeprefix("test_") for test in tests]
    return [(name, partial(suite_case, name, test, target)) for name, test in zip(names, tests, strict=True)]


def suite_case(name: str, test: Any, target: str) -> Case:
    """Inputs after the first are constants, as exporters write shapes, axes and scales.  What is expected is what the
    oracle gives, which draws the same random numbers."""
    model, values = next(contents(test))
    constants = {tensor.name for tensor in model.graph.initializer}
    given = [info.name for info in model.graph.input if info.name not in constants]
    feed = dict(zip(given, values, strict=False))
    known = {name: v for name, v in list(feed.items())[1:] if isinstance(v, np.ndarray) and v.dtype.kind in "biuf"}
    shapes: dict[str, Any] = {}
    for input, value in feed.items():
        if value is None:
            shapes[input] = None
        elif isinstance(value, list):
            shapes[input] = [part.shape for part in value]
        elif value.size == 0 and input not in known:
            shapes[input] = value.shape
    loaded = load(model, shapes, constants=known)
    executable = compile(loaded, target)
    taken = {name: value for name, value in feed.items() if name in executable._taken.names}
    inputs = [np.asarray(array) for array in executable._ordered(taken)]
    expected = loaded._core.evaluate(inputs)
    relative = [max(test.rtol, PRECISIONS.get(kind.partition("[")[0], 0.0)) for _, kind in executable._outputs]
    limits = [Limits(relative=each, absolute=test.atol) for each in relative]
    return Case(name, "suite", executable, inputs, expected, limits)


def contents(test: Any) -> Iterator[tuple[Any, list[Any]]]:
    """The model, and the inputs of each of its sets of data."""
    import onnx
    from onnx import numpy_helper

    def read(path: Path, kind: Any) -> Any:
        data = path.read_bytes()
        if kind.HasField("sequence_type"):
            return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
        if kind.HasField("optional_type"):
            return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
        return numpy_helper.to_array(onnx.TensorProto.FromString(data))

    def plain(value: Any) -> Any:
        if isinstance(value, onnx.TensorProto):
            return numpy_helper.to_array(value)
        return np.asarray(value) if isinstance(value, np.generic) else value

    if test.model is not None:
        for inputs, _ in test.data_sets:
            yield test.model, [plain(value) for value in inputs]
        return
    folder = Path(test.model_dir)
    model = onnx.load(folder / "model.onnx")
    constants = {tensor.name for tensor in model.graph.initializer}
    kinds = [info.type for info in model.graph.input if info.name not in constants]
    for data in sorted(folder.glob("test_data_set*")):
        yield model, [read(data / f"input_{index}.pb", kind) for index, kind in enumerate(kinds)]
