"""Random numbers that runs draw.  Seeds are fixed and the generator is ours, so what is measured never changes; bounds
are those that good numbers exceed once in a thousand times or less."""

import ctypes
import json
import math

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from conftest import FLOAT, ROOT, model_of, run_tw, value
from tilewright import _core
from tilewright.tuning import MEASURE_PROGRAM

N = 40_000


def compiled(nodes, inputs, outputs, initializers=(), opset=22, **options):
    return tw.compile(tw.load(model_of(nodes, inputs, outputs, initializers, opset)), **options)


def drawing(op, shape=(N,), dtype=TensorProto.FLOAT, **attributes):
    attributes = {"shape": list(shape), "dtype": dtype, **attributes}
    return compiled([(op, [], ["y"], attributes)], [], [value("y", shape, dtype)])


def distance(sample, distribution):
    """Kolmogorov and Smirnov's, times the root of the sample's size: 1.95 in one of a thousand."""
    x = np.sort(sample.astype(np.float64).ravel())
    expected = distribution(x)
    steps = np.arange(len(x) + 1) / len(x)
    return max(np.max(steps[1:] - expected), np.max(expected - steps[:-1])) * math.sqrt(len(x))


def normal(x):
    return np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])


def test_normal_numbers_are_normal():
    x = drawing("RandomNormal").run({})["y"]
    assert x.dtype == np.float32 and x.shape == (N,)
    assert abs(x.mean()) < 4 / math.sqrt(N)
    assert abs(x.var() - 1) < 4 * math.sqrt(2 / N)
    assert distance(x, normal) < 1.95
    # Neighbours, and numbers a row apart, have nothing to do with each other.
    for lag in (1, 2, 200):
        assert abs(np.corrcoef(x[:-lag], x[lag:])[0, 1]) < 4 / math.sqrt(N)


def test_uniform_numbers_are_uniform():
    x = drawing("RandomUniform").run({})["y"]
    assert 0 <= x.min() and x.max() < 1
    assert abs(x.mean() - 0.5) < 4 / math.sqrt(12 * N)
    assert distance(x, lambda v: v) < 1.95
    assert len(np.unique(x)) > N - 200  # of 2^24: some 48 pairs are expected
    scaled = drawing("RandomUniform", low=-3.0, high=5.0).run({})["y"]
    np.testing.assert_allclose(scaled, x * 8 - 3, rtol=0, atol=1e-6)
    moved = drawing("RandomNormal", mean=7.0, scale=0.25).run({})["y"]
    np.testing.assert_allclose(moved, drawing("RandomNormal").run({})["y"] * 0.25 + 7, rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "numpy_dtype", "bits"),
    [
        (TensorProto.FLOAT16, np.float16, 11),
        (TensorProto.BFLOAT16, ml_dtypes.bfloat16, 8),
        (TensorProto.FLOAT, np.float32, 24),
        (TensorProto.DOUBLE, np.float64, 53),
    ],
)
def test_types(dtype, numpy_dtype, bits):
    u = drawing("RandomUniform", dtype=dtype).run({})["y"]
    assert u.dtype == numpy_dtype
    u = u.astype(np.float64)
    assert 0 <= u.min() and u.max() < 1 and np.all(np.ldexp(u, bits) % 1 == 0)
    # A multiple of 2^-bits stands for what lies up to the next one.
    assert distance(u, lambda v: v) < 1.95 + math.sqrt(N) * 2.0**-bits
    x = drawing("RandomNormal", dtype=dtype).run({})["y"]
    assert x.dtype == numpy_dtype
    assert distance(x, normal) < 1.95 + math.sqrt(N) * 2.0**-bits  # a density of 0.4, and x·2^-bits of rounding


def test_what_is_no_float_is_refused():
    for op in ("RandomNormal", "RandomUniform"):
        with pytest.raises(tw.Error, match="(?s)TW1003.*random numbers of type i32"):
            drawing(op, dtype=TensorProto.INT32)
    with pytest.raises(tw.Error, match="(?s)TW1003.*random numbers of type i64"):
        compiled([("RandomNormalLike", ["x"], ["y"])], [value("x", [3], TensorProto.INT64)], [value("y", [3])])


