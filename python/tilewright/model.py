"""A loaded model and what can be said about it before compiling."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from . import _core
from .dimension import InputShape, described_shapes
from .error import Error
from .fallback import Fallback, FallbackWarning, partition
from .html_page import write_page
from .images import with_built_in
from .lists import Type, Values
from .model_page import facts_of, page
from .notebooks import signature, table
from .operators import Operator, Operators, lowered_by


class Serializable(Protocol):
    """Such as onnx.ModelProto."""

    def SerializeToString(self) -> bytes: ...


# What `load` reads: a path, bytes, or an onnx.ModelProto.
Source = str | os.PathLike[str] | bytes | bytearray | memoryview | Serializable


class Model:
    """A network as a graph, ready to be compiled for any target."""

    def __init__(
        self,
        core: _core.Graph,
        source: tuple[str, bytes],
        shapes: dict[str, Any],
        operators: tuple[Operator, ...] = (),
        fallback: Fallback | None = None,
        written: tuple[str, bytes] | None = None,
        text: str = "",
        constants: dict[str, np.ndarray] | None = None,
    ):
        self._core, self._source, self._shapes, self._operators = core, source, shapes, operators
        self._written = written or source  # before parts of it became nodes
        self._constants = constants or {}  # inputs of the file that are none here
        self._text = text  # what is said of it, also once its file has gone
        self.fallback = fallback  # what ONNX Runtime computes of it

    @property
    def inputs(self) -> dict[str, Type]:
        """Name → type ("f32[1,3,224,224]", with dtype and shape) of each input, in the graph's order."""
        return Values(self._core.inputs, self._core.input_lists).types

    @property
    def outputs(self) -> dict[str, Type]:
        """Name → type of each output; of a sequence or an optional value, what it is made of."""
        return Values(self._core.outputs, self._core.output_lists).types

    @property
    def text(self) -> str:
        """The graph in its text form."""
        return self._core.text

    def explain(self) -> str:
        """Coverage, operators, work and size, for people."""
        return f"{self._text}{self.fallback}\n" if self.fallback else self._text

    def describe(self) -> dict[str, Any]:
        """The same for scripts: inputs and outputs, counts of operators, FLOPs, bytes, and each node's."""
        types = {
            kind: {name: str(of) for name, of in values.items()}
            for kind, values in (("inputs", self.inputs), ("outputs", self.outputs))
        }
        return types | facts_of(self._imported(), self._operators, self.fallback)

    def explain_html(self, path: str | os.PathLike[str]) -> None:
        """Writes a page that needs no network: what `explain` says, the parts, and what each node costs."""
        write_page(path, page(self._source, self._shapes, self._operators, self.fallback, self._constants))

    def _imported(self) -> _core.Import:
        return _core.read_onnx(*self._source, self._shapes, lowered_by(self._operators), True, self._constants)

    def _repr_html_(self) -> str:
        return f"{table('model', signature(self.inputs, self.outputs))}<pre>{escape(self.explain())}</pre>"

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name}: {kind}" for name, kind in self.inputs.items())
        return f"<tilewright.Model ({inputs}) -> {', '.join(self.outputs)}>"


ELF = b"\x7fELF"  # as artifacts begin


def refuse_artifact(name: str) -> None:
    raise Error(
        "TW1002",
        f"{name} is an artifact, compiled from a model\nhelp: tw.load_executable loads it; tw inspect shows it",
    )


