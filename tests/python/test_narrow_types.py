"""Types that are only stored: integers of 4 and 2 bits, floats of 8 bits and fewer, beside ml_dtypes."""

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from conftest import model_of, value

FLOATS = {
    "FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn,
    "FLOAT8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "FLOAT8E5M2": ml_dtypes.float8_e5m2,
    "FLOAT8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "FLOAT4E2M1": ml_dtypes.float4_e2m1fn,
}
INTEGERS = {
    "INT4": ml_dtypes.int4,
    "UINT4": ml_dtypes.uint4,
    "INT2": ml_dtypes.int2,
    "UINT2": ml_dtypes.uint2,
}
TARGETS = ["cpu", "x86:avx2", "x86"]


def model(nodes, inputs, outputs, initializers=(), opset=25):
    def info(name, kind, shape):
        return helper.make_tensor_value_info(name, getattr(TensorProto, kind), shape)

    graph = helper.make_graph(
        nodes, "narrow", [info(*i) for i in inputs], [info(*o) for o in outputs], list(initializers)
    )
    proto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10 if opset < 24 else 13
    )
    onnx.checker.check_model(proto)
    return proto.SerializeToString()


def compiled(data, target="cpu"):
    return tw.compile(tw.load(data), target)


def floats_of_all_kinds(count=30_000):
    """Bits at random, halves of steps, small and large ones, NaN and infinities."""
    random = np.random.default_rng(0)
    bits = random.integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)
    near = (random.standard_normal(count) * np.exp2(random.integers(-20, 17, count))).astype(np.float32)
    ties = np.ldexp(random.integers(-64, 64, count).astype(np.float32), random.integers(-20, 12, count))
    special = np.array([0, -0.0, np.nan, np.inf, -np.inf, 448, 464, 465, 240, 57344, 61440, 6, 2.5], np.float32)
    return np.concatenate([bits, near, ties.astype(np.float32), special])


def assert_same_floats(got, wanted):
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    a, b = got.astype(np.float32), wanted.astype(np.float32)
    assert np.array_equal(np.isnan(a), np.isnan(b))
    numbers = ~np.isnan(a)
    assert np.array_equal(a[numbers], b[numbers]) and np.array_equal(np.signbit(a[numbers]), np.signbit(b[numbers]))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", FLOATS)
def test_floats_become_what_ml_dtypes_makes_of_them(kind, target):
    x = floats_of_all_kinds()
    cast = helper.make_node("Cast", ["x"], ["y"], to=getattr(TensorProto, kind), saturate=0)
    executable = compiled(model([cast], [("x", "FLOAT", [x.size])], [("y", kind, [x.size])]), target)
    got = executable.run({"x": x})["y"]
    if kind == "FLOAT4E2M1":  # has no NaN: they become zeros of any sign
        assert not got[np.isnan(x)].astype(np.float32).any()
        got, x = got[~np.isnan(x)], x[~np.isnan(x)]
    with np.errstate(all="ignore"):
        assert_same_floats(got, x.astype(FLOATS[kind]))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", [*FLOATS, "FLOAT8E8M0"])
def test_every_code_becomes_its_number(kind, target):
    dtype = FLOATS.get(kind, ml_dtypes.float8_e8m0fnu)
    codes = np.arange(16 if kind == "FLOAT4E2M1" else 256, dtype=np.uint8).view(dtype)
    cast = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)
    executable = compiled(model([cast], [("x", kind, [codes.size])], [("y", "FLOAT", [codes.size])]), target)
    assert_same_floats(executable.run({"x": codes})["y"], codes.astype(np.float32))


