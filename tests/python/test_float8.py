"""Products and convolutions of floats of 8 bits on tensor cores: by the emulator, and as the assembler has them."""

import os
from collections import Counter

import numpy as np
import onnx
import pytest

import float8_models
import tilewright as tw
from conftest import ROOT, reference, run_tw
from float8_models import E4M3, E5M2
from tilewright import gpu_kernels

EMULATOR = str(ROOT / "build/tests/cuda_emulator")
ENV = os.environ | {"CUDA_HOME": EMULATOR, "LD_LIBRARY_PATH": EMULATOR}


def by_emulator(model, feed, folder):
    onnx.checker.check_model(model)
    onnx.save(model, folder / "m.onnx")
    np.savez(folder / "x.npz", **feed)
    for arguments in (
        ("compile", folder / "m.onnx", "-t", "cuda:sm_90", "-o", folder / "m.twa"),
        ("run", folder / "m.twa", "-i", folder / "x.npz", "-o", folder / "y.npz"),
    ):
        done = run_tw(*arguments, env=ENV)
        assert done.returncode == 0, done.stderr
    return np.load(folder / "y.npz")["y"]


def random(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("values", "weights"), [(E4M3, E4M3), (E5M2, E4M3), (E4M3, E5M2)])
def test_networks_of_quantised_floats_agree_with_onnx(values, weights, tmp_path):
    for network, shape in ((float8_models.perceptron, (64, 96)), (float8_models.residual, (2, 3, 14, 14))):
        model, feed = network(values=values, weights=weights), {"x": random(*shape)}
        (theirs,) = reference(model, feed)
        # Another order of a sum may round a value of 3 or 4 bits to its neighbour.
        near = 2.0 ** (-3 if values is E5M2 else -5) * np.abs(theirs).max()
        for ours in (by_emulator(model, feed, tmp_path), tw.compile(tw.load(model)).run(feed)["y"]):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=near)
            assert np.mean(np.abs(ours - theirs)) < near / 4


@pytest.mark.parametrize("wide", [onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16])
def test_products_of_casts_agree_with_onnx(wide, tmp_path):
    model, feed = float8_models.casts(wide=wide)
    ours, theirs = by_emulator(model, feed, tmp_path), reference(model, feed)[0]
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours.astype(np.float32), theirs.astype(np.float32), rtol=2.0**-10, atol=1e-5)


def kernels_of(model, target, folder):
    tw.compile(tw.load(model), target=target).save(folder / "net.twa")
    return gpu_kernels.of_artifact(folder / "net.twa"), gpu_kernels.disassembly(str(folder / "net.twa"))


def test_sm_89_multiplies_codes(tmp_path):
    for model, products in (
        (float8_models.perceptron(1024, (512, 1024, 512)), 2),
        (float8_models.residual(size=28), 4),
    ):
        kernels, code = kernels_of(model, "cuda:sm_89", tmp_path)
        made = [kernel for kernel in kernels if kernel.instructions.get("tensor")]
        assert len(made) == products, kernels
        for kernel in made:
            names = Counter(name.partition(".")[0] for name in code[kernel.symbol])
            assert names["QMMA"] == kernel.instructions["tensor"] and names["LDSM"] > 0, names
            assert kernel.spills == 0 and kernel.stack_bytes == 0 and not kernel.instructions.get("local"), kernel
        assert sum(kernel.instructions.get("async copy", 0) > 3 for kernel in made) >= 2, made


# A warp's product of these is two of f16 there, with conversions before them.
def test_sm_90_multiplies_codes_by_groups_of_warps(tmp_path):
    linear = float8_models.perceptron(1024, (512, 1024, 512))
    large = float8_models.perceptron(4096, (512, 4096))
    for model, least in ((linear, 2), (large, 1), (float8_models.residual(batch=8, size=56, channels=64), 2)):
        kernels, code = kernels_of(model, "cuda:sm_90", tmp_path)
        names = {kernel.symbol: Counter(name.partition(".")[0] for name in code[kernel.symbol]) for kernel in kernels}
        by_groups = [kernel for kernel in kernels if names[kernel.symbol]["QGMMA"]]
        assert len(by_groups) >= least, names
        for kernel in kernels:
            assert kernel.spills == 0 and kernel.stack_bytes == 0 and not kernel.instructions.get("local"), kernel
        for kernel in by_groups:
            own = names[kernel.symbol]
            assert own["UTMALDG"] > 0 and not own["HMMA"] and not own["LDSM"], own
    # Of one of the data sheet's rates, which is that of bytes.
    (product, *_) = (kernel for kernel in kernels_of(linear, "cuda:sm_90", tmp_path)[0] if "matmul" in kernel.symbol)
    assert product.instructions["tensor"] > 0 and product.bound == "memory", product


def test_sm_80_computes_in_wider_types(tmp_path):
    kernels, code = kernels_of(float8_models.perceptron(), "cuda:sm_80", tmp_path)
    assert kernels and not any(name.startswith(("QMMA", "IMMA")) for names in code.values() for name in names)
