"""What mutants (mutants.py) are made from: the models of ONNX's suite, what of them is left out and why, and the
attributes and values that are drawn."""

import functools
import math
import re
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper
from onnx.backend.test.loader import load_model_tests

from onnx_suite import DRAWN
from random_graphs import REFUSED, run_onnxruntime

FLOATS = ["float32", "float64", "float16"]
REFUSED_BY_NAME = {
    line.split(": ")[0] for line in Path(__file__).with_name("onnx_refusals.txt").read_text().splitlines()
}
INTS = ["int32", "int64", "int8", "uint8", "int16", "uint16", "uint32", "uint64"]

# ----------------------------------------------------------------------------------------------------------------------
# What is not drawn: operator → why.

# Whole operators.
LEFT_OUT = {
    "RandomNormal|RandomNormalLike|RandomUniform|RandomUniformLike|Bernoulli|Multinomial": "what they draw is open",
    "Dropout": "what it draws is open, and without training it is Identity",
    "ImageDecoder|String.*|RegexFullMatch": "strings and pictures",
    "Adam|Adagrad|Momentum|Gradient": "training",
}

# Values stay ordinary numbers: finite, and of a magnitude that every type holds.
ORDINARY = {
    "Cast|CastLike|BitCast": "what NaN, infinities and numbers out of range become as integers is open",
    "QuantizeLinear|DynamicQuantizeLinear|QLinear.*|DequantizeLinear": "what NaN becomes as an integer is open",
    "Arg.*|TopK|Unique|Hardmax|NonMaxSuppression": "where NaN comes in an order is open",
    "Max|Min|Clip|ReduceMax|ReduceMin|.*MaxPool|MaxRoiPool|Relu|Scatter.*": "whether NaN or a number is larger is open",
    "Resize|Upsample|GridSample|RoiAlign|AffineGrid|Col2Im|DeformConv": "places beside NaN and infinities are open",
    "DFT|STFT|Det|Einsum|LRN": "which zeros infinities are multiplied by is the algorithm's",
    "Attention|FlexAttention|LinearAttention|RotaryEmbedding|CausalConvWithState": "the same",
    "LSTM|GRU|RNN": "the same",
    "Conv.*|Gemm|MatMul.*": "the same",
    "Pow|Mod|Div": "integers that overflow or are divided by zero are open",
    "BitShift": "shifts by more bits than there are are open",
    "TfIdfVectorizer|TreeEnsemble|LabelEncoder|ArrayFeatureExtractor|Binarizer": "they look values up",
    "Range|Loop|If|Scan|Tile|OneHot|ConstantOfShape|EyeLike": "values are counts",
}

# Values whose squares no type holds are not drawn: whether sums overflow first is the algorithm's.  Nor subnormal ones
# in compiled runs, which take means that are subnormal for zero.
NOT_HUGE = {".*Normalization", "Reduce.*", "LRN", "LpPool", "Softmax.*", "LogSoftmax", "NegativeLogLikelihoodLoss"}

# Not computed in bfloat16: each of their steps rounds.
MANY_STEPS = {"LSTM", "GRU", "RNN", "Attention", "LinearAttention", "Loop", "Scan", "CumProd", "ReduceProd", "DFT"}

# Elements differ from each other, since which of equal ones is first is open.
DISTINCT = {"TopK"}

# Shapes that are constants.  known: three dimensions by shapes of a run compile for minutes.
CONSTANT_PARAMETERS = {"Col2Im"}

# Flags that stay as they are: attribute → why.
KEPT = {
    "sorted": "without it the order is open",
    "seed": "drawn",
    "dtype": "a type that the inputs have to fit",
    "output_datatype": "a window's 1 as an integer is 0 where it is rounded below",
    "stash_type": "ONNX Runtime takes no other",
    "layout": "ONNX Runtime takes no other",
    "training_mode": "ONNX Runtime's own results differ from the definition",
    "training": "the same",
}


def matches(names, op):
    return any(re.fullmatch(name, op) for name in names)


def is_wrong_there(node):
    """Where ONNX Runtime itself does not do what is defined."""
    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    is_same = attributes.get("auto_pad", b"").startswith(b"SAME")
    if "Pool" in node.op_type and is_same:
        return max(attributes.get("dilations", [1])) > 1  # it pads for windows without holes
    if node.op_type == "ConvTranspose" and is_same:
        return max(attributes.get("strides", [1])) > 1  # it takes pads below zero for none
    if node.op_type == "MaxUnpool":
        return len(node.input) > 2  # indices count in the output that the windows make, not in output_shape
    if node.op_type == "Resize" and "keep_aspect_ratio_policy" in attributes:
        return min(attributes.get("axes", [0])) < 0  # it leaves the sizes as they are
    if node.op_type == "TreeEnsemble":
        return attributes.get("post_transform", 0) in (1, 2)  # it takes SOFTMAX for LOGISTIC, and the other way around
    return False


