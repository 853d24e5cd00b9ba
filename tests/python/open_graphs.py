"""Random graphs whose inputs have open dimensions: compiled once, run at several sizes beside ONNX Runtime.

As a program it takes a target, reads seeds, one a line, and answers as tests/onnx_node_runner.cpp does: ok, refused or
wrong, the seed, and what was the matter.  A graph is built at two sizes at once, by what ONNX Runtime says of both: a
dimension that differs is open, and constants have an extent of 1 there.
"""

import functools
import re
import sys
from pathlib import Path

import numpy as np
import onnx

import tilewright as tw
from conftest import from_zero, model_of, value
from onnx_suite import run_folders
from random_graphs import REFUSED, Sizes, difference, distance_of_roundings, fits, run_onnxruntime, window

FAR = 2**63 - 1
LAYOUTS = [
    ["batch", "features"],
    ["batch", "length", "features"],
    ["batch", "length", "features"],
    ["batch", "channels", "length"],
    ["batch", "channels", "height", "width"],
    ["batch", "channels", "height", "width"],
]


class OpenGraph:
    def __init__(self, seed):
        self.s = Sizes(seed, 12, 4000)
        rng = self.rng = self.s.rng
        layout = rng.choice(LAYOUTS)
        names = [d for d in layout if d not in ("features", "channels")]
        self.names = rng.sample(names, rng.randint(1, len(names)))
        self.dims = [d if d in self.names else rng.choice([1, 2, 4, 6, 8, 12]) for d in layout]
        least = 5 if "channels" in layout else 2
        small = {name: rng.randint(least, 9) for name in self.names}
        self.sizes = [small, {name: size + rng.randint(2, 5) for name, size in small.items()}]
        self.inputs = {"x": self.dims}
        self.nodes, self.constants, self.values = [], {}, []
        if rng.random() < 0.3:  # another one, of as many elements: the model says so, or what is done with both
            own = rng.random() < 0.5
            self.inputs["z"] = [f"{d}_of_z" if own and isinstance(d, str) else d for d in self.dims]
            self.add(rng.choice(["Add", "Mul", "Max"]), ["x", "z"])
        else:
            self.add("Identity", ["x"])
        self.results = [self.run(sizes) for sizes in self.sizes]
        self.values.append((self.last, self.shape))
        for _ in range(rng.randint(1, 6)):
            self.grow(rng.choice(STEPS))

    def grow(self, step):
        nodes, constants = list(self.nodes), dict(self.constants)
        try:
            step(self)
            results = [self.run(sizes) for sizes in self.sizes]
            is_good = all(r.size and np.isfinite(r).all() and np.abs(r).max() < 1e4 for r in results)
            is_good = is_good and results[1].size < 40_000 and results[0].ndim == results[1].ndim
        except (IndexError, StopIteration, TypeError, ValueError, ZeroDivisionError, *REFUSED):  # not for this shape
            is_good = False
        if is_good:
            self.results = results
            self.values.append((self.last, self.shape))
        else:
            self.nodes, self.constants = nodes, constants

    @property
    def last(self):
        return self.nodes[-1][2][0]

    @property
    def shape(self):
        """None: open."""
        return [a if a == b else None for a, b in zip(self.results[0].shape, self.results[1].shape, strict=True)]

    @property
    def rank(self):
        return self.results[0].ndim

    def add(self, op, inputs, outputs=1, **attributes):
        names = [f"v{len(self.nodes)}"] + [f"v{len(self.nodes)}_{k}" for k in range(1, outputs)]
        self.nodes.append((op, inputs, names, attributes))
        return names[0]

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(array)
        return name

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def array(self, *shape):
        return self.constant(self.s.array(*shape))

    def axis(self):
        return self.rng.randrange(self.rank)

    def extent(self, *axes):
        """The product of these dimensions of the last result, as a list of one, computed by the model."""
        shape, name = self.add("Shape", [self.last]), None
        for axis in axes:
            part = self.add("Gather", [shape, self.ints(axis)])
            name = part if name is None else self.add("Mul", [name, part])
        return name

    def require_fits(self, attributes):
        """ONNX Runtime takes windows that are larger than the data, and counts them in ways of its own."""
        if not all(fits(r.shape[2:], attributes) for r in self.results):
            raise ValueError("a window larger than the data")

    def require_exact(self):
        """What rounding decides may come out either way."""
        rounded = {"Softmax", "Tanh", "Sigmoid", "MatMul", "Einsum", "Conv", "ConvTranspose", "Erf", "HardSwish", "LRN"}
        if any(op in rounded or op.endswith(("Normalization", "Pool", "SoftMax", "Resize")) or op.startswith("Reduce")
               for op, *_ in self.nodes):  # fmt: skip
            raise ValueError("a comparison of what is rounded")

    def model(self):
        infos = [value(name, dims) for name, dims in self.inputs.items()]
        return model_of(self.nodes, infos, [onnx.ValueInfoProto(name=self.last)], self.constants, 18)

    def feed(self, sizes):
        rng = np.random.default_rng(sum(sizes.values()))
        extent = {**sizes, **{f"{name}_of_z": size for name, size in sizes.items()}}
        shapes = {name: [extent.get(d, d) for d in dims] for name, dims in self.inputs.items()}
        return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}

    def run(self, sizes):
        return run_onnxruntime(self.model(), list(self.feed(sizes).values()))[0]

    def more_sizes(self):
        yield from self.sizes
        ends_at_one = any("reflect" in attributes.values() for *_, attributes in self.nodes)  # ONNX Runtime
        if not ends_at_one:
            yield dict.fromkeys(self.names, 1)
        yield {name: (7 if ends_at_one else 3) + 2 * k for k, name in enumerate(self.names)}
        for large in self.names:
            yield {name: 37 if name == large else 6 for name in self.names}
        yield dict.fromkeys(self.names, 0)
        for none in self.names:
            yield {name: 0 if name == none else 6 for name in self.names}


