"""What the assembler made of GPU kernels: NVRTC and NVIDIA's programs from PyPI, without a GPU."""

import json
import os
from collections import Counter

import ml_dtypes
import numpy as np
import onnx
import pytest

import quantised_models
import tilewright as tw
from conftest import attention_model, model_of, run_tw, small_network, value
from tilewright import _core, gpu_kernels, report

BF16 = ml_dtypes.bfloat16


def artifact(model, folder, target="cuda:sm_90", precision="f32"):
    path = folder / "net.twa"
    tw.compile(tw.load(model), target=target, precision=precision).save(path)
    return path


@pytest.mark.parametrize("target", [name for name in _core.target_names() if name.startswith("cuda:")])
def test_every_kernel_is_read_for_every_architecture(tmp_path, target):
    kernels = gpu_kernels.of_artifact(artifact(small_network(), tmp_path, target))
    assert any("Conv" in name or "b" in name for kernel in kernels for name in kernel.names)
    for kernel in kernels:
        assert 1 <= kernel.registers <= 255 and 1 <= kernel.threads <= 1024 and kernel.blocks >= 1, kernel
        assert 0 < kernel.occupancy <= 1 and kernel.blocks_of_multiprocessor >= 1 and kernel.waves >= 1, kernel
        assert kernel.spills == 0 and kernel.stack_bytes == 0, kernel
        assert kernel.instructions["global load"] > 0 and kernel.instructions["global store"] > 0, kernel
        # Instructions that nobody has put into a class would be missing where somebody counts.
        assert kernel.instructions.get("other", 0) == 0, kernel
    assert any(kernel.instructions.get("f32", 0) > 0 for kernel in kernels)


def test_a_product_is_bound_by_arithmetic_and_a_sum_by_memory(tmp_path):
    weight = np.ones((1024, 1024), np.float32)
    nodes = [("MatMul", ["x", "w"], ["a"]), ("MatMul", ["a", "w"], ["b"]), ("Add", ["x", "b"], ["c"])]
    nodes += [("ReduceMax", ["c"], ["y"], {"axes": [0]})]
    model = model_of(nodes, [value("x", [1024, 1024])], [value("y", [1, 1024])], {"w": weight})
    kernels = {kernel.symbol.partition("_")[0]: kernel for kernel in gpu_kernels.of_artifact(artifact(model, tmp_path))}
    product, maximum = kernels["matmul"], kernels["reduce"]
    assert product.bound == "arithmetic" and maximum.bound == "memory"
    # 2 · 1024³ operations a launch, on 132 multiprocessors of 128 lanes at 1.98 GHz.
    assert product.least_seconds / len(product.names) == pytest.approx(2 * 1024**3 / (132 * 128 * 2 * 1.98e9), rel=0.02)
    assert product.instructions["f32"] > 100 and product.shared_bytes > 0 and product.instructions["shared load"] > 0


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_89", "cuda:sm_90"])
@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_products_of_16_bits_are_made_by_tensor_cores(tmp_path, target, precision):
    for rows, columns, depth in ((1024, 1024, 256), (197, 768, 768), (50, 70, 34)):
        weight = np.ones((depth, columns), np.float32)
        nodes = [("MatMul", ["x", "w"], ["p"]), ("Relu", ["p"], ["y"])]
        model = model_of(nodes, [value("x", [rows, depth])], [value("y", [rows, columns])], {"w": weight})
        path = tmp_path / "net.twa"
        tw.compile(tw.load(model), target=target, precision=precision).save(path)
        (product,) = (kernel for kernel in gpu_kernels.of_artifact(path) if kernel.instructions.get("tensor"))
        assert product.symbol.startswith("matmul"), product
        assert product.spills == 0 and product.stack_bytes == 0 and not product.instructions.get("local"), product
        assert product.instructions.get("shared load", 0) < product.instructions["tensor"] + 12, (
            product
        )  # four matrices each
        if depth % 8 == 0 and columns % 8 == 0:
            assert product.instructions["async copy"] > 3 and not product.instructions.get("global load"), product


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_89", "cuda:sm_90"])
@pytest.mark.parametrize("is_known", [True, False])
def test_products_of_f32_are_made_of_tf32_where_that_is_wanted(tmp_path, target, is_known):
    for rows, columns, depth in ((4096, 4096, 4096), (197, 768, 768), (50, 70, 34)):
        weights = {"w": np.ones((depth, columns), np.float32)} if is_known else {}
        inputs = [value("x", [rows, depth])] + ([] if is_known else [value("w", [depth, columns])])
        nodes = [("MatMul", ["x", "w"], ["p"]), ("Relu", ["p"], ["y"])]
        model = model_of(nodes, inputs, [value("y", [rows, columns])], weights)
        path = tmp_path / "net.twa"
        tw.compile(tw.load(model), target=target, precision="tf32").save(path)
        kernels = gpu_kernels.of_artifact(path)
        (product,) = (kernel for kernel in kernels if kernel.instructions.get("tensor", 0) > 1)
        assert product.symbol.startswith("matmul"), product
        assert product.spills == 0 and product.stack_bytes == 0 and not product.instructions.get("local"), product
        code = Counter(gpu_kernels.disassembly(str(path))[product.symbol])
        assert code["HMMA.1688.F32.TF32"] == product.instructions["tensor"], code
        assert code["LDSM.16.M88.4"] > 0, code
        if rows == 4096:
            assert product.instructions["async copy"] > 3 and not product.instructions.get("global load"), product
            assert code["LDGSTS.E.BYPASS.128"] > 0, code
            # Two operations a term, by tensor cores at half the rate of 16 bits.
            rate = _core.kernel_fit(target, 1, 1, 0)["tensor_flops"] / 2
            assert product.least_seconds == pytest.approx(2 * rows**3 / rate, rel=0.01)