@pytest.mark.parametrize("kind", [kind for kind in FLOATS if kind != "FLOAT4E2M1"])
def test_saturated_floats_end_at_the_largest(kind):
    x = floats_of_all_kinds()
    cast = helper.make_node("Cast", ["x"], ["y"], to=getattr(TensorProto, kind))
    got = compiled(model([cast], [("x", "FLOAT", [x.size])], [("y", kind, [x.size])])).run({"x": x})["y"]
    most = float(ml_dtypes.finfo(FLOATS[kind]).max)
    with np.errstate(all="ignore"):
        assert_same_floats(got, np.clip(x, -most, most).astype(FLOATS[kind]))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_keep_the_low_bits(kind, target):
    x = np.arange(-300, 300, dtype=np.int32)
    there = helper.make_node("Cast", ["x"], ["y"], to=getattr(TensorProto, kind))
    back = helper.make_node("Cast", ["y"], ["z"], to=TensorProto.INT64)
    executable = compiled(
        model([there, back], [("x", "INT32", [x.size])], [("y", kind, [x.size]), ("z", "INT64", [x.size])]), target
    )
    got = executable.run({"x": x})
    wanted = x.astype(INTEGERS[kind])
    assert got["y"].dtype == wanted.dtype
    assert np.array_equal(got["y"].astype(np.int64), wanted.astype(np.int64))
    assert np.array_equal(got["z"], wanted.astype(np.int64))


@pytest.mark.parametrize("bits", [0x0F, 0xFF])
def test_of_an_integer_that_is_given_the_low_bits_count(bits):
    x = np.full(3, bits, np.uint8).view(ml_dtypes.int4)
    cast = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT32)
    executable = compiled(model([cast], [("x", "INT4", [3])], [("y", "INT32", [3])]))
    assert executable.run({"x": x})["y"].tolist() == [-1, -1, -1]


@pytest.mark.parametrize("kind", [*FLOATS, *INTEGERS])
def test_elements_are_moved(kind):
    """Through reshapes, transposes, slices, pads and branches, as an input and as constants of odd lengths."""
    dtype = FLOATS.get(kind) or INTEGERS[kind]
    number = getattr(TensorProto, kind)
    random = np.random.default_rng(1)
    x, w = (random.integers(-2, 2, (3, 5)).astype(np.float32).astype(dtype) for _ in range(2))
    branches = [
        helper.make_graph(
            [helper.make_node("Identity", [name], [f"r_{name}"])],
            name,
            [],
            [helper.make_tensor_value_info(f"r_{name}", number, [3, 5])],
        )
        for name in ("x", "w")
    ]
    nodes = [
        helper.make_node("If", ["yes"], ["chosen"], then_branch=branches[0], else_branch=branches[1]),
        helper.make_node("Transpose", ["chosen"], ["t"], perm=[1, 0]),
        helper.make_node("Reshape", ["t", "shape"], ["y"]),
    ]
    data = model(
        nodes,
        [("x", kind, [3, 5]), ("yes", "BOOL", [])],
        [("y", kind, [15, 1])],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.array([15, 1]), "shape")],
    )
    executable = compiled(data)
    for yes, chosen in ((True, x), (False, w)):
        got = executable.run({"x": x, "yes": np.array(yes)})["y"]
        assert got.dtype == dtype
        assert np.array_equal(got.astype(np.float32), chosen.T.reshape(15, 1).astype(np.float32))


