"""Small networks of known families, node by node as PyTorch's exporter writes them: a few layers, odd lengths."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from conftest import model_of, value


class Network:
    """Collects nodes; each method takes and gives names of values."""

    def __init__(self, seed: int):
        self.nodes, self.constants, self.inputs, self.outputs = [], {}, [], []
        self.rng = np.random.default_rng(seed)

    def op(self, kind: str, *inputs: str, **attributes) -> str:
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append((kind, list(inputs), [name], attributes))
        return name

    def split(self, x: str, count: int, axis: int, sizes: list[int]) -> list[str]:
        names = [f"split_{len(self.nodes)}_{i}" for i in range(count)]
        self.nodes.append(("Split", [x, self.ints(sizes)], names, {"axis": axis}))
        return names

    def constant(self, array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def number(self, x: float) -> str:
        return self.constant(np.float32(x))

    def ints(self, *values) -> str:
        return self.constant(np.array(values[0] if isinstance(values[0], list) else values, np.int64))

    def weight(self, *shape: int) -> str:
        return self.constant((self.rng.standard_normal(shape) / np.sqrt(shape[-2])).astype(np.float32))

    def vector(self, *shape: int, around: float = 0.0) -> str:
        return self.constant((around + 0.1 * self.rng.standard_normal(shape)).astype(np.float32))

    def input(self, name: str, shape: list[int], dtype=TensorProto.FLOAT) -> str:
        self.inputs.append(value(name, shape, dtype))
        return name

    def output(self, name: str, shape: list[int]) -> None:
        self.outputs.append(value(name, shape))

    def model(self, opset: int = 17):
        return model_of(self.nodes, self.inputs, self.outputs, self.constants, opset, check=True)

    # Composites, as they are left by the exporter.

    def reshape(self, x: str, *shape: int) -> str:
        return self.op("Reshape", x, self.ints(*shape))

    def transpose(self, x: str, *perm: int) -> str:
        return self.op("Transpose", x, perm=list(perm))

    def slice(self, x: str, axis: int, begin: int, end: int) -> str:
        return self.op("Slice", x, self.ints(begin), self.ints(end), self.ints(axis))

    def linear(self, x: str, inputs: int, outputs: int, bias: bool = True) -> str:
        y = self.op("MatMul", x, self.weight(inputs, outputs))
        return self.op("Add", self.vector(outputs), y) if bias else y

    def layer_norm(self, x: str, size: int, epsilon: float = 1e-5, axes: tuple = (-1,), shape: tuple = ()) -> str:
        mean = self.op("ReduceMean", x, axes=list(axes))
        centred = self.op("Sub", x, mean)
        variance = self.op("ReduceMean", self.op("Pow", centred, self.number(2)), axes=list(axes))
        root = self.op("Sqrt", self.op("Add", variance, self.number(epsilon)))
        scaled = self.op("Mul", self.op("Div", centred, root), self.vector(*(shape or (size,)), around=1))
        return self.op("Add", scaled, self.vector(*(shape or (size,))))

    def rms_norm(self, x: str, size: int) -> str:
        mean = self.op("ReduceMean", self.op("Pow", x, self.number(2)), axes=[-1])
        root = self.op("Sqrt", self.op("Add", mean, self.number(1e-6)))
        return self.op("Mul", self.vector(size, around=1), self.op("Mul", x, self.op("Div", self.number(1), root)))

    def gelu(self, x: str) -> str:
        gate = self.op("Add", self.op("Erf", self.op("Div", x, self.number(np.sqrt(2)))), self.number(1))
        return self.op("Mul", self.op("Mul", x, gate), self.number(0.5))

    def gelu_tanh(self, x: str) -> str:
        cube = self.op("Mul", self.op("Pow", x, self.number(3)), self.number(0.044715))
        inner = self.op("Mul", self.op("Add", x, cube), self.number(np.sqrt(2 / np.pi)))
        gate = self.op("Add", self.op("Tanh", inner), self.number(1))
        return self.op("Mul", self.op("Mul", x, self.number(0.5)), gate)

    def silu(self, x: str) -> str:
        return self.op("Mul", x, self.op("Sigmoid", x))

    def heads(self, x: str, batch: int, rows: int, heads: int, size: int) -> str:
        return self.transpose(self.reshape(x, batch, rows, heads, size), 0, 2, 1, 3)

    def joined(self, x: str, batch: int, rows: int, width: int) -> str:
        return self.reshape(self.transpose(x, 0, 2, 1, 3), batch, rows, width)

    def repeated(self, x: str, batch: int, heads: int, times: int, rows: int, size: int) -> str:
        wide = self.op("Expand", self.op("Unsqueeze", x, self.ints(2)), self.ints(batch, heads, times, rows, size))
        return self.reshape(wide, batch, heads * times, rows, size)

    def attention(self, q: str, k: str, v: str, size: int, mask=None) -> str:
        """`mask`: what makes other scores of the scaled ones."""
        scores = self.op("MatMul", q, self.transpose(k, 0, 1, 3, 2))
        scores = self.op("Mul", scores, self.number(size**-0.5))
        return self.op("MatMul", self.op("Softmax", mask(scores) if mask else scores, axis=-1), v)

    def rotated(self, x: str, cosine: str, sine: str, size: int) -> str:
        a, b = self.slice(x, 3, 0, size // 2), self.slice(x, 3, size // 2, size)
        turned = self.op("Concat", self.op("Neg", b), a, axis=-1)
        return self.op("Add", self.op("Mul", x, cosine), self.op("Mul", turned, sine))


def gpt2(rows: int = 13, heads: int = 3, size: int = 8, layers: int = 2):
    """Learned positions, one projection for q, k and v that is split, a causal mask by Where, GELU's tanh form."""
    net, width = Network(1), heads * size
    x = net.input("x", [1, rows, width])
    x = net.op("Add", x, net.vector(1, rows, width))
    causal = net.constant(np.tril(np.ones((1, 1, rows, rows), bool)))
    lowest = net.number(np.finfo(np.float32).min)
    for _ in range(layers):
        qkv = net.linear(net.layer_norm(x, width), width, 3 * width)
        q, k, v = (net.heads(p, 1, rows, heads, size) for p in net.split(qkv, 3, 2, [width] * 3))
        y = net.attention(q, k, v, size, lambda s: net.op("Where", causal, s, lowest))
        x = net.op("Add", net.linear(net.joined(y, 1, rows, width), width, width), x)
        y = net.gelu_tanh(net.linear(net.layer_norm(x, width), width, 4 * width))
        x = net.op("Add", x, net.linear(y, 4 * width, width))
    net.nodes[-1][2][0] = "y"
    net.output("y", [1, rows, width])
    return net.model()