def bottleneck(batch):
    """The stem of a residual network and a block of each kind of its convolutions, down to maps of 7 × 7."""
    rng = np.random.default_rng(0)
    nodes, weights = [], {}

    def convolution(x, name, inputs, filters, window, stride=1, activation=True):
        scale = np.float32(1 / np.sqrt(inputs * window * window))
        weights[f"{name}_w"] = rng.standard_normal((filters, inputs, window, window), np.float32) * scale
        weights[f"{name}_b"] = np.zeros(filters, np.float32)
        attributes = {"strides": [stride] * 2, "pads": [window // 2] * 4}
        nodes.append(("Conv", [x, f"{name}_w", f"{name}_b"], [name], attributes))
        if activation:
            nodes.append(("Relu", [name], [f"{name}_r"]))
        return f"{name}_r" if activation else name

    x = convolution("x", "stem", 3, 64, 7, 2)
    nodes.append(("MaxPool", [x], ["pool"], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}))
    x, channels = "pool", 64
    for width in (64, 512):
        stride = 1 if width == 64 else 8
        y = convolution(x, f"a{width}", channels, width, 1)
        y = convolution(y, f"b{width}", width, width, 3, stride)
        y = convolution(y, f"c{width}", width, 2 * width, 1, activation=False)
        z = convolution(x, f"d{width}", channels, 2 * width, 1, stride, activation=False)
        nodes.extend([("Add", [y, z], [f"e{width}"]), ("Relu", [f"e{width}"], [f"f{width}"])])
        x, channels = f"f{width}", 2 * width
    nodes.append(("GlobalAveragePool", [x], ["y"]))
    return model_of(nodes, [value("x", [batch, 3, 224, 224])], [value("y", [batch, channels, 1, 1])], weights, opset=17)


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_89", "cuda:sm_90"])
@pytest.mark.parametrize("batch", [1, 16])
@pytest.mark.parametrize("precision", ["bf16", "tf32"])
def test_convolutions_are_made_by_tensor_cores(tmp_path, target, batch, precision):
    path = tmp_path / "net.twa"
    model = bottleneck(batch)
    tw.compile(tw.load(model), target=target, precision=precision).save(path)
    kernels = gpu_kernels.of_artifact(path)
    products = [kernel for kernel in kernels if kernel.instructions.get("tensor")]

    def count(convolution, among):
        return sum(name.split("+")[0] == convolution for kernel in among for name in kernel.names)

    for at, node in enumerate(model.graph.node):
        if node.op_type == "Conv":
            assert count(f"Conv_{at}", products) == 1, (at, products)
            assert count(f"Conv_{at}", kernels) <= 2, at  # made in parts, which a kernel adds up
    for kernel in kernels:
        assert kernel.spills == 0 and kernel.stack_bytes == 0 and not kernel.instructions.get("local"), kernel
    for kernel in products:
        if kernel.threads > 32:  # the assembler lets a lone warp wait by loads
            assert kernel.instructions.get("shared load", 0) < kernel.instructions["tensor"] + 20, kernel
        assert kernel.instructions["async copy"] > 3, kernel


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_89", "cuda:sm_90"])
def test_transposed_convolutions_are_made_by_tensor_cores(tmp_path, target):
    weights = {"w": np.random.default_rng(0).standard_normal((64, 64, 4, 4), np.float32) / 32}
    nodes = [("ConvTranspose", ["x", "w"], ["t"], {"strides": [2, 2], "pads": [1] * 4}), ("Relu", ["t"], ["y"])]
    model = model_of(nodes, [value("x", [1, 64, 28, 28])], [value("y", [1, 64, 56, 56])], weights)
    tw.compile(tw.load(model), target=target, precision="bf16").save(tmp_path / "net.twa")
    kernels = gpu_kernels.of_artifact(tmp_path / "net.twa")
    assert sum(bool(kernel.instructions.get("tensor")) for kernel in kernels) == 1, kernels
    # None of them multiplies what lies between the elements of x.
    assert all(kernel.instructions.get("f32", 0) < 100 for kernel in kernels), kernels


@pytest.mark.parametrize("layout", ["BFLOAT16", "FLOAT16"])
def test_large_products_are_made_by_groups_of_warps(tmp_path, monkeypatch, layout):
    monkeypatch.setenv("TW_DUMP", os.fspath(tmp_path / "dump"))
    dtype = getattr(onnx.TensorProto, layout)
    inputs = [onnx.helper.make_tensor_value_info(name, dtype, [2048, 2048]) for name in "ab"]
    output = onnx.helper.make_tensor_value_info("c", dtype, [2048, 2048])
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["a", "b"], ["c"])], "g", inputs, [output])
    path = tmp_path / "net.twa"
    opset = [onnx.helper.make_opsetid("", 20)]
    tw.compile(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), target="cuda:sm_90").save(path)
    (kernel,) = gpu_kernels.of_artifact(path)
    (source,) = (tmp_path / "dump").glob("*.cu")
    assert f" {kernel.symbol}(" in source.read_text()
    assert kernel.spills == 0 and kernel.stack_bytes == 0 and kernel.threads == 256 + 32, kernel
    assert kernel.instructions.get("other", 0) == 0, kernel
    code = gpu_kernels.disassembly(os.fspath(path))[kernel.symbol]
    names = [instruction.partition(".")[0] for instruction in code]
    assert names.count("HGMMA") == 4 and "HMMA" not in names and "LDSM" not in names, names
    # Both operands come as boxes of a tensor, in three groups, for one thread of a warp of its own, which the assembler
    # knows to be one.  All threads meet before they begin; then warps wait for what comes, and one for what is free.
    assert names.count("UTMALDG") == 3 * 5 and "LDGSTS" not in names and "STS" not in names, names
    assert not any("BRA.U.ANY" in instruction for instruction in code), code
    assert names.count("BAR") == 1, names
    # Where the assembler makes products wait for each other, it waits behind each: here in the loop for those of the
    # step before, and behind it.
    waits = [instruction for instruction in code if instruction.startswith("WARPGROUP.DEPBAR")]
    assert len(waits) == 2, waits