def test_seeds_and_runs():
    first, second = drawing("RandomNormal"), drawing("RandomNormal")
    runs = [first.run({})["y"] for _ in range(3)]
    assert not np.array_equal(runs[0], runs[1]) and not np.array_equal(runs[1], runs[2])
    for threads, run in zip((1, 2, 3), runs, strict=True):
        second.threads = threads
        np.testing.assert_array_equal(second.run({})["y"], run)
    first.seed(5)
    seeded = first.run({})["y"]
    assert not any(np.array_equal(seeded, run) for run in runs)
    second.seed(np.uint64(5))
    np.testing.assert_array_equal(second.run({})["y"], seeded)
    first.seed(0)
    np.testing.assert_array_equal(first(), [runs[0]])
    for bad in (-1, 2**64, 1.0, True, "7"):
        with pytest.raises(tw.Error, match="(?s)TW1101.*is no seed"):
            first.seed(bad)


def two_draws(**attributes):
    nodes = [("RandomUniform", [], [name], {"shape": [64], **attributes}) for name in "ab"]
    return compiled(nodes, [], [value(name, [64]) for name in "ab"])


def test_nodes_draw_different_numbers():
    outputs = two_draws().run({})
    assert not np.array_equal(outputs["a"], outputs["b"])


def test_nodes_with_a_seed_of_their_own():
    """They do not ask for the executable's, and those of one seed draw the same; runs differ all the same."""
    executable = two_draws(seed=2.5)
    first, second = executable.run({}), executable.run({})
    np.testing.assert_array_equal(first["a"], first["b"])
    assert not np.array_equal(first["a"], second["a"])
    executable.seed(99)
    np.testing.assert_array_equal(executable.run({})["a"], first["a"])
    assert not np.array_equal(two_draws(seed=2.75).run({})["a"], first["a"])


def test_dropouts_with_a_seed_of_their_own():
    nodes = [("Dropout", ["x", "", "mode"], [name], {"seed": seed}) for name, seed in (("a", 7), ("b", 7), ("c", -7))]
    executable = compiled(nodes, [value("x", [64])], [value(name, [64]) for name in "abc"], {"mode": np.bool_(True)})
    x = {"x": np.ones(64, np.float32)}
    first, second = executable.run(x), executable.run(x)
    np.testing.assert_array_equal(first["a"], first["b"])
    assert not np.array_equal(first["a"], first["c"]) and not np.array_equal(first["a"], second["a"])


def test_artifacts_and_other_precisions(tmp_path):
    executable = drawing("RandomUniform")
    executable.seed(3)
    executable.save(tmp_path / "m.twa")
    expected = drawing("RandomUniform").run({})["y"]
    loaded = tw.load_executable(tmp_path / "m.twa")
    np.testing.assert_array_equal(loaded.run({})["y"], expected)
    assert loaded.inputs == {} and _core.inspect_artifact(str(tmp_path / "m.twa"))["inputs"] == []
    library = ctypes.CDLL(str(ROOT / "build/runtime/libtilewright_runtime.so"))
    handle, y = ctypes.c_void_p(), np.zeros(N, np.float32)
    assert library.tw_load(str(tmp_path / "m.twa").encode(), ctypes.byref(handle)) == 0
    assert library.tw_input_count(handle) == 0

    def run():
        outputs, sizes = (ctypes.c_void_p * 1)(y.ctypes.data), (ctypes.c_size_t * 1)(y.nbytes)
        assert library.tw_run(handle, None, None, outputs, sizes) == 0
        return y.copy()

    np.testing.assert_array_equal(run(), expected)
    assert not np.array_equal(run(), expected)
    assert library.tw_set_seed(handle, ctypes.c_uint64(0)) == 0
    np.testing.assert_array_equal(run(), expected)
    library.tw_free(handle)


def test_command_line(tmp_path):
    model = model_of([("RandomUniform", [], ["y"], {"shape": [5]})], [], [value("y", [5])])
    onnx.save(model, tmp_path / "m.onnx")
    for seed in (0, 4):
        assert run_tw("run", tmp_path / "m.onnx", "--seed", seed, "-o", tmp_path / "y.npz").returncode == 0
        executable = tw.compile(tmp_path / "m.onnx")
        executable.seed(seed)
        np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["y"], executable.run({})["y"])
    assert "1 node draws numbers" in tw.load(tmp_path / "m.onnx").explain()


