"""Networks of known families against ONNX Runtime, with and without the recognition of composite operators."""

import numpy as np
import pytest

import networks
import tilewright as tw
from conftest import model_of, value

onnxruntime = pytest.importorskip("onnxruntime")


NETWORKS = {
    "gpt2": lambda: networks.gpt2(),
    "gpt2_one_row": lambda: networks.gpt2(rows=1),
    "vit": lambda: networks.vit(),
    "vit_197": lambda: networks.vit(batch=1, patches=14, heads=2, size=20, layers=1),
    "swin": lambda: networks.swin(),
    "convnext": lambda: networks.convnext(),
    "llama": lambda: networks.llama(),
    "llama_decode": lambda: networks.llama(rows=1, past=37, size=32),
    "llama_append": lambda: networks.llama(rows=5, past=20),
}


def feed_of(model) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        i.name: rng.standard_normal([d.dim_value for d in i.type.tensor_type.shape.dim]).astype(np.float32)
        for i in model.graph.input
    }


@pytest.mark.parametrize("name", NETWORKS)
def test_like_onnx_runtime(name, monkeypatch):
    model = NETWORKS[name]()
    feed = feed_of(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, feed)
    steps = {}
    for skipped in ("", "recognise"):
        monkeypatch.setenv("TW_SKIP", skipped)
        executable = tw.compile(tw.load(model.SerializeToString()))
        steps[skipped] = len(executable.profile(feed, 1).kernels)
        for ours, theirs in zip(executable.run(feed).values(), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-4, rtol=1e-4)
    # Whatever was recognised is one kernel and was several.
    assert steps[""] < steps["recognise"]


@pytest.mark.parametrize("name", NETWORKS)
def test_bf16_stays_near_onnx_runtime(name):
    """Of the largest output at most 3 %: what bf16 networks differ by elsewhere, too."""
    model = NETWORKS[name]()
    feed = feed_of(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    executable = tw.compile(tw.load(model.SerializeToString()), precision="bf16")
    for ours, theirs in zip(executable.run(feed).values(), session.run(None, feed), strict=True):
        assert np.abs(ours - theirs).max() <= 3e-2 * np.abs(theirs).max()


@pytest.mark.parametrize(("first", "end"), [(7, 8), (0, 1), (6, 8), (0, 4), (2, 7)])
def test_columns_of_a_product(first, end):
    """Equal parts of the columns are made with the product, but for a single one, of which there are no vectors."""
    random = np.random.default_rng(first)
    w, x = random.standard_normal((8, 8)).astype(np.float32), random.standard_normal((4, 8)).astype(np.float32)
    constants = {"w": w, "first": np.array([first]), "end": np.array([end]), "axis": np.array([1])}
    nodes = [("MatMul", ["x", "w"], ["a"]), ("Slice", ["a", "first", "end", "axis"], ["b"]), ("Sigmoid", ["b"], ["y"])]
    model = model_of(nodes, [value("x", [4, 8])], [value("y", None)], constants)
    y = tw.compile(tw.load(model)).run({"x": x})["y"]
    np.testing.assert_allclose(y, 1 / (1 + np.exp(-(x @ w)[:, first:end])), rtol=1e-4)