def vit(batch: int = 2, patches: int = 5, heads: int = 3, size: int = 16, layers: int = 2):
    """Patches by a convolution, a class token in front, q, k and v apart, GELU by erf."""
    net, width, rows = Network(2), heads * size, patches * patches + 1
    image = net.input("x", [batch, 3, 4 * patches, 4 * patches])
    x = net.op("Conv", image, net.vector(width, 3, 4, 4), net.vector(width), strides=[4, 4])
    x = net.transpose(net.reshape(x, batch, width, rows - 1), 0, 2, 1)
    x = net.op("Concat", net.op("Expand", net.vector(1, 1, width), net.ints(batch, 1, width)), x, axis=1)
    x = net.op("Add", x, net.vector(1, rows, width))
    for _ in range(layers):
        y = net.layer_norm(x, width, 1e-6)
        q, k, v = (net.heads(net.linear(y, width, width), batch, rows, heads, size) for _ in "qkv")
        y = net.joined(net.attention(q, k, v, size), batch, rows, width)
        x = net.op("Add", net.linear(y, width, width), x)
        y = net.gelu(net.linear(net.layer_norm(x, width, 1e-6), width, 4 * width))
        x = net.op("Add", net.linear(y, 4 * width, width), x)
    x = net.op("Gather", net.layer_norm(x, width), net.constant(np.int64(0)), axis=1)
    net.nodes.append(("Gemm", [x, net.weight(width, 10), net.vector(10)], ["y"], {}))
    net.output("y", [batch, 10])
    return net.model()


