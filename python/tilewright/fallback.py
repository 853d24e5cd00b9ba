"""Parts of a model that ONNX Runtime computes, because Tilewright has not learned their operators.

Nodes that are refused are put together into parts: those between which no path leads through a node of ours are one,
so that parts are few.  Each becomes one node of an operator of its own (tilewright.operators), which runs the part in
a session of ONNX Runtime, on arrays where they lie.  What can only pass between nodes of ONNX Runtime (strings, maps,
sequences, sizes that only a run knows) draws the nodes that take it into the part.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import _core, te
from .error import Error
from .onnx_models import MOST_BYTES, names_read, needed, read_model
from .operators import ArrayType, Operator, lowered_by

DOMAIN = "tilewright.onnxruntime"
LARGE = 1 << 16  # bytes of a weight that stays with our constants, and is given to the part in each run


class FallbackWarning(UserWarning):
    """Some nodes of a model are not compiled: ONNX Runtime computes them."""


@dataclass(frozen=True)
class FallbackPart:
    """Nodes that ONNX Runtime computes together."""

    name: str
    nodes: list[str]  #: "name (Operator)"
    inputs: list[str]  #: values that pass into it
    outputs: list[str]


@dataclass(frozen=True)
class Fallback:
    """What of a model ONNX Runtime computes."""

    parts: list[FallbackPart] = field(default_factory=list)
    all_nodes: int = 0
    reasons: dict[str, str] = field(default_factory=dict)  #: by node: why it is not compiled

    def __str__(self) -> str:
        nodes = sum(len(part.nodes) for part in self.parts)
        lines = [f"ONNX Runtime computes {nodes} of {self.all_nodes} nodes, in {len(self.parts)} part(s):"]
        for part in self.parts:
            lines.append(f"  {part.name}: {', '.join(part.inputs)} -> {', '.join(part.outputs)}")
            lines += [f"    {node}" + (f": {why}" if (why := self.reasons.get(node)) else "") for node in part.nodes]
        return "\n".join(lines)


class Unpassable(Exception):
    """Results of a part that cannot pass to nodes of ours."""

    def __init__(self, values: dict[str, str]):
        super().__init__(", ".join(values))
        self.values = values  # by name: why


# Types of tensors that pass between both, as ONNX Runtime writes them.
DTYPES = {
    "tensor(float)": "f32",
    "tensor(double)": "f64",
    "tensor(float16)": "f16",
    "tensor(bfloat16)": "bf16",
    "tensor(bool)": "bool",
    **{f"tensor(int{bits})": f"i{bits}" for bits in (8, 16, 32, 64)},
    **{f"tensor(uint{bits})": f"u{bits}" for bits in (8, 16, 32, 64)},
}


def onnx_type(dtype: str) -> int:
    (onnx,) = needed("onnx")
    for name, ours in DTYPES.items():
        if ours == dtype:
            return int(onnx.TensorProto.DataType.Value(name.removeprefix("tensor(").removesuffix(")").upper()))
    raise Error("TW1003", f"ONNX Runtime takes no arrays of {dtype} from us")


def element_type(array: np.ndarray) -> Any:
    (onnx,) = needed("onnx")
    return onnx.TensorProto.BFLOAT16 if array.dtype.name == "bfloat16" else array.dtype.type


class Session:
    """A part that ONNX Runtime computes.  The types of its inputs are known when it is opened."""

    def __init__(self, name: str, model: bytes):
        self.name, self.model = name, model
        self._session: Any = None

    def open(self, inputs: Iterable[tuple[str, Sequence[int | str]]]) -> Any:
        """For inputs of these (dtype, shape): a name stands for an open dimension."""
        onnx, onnxruntime = needed("onnx", "onnxruntime")
        typed = onnx.load_from_string(self.model)
        for info, (dtype, shape) in zip(typed.graph.input, inputs, strict=True):
            info.CopyFrom(onnx.helper.make_tensor_value_info(info.name, onnx_type(dtype), list(shape)))
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        # Threads that spin would do so on cores that ours are to run on.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        try:
            return onnxruntime.InferenceSession(typed.SerializeToString(), options, ["CPUExecutionProvider"])
        except Exception as error:
            raise Error("TW1003", f"ONNX Runtime does not take {self.name} either: {error}") from None

    def types(self, *inputs: ArrayType) -> list[ArrayType]:
        """What its results are, as ONNX Runtime infers it.  Raises Unpassable."""
        sizes: dict[str, Any] = {}  # by name that stands for it: of open dimensions

        def extent(size: Any) -> int | str:
            if isinstance(size, int):
                return size
            for name, known in sizes.items():
                if repr(known) == repr(size):
                    return name
            sizes[f"open{len(sizes)}"] = size
            return f"open{len(sizes) - 1}"

        self._session = self.open([(x.dtype, [extent(size) for size in x.shape]) for x in inputs])
        results, unpassable = [], {}
        for output in self._session.get_outputs():
            shape = output.shape
            if output.type not in DTYPES:
                unpassable[output.name] = f"it is a {output.type}"
            elif shape is None or any(not isinstance(size, int) and size not in sizes for size in shape):
                unpassable[output.name] = "only a run knows its sizes"
            else:
                results.append(ArrayType(DTYPES[output.type], tuple(sizes.get(size, size) for size in shape)))
        if unpassable:
            raise Unpassable(unpassable)
        return results

    def run(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """On arrays where they lie."""
        if self._session is None:  # of an artifact
            names = ([f"open{k}_{d}" for d in range(x.ndim)] for k, x in enumerate(inputs))
            dtypes = (_core.dtype_name(x) for x in inputs)
            self._session = self.open(zip(dtypes, names, strict=True))
        session = self._session
        takes, gives = [x.name for x in session.get_inputs()], [x.name for x in session.get_outputs()]
        if any(array.size == 0 for array in (*inputs, *outputs)):
            results = session.run(gives, dict(zip(takes, inputs, strict=True)))
            for result, output in zip(results, outputs, strict=True):
                np.copyto(output, result.reshape(output.shape))
            return
        binding = session.io_binding()
        for name, array in zip(takes, inputs, strict=True):
            binding.bind_input(name, "cpu", 0, element_type(array), array.shape, array.ctypes.data)
        for name, array in zip(gives, outputs, strict=True):
            binding.bind_output(name, "cpu", 0, element_type(array), array.shape, array.ctypes.data)
        session.run_with_iobinding(binding)


def packed(model: bytes) -> str:
    """As an artifact keeps a part: text, in the attribute of its node."""
    return base64.b64encode(zlib.compress(model)).decode()


class PartOperator(Operator):
    """A part as an operator of its own."""

    takes_attributes = False

    def __init__(self, name: str, session: Session):
        super().__init__(DOMAIN, name, types=session.types, function=session.run)
        self.session = session

    def lower(self, node: str, attributes: str, inputs: list[te.Tensor]) -> Any:
        outputs = self.session.types(*(ArrayType(x.dtype, x.shape) for x in inputs))
        return self.full_name, "", ([(x.dtype, tuple(x.shape)) for x in outputs], "")

    def call(self, attributes: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        self.session.run(inputs, outputs)


def operators_of_artifact(calls: Iterable[tuple[str, str, str]]) -> list[PartOperator]:
    """Those parts among the (function, library, attributes) that an artifact calls."""
    result = {}
    for function, _, attributes in calls:
        if function.startswith(f"{DOMAIN}."):
            name = function.removeprefix(f"{DOMAIN}.")
            model = zlib.decompress(base64.b64decode(json.loads(attributes)["model"]))
            result[name] = PartOperator(name, Session(name, model))
    return list(result.values())


def levels_of(makers: Sequence[Iterable[int]], aside: set[int]) -> list[int]:
    """Of nodes, in an order in which those that make values come first: how often a path to each changes sides.

    `makers`: the nodes that it reads of.  `aside`: the nodes of the other side, whose levels are odd.  Two nodes of one
    level are convex together: no path between them goes through others.
    """
    level: list[int] = []
    for i, before in enumerate(makers):
        side = i in aside
        level.append(max([int(side)] + [level[p] + ((p in aside) != side) for p in before]))
    return level


class Partition:
    """A model in which parts are nodes of operators of their own."""

    def __init__(self, model: Any):
        self.model, self.graph = model, model.graph
        self.nodes = self.sorted_nodes()
        self.by_name: dict[str, int] = {}
        for i, node in enumerate(self.nodes):
            name, n = node.name or f"{node.op_type}_{i}", 1
            while name in self.by_name:
                name, n = f"{node.name or node.op_type}_{n}", n + 1
            node.name = name
            self.by_name[name] = i
        self.reads = [names_read(node) for node in self.nodes]
        self.maker = {name: i for i, node in enumerate(self.nodes) for name in node.output if name}
        self.initializers = {x.name: x for x in self.graph.initializer}
        self.refused: set[int] = set()
        self.reasons: dict[str, str] = {}

    def sorted_nodes(self) -> list[Any]:
        """In an order in which those that make values come first."""
        maker = {name: node for node in self.graph.node for name in node.output if name}
        order, done = [], set()
        for root in self.graph.node:
            stack = [root]
            while stack:
                node = stack[-1]
                needed = [maker[name] for name in names_read(node) if name in maker and id(maker[name]) not in done]
                needed = [each for each in needed if all(each is not waiting for waiting in stack)]
                if needed and id(node) not in done:
                    stack.append(needed[0])
                    continue
                stack.pop()
                if id(node) not in done:
                    done.add(id(node))
                    order.append(node)
        return order

    def label(self, i: int) -> str:
        return f"{self.nodes[i].name} ({self.nodes[i].op_type})"

    def users(self, value: str) -> set[int]:
        return {i for i, names in enumerate(self.reads) if value in names}

    def refuse(self, nodes: Iterable[int], why: str) -> bool:
        """Whether any of them is new."""
        new = set(nodes) - self.refused
        self.refused |= new
        for i in new:
            self.reasons[self.label(i)] = why
        return bool(new)

    def makers_of_strings(self, parts: Iterable[FallbackPart]) -> set[int]:
        """Nodes of ours that give strings to parts, as far as ONNX's inference knows the types."""
        given = {name for part in parts for name in part.inputs if name in self.maker}
        if not given:
            return set()
        (onnx,) = needed("onnx")
        try:
            values = onnx.shape_inference.infer_shapes(self.model).graph.value_info
        except Exception:  # of inference, of several kinds: the types stay unknown
            return set()
        string = onnx.TensorProto.STRING
        return {self.maker[x.name] for x in values if x.name in given and x.type.tensor_type.elem_type == string}

    def node_of(self, label: str) -> int | None:
        """The node of the graph in which a refused one lies: what is within it is called "node/inner"."""
        while label:
            if label in self.by_name:
                return self.by_name[label]
            label = label.rpartition("/")[0]
        return None

    def parts(self) -> list[list[int]]:
        """Refused nodes, those together between which no path goes through others."""
        makers = [[self.maker[name] for name in names if name in self.maker] for names in self.reads]
        by_level: dict[int, list[int]] = {}
        for i, level in enumerate(levels_of(makers, self.refused)):
            if i in self.refused:
                by_level.setdefault(level, []).append(i)
        return [by_level[at] for at in sorted(by_level)]

    def rewritten(self) -> tuple[bytes, list[PartOperator], list[FallbackPart]]:
        """The model with its parts as nodes, what these are, and how to describe them."""
        (onnx,) = needed("onnx")
        parts, operators = [], []
        result = onnx.ModelProto()
        result.CopyFrom(self.model)
        del result.graph.node[:]
        result.graph.node.extend(node for i, node in enumerate(self.nodes) if i not in self.refused)
        for k, members in enumerate(self.parts()):
            part, model = self.part(f"onnxruntime part {k}", members)
            name = f"Part{k}_{hashlib.sha256(model).hexdigest()[:12]}"
            operators.append(PartOperator(name, Session(part.name, model)))
            node = onnx.helper.make_node(name, part.inputs, part.outputs, part.name, domain=DOMAIN, model=packed(model))
            result.graph.node.append(node)
            parts.append(part)
        if parts:
            result.opset_import.append(onnx.helper.make_opsetid(DOMAIN, 1))
        return result.SerializeToString(), operators, parts

    def part(self, name: str, members: list[int]) -> tuple[FallbackPart, bytes]:
        (onnx,) = needed("onnx")
        inside, wanted = set(members), {x.name for x in self.graph.output}
        for i, names in enumerate(self.reads):
            if i not in inside:
                wanted |= names
        made = [value for i in members for value in self.nodes[i].output if value]
        read = dict.fromkeys(value for i in members for value in sorted(self.reads[i]))
        own = {value: self.initializers[value] for value in read if value in self.initializers}
        own = {value: tensor for value, tensor in own.items() if tensor.ByteSize() < LARGE}
        inputs = [value for value in read if value not in own and value not in set(made)]
        outputs = [value for value in made if value in wanted]
        graph = onnx.helper.make_graph(
            [self.nodes[i] for i in members],
            name,
            [onnx.helper.make_value_info(value, onnx.TypeProto()) for value in inputs],
            [onnx.helper.make_value_info(value, onnx.TypeProto()) for value in outputs],
            list(own.values()),
        )
        model = onnx.ModelProto(ir_version=self.model.ir_version, graph=graph)
        model.opset_import.extend(self.model.opset_import)
        model.functions.extend(self.model.functions)
        return FallbackPart(name, [self.label(i) for i in members], inputs, outputs), model.SerializeToString()


