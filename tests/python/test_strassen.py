"""Products by Strassen's algorithm, where analysis chooses it and it is allowed.

Numbers of rows, widths and levels: tests/unit/relay_ir/strassen_test.cpp.
"""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import tilewright as tw
from conftest import model_of, value
from tilewright import machine

# Elsewhere rows whose elements lie side by side keep their plain products; images do not.
needs_wide_vectors = pytest.mark.skipif(
    machine.describe()["vector_bits"] < 512, reason="small register tiles gain nothing for such rows"
)


def network(shape, widths, is_image=False, scale=None):
    """Products (or 1×1 convolutions) of these widths, with biases and SiLU behind each."""
    rng = np.random.default_rng(sum(shape) + sum(widths))
    nodes, constants, name = [], {}, "x"
    for i, (inputs, outputs) in enumerate(zip(widths, widths[1:], strict=False)):
        weight = (rng.standard_normal((inputs, outputs)) / np.sqrt(inputs)).astype(np.float32)
        weight *= np.float32(1) if scale is None else scale(outputs)
        constants[f"b{i}"] = rng.standard_normal(outputs).astype(np.float32)
        constants[f"w{i}"] = weight.T[:, :, None, None].copy() if is_image else weight
        if is_image:
            nodes.append(("Conv", [name, f"w{i}", f"b{i}"], [f"s{i}"]))
        else:
            nodes.append(("MatMul", [name, f"w{i}"], [f"p{i}"]))
            nodes.append(("Add", [f"p{i}", f"b{i}"], [f"s{i}"]))
        nodes.append(("Sigmoid", [f"s{i}"], [f"g{i}"]))
        nodes.append(("Mul", [f"s{i}", f"g{i}"], [f"y{i}"]))
        name = f"y{i}"
    result = (shape[0], widths[-1], *shape[2:]) if is_image else (*shape[:-1], widths[-1])
    model = model_of(nodes, [value("x", shape)], [value(name, result)], constants)
    return model.SerializeToString(), {"x": rng.standard_normal(shape).astype(np.float32)}


def count_strassen(executable) -> int:
    return sum("strassen" in step["kernel"] for step in executable.describe()["steps"])


def expected_of(model, feed):
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feed)[0]


def is_close(actual, expected) -> bool:
    return bool(np.abs(actual - expected).max() <= 1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("shape", "widths", "is_image"),
    [
        pytest.param((1, 2049, 512), (512, 768, 512), False, marks=needs_wide_vectors),
        pytest.param((3, 701, 512), (512, 512), False, marks=needs_wide_vectors),
        pytest.param((1, 19, 63, 512), (512, 512), False, marks=needs_wide_vectors),
        ((1, 512, 45, 47), (512, 384, 512), True),
        ((2, 512, 31, 33), (512, 512), True),
        pytest.param((1, 1024, 1000), (1000, 1064, 1000), False, marks=needs_wide_vectors),
        ((1, 1064, 32, 33), (1064, 1000), True),
    ],
)
def test_against_onnxruntime(shape, widths, is_image):
    model, feed = network(shape, widths, is_image)
    executable = tw.compile(tw.load(model), threads=2)
    assert count_strassen(executable) >= len(widths) - 1
    (actual,) = executable.run(feed).values()
    assert is_close(actual, expected_of(model, feed))


def test_is_a_choice():
    model, feed = network((1, 512, 45, 46), (512, 512), is_image=True)
    loaded = tw.load(model)
    fast, plain = (tw.compile(loaded, threads=2, strassen=allowed) for allowed in (True, False))
    assert count_strassen(fast) and not count_strassen(plain)
    assert "strassen=" in fast.report() and "strassen" not in plain.report()
    assert tw.compare(fast, plain, inputs=feed).ok


def test_columns_are_rounded_by_their_own_size():
    """And not by that of the columns which they are summed with; the last ones are zeros."""
    size = np.float32([1e-4, 1, 1e3, 0]).repeat(128)
    model, feed = network((1, 512, 45, 46), (512, 512), is_image=True, scale=lambda _: size)
    executable = tw.compile(tw.load(model), threads=2)
    assert count_strassen(executable)
    (actual,) = executable.run(feed).values()
    expected = expected_of(model, feed)
    for columns in np.split(np.arange(512), 4):
        assert is_close(actual[:, columns], expected[:, columns])


