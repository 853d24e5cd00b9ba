"""Random ONNX models that ONNX Runtime takes as well, for comparison with it: single operators and small graphs.

Extents are small, for the oracle, or around the thresholds at which schedules change: the lanes of every target, two
vectors of them, rows that are unrolled, and, by sizes of whole arrays, caches.
"""

import math
import random
import tempfile
from fractions import Fraction
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as state

from conftest import model_of, value
from onnx_suite import read_outputs, run_folders, write_case

# What ONNX Runtime raises over a model that it does not take.
REFUSED = (state.Fail, state.InvalidArgument, state.InvalidGraph, state.NotImplemented, state.RuntimeException)

RUNNER = Path(__file__).resolve().parents[2] / "build/tests/onnx_node_runner"


class Sizes:
    """Extents up to `most`, of arrays of no more than `elements`; and numbers and arrays drawn at random."""

    THRESHOLDS = (1, 4, 6, 8, 14, 16, 28, 32, 48, 64)

    def __init__(self, seed, most, elements):
        self.rng = random.Random(seed)
        self.most, self.elements = most, elements
        self.near = sorted({t + d for t in self.THRESHOLDS for d in (-1, 0, 1) if 1 <= t + d <= most})

    def extent(self, least=1):
        rng = self.rng
        return max(least, rng.choice(self.near) if rng.random() < 0.6 else rng.randint(1, self.most))

    def shape(self, rank, least=1, others=1):
        """`others`: elements for each of the array's, in what is computed from it."""
        dims = [self.extent(least) for _ in range(rank)]
        while math.prod(dims) * others > self.elements and max(dims) > least:
            k = self.rng.choice([k for k in range(rank) if dims[k] > least])
            dims[k] = max(least, self.rng.randint(1, dims[k] - 1))
        return dims

    def array(self, *shape):
        return np.random.default_rng(self.rng.randrange(2**32)).standard_normal(shape).astype(np.float32)

    def weights(self, *shape):
        """Of a product whose terms are all but the first axis: their sums are as large as what they are made of."""
        return self.array(*shape) / np.float32(math.sqrt(max(1, math.prod(shape[1:]))))


def small(seed):
    return Sizes(seed, 9, 1500)


def wide(seed):
    return Sizes(seed, 70, 120_000)


# ----------------------------------------------------------------------------------------------------------------------
# Single operators: (name, inputs, constants, attributes)


def window(s, rank, pool=False):
    rng = s.rng
    kernel = [rng.randint(1, 4) for _ in range(rank)]
    attributes = {"kernel_shape": kernel, "strides": [rng.randint(1, 3) for _ in range(rank)]}
    if rng.random() < 0.3:
        attributes["auto_pad"] = rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
    else:
        attributes["pads"] = [rng.randint(0, (k - 1) if pool else 2) for k in kernel * 2]
        if not pool or rng.random() < 0.3:
            attributes["dilations"] = [rng.randint(1, 2) for _ in range(rank)]
    return kernel, attributes


def fits(image, attributes):
    """Whether the image holds a whole window; ONNX Runtime takes some that do not."""
    kernel = attributes["kernel_shape"]
    dilations = attributes.get("dilations", [1] * len(kernel))
    return all(d > (k - 1) * step for d, k, step in zip(image, kernel, dilations, strict=True))