def swin(grid: int = 2, window: int = 5, heads: int = 2, size: int = 8):
    """Windows of a map, shifted in the second layer: a table of relative positions and a mask are added to scores."""
    net, width, side, rows = Network(3), heads * size, grid * window, window * window
    x = net.input("x", [1, side, side, width])
    windows, shift = grid * grid, window // 2
    for layer in range(2):
        y = net.layer_norm(x, width)
        if layer:
            for axis in (1, 2):
                y = net.op("Concat", net.slice(y, axis, shift, side), net.slice(y, axis, 0, shift), axis=axis)
        y = net.transpose(net.reshape(y, 1, grid, window, grid, window, width), 0, 1, 3, 2, 4, 5)
        y = net.reshape(y, windows, rows, width)
        qkv = net.reshape(net.linear(y, width, 3 * width), windows, rows, 3, heads, size)
        qkv = net.transpose(qkv, 2, 0, 3, 1, 4)
        q, k, v = (net.op("Gather", qkv, net.constant(np.int64(i)), axis=0) for i in range(3))
        scores = net.op("MatMul", net.op("Mul", q, net.number(size**-0.5)), net.transpose(k, 0, 1, 3, 2))
        scores = net.op("Add", scores, net.vector(1, heads, rows, rows))
        if layer:
            hidden = net.constant(
                np.where(net.rng.random((1, windows, 1, rows, rows)) < 0.3, -100, 0).astype(np.float32)
            )
            scores = net.op("Add", net.reshape(scores, 1, windows, heads, rows, rows), hidden)
            scores = net.reshape(scores, windows, heads, rows, rows)
        y = net.op("MatMul", net.op("Softmax", scores, axis=-1), v)
        y = net.linear(net.joined(y, windows, rows, width), width, width)
        y = net.transpose(net.reshape(y, 1, grid, grid, window, window, width), 0, 1, 3, 2, 4, 5)
        y = net.reshape(y, 1, side, side, width)
        if layer:
            for axis in (1, 2):
                y = net.op(
                    "Concat", net.slice(y, axis, side - shift, side), net.slice(y, axis, 0, side - shift), axis=axis
                )
        x = net.op("Add", x, y)
        y = net.gelu(net.linear(net.layer_norm(x, width), width, 4 * width))
        x = net.op("Add", x, net.linear(y, 4 * width, width))
    net.nodes[-1][2][0] = "y"
    net.output("y", [1, side, side, width])
    return net.model()


def convnext(side: int = 15, width: int = 24, layers: int = 2):
    """Depthwise convolutions, norms over channels on either side of a transpose, a scale on each branch."""
    net = Network(4)
    image = net.input("x", [1, 3, 2 * side, 2 * side])
    x = net.op("Conv", image, net.vector(width, 3, 2, 2), net.vector(width), strides=[2, 2])
    x = net.layer_norm(x, width, 1e-6, axes=(1,), shape=(width, 1, 1))
    for _ in range(layers):
        y = net.op("Conv", x, net.vector(width, 1, 7, 7), net.vector(width), pads=[3] * 4, group=width)
        y = net.layer_norm(net.transpose(y, 0, 2, 3, 1), width, 1e-6)
        y = net.linear(net.gelu(net.linear(y, width, 4 * width)), 4 * width, width)
        y = net.transpose(net.op("Mul", net.vector(width), y), 0, 3, 1, 2)
        x = net.op("Add", x, y)
    net.nodes.append(("ReduceMean", [x], ["y"], {"axes": [2, 3], "keepdims": 0}))
    net.output("y", [1, width])
    return net.model()


def llama(rows: int = 11, past: int = 0, heads: int = 6, shared: int = 2, size: int = 8, layers: int = 2):
    """Rotary positions, shared heads of k and v, a cache in front of them, RMS norms, gated SiLU."""
    net, width, keys = Network(5), heads * size, past + rows
    x = net.input("x", [1, rows, width])
    cosine, sine = (net.input(name, [1, 1, rows, size]) for name in ("cos", "sin"))
    causal = np.triu(np.full((rows, keys), -np.inf, np.float32), past + 1)
    mask = net.constant(causal[None, None])
    for layer in range(layers):
        y = net.rms_norm(x, width)
        q = net.heads(net.linear(y, width, width, False), 1, rows, heads, size)
        k, v = (net.heads(net.linear(y, width, shared * size, False), 1, rows, shared, size) for _ in "kv")
        q, k = (net.rotated(p, cosine, sine, size) for p in (q, k))
        if past:
            k = net.op("Concat", net.input(f"k{layer}", [1, shared, past, size]), k, axis=2)
            v = net.op("Concat", net.input(f"v{layer}", [1, shared, past, size]), v, axis=2)
            for present in (k, v):
                net.output(present, [1, shared, keys, size])
        k, v = (net.repeated(p, 1, shared, heads // shared, keys, size) for p in (k, v))
        y = net.attention(q, k, v, size, (lambda s: net.op("Add", s, mask)) if rows > 1 else None)
        x = net.op("Add", x, net.linear(net.joined(y, 1, rows, width), width, width, False))
        y = net.rms_norm(x, width)
        gated = net.op("Mul", net.silu(net.linear(y, width, 3 * width, False)), net.linear(y, width, 3 * width, False))
        x = net.op("Add", x, net.linear(gated, 3 * width, width, False))
    net.nodes[-1][2][0] = "y"
    net.output("y", [1, rows, width])
    return net.model()