BATCH = tw.Dim("batch", 0, 64)


@pytest.mark.parametrize("options", [{}, {"profiles": [{"batch": 7}]}, {"specialise": True}])
def test_open_shapes(options):
    """Numbers do not depend on the sizes that kernels are made for, and every run counts."""
    model = model_of([("RandomNormalLike", ["x"], ["y"])], [value("x", ["batch", 33])], [value("y", ["batch", 33])])
    executable = tw.compile(tw.load(model, shapes={"x": (BATCH, 33)}), **options)
    for batch in (7, 3, 7, 0, 64):
        fixed = tw.compile(tw.load(model, shapes={"x": (batch, 33)})) if batch else None
        x = np.zeros((batch, 33), np.float32)
        executable.seed(8)
        first, second = executable.run({"x": x})["y"], executable.run({"x": x})["y"]
        assert first.shape == (batch, 33)
        if fixed is None:
            continue
        fixed.seed(8)
        np.testing.assert_allclose(fixed.run({"x": x})["y"], first, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(fixed.run({"x": x})["y"], second, rtol=1e-5, atol=1e-6)
        assert not np.array_equal(first, second)


def test_runs_of_kernels_that_are_made_later_go_on():
    model = model_of([("RandomNormalLike", ["x"], ["y"])], [value("x", ["batch", 3])], [value("y", ["batch", 3])])
    shapes = {"x": (tw.Dim("batch", 1, 9), 3)}
    one, other = tw.compile(tw.load(model, shapes=shapes), specialise=True), tw.compile(tw.load(model, shapes=shapes))
    for batch in (2, 3, 2, 5):
        x = {"x": np.zeros((batch, 3), np.float32)}
        np.testing.assert_allclose(one.run(x)["y"], other.run(x)["y"], rtol=1e-5, atol=1e-6)


def loop_of(steps, nodes, kept, **kind):
    """`steps` times, what is kept of the nodes' `z`."""
    body = helper.make_graph(
        [helper.make_node(op, i, o, **(rest[0] if rest else {})) for op, i, o, *rest in nodes]
        + [helper.make_node("Identity", ["go"], ["go_on"])],
        "body",
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL)],
        [value("go_on", [], TensorProto.BOOL), value("z", kept)],
    )
    return ("Loop", [steps, ""], ["y"], {"body": body, **kind})


def test_steps_of_loops_draw_different_numbers():
    draw = ("RandomUniform", [], ["z"], {"shape": [16]})
    executable = compiled(
        [loop_of("n", [draw], [16])], [value("n", [], TensorProto.INT64)], [value("y", None, TensorProto.FLOAT)]
    )
    runs = [executable.run({"n": np.int64(steps)})["y"] for steps in (5, 5, 3)]
    assert [run.shape for run in runs] == [(5, 16), (5, 16), (3, 16)]
    rows = np.concatenate(runs)
    assert len(np.unique(rows)) == rows.size
    executable.seed(0)
    np.testing.assert_array_equal(executable.run({"n": np.int64(3)})["y"], runs[0][:3])


def test_loops_within_loops_and_branches():
    inner = loop_of("two", [("RandomUniform", [], ["z"], {"shape": [8]})], [8])
    inner = (inner[0], inner[1], ["z"], inner[3])
    branch = [
        helper.make_graph(
            [helper.make_node("RandomUniform", [], [name], shape=[3, 2, 8])], name, [], [value(name, None)]
        )
        for name in ("then", "otherwise")
    ]
    executable = compiled(
        [
            loop_of("three", [inner], [2, 8]),
            ("If", ["flag"], ["drawn"], {"then_branch": branch[0], "else_branch": branch[1]}),
        ],
        [value("flag", [], TensorProto.BOOL)],
        [value("y", [3, 2, 8]), value("drawn", None)],
        {"three": np.int64(3), "two": np.int64(2)},
    )
    seen = []
    for flag in (True, False):
        executable.seed(0)
        outputs = executable.run({"flag": np.array(flag)})
        seen += [outputs["y"], outputs["drawn"]]
    np.testing.assert_array_equal(seen[0], seen[2])
    numbers = np.concatenate([part.ravel() for part in (seen[0], seen[1], seen[3])])
    assert len(np.unique(numbers)) == numbers.size


