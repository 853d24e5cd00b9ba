"""One compiled model at every size of its open dimensions: against ONNX's reference evaluator, and against the same
model compiled for that size."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import tilewright as tw
from conftest import INT64, model_of, run_tw, value

SIZES = [1, 2, 3, 5, 13, 16, 31, 64]


def random(rng, shape, dtype=np.float32):
    if np.dtype(dtype).kind == "i":
        return rng.integers(0, 7, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def check(model, shape_of, sizes=SIZES, shapes=None, dtypes=None, tolerance=1e-4):
    """`shape_of`(size): name → shape of each input."""
    executable = tw.compile(model, shapes=shapes)
    reference = ReferenceEvaluator(model)
    for size in sizes:
        rng = np.random.default_rng(size)
        feed = {
            name: random(rng, shape, (dtypes or {}).get(name, np.float32)) for name, shape in shape_of(size).items()
        }
        for array, wanted in zip(executable.run(feed).values(), reference.run(None, feed), strict=True):
            assert array.shape == wanted.shape
            np.testing.assert_allclose(array, wanted, rtol=tolerance, atol=tolerance, err_msg=f"size {size}")
    return executable


def weights(*shape, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)


OPERATORS = {
    "elementwise": ([("Tanh", ["x"], ["a"]), ("Mul", ["a", "x"], ["y"])], ["n", 5, 7], {}),
    "bias": ([("Add", ["x", "b"], ["y"])], ["n", 19], {"b": weights(19)}),
    "dense": ([("Gemm", ["x", "w", "b"], ["y"])], ["n", 33], {"w": weights(33, 50), "b": weights(50)}),
    "dense with activation": (
        [("MatMul", ["x", "w"], ["a"]), ("Add", ["a", "b"], ["c"]), ("Relu", ["c"], ["y"])],
        ["n", 64],
        {"w": weights(64, 70), "b": weights(70)},
    ),
    "dense, open inner rows": (
        [("MatMul", ["x", "w"], ["a"]), ("Transpose", ["a"], ["b"], {"perm": [1, 0, 2]}), ("Relu", ["b"], ["y"])],
        [8, "n", 64],
        {"w": weights(64, 70)},
    ),
    "one column": ([("MatMul", ["x", "w"], ["y"])], ["n", 40], {"w": weights(40, 1)}),
    "batch of products": ([("MatMul", ["x", "w"], ["y"])], ["n", 6, 24], {"w": weights(24, 20)}),
    "conv": (
        [("Conv", ["x", "w"], ["y"], {"pads": [1, 1, 1, 1]})],
        ["n", 3, 9, 11],
        {"w": weights(20, 3, 3, 3)},
    ),
    "conv, strides": (
        [("Conv", ["x", "w", "b"], ["a"], {"strides": [2, 2], "pads": [1, 1, 1, 1]}), ("Relu", ["a"], ["y"])],
        ["n", 32, 14, 14],
        {"w": weights(48, 32, 3, 3), "b": weights(48)},
    ),
    "conv 1x1": ([("Conv", ["x", "w"], ["y"])], ["n", 32, 7, 7], {"w": weights(64, 32, 1, 1)}),
    "conv 1x1, blocks of rows": ([("Conv", ["x", "w"], ["y"])], ["n", 256, 28, 28], {"w": weights(128, 256, 1, 1)}),
    "winograd": (
        [("Conv", ["x", "w"], ["a"], {"pads": [1, 1, 1, 1]}), ("Relu", ["a"], ["y"])],
        ["n", 64, 14, 14],
        {"w": weights(64, 64, 3, 3)},
    ),
    "depthwise": (
        [("Conv", ["x", "w"], ["y"], {"group": 32, "pads": [1, 1, 1, 1]})],
        ["n", 32, 12, 12],
        {"w": weights(32, 1, 3, 3)},
    ),
    "grouped": (
        [("Conv", ["x", "w"], ["y"], {"group": 4, "pads": [1, 1, 1, 1]})],
        ["n", 64, 8, 8],
        {"w": weights(64, 16, 3, 3)},
    ),
    "max pool": ([("MaxPool", ["x"], ["y"], {"kernel_shape": [3, 3], "strides": [2, 2]})], ["n", 16, 13, 13], {}),
    "average pool": (
        [("AveragePool", ["x"], ["y"], {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1]})],
        ["n", 5, 8, 8],
        {},
    ),
    "global average pool": ([("GlobalAveragePool", ["x"], ["y"])], ["n", 32, 7, 7], {}),
    "flatten": ([("Flatten", ["x"], ["y"])], ["n", 3, 4, 5], {}),
    "softmax": ([("Softmax", ["x"], ["y"], {"axis": -1})], ["n", 4, 50], {}),
    "softmax over an open axis": ([("Softmax", ["x"], ["y"], {"axis": -1})], [3, 4, "n"], {}),
    "softmax over the batch": ([("Softmax", ["x"], ["y"], {"axis": 0})], ["n", 6], {}),
    "layer norm": (
        [("LayerNormalization", ["x", "s", "b"], ["y"], {"axis": -1})],
        ["n", 5, 48],
        {"s": weights(48), "b": weights(48, seed=1)},
    ),
    "sum of rows": ([("ReduceSum", ["x", "axes"], ["y"])], ["n", 40], {"axes": np.array([1])}),
    "sum over the batch": ([("ReduceSum", ["x", "axes"], ["y"])], ["n", 40], {"axes": np.array([0])}),
    "mean of an open row": ([("ReduceMean", ["x"], ["y"], {"axes": [1]})], [4, "n"], {}),
    "largest of all": ([("ReduceMax", ["x"], ["y"], {"keepdims": 0})], ["n", 5], {}),
    "transpose": ([("Transpose", ["x"], ["y"], {"perm": [1, 0, 2]})], ["n", 5, 6], {}),
    "concat": ([("Concat", ["x", "x"], ["y"], {"axis": 1})], ["n", 5, 6], {}),
    "concat of open axes": ([("Concat", ["x", "x", "c"], ["y"], {"axis": 0})], ["n", 6], {"c": weights(3, 6)}),
    "slice": (
        [("Slice", ["x", "b", "e", "a"], ["y"])],
        ["n", 10, 3],
        {"b": np.array([2]), "e": np.array([8]), "a": np.array([1])},
    ),
    "pad": ([("Pad", ["x", "p"], ["y"])], ["n", 6], {"p": np.array([1, 0, 2, 3])}),
    "first row": ([("Gather", ["x", "i"], ["y"], {"axis": 0})], ["n", 6], {"i": np.array(0)}),
    "last row": ([("Gather", ["x", "i"], ["y"], {"axis": 0})], ["n", 6], {"i": np.array(-1)}),
    "reshape with -1": ([("Reshape", ["x", "s"], ["y"])], ["n", 6, 4], {"s": np.array([-1, 8])}),
    "conv 1x1 over an open map": ([("Conv", ["x", "w"], ["y"])], [1, 16, "n", "n"], {"w": weights(24, 16, 1, 1)}),
    "conv, same pads": (
        [("Conv", ["x", "w"], ["y"], {"auto_pad": "SAME_UPPER"})],
        [2, 8, "n", "n"],
        {"w": weights(16, 8, 3, 3)},
    ),
    "conv, same pads, strides": (
        [("Conv", ["x", "w"], ["y"], {"auto_pad": "SAME_LOWER", "strides": [2, 3]})],
        [2, 8, "n", "n"],
        {"w": weights(16, 8, 3, 3)},
    ),
    "max pool, same pads": (
        [("MaxPool", ["x"], ["y"], {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"})],
        [1, 4, "n", "n"],
        {},
    ),
    "max pool, rounded up": (
        [("MaxPool", ["x"], ["y"], {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1})],
        [1, 4, "n", "n"],
        {},
    ),
    "resize by 2": (
        [("Resize", ["x", "", "s"], ["y"], {"mode": "nearest", "coordinate_transformation_mode": "asymmetric"})],
        ["n", 3, "n", 4],
        {"s": np.array([1, 1, 2, 2], np.float32)},
    ),
    "resize by 1.5, linear": (
        [("Resize", ["x", "", "s"], ["y"], {"mode": "linear"})],
        ["n", 3, "n", 4],
        {"s": np.array([1, 1, 1.5, 1], np.float32)},
    ),
    "resize to 8, linear": (
        [("Resize", ["x", "", "", "s"], ["y"], {"mode": "linear", "coordinate_transformation_mode": "align_corners"})],
        [1, 1, "n", 4],
        {"s": np.array([1, 1, 8, 8])},
    ),
    "resize to 9, cubic": (
        [("Resize", ["x", "", "", "s"], ["y"], {"mode": "cubic", "exclude_outside": 1})],
        [1, 2, "n", "n"],
        {"s": np.array([1, 2, 9, 9])},
    ),
    "positions": (
        [
            ("Shape", ["x"], ["shape"]),
            ("Gather", ["shape", "0"], ["n"]),
            ("Range", ["0", "n", "2"], ["even"]),
            ("Cast", ["even"], ["y"], {"to": 1}),
        ],
        ["n", 3],
        {"0": np.array(0), "2": np.array(2)},
    ),
    "anchors": (
        [
            ("Shape", ["x"], ["shape"]),
            ("Gather", ["shape", "0"], ["n"]),
            ("Cast", ["n"], ["f"], {"to": 1}),
            ("Range", ["start", "f", "step"], ["y"]),
        ],
        ["n", 3],
        {"0": np.array(0), "start": np.array(0.25, np.float32), "step": np.array(0.5, np.float32)},
    ),
    "transposed conv over an open map": (
        [("ConvTranspose", ["x", "w"], ["y"], {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]})],
        ["n", 4, "n", 5],
        {"w": weights(4, 6, 3, 3)},
    ),
    "pads that a model computes with floats": (
        [
            ("Shape", ["x"], ["shape"]),
            ("Slice", ["shape", "2", "4"], ["map"]),
            ("Cast", ["map"], ["f"], {"to": 1}),
            ("Div", ["f", "f2"], ["half"]),
            ("Ceil", ["half"], ["up"]),
            ("Mul", ["up", "f2"], ["even"]),
            ("Sub", ["even", "f"], ["odd"]),
            ("Clip", ["odd", "f0"], ["more"]),
            ("Cast", ["more"], ["after"], {"to": 7}),
            ("Concat", ["none", "after"], ["pads"], {"axis": 0}),
            ("Pad", ["x", "pads"], ["y"]),
        ],
        [1, 2, "n", "n"],
        {
            "2": np.array([2]),
            "4": np.array([4]),
            "f2": np.array([2], np.float32),
            "f0": np.array(0, np.float32),
            "none": np.zeros(6, np.int64),
        },
    ),
    "reshape with 0": ([("Reshape", ["x", "s"], ["y"])], ["n", 6, 4], {"s": np.array([0, 2, 12])}),
    "instance norm": (
        [("InstanceNormalization", ["x", "s", "b"], ["y"])],
        ["n", 6, "n", 5],
        {"s": weights(6), "b": weights(6, seed=1)},
    ),
    "local response norm": ([("LRN", ["x"], ["y"], {"size": 3})], ["n", "n", 3, "n"], {}),
    "one of an open row": ([("Hardmax", ["x"], ["y"], {"axis": -1})], [3, "n"], {}),
    "one of the batch": ([("Hardmax", ["x"], ["y"], {"axis": 0})], ["n", 3], {}),
    "depth to space": ([("DepthToSpace", ["x"], ["y"], {"blocksize": 2})], ["n", 8, "n", 3], {}),
    "columns, rows, depth to space": (
        [("DepthToSpace", ["x"], ["y"], {"blocksize": 3, "mode": "CRD"})],
        [1, 9, "n", "n"],
        {},
    ),
    "lower triangle": ([("Trilu", ["x"], ["y"], {"upper": 0})], [2, "n", "n"], {}),
    "upper triangle": ([("Trilu", ["x", "k"], ["y"])], ["n", 5], {"k": np.array(-1)}),
    "identity": ([("EyeLike", ["x"], ["y"], {"k": 1})], ["n", 7], {}),
    "chosen columns": ([("Compress", ["x", "c"], ["y"], {"axis": 1})], ["n", 3], {"c": np.array([True, False, True])}),
    "middle of rows": ([("CenterCropPad", ["x", "s"], ["y"], {"axes": [1]})], ["n", 9], {"s": np.array([4])}),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operator(name):
    nodes, shape, constants = OPERATORS[name]
    opset = {"mean of an open row": 13, "middle of rows": 18}.get(name, 17)
    model = model_of(nodes, [value("x", shape)], [value("y", None)], constants, opset)
    tolerance = 1e-3 if name == "winograd" else 1e-4
    check(model, lambda size: {"x": [size if dim == "n" else dim for dim in shape]}, tolerance=tolerance)


@pytest.mark.parametrize("precision", ["bf16", "f16"])
@pytest.mark.parametrize("name", ["dense with activation", "dense, open inner rows", "conv, strides", "conv 1x1"])
def test_in_16_bits(name, precision):
    """bf16 keeps 8 bits: the bound is that of four roundings of the largest value."""
    nodes, shape, constants = OPERATORS[name]
    model = model_of(nodes, [value("x", shape)], [value("y", None)], constants)
    executable = tw.compile(model, precision=precision)
    reference = ReferenceEvaluator(model)
    for size in SIZES:
        x = random(np.random.default_rng(size), [size if dim == "n" else dim for dim in shape])
        wanted = reference.run(None, {"x": x})[0]
        np.testing.assert_allclose(executable.run({"x": x})["y"], wanted, rtol=0, atol=2**-6 * np.abs(wanted).max())


def test_embedding():
    model = model_of(
        [("Gather", ["table", "x"], ["a"]), ("Add", ["a", "p"], ["y"])],
        [value("x", ["batch", 9], INT64)],
        [value("y", ["batch", 9, 12])],
        {"table": weights(7, 12), "p": weights(9, 12)},
    )
    check(model, lambda size: {"x": [size, 9]}, dtypes={"x": np.int64})


def test_one_hot():
    model = model_of(
        [("OneHot", ["x", "depth", "values"], ["y"], {"axis": 1})],
        [value("x", ["batch", "n"], INT64)],
        [value("y", None)],
        {"depth": np.array(7), "values": np.array([-1, 2], np.float32)},
    )
    check(model, lambda size: {"x": [size, 3]}, dtypes={"x": np.int64})


def test_loss_over_an_open_batch():
    model = model_of(
        [("NegativeLogLikelihoodLoss", ["x", "t"], ["y"], {"reduction": "mean"})],
        [value("x", ["batch", 7, "n"]), value("t", ["batch", "n"], INT64)],
        [value("y", None)],
    )
    check(model, lambda size: {"x": [size, 7, 3], "t": [size, 3]}, dtypes={"t": np.int64})


def test_space_to_depth_of_an_open_map():
    model = model_of(
        [("SpaceToDepth", ["x"], ["y"], {"blocksize": 2})], [value("x", [1, 3, "h", "w"])], [value("y", None)]
    )
    executable = check(model, lambda size: {"x": [1, 3, size, 6]}, [2, 4, 10])
    with pytest.raises(tw.Error, match=r"TW1101 (.|\n)*SpaceToDepth"):
        executable.run({"x": zeros(1, 3, 5, 6)})


# What exporters leave of x.view(batch, -1, 4, 6).transpose(1, 2) and back.
def test_shapes_that_a_model_computes_with():
    ints = {"i0": 0, "i1": 1}
    model = model_of(
        [
            ("Shape", ["x"], ["shape"]),
            ("Gather", ["shape", "i0"], ["b"]),
            ("Gather", ["shape", "i1"], ["s"]),
            ("Unsqueeze", ["b", "zero"], ["b1"]),
            ("Unsqueeze", ["s", "zero"], ["s1"]),
            ("Concat", ["b1", "s1", "four", "six"], ["split"], {"axis": 0}),
            ("Reshape", ["x", "split"], ["heads"]),
            ("Transpose", ["heads"], ["t"], {"perm": [0, 2, 1, 3]}),
            ("Tanh", ["t"], ["u"]),
            ("Transpose", ["u"], ["v"], {"perm": [0, 2, 1, 3]}),
            ("Mul", ["b", "s"], ["rows"]),
            ("Unsqueeze", ["rows", "zero"], ["rows1"]),
            ("Concat", ["rows1", "minus"], ["flat"], {"axis": 0}),
            ("Reshape", ["v", "flat"], ["y"]),
        ],
        [value("x", ["batch", "sequence", 24])],
        [value("y", None)],
        {
            **{k: np.array(v) for k, v in ints.items()},
            "zero": np.array([0]),
            "four": np.array([4]),
            "six": np.array([6]),
            "minus": np.array([-1]),
        },
    )
    check(model, lambda size: {"x": [size, 2 * size + 1, 24]}, [1, 2, 7])


def test_position_table_is_cut_to_the_sequence():
    model = model_of(
        [
            ("Shape", ["x"], ["shape"]),
            ("Gather", ["shape", "one"], ["s"]),
            ("Slice", ["table", "zero", "s", "zero"], ["positions"]),
            ("Add", ["x", "positions"], ["y"]),
        ],
        [value("x", ["batch", "sequence", 8])],
        [value("y", None)],
        {"table": weights(20, 8), "one": np.array([1]), "zero": np.array([0])},
    )
    shapes = {"x": ("batch", tw.Dim("sequence", 1, 20), 8)}
    check(model, lambda size: {"x": [3, size, 8]}, [1, 7, 20], shapes)


def attention(heads=4, size=16):
    """Self-attention over [batch, sequence, heads * size], with a mask of keys."""
    width = heads * size
    nodes, constants = [], {}
    for name in "qkv":
        constants[f"w{name}"] = weights(width, width, seed=ord(name))
        nodes += [
            ("MatMul", ["x", f"w{name}"], [f"{name}0"]),
            ("Reshape", [f"{name}0", "split"], [f"{name}1"]),
            ("Transpose", [f"{name}1"], [f"{name}2"], {"perm": [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]}),
        ]
    nodes += [
        ("MatMul", ["q2", "k2"], ["scores"]),
        ("Div", ["scores", "root"], ["scaled"]),
        ("Unsqueeze", ["mask", "axes"], ["wide"]),
        ("Add", ["scaled", "wide"], ["masked"]),
        ("Softmax", ["masked"], ["p"], {"axis": -1}),
        ("MatMul", ["p", "v2"], ["mixed"]),
        ("Transpose", ["mixed"], ["back"], {"perm": [0, 2, 1, 3]}),
        ("Reshape", ["back", "join"], ["joined"]),
        ("MatMul", ["joined", "wo"], ["o"]),
        ("Add", ["o", "x"], ["sum"]),
        ("LayerNormalization", ["sum", "scale", "bias"], ["y"], {"axis": -1}),
    ]
    constants |= {
        "split": np.array([0, 0, heads, size]),
        "join": np.array([0, 0, width]),
        "root": np.float32(np.sqrt(size)),
        "axes": np.array([1, 2]),
        "wo": weights(width, width, seed=1),
        "scale": weights(width, seed=2),
        "bias": weights(width, seed=3),
    }
    inputs = [value("x", ["batch", "sequence", width]), value("mask", ["batch", "sequence"])]
    return model_of(nodes, inputs, [value("y", ["batch", "sequence", width])], constants)


def test_attention_of_open_batch_and_sequence():
    executable = check(
        attention(),
        lambda size: {"x": [1 + size % 3, size, 64], "mask": [1 + size % 3, size]},
        [1, 2, 15, 16, 17, 37, 64, 101],
    )
    assert executable.dimensions == {"batch": (1, None), "sequence": (1, None)}
    assert executable.inputs["x"] == executable.outputs["y"] == "f32[batch,sequence,64]"


def test_as_compiled_for_each_size():
    model = attention()
    executable = tw.compile(model, shapes={"x": (tw.Dim("batch", 1, 4), tw.Dim("sequence", 1, 64), 64)})
    rng = np.random.default_rng(0)
    for batch, sequence in [(1, 1), (4, 64), (2, 31), (1, 64), (3, 5), (2, 31)]:
        feed = {"x": random(rng, (batch, sequence, 64)), "mask": random(rng, (batch, sequence))}
        fixed = tw.compile(model, shapes={"x": (batch, sequence, 64), "mask": (batch, sequence)}).run(feed)
        np.testing.assert_allclose(executable.run(feed)["y"], fixed["y"], rtol=1e-4, atol=1e-5)


def test_saved_and_loaded(tmp_path):
    executable = tw.compile(attention(), shapes={"x": (tw.Dim("batch", 1, 8), "sequence", 64)})
    executable.save(tmp_path / "m.twa")
    loaded = tw.load_executable(tmp_path / "m.twa")
    assert loaded.dimensions == executable.dimensions == {"batch": (1, 8), "sequence": (1, None)}
    rng = np.random.default_rng(0)
    feed = {"x": random(rng, (2, 19, 64)), "mask": random(rng, (2, 19))}
    np.testing.assert_array_equal(loaded.run(feed)["y"], executable.run(feed)["y"])
    shown = run_tw("inspect", tmp_path / "m.twa").stdout
    assert "batch: 1 to 8" in shown and "f32[batch,sequence,64]" in shown
    ran = run_tw("run", tmp_path / "m.twa", "--size", "batch=3", "--size", "sequence=7").stdout
    assert "[3, 7, 64]" in ran


def two_inputs():
    return model_of([("Add", ["a", "b"], ["y"])], [value("a", ["n", 4]), value("b", ["n", 4])], [value("y", ["n", 4])])


def zeros(*shape):
    return np.zeros(shape, np.float32)


def test_sizes_that_disagree():
    executable = tw.compile(two_inputs())
    with pytest.raises(tw.Error, match=r"TW1101 'n' is 3 as dimension 0 of input 'a', but 5 as dimension 0"):
        executable.run({"a": zeros(3, 4), "b": zeros(5, 4)})


def test_sizes_out_of_bounds():
    executable = tw.compile(two_inputs(), shapes={"a": (tw.Dim("n", 2, 8), 4)})
    for size in (1, 9):
        with pytest.raises(tw.Error, match=rf"TW1101 'n', .* is {size}, but the model was compiled for 2 to 8"):
            executable.run({"a": zeros(size, 4), "b": zeros(size, 4)})


def test_fixed_dimensions_are_still_checked():
    executable = tw.compile(two_inputs())
    with pytest.raises(tw.Error, match="TW1101"):
        executable.run({"a": zeros(3, 5), "b": zeros(3, 5)})
    with pytest.raises(tw.Error, match="TW1101"):
        executable.run({"a": zeros(3), "b": zeros(3)})


def test_names_join_dimensions():
    model = model_of(
        [("MatMul", ["a", "b"], ["y"])], [value("a", ["p", 4]), value("b", [4, "q"])], [value("y", ["p", "q"])]
    )
    executable = tw.compile(model, shapes={"a": ("n", 4), "b": (4, "n")})
    assert executable.outputs == {"y": "f32[n,n]"}
    assert executable.run({"a": zeros(3, 4), "b": zeros(4, 3)})["y"].shape == (3, 3)
    with pytest.raises(tw.Error, match="TW1101 'n' is 3"):
        executable.run({"a": zeros(3, 4), "b": zeros(4, 2)})


def test_what_cannot_be_open_is_refused_with_its_cause():
    inputs = [value("x", [1, 3, 8, 8]), value("w", [4, 3, "height", 3])]
    model = model_of([("Conv", ["x", "w"], ["y"])], inputs, [value("y", None)])
    with pytest.raises(tw.Error, match="Conv(.|\n)*height"):
        tw.load(model)


def positions_up_to(most):
    """x, of any length, plus the first rows of a table with `most`."""
    return model_of(
        [
            ("Shape", ["x"], ["shape"]),
            ("Gather", ["shape", "one"], ["s"]),
            ("Slice", ["table", "zero", "s", "zero"], ["positions"]),
            ("Add", ["x", "positions"], ["y"], {}),
        ],
        [value("x", ["batch", "sequence", 8])],
        [value("y", None)],
        {"table": weights(most, 8), "one": np.array([1]), "zero": np.array([0])},
    )


def test_a_table_bounds_the_sequence():
    model = positions_up_to(20)
    executable = check(model, lambda size: {"x": [3, size, 8]}, [1, 7, 20])
    assert executable.dimensions == {"batch": (1, None), "sequence": (1, 20)}
    with pytest.raises(tw.Error, match=r"TW1101 'sequence', .* is 21, .* 1 to 20, as node `\w*` \(Add\) demands"):
        executable.run({"x": zeros(3, 21, 8)})
    assert "`sequence` is 1..20, as node" in tw.load(model).explain()


def test_a_slice_needs_what_it_leaves_out():
    model = model_of(
        [("AveragePool", ["x"], ["a"], {"kernel_shape": [2], "strides": [2]}), ("Slice", ["a", "b", "e", "c"], ["y"])],
        [value("x", [1, 3, "n"])],
        [value("y", None)],
        {"b": np.array([2]), "e": np.array([2**63 - 1]), "c": np.array([2])},
    )
    executable = check(model, lambda size: {"x": [1, 3, size]}, [6, 7, 31])
    assert executable.dimensions == {"n": (4, None)}
    with pytest.raises(tw.Error, match=r"TW1101 'n', .* is 3, .* 4 or more, as node `\w*` \(Slice\) demands"):
        executable.run({"x": zeros(1, 3, 3)})


def test_a_squeezed_dimension_is_one():
    model = model_of(
        [("MaxPool", ["x"], ["a"], {"kernel_shape": [4, 1], "strides": [4, 1]}), ("Squeeze", ["a", "axes"], ["y"])],
        [value("x", [1, 3, "height", "width"])],
        [value("y", None)],
        {"axes": np.array([2])},
    )
    executable = check(model, lambda size: {"x": [1, 3, 6, size]}, [1, 5, 20])
    assert executable.dimensions == {"height": (4, 7), "width": (1, None)}


def test_added_inputs_have_the_same_batch(tmp_path):
    model = model_of(
        [("Add", ["a", "b"], ["y"])], [value("a", ["batch", 4]), value("b", ["b_batch", 4])], [value("y", None)]
    )
    executable = check(model, lambda size: {"a": [size, 4], "b": [size, 4]})
    assert executable.dimensions == {"batch": (1, None)}
    executable.save(tmp_path / "m.twa")
    for runs in (executable, tw.load_executable(tmp_path / "m.twa")):
        with pytest.raises(tw.Error, match="TW1101 'batch' is 3 as dimension 0 of input 'a', but 2"):
            runs.run({"a": zeros(3, 4), "b": zeros(2, 4)})


def test_a_mask_is_as_long_as_the_cache_and_the_tokens():
    model = model_of(
        [("Concat", ["past", "x"], ["all"], {"axis": 0}), ("Mul", ["all", "mask"], ["y"])],
        [value("x", ["tokens", 4]), value("mask", ["total", 1]), value("past", ["past_length", 4])],
        [value("y", None)],
    )
    executable = check(model, lambda size: {"x": [size, 4], "mask": [size + 3, 1], "past": [3, 4]}, [1, 2, 9])
    assert executable.inputs["mask"] == "f32[past_length+tokens,1]"
    with pytest.raises(tw.Error, match=r"TW1101 `past_length \+ tokens` is 5, but dimension 0 of input 'mask' is 6"):
        executable.run({"x": zeros(2, 4), "mask": zeros(6, 1), "past": zeros(3, 4)})


def test_what_inputs_cannot_say_is_checked_in_a_run(tmp_path):
    """Pairs of rows by a quotient that was rounded up: right where the rows are even."""
    model = model_of(
        [
            ("Shape", ["x"], ["shape"]),
            ("Gather", ["shape", "zero"], ["n"]),
            ("Add", ["n", "one"], ["more"]),
            ("Div", ["more", "two"], ["pairs"]),
            ("Concat", ["pairs", "two", "four"], ["split"], {"axis": 0}),
            ("Reshape", ["x", "split"], ["a"]),
            ("Transpose", ["a"], ["y"], {"perm": [1, 0, 2]}),
        ],
        [value("x", ["n", 4])],
        [value("y", None)],
        {name: np.array([number]) for name, number in {"zero": 0, "one": 1, "two": 2, "four": 4}.items()},
    )
    executable = check(model, lambda size: {"x": [size, 4]}, [2, 4, 18])
    executable.save(tmp_path / "m.twa")
    for runs in (executable, tw.load_executable(tmp_path / "m.twa")):
        with pytest.raises(tw.Error, match=r"TW1101 .*node `\w*` \(Reshape\) demands that both are equal"):
            runs.run({"x": zeros(3, 4)})


def test_a_demand_that_no_size_meets_is_refused():
    model = model_of(
        [("Concat", ["x", "x", "c"], ["longer"], {"axis": 0}), ("Add", ["longer", "x"], ["y"])],
        [value("x", ["n", 4])],
        [value("y", None)],
        {"c": weights(3, 4)},
    )
    with pytest.raises(tw.Error, match="TW1004(.|\n)*may differ"):
        tw.load(model)


@pytest.mark.parametrize("low, high", [(-1, 4), (5, 4)])
def test_bounds_that_no_size_is_in(low, high):
    with pytest.raises(tw.Error, match="TW1004"):
        tw.Dim("n", low, high)


def test_command_line(tmp_path):
    import onnx

    onnx.save(two_inputs(), tmp_path / "m.onnx")
    run_tw("compile", tmp_path / "m.onnx", "--shape", "a=n:1..8,4", "-o", tmp_path / "m.twa")
    assert "[8, 4]" in run_tw("run", tmp_path / "m.twa", "--size", "n=8").stdout
    assert "FLOP a run" in run_tw("explain", tmp_path / "m.onnx").stdout
