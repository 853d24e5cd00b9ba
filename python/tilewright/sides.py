"""Ways to compute a model's values: compiled, by the oracle, by ONNX Runtime.

Each side gives all values that the model's nodes make (`values`), and what each node makes of values that are given
(`recomputed`): a cut at every value at once, so that one run answers for all nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from . import _core
from .error import Error
from .executable import Compilation
from .fallback import DOMAIN
from .model import Model
from .onnx_models import MOST_BYTES, needed, read_model, with_constants

Arrays = dict[int, np.ndarray]  # by place of the value in the graph


@dataclass(frozen=True)
class SourceNode:
    """A node of the model, in its own terms; a value is its name, and its place in the graph or -1: it is no tensor."""

    name: str
    operator: str
    inputs: list[tuple[str, int]]
    outputs: list[tuple[str, int]]


@dataclass(frozen=True)
class GraphValue:
    name: str
    type: str
    is_known: bool  # when the model is loaded
    may_be_given: bool  # its sizes follow from the model's inputs


class Network:
    """The graph of a model, and which of its values the model's nodes make."""

    def __init__(self, model: Model):
        self.model, self.graph = model, model._core
        self.values = [GraphValue(*row) for row in self.graph.values]
        self.nodes = [SourceNode(*row) for row in model._imported().rows]
        self.output_values = list(self.graph.output_values)
        self.input_names = [name for name, _ in self.graph.inputs]
        given = set(self.graph.input_values)
        self.maker: dict[int, SourceNode] = {}  # by value that is computed, in the order of nodes
        self.known: dict[int, SourceNode] = {}  # by value that was folded when the model was loaded
        for node in self.nodes:
            for _, at in node.outputs:
                if at >= 0 and at not in given:
                    (self.known if self.values[at].is_known else self.maker).setdefault(at, node)
        # Of sequences, and of nodes in both branches of one: who makes them is known by the name alone.
        for (name, _), at in zip(self.graph.outputs, self.output_values, strict=True):
            if at not in given and not self.values[at].is_known and at not in self.maker:
                made = [node for node in self.nodes if name in dict(node.outputs)]
                self.maker[at] = made[0] if made else SourceNode(name, "output", [], [(name, at)])

    @cached_property
    def watched(self) -> list[int]:
        """Values that are computed: those of nodes, and outputs."""
        outputs = [at for at in self.output_values if at not in self.graph.input_values]
        return list(dict.fromkeys([*self.maker, *(at for at in outputs if not self.values[at].is_known)]))

    @property
    def computed_outputs(self) -> list[int]:
        return [at for at in self.output_values if at in self.maker]

    def is_known(self, at: int) -> bool:
        return self.values[at].is_known

    def known_value(self, at: int) -> np.ndarray:
        return self.graph.known_value(at)

    def node_of(self, at: int) -> SourceNode:
        """That makes it."""
        return self.maker.get(at) or self.known[at]

    def name_of(self, at: int) -> str:
        """What the model calls it."""
        names = [name for name, place in self.node_of(at).outputs if place == at]
        return names[0] if names else self.values[at].name


class Side(Protocol):
    label: str

    def values(self, inputs: list[np.ndarray], wanted: list[int] | None = None) -> Arrays:
        """What it makes of the model's inputs, in order: all that is watched, or what is wanted."""

    def recomputed(self, inputs: list[np.ndarray], given: Arrays) -> Arrays:
        """What each node makes of `given` values of the nodes before it."""


@dataclass
class Compiled:
    """By executables of graphs with other outputs."""

    network: Network
    options: Compilation
    label: str = ""

    def __post_init__(self) -> None:
        self.options = replace(self.options, in_place={})  # elements from before the update are asked for, too
        self.label = self.label or label_of(self.options)

    def run(self, graph: _core.Graph, inputs: list[np.ndarray]) -> list[np.ndarray]:
        return self.options.run(graph)[0].run(inputs)

    def values(self, inputs: list[np.ndarray], wanted: list[int] | None = None) -> Arrays:
        return run_cut(self.network, self.run, inputs, {}, wanted or self.network.watched)

    def recomputed(self, inputs: list[np.ndarray], given: Arrays) -> Arrays:
        return run_cut(self.network, self.run, inputs, given, self.network.watched)

    def single(self, inputs: list[np.ndarray], at: int) -> Arrays:
        """The model's outputs, and one value besides: the kernels are those of the model but around that value."""
        return self.values(inputs, list(dict.fromkeys([*self.network.computed_outputs, at])))


@dataclass
class Oracle:
    """By the interpreter of what operators mean: exact to the last rounding, and slow."""

    network: Network
    label: str = "the oracle"

    def run(self, graph: _core.Graph, inputs: list[np.ndarray]) -> list[np.ndarray]:
        return graph.evaluate(inputs)

    def values(self, inputs: list[np.ndarray], wanted: list[int] | None = None) -> Arrays:
        return run_cut(self.network, self.run, inputs, {}, wanted or self.network.watched)

    def recomputed(self, inputs: list[np.ndarray], given: Arrays) -> Arrays:
        return run_cut(self.network, self.run, inputs, given, self.network.watched)


