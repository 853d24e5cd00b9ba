"""Networks whose weights and values are floats of 8 bits, between QuantizeLinear and DequantizeLinear (QDQ) or cast."""

import ml_dtypes
import numpy as np
import onnx

from conftest import model_of, value

F32, E4M3, E5M2 = np.float32, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
KINDS = {E4M3: onnx.TensorProto.FLOAT8E4M3FN, E5M2: onnx.TensorProto.FLOAT8E5M2}


class Network:
    """Nodes and weights as exporters write them: a scale a tensor for values, one an output channel for weights."""

    def __init__(self, values=E4M3, weights=E4M3, seed=0):
        self.rng, self.nodes, self.constants = np.random.default_rng(seed), [], {}
        self.of_values, self.of_weights = values, weights

    def constant(self, name, array):
        self.constants[name] = array
        return name

    def add(self, op, inputs, name, **attributes):
        self.nodes.append((op, inputs, [name], attributes))
        return name

    def quantised(self, x, scale):
        if f"{x}_s" in self.constants:
            return f"{x}_d"
        given = [self.constant(f"{x}_s", np.array(scale, F32)), self.constant(f"{x}_z", np.zeros((), self.of_values))]
        return self.add("DequantizeLinear", [self.add("QuantizeLinear", [x, *given], f"{x}_q"), *given], f"{x}_d")

    def weight(self, name, shape, axis):
        wide = self.rng.standard_normal(shape).astype(F32) / F32(np.sqrt(np.prod(shape) / shape[axis]))
        others = tuple(d for d in range(len(shape)) if d != axis)
        scale = np.abs(wide).max(axis=others) / F32(ml_dtypes.finfo(self.of_weights).max / 2)
        beside = [shape[axis] if d == axis else 1 for d in range(len(shape))]
        codes = self.constant(f"{name}_c", (wide / scale.reshape(beside)).astype(self.of_weights))
        given = [self.constant(f"{name}_s", scale), self.constant(f"{name}_z", np.zeros(shape[axis], self.of_weights))]
        return self.add("DequantizeLinear", [codes, *given], name, axis=axis)

    def linear(self, x, name, inputs, outputs, scale=0.02, activation="Relu"):
        made = self.add(
            "MatMul", [self.quantised(x, scale), self.weight(f"{name}_w", (inputs, outputs), 1)], f"{name}_m"
        )
        bias = self.constant(f"{name}_b", self.rng.standard_normal(outputs).astype(F32) / 8)
        made = self.add("Add", [made, bias], f"{name}_a")
        return self.add(activation, [made], name) if activation else made

    def conv(self, x, name, inputs, filters, window, scale=0.02, stride=1):
        weight = self.weight(f"{name}_w", (filters, inputs, window, window), 0)
        bias = self.constant(f"{name}_b", self.rng.standard_normal(filters).astype(F32) / 8)
        pads = {"pads": [window // 2] * 4, "strides": [stride] * 2}
        return self.add("Relu", [self.add("Conv", [self.quantised(x, scale), weight, bias], f"{name}_c", **pads)], name)

    def model(self, y, x_shape, y_shape):
        self.nodes.append(("Identity", [y], ["y"]))
        model = model_of(self.nodes, [value("x", x_shape)], [value("y", y_shape)], self.constants, 21)
        model.ir_version = 10
        return model


def perceptron(rows=64, sizes=(96, 128, 64, 32), **kinds):
    n = Network(**kinds)
    x = "x"
    for k, (inputs, outputs) in enumerate(zip(sizes, sizes[1:], strict=False)):
        x = n.linear(x, f"l{k}", inputs, outputs, activation="Relu" if k + 2 < len(sizes) else None)
    return n.model(x, [rows, sizes[0]], [rows, sizes[-1]])


def residual(batch=2, size=14, channels=32, **kinds):
    n = Network(**kinds)
    x = n.conv("x", "stem", 3, channels, 3, stride=2)
    y = n.conv(n.conv(x, "one", channels, 2 * channels, 3), "two", 2 * channels, channels, 1)
    x = n.add("Relu", [n.add("Add", [n.quantised(y, 0.02), n.quantised(x, 0.03)], "sum")], "both")
    x = n.add("Flatten", [n.add("GlobalAveragePool", [n.conv(x, "last", channels, 64, 3)], "mean")], "flat")
    return n.model(n.linear(x, "out", 64, 40, activation=None), [batch, 3, size, size], [batch, 40])


def casts(rows=50, terms=96, columns=40, wide=onnx.TensorProto.FLOAT, a=E4M3, b=E5M2):
    """A product of casts."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((terms, columns)).astype(b)
    nodes = [("Cast", ["x"], ["b"], {"to": KINDS[a]}), ("Cast", ["b"], ["c"], {"to": wide})]
    nodes += [("Cast", ["w"], ["d"], {"to": wide}), ("MatMul", ["c", "d"], ["y"])]
    model = model_of(nodes, [value("x", [rows, terms])], [value("y", [rows, columns], wide)], {"w": weight}, 21)
    model.ir_version = 10
    return model, {"x": rng.standard_normal((rows, terms)).astype(F32)}
