"""Networks of quantised data (QDQ) on CPUs: their products are products of bytes where the CPU has any."""

import os
import re

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

import quantised_models  # noqa: E402
import tilewright as tw  # noqa: E402
from conftest import run_tw  # noqa: E402
from onnx_suite import read_outputs, run_folders, write_case  # noqa: E402
from random_graphs import RUNNER  # noqa: E402

# With dot products of u8 by i8, of i8 alone, of both and their products of matrices, and with none.
TARGETS = ["cpu", "neoverse-n1", "neoverse-v1", "x86:sse4", "armv7"]


def check(cases, target, folder):
    """Codes are what exact arithmetic gives, rounded to the nearer one where it is not nearly halfway between two."""
    for name, (model, feed, _) in cases.items():
        write_case(folder / name, model, list(feed.values()))
    done = run_folders(RUNNER, target, [folder / name for name in cases], 300)
    for name, (_, _, exact) in cases.items():
        assert done[str(folder / name)][0] == "ok", (name, done[str(folder / name)])
        ours = read_outputs(folder / name / "outputs.bin")[0]
        assert np.abs(ours - exact).max() < 0.501, (name, np.abs(ours - exact).max())


@pytest.mark.parametrize("target", TARGETS)
def test_layers_are_what_exact_arithmetic_gives(target, tmp_path):
    cases = {name: quantised_models.layer(**options) for name, options in quantised_models.LAYERS.items()}
    check(cases, target, tmp_path)
    for name in cases:
        assert len(np.unique(read_outputs(tmp_path / name / "outputs.bin")[0])) > 50, name


@pytest.mark.parametrize("target, count", [("cpu", 150), ("neoverse-n1", 20), ("neoverse-v1", 20)])
def test_random_layers_are_what_exact_arithmetic_gives(target, count, tmp_path):
    check({f"layer{seed}": quantised_models.random_layer(seed) for seed in range(count)}, target, tmp_path)


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("options", [{}, quantised_models.SYMMETRIC], ids=["unsigned", "symmetric"])
@pytest.mark.parametrize("network", ["residual_network", "mobile_network", "encoder"])
def test_networks_agree_with_onnx_runtime(network, options, precision):
    model = quantised_models.quantised(getattr(quantised_models, network)(), **options)
    feed = np.random.default_rng(5).standard_normal(quantised_models.shape_of(model)).astype(np.float32)
    ours = tw.compile(tw.load(model), precision=precision).run({"x": feed})["y"]
    apart = np.abs(ours - quantised_models.unoptimised(model, feed)) / quantised_models.step_of(model)
    # Of codes that are nearly halfway some are the other one, and what is made of them differs, too.
    most, share = (2.5, 0.3) if precision == "f32" else (6, 0.5)
    assert apart.max() < most and np.mean(apart > 0.5) < share


@pytest.mark.parametrize("target", ["x86:avx512+avx512vnni", "neoverse-n1", "neoverse-v1"])
@pytest.mark.parametrize("options", [{}, quantised_models.SYMMETRIC], ids=["unsigned", "symmetric"])
@pytest.mark.parametrize(
    "network, products, others", [("residual_network", 10, 0), ("mobile_network", 8, 2), ("encoder", 8, 0)]
)
def test_products_are_made_by_instructions_on_bytes(network, products, others, options, target, tmp_path):
    """All but depthwise convolutions; those that are alike but for their weights are one kernel."""
    onnx.save(quantised_models.quantised(getattr(quantised_models, network)(), **options), tmp_path / "q.onnx")
    env = os.environ | {"TW_DUMP": str(tmp_path), "TW_CACHE": "off"}
    done = run_tw("compile", tmp_path / "q.onnx", "-t", target, "-o", tmp_path / "q.twa", env=env)
    assert done.returncode == 0, done.stderr
    kernels = [*tmp_path.glob("k*_conv.09_tensorize_loops.tw"), *tmp_path.glob("k*_matmul.09_tensorize_loops.tw")]
    on_bytes = [bool(re.search(r"(dot|matrix)_[us]8s8\(", path.read_text())) for path in kernels]
    assert on_bytes.count(True) >= products and on_bytes.count(False) == others, (kernels, on_bytes)


@pytest.mark.parametrize("target", TARGETS)
def test_activations_are_looked_up_as_they_are_computed(target, tmp_path):
    cases = {
        f"{op}-{data.__name__}-{'x'.join(map(str, shape))}": quantised_models.activation(op, data, zero, shape)
        for op in ("Sigmoid", "Tanh", "Gelu", "HardSwish")
        for data, zero, shape in ((np.uint8, 120, (3, 70)), (np.int8, -3, (2, 32, 5, 7)), (np.uint8, 0, (300,)))
    }
    for name, (model, x) in cases.items():
        write_case(tmp_path / name, model, [x])
    done = run_folders(RUNNER, target, [tmp_path / name for name in cases], 300)
    for name, (model, x) in cases.items():
        assert done[str(tmp_path / name)][0] == "ok", (name, done[str(tmp_path / name)])
        ours = read_outputs(tmp_path / name / "outputs.bin")[0].astype(int)
        apart = np.abs(ours - quantised_models.unoptimised(model, x).astype(int))
        assert apart.max() <= 1 and np.mean(apart > 0) < 0.02 and len(np.unique(ours)) > 20, name


@pytest.mark.parametrize("target, is_table", [("x86:avx512+avx512vbmi", True), ("rpi4", True), ("x86:avx512", False)])
def test_activations_are_tables_where_bytes_are_permuted(target, is_table, tmp_path):
    model, _ = quantised_models.activation("Sigmoid")
    onnx.save(model, tmp_path / "a.onnx")
    env = os.environ | {"TW_DUMP": str(tmp_path), "TW_CACHE": "off"}
    done = run_tw("compile", tmp_path / "a.onnx", "-t", target, "-o", tmp_path / "a.twa", env=env)
    assert done.returncode == 0, done.stderr
    (kernel,) = tmp_path.glob("k*.00_input.tw")
    assert ("lookup" in kernel.name) == is_table
