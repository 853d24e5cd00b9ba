"""CUDA end to end: by the emulator everywhere, and by the GPU where there is one.

pytest tests/python/test_cuda.py -k gpu -rs      # all cases on this machine's GPU, or why not
"""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

import quantised_models
import random_control
import test_bytes
import test_open_operators
import test_quantized_operators
import tilewright as tw
from conftest import ROOT, attention_model, model_of, reference, run_tw, small_network, value
from image_networks import decoder, separable, shuffled, tokens
from onnx_suite import read_outputs, run_folders, run_suite, summary, write_case
from random_graphs import KINDS, cuda_differences, differences, rounded, run_onnxruntime, single, small
from test_networks import NETWORKS, feed_of
from test_precision import convolutional
from tilewright import machine

RUNNER = ROOT / "build/tests/onnx_node_runner"
EMULATOR = ROOT / "build/tests/cuda_emulator"


@dataclass
class Device:
    target: str
    env: dict[str, str]
    every: int  # of ONNX's cases one is run
    passed: int  # at least
    random_cases: int  # a kind


@pytest.fixture(scope="module", params=["emulated", "gpu"])
def device(request):
    assert RUNNER.exists(), "./dev build makes the runner"
    if request.param == "emulated":
        places = dict.fromkeys(("CUDA_HOME", "LD_LIBRARY_PATH"), str(EMULATOR))
        return Device("cuda:sm_90", os.environ | places, 8, 170, 5)
    found = machine.cuda()
    for problem in ("device_problem", "compiler_problem"):
        if found[problem]:
            pytest.skip(found[problem])
    _, capability, _ = found["devices"][0]
    compiler = Path(found["compiler"].split(" from ")[1])
    return Device(f"cuda:sm_{capability}", os.environ | {"CUDA_HOME": str(compiler.parent)}, 1, 1470, 25)


def test_no_case_of_the_onnx_suite_is_wrong(device):
    results = run_suite(RUNNER, device.target, bound_from=1, every=device.every, env=device.env)
    text, counts, _ = summary(results)
    bad = [f"{r.status} {r.name}: {r.message[:200]}" for r in results if r.status in ("wrong", "crashed")]
    assert not bad, "\n".join([text, *bad])
    assert counts["passed"] >= device.passed, text


def test_random_parameters_agree_with_onnx_runtime(device):
    cases = [(f"{k}-{kind.__name__}", *single(kind, small(k))) for k in range(device.random_cases) for kind in KINDS]
    _, bad = differences(cases, device.target, device.env)
    assert not bad, f"{len(bad)}:\n" + "\n".join(f"{name} {problem}" for name, problem in bad)


# tests/campaigns/random_graphs.py --target cuda:sm_90 is the long form.
def test_random_graphs_agree_with_onnx_runtime(device):
    compared, bad = cuda_differences(range(4 * device.random_cases), device.target, device.env)
    assert compared > 2 * device.random_cases
    assert not bad, "\n".join(f"{name} {problem}" for name, problem in bad)


OPEN_CASES = """
import sys, open_cases
for operator, case in open_cases.cases_of_operators(most=1):
    found = open_cases.outcome(operator, case, "all", sys.argv[1])
    print(found.operator, found.status, found.runs, found.message.split("\\n")[0])
"""