def conv(s):
    rng = s.rng
    rank = rng.choice([1, 2, 2, 2, 3])
    kernel, attributes = window(s, rank)
    batch, inputs, *image = s.shape(2 + rank)
    image = [max(d, 7) for d in image]
    form = rng.choice(["plain", "plain", "depthwise", "grouped"])
    groups = {"plain": 1, "depthwise": inputs, "grouped": rng.choice([2, 3])}[form]
    if form == "grouped":
        inputs = groups * max(1, inputs // groups)
    outputs = groups * (rng.randint(1, 2) if form == "depthwise" else max(1, s.extent() // groups))
    constants = {"w": s.weights(outputs, inputs // groups, *kernel)}
    if rng.random() < 0.5:
        constants["b"] = s.array(outputs)
    return "Conv", [s.array(min(batch, 3), inputs, *image)], constants, {**attributes, "group": groups}


def conv_transpose(s):
    rng = s.rng
    rank, groups = rng.randint(1, 2), rng.choice([1, 2])
    kernel, attributes = window(s, rank)
    if rng.random() < 0.3:
        attributes["strides"] = kernel
    inputs, *image = s.shape(1 + rank, others=8)
    inputs, image = groups * max(1, inputs // groups), [max(d, 3) for d in image]
    if attributes.get("auto_pad", "").startswith("SAME"):  # ONNX Runtime takes pads below zero for none
        attributes["strides"] = [min(pair) for pair in zip(attributes["strides"], kernel, strict=True)]
    if "auto_pad" not in attributes:
        attributes["output_padding"] = [rng.randint(0, n - 1) for n in attributes["strides"]]
    weight = s.weights(inputs, s.extent() // groups + 1, *kernel)
    return "ConvTranspose", [s.array(1, inputs, *image)], {"w": weight}, {**attributes, "group": groups}


def pool(s):
    rng = s.rng
    rank = rng.randint(1, 3)
    op = rng.choice(["MaxPool", "AveragePool"])
    _, attributes = window(s, rank, pool=True)
    attributes["ceil_mode"] = rng.randint(0, 1)
    if op == "AveragePool":
        attributes["count_include_pad"] = rng.randint(0, 1)
    _, channels, *image = s.shape(2 + rank)
    image = [max(d, 7) for d in image]
    return op, [s.array(1, channels, *image)], {}, attributes


def is_at_a_step(transformation, nearest_mode, size, wanted):
    """Whether an output lies, but for rounding, where the nearest input changes: there ONNX Runtime may take either."""
    if (wanted / size).is_integer() and (wanted // size).bit_count() == 1:
        return False  # exact
    step = Fraction(0) if nearest_mode in ("floor", "ceil") else Fraction(1, 2)
    for k in range(wanted):
        if transformation == "asymmetric":
            at = Fraction(k * size, wanted)
        elif transformation == "align_corners":
            at = Fraction(k * (size - 1), max(1, wanted - 1))
        else:
            at = Fraction((2 * k + 1) * size, 2 * wanted) - Fraction(1, 2)
        if (at - step).denominator == 1:
            return True
    return False


def resize(s):
    rng = s.rng
    mode = rng.choice(["nearest", "linear", "cubic"])
    _, channels, height, width = s.shape(4, others=4)
    height, width = max(height, 2), max(width, 2)
    transformation = rng.choice(["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
    attributes = {"mode": mode, "coordinate_transformation_mode": transformation}
    sizes = [rng.randint(1, 2 * d + 1) for d in (height, width)]
    if mode == "nearest":
        attributes["nearest_mode"] = rng.choice(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
        for k, d in enumerate((height, width)):
            if is_at_a_step(transformation, attributes["nearest_mode"], d, sizes[k]):
                sizes[k] = d * rng.choice([1, 2])
    if mode == "cubic":
        attributes["exclude_outside"] = rng.randint(0, 1)
        if transformation == "pytorch_half_pixel":  # ONNX Runtime takes another point for a single one
            sizes = [max(2, n) for n in sizes]
    constants = {"roi": np.zeros(0, np.float32), "scales": np.zeros(0, np.float32)}
    constants["sizes"] = np.array([1, channels, *sizes], np.int64)
    return "Resize", [s.array(1, channels, height, width)], constants, attributes


def slice_(s):
    rng = s.rng
    shape = s.shape(3)
    axes = rng.sample(range(-3, 0), rng.randint(1, 3))
    reach = max(shape) + 2
    bounds = {n: np.array([rng.randint(-reach, reach) for _ in axes], np.int64) for n in ("starts", "ends")}
    steps = np.array([rng.choice([-3, -2, -1, 1, 2, 3]) for _ in axes], np.int64)
    return "Slice", [s.array(*shape)], {**bounds, "axes": np.array(axes, np.int64), "steps": steps}, {}


def pad(s):
    rng = s.rng
    shape = [max(d, 3) for d in s.shape(rng.randint(2, 4))]
    mode = rng.choice(["constant", "edge", "reflect"])
    pads = np.array([rng.randint(0 if mode != "constant" else -1, 2) for _ in shape * 2], np.int64)
    return "Pad", [s.array(*shape)], {"pads": pads, "value": np.float32(rng.random())}, {"mode": mode}


def matmul(s):
    rng = s.rng
    m, k, n = (s.extent() for _ in range(3))
    batch = s.shape(rng.randint(0, 2), others=max(m * k, k * n, m * n))

    def side(*matrix):
        mine = [d if rng.random() < 0.7 else 1 for d in batch[rng.randint(0, len(batch)) :]]
        return s.array(*mine, *matrix)

    a, b = side(m, k), side(k, n) / np.float32(math.sqrt(k))
    return ("MatMul", [a], {"b": b}, {}) if rng.random() < 0.5 else ("MatMul", [a, b], {}, {})


def reduce(s):
    rng = s.rng
    rank = rng.randint(1, 4)
    axes = np.array(rng.sample(range(rank), rng.randint(1, min(2, rank))), np.int64)
    op = rng.choice(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp", "ReduceProd"])
    return op, [s.array(*s.shape(rank))], {"axes": axes}, {"keepdims": rng.randint(0, 1)}


def softmax(s):
    rng = s.rng
    rank = rng.randint(1, 4)
    return rng.choice(["Softmax", "LogSoftmax"]), [s.array(*s.shape(rank))], {}, {"axis": rng.randrange(-rank, rank)}


KINDS = [conv, conv_transpose, pool, resize, slice_, pad, matmul, reduce, softmax]


def single(kind, s):
    """(model, inputs) of one operator; the output has no type yet."""
    op, inputs, constants, attributes = kind(s)
    infos = [value(f"x{i}", a.shape) for i, a in enumerate(inputs)]
    names = [i.name for i in infos] + list(constants)
    return model_of([(op, names, ["y"], attributes)], infos, [onnx.ValueInfoProto(name="y")], constants, 18), inputs


# ----------------------------------------------------------------------------------------------------------------------
# Graphs


class Graph:
    """An operator, and some more that take what the one before gives."""

    def __init__(self, s, first, steps):
        self.s = s
        op, self.inputs, self.constants, attributes = first
        self.infos = [value(f"x{i}", a.shape) for i, a in enumerate(self.inputs)]
        names = [i.name for i in self.infos] + list(self.constants)
        self.nodes = [(op, names, ["v0"], attributes)]
        self.result = self.run()
        for _ in range(steps):
            if self.result.size == 0 or self.result.size > 2 * s.elements:
                return
            nodes, constants = list(self.nodes), dict(self.constants)
            try:
                s.rng.choice(FOLLOWERS)(self)
                result = self.run()
            except (IndexError, ValueError, *REFUSED):  # not for this shape
                result = np.zeros(0)
            if result.size == 0 or not np.isfinite(result).all() or np.abs(result).max() > 1e4:
                self.nodes, self.constants = nodes, constants
            else:
                self.result = result

    @property
    def last(self):
        return self.nodes[-1][2][0]

    @property
    def shape(self):
        return self.result.shape

    def add(self, op, inputs, **attributes):
        self.nodes.append((op, inputs, [f"v{len(self.nodes)}"], attributes))
        return self.last

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def model(self):
        return model_of(self.nodes, self.infos, [onnx.ValueInfoProto(name=self.last)], self.constants, 18)

    def run(self):
        return run_onnxruntime(self.model(), self.inputs)[0]


def unary(g):
    g.add(g.s.rng.choice(["Relu", "Sigmoid", "Tanh", "Abs", "Neg", "HardSwish", "Elu", "LeakyRelu", "Erf"]), [g.last])


def binary(g):
    rng = g.s.rng
    shape = [d if rng.random() < 0.6 else 1 for d in g.shape[rng.randint(0, len(g.shape)) :]]
    other = g.constant(g.s.array(*shape))
    g.add(rng.choice(["Add", "Sub", "Mul", "Max", "Min"]), [g.last, other] if rng.random() < 0.7 else [other, g.last])


def own_square(g):
    g.add(g.s.rng.choice(["Mul", "Add", "Max"]), [g.last, g.add("Tanh", [g.last])])


def any_axis(g):
    return g.s.rng.randrange(len(g.shape))


def follow_softmax(g):
    g.add(g.s.rng.choice(["Softmax", "LogSoftmax"]), [g.last], axis=any_axis(g))


def follow_reduce(g):
    axes = g.constant(np.array([any_axis(g)], np.int64))
    op = g.s.rng.choice(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2"])
    g.add(op, [g.last, axes], keepdims=g.s.rng.randint(0, 1))


def centred(g):
    """What norms are made of: minus the mean, or by the length."""
    x, axes = g.last, g.constant(np.array([any_axis(g)], np.int64))
    if g.s.rng.random() < 0.5:
        g.add("Sub", [x, g.add("ReduceMean", [x, axes], keepdims=1)])
    else:
        length = g.add("Add", [g.add("ReduceL2", [x, axes], keepdims=1), g.constant(np.float32(0.5))])
        g.add("Div", [x, length])


def layer_norm(g):
    width = g.shape[-1]
    g.add("LayerNormalization", [g.last, g.constant(g.s.array(width)), g.constant(g.s.array(width))])


def instance_norm(g):
    channels = g.shape[1]
    g.add("InstanceNormalization", [g.last, g.constant(g.s.array(channels)), g.constant(g.s.array(channels))])


def batch_norm(g):
    channels = g.shape[1]
    scales = [g.constant(g.s.array(channels)) for _ in range(3)]
    g.add("BatchNormalization", [g.last, *scales, g.constant(np.abs(g.s.array(channels)) + np.float32(0.5))])


def transpose(g):
    g.add("Transpose", [g.last], perm=g.s.rng.sample(range(len(g.shape)), len(g.shape)))


def merge(g):
    axis = g.s.rng.randrange(len(g.shape) - 1)
    shape = [*g.shape[:axis], g.shape[axis] * g.shape[axis + 1], *g.shape[axis + 2 :]]
    g.add("Reshape", [g.last, g.constant(np.array(shape, np.int64))])


def concat(g):
    g.add("Concat", [g.last, g.add("Relu", [g.last])], axis=any_axis(g))


def part(g):
    axis = any_axis(g)
    first = g.s.rng.randrange(g.shape[axis])
    bounds = [first, g.s.rng.randint(first + 1, g.shape[axis]), axis]
    g.add("Slice", [g.last, *[g.constant(np.array([b], np.int64)) for b in bounds]])


def gather(g):
    axis = any_axis(g)
    indices = np.array([g.s.rng.randrange(g.shape[axis]) for _ in range(g.s.extent())], np.int64)
    g.add("Gather", [g.last, g.constant(indices)], axis=axis)


def follow_matmul(g):
    g.add("MatMul", [g.last, g.constant(g.s.weights(g.s.extent(), g.shape[-1]).T.copy())])


def follow_conv(g):
    rng, channels = g.s.rng, g.shape[1]
    rank = len(g.shape) - 2
    if rank < 1:
        return unary(g)
    kernel, attributes = window(g.s, rank)
    if not fits(g.shape[2:], attributes):
        return unary(g)
    groups = rng.choice([1, channels])
    outputs = channels if groups > 1 else g.s.extent()
    weight = g.constant(g.s.weights(outputs, channels // groups, *kernel))
    g.add("Conv", [g.last, weight], **attributes, group=groups)


def follow_pool(g):
    rank = len(g.shape) - 2
    if rank < 1:
        return unary(g)
    _, attributes = window(g.s, rank, pool=True)
    if not fits(g.shape[2:], attributes):
        return unary(g)
    g.add(g.s.rng.choice(["MaxPool", "AveragePool"]), [g.last], **attributes)


FOLLOWERS = [unary, unary, binary, binary, own_square, follow_softmax, follow_reduce, centred, layer_norm]
FOLLOWERS += [instance_norm, batch_norm, transpose, merge, concat, part, gather, follow_matmul, follow_conv]
FOLLOWERS += [follow_conv, follow_pool]


def graph(s):
    """(model, inputs)"""
    while True:
        try:
            made = Graph(s, s.rng.choice(KINDS)(s), s.rng.randint(0, 4))
            return made.model(), made.inputs
        except REFUSED:  # the first operator
            continue


# ----------------------------------------------------------------------------------------------------------------------
# Comparison


def run_onnxruntime(model, inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {i.name: a for i, a in zip(session.get_inputs(), inputs, strict=True)})


def difference(have, want, near=0):
    """In words; empty: they agree.  Sums in f32 run in another order, and errors grow from operator to operator.
    `near`: what may be between them besides."""
    if have.shape != want.shape or have.dtype != want.dtype:
        return f"{have.dtype}{list(have.shape)} is not {want.dtype}{list(want.shape)}"
    if have.size == 0:
        return ""
    largest = np.abs(want[np.isfinite(want)]).max(initial=0)
    close = np.isclose(have, want, rtol=1e-3, atol=1e-5 + 1e-4 * float(largest) + near, equal_nan=True)
    if close.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~close)[0])
    return f"{(~close).sum()} of {have.size} differ, the first at {at}: {have[at]}, not {want[at]} (of {largest:.3g})"


def describe(model):
    """The operators, as a line."""
    shapes = ["x".join(str(d.dim_value) for d in i.type.tensor_type.shape.dim) for i in model.graph.input]
    return f"{' '.join(shapes)} → " + " → ".join(
        n.op_type + "{" + ", ".join(f"{a.name}={onnx.helper.get_attribute_value(a)}" for a in n.attribute) + "}"
        for n in model.graph.node
    )


def rounded(array, precision):
    if array.dtype != np.float32:
        return array
    if precision == "tf32":  # ties away from zero, as far as numbers are finite
        return ((array.view(np.uint32) + 0x1000) & np.uint32(0xFFFFE000)).view(np.float32)
    return array.astype({"bf16": ml_dtypes.bfloat16, "f16": np.float16}[precision]).astype(np.float32)


def rounded_between(model, precision):
    """The model, whose operators' results are rounded as they are where they are stored."""
    other = onnx.shape_inference.infer_shapes(model)
    types = {v.name: v.type.tensor_type.elem_type for v in [*other.graph.value_info, *other.graph.output]}
    narrow = {"bf16": TensorProto.BFLOAT16, "f16": TensorProto.FLOAT16}[precision]
    nodes = list(other.graph.node)
    del other.graph.node[:]
    for node in nodes:
        floats = [(i, name) for i, name in enumerate(node.output) if types.get(name) == TensorProto.FLOAT]
        for i, name in floats:
            node.output[i] = f"{name}_wide"
        other.graph.node.append(node)
        for _, name in floats:
            other.graph.node.append(helper.make_node("Cast", [f"{name}_wide"], [f"{name}_narrow"], to=narrow))
            other.graph.node.append(helper.make_node("Cast", [f"{name}_narrow"], [name], to=TensorProto.FLOAT))
    return other


def distance_of_roundings(model, inputs, want, precision):
    """How far results may move where what is stored is rounded: as far as those of the largest value, and several
    times as far as where inputs, weights and, in 16 bits, what is between operators are rounded, for what graphs make
    of small differences."""
    other = onnx.ModelProto()
    other.CopyFrom(model if precision == "tf32" else rounded_between(model, precision))
    for tensor in other.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        tensor.CopyFrom(onnx.numpy_helper.from_array(rounded(array, precision), tensor.name))
    (moved,) = run_onnxruntime(other, [rounded(a, precision) for a in inputs])
    unit = {"bf16": 2.0**-8, "f16": 2.0**-11, "tf32": 2.0**-11}[precision]
    return 8 * unit * float(np.abs(want).max(initial=0)) + 16 * float(np.abs(moved - want).max(initial=0))


def differences(cases, mode, env=None, timeout=600, precision=None):
    """Of [(name, model, inputs)], run in a mode of the runner and by ONNX Runtime: how many were compared, which the
    runner refuses, and [(name, problem)] of the others."""
    with tempfile.TemporaryDirectory() as work:
        expected = {}
        for name, model, inputs in cases:
            try:
                (want,) = run_onnxruntime(model, inputs)
            except REFUSED:  # is no case
                continue
            model.graph.output[0].CopyFrom(value(model.graph.output[0].name, want.shape))
            folder = Path(work) / name
            write_case(folder, model, inputs)
            near = distance_of_roundings(model, inputs, want, precision) if precision and want.size else 0
            expected[str(folder)] = (name, want, near, describe(model))
        bad = []
        for folder, (status, message) in run_folders(RUNNER, mode, list(expected), timeout, env, precision).items():
            name, want, near, text = expected[folder]
            problem = f"{status} {message[:300]}"
            if status == "ok":
                (have,) = read_outputs(Path(folder) / "outputs.bin")
                problem = difference(have, want, near)
            if problem:
                bad.append((name, f"{text}: {problem}"))
        return len(expected), bad


def cuda_differences(seeds, target, env):
    """Of a graph for each seed, as differences(): three of eight in f32, others with products of tf32, bf16 and f16."""
    compared, bad = 0, []
    for precision, those in {None: (0, 1, 4), "tf32": (5,), "bf16": (2, 6), "f16": (3, 7)}.items():
        cases = [(f"seed-{seed}", *graph(wide(seed))) for seed in seeds if seed % 8 in those]
        number, problems = differences(cases, target, env, timeout=1800, precision=precision)
        compared += number
        bad += [(f"{name} in {precision or 'f32'}", problem) for name, problem in problems]
    return compared, bad