# ----------------------------------------------------------------------------------------------------------------------
# Steps


def unary(g):
    g.add(g.rng.choice(["Relu", "Sigmoid", "Tanh", "Abs", "Neg", "HardSwish", "Erf"]), [g.last])


def binary(g):
    shape = [1 if d is None or g.rng.random() < 0.4 else d for d in g.shape[g.rng.randint(0, g.rank) :]]
    other = g.array(*shape)
    g.add(g.rng.choice(["Add", "Sub", "Mul", "Max"]), [g.last, other] if g.rng.random() < 0.7 else [other, g.last])


def with_earlier(g):
    """A value that was there before, of the same rank."""
    names = [name for name, shape in g.values if len(shape) == g.rank]
    g.add(g.rng.choice(["Add", "Mul", "Min"]), [g.last, g.rng.choice(names)])


def concat_with_earlier(g):
    names = [name for name, shape in g.values if len(shape) == g.rank]
    g.add("Concat", [g.last, g.rng.choice(names)], axis=g.axis())


def softmax(g):
    g.add(g.rng.choice(["Softmax", "LogSoftmax"]), [g.last], axis=g.axis())


def reduce(g):
    axes = g.rng.sample(range(g.rank), g.rng.randint(1, min(2, g.rank)))
    op = g.rng.choice(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp"])
    g.add(op, [g.last, g.ints(*axes)], keepdims=g.rng.randint(0, 1))


def centred(g):
    x, axes = g.last, g.ints(g.axis())
    g.add("Sub", [x, g.add("ReduceMean", [x, axes], keepdims=1)])


def layer_norm(g):
    g.add("LayerNormalization", [g.last, g.array(g.shape[-1] or 1), g.array(g.shape[-1] or 1)])


def channel_norm(g):
    channels = g.shape[1] or 1
    if g.rng.random() < 0.5:
        g.add("InstanceNormalization", [g.last, g.array(channels), g.array(channels)])
    else:
        variance = g.constant(np.abs(g.s.array(channels)) + np.float32(0.5))
        g.add("BatchNormalization", [g.last, g.array(channels), g.array(channels), g.array(channels), variance])


def transpose(g):
    g.add("Transpose", [g.last], perm=g.rng.sample(range(g.rank), g.rank))


def merge(g):
    """Two neighbours as one dimension, by -1 or as the model computes it."""
    axis = g.rng.randrange(g.rank - 1)
    shape = g.shape
    if None not in shape[axis + 2 :] and g.rng.random() < 0.5:
        return g.add("Reshape", [g.last, g.ints(*[0] * axis, -1, *shape[axis + 2 :])])
    x = g.last
    parts = []
    for axes in [*[[a] for a in range(axis)], [axis, axis + 1], *[[a] for a in range(axis + 2, g.rank)]]:
        g.nodes.append(("Identity", [x], [f"v{len(g.nodes)}"], {}))
        parts.append(g.extent(*axes))
    g.add("Reshape", [x, g.add("Concat", parts, axis=0)])


def split_heads(g):
    heads = next(h for h in (2, 3, 4) if g.shape[-1] % h == 0)
    g.add("Reshape", [g.last, g.ints(*[0] * (g.rank - 1), heads, -1)])
    order = list(range(g.rank + 1))
    order[-3:-1] = reversed(order[-3:-1])
    g.add("Transpose", [g.last], perm=order)


def flatten(g):
    g.add("Flatten", [g.last], axis=g.rng.randint(0, g.rank))


def unsqueeze(g):
    g.add("Unsqueeze", [g.last, g.ints(g.rng.randint(0, g.rank))])


def squeeze(g):
    g.add("Squeeze", [g.last, g.ints(g.shape.index(1))])


def concat(g):
    g.add("Concat", [g.last, g.add("Relu", [g.last])], axis=g.axis())


def concat_constant(g):
    axis = g.axis()
    g.add("Concat", [g.last, g.array(*[d if k != axis else 2 for k, d in enumerate(g.shape)])], axis=axis)


def part(g):
    rng = g.rng
    step = rng.choice([1, 1, 1, 2, 3, -1, -2])
    end = FAR if step > 0 else -FAR  # ONNX Runtime takes FAR for all that there is backwards, too
    start = rng.choice([0, 0, 1, 2, -1, -2, -3, FAR])
    end = rng.choice([end, end, 2, 3] if start < 0 else [end, end, -1, -2, 2, 3])  # else perhaps one element, to others
    g.add("Slice", [g.last, *[g.ints(b) for b in (start, end, g.axis(), step)]])


def split(g):
    name = g.add("Split", [g.last], outputs=2, axis=g.axis(), num_outputs=2)
    g.add("Identity", [g.rng.choice([name, f"{name}_1"])])


def gather(g):
    g.add(
        "Gather", [g.last, g.constant(g.rng.choice([np.array(0), np.array(-1), np.array([1, 0, -1])]))], axis=g.axis()
    )


def tile(g):
    g.add("Tile", [g.last, g.ints(*[g.rng.choice([1, 1, 2]) for _ in range(g.rank)])])


def expand(g):
    """To as many as another dimension has, in front."""
    x = g.last
    count = g.extent(g.axis())
    g.nodes.append(("Identity", [x], [f"v{len(g.nodes)}"], {}))
    shape = g.add("Shape", [g.last])
    g.add("Expand", [x, g.add("Concat", [count, shape], axis=0)])


def pad(g):
    mode = g.rng.choice(["constant", "constant", "edge", "reflect"])
    pads = [g.rng.choice([0, 0, 1, 2, -1 if mode == "constant" else 1]) for _ in range(2 * g.rank)]
    g.add("Pad", [g.last, g.ints(*pads)], mode=mode)


def positions(g):
    """How far along an axis each element is."""
    x, axis = g.last, g.axis()
    count = g.add("Squeeze", [g.extent(axis)])
    numbers = g.add("Range", [g.constant(np.int64(0)), count, g.constant(np.int64(1))])
    scaled = g.add("Mul", [g.add("Cast", [numbers], to=1), g.constant(np.float32(0.1))])
    shape = [1] * (g.rank - axis)
    shape[0] = -1
    g.add("Add", [x, g.add("Reshape", [scaled, g.ints(*shape)])])


def filled(g):
    x = g.last
    shape = g.add("Shape", [x])
    ones = g.add("ConstantOfShape", [shape], value=onnx.numpy_helper.from_array(np.array([1.5], np.float32)))
    g.add("Mul", [x, ones])


def where(g):
    x = g.last
    g.require_exact()
    g.add(
        "Where", [g.add("Greater", [x, g.constant(np.float32(0))]), x, g.add("Mul", [x, g.constant(np.float32(0.5))])]
    )


def cumulate(g):
    g.add(
        "CumSum", [g.last, g.constant(np.int64(g.axis()))], exclusive=g.rng.randint(0, 1), reverse=g.rng.randint(0, 1)
    )


def largest(g):
    g.add("TopK", [g.last, g.ints(g.rng.randint(1, 2))], outputs=2, axis=g.axis(), largest=g.rng.randint(0, 1))


def best(g):
    g.require_exact()
    g.add("Cast", [g.add(g.rng.choice(["ArgMax", "ArgMin"]), [g.last], axis=g.axis(), keepdims=1)], to=1)


def hardmax(g):
    g.require_exact()
    g.add("Hardmax", [g.last], axis=g.axis())


def triangle(g):
    g.add("Trilu", [g.last, g.constant(np.int64(g.rng.randint(-1, 1)))], upper=g.rng.randint(0, 1))


def matmul(g):
    g.add("MatMul", [g.last, g.constant(g.s.weights(g.s.extent(), g.shape[-1]).T.copy())])


def attention(g):
    """Each row beside all."""
    x = g.last
    order = list(range(g.rank))
    order[-2:] = reversed(order[-2:])
    scores = g.add("MatMul", [x, g.add("Transpose", [x], perm=order)])
    g.add("MatMul", [g.add("Softmax", [scores], axis=-1), x])


def einsum(g):
    letters = "abcde"[: g.rank - 2]
    g.add("Einsum", [g.last, g.add("Tanh", [g.last])], equation=f"{letters}ij,{letters}kj->{letters}ik")
    g.add("Tanh", [g.last])


def no_negative_pads(attributes):
    """ONNX Runtime reads elsewhere where SAME asks for them."""
    if attributes.get("auto_pad", "").startswith("SAME"):
        reach = zip(attributes["strides"], attributes["kernel_shape"], strict=True)
        attributes["strides"] = [min(pair) for pair in reach]


def conv(g):
    rank, channels = g.rank - 2, g.shape[1]
    kernel, attributes = window(g.s, rank)
    g.require_fits(attributes)
    no_negative_pads(attributes)
    groups = g.rng.choice([1, 1, channels])
    outputs = channels if groups > 1 else g.s.extent()
    g.add("Conv", [g.last, g.constant(g.s.weights(outputs, channels // groups, *kernel))], group=groups, **attributes)


def conv_transpose(g):
    rank, channels = g.rank - 2, g.shape[1]
    kernel, attributes = window(g.s, rank)
    attributes.pop("auto_pad", None)
    weight = g.constant(g.s.weights(channels, g.rng.randint(1, 4), *kernel))
    g.add("ConvTranspose", [g.last, weight], **attributes)


def pool(g):
    op = g.rng.choice(["MaxPool", "AveragePool", "LpPool"])
    _, attributes = window(g.s, g.rank - 2, pool=True)
    g.require_fits(attributes)
    no_negative_pads(attributes)
    if op != "LpPool":
        attributes["ceil_mode"] = g.rng.randint(0, 1)
    if op == "AveragePool":
        attributes["count_include_pad"] = g.rng.randint(0, 1)
    g.add(op, [g.last], **attributes)


def global_pool(g):
    g.add(g.rng.choice(["GlobalAveragePool", "GlobalMaxPool"]), [g.last])


def resize(g):
    scales = [1.0] * 2 + [g.rng.choice([0.5, 1.5, 2.0, 3.0]) for _ in range(g.rank - 2)]
    mode = g.rng.choice(["nearest", "linear", "cubic"] if g.rank == 4 else ["nearest", "linear"])
    where_ = g.rng.choice(["half_pixel", "asymmetric"])
    inputs = [g.last, "", g.constant(np.array(scales, np.float32))]
    g.add("Resize", inputs, mode=mode, coordinate_transformation_mode=where_, nearest_mode="floor")


def local_norm(g):
    g.add("LRN", [g.last], size=g.rng.randint(1, 3))


def blocks(g):
    g.add(g.rng.choice(["SpaceToDepth", "DepthToSpace"]), [g.last], blocksize=2)


def gather_elements(g):
    g.require_exact()
    axis = g.axis()
    g.add("GatherElements", [g.last, g.add("ArgMax", [g.last], axis=axis, keepdims=1)], axis=axis)


STEPS = [unary, binary, binary, with_earlier, with_earlier, concat_with_earlier, softmax, reduce, reduce, centred]
STEPS += [layer_norm, channel_norm, transpose, transpose, merge, merge, split_heads, flatten, unsqueeze, squeeze]
STEPS += [concat, concat_constant, part, part, part, split, gather, tile, expand, pad, positions, filled, where]
STEPS += [cumulate, largest, best, hardmax, triangle, matmul, matmul, attention, einsum, conv, conv, conv_transpose]
STEPS += [pool, pool, global_pool, resize, local_norm, blocks, gather_elements]


# ----------------------------------------------------------------------------------------------------------------------
# Comparison


def describe(g):
    dims = "; ".join(", ".join(map(str, dims)) for dims in g.inputs.values())
    steps = (
        f"{op}{''.join(f' {k}={v}' for k, v in attributes.items() if k != 'value')}"
        + "".join(f" {g.constants[i].tolist()}" for i in inputs if i in g.constants and g.constants[i].size < 5)
        for op, inputs, _, attributes in g.nodes
    )
    return f"[{dims}] → " + " → ".join(steps)


# Windows that are larger than the data, and slices that begin behind it.
IS_DEMANDED = re.compile(r"\((Conv|MaxPool|AveragePool|LpPool|Slice|ArgMax|ArgMin)\) demands")


def is_broadcast(error, sizes):
    """Dimensions that are equal, by what the model does: there ONNX Runtime also takes 1 beside another size."""
    is_bound = "was compiled for" in str(error) and not re.search(r"\((Add|Sub|Mul|Max|Min)\) demands", str(error))
    return 1 in sizes.values() and not is_bound


def compare(g, alone, may_be_empty, target, precision):
    """(status, what was the matter).  `alone`: only the sizes that the graph was built at have a known answer."""
    model = g.model()
    try:
        opened = from_zero(model) if may_be_empty else None
        executable = tw.compile(model, shapes=opened, target=target, precision=precision)
    except tw.Error as error:
        return "refused", str(error)
    known = dict(zip(map(str, g.sizes), g.results, strict=True))
    for sizes in g.more_sizes():
        if 0 in sizes.values() and not may_be_empty:
            continue
        feed, want = g.feed(sizes), known.get(str(sizes))
        if want is None and not alone:
            try:
                want = run_onnxruntime(model, list(feed.values()))[0]
            except REFUSED:
                pass
        try:
            (have,) = executable.run(feed).values()
        except tw.Error as error:
            if want is None or IS_DEMANDED.search(str(error)) or is_broadcast(error, sizes):
                continue
            return "refused", f"at {sizes}: {error}"
        if want is None or not np.isfinite(want).all() or not 1e-3 <= np.abs(want).max(initial=0) < 1e30:
            continue  # nothing, what cancels, or what ONNX Runtime takes for the maximum of pads alone
        has_mean = any(op in ("ReduceMean", "GlobalAveragePool") for op, *_ in g.nodes)
        if has_mean and min(sizes.values()) <= 3 and np.isnan(have).any():
            continue  # the mean of nothing, which ONNX Runtime takes for 0
        near = distance_of_roundings(model, list(feed.values()), want, precision) if precision != "f32" else 0
        if problem := difference(have, want, near):
            return "wrong", f"at {sizes}: {problem}"
    return "ok", ""


def problems(seeds, timeout=1800, target="cpu", env=None):
    """Of graphs of these seeds, those that are refused, wrong, or end the process: [(seed, what was the matter)]."""
    run = functools.partial(run_folders, sys.executable, str(Path(__file__)), timeout=timeout, env=env, form=target)
    answers = run([str(seed) for seed in seeds])
    # ONNX Runtime divides by 0 in some operators on empty tensors: what ends alone is ours.
    again = [f"{seed} alone" for seed, (status, _) in answers.items() if status == "crashed"]
    answers |= run(again)
    is_done = {line.split()[0] for line in again}
    return [
        (seed, f"{status} {text}") for seed, (status, text) in answers.items() if status != "ok" and seed not in is_done
    ]


if __name__ == "__main__":
    target = sys.argv[1]
    for line in sys.stdin:
        seed, *alone = line.split()
        graph = OpenGraph(int(seed))
        # Of eight for a GPU, two have products of bf16, two of f16 and one of tf32.
        on_gpu = {2: "bf16", 3: "f16", 5: "tf32", 6: "bf16", 7: "f16"}
        precision = on_gpu.get(int(seed) % 8, "f32") if target.startswith("cuda") else "f32"
        status, message = compare(graph, bool(alone), int(seed) % 2 == 0, target, precision)
        text = f"{message} of {describe(graph)}" if message else ""
        print(status, line.strip(), " ".join(text.split()), sep="\t", flush=True)