def test_parts_of_sequences_and_steps_of_scans_differ():
    part = helper.make_graph(
        [helper.make_node("RandomUniformLike", ["a"], ["b"])], "part", [value("a", [4])], [value("b", [4])]
    )
    sequences = [helper.make_tensor_sequence_value_info(name, FLOAT, [4]) for name in ("parts", "y")]
    step = helper.make_graph(
        [helper.make_node("RandomUniformLike", ["row"], ["r"]), helper.make_node("Add", ["before", "r"], ["after"])],
        "step",
        [value("before", [4]), value("row", [4])],
        [value("after", [4]), value("r", [4])],
    )
    model = model_of(
        [
            ("SequenceMap", ["parts"], ["y"], {"body": part}),
            ("Scan", ["start", "rows"], ["last", "kept"], {"body": step, "num_scan_inputs": 1}),
        ],
        [sequences[0], value("start", [4]), value("rows", ["n", 4])],
        [sequences[1], value("last", [4]), value("kept", ["n", 4])],
    )
    executable = tw.compile(tw.load(model, shapes={"parts": [(4,)] * 3}))
    zeros = np.zeros((6, 4), np.float32)
    outputs = executable.run({"parts": list(zeros[:3]), "start": zeros[0], "rows": zeros})
    numbers = np.concatenate([*outputs["y"], outputs["kept"].ravel()])
    assert len(np.unique(numbers)) == numbers.size == 36
    np.testing.assert_allclose(outputs["last"], outputs["kept"].sum(axis=0), rtol=1e-6)


def test_what_follows_branches_of_different_ranks_draws():
    branches = [
        helper.make_graph([helper.make_node(op, inputs, [op])], op, [], [value(op, None)])
        for op, inputs in (("Squeeze", ["x", "axis"]), ("Identity", ["x"]))
    ]
    executable = compiled(
        [
            ("If", ["flag"], ["z"], {"then_branch": branches[0], "else_branch": branches[1]}),
            ("RandomUniformLike", ["z"], ["r"]),
            ("ReduceMax", ["r"], ["y"], {"keepdims": 0}),
        ],
        [value("x", [1, 5]), value("flag", [], TensorProto.BOOL)],
        [value("y", [])],
        {"axis": np.int64([0])},
        opset=17,
    )
    x = np.zeros((1, 5), np.float32)
    drawn = [float(executable.run({"x": x, "flag": np.array(flag)})["y"]) for flag in (True, False, True)]
    assert len(set(drawn)) == 3 and all(0 < v < 1 for v in drawn)


def test_a_sampler_like_that_of_speech_models():
    """As VITS has it: noise of the shape of a result, scaled by an input, added to a mean and masked."""
    nodes = [
        ("Split", ["stats"], ["mean", "log_scale"], {"axis": 1, "num_outputs": 2}),
        ("RandomNormalLike", ["mean"], ["noise"], {"dtype": 1}),
        ("Exp", ["log_scale"], ["scale"]),
        ("Mul", ["noise", "scale"], ["a"]),
        ("Mul", ["a", "noise_scale"], ["b"]),
        ("Add", ["mean", "b"], ["c"]),
        ("Mul", ["c", "mask"], ["y"]),
    ]
    executable = compiled(
        nodes,
        [value("stats", [1, 64, "t"]), value("noise_scale", [1]), value("mask", [1, 1, "t"])],
        [value("y", [1, 32, "t"])],
        opset=18,
    )
    rng = np.random.default_rng(0)
    stats = rng.standard_normal((1, 64, 700)).astype(np.float32)
    mask = np.ones((1, 1, 700), np.float32)
    mask[..., 600:] = 0
    feed = {"stats": stats, "noise_scale": np.float32([0]), "mask": mask}
    np.testing.assert_allclose(executable.run(feed)["y"], stats[:, :32] * mask, rtol=1e-6)
    feed["noise_scale"] = np.float32([0.667])
    y = executable.run(feed)["y"]
    assert np.all(y[..., 600:] == 0)
    noise = ((y - stats[:, :32]) / np.exp(stats[:, 32:]) / 0.667)[..., :600]
    assert distance(noise, normal) < 1.95
    assert len(executable.describe(feed)["steps"]) <= 3


