"""What the packages onnx and onnxruntime are needed for, which the compiler itself does without."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from .error import Error

MOST_BYTES = (1 << 31) - (1 << 20)  # of one protobuf message, with room for all that is no weight


def needed(*packages: str) -> list[Any]:
    """The modules; Error(TW1003) that names the package that is missing."""
    modules = []
    for package in packages:
        try:
            modules.append(importlib.import_module(package))
        except ImportError:
            raise Error(
                "TW1003", f"the package {package} is not installed\nhelp: pip install 'tilewright[onnxruntime]'"
            ) from None
    return modules


def read_model(source: Any) -> Any:
    """An onnx.ModelProto of a path, with its weights, or of bytes; Error(TW1001, TW1002)."""
    (onnx,) = needed("onnx")
    try:
        is_data = isinstance(source, (bytes, bytearray, memoryview))
        return onnx.load_from_string(bytes(source)) if is_data else onnx.load(source)
    except OSError as error:
        raise Error("TW1001", f"{source} cannot be read: {error.strerror}") from None
    except Exception as error:  # protobuf's own
        raise Error("TW1002", f"the model cannot be read: {error}") from None


def names_read(node: Any) -> set[str]:
    """By the node itself, or by graphs within it of what is around them."""
    names = {name for name in node.input if name}
    for attribute in node.attribute:
        for graph in [attribute.g, *attribute.graphs]:
            inner = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
            read = {value.name for value in graph.output}
            for part in graph.node:
                read |= names_read(part)
                inner.update(part.output)
            names |= read - inner
    return names - {""}


def with_constants(model: Any, constants: dict[str, np.ndarray]) -> Any:
    """The model with inputs that are initializers now, as `load` reads it."""
    (onnx,) = needed("onnx")
    for value in [each for each in model.graph.input if each.name in constants]:
        kind = value.type.tensor_type
        array = constants[value.name].astype(onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type))
        sizes = [dim.dim_value for dim in kind.shape.dim]
        if array.size == 1 and all(dim.HasField("dim_value") for dim in kind.shape.dim):
            array = np.full(sizes, array.reshape(-1)[0])
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, value.name))
        model.graph.input.remove(value)
    return model