def has_repeated_updates(node, inputs):
    """Which of several updates of one element stays is open."""
    if node.op_type in ("ScatterND", "ScatterElements", "Scatter", "MaxUnpool"):
        mode = {a.name: a for a in node.attribute}.get("reduction")
        if mode is None or mode.s == b"none":
            data, indices = inputs[0], inputs[1]
            if node.op_type == "ScatterND":
                rows = indices.reshape(-1, indices.shape[-1])
                rows = rows + np.where(rows < 0, np.array(data.shape[: rows.shape[1]], np.int64), 0)
                return len({tuple(r) for r in rows}) < len(rows)
            if node.op_type == "MaxUnpool":
                return len(np.unique(indices)) < indices.size
            axis = {a.name: a.i for a in node.attribute}.get("axis", 0)
            if not -data.ndim <= axis < data.ndim or indices.ndim != data.ndim:
                return False
            lines = np.moveaxis(indices % max(1, data.shape[axis]), axis, -1).reshape(-1, indices.shape[axis])
            return any(len(np.unique(line)) < len(line) for line in lines)
    return False


def is_open_reduction(node, inputs):
    """What the mean of no integers is; a mean, and the root of squares, whose sum is beyond the integers' range."""
    power = {"ReduceMean": 1, "ReduceL2": 2}.get(node.op_type)
    if power is None or inputs[0].dtype.kind not in "iu":
        return False
    x = inputs[0]
    return x.size == 0 or (np.abs(x.astype(float)) ** power).sum() > np.iinfo(x.dtype).max


# ----------------------------------------------------------------------------------------------------------------------
# The suite


@functools.cache
def newest_opset():
    """The last one that ONNX Runtime takes."""
    opset = onnx.defs.onnx_opset_version()
    while True:
        node = helper.make_node("Identity", ["x"], ["y"])
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, []) for name in "xy"]
        model = helper.make_model(helper.make_graph([node], "g", infos[:1], infos[1:]), ir_version=10)
        model.opset_import[0].version = opset
        try:
            run_onnxruntime(model, [np.zeros((), np.float32)])
            return opset
        except REFUSED:
            opset -= 1


class Seed:
    """A model of the suite, with its inputs as arrays."""

    def __init__(self, case):
        self.name, self.model, self.inputs = case.name, case.model, [np.asarray(a) for a in case.data_sets[0][0]]
        graph = self.model.graph
        for opset in self.model.opset_import:
            if opset.domain == "":
                opset.version = min(opset.version, newest_opset())
        self.is_node = len(graph.node) == 1
        self.op = graph.node[0].op_type if self.is_node else "body of " + re.sub("_expanded.*|_ver.*", "", case.name)


def is_usable(case):
    graph = case.model.graph
    if case.name in DRAWN or case.name in REFUSED_BY_NAME or any(matches(LEFT_OUT, n.op_type) for n in graph.node):
        return False
    if any(info.type.WhichOneof("value") != "tensor_type" for info in [*graph.input, *graph.output]):
        return False
    if case.name.startswith("test_layer_normalization") and "expanded" in case.name:
        return False  # a variance that is a difference of squares: where it is small, rounding makes it anything
    opset = {o.domain: min(o.version, newest_opset()) for o in case.model.opset_import}
    if not all(onnx.defs.has(n.op_type, opset.get(n.domain, 1), n.domain) for n in graph.node):
        return False
    inputs = [np.asarray(a) for a in case.data_sets[0][0]]
    known = {np.dtype(t) for t in [*FLOATS, *INTS, "bool"]}
    return all(a.dtype in known for a in inputs)


def is_taken(seed):
    """Whether ONNX Runtime takes it as it is."""
    try:
        run_onnxruntime(seed.model, seed.inputs)
    except REFUSED:
        return False
    return True


@functools.cache
def corpus():
    """{operator: [seeds]}"""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
    found = defaultdict(list)
    for case in cases:
        if is_usable(case):
            seed = Seed(case)
            if is_taken(seed):
                found[seed.op].append(seed)
    return dict(found)


# ----------------------------------------------------------------------------------------------------------------------
# Attributes