def test_bernoulli():
    p = np.repeat(np.float32([0, 0.25, 0.5, 0.99, 1]), 4096)
    outputs = [value("y", p.shape), value("z", p.shape, TensorProto.BOOL)]
    nodes = [("Bernoulli", ["p"], ["y"]), ("Bernoulli", ["p"], ["z"], {"dtype": TensorProto.BOOL})]
    drawn = compiled(nodes, [value("p", p.shape)], outputs).run({"p": p})
    assert drawn["y"].dtype == np.float32 and drawn["z"].dtype == np.bool_
    for name in "yz":
        means = drawn[name].astype(np.float64).reshape(5, 4096).mean(axis=1)
        assert means[0] == 0 and means[4] == 1
        for mean, expected in zip(means, (0, 0.25, 0.5, 0.99, 1), strict=True):
            assert abs(mean - expected) <= 4 * math.sqrt(expected * (1 - expected) / 4096)
    assert not np.array_equal(drawn["y"] != 0, drawn["z"])


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_multinomial(dtype):
    """By chi-square: with 4 degrees of freedom more than 18.5 in one of a thousand."""
    weights = np.array([[1, 2, 0, 3, 4, 10], [0, 0, 1, 0, 0, 0]], np.float64)
    with np.errstate(divide="ignore"):
        x = np.log(weights).astype(dtype) + dtype(2)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    for number, result in ((None, np.int32), (TensorProto.INT64, np.int64)):
        attributes = {"sample_size": N} | ({"dtype": number} if number else {})
        out = TensorProto.INT64 if number else TensorProto.INT32
        y = compiled([("Multinomial", ["x"], ["y"], attributes)], [value("x", [2, 6], kind)], [value("y", [2, N], out)])
        drawn = y.run({"x": x})["y"]
        assert drawn.dtype == result and drawn.shape == (2, N)
        assert np.all(drawn[1] == 2)
        counts, expected = np.bincount(drawn[0], minlength=6), N * weights[0] / weights[0].sum()
        assert counts[2] == 0
        used = expected > 0
        assert (((counts - expected) ** 2)[used] / expected[used]).sum() < 18.5


def dropout(x, ratio, mode, opset=22, attributes=None):
    """A model of one node; `ratio` and `mode` are numbers, "input", or None where they are absent."""
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    inputs, constants, names = [value("x", x.shape, kind)], {}, ["x"]
    for name, given, of in (("ratio", ratio, np.float32), ("mode", mode, np.bool_)):
        if given is None:
            names.append("")
        elif given == "input":
            names.append(name)
            inputs.append(value(name, [], helper.np_dtype_to_tensor_dtype(np.dtype(of))))
        else:
            names.append(name)
            constants[name] = of(given)
    while names[-1] == "":
        names.pop()
    mask = kind if opset < 10 else TensorProto.BOOL
    outputs = [value("y", x.shape, kind), value("mask", x.shape, mask)]
    return compiled([("Dropout", names, ["y", "mask"], attributes or {})], inputs, outputs, constants, opset)


def values(shape=(64, 500), dtype=np.float32):
    return (np.random.default_rng(1).standard_normal(shape) + 5).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("ratio", [0.1, 0.75, "input", None])
@pytest.mark.parametrize("mode", [True, "input"])
def test_dropout_drops_and_scales(dtype, ratio, mode):
    x = values(dtype=dtype)
    executable = dropout(x, ratio, mode)
    feed = {"x": x} | ({"ratio": np.float32(0.3)} if ratio == "input" else {})
    dropped = {"input": 0.3, None: 0.5}.get(ratio, ratio)
    if mode == "input":
        y, mask = executable(*feed.values(), np.array(False))
        np.testing.assert_array_equal(y, x)
        assert mask.all()
        feed["mode"] = np.array(True)
    masks = []
    for _ in range(2):
        y, mask = executable(*feed.values())
        assert mask.dtype == np.bool_ and y.dtype == dtype
        tolerance = {np.float16: 1e-3, np.float32: 1e-6, np.float64: 1e-6}[dtype]  # a ratio of f32
        np.testing.assert_allclose(y, x.astype(np.float64) * mask / (1 - dropped), rtol=tolerance)
        assert abs(mask.mean() - (1 - dropped)) < 4 * math.sqrt(dropped * (1 - dropped) / x.size)
        masks.append(mask)
    assert not np.array_equal(*masks)


