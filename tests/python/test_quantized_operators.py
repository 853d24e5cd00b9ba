"""ONNX Runtime's operators on quantised data (com.microsoft), beside ONNX Runtime; models that its quantiser writes."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization

import tilewright as tw

RNG = np.random.default_rng(8)
SCALE, ZERO = np.float32(0.03), np.uint8(120)


def codes(*shape, dtype=np.uint8):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)


def weight_codes(*shape):
    """Of 7 bits: on cores without VNNI ONNX Runtime adds two products in 16 bits, which saturate (its documentation of
    quantization: `reduce_range`)."""
    return RNG.integers(-64, 64, shape).astype(np.int8)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def model_of_node(op, feed, outputs=1, **attributes):
    """A node of com.microsoft: scales, zero points and what has a name with "w" are constants; None is absent."""
    constant = {name for name, a in feed.items() if a is not None and (np.ndim(a) == 0 or name.startswith(("w", "s_")))}
    arrays = {name: np.asarray(array) for name, array in feed.items() if array is not None}
    kinds = {name: numpy_helper.from_array(array).data_type for name, array in arrays.items()}
    inputs = [helper.make_tensor_value_info(n, kinds[n], a.shape) for n, a in arrays.items() if n not in constant]
    results = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(
        op, [name if name in arrays else "" for name in feed], results, domain="com.microsoft", **attributes
    )
    graph = helper.make_graph(
        [node], "g", inputs, [helper.make_value_info(name, onnx.TypeProto()) for name in results],
        [numpy_helper.from_array(arrays[name], name) for name in arrays if name in constant],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return model, {name: array for name, array in arrays.items() if name not in constant}


def check(op, feed, outputs=1, atol=1e-5, **attributes):
    model, given = model_of_node(op, feed, outputs, **attributes)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)
    results = tw.compile(model).run(given)
    for name, wanted in zip(results, expected, strict=True):
        assert results[name].dtype == wanted.dtype
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(results[name], wanted, rtol=1e-4, atol=atol, err_msg=name)
        else:  # its kernels take products of scales, of which a number between two codes may fall to the other side
            apart = np.abs(results[name].astype(int) - wanted.astype(int))
            assert apart.max() <= 1 and np.count_nonzero(apart) <= max(2, 0.02 * apart.size), name


def triple(name, array, scale=SCALE, zero=ZERO):
    return {name: array, f"{name}_scale": np.float32(scale), f"{name}_zero": array.dtype.type(zero)}


RESULT = {"y_scale": np.float32(0.05), "y_zero": np.uint8(100)}


@pytest.mark.parametrize("op", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("shape", [(4, 5, 6), (6,), (5, 1), ()], ids=str)
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_sums_and_products(op, shape, dtype):
    zero = 120 if dtype == np.uint8 else -3
    feed = triple("a", codes(4, 5, 6, dtype=dtype), zero=zero) | triple("b", codes(*shape, dtype=dtype), 0.02, zero)
    check(op, feed | {"y_scale": np.float32(0.05), "y_zero": dtype(zero)})


@pytest.mark.parametrize(
    ("op", "shape", "attributes"),
    [
        ("QLinearSigmoid", (3, 40), {}),
        ("QLinearLeakyRelu", (3, 40), {"alpha": 0.2}),
        ("QLinearSoftmax", (3, 40), {"axis": -1, "opset": 13}),
        ("QLinearSoftmax", (2, 3, 8), {"axis": 1, "opset": 9}),
        ("QLinearAveragePool", (1, 3, 8, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("QLinearGlobalAveragePool", (2, 3, 6, 6), {}),
    ],
)
def test_operators_of_one_input(op, shape, attributes):
    result = {"y_scale": np.float32(1 / 256), "y_zero": np.uint8(0)} if "S" in op[6:] else RESULT
    check(op, triple("x", codes(*shape)) | result, **attributes)


def test_means_and_choices():
    """For QLinearReduceMean ONNX Runtime has no kernel on CPUs."""
    x = codes(2, 3, 8)
    model, given = model_of_node("QLinearReduceMean", triple("x", x) | RESULT, axes=[1], keepdims=0)
    mean = ((x.astype(np.float32) - 120) * SCALE).mean(1)
    expected = np.clip(np.round(mean / RESULT["y_scale"]) + 100, 0, 255)
    assert np.abs(tw.compile(model).run(given)["y0"] - expected).max() <= 1
    condition = RNG.integers(0, 2, (3, 8)).astype(bool)
    check("QLinearWhere", {"c": condition} | triple("a", codes(3, 8)) | triple("b", codes(8), 0.02) | RESULT)


def test_parts_that_are_joined():
    parts = triple("a", codes(2, 3)) | triple("b", codes(2, 5), 0.02, 7) | triple("c", codes(2, 1), 0.1, 0)
    check("QLinearConcat", RESULT | parts, axis=1)


@pytest.mark.parametrize("columns", [False, True], ids=["tensor", "columns"])
@pytest.mark.parametrize("is_float", [False, True])
def test_gemm(columns, is_float):
    scale = RNG.uniform(0.01, 0.03, 7).astype(np.float32) if columns else np.float32(0.02)
    zero = np.zeros(7, np.int8) if columns else np.int8(0)
    feed = triple("a", codes(5, 12)) | {"w": weight_codes(12, 7), "s_w": scale, "s_zero": zero}
    feed |= {"w_c": RNG.integers(-99, 99, 7).astype(np.int32)} | ({} if is_float else RESULT)
    check("QGemm", feed, atol=1e-3)


@pytest.mark.parametrize("bias", [False, True])
def test_products_that_give_floats(bias):
    w = {"w": weight_codes(12, 7), "w_scale": np.float32(0.02)}
    last = floats(7) if bias else None
    check(
        "MatMulIntegerToFloat",
        {"a": codes(2, 5, 12), "w": w["w"], "a_scale": SCALE, "w_scale": w["w_scale"], "a_zero": ZERO,
         "w_zero": np.int8(0), "w_bias": last}, atol=1e-3,
    )  # fmt: skip
    check("DynamicQuantizeMatMul", {"a": floats(2, 5, 12), **w, "w_zero": np.int8(3), "w_bias": last}, atol=1e-3)


@pytest.mark.parametrize("options", [{}, {"unidirectional": 1}])
@pytest.mark.parametrize("mask", [None, np.array([3, 5], np.int32)], ids=["none", "lengths"])
@pytest.mark.parametrize("past", [0, 4])
def test_attention(options, mask, past):
    feed = {"x": codes(2, 5, 12), "w": weight_codes(12, 36), "w_bias": floats(36), "x_scale": SCALE,
            "w_scale": np.float32(0.01), "mask": None if past else mask, "x_zero": ZERO, "w_zero": np.int8(0)}  # fmt: skip # noqa: E501
    if past:
        feed["past"] = floats(2, 2, 3, past, 4)
    check("QAttention", feed, 2 if past else 1, num_heads=3, **options)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("steps", [3, 12], ids=["unrolled", "loop"])
def test_dynamically_quantised_lstm(direction, steps):
    directions, hidden = 2 if direction == "bidirectional" else 1, 8
    scales = RNG.uniform(0.005, 0.01, (2, directions)).astype(np.float32)
    feed = {"x": floats(steps, 1, 6), "w": weight_codes(directions, 6, 4 * hidden),
            "w_r": weight_codes(directions, hidden, 4 * hidden), "w_b": floats(directions, 8 * hidden),
            "lengths": None, "h": floats(directions, 1, hidden), "c": floats(directions, 1, hidden), "p": None,
            "s_w": scales[0], "s_wz": np.zeros(directions, np.int8), "s_r": scales[1],
            "s_rz": np.zeros(directions, np.int8)}  # fmt: skip
    check("DynamicQuantizeLSTM", feed, 3, atol=5e-3, direction=direction, hidden_size=hidden)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances(metric):
    check("CDist", {"a": floats(6, 5), "b": floats(9, 5)}, metric=metric)


@pytest.mark.parametrize("activation", ["Relu", "LeakyRelu", "Clip", "HardSigmoid", "Tanh", "Sigmoid"])
def test_activations_that_are_fused(activation):
    params = {"LeakyRelu": [0.3], "Clip": [-0.5, 0.7], "HardSigmoid": [0.3, 0.4]}.get(activation)
    options = {"activation": activation} | ({"activation_params": params} if params else {})
    feed = {"x": floats(1, 4, 6, 6), "w": floats(5, 4, 3, 3), "w_b": floats(5), "z": floats(1, 5, 6, 6)}
    check("FusedConv", feed, pads=[1, 1, 1, 1], **options)
    alpha = {"activation_alpha": params[0]} if params and activation != "Clip" else {}
    if activation in ("Relu", "LeakyRelu", "Tanh"):
        check("FusedGemm", {"a": floats(3, 5), "w": floats(5, 4), "w_c": floats(4)}, activation=activation, **alpha)


def small_network():
    """A residual block, a pool, and a product."""
    weights = {"w0": floats(8, 3, 3, 3) / 5, "w1": floats(8, 8, 3, 3) / 8, "w2": floats(8, 10) / 3, "b2": floats(10)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["b", "c"], ["d"]),
        helper.make_node("Sigmoid", ["d"], ["e"]),
        helper.make_node("Concat", ["d", "e"], ["f"], axis=2),
        helper.make_node("GlobalAveragePool", ["f"], ["g"]),
        helper.make_node("Flatten", ["g"], ["h"]),
        helper.make_node("Gemm", ["h", "w2", "b2"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 12, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


class Samples(quantization.CalibrationDataReader):
    def __init__(self):
        self.left = [{"x": floats(1, 3, 12, 12)} for _ in range(8)]

    def get_next(self):
        return self.left.pop() if self.left else None


ACTIVATIONS = [quantization.QuantType.QInt8, quantization.QuantType.QUInt8]
FORMS = [quantization.QuantFormat.QOperator, quantization.QuantFormat.QDQ]


def quantised_network(form, activations, folder):
    """The network, an input, ONNX Runtime's result, and a step of it."""
    onnx.save(small_network(), folder / "plain.onnx")
    quantization.quantize_static(
        folder / "plain.onnx", folder / "q.onnx", Samples(), quant_format=form, activation_type=activations
    )
    model = onnx.load(folder / "q.onnx")
    if form == quantization.QuantFormat.QOperator:
        assert {"QLinearAdd", "QLinearSigmoid", "QGemm", "QLinearConcat"} <= {node.op_type for node in model.graph.node}
    x = {"x": floats(1, 3, 12, 12)}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    step = max(float(a) for i in model.graph.initializer if i.name.endswith("_scale") and "y" in i.name
               for a in numpy_helper.to_array(i).reshape(-1))  # fmt: skip
    return model, x, session.run(None, x)[0], step


@pytest.mark.parametrize("activations", ACTIVATIONS, ids=str)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_network_that_the_quantiser_made(form, activations, tmp_path):
    model, x, expected, step = quantised_network(form, activations, tmp_path)
    np.testing.assert_allclose(tw.compile(model).run(x)["y"], expected, atol=2 * step)


def test_what_is_missing_is_refused():
    for op, feed, attributes, why in (
        ("QLinearAveragePool", triple("x", codes(1, 8, 8, 3)) | RESULT, {"kernel_shape": [2, 2], "channels_last": 1},
         "channels_last"),
        ("QLinearSoftmax", triple("x", codes(1, 8)) | RESULT, {"opset": 0}, "opset=0"),
        ("FusedConv", {"x": floats(1, 4, 6, 6), "w": floats(5, 4, 3, 3)}, {"activation": "Mish"}, "Mish"),
        ("CDist", {"a": floats(6, 5), "b": floats(9, 5)}, {"metric": "cosine"}, "cosine"),
    ):  # fmt: skip
        with pytest.raises(tw.Error, match=f"(?s)TW1003.*{why}"):
            tw.load(model_of_node(op, feed, **attributes)[0])