def run_cut(network: Network, run: Any, inputs: list[np.ndarray], given: Arrays, wanted: list[int]) -> Arrays:
    places = [at for at in given if network.values[at].may_be_given]
    arrays = [*inputs, *(np.ascontiguousarray(given[at]).reshape(given[at].shape) for at in places)]
    return dict(zip(wanted, run(network.graph.cut(places, wanted), arrays), strict=True))


# What ONNX Runtime draws is not what is drawn here.
RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}


@dataclass
class OnnxRuntime:
    """By ONNX Runtime with its optimisations off, for values that the model names."""

    network: Network
    label: str = "ONNX Runtime"
    _places: dict[str, int] = field(default_factory=dict, init=False)  # of values by name

    def __post_init__(self) -> None:
        self.onnx, self.runtime = needed("onnx", "onnxruntime")
        path, data = self.network.model._written
        self.proto = with_constants(read_model(path or data), self.network.model._constants)
        own = {each.full_name for each in self.network.model._operators if each.domain != DOMAIN}
        for node in self.network.nodes:
            if node.operator in own:
                raise Error(
                    "TW1003",
                    f"node `{node.name}` ({node.operator}) is of an operator of your own, which ONNX Runtime does not "
                    'have\nhelp: compare with another executable, {"precision": "f32"}, or the oracle',
                )
            if node.operator in RANDOM:
                raise Error(
                    "TW1003",
                    f"node `{node.name}` ({node.operator}) draws random numbers, and ONNX Runtime draws others\n"
                    "help: compare against the oracle, which draws the same",
                )
            for name, at in node.outputs:
                if name and at >= 0:
                    self._places.setdefault(name, at)

    def values(self, inputs: list[np.ndarray], wanted: list[int] | None = None) -> Arrays:
        return self._run(inputs, {}, wanted)

    def recomputed(self, inputs: list[np.ndarray], given: Arrays) -> Arrays:
        return self._run(inputs, given, None)

    def _run(self, inputs: list[np.ndarray], given: Arrays, places: list[int] | None) -> Arrays:
        model = self.onnx.ModelProto()
        model.CopyFrom(self.proto)
        graph = model.graph
        feed = dict(zip(self.network.input_names, inputs, strict=True))
        replaced = self._read_given(graph, given, feed)
        del graph.value_info[:]
        tensor = self.onnx.helper.np_dtype_to_tensor_dtype
        for value in graph.input:
            if value.name in feed:  # the sizes are those of this run
                array = feed[value.name]
                value.CopyFrom(self._info(value.name, tensor(array.dtype), array.shape))
        for name in replaced:
            graph.input.append(self._info(name, tensor(feed[name].dtype), feed[name].shape))
        wanted = {at: name for name, at in reversed(self._places.items()) if places is None or at in places}
        del graph.output[:]
        graph.output.extend(self.onnx.ValueInfoProto(name=name) for name in wanted.values())
        session = session_of(self.runtime, self.proto_bytes(model))
        return dict(zip(wanted, session.run(list(wanted.values()), feed), strict=True))

    def proto_bytes(self, model: Any) -> bytes:
        if sum(len(tensor.raw_data) for tensor in model.graph.initializer) >= MOST_BYTES:
            raise Error(
                "TW1005",
                "the model has more than 2 GB of weights, which ONNX Runtime takes from files only\n"
                "help: compare a part of it (onnx.utils.extract_model), or against {'precision': 'f32'}",
            )
        data: bytes = model.SerializeToString()
        return data

    def _info(self, name: str, kind: int, shape: tuple[int, ...]) -> Any:
        return self.onnx.helper.make_tensor_value_info(name, kind, shape)

    def _read_given(self, graph: Any, given: Arrays, feed: dict[str, np.ndarray]) -> list[str]:
        """Lets nodes of the graph itself read inputs in place of values that are given; the inputs' names."""
        names = {name: f"given/{name}" for name, at in self._places.items() if at in given}
        used: set[str] = set()

        def replace_in(nodes: Any) -> None:
            for node in nodes:
                used.update(name for name in node.input if name in names)
                node.input[:] = [names.get(name, name) for name in node.input]
                for attribute in node.attribute:  # branches and loops read what is around them
                    for inner in [attribute.g, *attribute.graphs]:
                        replace_in(inner.node)

        replace_in(graph.node)
        feed |= {names[name]: given[self._places[name]] for name in used}
        return [names[name] for name in used]


def session_of(runtime: Any, model: bytes) -> Any:
    """Of ONNX Runtime, which computes node by node as the model says."""
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4  # what it refuses is raised
    try:
        return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of ONNX Runtime's own kinds, which it does not export
        reason = str(error).splitlines()[0]
        raise Error("TW1003", f"ONNX Runtime does not take the model: {reason}") from None


def label_of(options: Compilation) -> str:
    parts = [options.target, options.precision]
    parts += ["winograd=0"] * (not options.winograd)
    parts += ["strassen=0"] * (not options.strassen)
    parts += [f"without {', '.join(sorted(options.skip))}"] * bool(options.skip)
    parts += [f"{len(options.keep_f32)} nodes in f32"] * bool(options.keep_f32)
    parts += [f"{len(options.unfused)} nodes unfused"] * bool(options.unfused)
    return "compiled for " + ", ".join(parts)