@pytest.mark.parametrize(("ratio", "mode"), [(0.0, True), (0.0, "input"), (0.4, False), (0.4, None), (None, None)])
def test_dropout_that_drops_nothing_is_nothing(ratio, mode):
    x = values()
    executable = dropout(x, ratio, mode)
    y, mask = executable(x, *([np.array(True)] if mode == "input" else []))
    np.testing.assert_array_equal(y, x)
    assert mask.all()
    assert "draw" not in tw.load(model_of([("Dropout", ["x"], ["y"])], [value("x", [3])], [value("y", [3])])).explain()


def test_computed_ratios_of_zero_drop_nothing():
    x = values()
    y, mask = dropout(x, "input", True)(x, np.float32(0))
    np.testing.assert_array_equal(y, x)
    assert mask.all()


@pytest.mark.parametrize("ratio", [1.0, 1.5, -0.5, float("nan")])
def test_ratios_that_are_none_are_refused(ratio):
    with pytest.raises(tw.Error, match="(?s)TW1003.*a ratio of"):
        dropout(values(), ratio, True)


@pytest.mark.parametrize("opset", [7, 9, 10, 11])
def test_dropout_of_older_opsets_never_drops(opset):
    x = values()
    y, mask = dropout(x, None, None, opset, {"ratio": 0.9})(x)
    np.testing.assert_array_equal(y, x)
    assert mask.dtype == (np.bool_ if opset >= 10 else np.float32) and np.all(mask == 1)


@pytest.mark.parametrize("is_test", [0, 1])
def test_dropout_of_the_oldest_opsets_drops_unless_it_is_a_test(is_test):
    """Models are of opset 7 at least, but functions in them may be older."""
    node = helper.make_node("Dropout", ["a"], ["b", "c"], ratio=0.25, is_test=is_test)
    function = helper.make_function("own", "Drop", ["a"], ["b", "c"], [node], [helper.make_opsetid("", 6)])
    x = values()
    graph = helper.make_graph(
        [helper.make_node("Drop", ["x"], ["y", "mask"], domain="own")],
        "g",
        [value("x", x.shape)],
        [value("y", x.shape), value("mask", x.shape)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=8)
    y, mask = tw.compile(tw.load(model))(x)
    assert abs(mask.mean() - (1 if is_test else 0.75)) <= 4 * math.sqrt(0.25 * 0.75 / x.size)
    assert np.all(mask == 1) == bool(is_test)
    np.testing.assert_allclose(y, x * mask / (1 if is_test else 0.75), rtol=1e-6)


def test_tuning_compares_networks_that_draw(tmp_path):
    """Variants of a network have to draw the same numbers, or their outputs differ."""
    rng, width = np.random.default_rng(0), 32
    model = model_of(
        [
            ("Conv", ["x", "w"], ["a"], {"pads": [1, 1, 1, 1]}),
            ("Dropout", ["a", "ratio", "mode"], ["y"]),
        ],
        [value("x", [1, width, 28, 28])],
        [value("y", [1, width, 28, 28])],
        {
            "w": rng.standard_normal((width, width, 3, 3)).astype(np.float32) / 17,
            "ratio": np.float32(0.5),
            "mode": np.bool_(True),
        },
    )
    events = []
    _core.tune(
        tw.load(model)._core,
        "cpu",
        str(tmp_path / "tune.db"),
        1,
        "f32",
        "",
        1000.0,
        0,
        str(MEASURE_PROGRAM),
        lambda line: events.append(json.loads(line)),
        lambda: False,
        most_trials=2,
    )
    trials = [event for event in events if event["event"] == "trial"]
    assert any(event["phase"] == "network" for event in trials)
    assert {event["status"] for event in trials} == {"ok"}