@pytest.mark.parametrize("is_image", [pytest.param(False, marks=needs_wide_vectors), True])
def test_rows_are_rounded_by_their_own_size(is_image):
    """And not by that of a neighbour: networks of text have tokens that are a thousand times as large as others."""
    model, feed = network((1, 512, 32, 32) if is_image else (1, 1024, 512), (512, 512), is_image, lambda _: 1e-3)
    rows = feed["x"].reshape(512, 1024).T if is_image else feed["x"][0]
    rows *= np.float32(10) ** np.random.default_rng(4).integers(-20, 20, (1024, 1))
    rows[[5, 77]] = 0
    executable = tw.compile(tw.load(model), threads=2)
    assert count_strassen(executable)
    actual, expected = next(iter(executable.run(feed).values())), expected_of(model, feed)
    for got, wanted in zip(*(y.reshape(512, 1024).T if is_image else y[0] for y in (actual, expected)), strict=True):
        assert is_close(got, wanted)


@pytest.mark.parametrize("what", [np.nan, np.inf, -np.inf])
def test_what_is_not_a_number_stays_in_its_row(what):
    model, feed = network((1, 512, 31, 33), (512, 512), is_image=True)
    executable = tw.compile(tw.load(model), threads=2)
    assert count_strassen(executable)
    expected = next(iter(executable.run(feed).values()))
    feed["x"][0, 100, 2, 6] = what
    actual = next(iter(executable.run(feed).values()))
    assert np.isnan(actual[..., 2, 6]).all()
    actual[..., 2, 6] = expected[..., 2, 6]
    assert is_close(actual, expected)


def test_images_of_a_batch_do_not_meet():
    """What is not a number in one image stays there."""
    model, feed = network((2, 512, 31, 33), (512, 512), is_image=True)
    executable = tw.compile(tw.load(model), threads=2)
    assert count_strassen(executable)
    expected = next(iter(executable.run(feed).values()))
    feed["x"][0] = np.nan
    (actual,) = executable.run(feed).values()
    assert np.isnan(actual[0]).all() and (actual[1] == expected[1]).all()


@pytest.mark.parametrize("is_map_open", [False, True])
@pytest.mark.parametrize(
    ("shape", "widths"), [((1, 1024, 31, 33), (1024, 1064)), ((1, 1064, 32, 32), (1064, 1024, 1024))]
)
def test_open_images(shape, widths, is_map_open):
    """As many of them as there are in a run, and as large."""
    model = onnx.load_model_from_string(network(shape, widths, is_image=True)[0])
    for tensor in [*model.graph.input, *model.graph.output]:
        dims = tensor.type.tensor_type.shape.dim
        dims[0].dim_param = "batch"
        if is_map_open:
            dims[2].dim_param, dims[3].dim_param = "height", "width"
    model = model.SerializeToString()
    executable = tw.compile(tw.load(model), threads=2)
    assert count_strassen(executable) == len(widths) - 1
    for batch, height, width in ((1, *shape[2:]), (2, *shape[2:]), (5, *shape[2:]), (3, 1, 1), (2, 9, 6), (1, 40, 45)):
        if is_map_open or (height, width) == shape[2:]:
            image = np.random.default_rng(batch).standard_normal((batch, shape[1], height, width)).astype(np.float32)
            (actual,) = executable.run({"x": image}).values()
            assert is_close(actual, expected_of(model, {"x": image}))


def test_open_rows_keep_plain_sums():
    """There may be one row in a run."""
    model = onnx.load_model_from_string(network((1, 2048, 512), (512, 512))[0])
    for tensor in [*model.graph.input, *model.graph.output]:
        tensor.type.tensor_type.shape.dim[1].dim_param = "tokens"
    assert not count_strassen(tw.compile(tw.load(model.SerializeToString()), threads=2))


def test_halves_of_its_columns_are_combined_behind_it():
    """A gated unit: its own kernel, since a tile of the product has rows of one block of columns only."""
    model = onnx.load_model_from_string(network((1, 512, 32, 32), (512, 512), is_image=True)[0])
    feed = {"x": np.random.default_rng(3).standard_normal((1, 512, 32, 32)).astype(np.float32)}
    del model.graph.node[1:]
    model.graph.node.append(helper.make_node("Split", ["s0"], ["a", "b"], axis=1, num_outputs=2))
    model.graph.node.append(helper.make_node("Sigmoid", ["b"], ["c"]))
    model.graph.node.append(helper.make_node("Mul", ["a", "c"], ["y0"]))
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 256
    model.opset_import[0].version = 18
    executable = tw.compile(tw.load(model.SerializeToString()), threads=2)
    assert count_strassen(executable) in (1, 2)
    assert is_close(executable.run(feed)["y0"], expected_of(model.SerializeToString(), feed))
