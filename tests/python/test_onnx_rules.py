"""What rules of ONNX's operators once did otherwise than defined, or refused: found by changing models of its suite."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw


def model(op, feed, kinds, constants=(), opset=18, **attributes):
    """One node: its inputs are the feed and the constants, in this order, its outputs are of these types."""
    names = [*feed, *dict(constants)]
    node = helper.make_node(op, names, [f"y{i}" for i in range(len(kinds))], **attributes)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feed.items()
    ]
    outputs = [helper.make_tensor_value_info(f"y{i}", kind, None) for i, kind in enumerate(kinds)]
    tensors = [numpy_helper.from_array(a, n) for n, a in dict(constants).items()]
    graph = helper.make_graph([node], "g", infos, outputs, initializer=tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def run(*arguments, **options):
    made = model(*arguments, **options)
    return list(tw.compile(tw.load(made)).run(arguments[1]).values())


def floats(*shape, dtype=np.float32):
    return np.random.default_rng(1).standard_normal(shape).astype(dtype)


def test_statistics_of_a_normalization_are_f32():
    feed = {"x": floats(3, 5, dtype=np.float64), "scale": np.ones(5)}
    y, mean, deviation = run("LayerNormalization", feed, [TensorProto.DOUBLE, TensorProto.FLOAT, TensorProto.FLOAT])
    assert y.dtype == np.float64 and mean.dtype == deviation.dtype == np.float32
    np.testing.assert_allclose(mean, feed["x"].mean(1, keepdims=True), rtol=1e-5, atol=1e-7)
