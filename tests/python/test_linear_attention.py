"""LinearAttention, FlexAttention and deformable convolutions at sizes that ONNX's suite does not have."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import tilewright as tw


def info(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs, **domains):
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    opsets = [helper.make_opsetid("", 27), *(helper.make_opsetid(k.replace("_", "."), v) for k, v in domains.items())]
    return helper.make_model(graph, opset_imports=opsets)


def check(proto, feed, executable=None, tolerance=1e-5):
    executable = executable or tw.compile(tw.load(proto.SerializeToString()))
    wanted = ReferenceEvaluator(proto).run(None, feed)
    for got, expected in zip(executable.run(feed).values(), wanted, strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)


def linear_model(rule, heads, query_heads, keys, values, steps="steps", decay_size=1, has_state=True):
    names = ["q", "k", "v", "state" if has_state else ""]
    inputs = [
        info("q", ["batch", steps, query_heads * keys]),
        info("k", ["batch", steps, heads * keys]),
        info("v", ["batch", steps, heads * values]),
    ]
    if has_state:
        inputs.append(info("state", ["batch", heads, keys, values]))
    if "gated" in rule:
        inputs.append(info("decay", ["batch", steps, heads * decay_size]))
    if "delta" in rule:
        inputs.append(info("beta", ["batch", steps, heads]))
    names += ["decay" if "gated" in rule else "", "beta" if "delta" in rule else ""]
    node = helper.make_node(
        "LinearAttention", names, ["y", "present"], q_num_heads=query_heads, kv_num_heads=heads, update_rule=rule
    )
    outputs = [info("y", ["batch", steps, query_heads * values]), info("present", ["batch", heads, keys, values])]
    return model([node], inputs, outputs)


def feed_of(proto, batch, steps, seed=0):
    random = np.random.default_rng(seed)
    feed = {}
    for i in proto.graph.input:
        shape = [{"batch": batch, "steps": steps}.get(d.dim_param, d.dim_value) for d in i.type.tensor_type.shape.dim]
        array = random.standard_normal(shape).astype(np.float32) * 0.5
        feed[i.name] = -np.abs(array) if i.name == "decay" else 1 / (1 + np.exp(-array)) if i.name == "beta" else array
    return feed


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention_at_open_sizes(rule):
    """One executable for a long past, a single step and several sequences."""
    proto = linear_model(rule, heads=2, query_heads=4, keys=16, values=24, decay_size=16)
    executable = tw.compile(tw.load(proto.SerializeToString()))
    for batch, steps in ((1, 1), (2, 37), (3, 8), (1, 2)):
        check(proto, feed_of(proto, batch, steps), executable)


@pytest.mark.parametrize("steps", [1, 5])
def test_linear_attention_of_known_sizes(steps):
    proto = linear_model("gated_delta", 3, 3, 8, 8, steps=steps, has_state=False)
    executable = tw.compile(tw.load(proto.SerializeToString()))
    check(proto, feed_of(proto, 2, steps), executable)


def test_steps_one_by_one_are_all_at_once():
    """What a decoder does with `present` gives what the whole sequence gives."""
    proto = linear_model("gated_delta", 2, 2, 8, 16)
    executable = tw.compile(tw.load(proto.SerializeToString()))
    feed = feed_of(proto, 1, 6)
    whole = executable.run(feed)
    state, parts = feed["state"], []
    for step in range(6):
        own = {name: array[:, step : step + 1] for name, array in feed.items() if name != "state"}
        result = executable.run({**own, "state": state})
        state = result["present"].copy()
        parts.append(result["y"].copy())
    np.testing.assert_allclose(np.concatenate(parts, 1), whole["y"], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(state, whole["present"], rtol=1e-5, atol=1e-6)


def test_rules_that_do_not_fit_their_inputs_are_refused():
    proto = linear_model("gated", 2, 2, 8, 8)
    proto.graph.node[0].attribute[2].s = b"delta"
    with pytest.raises(tw.Error, match="update_rule=delta with decay"):
        tw.load(proto.SerializeToString())


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("has_state", [False, True])
def test_causal_convolutions_at_open_sizes(activation, has_state):
    inputs = [info("x", ["batch", 24, "steps"]), info("w", [24, 1, 4]), info("b", [24])]
    names = ["x", "w", "b"]
    if has_state:
        inputs.append(info("state", ["batch", 24, 3]))
        names.append("state")
    node = helper.make_node("CausalConvWithState", names, ["y", "present"], activation=activation)
    proto = model([node], inputs, [info("y", ["batch", 24, "steps"]), info("present", ["batch", 24, 3])])
    executable = tw.compile(tw.load(proto.SerializeToString()))
    for batch, steps in ((1, 1), (2, 17), (1, 3)):
        check(proto, feed_of(proto, batch, steps), executable)


def test_flex_attention_with_a_bias_of_positions():
    """Scores that are changed by where they stand, over query heads that share keys."""
    there = [
        helper.make_node("Shape", ["s"], ["keys"], start=3, end=4),
        helper.make_node("Squeeze", ["keys"], ["count"]),
        helper.make_node("Constant", [], ["zero"], value_int=0),
        helper.make_node("Constant", [], ["one"], value_int=1),
        helper.make_node("Range", ["zero", "count", "one"], ["at"]),
        helper.make_node("Cast", ["at"], ["place"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["place", "slope"], ["bias"]),
        helper.make_node("Add", ["s", "bias"], ["r"]),
    ]
    scores = info("s", ["b", 4, "rows", "keys"])
    score_mod = helper.make_graph(there, "score_mod", [scores], [info("r", ["b", 4, "rows", "keys"])])
    score_mod.initializer.append(onnx.numpy_helper.from_array(np.float32(0.25), "slope"))
    node = helper.make_node("FlexAttention", ["q", "k", "v"], ["y"], domain="ai.onnx.preview", score_mod=score_mod)
    inputs = [info("q", ["batch", 4, "steps", 16]), info("k", ["batch", 2, 19, 16]), info("v", ["batch", 2, 19, 8])]
    proto = model([node], inputs, [info("y", ["batch", 4, "steps", 8])], ai_onnx_preview=1)
    executable = tw.compile(tw.load(proto.SerializeToString()))
    for batch, steps in ((1, 5), (2, 33)):
        check(proto, feed_of(proto, batch, steps), executable)


@pytest.mark.parametrize(
    ("groups", "parts", "strides", "dilations", "pads"),
    [(1, 1, (1, 1), (1, 1), (1, 1, 1, 1)), (2, 3, (2, 1), (1, 2), (0, 1, 2, 1)), (3, 2, (1, 2), (2, 1), (2, 1, 2, 1))],
)
@pytest.mark.parametrize("has_mask", [False, True])
def test_deformable_convolutions(groups, parts, strides, dilations, pads, has_mask):
    height, width, channels, filters, kernel = 9, 7, 6, 12, (3, 2)
    rows, columns = (
        ((height, width)[d] + pads[d] + pads[2 + d] - (kernel[d] - 1) * dilations[d] - 1) // strides[d] + 1
        for d in range(2)
    )
    elements = parts * kernel[0] * kernel[1]
    inputs = [
        info("x", ["batch", channels, height, width]),
        info("w", [filters, channels // groups, *kernel]),
        info("offset", ["batch", 2 * elements, rows, columns]),
        info("b", [filters]),
    ]
    if has_mask:
        inputs.append(info("mask", ["batch", elements, rows, columns]))
    node = helper.make_node(
        "DeformConv",
        [i.name for i in inputs],
        ["y"],
        group=groups,
        offset_group=parts,
        strides=strides,
        dilations=dilations,
        pads=pads,
    )
    proto = model([node], inputs, [info("y", ["batch", filters, rows, columns])])
    executable = tw.compile(tw.load(proto.SerializeToString()))
    for batch in (1, 2):
        check(proto, feed_of(proto, batch, 0), executable, tolerance=1e-4)
