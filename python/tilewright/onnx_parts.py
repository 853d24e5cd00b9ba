"""Parts of ONNX models, as models of their own.

A part is some of the graph's nodes.  What they read of others become inputs, whose types and values are those that were
observed in a run of the whole; what others read of them, and what nobody reads, are outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .error import Error
from .onnx_models import MOST_BYTES, names_read, needed, read_model
from .sides import session_of


@dataclass(frozen=True)
class Case:
    """A model (onnx.ModelProto) with the inputs that it is tried with, by name."""

    model: Any
    inputs: dict[str, np.ndarray]

    @property
    def nodes(self) -> int:
        return len(self.model.graph.node)

    @property
    def elements(self) -> int:
        """Of inputs and weights."""
        weights = sum(int(np.prod(tensor.dims)) for tensor in self.model.graph.initializer)
        return weights + sum(array.size for array in self.inputs.values())


class Parts:
    """Makes models of parts of one; `observed`: values by name."""

    def __init__(self) -> None:
        self.onnx, self.runtime = needed("onnx", "onnxruntime")

    def read(self, source: Any) -> Any:
        """A copy of the model with names for all nodes; Error(TW1001, TW1002, TW1005, TW1006)."""
        if isinstance(source, self.onnx.ModelProto):
            model = self.onnx.ModelProto()
            model.CopyFrom(source)
        else:
            model = read_model(source)
        if sum(len(tensor.raw_data) for tensor in model.graph.initializer) >= MOST_BYTES:
            raise Error(
                "TW1005",
                "the model has more than 2 GB of weights, and no part of it can be written with them\n"
                "help: cut out what fails with onnx.utils.extract_model first",
            )
        if any(tensor.data_location == tensor.EXTERNAL for tensor in model.graph.initializer):
            raise Error("TW1006", "weights of the model lie in another file\nhelp: give the path of the model")
        for k, node in enumerate(model.graph.node):
            node.name = node.name or f"{node.op_type}_{k}"
        return model

    def is_valid(self, case: Case) -> bool:
        """By ONNX's own rules, types and shapes included."""
        try:
            self.onnx.checker.check_model(case.model, full_check=True)
            return True
        except Exception:  # of the checker and of shape inference, of several kinds
            return False

    def observed(self, case: Case) -> dict[str, np.ndarray]:
        """Every tensor that a node of the graph gives, by ONNX Runtime; Error(TW1003)."""
        model = self.onnx.ModelProto()
        model.CopyFrom(case.model)
        names = list(dict.fromkeys(name for node in model.graph.node for name in node.output if name))
        del model.graph.output[:]
        model.graph.output.extend(self.onnx.ValueInfoProto(name=name) for name in names)
        session = session_of(self.runtime, model.SerializeToString())
        taken = {value.name for value in session.get_inputs()}
        try:
            values = session.run(names, {name: array for name, array in case.inputs.items() if name in taken})
        except Exception as error:  # of ONNX Runtime's own kinds
            raise Error("TW1003", f"ONNX Runtime does not run the model: {str(error).splitlines()[0]}") from None
        pairs = zip(names, values, strict=True)
        return dict(case.inputs) | {name: value for name, value in pairs if isinstance(value, np.ndarray)}

    def info(self, name: str, array: np.ndarray) -> Any:
        kind = self.onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        return self.onnx.helper.make_tensor_value_info(name, kind, array.shape)

    def part(self, case: Case, kept: Sequence[int], observed: dict[str, np.ndarray]) -> Case | None:
        """Of the nodes at these places; None where one of them reads what is no tensor."""
        whole = case.model.graph
        nodes = [whole.node[k] for k in sorted(kept)]
        made = {name for node in nodes for name in node.output}
        read = set().union(*(names_read(node) for node in nodes)) if nodes else set()
        weights = [tensor for tensor in whole.initializer if tensor.name in read]
        missing = [name for name in self._in_order(case, read - made) if name not in {t.name for t in weights}]
        if any(name not in observed for name in missing):
            return None
        inside = {name for node in nodes for name in names_read(node)}
        outside = {name for k, node in enumerate(whole.node) if k not in set(kept) for name in names_read(node)}
        outside |= {value.name for value in whole.output}
        wanted = [n for node in nodes for n in node.output if n and (n in outside or n not in inside)]
        declared = {value.name: value for value in [*whole.input, *whole.output]}
        model = self.onnx.ModelProto()
        model.CopyFrom(self._without_graph(case.model))
        model.graph.name = whole.name
        model.graph.node.extend(nodes)
        model.graph.initializer.extend(weights)
        given = {value.name for value in whole.input}
        for name in missing:
            model.graph.input.append(declared[name] if name in given else self.info(name, observed[name]))
        for name in wanted:
            info = self.info(name, observed[name]) if name in observed else declared.get(name)
            if info is None:
                return None
            model.graph.output.append(info)
        return Case(model, {name: observed[name] for name in missing})

    def _without_graph(self, model: Any) -> Any:
        shell = self.onnx.ModelProto()
        shell.ir_version, shell.producer_name = model.ir_version, model.producer_name
        shell.opset_import.extend(model.opset_import)
        shell.functions.extend(model.functions)
        return shell

    @staticmethod
    def _in_order(case: Case, names: Iterable[str]) -> list[str]:
        """The model's inputs first, as it has them, then values in the order of nodes."""
        known = [value.name for value in case.model.graph.input]
        known += [name for node in case.model.graph.node for name in node.output]
        wanted = set(names)
        return [name for name in dict.fromkeys(known) if name in wanted]

    def with_outputs(self, case: Case, names: Sequence[str], observed: dict[str, np.ndarray]) -> Case | None:
        """With these outputs, and only the nodes that they need."""
        graph = case.model.graph
        needed_names, kept = set(names), []
        for k in range(len(graph.node) - 1, -1, -1):
            if needed_names & set(graph.node[k].output):
                kept.append(k)
                needed_names |= names_read(graph.node[k])
        part = self.part(case, kept, observed)
        if part is None or any(name not in observed for name in names):
            return None
        del part.model.graph.output[:]
        part.model.graph.output.extend(self.info(name, observed[name]) for name in names)
        return part
