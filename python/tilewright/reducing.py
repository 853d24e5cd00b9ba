"""A model that fails, shrunk to a small one that fails in the same way.

small = tw.reduce("model.onnx", against="onnxruntime")
print(small.save("small.onnx"))  # how to see it again
"""

from __future__ import annotations

import hashlib
import logging
import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from .error import Error
from .failure import Judge
from .made_up import made_up_arrays
from .model import Source
from .notebooks import ShownAsText
from .onnx_parts import Case, Parts
from .options import CompileOptions
from .reduce_steps import around, minimised, with_smaller_sizes, without_attributes

Event = Callable[[dict[str, Any]], None]
logger = logging.getLogger(__name__)


def text_of(event: dict[str, Any]) -> str:
    """An event in words."""
    match event["event"]:
        case "start":
            where = f", first at {event['node']}" if event["node"] else ""
            return f"{event['failure']}{where}: {event['nodes']} nodes"
        case "step":
            elements = f"{event['elements']} elements of inputs and weights"
            return f"{event['step']}: {event['nodes']} nodes, {elements}, {event['tried']} models tried"
    return str(event["text"])


@dataclass
class Reduction(ShownAsText):
    """`model` is an onnx.ModelProto; `inputs` what it fails with, or None where made-up ones do (seed 0)."""

    model: Any
    inputs: dict[str, np.ndarray] | None
    failure: str
    nodes_before: int
    tried: int
    command: list[str]  #: how to see it again, but for the paths

    @property
    def nodes(self) -> int:
        """Of the small model."""
        return len(self.model.graph.node)

    def __str__(self) -> str:
        return f"{self.failure}: {self.nodes_before} → {self.nodes} nodes, {self.tried} models tried"

    def to_dict(self) -> dict[str, Any]:
        """What there is to say, for scripts."""
        counts = {"nodes_before": self.nodes_before, "nodes": self.nodes, "tried": self.tried}
        return {"failure": self.failure, **counts, "has_inputs": self.inputs is not None}

    def save(self, path: str | os.PathLike[str]) -> str:
        """Writes the model, and the inputs beside it as .npz where they matter; gives the command that shows it."""
        path = Path(path)
        try:
            path.write_bytes(self.model.SerializeToString())
            arguments = [*self.command, str(path)] if self.command else []
            if self.inputs is not None:
                arrays: dict[str, Any] = self.inputs
                np.savez(path.with_suffix(".npz"), **arrays)
                arguments += ["--inputs", str(path.with_suffix(".npz"))] * bool(arguments)
        except OSError as error:
            raise Error("TW1001", f"{path} cannot be written: {error.strerror}") from None
        return shlex.join(arguments)


def types_of(parts: Parts, model: Any, sizes: Mapping[str, int]) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
    """Of the inputs that are no weights; sizes that are not given are 1."""
    weights, types = {tensor.name for tensor in model.graph.initializer}, {}
    known = {d.dim_param for value in model.graph.input for d in value.type.tensor_type.shape.dim if d.dim_param}
    if unknown := [name for name in sizes if name not in known]:
        names = ", ".join(sorted(known)) or "none"
        raise Error("TW1101", f"sizes: {unknown[0]!r} is no open dimension\nhelp: the open dimensions are: {names}")
    for value in model.graph.input:
        if value.name in weights:
            continue
        tensor = value.type.tensor_type
        if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
            raise Error("TW1004", f"input {value.name!r} is no tensor of known rank\nhelp: give inputs=")
        dims = (d.dim_value if d.HasField("dim_value") else sizes.get(d.dim_param, 1) for d in tensor.shape.dim)
        types[value.name] = parts.onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type), tuple(dims)
    return types


def feed_of(
    parts: Parts, model: Any, inputs: Mapping[str, Any] | None, seed: int, sizes: Mapping[str, int]
) -> dict[str, np.ndarray]:
    """What is given, or else made up."""
    if inputs is None:
        return made_up_arrays(types_of(parts, model, sizes), seed)
    weights = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in weights]
    if set(names) != set(inputs):
        raise Error("TW1101", f"inputs has {', '.join(inputs) or 'nothing'}\nhelp: the inputs are {', '.join(names)}")
    return {name: np.asarray(inputs[name]) for name in names}


