"""`shapes=` gives dimensions that a model fixes other sizes, or opens them: as far as the model's nodes allow."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import tilewright as tw
from conftest import model_of, value


def weights(*shape):
    return (np.random.default_rng(0).standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)


FIXED = model_of(
    [
        ("Conv", ["x", "w"], ["a"], {"pads": [1, 1, 1, 1]}),
        ("Relu", ["a"], ["b"]),
        ("GlobalAveragePool", ["b"], ["c"]),
        ("Flatten", ["c"], ["y"]),
    ],
    [value("x", [1, 3, 12, 12])],
    [value("y", None)],
    {"w": weights(8, 3, 3, 3)},
)


def opened(model, shape):
    """The model with its first input declared so, for the reference evaluator, which trusts declarations."""
    copy = type(model)()
    copy.CopyFrom(model)
    copy.graph.input[0].CopyFrom(value("x", shape))
    return copy


@pytest.mark.parametrize("shape", [(8, 3, 12, 12), (1, 3, 20, 9), ("batch", 3, 12, 12), (None, 3, "h", "w")])
def test_dimensions_that_the_model_fixes_are_changed(shape):
    executable = tw.compile(FIXED, shapes={"x": shape})
    reference = ReferenceEvaluator(opened(FIXED, ["n", 3, "h", "w"]))
    rng = np.random.default_rng(1)
    for sizes in (iter([5, 7]), iter([1, 16])):
        own = [dim.dim_value for dim in FIXED.graph.input[0].type.tensor_type.shape.dim]
        wanted = [next(sizes) if isinstance(dim, str) else dim or fixed for dim, fixed in zip(shape, own, strict=True)]
        feed = {"x": rng.standard_normal(wanted, np.float32)}
        np.testing.assert_allclose(
            executable.run(feed)["y"], reference.run(None, feed)[0], rtol=1e-4, atol=1e-4, err_msg=str(wanted)
        )


# The batch of one is written into the Reshape, so that the product gets rows of another length.
BATCH_WRITTEN = model_of(
    [("Reshape", ["x", "s"], ["a"]), ("MatMul", ["a", "w"], ["y"])],
    [value("x", [1, 4, 6])],
    [value("y", None)],
    {"s": np.array([1, -1], np.int64), "w": weights(24, 5)},
)


@pytest.mark.parametrize(
    "model, shape, message",
    [
        (BATCH_WRITTEN, (8, 4, 6), r"node `MatMul_1`(.|\n)*note: shapes= changes dimension 0 of `x` from 1 to 8"),
        (BATCH_WRITTEN, ("batch", 4, 6), r"dimension 0 of input `x` cannot be open: it is 1, as node .*\(MatMul\)"),
        (FIXED, (1, 4, 12, 12), r"node `Conv_0`(.|\n)*dimension 1 of `x` from 3 to 4"),
    ],
)
def test_changes_that_the_model_does_not_allow(model, shape, message):
    with pytest.raises(tw.Error, match=f"TW1004(.|\n)*{message}"):
        tw.load(model, shapes={"x": shape})