def source_of(source: Source) -> tuple[str, bytes]:
    """(path, b"") or ("", bytes) of what `load` and `explain` take."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        if bytes(source[:4]) == ELF:
            refuse_artifact("what was given")
        return "", bytes(source)
    if isinstance(source, (str, os.PathLike)) and Path(source).suffix == ".twa":
        refuse_artifact(str(source))
    if isinstance(source, (str, os.PathLike)):
        return str(Path(source)), b""
    if hasattr(source, "SerializeToString"):
        return "", source.SerializeToString()
    raise TypeError(f"a path, bytes or an onnx.ModelProto is needed, not {type(source).__name__}")


def load(
    source: Source,
    shapes: Mapping[str, InputShape] | None = None,
    operators: Operators = None,
    fallback: str | None = None,
    checks: bool = True,
    constants: Mapping[str, Any] | None = None,
) -> Model:
    """Reads an ONNX model: a path, its bytes, or an onnx.ModelProto.

    `shapes` says what is known of the inputs' shapes: {"x": (1, 3, 224, 224)} fixes them, {"x": ("batch", 3, 224, 224)}
    or {"x": (Dim("batch", 1, 64), 3, 224, 224)} leave a dimension open, so that one compiled model runs at every size
    within the bounds.  {"x": [(2, 3), (4, 3)]} says how many tensors an input has that is a sequence, and {"x": None}
    that an optional one is absent, which else is there.  What it does not name stays as the model has it.  A dimension
    that the model fixes may be given another size, or be opened, where its nodes allow that; Error (TW1004) names the
    first that does not.  `operators`: what nodes become that use operators of your own.
    `fallback`: "onnxruntime" leaves nodes that would be refused to ONNX Runtime (packages onnx and onnxruntime), in few
    parts, says so by a FallbackWarning, and Model.fallback tells which; where nothing is refused it changes nothing.
    `constants`: what inputs are in every run, such as {"sr": 16000}: they are inputs no more, and what follows from
    them is computed now.
    `checks`: a run ends with TW1101 where an index that is data lies outside of what it is for; without, within
    branches and loops, and for sizes that a run computes, the nearest one is taken.

    Raises Error with every problem of a kind at once: TW1001, the file cannot be read; TW1002, it is no valid model;
    TW1003, nodes are not supported; TW1004, shapes do not fit; TW1005, it is beyond a limit; TW1006, its external data
    are not there.
    """
    written, described, own = source_of(source), described_shapes(shapes), with_built_in(operators)
    origin, known = written, described_constants(constants)
    if known and fallback:
        raise Error("TW1003", "constants= beside fallback= is not supported: give these inputs in each run")
    if fallback not in (None, "onnxruntime"):
        raise Error("TW1003", f'fallback={fallback!r} is not supported\nhelp: None, or "onnxruntime"')
    parts = None
    if fallback and (found := partition(origin, described, own)):
        data, own, parts = found
        origin = "", data
        warnings.warn(f"{parts}\n  Executable.profile says which share of the time", FallbackWarning, stacklevel=2)
    read = _core.read_onnx(*origin, described, lowered_by(own), checks, known)
    text = read.text
    return Model(read.finish(), origin, described, own, parts, written, text, known)


def described_constants(constants: Mapping[str, Any] | None) -> dict[str, np.ndarray]:
    """As the compiler takes them."""
    if constants is not None and not isinstance(constants, Mapping):
        raise Error("TW1004", f"constants={constants!r} is no dict\nhelp: constants={{'sr': 16000}}")
    constants = constants or {}
    known = {name: np.ascontiguousarray(value) for name, value in constants.items()}
    for name, array in known.items():
        if array.dtype.kind not in "biuf":
            raise Error("TW1004", f"constants[{name!r}] = {constants[name]!r} is no array of numbers")
    return known


def explain(
    source: Source,
    shapes: Mapping[str, InputShape] | None = None,
    operators: Operators = None,
    html: str | os.PathLike[str] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> str:
    """What Model.explain says, also for models that are not fully supported and so cannot be loaded.

    `html`: writes the page of Model.explain_html there, too.
    """
    origin, described, own = source_of(source), described_shapes(shapes), with_built_in(operators)
    known = described_constants(constants)
    if html is not None:
        write_page(html, page(origin, described, own, constants=known))
    return _core.read_onnx(*origin, described, lowered_by(own), True, known).text


def describe(
    source: Any,
    shapes: dict[str, InputShape] | None = None,
    operators: Operators = None,
    constants: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """What Model.describe gives but for inputs and outputs, also for models that are not fully supported."""
    origin, described, own = source_of(source), described_shapes(shapes), with_built_in(operators)
    known = described_constants(constants)
    return facts_of(_core.read_onnx(*origin, described, lowered_by(own), True, known), own)