class Reducer:
    """One reduction on its way: `case` is the smallest that fails so far."""

    def __init__(self, parts: Parts, case: Case, fails: Callable[[Case], bool], on_event: Event):
        self.parts, self.case, self._fails, self._on_event = parts, case, fails, on_event
        self.tried, self._last_told = 0, case
        self._seen: set[bytes] = set()
        self.observed: dict[str, np.ndarray] = {}
        self._runs, self._is_valid = self._observe(), parts.is_valid(case)
        if not self._is_valid:
            on_event({"event": "note", "text": "onnx.checker does not take the model, and so is not asked"})

    def _observe(self) -> bool:
        try:
            self.observed = self.parts.observed(self.case)
        except Error as error:
            self._on_event({"event": "note", "text": f"values are made up, for {error}"})
            self.observed = self._made_up()
            return False
        return True

    def _made_up(self) -> dict[str, np.ndarray]:
        """Of the types that shape inference knows."""
        inferred = self.parts.onnx.shape_inference.infer_shapes(self.case.model)
        types = {}
        for value in inferred.graph.value_info:
            tensor = value.type.tensor_type
            if all(d.HasField("dim_value") for d in tensor.shape.dim) and tensor.HasField("shape"):
                dtype = self.parts.onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
                types[value.name] = dtype, tuple(d.dim_value for d in tensor.shape.dim)
        return made_up_arrays(types, 0) | self.case.inputs

    def accepts(self, candidate: Case | None) -> bool:
        """Whether the candidate is a model that fails; it takes the place of the case then."""
        if candidate is None or not candidate.model.graph.output:
            return False
        key = hashlib.sha256(candidate.model.SerializeToString(deterministic=True)).digest()
        if key in self._seen:
            return False
        self._seen.add(key)
        if self._is_valid and not self.parts.is_valid(candidate):
            return False
        observed = None
        if self._runs:  # what ONNX Runtime cannot run shows nothing
            try:
                observed = self.parts.observed(candidate)
            except Error:
                return False
        self.tried += 1
        if not self._fails(candidate):
            return False
        self.case, self.observed = candidate, self.observed if observed is None else observed
        return True

    def _tell(self, step: str) -> None:
        if self.case is self._last_told:
            return
        self._last_told = self.case
        sizes = {"nodes": self.case.nodes, "elements": self.case.elements, "tried": self.tried}
        self._on_event({"event": "step", "step": step, **sizes})

    def run(self, node: str = "") -> Case:
        """`node`: with which differences begin."""
        for kept in around(self.case, node):
            if self.accepts(self.parts.part(self.case, kept, self.observed)):
                break
        self._tell("around the node")
        before = None
        while before != (size := (self.case.nodes, self.case.elements, len(self.case.model.graph.output))):
            before = size
            self.fewer_nodes()
            self._tell("nodes")
            self.fewer_outputs()
            self._tell("outputs")
            self.repeated("attributes", without_attributes)
            self.repeated("sizes", with_smaller_sizes)
        return self.case

    def fewer_nodes(self) -> None:
        whole, observed = self.case, self.observed
        minimised(range(whole.nodes), lambda kept: self.accepts(self.parts.part(whole, kept, observed)))

    def fewer_outputs(self) -> None:
        whole, observed = self.case, self.observed
        names = [value.name for value in whole.model.graph.output]
        minimised(names, lambda kept: self.accepts(self.parts.with_outputs(whole, kept, observed)))

    def repeated(self, step: str, proposals: Callable[[Parts, Case], Iterable[Case]]) -> None:
        """Until none of them fails."""
        while any(self.accepts(candidate) for candidate in self._with_output_types(proposals)):
            self._tell(step)

    def _with_output_types(self, proposals: Callable[[Parts, Case], Iterable[Case]]) -> Iterator[Case]:
        """Outputs of the sizes that they have then."""
        for candidate in proposals(self.parts, self.case):
            for value in candidate.model.graph.output:
                value.type.tensor_type.ClearField("shape")
            if self._runs:
                try:
                    values = self.parts.observed(candidate)
                except Error:
                    continue
                for value in candidate.model.graph.output:
                    value.CopyFrom(self.parts.info(value.name, values[value.name]))
            yield candidate