OPEN_SIZES = {"batch": tw.Dim("batch", 1, 64), "height": tw.Dim("height", 32, 1024), "width": tw.Dim("width", 32, 1024)}


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90"])
@pytest.mark.parametrize("is_bounded", [False, True])
def test_convolutions_of_open_maps_are_made_by_tensor_cores(tmp_path, target, is_bounded):
    path, model = tmp_path / "net.twa", bottleneck(1)
    dims = [OPEN_SIZES[name] if is_bounded else name for name in OPEN_SIZES]
    opened = tw.load(model, shapes={"x": (dims[0], 3, *dims[1:])})
    tw.compile(opened, target=target, precision="bf16").save(path)
    kernels = gpu_kernels.of_artifact(path)
    products = [kernel for kernel in kernels if kernel.instructions.get("tensor")]
    for at, node in enumerate(model.graph.node):
        if node.op_type == "Conv":
            assert sum(name.split("+")[0] == f"Conv_{at}" for kernel in products for name in kernel.names) == 1, at
    for kernel in kernels:
        assert kernel.spills == 0 and kernel.stack_bytes == 0 and not kernel.instructions.get("local"), kernel
    for kernel in products:
        if kernel.threads > 32:  # the assembler lets a lone warp wait by loads
            assert kernel.instructions.get("shared load", 0) < kernel.instructions["tensor"] + 20, kernel
        if kernel.instructions["barrier"] > 2:  # several steps along what is summed up
            assert kernel.instructions["async copy"] > 3, kernel
        if is_bounded and "Conv_0" not in kernel.names[0].split("+"):  # whose rows are indices that fit into 32 bits
            assert kernel.instructions["integer"] < 800, kernel


