"""Models of one operator each: what tests/perf/kernels.py measures.

Weights are seeded and scaled so that outputs stay near 1.  Shapes are those of the published networks at batch 1.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = tuple[int | str, ...]  # a name: of a dimension that is open


@dataclass(frozen=True)
class Case:
    name: str
    bound: str  # what a perfect kernel runs against: "compute", "read" or "copy" (of memory)
    flops: float  # a multiply-add counts as two
    bytes: float  # of inputs, constants and outputs, each once
    model: Callable[[], onnx.ModelProto]
    open_shapes: dict[str, Shape] = field(default_factory=dict)  # of inputs with open dimensions: what is measured


def one_operator(
    op: str, inputs: dict[str, Shape], weights: dict[str, Shape], output: Shape, dtype=TensorProto.FLOAT, **attributes
):
    """A model of one node whose inputs, of type `dtype` as its output, are `inputs`, then `weights`, of f32."""
    rng = np.random.default_rng(0)

    def tensor(name, shape):
        scale = prod(shape[1:]) if op.startswith("Conv") else shape[0]
        return numpy_helper.from_array(rng.standard_normal(shape, np.float32) / np.float32(np.sqrt(scale)), name)

    values = [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()]
    result = helper.make_tensor_value_info("y", dtype, output)
    node = helper.make_node(op, [*inputs, *weights], ["y"], **attributes)
    graph = helper.make_graph([node], op, values, [result], [tensor(n, s) for n, s in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


BYTES = {TensorProto.FLOAT: 4, TensorProto.FLOAT16: 2, TensorProto.UINT8: 1}


def case(name, bound, flops, op, inputs, weights, output, dtype=TensorProto.FLOAT, **attributes) -> Case:
    size = BYTES[dtype] * sum(map(prod, (*inputs.values(), output))) + 4 * sum(map(prod, weights.values()))
    return Case(name, bound, flops, size, lambda: one_operator(op, inputs, weights, output, dtype, **attributes))


# ---------------------------------------------------------------------------------------------------------------------
# Products of matrices


def matmul(name: str, m: int, n: int, k: int, constant: bool = True) -> Case:
    bound = "read" if m == 1 else "compute"
    inputs, weights = {"a": (m, k)}, {"b": (k, n)}
    if not constant:
        inputs, weights = {**inputs, **weights}, {}
    shape = f"{m}x{k}x{n}" + ("" if constant else "-inputs")
    return case(f"matmul/{name}/{shape}", bound, 2.0 * m * n * k, "MatMul", inputs, weights, (m, n))


def opened(fixed: Case, names: dict[int, str]) -> Case:
    """The same where only a run knows these dimensions of the inputs: "conv/open/…" for "conv/resnet50/…"."""
    operator, _, shape = fixed.name.split("/")
    inputs = {
        value.name: tuple(d.dim_value for d in value.type.tensor_type.shape.dim) for value in fixed.model().graph.input
    }

    def model() -> onnx.ModelProto:
        result = fixed.model()
        for values, suffix in ((result.graph.input, ""), (result.graph.output, "_of_result")):
            for value in values:
                for axis, name in names.items():
                    value.type.tensor_type.shape.dim[axis].dim_param = name + suffix
        return result

    return replace(fixed, name=f"{operator}/open/{shape}", model=model, open_shapes=inputs)


def batched_matmul(name: str, batch: int, m: int, n: int, k: int) -> Case:
    inputs = {"a": (1, batch, m, k), "b": (1, batch, k, n)}
    flops = 2.0 * batch * m * n * k
    return case(f"matmul/{name}/{batch}x{m}x{k}x{n}", "compute", flops, "MatMul", inputs, {}, (1, batch, m, n))


def products() -> Iterator[Case]:
    for size in (128, 256, 512, 1024, 2048):
        yield matmul("square", size, size, size)
        yield matmul("square", size, size, size, constant=False)
    for n, k in ((768, 768), (3072, 768), (768, 3072)):
        yield matmul("bert", 128, n, k)
        yield matmul("bert", 128, n, k, constant=False)
        yield opened(matmul("bert", 128, n, k), {0: "rows"})
    yield batched_matmul("attention", 12, 128, 128, 64)
    yield batched_matmul("attention", 12, 128, 64, 128)
    for rows, n, k in ((3136, 384, 96), (3136, 96, 384), (784, 768, 192), (196, 1536, 384), (49, 3072, 768)):
        yield matmul("convnext", rows, n, k)
    for k, n in ((2048, 2048), (2048, 5632), (5632, 2048), (2048, 32000), (2048, 1000), (768, 3072)):
        yield matmul("gemv", 1, n, k)


# ---------------------------------------------------------------------------------------------------------------------
# Attention, as exporters write it


def attention(network: str, heads: int, queries: int, keys: int, size: int, shared: int = 0, mask: str = "") -> Case:
    """`shared` heads of k and v, `heads` if 0; mask: "" (none), "causal" (constant) or "given" (an input)."""
    shared = shared or heads
    elements = (2 * heads * queries + 2 * shared * keys) * size
    flops = 4.0 * heads * queries * keys * size / (2 if mask == "causal" else 1)

    def model() -> onnx.ModelProto:
        inputs = {"q": (1, heads, queries, size), "k": (1, shared, keys, size), "v": (1, shared, keys, size)}
        if mask == "given":
            inputs["mask"] = (1, 1, queries, keys)
        constants = {"scale": np.float32(1 / np.sqrt(size))}
        k, v, nodes = "k", "v", []
        if shared < heads:
            shapes = {
                "wide": (1, shared, 1, keys, size),
                "all": (1, shared, heads // shared, keys, size),
                "flat": (1, heads, keys, size),
            }
            constants |= {name: np.array(shape, np.int64) for name, shape in shapes.items()}
            for x in ("k", "v"):
                nodes.append(helper.make_node("Reshape", [x, "wide"], [f"{x}_wide"]))
                nodes.append(helper.make_node("Expand", [f"{x}_wide", "all"], [f"{x}_all"]))
                nodes.append(helper.make_node("Reshape", [f"{x}_all", "flat"], [f"{x}_heads"]))
            k, v = "k_heads", "v_heads"
        nodes += [
            helper.make_node("Transpose", [k], ["kt"], perm=[0, 1, 3, 2]),
            helper.make_node("MatMul", ["q", "kt"], ["raw"]),
            helper.make_node("Mul", ["raw", "scale"], ["scores"]),
        ]
        scores = "scores"
        if mask:
            if mask == "causal":
                seen = np.tri(queries, keys, keys - queries, dtype=bool)
                constants["mask"] = np.where(seen, np.float32(0), np.float32(-np.inf))[None, None]
            nodes.append(helper.make_node("Add", ["scores", "mask"], ["masked"]))
            scores = "masked"
        nodes.append(helper.make_node("Softmax", [scores], ["weights"], axis=-1))
        nodes.append(helper.make_node("MatMul", ["weights", v], ["y"]))
        values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in inputs.items()]
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, heads, queries, size))
        tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
        graph = helper.make_graph(nodes, "attention", values, [result], tensors)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)

    name = f"{heads}x{queries}x{keys}x{size}" + (f"-{shared}" if shared < heads else "") + (f"-{mask}" if mask else "")
    return Case(f"attention/{network}/{name}", "compute" if queries > 1 else "read", flops, 4 * elements, model)


def attentions() -> Iterator[Case]:
    for tokens in (128, 197, 512, 2048, 4096):
        yield attention("bert", 12, tokens, tokens, 64)
    for size in (80, 128):
        yield attention("llama", 8, 512, 512, size)
    for tokens in (512, 2048):
        yield attention("llama", 16, tokens, tokens, 64, shared=4, mask="causal")
    yield attention("bert", 12, 384, 384, 64, mask="given")
    yield attention("swin", 192, 49, 49, 32)
    for tokens in (64, 128, 197):
        yield opened(attention("bert", 12, tokens, tokens, 64), {2: "tokens"})
    yield attention("decode", 16, 1, 256, 64, shared=4)
    yield attention("decode", 32, 1, 4096, 128, shared=8)
    yield attention("decode", 4, 1, 16384, 128, shared=1)


# ---------------------------------------------------------------------------------------------------------------------
# Convolutions


def conv(network, channels, filters, kernel, size, stride=1, groups=1, padding="same") -> Case:
    """`kernel` is an extent or a pair, `size` the extent of the square input map."""
    kh, kw = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    ph, pw = (kh // 2, kw // 2) if padding == "same" else (0, 0)
    oh, ow = ((size + 2 * p - k) // stride + 1 for p, k in ((ph, kh), (pw, kw)))
    flops = 2.0 * oh * ow * filters * (channels // groups) * kh * kw
    depthwise = groups == channels == filters and groups > 1
    name = f"{size}x{size}x{channels}-{filters}-{kh}x{kw}"
    name += f"s{stride}" * (stride > 1) + ("dw" if depthwise else f"g{groups}" * (groups > 1))
    return case(
        f"conv/{network}/{name}",
        "compute",
        flops,
        "Conv",
        {"x": (1, channels, size, size)},
        {"w": (filters, channels // groups, kh, kw), "b": (filters,)},
        (1, filters, oh, ow),
        pads=[ph, pw, ph, pw],
        strides=[stride, stride],
        group=groups,
    )


def convs(network, kernel, rows, **options) -> Iterator[Case]:
    """Rows of channels, filters, size and perhaps stride."""
    for channels, filters, size, *stride in rows:
        yield conv(network, channels, filters, kernel, size, *stride, **options)


def depthwise(network, rows) -> Iterator[Case]:
    """Rows of channels, kernel, size and perhaps stride."""
    for channels, kernel, size, *stride in rows:
        yield conv(network, channels, channels, kernel, size, *stride, groups=channels)


def resnet50() -> Iterator[Case]:
    yield conv("resnet50", 3, 64, 7, 224, 2)
    for width, size in ((64, 56), (128, 28), (256, 14), (512, 7)):
        if width > 64:  # the first block of a stage halves the map
            yield conv("resnet50", 2 * width, width, 1, 2 * size)
            yield conv("resnet50", width, width, 3, 2 * size, 2)
            yield conv("resnet50", 2 * width, 4 * width, 1, 2 * size, 2)
        else:
            yield conv("resnet50", width, width, 1, size)
        yield conv("resnet50", width, width, 3, size)
        yield conv("resnet50", width, 4 * width, 1, size)
        yield conv("resnet50", 4 * width, width, 1, size)


def open_maps() -> Iterator[Case]:
    sides = {2: "height", 3: "width"}
    for case in (
        *convs("resnet50", 3, ((64, 64, 56), (256, 256, 14), (128, 128, 56, 2))),
        *convs("resnet50", 1, ((64, 256, 56), (1024, 256, 14), (256, 512, 56, 2))),
        *depthwise("mobilenet_v2", ((144, 3, 56), (576, 3, 14), (960, 3, 7))),
    ):
        yield opened(case, sides)


def mobile() -> Iterator[Case]:
    yield conv("mobilenet_v2", 3, 32, 3, 224, 2)
    rows = ((32, 3, 112), (96, 3, 112, 2), (144, 3, 56), (144, 3, 56, 2), (192, 3, 28), (192, 3, 28, 2), (384, 3, 14))
    yield from depthwise("mobilenet_v2", (*rows, (576, 3, 14), (576, 3, 14, 2), (960, 3, 7)))
    rows = ((32, 16, 112), (16, 96, 112), (96, 24, 56), (24, 144, 56), (144, 24, 56), (144, 32, 28), (32, 192, 28))
    yield from convs("mobilenet_v2", 1, rows)
    rows = ((192, 32, 28), (192, 64, 14), (64, 384, 14), (384, 64, 14), (384, 96, 14), (96, 576, 14), (576, 96, 14))
    yield from convs("mobilenet_v2", 1, rows)
    yield from convs("mobilenet_v2", 1, ((576, 160, 7), (160, 960, 7), (960, 160, 7), (960, 320, 7), (320, 1280, 7)))
    rows = ((144, 5, 56, 2), (240, 5, 28), (240, 3, 28, 2), (480, 3, 14), (480, 5, 14), (672, 5, 14), (672, 5, 14, 2))
    yield from depthwise("efficientnet_b0", (*rows, (1152, 5, 7), (1152, 3, 7)))
    rows = ((240, 40, 28), (40, 240, 28), (240, 80, 14), (80, 480, 14), (480, 112, 14), (112, 672, 14), (672, 192, 7))
    yield from convs("efficientnet_b0", 1, (*rows, (192, 1152, 7), (1152, 320, 7), (1152, 48, 1), (48, 1152, 1)))
    yield from depthwise("shufflenet_v2", ((24, 3, 56, 2), (58, 3, 28), (116, 3, 14), (232, 3, 7)))
    yield from convs("shufflenet_v2", 1, ((58, 58, 28), (116, 116, 14), (232, 232, 7), (464, 1024, 7)))


def conv_transpose(network, channels, filters, kernel, size, stride, pad=0, groups=1) -> Case:
    output = (size - 1) * stride + kernel - 2 * pad
    name = f"{size}x{size}x{channels}-{filters}-{kernel}x{kernel}s{stride}" + f"g{groups}" * (groups > 1)
    return case(
        f"conv_transpose/{network}/{name}",
        "compute",
        2.0 * size * size * channels * (filters // groups) * kernel**2,
        "ConvTranspose",
        {"x": (1, channels, size, size)},
        {"w": (channels, filters // groups, kernel, kernel), "b": (filters,)},
        (1, filters, output, output),
        pads=[pad] * 4,
        strides=[stride, stride],
        group=groups,
    )


def transposed() -> Iterator[Case]:
    for channels, filters, size in ((512, 256, 14), (256, 128, 28), (128, 64, 56)):
        yield conv_transpose("unet", channels, filters, 2, size, 2)
    yield conv_transpose("pose", 256, 256, 4, 16, 2, 1)
    yield conv_transpose("gan", 64, 3, 4, 64, 2, 1)
    yield conv_transpose("dla", 64, 64, 4, 28, 2, 1, groups=64)
    yield conv_transpose("fcn8s", 21, 21, 16, 28, 8, 4, groups=21)


def heads() -> Iterator[Case]:
    """Maps of depth, flow and colours from a window of many channels."""
    yield from convs("head", 3, ((32, 1, 112), (64, 1, 56), (128, 2, 55), (64, 3, 128)))


def other_convolutions() -> Iterator[Case]:
    rows = ((3, 64, 224), (64, 64, 224), (64, 128, 112), (128, 128, 112), (128, 256, 56), (256, 256, 56))
    yield from convs("vgg16", 3, (*rows, (256, 512, 28), (512, 512, 28), (512, 512, 14)))
    yield from convs("densenet121", 1, ((256, 128, 56), (512, 128, 28), (1024, 128, 14), (1024, 512, 14)))
    yield from convs("densenet121", 3, ((128, 32, 56), (128, 32, 28), (128, 32, 14), (128, 32, 7)))
    for width, size, group_width in ((192, 28, 48), (432, 14, 48), (1008, 7, 48)):
        yield conv("regnet_x", width, width, 3, size, groups=width // group_width)
    for width, size in ((48, 56), (104, 28), (208, 14), (440, 7)):
        yield conv("regnet_y", width, width, 3, size, groups=width // 8)
    yield from convs("resnext50", 3, ((128, 128, 56), (256, 256, 28), (512, 512, 14), (1024, 1024, 7)), groups=32)
    yield from convs("inception_v3", (1, 7), ((128, 128, 17), (160, 160, 17), (192, 192, 17)))
    yield from convs("inception_v3", (7, 1), ((128, 128, 17), (160, 192, 17), (192, 192, 17)))
    yield from convs("inception_v3", 5, ((48, 64, 35),))
    yield from convs("inception_v3", 3, ((64, 96, 35), (96, 96, 35)))
    yield from convs("inception_v3", 1, ((192, 64, 35), (768, 192, 17), (1280, 320, 8)))
    yield conv("inception_v3", 288, 384, 3, 35, 2, padding="valid")
    yield conv("inception_v3", 32, 32, 3, 149, padding="valid")
    yield conv("inception_v3", 384, 384, (1, 3), 8)
    yield conv("inception_v3", 384, 384, (3, 1), 8)
    yield from convs("alexnet", 3, ((192, 384, 13), (384, 256, 13), (256, 256, 13)))
    yield from depthwise("convnext", ((96, 7, 56), (192, 7, 28), (384, 7, 14), (768, 7, 7)))
    yield conv("convnext", 3, 96, 4, 224, 4, padding="valid")
    yield conv("convnext", 96, 192, 2, 56, 2, padding="valid")


# ---------------------------------------------------------------------------------------------------------------------
# What memory bounds: arrays of 128 MiB, beyond the caches, of 1 and 16 MiB, and the sizes that networks have


def rows_of(name: str, rows: int, columns: int) -> Iterator[Case]:
    shape, size = (rows, columns), rows * columns
    where = f"{name}/{rows}x{columns}"
    yield case(f"softmax/{where}", "copy", 5 * size, "Softmax", {"x": shape}, {}, shape)
    weights = {"scale": (columns,), "bias": (columns,)}
    yield case(f"layer_norm/{where}", "copy", 8 * size, "LayerNormalization", {"x": shape}, weights, shape)
    yield case(f"gelu/{where}", "copy", 8 * size, "Gelu", {"x": shape}, {}, shape)
    yield case(f"gelu_tanh/{where}", "copy", 8 * size, "Gelu", {"x": shape}, {}, shape, approximate="tanh")
    yield case(f"add/{where}", "copy", size, "Add", {"a": shape, "b": shape}, {}, shape)


def transpose(name: str, shape: Shape, axes: Shape, dtype=TensorProto.FLOAT) -> Case:
    text = f"{'x'.join(map(str, shape))}-{''.join(map(str, axes))}"
    if dtype != TensorProto.FLOAT:
        text += "-" + TensorProto.DataType.Name(dtype).lower()
    output = tuple(shape[axis] for axis in axes)
    return case(f"transpose/{name}/{text}", "copy", 0, "Transpose", {"x": shape}, {}, output, dtype, perm=axes)


def gather(name: str, words: int, width: int, tokens: int) -> Case:
    """An embedding: `tokens` rows of a table that is given at run time."""

    def model():
        rng = np.random.default_rng(0)
        index = numpy_helper.from_array(rng.integers(0, words, tokens), "index")
        values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (words, width))]
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, (tokens, width))
        graph = helper.make_graph(
            [helper.make_node("Gather", ["x", "index"], ["y"])], "Gather", values, [result], [index]
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)

    return Case(f"gather/{name}/{words}x{width}-{tokens}", "copy", 0, 8 * tokens * width, model)


def resize(network: str, channels: int, size: int, output: int) -> Case:
    """Bilinear, as decoders of segmentation networks have it."""

    def model():
        sizes = numpy_helper.from_array(np.array([1, channels, output, output], np.int64), "sizes")
        values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, channels, size, size))]
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, channels, output, output))
        node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear")
        graph = helper.make_graph([node], "Resize", values, [result], [sizes])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)

    name, elements = f"resize/{network}/{size}x{size}x{channels}-{output}x{output}", channels * output**2
    return Case(name, "copy", 6 * elements, 4 * (channels * size**2 + elements), model)


def pool(op: str, network: str, channels: int, size: int, kernel: int, stride: int) -> Case:
    output = (size + 2 * (kernel // 2) - kernel) // stride + 1
    name = f"{op}/{network}/{size}x{size}x{channels}-{kernel}x{kernel}s{stride}"
    return case(
        name,
        "copy",
        channels * output**2 * kernel**2,
        {"max_pool": "MaxPool", "average_pool": "AveragePool"}[op],
        {"x": (1, channels, size, size)},
        {},
        (1, channels, output, output),
        kernel_shape=[kernel, kernel],
        strides=[stride, stride],
        pads=[kernel // 2] * 4,
    )


def streams() -> Iterator[Case]:
    yield from rows_of("large", 8192, 4096)
    for columns in (64, 128, 1000):
        yield from rows_of("short", (16 << 20) // 4 // columns, columns)
    yield from rows_of("second_cache", 256, 1024)
    yield from rows_of("bert", 128, 768)
    yield transpose("large", (8192, 4096), (1, 0))
    for dtype, columns in ((TensorProto.FLOAT16, 8192), (TensorProto.UINT8, 16384)):
        yield transpose("large", (8192, columns), (1, 0), dtype)
        yield transpose("second_cache", (1024, 512), (1, 0), dtype)
    yield transpose("second_cache", (512, 512), (1, 0))
    yield transpose("odd", (1999, 2001), (1, 0))
    yield transpose("large", (64, 512, 1024), (0, 2, 1))
    yield transpose("large", (64, 512, 1024), (2, 1, 0))
    yield transpose("large", (64, 512, 1024), (1, 0, 2))
    yield transpose("large", (8, 64, 256, 256), (0, 2, 3, 1))
    yield transpose("large", (8, 256, 256, 64), (0, 3, 1, 2))
    yield transpose("picture", (1, 3, 1024, 1024), (0, 2, 3, 1))
    yield transpose("picture", (1, 1024, 1024, 3), (0, 3, 1, 2))
    yield gather("large", 32000, 4096, 8192)
    yield gather("bert", 30522, 768, 128)
    yield transpose("bert", (1, 128, 12, 64), (0, 2, 1, 3))
    yield transpose("resnet50", (1, 256, 56, 56), (0, 2, 3, 1))
    for name, parts, size in (
        ("large", (256, 256), 256),
        ("densenet121", (128, 32), 28),
        ("inception_v3", (64, 96), 35),
    ):
        inputs = {f"x{i}": (1, channels, size, size) for i, channels in enumerate(parts)}
        text = f"{size}x{size}x{'+'.join(map(str, parts))}"
        yield case(f"concat/{name}/{text}", "copy", 0, "Concat", inputs, {}, (1, sum(parts), size, size), axis=1)
    for network, channels, size, output in (("segformer", 256, 14, 56), ("fcn", 21, 28, 224), ("picture", 3, 256, 512)):
        yield resize(network, channels, size, output)
    yield pool("max_pool", "large", 128, 512, 3, 2)
    yield pool("max_pool", "resnet50", 64, 112, 3, 2)
    yield pool("average_pool", "large", 128, 512, 3, 2)
    yield pool("average_pool", "inception_v3", 192, 35, 3, 1)
    for name, channels, size in (("large", 512, 256), ("resnet50", 2048, 7)):
        shape, output = (1, channels, size, size), (1, channels, 1, 1)
        text = f"global_pool/{name}/{size}x{size}x{channels}"
        yield case(text, "read", prod(shape), "GlobalAveragePool", {"x": shape}, {}, output)


def overhead() -> Case:
    """The cost of a call of each contender, which is part of every other figure."""
    return case("overhead/relu/1", "copy", 1, "Relu", {"x": (1,)}, {}, (1,))


def all_cases() -> list[Case]:
    return [
        overhead(),
        *products(),
        *attentions(),
        *resnet50(),
        *open_maps(),
        *mobile(),
        *other_convolutions(),
        *transposed(),
        *heads(),
        *streams(),
    ]