def finished(reducer: Reducer, node: str) -> Case:
    """The smallest case, also where Ctrl-C ends the search."""
    try:
        return reducer.run(node)
    except KeyboardInterrupt:
        return reducer.case


def reduce(
    model: Source,
    fails: Callable[[Any], bool] | None = None,
    *,
    against: str | dict[str, Any] = "onnxruntime",
    inputs: Mapping[str, Any] | None = None,
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    tolerance: float | None = None,
    time_limit: float = 60.0,
    on_event: Event | None = None,
    **options: Unpack[CompileOptions],
) -> Reduction:
    """Shrinks a model that fails to a small one that fails in the same way.

    `model`: a path, bytes or an onnx.ModelProto.  It fails where `fails` says so of an onnx.ModelProto, in this
    process; or else, in a process of its own, where a compilation with `options` (those of `tw.compile`) and a run end
    with an error, crash or take longer than `time_limit` seconds, or where the outputs differ from those of `against`
    as `tw.compare` has it.  Smaller models have to fail in the same way: with the same
    error code or signal, or by a difference.

    Only models that are valid (onnx.checker) and that ONNX Runtime runs are tried, if the first one is such.  What is
    cut off becomes inputs with the values that it had.  `inputs`, `seed` and `sizes` are as of `tw.compare`, sizes that
    are not given are 1.  `on_event` is called with dicts: {"event": "step", "step", "nodes", "elements", "tried"}.
    Ctrl-C ends the search; the smallest model so far is the result.

    Error: TW1101, the model does not fail; TW1003, the packages onnx and onnxruntime are not installed
    (`pip install tilewright[onnxruntime]`), or the other side does not take the model; TW1005, more than 2 GB of
    weights.
    """
    if {"template", "operators"} & options.keys() or not isinstance(against, (str, dict)):
        raise Error(
            "TW1101",
            "a template, operators of your own and an Executable cannot go to another process\n"
            "help: compile and compare in fails=",
        )
    parts = Parts()

    def tell(event: dict[str, Any]) -> None:
        logger.info("%s", text_of(event))
        if on_event:
            on_event(event)

    proto = parts.read(model)
    case = Case(proto, feed_of(parts, proto, inputs, seed, sizes or {}))
    if fails is not None:
        if not fails(proto):
            raise Error("TW1101", "the model does not fail: `fails` says so\nhelp: it takes an onnx.ModelProto")
        reducer = Reducer(parts, case, lambda candidate: bool(fails(candidate.model)), tell)
        small = finished(reducer, "")
        return Reduction(small.model, small.inputs, "fails", case.nodes, reducer.tried, [])
    with Judge(against, dict(options), tolerance, time_limit) as judge:
        first = judge.judge(case, wants_node=True)
        if first.kind == "ok":
            raise Error("TW1101", "the model does not fail\nhelp: give the inputs, options or target that show it")
        if first.kind == "unusable":
            raise Error("TW1003", f"whether the model fails cannot be found out: {first.detail}")
        tell({"event": "start", "failure": first.kind, "node": first.node, "nodes": case.nodes})
        reducer = Reducer(parts, case, lambda candidate: judge.judge(candidate).is_like(first), tell)
        small = finished(reducer, first.node)
        made_up = Case(small.model, made_up_arrays(types_of(parts, small.model, {}), 0))
        kept = None if judge.judge(made_up).is_like(first) else small.inputs
    command = command_of(against, dict(options), tolerance)
    return Reduction(small.model, kept, first.kind, case.nodes, reducer.tried, command)


def command_of(against: Any, options: dict[str, Any], tolerance: float | None) -> list[str]:
    """That compiles the model with the options and compares it: it ends with what fails, or shows what differs.

    Empty where the command line has no such options.
    """
    if isinstance(against, dict) and list(against) != ["precision"]:
        return []
    command = ["tw", "compare", "--against", against["precision"] if isinstance(against, dict) else against]
    command += ["--tolerance", str(tolerance)] if tolerance is not None else []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, bool):
            command.append(option if value else f"--no-{option[2:]}")
        elif isinstance(value, (list, tuple)):
            for part in value:
                command += [option, str(part)]
        elif value not in (None, "cpu", "f32"):  # the defaults
            command += [option, str(value)]
    return command