@pytest.mark.parametrize("precision", ["bf16", "f16"])
def test_products_of_open_rows_are_made_by_tensor_cores(tmp_path, precision):
    path, weight = tmp_path / "net.twa", np.ones((768, 768), np.float32)
    nodes = [("MatMul", ["x", "w"], ["p"]), ("Relu", ["p"], ["y"])]
    shape = ["batch", "length", 768]
    model = model_of(nodes, [value("x", shape)], [value("y", shape)], {"w": weight})
    tw.compile(tw.load(model), target="cuda:sm_90", precision=precision).save(path)
    (product,) = (kernel for kernel in gpu_kernels.of_artifact(path) if kernel.instructions.get("tensor"))
    assert product.symbol.startswith("matmul"), product
    assert product.spills == 0 and product.stack_bytes == 0 and not product.instructions.get("local"), product
    assert product.instructions["async copy"] > 3 and not product.instructions.get("global load"), product


def quantised(batch, zero):
    """A stem, the convolutions of a block and a product, of bytes."""
    rng = np.random.default_rng(0)
    scales = {"s": np.array(0.02, np.float32), "t": np.array(2, np.float32)}
    nodes, weights = [], scales | {"z": np.array(zero, np.uint8), "zw": np.array(0, np.int8)}

    def convolution(x, name, inputs, filters, window, stride=1):
        weights[f"{name}_w"] = rng.integers(-128, 128, (filters, inputs, window, window)).astype(np.int8)
        weights[f"{name}_b"] = rng.integers(-999, 999, filters).astype(np.int32)
        given = [x, "s", "z", f"{name}_w", "s", "zw", "t", "z", f"{name}_b"]
        nodes.append(("QLinearConv", given, [name], {"strides": [stride] * 2, "pads": [window // 2] * 4}))
        return name

    x = convolution("x", "stem", 3, 128, 7, 2)
    x = convolution(x, "a", 128, 64, 1)
    x = convolution(x, "b", 64, 128, 3, 2)
    x = convolution(x, "c", 128, 256, 1)
    weights["m"] = rng.integers(-128, 128, (768, 3072)).astype(np.int8)
    nodes.append(("QLinearMatMul", ["l", "s", "z", "m", "s", "zw", "t", "z"], ["p"]))
    kind = onnx.TensorProto.UINT8
    return model_of(
        nodes,
        [value("x", [batch, 3, 64, 64], kind), value("l", [batch, 197, 768], kind)],
        [value("c", [batch, 256, 16, 16], kind), value("p", [batch, 197, 3072], kind)],
        weights,
    )


def assert_bytes_are_multiplied(kernel, names):
    """By warps, which ldmatrix gives four matrices each, or by groups of them."""
    by_warps = 0 < names["LDSM"] <= names["IMMA"] and not names["IGMMA"]
    by_groups = names["IGMMA"] > 0 and not names["IMMA"] and not names["LDSM"]
    assert (by_warps or by_groups) and not names["HMMA"], (kernel, names)


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_89", "cuda:sm_90"])
@pytest.mark.parametrize("batch, zero", [(1, 0), (16, 0), (1, 128), (16, 128)])
def test_products_of_bytes_are_made_by_tensor_cores(tmp_path, target, batch, zero):
    path = artifact(quantised(batch, zero), tmp_path, target)
    kernels = gpu_kernels.of_artifact(path)
    code = gpu_kernels.disassembly(str(path))
    products = [kernel for kernel in kernels if kernel.instructions.get("tensor")]
    assert kernels == products and sum(len(kernel.names) for kernel in products) == 5, kernels  # pads are part of them
    for kernel in kernels:
        assert kernel.spills == 0 and kernel.stack_bytes == 0 and not kernel.instructions.get("local"), kernel
    for kernel in products:
        names = Counter(instruction.partition(".")[0] for instruction in code[kernel.symbol])
        assert_bytes_are_multiplied(kernel, names)
        # Of the eight results of a store only those that are near a half.
        assert kernel.instructions.get("f64", 0) <= 8 * kernel.instructions["global store"], kernel
        if not kernel.names[0].startswith("QLinearConv_0"):  # whose three channels lie apart
            assert names["LDGSTS"] + names["UTMALDG"] > 3, (kernel, names)


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90"])
@pytest.mark.parametrize("options", [{}, quantised_models.SYMMETRIC], ids=["unsigned", "symmetric"])
def test_quantised_networks_are_made_of_bytes(tmp_path, target, options):
    model = quantised_models.quantised(quantised_models.residual_network(batch=8), **options)
    kernels = gpu_kernels.of_artifact(artifact(model, tmp_path, target))
    code = gpu_kernels.disassembly(str(tmp_path / "net.twa"))
    products = [kernel for kernel in kernels if kernel.instructions.get("tensor")]
    # Each with what is done to its sums: scales, a bias, what a block adds to it, and rounding.
    assert sum(len(kernel.names) for kernel in products) == 11, kernels
    # Beside them x is quantised, and two pools are.
    assert sum(len(kernel.names) for kernel in kernels) == 14, kernels
    for kernel in kernels:
        assert kernel.spills == 0 and kernel.stack_bytes == 0 and not kernel.instructions.get("local"), kernel
    for kernel in products:
        names = Counter(instruction.partition(".")[0] for instruction in code[kernel.symbol])
        assert_bytes_are_multiplied(kernel, names)
        assert not names["MUFU"] and not names["FRND"] and not kernel.instructions.get("f64"), (kernel, names)
    passes = ["move_codes", "multiply_quantised", "widen_at_loads"]
    of_bytes, of_floats = (tw.compile(tw.load(model), target=target, skip=skip) for skip in ([], passes))
    moved, before = (sum(step["bytes"] for step in e.describe()["steps"]) for e in (of_bytes, of_floats))
    assert moved < before / 3, (moved, before)


def one_operator(operation, length, dtype, rows=4096):
    """Of rows along the last axis; where it has weights, they are ones."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    weights = {"w": np.ones(length, dtype)} if operation == "LayerNormalization" else {}
    attributes = {}
    if operation.startswith("Reduce"):
        attributes = {"axes": [1]}
    elif operation in ("Softmax", "LogSoftmax", "LayerNormalization"):
        attributes = {"axis": -1}
    output = [rows, 1 if operation.startswith("Reduce") else length]
    names = ["x", "z"] if operation == "Add" else ["x"]
    return model_of(
        [(operation, [*names, *weights], ["y"], attributes)],
        [value(name, [rows, length], kind) for name in names],
        [value("y", output, kind)],
        weights,
        opset=20 if operation == "Gelu" else 17,
    )


FEW_INTEGERS = [(op, 1024, dtype) for op in ("Add", "Relu", "Gelu") for dtype in (np.float32, np.float16, BF16)]
FEW_INTEGERS += [("Sigmoid", 1024, np.float32), ("Sigmoid", 1024, np.float16)]
FEW_INTEGERS += [
    (op, length, np.float32)
    for op in ("Softmax", "LogSoftmax", "LayerNormalization", "ReduceMean")
    for length in (128, 1024, 8192)
]


@pytest.mark.parametrize("operation, length, dtype", FEW_INTEGERS)
def test_a_vector_takes_few_instructions_on_integers(tmp_path, operation, length, dtype):
    (kernel,) = gpu_kernels.of_artifact(artifact(one_operator(operation, length, dtype), tmp_path))
    accesses = kernel.instructions["global load"] + kernel.instructions["global store"]
    assert kernel.wide_accesses >= accesses - operation.startswith("Reduce"), kernel
    assert kernel.instructions["integer"] <= 8 * kernel.wide_accesses, kernel


@pytest.mark.parametrize("operation", ["Softmax", "LogSoftmax", "LayerNormalization", "ReduceMean"])
def test_bf16_takes_an_instruction_an_element(tmp_path, operation):
    """A shift or a mask makes f32 of it, on every architecture; of f16 there is a conversion in another class."""
    for length in (128, 1024, 8192):
        halves, brain_floats = (
            gpu_kernels.of_artifact(artifact(one_operator(operation, length, dtype), tmp_path))[0]
            for dtype in (np.float16, BF16)
        )
        vectors = brain_floats.instructions["global load"]
        most = halves.instructions["integer"] + 8 * vectors + 8  # for places
        assert brain_floats.instructions["integer"] <= most, brain_floats


ALIGNED = [(op, 1024, dtype) for op in ("Add", "Relu", "Gelu") for dtype in (np.float32, np.float16, BF16)]
ALIGNED += [
    (op, length, dtype)
    for op in ("Softmax", "LayerNormalization", "ReduceMean")
    for length in (128, 1024, 8192)
    for dtype in (np.float32, np.float16, BF16)
]


@pytest.mark.parametrize("operation, length, dtype", ALIGNED)
def test_warps_touch_the_sectors_that_their_bytes_fill(operation, length, dtype):
    executable = tw.compile(tw.load(one_operator(operation, length, dtype)), target="cuda:sm_90")
    (found,) = executable.memory_requests.values()
    assert found["requests"] >= 3 and found["unknown"] == 0, found
    assert found["sectors"] == found["least_sectors"], found


def test_what_is_not_aligned_takes_more_sectors():
    executable = tw.compile(tw.load(one_operator("Softmax", 1021, np.float32)), target="cuda:sm_90")
    (found,) = executable.memory_requests.values()
    assert found["sectors"] > found["least_sectors"] > 0, found  # each row begins elsewhere in a sector
    nodes = [("Transpose", ["x"], ["t"], {"perm": [1, 0]}), ("Gather", ["t", "i"], ["y"])]
    inputs = [value("x", [64, 64]), value("i", [8], onnx.TensorProto.INT64)]
    executable = tw.compile(tw.load(model_of(nodes, inputs, [value("y", [8, 64])])), target="cuda:sm_90")
    assert sum(found["unknown"] for found in executable.memory_requests.values()) > 0  # places that data says
    assert tw.compile(tw.load(small_network())).memory_requests == {}


ATTENTION = [  # of ViT, BERT, GPT and one query of each of many heads
    (8, 12, 197, 197, 64, None), (1, 12, 128, 128, 64, [1, 1, 1, 128]), (1, 12, 197, 197, 64, None),
    (2, 8, 512, 512, 128, [1, 1, 512, 512]), (4, 16, 1024, 1024, 64, [1, 1, 1024, 1024]), (4, 32, 1, 1000, 128, None),
    (2, 12, 77, 77, 80, None), (4, 16, 512, 512, 32, None), (2, 16, 256, 512, 96, None),
]  # fmt: skip


ATTENTION_TYPES = [(f"cuda:sm_{n}", onnx.TensorProto.FLOAT, "f32") for n in (80, 90)]
ATTENTION_TYPES += [(f"cuda:sm_{n}", onnx.TensorProto.FLOAT, "tf32") for n in (80, 89, 90)]
ATTENTION_TYPES += [(f"cuda:sm_{n}", onnx.TensorProto.BFLOAT16, "f32") for n in (80, 89, 90)]
ATTENTION_TYPES += [(f"cuda:sm_{n}", onnx.TensorProto.FLOAT16, "f32") for n in (80, 90)]


@pytest.mark.parametrize("target, kind, precision", ATTENTION_TYPES)
def test_attention_is_a_kernel_whose_scores_are_in_registers(tmp_path, target, kind, precision):
    for case in ATTENTION:
        on_tensor_cores = kind != onnx.TensorProto.FLOAT or (precision == "tf32" and case[2] > 16)
        # Rows of 128 elements of f32 take half of the little shared memory of sm_89.
        blocks = 1 if (target, precision, case[4]) == ("cuda:sm_89", "tf32", 128) else 2
        (kernel,) = gpu_kernels.of_artifact(artifact(attention_model(*case, kind), tmp_path, target, precision))
        assert kernel.spills == 0 and kernel.stack_bytes == 0 and not kernel.instructions.get("local"), (case, kernel)
        assert kernel.blocks_of_multiprocessor >= blocks, (case, kernel)
        assert bool(kernel.instructions.get("tensor")) == on_tensor_cores, (case, kernel)
        if kernel.instructions.get("tensor"):  # values of rows go into shared memory, and keys that do not come ahead
            of_rows, of_keys = (29, 32) if precision == "tf32" else (21, 16)
            copied_by_threads = 0 if kernel.instructions.get("async copy") else of_keys
            assert kernel.instructions["shared store"] <= of_rows + copied_by_threads, (case, kernel)
            assert kernel.instructions["barrier"] <= 7, (case, kernel)


@pytest.mark.parametrize("kind", [onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16])
def test_attention_of_open_sizes_is_a_kernel(tmp_path, kind):
    cases = [("batch", 12, "length", "length", 64, ["batch", 1, 1, "length"]), ("batch", 12, 128, 128, 64, None)]
    cases += [("batch", 12, "queries", "keys", 64, None), ("batch", 32, 1, "cache", 128, None)]
    for case in cases:
        (kernel,) = gpu_kernels.of_artifact(artifact(attention_model(*case, kind), tmp_path))
        assert kernel.spills == 0 and kernel.stack_bytes == 0 and not kernel.instructions.get("local"), (case, kernel)
        assert bool(kernel.instructions.get("tensor")) == (kind != onnx.TensorProto.FLOAT), (case, kernel)


ROWS = [
    ("Softmax", 45, np.float32), ("Softmax", 128, np.float16), ("Softmax", 1000, np.float32),
    ("Softmax", 8192, np.float32), ("LogSoftmax", 4096, np.float16), ("LayerNormalization", 128, np.float32),
    ("LayerNormalization", 1021, np.float32), ("LayerNormalization", 8192, np.float16),
    ("ReduceMean", 1024, np.float32), ("ReduceMax", 768, np.float16),
]  # fmt: skip


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_89", "cuda:sm_90"])
def test_rows_stay_in_registers(tmp_path, target):
    for operation, length, dtype in ROWS:
        (kernel,) = gpu_kernels.of_artifact(artifact(one_operator(operation, length, dtype), tmp_path, target))
        assert kernel.spills == 0 and kernel.stack_bytes == 0, kernel
        assert 96 <= kernel.threads <= 256, kernel
        accesses = kernel.instructions["global load"] + kernel.instructions["global store"]
        if length * np.dtype(dtype).itemsize % 16 == 0:  # all of the row's
            assert kernel.wide_accesses >= accesses - operation.startswith("Reduce"), kernel


def test_the_sums_of_a_single_tile_stay_in_registers(tmp_path):
    weight = np.ones((32, 64), np.float32)
    model = model_of([("MatMul", ["x", "w"], ["y"])], [value("x", [64, 32])], [value("y", [64, 64])], {"w": weight})
    (kernel,) = gpu_kernels.of_artifact(artifact(model, tmp_path))
    assert kernel.blocks == 1 and kernel.spills == 0 and kernel.stack_bytes == 0, kernel


def test_what_spills_is_compiled_for_fewer_threads(tmp_path):
    """What the assembler of CUDA 13.5 gives 32 and 40 registers, which do not suffice."""
    weights = {"w": np.ones((64, 16, 3, 3), np.float32)}
    nodes = [("Conv", ["x", "w"], ["c"], {"pads": [1] * 4}), ("Relu", ["c"], ["y"])]
    conv = model_of(nodes, [value("x", [1, 16, 55, 55])], [value("y", [1, 64, 55, 55])], weights)
    weights = {name: np.ones(96, np.float32) for name in ("scale", "bias")}
    nodes = [("LayerNormalization", ["x", "scale", "bias"], ["y"])]
    norm = model_of(nodes, [value("x", [1, 3136, 96])], [value("y", [1, 3136, 96])], weights)
    for model in (conv, norm):
        (kernel,) = gpu_kernels.of_artifact(artifact(model, tmp_path))
        assert kernel.spills == 0 and kernel.stack_bytes == 0 and kernel.registers <= 64, kernel


def test_registers_that_do_not_suffice_are_seen(tmp_path):
    """A kernel whose threads have arrays of their own, indexed by variables: they lie in memory."""
    text = 'extern "C" __global__ void f(float* y, const int* at) { float a[64];'
    text += " for (int i = 0; i < at[0]; ++i) a[at[i + 2] & 63] = y[i]; y[0] = a[at[0] & 63]; y[1] = a[at[1] & 63]; }"
    (tmp_path / "f.cubin").write_bytes(_core.compile_cubin(text, 90))
    used = gpu_kernels.resources(str(tmp_path / "f.cubin"))["f"]
    code = gpu_kernels.disassembly(str(tmp_path / "f.cubin"))["f"]
    assert used["STACK"] + used["LOCAL"] >= 256
    assert sum(gpu_kernels.class_of(instruction) == "local" for instruction in code) > 2


def test_commands_show_them(tmp_path):
    onnx.save(small_network(), tmp_path / "net.onnx")
    path = tmp_path / "net.twa"  # by the same compiler as below, which is found once in a process
    assert run_tw("compile", tmp_path / "net.onnx", "-t", "cuda:sm_90").returncode == 0
    kernels = [kernel.to_dict() for kernel in gpu_kernels.of_artifact(path)]
    shown = run_tw("inspect", path)
    assert shown.returncode == 0 and "occupancy" in shown.stdout and kernels[0]["symbol"] in shown.stdout, shown.stderr
    assert json.loads(run_tw("inspect", path, "--json").stdout)["gpu_kernels"] == kernels
    told = run_tw("explain", tmp_path / "net.onnx", "-t", "cuda:sm_90")
    assert told.returncode == 0 and "occupancy" in told.stdout, told.stderr
    plan = json.loads(run_tw("explain", tmp_path / "net.onnx", "-t", "cuda:sm_90", "--json").stdout)
    assert plan["compiled"]["gpu_kernels"] == kernels
    told = run_tw("explain", tmp_path / "net.onnx", "-t", "x86:avx2")
    assert told.returncode == 0 and "kernels" in told.stdout and "occupancy" not in told.stdout


def test_cpus_have_no_such_kernels(tmp_path):
    assert _core.kernel_fit("x86:avx2", 128, 32, 0) is None
    assert gpu_kernels.of_artifact(artifact(small_network(), tmp_path, "x86:avx2")) == []


def test_what_is_not_installed_is_said(tmp_path, monkeypatch):
    path = artifact(small_network(), tmp_path)
    monkeypatch.setattr(gpu_kernels.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(tw.Error, match="TW1301 cuobjdump.*not found\nhelp: pip install nvidia-cuda-cuobjdump"):
        gpu_kernels.of_artifact(path)
    facts = report.artifact_facts(path)  # the rest of it is told all the same
    assert facts["architecture"] == "cuda" and facts["gpu_kernels"] == []
    assert "cuobjdump" in facts["gpu_kernels_problem"]


def test_instructions_are_in_classes():
    for instruction, kind in {
        "FFMA": "f32", "HMMA.16816.F32": "tensor", "HGMMA.64x128x16.F32": "tensor", "LDG.E.128": "global load",
        "STG.E": "global store", "LDGSTS.E.BYPASS.128": "async copy", "LDS.128": "shared load", "LDL.LU": "local",
        "LDSM.16.M88.4": "shared load", "UIADD3": "integer", "IMAD.WIDE.U32": "integer", "MUFU.EX2": "special",
        "SHFL.BFLY": "shuffle", "BAR.SYNC": "barrier", "BRA": "control", "HFMA2.MMA": "f16", "NOSUCH": "other",
    }.items():  # fmt: skip
        assert gpu_kernels.class_of(instruction) == kind, instruction


def test_a_kit_has_the_least_times_of_its_kernels(tmp_path):
    manifest = tw.make_kit(tmp_path / "kit", only=["time-add-f32", "time-relu-bf16", "kernel-softmax-7x33"])
    rows = {case["name"]: case for case in manifest["cases"]}
    assert manifest["unpredicted"] == {} and len(rows) == 3 and "least_seconds" not in rows["kernel-softmax-7x33"]
    for name in ("time-add-f32", "time-relu-bf16"):
        (least,) = rows[name]["least_seconds"].values()
        assert least == pytest.approx(rows[name]["bytes"] / 3.35e12), name


def test_ptx_is_beside_the_machine_code_where_it_is_asked_for(tmp_path):
    plain, both = artifact(small_network(), tmp_path, "cuda:sm_80").read_bytes(), tmp_path / "net.twa"
    artifact(small_network(), tmp_path, "cuda:sm_80+ptx")
    assert b".target sm_80" in both.read_bytes() and b".target sm_" not in plain
    kernels = gpu_kernels.of_artifact(both)
    assert kernels and all(kernel.registers > 0 for kernel in kernels)
