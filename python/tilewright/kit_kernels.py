"""The kit's cases of kernels: checked at sizes that do not divide, and measured at sizes that fill a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import numpy as np

from . import _core, te
from .differences import TOLERANCES
from .executable import compile
from .kit_case import Case, Work, shares
from .model import load
from .onnx_models import needed

Shape = tuple[int, ...]
Nodes = list[tuple[Any, ...]]  # (operator, inputs, outputs, attributes)
NAMES = {"f32": "FLOAT", "f16": "FLOAT16", "bf16": "BFLOAT16", "i32": "INT32", "i64": "INT64", "u8": "UINT8"}


@dataclass(frozen=True)
class Kernel:
    """A model of some nodes (operator, inputs, outputs, attributes) with inputs of one type, and constants."""

    name: str
    nodes: Nodes
    inputs: Mapping[str, Shape]
    constants: Mapping[str, np.ndarray] = field(default_factory=dict)
    dtype: str = "f32"
    result: str = ""  # the type of the output y, where it is another
    precision: str = "f32"
    tolerance: float = 0.0  # a share of the largest result, where that of the types is less
    operations: float = 0.0  # arithmetic of a run, where the plan does not know better
    bytes: float = 0.0

    def model(self) -> Any:
        (onnx,) = needed("onnx")
        helper = onnx.helper
        kind = getattr(onnx.TensorProto, NAMES[self.dtype])
        result = getattr(onnx.TensorProto, NAMES[self.result or self.dtype])
        nodes = [helper.make_node(op, take, give, **(rest[0] if rest else {})) for op, take, give, *rest in self.nodes]
        inputs = [helper.make_tensor_value_info(name, kind, shape) for name, shape in self.inputs.items()]
        outputs = [helper.make_tensor_value_info("y", result, None)]
        constants = [onnx.numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        graph = helper.make_graph(nodes, "kernel", inputs, outputs, constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)

    def checked(self, target: str) -> Case:
        """Compared with the oracle."""
        model = load(self.model())
        executable = compile(model, target, precision=self.precision)
        rng, kind = np.random.default_rng(len(self.name)), _core.numpy_dtype(self.dtype)
        inputs = [np.asarray(3 * rng.standard_normal(shape)).astype(kind) for shape in self.inputs.values()]
        expected = model._core.evaluate(inputs)
        # Sums in another order, and sums that cancel.
        of_type = TOLERANCES[self.dtype if self.dtype in TOLERANCES else "f32"]
        near = shares(max(of_type, TOLERANCES[self.precision], self.tolerance), expected)
        return Case(self.name, "kernel", executable, inputs, expected, near)

    def measured(self, target: str) -> Case:
        executable = compile(load(self.model()), target, precision=self.precision)
        facts = {name: value for name in ("operations", "bytes") if (value := getattr(self, name))}
        return Case(self.name, "time", executable, is_timed=True, made_up=True, facts=facts)


def checks() -> Iterator[Kernel]:
    nodes: Nodes
    attributes: dict[str, Any]
    products = (
        (1, 1, 1),
        (17, 33, 20),
        (70, 130, 37),
        (128, 128, 128),
        (257, 129, 65),
        (1, 1000, 300),
        (300, 520, 256),
    )
    for m, n, k in products:
        name = f"kernel-product-{m}x{k}x{n}"
        for dtype in ("f32", "f16", "bf16"):
            yield Kernel(f"{name}-{dtype}", [("MatMul", ["a", "b"], ["y"])], {"a": (m, k), "b": (k, n)}, dtype=dtype)
        for precision in ("tf32", "f16", "bf16"):
            weight = random((k, n))
            nodes = [("MatMul", ["a", "b"], ["y"])]
            yield Kernel(f"{name}-in-{precision}", nodes, {"a": (m, k)}, {"b": weight}, precision=precision)
        for kind in ("f8e4m3fn", "f8e5m2"):
            nodes = [*in_float8("a", kind), *in_float8("b", "f8e4m3fn"), ("MatMul", ["a_c", "b_c"], ["y"])]
            yield Kernel(f"{name}-of-{kind}", nodes, {"a": (m, k)}, {"b": random((k, n))}, tolerance=OF_FLOAT8)
    yield Kernel("kernel-products-5x40x33x21", [("MatMul", ["a", "b"], ["y"])], {"a": (5, 40, 33), "b": (5, 33, 21)})
    for name, x, w, attributes in (
        ("3x3", (2, 20, 13, 15), (37, 20, 3, 3), {"pads": [1] * 4}),
        ("3x3-strides", (1, 16, 28, 30), (33, 16, 3, 3), {"pads": [1] * 4, "strides": [2, 2]}),
        ("5x5-dilated", (1, 3, 31, 29), (17, 3, 5, 5), {"dilations": [2, 2]}),
        ("1x1", (1, 65, 14, 14), (130, 65, 1, 1), {}),
        ("3x3-large", (1, 64, 24, 24), (128, 64, 3, 3), {"pads": [1] * 4}),
        ("depthwise", (1, 40, 17, 19), (40, 1, 3, 3), {"pads": [1] * 4, "group": 40}),
        ("groups", (1, 24, 12, 12), (48, 6, 3, 3), {"group": 4}),
    ):
        for precision in ("f32", "tf32", "f16", "bf16"):
            nodes = [("Conv", ["x", "w"], ["c"], attributes), ("Relu", ["c"], ["y"])]
            yield Kernel(
                f"kernel-convolution-{name}-{precision}", nodes, {"x": x}, {"w": random(w)}, precision=precision
            )
        nodes = [*in_float8("x", "f8e4m3fn"), *in_float8("w", "f8e4m3fn")]
        nodes += [("Conv", ["x_c", "w_c"], ["c"], attributes), ("Relu", ["c"], ["y"])]
        yield Kernel(f"kernel-convolution-{name}-f8e4m3fn", nodes, {"x": x}, {"w": random(w)}, tolerance=OF_FLOAT8)
    for length in (1, 2, 31, 32, 33, 127, 129, 1000, 1025, 5000):
        for name, nodes in row_kernels(length).items():
            yield Kernel(f"kernel-{name}-7x{length}", nodes, {"x": (7, length)}, row_constants(name, length))
    for axis in (0, 1, 2):
        for op in ("ReduceSum", "ReduceMax", "ReduceL2", "ReduceLogSumExp", "ReduceProd"):
            nodes = [(op, ["x", "axes"], ["y"])]
            yield Kernel(f"kernel-{op}-{axis}-9x70x45", nodes, {"x": (9, 70, 45)}, {"axes": np.array([axis])})
        yield Kernel(
            f"kernel-ArgMax-{axis}-9x70x45",
            [("ArgMax", ["x"], ["y"], {"axis": axis})],
            {"x": (9, 70, 45)},
            result="i64",
        )
        yield Kernel(
            f"kernel-CumSum-{axis}-9x70x45",
            [("CumSum", ["x", "axis"], ["y"])],
            {"x": (9, 70, 45)},
            {"axis": np.array(axis)},
        )
    for order in ((1, 0, 2), (0, 2, 1), (2, 1, 0), (2, 0, 1)):
        nodes = [("Transpose", ["x"], ["y"], {"perm": order})]
        for dtype in ("f32", "f16", "u8"):
            name = "".join(map(str, order))
            yield Kernel(f"kernel-transpose-{name}-9x70x45-{dtype}", nodes, {"x": (9, 70, 45)}, dtype=dtype)
    yield Kernel("kernel-ReduceL1-100000", [("ReduceL1", ["x"], ["y"])], {"x": (100_000,)})
    yield Kernel("kernel-attention-3x50x40", attention(), {"q": (3, 50, 40), "k": (3, 40, 70), "v": (3, 70, 40)})
    yield Kernel(
        "kernel-pool-5x33x35",
        [("MaxPool", ["x"], ["y"], {"kernel_shape": [3, 3], "strides": [2, 2]})],
        {"x": (1, 5, 33, 35)},
    )


# Tensor cores of sm_90 keep some 14 bits of a sum of these (DeepSeek-V3 Technical Report, section 3.3.2).
OF_FLOAT8 = 4e-3


def in_float8(name: str, kind: str) -> Nodes:
    codes = {"f8e4m3fn": 17, "f8e5m2": 19}[kind]
    return [("Cast", [name], [f"{name}_q"], {"to": codes}), ("Cast", [f"{name}_q"], [f"{name}_c"], {"to": 1})]


def row_kernels(length: int) -> dict[str, Nodes]:
    return {
        "softmax": [("Softmax", ["x"], ["y"])],
        "layer_norm": [("LayerNormalization", ["x", "scale", "bias"], ["y"])],
        "log_softmax": [("LogSoftmax", ["x"], ["y"])],
        "mean": [("ReduceMean", ["x", "axes"], ["y"])],
    }


def row_constants(name: str, length: int) -> dict[str, np.ndarray]:
    if name == "layer_norm":
        return {"scale": random((length,)), "bias": random((length,))}
    return {"axes": np.array([-1])} if name == "mean" else {}


def attention() -> Nodes:
    return [("MatMul", ["q", "k"], ["s"]), ("Softmax", ["s"], ["p"]), ("MatMul", ["p", "v"], ["y"])]


def random(shape: Shape) -> np.ndarray:
    return np.random.default_rng(prod(shape)).standard_normal(shape, np.float32) / np.float32(np.sqrt(prod(shape[1:])))


LARGE = (4096, 8192)  # 128 MiB of f32, more than any cache


def measurements() -> Iterator[Kernel]:
    nodes: Nodes
    inputs: Mapping[str, Shape]
    attributes: dict[str, Any]
    for dtype, width in (("f32", 4), ("f16", 2), ("bf16", 2)):
        once = width * prod(LARGE)
        one, two = {"x": LARGE}, {"x": LARGE, "z": LARGE}
        yield Kernel(f"time-add-{dtype}", [("Add", ["x", "z"], ["y"])], two, dtype=dtype, bytes=3 * once)
        yield Kernel(f"time-relu-{dtype}", [("Relu", ["x"], ["y"])], one, dtype=dtype, bytes=2 * once)
        yield Kernel(f"time-gelu-{dtype}", [("Gelu", ["x"], ["y"])], one, dtype=dtype, bytes=2 * once)
        yield Kernel(f"time-transpose-{dtype}", [("Transpose", ["x"], ["y"])], one, dtype=dtype, bytes=2 * once)
        nodes = [("Transpose", ["x"], ["y"], {"perm": [0, 2, 1]})]
        yield Kernel(f"time-transpose-64x1024-{dtype}", nodes, {"x": (512, 64, 1024)}, dtype=dtype, bytes=2 * once)
    for length in (128, 1024, 8192):
        rows = prod(LARGE) // length
        for name, nodes in row_kernels(length).items():
            moved = 4 * prod(LARGE) * (1 if name == "mean" else 2)
            shape = {"x": (rows, length)}
            yield Kernel(f"time-{name}-{rows}x{length}", nodes, shape, row_constants(name, length), bytes=moved)
    for axis, name in ((0, "columns"), (1, "rows")):
        nodes = [("ReduceSum", ["x", "axes"], ["y"])]
        yield Kernel(f"time-sum-of-{name}", nodes, {"x": LARGE}, {"axes": np.array([axis])}, bytes=4 * prod(LARGE))
    for m, n, k in (
        (1024, 1024, 1024),
        (4096, 4096, 4096),
        (8192, 8192, 8192),
        (128, 4096, 4096),
        (16, 4096, 4096),
        (1, 4096, 4096),
        (1000, 1000, 1000),
    ):
        for dtype in ("f32", "f16", "bf16"):
            nodes = [("MatMul", ["a", "b"], ["y"])]
            inputs = {"a": (m, k), "b": (k, n)}
            yield Kernel(f"time-product-{m}x{k}x{n}-{dtype}", nodes, inputs, dtype=dtype, operations=2.0 * m * n * k)
        if min(m, n) >= 1000:
            nodes = [*in_float8("a", "f8e4m3fn"), *in_float8("b", "f8e4m3fn"), ("MatMul", ["a_c", "b_c"], ["y"])]
            constants = {"b": random((k, n))}
            yield Kernel(
                f"time-product-{m}x{k}x{n}-f8e4m3fn", nodes, {"a": (m, k)}, constants, operations=2.0 * m * n * k
            )
    inputs = {"a": (96, 1024, 64), "b": (96, 64, 1024)}
    yield Kernel("time-products-96x1024x64x1024", [("MatMul", ["a", "b"], ["y"])], inputs)
    inputs = {"q": (96, 1024, 64), "k": (96, 64, 1024), "v": (96, 1024, 64)}
    for dtype, suffix in (("f32", ""), ("f16", "-f16"), ("bf16", "-bf16")):
        name = "time-attention-96x1024x64" + suffix
        yield Kernel(name, attention(), inputs, dtype=dtype, operations=4.0 * 96 * 1024 * 1024 * 64)
    for name, x, w, attributes in (
        ("7x7-strides", (16, 3, 224, 224), (64, 3, 7, 7), {"pads": [3] * 4, "strides": [2, 2]}),
        ("1x1", (16, 64, 56, 56), (256, 64, 1, 1), {}),
        ("3x3-64", (16, 64, 56, 56), (64, 64, 3, 3), {"pads": [1] * 4}),
        ("3x3-256", (16, 256, 14, 14), (256, 256, 3, 3), {"pads": [1] * 4}),
        ("3x3-256-one", (1, 256, 14, 14), (256, 256, 3, 3), {"pads": [1] * 4}),
        ("depthwise", (16, 256, 56, 56), (256, 1, 3, 3), {"pads": [1] * 4, "group": 256}),
    ):
        nodes = [("Conv", ["x", "w"], ["y"], attributes)]
        for precision in ("f32", "bf16"):
            yield Kernel(f"time-convolution-{name}-{precision}", nodes, {"x": x}, {"w": random(w)}, precision=precision)


def arithmetic(target: str, dtype: str, chain: int = 256) -> Case:
    """Multiply-adds that depend on each other, on few bytes: the rate of arithmetic that a kernel of ours can have."""
    count = 1 << 22
    x = te.placeholder("x", (count,), dtype)

    def value(i: te.Expr) -> te.Expr:
        result = x[i]
        for _ in range(chain):
            result = te.call("fma", result, x[i], x[i])
        return result

    func = te.func("arithmetic", [x], [te.compute("y", (count,), value)])
    facts = {"operations": 2.0 * chain * count}
    return Case(f"time-arithmetic-{dtype}", "time", te.build(func, target), is_timed=True, made_up=True, facts=facts)


def works(target: str) -> list[Work]:
    """What makes the cases."""
    fit = _core.kernel_fit(target, 1, 1, 0)
    has_tensor_cores = fit is not None and fit["tensor_flops"] > 0
    kernels = [each for each in checks() if each.precision != "tf32" or has_tensor_cores]
    result: list[Work] = [(each.name, partial(each.checked, target)) for each in kernels]
    result += [(f"time-arithmetic-{dtype}", partial(arithmetic, target, dtype)) for dtype in ("f32", "f64")]
    return result + [(each.name, partial(each.measured, target)) for each in measurements()]
