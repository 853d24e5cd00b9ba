"""Random networks in bf16 against f32, within error bounds that a second network computes beside the first.

Every value y comes with a bound e of its error, by the rules of running error analysis: what is stored in bf16 is off
by u = 2⁻⁸ of its magnitude at most, so that

    stored        e + u·(|y| + e)
    x · w         (e' + u·|x|)·|w| + u·e'·|w|, where e' is the bound of x as it is stored: the weight is rounded, too
    a + b         e_a + e_b                  relu, largest, concatenation: e       mean: mean of e
    a · b         |a|·e_b + |b|·e_a + e_a·e_b                                      sigmoid: e / 4

Any value may be stored in bf16 or in f32, so each bound is that of a stored value.  Sums in f32 are far more exact.
"""

import numpy as np
import pytest

import tilewright as tw
from conftest import model_of, value

onnxruntime = pytest.importorskip("onnxruntime")

U = 2.0**-8


class Network:
    """A graph with the graph of its bounds: `names` are values, f"e_{name}" their bounds."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.bounds, self.weights = [], [], {}
        self.constants = {"u": np.float32(U), "quarter": np.float32(0.25)}
        self.count = 0

    def fresh(self):
        self.count += 1
        return f"v{self.count}"

    def constant(self, array):
        name = f"w{len(self.weights)}"
        self.weights[name] = array.astype(np.float32)
        self.constants[f"abs_{name}"] = np.abs(self.weights[name])
        return name

    def bound(self, op, inputs, attributes=None):
        name = self.fresh()
        self.bounds.append((op, inputs, [name], attributes or {}))
        return name

    def magnitude(self, x):
        return self.bound("Abs", [x])

    def times(self, *factors):
        product = factors[0]
        for factor in factors[1:]:
            product = self.bound("Mul", [product, factor])
        return product

    def plus(self, *terms):
        total = terms[0]
        for term in terms[1:]:
            total = self.bound("Add", [total, term])
        return total

    def stored(self, y, error):
        """Names the bound of y, given that of what is stored."""
        rounding = self.times(self.plus(self.magnitude(y), error), "u")
        self.bounds.append(("Add", [error, rounding], [f"e_{y}"], {}))
        return y

    def emit(self, op, inputs, attributes=None):
        name = self.fresh()
        self.nodes.append((op, inputs, [name], attributes or {}))
        return name

    def product(self, op, x, weight, attributes=None):
        w = self.constant(weight)
        y = self.emit(op, [x, w], attributes)
        operand = self.plus(f"e_{x}", self.times(f"e_{x}", "u"), self.times(self.magnitude(x), "u"))
        return self.stored(y, self.bound(op, [operand, f"abs_{w}"], attributes))

    def conv(self, x, inputs, outputs, kernel, stride=1, groups=1):
        scale = 1 / np.sqrt(inputs // groups * kernel * kernel)
        weight = self.rng.standard_normal((outputs, inputs // groups, kernel, kernel)) * scale
        pads = [kernel // 2] * 4
        return self.product("Conv", x, weight, {"pads": pads, "strides": [stride] * 2, "group": groups})

    def same(self, op, inputs, attributes=None):
        """Operators that are as exact as what they read, and bound as they compute."""
        y = self.emit(op, inputs, attributes)
        return self.stored(y, self.bound(op, [f"e_{x}" for x in inputs], attributes))

    def relu(self, x):
        return self.stored(self.emit("Relu", [x]), f"e_{x}")

    def sigmoid(self, x):
        return self.stored(self.emit("Sigmoid", [x]), self.times(f"e_{x}", "quarter"))

    def multiply(self, a, b):
        y = self.emit("Mul", [a, b])
        by_b, by_a = self.times(self.magnitude(a), f"e_{b}"), self.times(self.magnitude(b), f"e_{a}")
        return self.stored(y, self.plus(by_b, by_a, self.times(f"e_{a}", f"e_{b}")))

    def squeeze(self, x, channels):
        mean = self.same("GlobalAveragePool", [x])
        return self.multiply(x, self.sigmoid(self.conv(mean, channels, channels, 1)))


def random_network(seed):
    net = Network(seed)
    rng = net.rng
    channels, size = int(rng.choice([3, 7, 8, 16, 17, 24, 33])), int(rng.choice([15, 16, 28, 31, 33, 40]))
    shape, x = [1, channels, size, size], "x"
    older = None  # of x's shape
    for _ in range(int(rng.integers(4, 8))):
        kind = rng.choice(["wide", "strided", "depthwise", "relu", "silu", "squeeze", "pool", "mean", "concat", "add"])
        before = (x, channels, size)
        if kind in ("wide", "strided"):
            stride, outputs = (2 if kind == "strided" else 1), int(rng.choice([7, 16, 17, 24, 31, 32, 40, 48]))
            kernel = int(rng.choice([1, 3]))
            x = net.conv(x, channels, outputs, kernel, stride)
            channels, size = outputs, (size - 1) // stride + 1
        elif kind == "depthwise":
            x = net.conv(x, channels, channels, 3, groups=channels)
        elif kind == "relu":
            x = net.relu(x)
        elif kind == "silu":
            x = net.multiply(x, net.sigmoid(x))
        elif kind == "squeeze":
            x = net.squeeze(x, channels)
        elif kind == "pool":
            x = net.same("MaxPool", [x], {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [1, 1]})
        elif kind == "mean":
            attributes = {"kernel_shape": [2, 2], "strides": [1, 1], "pads": [0, 0, 1, 1], "count_include_pad": 1}
            x = net.same("AveragePool", [x], attributes)
        elif kind == "concat":
            x, channels = net.same("Concat", [x, x], {"axis": 1}), 2 * channels
        elif older:
            x = net.same("Add", [x, older])
        older = before[0] if before[1:] == (channels, size) else None
    features = net.same("Flatten", [net.same("GlobalAveragePool", [x])])
    y = net.product("MatMul", features, rng.standard_normal((channels, 10)))
    return net, shape, x, y


def case_of(seed):
    """A network, its input, and its outputs in f32 with their bounds."""
    net, shape, *results = random_network(seed)
    feed = {"x": np.random.default_rng(seed + 1000).standard_normal(shape).astype(np.float32)}
    inputs = [value("x", shape)]
    model = model_of(net.nodes, inputs, [value(name, None) for name in results], net.weights)
    exact = [("Sub", ["x", "x"], ["zero"]), ("Abs", ["zero"], ["e_x"])]
    errors = [value(f"e_{name}", None) for name in results]
    bounds = model_of(exact + net.nodes + net.bounds, inputs, errors, net.weights | net.constants)
    run = [onnxruntime.InferenceSession(m.SerializeToString()).run(None, feed) for m in (model, bounds)]
    return model, feed, *run


@pytest.mark.parametrize("target", ["cpu", "x86:avx2"])
@pytest.mark.parametrize("seed", range(16))
def test_within_the_bound_of_its_roundings(seed, target):
    model, feed, expected, limits = case_of(seed)
    outputs = tw.compile(tw.load(model), target=target, precision="bf16").run(feed).values()
    for ours, theirs, limit in zip(outputs, expected, limits, strict=True):
        assert np.all(np.abs(ours - theirs) <= limit + 1e-5 * np.abs(theirs).max())


def test_the_bound_is_no_formality():
    """Roundings add up at random, so errors stay far within the worst case; some come within a fiftieth of it."""
    nearest = 0.0
    for seed in range(16):
        model, feed, expected, limits = case_of(seed)
        outputs = tw.compile(tw.load(model), precision="bf16").run(feed).values()
        for ours, theirs, limit in zip(outputs, expected, limits, strict=True):
            nearest = max(nearest, float((np.abs(ours - theirs) / (limit + 1e-30)).max()))
    assert nearest > 0.02
