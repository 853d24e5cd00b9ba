"""Operators with random parameters against ONNX Runtime: windows, resizes, slices, pads, products, reductions."""

import random
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest

from conftest import model_of, value
from onnx_suite import read_outputs, run_folders, write_case

onnxruntime = pytest.importorskip("onnxruntime")

RUNNER = Path(__file__).resolve().parents[2] / "build/tests/onnx_node_runner"


def array(rng, *shape):
    return np.random.default_rng(rng.randrange(2**32)).standard_normal(shape).astype(np.float32)


def window(rng, rank, pool=False):
    kernel = [rng.randint(1, 4) for _ in range(rank)]
    attributes = {"kernel_shape": kernel, "strides": [rng.randint(1, 3) for _ in range(rank)]}
    if rng.random() < 0.3:
        attributes["auto_pad"] = rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"])
    else:
        attributes["pads"] = [rng.randint(0, (k - 1) if pool else 2) for k in kernel * 2]
        if not pool or rng.random() < 0.3:
            attributes["dilations"] = [rng.randint(1, 2) for _ in range(rank)]
    return kernel, attributes


def conv(rng):
    rank, groups = rng.randint(1, 3), rng.choice([1, 1, 2, 3])
    kernel, attributes = window(rng, rank)
    channels, outputs = groups * rng.randint(1, 3), groups * rng.randint(1, 3)
    x = array(rng, rng.randint(1, 2), channels, *[rng.randint(5, 9) for _ in range(rank)])
    constants = {"w": array(rng, outputs, channels // groups, *kernel)}
    if rng.random() < 0.5:
        constants["b"] = array(rng, outputs)
    return "Conv", [x], constants, {**attributes, "group": groups}


def conv_transpose(rng):
    rank, groups = rng.randint(1, 2), rng.choice([1, 2])
    kernel, attributes = window(rng, rank)
    if rng.random() < 0.3:
        attributes["strides"] = kernel
    channels = groups * rng.randint(1, 3)
    if "auto_pad" not in attributes:
        attributes["output_padding"] = [rng.randint(0, s - 1) for s in attributes["strides"]]
    x = array(rng, 1, channels, *[rng.randint(3, 6) for _ in range(rank)])
    weight = array(rng, channels, rng.randint(1, 3), *kernel)
    return "ConvTranspose", [x], {"w": weight}, {**attributes, "group": groups}


def pool(rng):
    rank = rng.randint(1, 3)
    op = rng.choice(["MaxPool", "AveragePool"])
    _, attributes = window(rng, rank, pool=True)
    attributes["ceil_mode"] = rng.randint(0, 1)
    if op == "AveragePool":
        attributes["count_include_pad"] = rng.randint(0, 1)
    return op, [array(rng, 1, 2, *[rng.randint(5, 9) for _ in range(rank)])], {}, attributes


def resize(rng):
    mode = rng.choice(["nearest", "linear", "cubic"])
    x = array(rng, 1, 2, rng.randint(2, 7), rng.randint(2, 7))
    attributes = {
        "mode": mode,
        "coordinate_transformation_mode": rng.choice(
            ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
        ),
    }
    if mode == "nearest":
        attributes["nearest_mode"] = rng.choice(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])
    if mode == "cubic":
        attributes["exclude_outside"] = rng.randint(0, 1)
    sizes = np.array([1, 2, rng.randint(1, 12), rng.randint(1, 12)], np.int64)
    none = np.zeros(0, np.float32)
    return "Resize", [x], {"roi": none, "scales": none, "sizes": sizes}, attributes


def slice_(rng):
    shape = [rng.randint(1, 6) for _ in range(3)]
    axes = rng.sample(range(-3, 0), rng.randint(1, 3))
    bounds = {n: np.array([rng.randint(-8, 8) for _ in axes], np.int64) for n in ("starts", "ends")}
    steps = np.array([rng.choice([-3, -2, -1, 1, 2, 3]) for _ in axes], np.int64)
    return "Slice", [array(rng, *shape)], {**bounds, "axes": np.array(axes, np.int64), "steps": steps}, {}


def pad(rng):
    shape = [rng.randint(3, 5) for _ in range(2)]
    mode = rng.choice(["constant", "edge", "reflect"])
    pads = np.array([rng.randint(0 if mode != "constant" else -1, 2) for _ in range(4)], np.int64)
    return "Pad", [array(rng, *shape)], {"pads": pads, "value": np.float32(rng.random())}, {"mode": mode}


def matmul(rng):
    m, k, n = (rng.randint(1, 5) for _ in range(3))
    batch = [rng.randint(1, 3) for _ in range(rng.randint(0, 2))]

    def side(*matrix):
        mine = [d if rng.random() < 0.7 else 1 for d in batch[rng.randint(0, len(batch)) :]]
        return array(rng, *mine, *matrix)

    return "MatMul", [side(m, k), side(k, n)], {}, {}


def reduce(rng):
    rank = rng.randint(1, 4)
    axes = np.array(rng.sample(range(-rank, rank), 1), np.int64)
    op = rng.choice(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp", "ReduceProd"])
    return op, [array(rng, *[rng.randint(1, 4) for _ in range(rank)])], {"axes": axes}, {"keepdims": rng.randint(0, 1)}


def softmax(rng):
    rank = rng.randint(1, 4)
    x = array(rng, *[rng.randint(1, 5) for _ in range(rank)])
    return rng.choice(["Softmax", "LogSoftmax"]), [x], {}, {"axis": rng.randrange(-rank, rank)}


KINDS = [conv, conv_transpose, pool, resize, slice_, pad, matmul, reduce, softmax]


def differences(mode, env=None, cases=25):
    """Of that many random cases a kind, run in a mode of the runner and by ONNX Runtime, in words."""
    rng = random.Random(17)
    with tempfile.TemporaryDirectory() as work:
        expected = {}
        for k in range(cases * len(KINDS)):
            kind = KINDS[k % len(KINDS)]
            op, inputs, constants, attributes = kind(rng)
            infos = [value(f"x{i}", a.shape) for i, a in enumerate(inputs)]
            names = [i.name for i in infos] + list(constants)
            model = model_of([(op, names, ["y"], attributes)], infos, [onnx.ValueInfoProto(name="y")], constants, 18)
            try:
                options = onnxruntime.SessionOptions()
                options.log_severity_level = 4
                session = onnxruntime.InferenceSession(model.SerializeToString(), options)
                outputs = session.run(None, {i.name: a for i, a in zip(infos, inputs, strict=True)})
            except Exception:  # what the other side does not take is no case
                continue
            model.graph.output[0].CopyFrom(value("y", outputs[0].shape))
            folder = Path(work) / f"{k}-{op}"
            write_case(folder, model, inputs)
            expected[str(folder)] = (outputs[0], attributes)
        assert len(expected) > 0.6 * cases * len(KINDS)
        bad = []
        for folder, (status, message) in run_folders(RUNNER, mode, list(expected), 300, env).items():
            want, attributes = expected[folder]
            name = f"{Path(folder).name} {attributes}"
            if status != "ok":
                bad.append(f"{name}: {status} {message[:200]}")
                continue
            (have,) = read_outputs(Path(folder) / "outputs.bin")
            if have.shape != want.shape or not np.allclose(have, want, rtol=1e-4, atol=1e-5, equal_nan=True):
                difference = np.abs(have - want).max() if have.shape == want.shape else "another shape"
                bad.append(f"{name}: {have.shape} {want.shape} {difference}")
        return bad


@pytest.mark.parametrize("mode", ["oracle", "cpu"])
def test_random_parameters_agree_with_onnx_runtime(mode):
    bad = differences(mode)
    assert not bad, f"{len(bad)}:\n" + "\n".join(bad)
