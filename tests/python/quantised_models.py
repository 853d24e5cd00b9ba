"""Networks whose products are of quantised data, as exporters write them: QuantizeLinear, DequantizeLinear (QDQ)."""

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, numpy_helper
from onnxruntime import quantization

from conftest import model_of, value

F32 = np.float32
KINDS = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}


class Network:
    """Nodes and weights of a network in f32, as they are added."""

    def __init__(self, seed=0):
        self.rng, self.nodes, self.weights = np.random.default_rng(seed), [], {}

    def random(self, *shape):
        return self.rng.standard_normal(shape).astype(F32)

    def add(self, op, inputs, name, **attributes):
        self.nodes.append((op, inputs, [name], attributes))
        return name

    def conv(self, x, name, inputs, filters, window, stride=1, group=1, activation="Relu"):
        terms = inputs // group * window * window
        self.weights[f"{name}_w"] = self.random(filters, inputs // group, window, window) / F32(np.sqrt(terms))
        self.weights[f"{name}_b"] = self.random(filters) / 10
        given = [x, f"{name}_w", f"{name}_b"]
        self.add("Conv", given, name, strides=[stride] * 2, pads=[window // 2] * 4, group=group)
        return self.add(activation, [name], f"{name}_a") if activation else name

    def linear(self, x, name, inputs, outputs):
        self.weights[f"{name}_w"] = self.random(inputs, outputs) / F32(np.sqrt(inputs))
        self.weights[f"{name}_b"] = self.random(outputs) / 10
        return self.add("Add", [self.add("MatMul", [x, f"{name}_w"], f"{name}_m"), f"{name}_b"], name)

    def model(self, x, y, opset=20):
        return model_of(self.nodes, [value("x", x)], [value("y", y)], self.weights, opset)


def residual_network(batch=4, size=56, blocks=((64, 1), (64, 1), (128, 2), (128, 1)), stem=64):
    """A stem, blocks of two convolutions, with one beside them where the channels grow, and a product."""
    n = Network()
    x, channels = n.conv("x", "stem", 3, stem, 7, 2), stem
    x = n.add("MaxPool", [x], "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    for k, (width, stride) in enumerate(blocks):
        y = n.conv(n.conv(x, f"a{k}", channels, width, 3, stride), f"b{k}", width, width, 3, activation=None)
        if channels != width:
            x = n.conv(x, f"d{k}", channels, width, 1, stride, activation=None)
        x, channels = n.add("Relu", [n.add("Add", [y, x], f"e{k}")], f"f{k}"), width
    x = n.add("Flatten", [n.add("GlobalAveragePool", [x], "mean")], "flat")
    n.weights |= {"fc": n.random(channels, 40) / 8, "fb": n.random(40)}
    n.add("Gemm", [x, "fc", "fb"], "y")
    return n.model([batch, 3, size, size], [batch, 40])


def mobile_network(batch=4, size=32):
    """Inverted residuals, and branches that are put together."""
    n = Network()
    x, channels = n.conv("x", "stem", 3, 32, 3, 2), 32
    for k, (width, stride) in enumerate(((32, 1), (48, 2))):
        y = n.conv(n.conv(x, f"e{k}", channels, 64, 1), f"d{k}", 64, 64, 3, stride, group=64)
        y = n.conv(y, f"p{k}", 64, width, 1, activation=None)
        x, channels = n.add("Add", [x, y], f"a{k}") if (width, stride) == (channels, 1) else y, width
    parts = [n.conv(x, "l", channels, 32, 1), n.conv(x, "r", channels, 16, 3)]
    x = n.conv(n.add("Concat", parts, "both", axis=1), "z", 48, 64, 1)
    x = n.add("Flatten", [n.add("GlobalAveragePool", [x], "mean")], "flat")
    n.weights |= {"fc": n.random(40, 64) / 8, "fb": n.random(40)}
    n.add("Gemm", [x, "fc", "fb"], "y", transB=1)
    return n.model([batch, 3, size, size], [batch, 40])


def encoder(batch=2, length=16, width=64, heads=4):
    """A layer of a transformer."""
    n = Network()
    n.weights |= {"split": np.array([0, 0, heads, -1]), "join": np.array([0, 0, -1])}
    n.weights |= {"scale": np.array((width / heads) ** -0.5, F32), "ones": np.ones(width, F32)}
    order = {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}
    q, k, v = (
        n.add(
            "Transpose", [n.add("Reshape", [n.linear("x", c, width, width), "split"], c + "r")], c + "t", perm=order[c]
        )
        for c in "qkv"
    )
    scores = n.add("Mul", [n.add("MatMul", [q, k], "s"), "scale"], "t")
    mixed = n.add("MatMul", [n.add("Softmax", [scores], "p", axis=-1), v], "o")
    joined = n.add("Reshape", [n.add("Transpose", [mixed], "ot", perm=[0, 2, 1, 3]), "join"], "oj")
    x = n.add("Add", ["x", n.linear(joined, "out", width, width)], "r")
    x = n.add("LayerNormalization", [x, "ones"], "n", axis=-1)
    y = n.linear(n.add("Gelu", [n.linear(x, "up", width, 2 * width)], "g"), "down", 2 * width, width)
    n.add("LayerNormalization", [n.add("Add", [x, y], "u"), "ones"], "y", axis=-1)
    return n.model([batch, length, width], [batch, length, width])


def shape_of(model):
    return [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]


class Samples(quantization.CalibrationDataReader):
    def __init__(self, shape):
        rng = np.random.default_rng(1)
        self.left = [{"x": rng.standard_normal(shape).astype(F32)} for _ in range(4)]

    def get_next(self):
        return self.left.pop() if self.left else None


def quantised(model, **options):
    """By ONNX Runtime's quantiser; of unsigned data and weights of a scale a channel unless the options say others."""
    common = {"quant_format": quantization.QuantFormat.QDQ, "per_channel": True}
    common |= {"activation_type": quantization.QuantType.QUInt8, "weight_type": quantization.QuantType.QInt8}
    with tempfile.TemporaryDirectory() as folder:
        plain, result = Path(folder) / "plain.onnx", Path(folder) / "q.onnx"
        onnx.save(model, plain)
        quantization.quantize_static(plain, result, Samples(shape_of(model)), **(common | options))
        return onnx.load(result)


def unoptimised(model, x):
    """By ONNX Runtime, node by node."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})[0]


def step_of(model):
    """Of the result's codes."""
    (last,) = (node for node in model.graph.node if node.output[0] == model.graph.output[0].name)
    (scale,) = (t for t in model.graph.initializer if t.name == last.input[1])
    return float(numpy_helper.to_array(scale))


def activation(op, data=np.uint8, zero=0, shape=(3, 70), seed=0):
    """Codes of x · op(x), with op(x) rounded between; "Gelu" and "HardSwish" alone."""
    rng = np.random.default_rng(seed)
    z = np.array(zero, data)
    tensors = {"s": F32(0.05), "z": z, "sa": F32(0.004), "za": np.array(np.iinfo(data).min, data), "sy": F32(0.03)}
    nodes = [("DequantizeLinear", ["x", "s", "z"], ["xf"]), (op, ["xf"], ["a"])]
    last = "a"
    if op not in ("Gelu", "HardSwish"):
        nodes += [("QuantizeLinear", ["a", "sa", "za"], ["aq"]), ("DequantizeLinear", ["aq", "sa", "za"], ["af"])]
        nodes += [("Mul", ["xf", "af"], ["p"])]
        last = "p"
    nodes.append(("QuantizeLinear", [last, "sy", "z"], ["y"]))
    kind = KINDS[data]
    return model_of(nodes, [value("x", shape, kind)], [value("y", shape, kind)], tensors, 20), codes(rng, data, *shape)


SYMMETRIC = {
    "activation_type": quantization.QuantType.QInt8,
    "per_channel": False,
    "extra_options": {"ActivationSymmetric": True},
}


def codes(rng, dtype, *shape):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def layer(op, data=np.uint8, zero=0, weight=np.int8, weight_zero=0, fits=True, by_channel=True, constant=True,
          residual=False, activation=None, shapes=None, window=None, seed=0):  # fmt: skip
    """One product of codes between DequantizeLinear and QuantizeLinear: the model, its inputs, and the codes that exact
    arithmetic gives before they are rounded.  `shapes`: of data and weights; `window`: stride, pad and groups."""
    rng = np.random.default_rng(seed)
    shape, filters, axis = {
        "MatMul": ([21, 40], [40, 70], 1),
        "Gemm": ([21, 40], [70, 40], 0),
        "Batched": ([3, 17, 32], [3, 32, 24], None),
        "Conv": ([2, 32, 9, 11], [48, 32, 3, 3], 0),
        "Stem": ([1, 3, 15, 16], [16, 3, 5, 5], 0),
        "Grouped": ([2, 32, 8, 8], [32, 8, 3, 3], 0),
        "Depthwise": ([2, 32, 8, 8], [32, 1, 3, 3], 0),
    }[op]
    shape, filters = shapes or (shape, filters)
    x, w = codes(rng, data, *shape), codes(rng, weight, *filters)
    if fits and weight == np.uint8:  # less their zero point, into signed bytes
        w = np.clip(w.astype(int), weight_zero - 128, weight_zero + 127).astype(np.uint8)
    by_channel = by_channel and axis is not None
    count = filters[axis] if by_channel else 1
    scale_w = rng.uniform(0.01, 0.03, count).astype(F32)
    zeros = np.full(count, weight_zero, weight)
    sx, s = F32(0.02), scale_w if by_channel else scale_w[0]
    tensors = {"sx": sx, "zx": np.array(zero, data), "sw": s, "zw": zeros if by_channel else zeros[0]}
    attributes = {"axis": axis} if by_channel else {}
    nodes = [
        ("DequantizeLinear", ["x", "sx", "zx"], ["xf"]),
        ("DequantizeLinear", ["w", "sw", "zw"], ["wf"], attributes),
    ]
    wide_x, wide_w = x.astype(float) - zero, w.astype(float) - weight_zero
    spread = [-1 if d == axis else 1 for d in range(len(filters))]
    real_w = wide_w * (s.reshape(spread) if by_channel else s).astype(float)
    windows = {"Conv": (2, 1, 1), "Stem": (2, 2, 1), "Grouped": (1, 1, 4), "Depthwise": (1, 1, 32)}
    if op in windows:
        stride, pad, groups = window or windows[op]
        given = {"strides": [stride] * 2, "pads": [pad] * 4, "group": groups}
        nodes.append(("Conv", ["xf", "wf", "b"], ["p"], given))
        real = convolved(wide_x * float(sx), real_w, stride, pad, groups)
        bias = rng.standard_normal(filters[0]).astype(F32)
        real += bias.reshape(-1, 1, 1)
    elif op == "Gemm":
        nodes.append(("Gemm", ["xf", "wf", "b"], ["p"], {"transB": 1}))
        bias = rng.standard_normal(filters[0]).astype(F32)
        real = wide_x * float(sx) @ real_w.T + bias
    else:
        nodes += [("MatMul", ["xf", "wf"], ["m"]), ("Add", ["m", "b"], ["p"])]
        bias = rng.standard_normal(filters[-1]).astype(F32)
        real = wide_x * float(sx) @ real_w + bias
    last, feed, kinds = "p", {"x": x}, {"x": KINDS[data]}
    if residual:
        feed["r"], kinds["r"] = codes(rng, data, *real.shape), KINDS[data]
        nodes += [("DequantizeLinear", ["r", "sr", "zx"], ["rf"]), ("Add", [last, "rf"], ["sum"])]
        tensors["sr"], last = F32(0.05), "sum"
        real = real + (feed["r"].astype(float) - zero) * float(F32(0.05))
    if activation:
        nodes.append((activation, [last], ["act"]))
        last, real = "act", np.maximum(real, 0)
    tensors |= {"b": bias, "sy": F32(real.std() / 40 or 1)}
    nodes.append(("QuantizeLinear", [last, "sy", "zx"], ["y"]))
    if constant:
        tensors["w"] = w
    else:
        feed["w"], kinds["w"] = w, KINDS[weight]
    inputs = [value(name, array.shape, kinds[name]) for name, array in feed.items()]
    model = model_of(nodes, inputs, [value("y", real.shape, KINDS[data])], tensors)
    limits = np.iinfo(data)
    return model, feed, np.clip(real / float(tensors["sy"]) + zero, limits.min, limits.max)


def random_layer(seed):
    """One of any sizes: words and vectors that are whole or not, rows that are few or many."""
    rng = np.random.default_rng(seed)

    def extent(most):
        near = [1, 2, 3, 4, 5, 8, 12, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65]
        return int(rng.choice([n for n in near if n <= most]) if rng.random() < 0.7 else rng.integers(1, most + 1))

    op = rng.choice(["MatMul", "Gemm", "Batched", "Conv", "Conv", "Conv", "Grouped", "Depthwise"])
    window = None
    if op in ("MatMul", "Gemm", "Batched"):
        m, k, n = extent(40), extent(65), extent(65)
        shapes = {"MatMul": ([m, k], [k, n]), "Gemm": ([m, k], [n, k]), "Batched": ([3, m, k], [3, k, n])}[op]
    else:
        kernel = [int(rng.integers(1, 5)), int(rng.integers(1, 5))]
        groups = {"Conv": 1, "Grouped": int(rng.integers(2, 5)), "Depthwise": extent(65)}[op]
        channels = 1 if op == "Depthwise" else extent(33)
        filters = groups * (1 if op == "Depthwise" else extent(33))
        shapes = ([1, groups * channels, *(k + extent(16) for k in kernel)], [filters, channels, *kernel])
        window = (int(rng.integers(1, 3)), int(rng.integers(0, 3)), groups)
    data = rng.choice([np.uint8, np.int8])
    options = {"op": op, "data": data, "constant": op != "Batched", "residual": rng.random() < 0.3, "shapes": shapes}
    options |= {"zero": int(rng.integers(0, 100)), "by_channel": rng.random() < 0.5, "window": window}
    options["activation"] = rng.choice([None, "Relu"])
    if rng.random() < 0.3:
        options |= {"weight": np.uint8, "weight_zero": int(rng.choice([128, 100])), "fits": rng.random() < 0.7}
    return layer(**options, seed=seed)


def convolved(x, w, stride, pad, groups):
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    rows, columns = ((x.shape[2 + d] - w.shape[2 + d]) // stride + 1 for d in (0, 1))
    n, (filters, channels, *window) = x.shape[0], w.shape
    y = np.zeros((n, filters, rows, columns))
    for i in range(window[0]):
        for j in range(window[1]):
            seen = x[:, :, i : i + stride * rows : stride, j : j + stride * columns : stride][:, :, :rows, :columns]
            seen = seen.reshape(n, groups, channels, rows, columns)
            taps = w[:, :, i, j].reshape(groups, filters // groups, channels)
            y += np.einsum("ngchw,gfc->ngfhw", seen, taps).reshape(y.shape)
    return y


LAYERS = {
    "product": {"op": "MatMul"},
    "product-zero": {"op": "MatMul", "zero": 100, "by_channel": False},
    "product-signed": {"op": "MatMul", "data": np.int8, "activation": "Relu"},
    "product-signed-zero": {"op": "MatMul", "data": np.int8, "zero": -5, "residual": True},
    "product-unsigned-weights": {"op": "MatMul", "weight": np.uint8, "weight_zero": 128, "zero": 7},
    "product-shifted-weights": {"op": "MatMul", "weight": np.uint8, "weight_zero": 90, "by_channel": False},
    "product-of-values": {"op": "Batched", "constant": False},
    "product-of-values-zeros": {"op": "Batched", "constant": False, "zero": 3, "weight": np.uint8, "weight_zero": 120},
    "gemm": {"op": "Gemm", "zero": 128},
    "gemm-residual": {"op": "Gemm", "residual": True, "activation": "Relu", "by_channel": False},
    "convolution": {"op": "Conv", "activation": "Relu"},
    "convolution-zero": {"op": "Conv", "zero": 128, "residual": True, "activation": "Relu"},
    "convolution-signed": {"op": "Conv", "data": np.int8, "residual": True, "by_channel": False},
    "convolution-signed-zero": {"op": "Conv", "data": np.int8, "zero": 9},
    "convolution-unsigned-weights": {"op": "Conv", "weight": np.uint8, "weight_zero": 128},
    "product-wide-weights": {"op": "MatMul", "zero": 9, "weight": np.uint8, "weight_zero": 60, "fits": False},
    "convolution-wide-weights": {"op": "Conv", "zero": 128, "weight": np.uint8, "weight_zero": 60, "fits": False},
    "convolution-signed-weights-zero": {"op": "Conv", "weight_zero": -20, "fits": False, "by_channel": False},
    "stem": {"op": "Stem", "zero": 121},
    "grouped": {"op": "Grouped", "zero": 4},
    "depthwise": {"op": "Depthwise", "zero": 130},
}