STRINGS = {
    "auto_pad": ["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"],
    "coordinate_transformation_mode": ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel",
                                       "half_pixel_symmetric"],
    "nearest_mode": ["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"],
    "padding_mode": ["zeros", "border", "reflection"],
    "approximate": ["none", "tanh"],
    "direction": ["forward", "reverse", "bidirectional", "LEFT", "RIGHT"],
    "reduction": ["none", "sum", "mean", "add", "mul", "max", "min"],
    "mode": ["constant", "reflect", "edge", "wrap", "nearest", "linear", "cubic", "DCR", "CRD", "avg", "max"],
    "keep_aspect_ratio_policy": ["stretch", "not_larger", "not_smaller"],
}  # fmt: skip
FLAGS = {
    "keepdims", "noop_with_empty_axes", "ceil_mode", "count_include_pad", "exclusive", "reverse", "largest",
    "select_last_index", "transA", "transB", "align_corners", "exclude_outside", "antialias", "upper", "fmod",
    "linear_before_reset", "detect_negative", "detect_positive", "is_causal", "interleaved", "saturate", "inverse",
    "onesided", "center_point_box", "normalize_variance", "allowzero", "broadcast", "across_channels",
}  # fmt: skip


def change_attribute(rng, node, a, ranks):
    rank = max(ranks, default=1)
    if a.name in KEPT:
        return
    if a.name in FLAGS:
        a.i = 1 - a.i if a.i in (0, 1) else 0
    elif a.type == AttributeProto.STRING and a.name in STRINGS:
        a.s = rng.choice(STRINGS[a.name]).encode()
    elif a.name == "to" and node.op_type != "BitCast":
        a.i = helper.np_dtype_to_tensor_dtype(np.dtype(rng.choice([*FLOATS, *INTS, "bool"])))
    elif a.type == AttributeProto.INT:
        a.i = rng.randint(-rank, rank - 1) if "axis" in a.name else max(0, a.i + rng.choice([-1, 1, 2]))
    elif a.type == AttributeProto.FLOAT:
        a.f = rng.choice([a.f * rng.uniform(0.3, 3), -a.f, 0.0, 1.0, rng.uniform(-2, 2)])
        if a.name == "softcap":  # what one below 0 means is open
            a.f = abs(a.f)
    elif a.type == AttributeProto.INTS:
        ints = list(a.ints)
        if a.name == "perm":
            rng.shuffle(ints)
        elif a.name == "axes":
            ints = rng.sample(range(-rank, 0), rng.randint(1, rank))
        elif a.name in ("strides", "dilations", "kernel_shape"):
            ints = [rng.randint(1, 4) for _ in ints]
        elif a.name in ("pads", "output_padding", "border"):
            ints = [rng.randint(0, 2) for _ in ints]
        else:
            ints = [max(0, i + rng.choice([0, 0, 1, -1])) for i in ints]
        del a.ints[:]
        a.ints.extend(ints)


# ----------------------------------------------------------------------------------------------------------------------
# Values


def fill(rng, dtype, shape, profile):
    """An array of numbers of a kind."""
    numbers = np.random.default_rng(rng.randrange(2**32))
    dtype = np.dtype(dtype)
    if dtype.kind == "b":
        return numbers.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        low, high = {"extreme": (info.min, info.max), "positive": (1, 100), "small": (0, 5)}.get(
            profile, (max(info.min, -100), 100)
        )
        if profile == "distinct":
            return numbers.permutation(math.prod(shape)).reshape(shape).astype(dtype)
        return numbers.integers(low, high, shape, dtype=dtype, endpoint=True)
    with np.errstate(all="ignore"):
        return np.asarray(fill_floats(numbers, np.finfo(dtype), shape, profile), dtype)


def fill_floats(numbers, info, shape, profile):
    x = numbers.standard_normal(shape)
    if profile == "distinct":
        x = (numbers.permutation(math.prod(shape)).reshape(shape) - math.prod(shape) // 2) / 8
    elif profile == "positive":
        x = np.abs(x) + 0.1
    elif profile == "unit":
        x = numbers.uniform(0, 1, shape)
    elif profile == "large":
        x = x * (100 if info.bits == 16 else 1e4)
    elif profile == "huge":
        x = x * float(info.max) / 64
    elif profile == "tiny":
        x = x * float(info.tiny) * 2.0 ** numbers.integers(-6, 7, shape)
    elif profile == "whole":
        x = np.round(x * 3)
    elif profile in ("zeros", "special"):
        some = [0.0, -0.0, 1.0, -1.0] if profile == "zeros" else [0.0, -0.0, np.inf, -np.inf, np.nan, 6e4]
        x = np.where(numbers.random(shape) < 0.3, numbers.choice(some, shape), x)
    return x


PROFILES = ["normal"] * 10 + ["whole", "whole", "zeros", "positive", "unit", "large", "tiny", "tiny", "huge", "special",
                              "special", "extreme", "extreme", "extreme"]  # fmt: skip
ORDINARY_PROFILES = ["normal"] * 6 + ["whole", "zeros", "positive", "unit"]