def partition(
    source: tuple[str, bytes], shapes: dict[str, Any], operators: Sequence[Operator]
) -> tuple[bytes, tuple[Operator, ...], Fallback] | None:
    """The model with what is refused in parts, their operators behind those given, and what they are.

    None: nothing is refused, or what is refused is no node.
    """
    if not _core.read_onnx(*source, shapes, lowered_by(operators)).refusals:
        return None
    path, data = source
    model = read_model(path or data)
    if model.ByteSize() > MOST_BYTES:
        raise Error("TW1005", 'fallback="onnxruntime" takes models of at most 2 GB, weights included')
    whole = Partition(model)
    while True:
        data, own, parts = whole.rewritten()
        try:
            refusals = _core.read_onnx("", data, shapes, lowered_by([*operators, *own])).refusals
        except Unpassable as error:
            for value, why in error.values.items():
                if not whole.refuse(whole.users(value), f"it takes `{value}`: {why}"):
                    raise Error(
                        "TW1003", f"`{value}` is an output that ONNX Runtime computes, and {why}: it cannot be given"
                    ) from None
            continue
        if not refusals:
            return data, (*operators, *own), Fallback(parts, len(whole.nodes), whole.reasons)
        is_new = whole.refuse(whole.makers_of_strings(parts), "it makes strings")
        for operator, name, why in refusals:
            if operator == "initializer":
                is_new |= whole.refuse(whole.users(name), f"it takes `{name}`: {why}")
            elif operator != "input" and (node := whole.node_of(name)) is not None:
                is_new |= whole.refuse([node], why or f"the operator {operator} is not known")
        if not is_new:
            return None