def test_operators_take_open_dimensions_as_on_cpus(device):
    done = subprocess.run(
        [sys.executable, "-c", OPEN_CASES, device.target],
        env=device.env | {"PYTHONPATH": str(ROOT / "tests/python")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    outcomes = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert len(outcomes) > 140
    expected = {operator: "refused" for operator, opening in test_open_operators.REFUSED if opening == "all"}
    expected |= {operator: "wrong" for operator, opening in test_open_operators.DIFFER if opening == "all"}
    other = {name: line for name, line in outcomes.items() if line.split()[1] != expected.get(name, "right")}
    assert not other, other


def test_random_control_flow(device):
    seeds = range(1000, 1000 + 8 * device.random_cases)
    assert random_control.problems(seeds, target=device.target, env=device.env) == []


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_agree_with_onnx_runtime(name, device, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    model = NETWORKS[name]()
    feed = feed_of(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    write_case(tmp_path / name, model, list(feed.values()))
    ((status, message),) = run_folders(RUNNER, device.target, [tmp_path / name], 300, device.env).values()
    assert status == "ok", message
    for ours, theirs in zip(read_outputs(tmp_path / name / "outputs.bin"), session.run(None, feed), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("precision", ["bf16", "f16", "tf32"])
@pytest.mark.parametrize("network", [convolutional, shuffled, separable, decoder, tokens])
def test_convolutions_on_tensor_cores_agree_with_onnx_runtime(network, precision, device, tmp_path):
    def normal(rng, *shape):
        return rng.standard_normal(shape).astype(np.float32) / np.float32(np.sqrt(np.prod(shape[1:]) or 1))

    model = network(normal)
    onnx.save(model, tmp_path / "m.onnx")
    artifact = tmp_path / "m.twa"
    x = np.random.default_rng(5).standard_normal((1, 3, 13, 13)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    for arguments in (
        ("compile", tmp_path / "m.onnx", "-t", device.target, "--precision", precision, "-o", artifact),
        ("run", artifact, "-i", f"x={tmp_path / 'x.npy'}", "-o", tmp_path / "y.npz"),
    ):
        done = run_tw(*arguments, env=device.env)
        assert done.returncode == 0, done.stderr
    ours = np.load(tmp_path / "y.npz")
    for name, theirs in zip(("y", "b"), run_onnxruntime(model, [x]), strict=True):
        near = {"f16": 2.0**-9, "tf32": 2.0**-9, "bf16": 2.0**-6}[precision] * float(np.abs(theirs).max())
        np.testing.assert_allclose(ours[name], theirs, rtol=0, atol=near)


@pytest.mark.parametrize("sizes", [(37, 53, 29), (130, 70, 137), (5, 9, 7), (64, 64, 640)], ids=str)
@pytest.mark.parametrize("turned", [False, True])
def test_products_of_tf32_are_those_of_rounded_operands(sizes, turned, device, tmp_path):
    rows, columns, terms = sizes
    rng = np.random.default_rng(rows)
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((rows, terms), (terms, columns), (rows, columns)))
    nodes = [("Gemm", ["a", "b", "c"], ["y"], {"transA": int(turned), "transB": int(turned)})]
    feed = {"a": a.T.copy() if turned else a, "b": b.T.copy() if turned else b, "c": c}
    model = model_of(nodes, [value(n, list(x.shape)) for n, x in feed.items()], [value("y", [rows, columns])])
    onnx.save(model, tmp_path / "m.onnx")
    given = []
    for name, array in feed.items():
        np.save(tmp_path / f"{name}.npy", array)
        given += ["-i", f"{name}={tmp_path / name}.npy"]
    for arguments in (
        ("compile", tmp_path / "m.onnx", "-t", device.target, "--precision", "tf32", "-o", tmp_path / "m.twa"),
        ("run", tmp_path / "m.twa", *given, "-o", tmp_path / "y.npz"),
    ):
        done = run_tw(*arguments, env=device.env)
        assert done.returncode == 0, done.stderr
    ours = np.load(tmp_path / "y.npz")["y"].astype(np.float64)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    size = np.abs(wide_a) @ np.abs(wide_b) + np.abs(c)
    # Products of 11 bits by 11 are exact: what is left is rounding of sums in f32, which tensor cores may cut off.
    expected = rounded(a, "tf32").astype(np.float64) @ rounded(b, "tf32").astype(np.float64) + c
    assert (np.abs(ours - expected) <= 2.0**-20 * size).all()
    # Each factor is off by up to 2^-11 of its size.
    (theirs,) = run_onnxruntime(model, [*feed.values()])
    off = np.abs(ours - theirs)
    assert (off <= 2.1 * 2.0**-11 * size).all() and off.max() > 2.0**-20 * size.max()


def results_of_bytes(model, feed, device, folder):
    """Of the device and of the CPU, which are the same to the bit."""
    write_case(folder, model, list(feed.values()))
    ((status, message),) = run_folders(RUNNER, device.target, [folder], 300, device.env).values()
    assert status == "ok", message
    ours = read_outputs(folder / "outputs.bin")
    for one, other in zip(ours, tw.compile(tw.load(model)).run(feed).values(), strict=True):
        np.testing.assert_array_equal(one, other)
    return ours


@pytest.mark.parametrize("zero", [0, 3])
@pytest.mark.parametrize("data", [np.uint8, np.int8])
def test_products_of_bytes_are_those_of_onnx(data, zero, device, tmp_path):
    for weight in (np.int8, np.uint8):
        model, feed = test_bytes.product(data, zero, weight)
        ours = results_of_bytes(model, feed, device, tmp_path / np.dtype(weight).name)
        for one, other in zip(ours, reference(model, feed), strict=True):
            np.testing.assert_array_equal(one, other)
    results_of_bytes(*test_bytes.convolution(data, zero), device, tmp_path / "conv")
    results_of_bytes(*test_bytes.layers(data), device, tmp_path / "layers")


@pytest.mark.parametrize("activations", test_quantized_operators.ACTIVATIONS, ids=str)
@pytest.mark.parametrize("form", test_quantized_operators.FORMS, ids=str)
def test_networks_that_the_quantiser_made(form, activations, device, tmp_path):
    model, feed, expected, step = test_quantized_operators.quantised_network(form, activations, tmp_path)
    write_case(tmp_path / "case", model, list(feed.values()))
    ((status, message),) = run_folders(RUNNER, device.target, [tmp_path / "case"], 300, device.env).values()
    assert status == "ok", message
    np.testing.assert_allclose(read_outputs(tmp_path / "case" / "outputs.bin")[0], expected, atol=2 * step)


@pytest.mark.parametrize("zero", [np.uint8(0), np.uint8(131), np.int8(-128), np.int8(5)], ids=lambda zero: repr(zero))
def test_floats_are_rounded_to_codes_as_on_cpus(zero, device, tmp_path):
    """Halfway between two, beyond the limits, and not a number."""
    x = np.concatenate(
        [np.arange(-700, 700) / 4, [np.inf, -np.inf, np.nan, -0.0, 1e-40, 2**22 + 0.5, -(2.0**31), 3e38]]
    )
    x = x.astype(np.float32)
    kinds = quantised_models.KINDS[type(zero)]
    nodes = [("QuantizeLinear", ["x", "s", "z"], ["y"])]
    model = model_of(nodes, [value("x", x.shape)], [value("y", x.shape, kinds)], {"s": np.float32(0.5), "z": zero})
    results_of_bytes(model, {"x": x}, device, tmp_path / "case")


def test_quantised_layers_are_what_exact_arithmetic_gives(device, tmp_path):
    cases = {name: quantised_models.layer(**options) for name, options in quantised_models.LAYERS.items()}
    for name, (model, feed, _) in cases.items():
        write_case(tmp_path / name, model, list(feed.values()))
    done = run_folders(RUNNER, device.target, [tmp_path / name for name in cases], 300, device.env)
    for name, (_, _, exact) in cases.items():
        assert done[str(tmp_path / name)][0] == "ok", (name, done)
        ours = read_outputs(tmp_path / name / "outputs.bin")[0]
        # What is not nearly halfway between two codes is rounded to the nearer one.
        assert np.abs(ours - exact).max() < 0.501, (name, np.abs(ours - exact).max())
        assert len(np.unique(ours)) > 50, name


@pytest.mark.parametrize("options", [{}, quantised_models.SYMMETRIC], ids=["unsigned", "symmetric"])
@pytest.mark.parametrize("network", ["residual_network", "mobile_network", "encoder"])
def test_quantised_networks_agree_with_onnx_runtime(network, options, device, tmp_path):
    model = quantised_models.quantised(getattr(quantised_models, network)(), **options)
    feed = np.random.default_rng(5).standard_normal(quantised_models.shape_of(model)).astype(np.float32)
    write_case(tmp_path / "case", model, [feed])
    ((status, message),) = run_folders(RUNNER, device.target, [tmp_path / "case"], 300, device.env).values()
    assert status == "ok", message
    ours, theirs = read_outputs(tmp_path / "case" / "outputs.bin")[0], quantised_models.unoptimised(model, feed)
    apart = np.abs(ours - theirs) / quantised_models.step_of(model)
    # Of codes that are nearly halfway some are the other one, and what is made of them differs, too.
    assert apart.max() < 2.5 and np.mean(apart > 0.5) < 0.1


ATTENTION = {  # batch, heads, queries, keys, size, mask
    "vit": (1, 3, 197, 197, 64, None),
    "bert": (2, 2, 128, 128, 64, (2, 1, 1, 128)),
    "gpt": (1, 2, 100, 100, 48, (1, 1, 100, 100)),
    "causal": (1, 2, 150, 150, 48, (1, 1, 150, 150)),  # the mask is a constant
    "decoding": (5, 7, 1, 150, 64, (1, 1, 1, 150)),
}


@pytest.mark.parametrize("kind", [onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16])
@pytest.mark.parametrize("name", ATTENTION)
def test_attention_agrees_with_onnx_runtime(name, kind, device, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    batch, heads, queries, keys, size, mask = ATTENTION[name]
    model = attention_model(batch, heads, queries, keys, size, mask, kind)
    dtype, rng = onnx.helper.tensor_dtype_to_np_dtype(kind), np.random.default_rng(3)
    shapes = {"q": (batch, heads, queries, size), "k": (batch, heads, keys, size), "v": (batch, heads, keys, size)}
    feed = {tensor: rng.standard_normal(shape).astype(dtype) for tensor, shape in shapes.items()}
    if mask:  # no key behind the query's, or a sentence's last ones: the least number there is, as exporters say it
        hidden = np.triu(np.ones(mask), 1) > 0 if mask[-2] > 1 else np.broadcast_to(np.arange(keys) >= keys - 20, mask)
        if name == "bert" and kind == onnx.TensorProto.FLOAT:
            hidden = hidden | (np.arange(batch) == 0)[:, None, None, None]  # of one sentence nothing is seen
        feed["m"] = np.where(hidden, np.finfo(dtype).min, 0).astype(dtype)
    if name == "causal":
        model.graph.initializer.append(onnx.numpy_helper.from_array(feed.pop("m"), "m"))
        del model.graph.input[3]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    write_case(tmp_path / name, model, list(feed.values()))
    ((status, message),) = run_folders(RUNNER, device.target, [tmp_path / name], 300, device.env).values()
    assert status == "ok", message
    tolerance = 1e-5 if kind == onnx.TensorProto.FLOAT else 4e-3
    (ours,), (theirs,) = read_outputs(tmp_path / name / "outputs.bin"), session.run(None, feed)
    np.testing.assert_allclose(ours.astype(np.float32), theirs.astype(np.float32), atol=tolerance, rtol=tolerance)


OPEN_ATTENTION = {  # of each, inputs of this size of the open dimensions
    "bert": (("batch", 2, "length", "length", 64, ("batch", 1, 1, "length")), {"batch": 2}),
    "sentences": (("length", 2, 24, 24, 64, None), {}),
    "decoding": (("batch", 7, 1, "length", 64, ("batch", 1, 1, "length")), {"batch": 3}),
    "queries_and_keys": ((1, 3, "length", "keys", 48, None), {"keys": 77}),
}


@pytest.mark.parametrize("name", OPEN_ATTENTION)
def test_attention_of_any_length_agrees_with_onnx_runtime(name, device, tmp_path):
    dims, others = OPEN_ATTENTION[name]
    model = attention_model(*dims, onnx.TensorProto.FLOAT16)
    onnx.save(model, tmp_path / "m.onnx")
    artifact = tmp_path / "m.twa"
    done = run_tw("compile", tmp_path / "m.onnx", "-t", device.target, "-o", artifact, env=device.env)
    assert done.returncode == 0, done.stderr
    for length in (1, 7, 64, 100, 129):
        rng, feed, given = np.random.default_rng(length), [], []
        for info in model.graph.input:
            sizes = {"length": length, **others}
            shape = [d.dim_value or sizes[d.dim_param] for d in info.type.tensor_type.shape.dim]
            hidden = np.broadcast_to(np.arange(shape[-1]) > 2 * length // 3, shape)
            array = np.where(hidden, -60000, 0) if info.name == "m" else rng.standard_normal(shape)
            feed.append(array.astype(np.float16))
            np.save(tmp_path / f"{info.name}.npy", feed[-1])
            given += ["-i", f"{info.name}={tmp_path / info.name}.npy"]
        done = run_tw("run", artifact, *given, "-o", tmp_path / "y.npz", env=device.env)
        assert done.returncode == 0, done.stderr
        (want,) = run_onnxruntime(model, feed)
        ours = np.load(tmp_path / "y.npz")["y"].astype(np.float32)
        np.testing.assert_allclose(ours, want.astype(np.float32), atol=4e-3, rtol=4e-3)


def test_artifacts_are_kept_run_and_timed(device, tmp_path):
    onnx.save(small_network(), tmp_path / "m.onnx")
    artifact = tmp_path / "m.twa"
    for arguments in (
        ("compile", tmp_path / "m.onnx", "--target", device.target, "-o", artifact),
        ("run", artifact, "-o", tmp_path / "y.npz"),
        ("bench", artifact, "--kernels", "--seconds", "0.05"),
    ):
        done = run_tw(*arguments, env=device.env)
        assert done.returncode == 0, done.stderr
    assert "kernels" in done.stdout
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["y"].sum(), 1, rtol=1e-5)


def rows_of_a_batch():
    """A layer of a transformer without its attention: products, a sum, a norm and a softmax of rows."""
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal((96, 96)).astype(np.float32) / 10 for name in ("v", "w")}
    nodes = [("MatMul", ["x", "v"], ["a"]), ("Relu", ["a"], ["b"]), ("MatMul", ["b", "w"], ["c"])]
    nodes += [("Add", ["x", "c"], ["d"]), ("LayerNormalization", ["d", "scale"], ["e"]), ("Softmax", ["e"], ["y"])]
    shape = [1, 7, 96]
    return model_of(nodes, [value("x", shape)], [value("y", shape)], weights | {"scale": np.ones(96, np.float32)})


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("network", [small_network, rows_of_a_batch])
def test_one_artifact_runs_any_batch(device, tmp_path, network, precision):
    model = network()
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(model, tmp_path / "m.onnx")
    artifact, given = tmp_path / "m.twa", tmp_path / "x.npy"
    done = run_tw(
        *("compile", tmp_path / "m.onnx", "-t", device.target, "--precision", precision, "-o", artifact), env=device.env
    )
    assert done.returncode == 0, done.stderr
    for batch in (1, 8, 64):
        shape = [batch, *(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim[1:])]
        x = np.random.default_rng(batch).standard_normal(shape).astype(np.float32)
        np.save(given, x)
        done = run_tw("run", artifact, "-i", f"x={given}", "-o", tmp_path / "y.npz", env=device.env)
        assert done.returncode == 0, done.stderr
        (want,) = run_onnxruntime(model, [x])
        near = {"f32": 1e-5, "bf16": 2.0**-6}[precision] * float(np.abs(want).max())
        np.testing.assert_allclose(np.load(tmp_path / "y.npz")["y"], want, rtol=1e-4, atol=near)


def encoder_layer():
    """Of a transformer, with heads of 32 elements: any number of sentences, of any length."""
    rng = np.random.default_rng(1)

    def weight(rows, columns):
        return rng.standard_normal((rows, columns)).astype(np.float32) / np.float32(np.sqrt(rows))

    weights = {"scale": np.ones(64, np.float32), "f": weight(64, 128), "g": weight(128, 64)}
    weights |= {"heads": np.array([0, 0, 2, 32]), "joined": np.array([0, 0, 64]), "root": np.float32(32**0.5)}
    nodes = [("LayerNormalization", ["x", "scale"], ["n"])]
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        weights[name] = weight(64, 64)
        nodes += [("MatMul", ["n", name], [f"{name}m"]), ("Reshape", [f"{name}m", "heads"], [f"{name}h"])]
        nodes.append(("Transpose", [f"{name}h"], [f"{name}t"], {"perm": order}))
    nodes += [("MatMul", ["qt", "kt"], ["s"]), ("Div", ["s", "root"], ["d"]), ("Softmax", ["d"], ["p"])]
    nodes += [("MatMul", ["p", "vt"], ["o"]), ("Transpose", ["o"], ["ot"], {"perm": [0, 2, 1, 3]})]
    nodes += [("Reshape", ["ot", "joined"], ["or"]), ("Add", ["x", "or"], ["a"]), ("MatMul", ["a", "f"], ["h"])]
    nodes += [("Relu", ["h"], ["r"]), ("MatMul", ["r", "g"], ["t"]), ("Add", ["a", "t"], ["y"])]
    shape = ["batch", "length", 64]
    return model_of(nodes, [value("x", shape)], [value("y", shape)], weights)


def convolutions_of_maps():
    """A stem, a window in blocks of channels, strides, and points."""
    rng = np.random.default_rng(2)
    weights, nodes, x = {}, [], "x"
    for name, (filters, inputs, window, stride) in {
        "a": (16, 3, 7, 2), "b": (24, 16, 3, 1), "c": (40, 24, 3, 2), "d": (12, 40, 1, 1)
    }.items():  # fmt: skip
        weight = rng.standard_normal((filters, inputs, window, window)).astype(np.float32)
        weights[f"{name}w"] = weight / np.float32(np.sqrt(inputs * window * window))
        attributes = {"pads": [window // 2] * 4, "strides": [stride] * 2}
        nodes += [("Conv", [x, f"{name}w"], [name], attributes), ("Relu", [name], [f"{name}r"])]
        x = f"{name}r"
    nodes[-1] = ("Identity", ["d"], ["y"])
    shape = [value(name, ["batch", channels, *maps]) for name, channels, maps in (("x", 3, "hw"), ("y", 12, "ij"))]
    return model_of(nodes, shape[:1], shape[1:], weights)


def few_rows():
    """A product of values whose terms are open, too, and one with weights."""
    weights = {"w": np.random.default_rng(3).standard_normal((40, 24)).astype(np.float32) / 6}
    nodes = [("MatMul", ["x", "z"], ["p"]), ("MatMul", ["p", "w"], ["y"])]
    return model_of(nodes, [value("x", ["n", "k"]), value("z", ["k", 40])], [value("y", ["n", 24])], weights)


OPEN = {
    "encoder": (encoder_layer, lambda n: [(2, n, 64)]),
    "encoder_of_sentences": (encoder_layer, lambda n: [(n, 3, 64)]),
    "maps": (convolutions_of_maps, lambda n: [(2, 3, n, n // 2 + 1)]),
    "images": (convolutions_of_maps, lambda n: [(n, 3, 8, 5)]),
    "terms": (few_rows, lambda n: [(5, n), (n, 40)]),
    "rows": (few_rows, lambda n: [(n, 21), (21, 40)]),
}


@pytest.mark.parametrize("precision", ["bf16", "f16", "tf32"])
@pytest.mark.parametrize("name", OPEN)
def test_one_artifact_multiplies_any_size_on_tensor_cores(device, tmp_path, name, precision):
    model, shapes = OPEN[name][0](), OPEN[name][1]
    onnx.save(model, tmp_path / "m.onnx")
    artifact = tmp_path / "m.twa"
    compiled = ("compile", tmp_path / "m.onnx", "-t", device.target, "--precision", precision, "-o", artifact)
    done = run_tw(*compiled, env=device.env)
    assert done.returncode == 0, done.stderr
    for size in (1, 7, 64, 100, 129):
        rng = np.random.default_rng(size)
        feed = [rng.standard_normal(shape).astype(np.float32) for shape in shapes(size)]
        given = []
        for info, array in zip(model.graph.input, feed, strict=True):
            np.save(tmp_path / f"{info.name}.npy", array)
            given += ["-i", f"{info.name}={tmp_path / info.name}.npy"]
        done = run_tw("run", artifact, *given, "-o", tmp_path / "y.npz", env=device.env)
        assert done.returncode == 0, done.stderr
        (want,) = run_onnxruntime(model, feed)
        near = {"f16": 2.0**-9, "tf32": 2.0**-9, "bf16": 2.0**-6}[precision] * float(np.abs(want).max())
        np.testing.assert_allclose(np.load(tmp_path / "y.npz")["y"], want, rtol=0, atol=near)


# Of so many rows blocks make several tiles on a GPU, whose copies a warp of its own asks for; the emulator has fewer.
def test_large_products_agree_with_numpy(device, tmp_path):
    size = 4096 if device.every == 1 else 256
    shape = (size, size)
    model = model_of([("MatMul", ["a", "b"], ["y"])], [value("a", shape), value("b", shape)], [value("y", shape)])
    onnx.save(model, tmp_path / "m.onnx")
    compiled = ("compile", tmp_path / "m.onnx", "-t", device.target, "--precision", "bf16", "-o", tmp_path / "m.twa")
    done = run_tw(*compiled, env=device.env)
    assert done.returncode == 0, done.stderr
    rng, given, arrays = np.random.default_rng(6), [], {}
    for name in "ab":
        arrays[name] = rng.standard_normal(shape).astype(np.float32)
        np.save(tmp_path / f"{name}.npy", arrays[name])
        given += ["-i", f"{name}={tmp_path / name}.npy"]
    done = run_tw("run", tmp_path / "m.twa", *given, "-o", tmp_path / "y.npz", env=device.env)
    assert done.returncode == 0, done.stderr
    a, b = (rounded(array, "bf16") for array in arrays.values())
    np.testing.assert_allclose(np.load(tmp_path / "y.npz")["y"], a @ b, rtol=1e-3, atol=1e-3 * size**0.5)


def test_ptx_beside_the_machine_code_runs_on_later_gpus(tmp_path):
    emulated = os.environ | dict.fromkeys(("CUDA_HOME", "LD_LIBRARY_PATH"), str(EMULATOR))
    model = small_network()
    onnx.save(model, tmp_path / "m.onnx")
    x = np.random.default_rng(5).standard_normal((1, 3, 16, 16)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    for target in ("cuda:sm_80", "cuda:sm_80+ptx"):
        done = run_tw("compile", tmp_path / "m.onnx", "-t", target, "-o", tmp_path / f"{target}.twa", env=emulated)
        assert done.returncode == 0, done.stderr

    def run(target, **played):
        output = tmp_path / "y.npz"
        output.unlink(missing_ok=True)
        env = emulated | {f"CUDA_EMULATOR_{name}": str(number) for name, number in played.items()}
        done = run_tw("run", tmp_path / f"{target}.twa", "-i", f"x={tmp_path / 'x.npy'}", "-o", output, env=env)
        return done.stderr if done.returncode else np.load(output)["y"]

    (expected,) = run_onnxruntime(model, [x])
    for capability in (80, 86, 90, 103, 120):
        np.testing.assert_allclose(run("cuda:sm_80+ptx", CAPABILITY=capability), expected, atol=1e-4, rtol=1e-4)
    np.testing.assert_allclose(run("cuda:sm_80", CAPABILITY=86), expected, atol=1e-4, rtol=1e-4)
    for target, capability in (("cuda:sm_80", 90), ("cuda:sm_80", 75), ("cuda:sm_80+ptx", 75)):
        refused = run(target, CAPABILITY=capability)
        assert f"built for {target}, which Emulated GPU, sm_{capability}, does not run" in refused, refused
        assert 'for "cuda:sm_80+ptx", which sm_80 and all later ones run' in refused
    refused = run("cuda:sm_80+ptx", CAPABILITY=90, CUDA=12040)
    assert "the NVIDIA driver (CUDA up to 12.4) does not take the code for cuda:sm_80+ptx, made by CUDA 13.0" in refused
    doctor = run_tw("doctor", env=emulated | {"CUDA_EMULATOR_CUDA": "12040", "CUDA_EMULATOR_CAPABILITY": "100"}).stdout
    assert "NVIDIA driver (CUDA up to 12.4)" in doctor and "Emulated GPU, sm_100" in doctor, doctor