@pytest.mark.parametrize("block", [16, 32])
def test_weights_of_four_bits(block, tmp_path):
    """A product of blocks of int4 weights, beside ONNX Runtime; inside the model, and packed beside it."""
    random = np.random.default_rng(2)
    k, n = 96, 33
    weight = random.integers(-8, 8, (k, n)).astype(ml_dtypes.int4)
    zero = random.integers(-8, 8, (k // block, n)).astype(ml_dtypes.int4)
    scale = random.uniform(0.01, 0.1, (k // block, n)).astype(np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale", "zero"], ["d"], axis=0, block_size=block),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    arrays = {"w": weight, "scale": scale, "zero": zero}
    data = model(
        nodes,
        [("x", "FLOAT", [5, k])],
        [("y", "FLOAT", [5, n])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
        opset=21,
    )
    x = random.standard_normal((5, k)).astype(np.float32)
    options = onnxruntime.SessionOptions()  # whose optimisations would round x to bytes
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    wanted = onnxruntime.InferenceSession(data, options).run(None, {"x": x})[0]
    np.testing.assert_allclose(compiled(data).run({"x": x})["y"], wanted, rtol=1e-5, atol=1e-5)
    onnx.save(
        onnx.load_from_string(data),
        tmp_path / "m.onnx",
        save_as_external_data=True,
        size_threshold=0,
        location="m.data",
    )
    outside = tw.compile(tw.load(tmp_path / "m.onnx"))
    np.testing.assert_array_equal(outside.run({"x": x})["y"], compiled(data).run({"x": x})["y"])


@pytest.mark.parametrize("zeros", ["", "packed", "floats"])
@pytest.mark.parametrize(("bits", "block", "k"), [(4, 32, 96), (4, 16, 88), (8, 32, 64), (2, 64, 128), (4, 32, 32)])
def test_products_with_packed_weights(bits, block, k, zeros):
    """com.microsoft's MatMulNBits, beside ONNX Runtime in f32, with and without zero points."""
    if bits == 8 and zeros == "floats":
        pytest.skip("not in ONNX Runtime")
    random = np.random.default_rng(3)
    n, blocks = 24, -(-k // block)
    arrays = {
        "b": random.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8),
        "scales": random.uniform(0.01, 0.1, (n, blocks)).astype(np.float32),
    }
    if zeros == "packed":
        arrays["zeros"] = random.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
    elif zeros == "floats":
        arrays["zeros"] = random.uniform(0, 2**bits, (n, blocks)).astype(np.float32)
    node = helper.make_node(
        "MatMulNBits", ["a", *arrays], ["y"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=block
    )
    graph = helper.make_graph(
        [node],
        "narrow",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, ["rows", k])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", n])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    executable = compiled(data)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(data, options)
    for rows in (1, 7):
        a = random.standard_normal((rows, k)).astype(np.float32)
        np.testing.assert_allclose(executable.run({"a": a})["y"], session.run(None, {"a": a})[0], rtol=1e-4, atol=1e-4)


def test_an_artifact_keeps_narrow_types(tmp_path):
    cast = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E5M2)
    executable = compiled(model([cast], [("x", "UINT4", ["n"])], [("y", "FLOAT8E5M2", ["n"])]))
    executable.save(tmp_path / "m.twa")
    again = tw.load_executable(tmp_path / "m.twa")
    assert again.inputs == {"x": "u4[n]"} and again.outputs == {"y": "f8e5m2[n]"}
    x = np.arange(16, dtype=np.uint8).astype(ml_dtypes.uint4)
    got = again.run({"x": x})["y"]
    assert got.dtype == ml_dtypes.float8_e5m2
    assert (
        got.astype(np.float32).tolist()
        == x.astype(np.float32).astype(ml_dtypes.float8_e5m2).astype(np.float32).tolist()
    )
    with pytest.raises(tw.Error, match="u4"):
        again.run({"x": x.astype(np.uint8)})


def test_nothing_is_computed_in_them():
    add = helper.make_node("Max", ["x", "x"], ["y"])
    graph = helper.make_graph(
        [add],
        "narrow",
        [helper.make_tensor_value_info("x", TensorProto.INT4, [3])],
        [helper.make_tensor_value_info("y", TensorProto.INT4, [3])],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]).SerializeToString()
    with pytest.raises(tw.Error, match="nothing is computed in i4"):
        tw.load(data)


@pytest.mark.parametrize("count", [1, 2, 5, 16])
def test_what_is_computed_in_f64_is_rounded_to_f32_before_f16(count):
    """Of a single element, as of many: there is no conversion from f64 to f16 to link with."""
    nodes = [("Asinh", ["x"], ["a"]), ("Cast", ["a"], ["b"], {"to": TensorProto.FLOAT16}), ("Tanh", ["b"], ["y"])]
    model = model_of(nodes, [value("x", [count])], [value("y", [count], TensorProto.FLOAT16)], opset=20)
    x = np.linspace(0.1, 9.4, count).astype(np.float32)
    expected = np.tanh(np.arcsinh(x).astype(np.float16).astype(np.float32)).astype(np.float16)
    np.testing.assert_allclose(tw.compile(model).run({"x": x})["y"], expected, rtol=1e-3)
