"""If, Loop and Scan, and LSTM, GRU and RNN of any length, beside ONNX Runtime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import random_control
import tilewright as tw


def info(name, kind, shape):
    return helper.make_tensor_value_info(name, kind, shape)


def floats(name, shape):
    return info(name, TensorProto.FLOAT, shape)


def model_of(nodes, inputs, outputs, initializers=(), opset=17):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def require_agreement(model, feeds, executable=None):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    executable = executable or tw.compile(tw.load(model.SerializeToString()))
    for feed in feeds:
        for wanted, got in zip(session.run(None, feed), executable.run(feed).values(), strict=True):
            assert got.shape == wanted.shape
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    return executable


random = np.random.default_rng(3)


def array(*shape):
    return (random.standard_normal(shape) * 0.25).astype(np.float32)


def doubling_loop(count, condition="", outputs=("s", "kept")):
    """s = s + x, again and again; what is kept is its square."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s_in", "x"], ["s_out"]),
            helper.make_node("Mul", ["s_out", "s_out"], ["square"]),
            helper.make_node("Identity", ["go"], ["go_on"]),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), floats("s_in", [3])],
        [info("go_on", TensorProto.BOOL, []), floats("s_out", [3]), floats("square", [3])][: 1 + len(outputs)],
    )
    return helper.make_node("Loop", [count, condition, "s0"], list(outputs), body=body)


def recurrent(op, direction, has_lengths, steps, batch, hidden=16, inputs=6, **attributes):
    directions = 2 if direction == "bidirectional" else 1
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op] * hidden
    weights = {"w": [directions, gates, inputs], "r": [directions, gates, hidden], "b": [directions, 2 * gates]}
    tensors = [helper.make_tensor(name, TensorProto.FLOAT, shape, array(*shape)) for name, shape in weights.items()]
    names = ["x", "w", "r", "b", "lengths" if has_lengths else "", "h"] + ["c"] * (op == "LSTM")
    declared = [floats("x", [steps, batch, inputs]), floats("h", [directions, batch, hidden])]
    declared += [floats("c", [directions, batch, hidden])] * (op == "LSTM")
    declared += [info("lengths", TensorProto.INT32, [batch])] * has_lengths
    results = ["y", "y_h"] + ["y_c"] * (op == "LSTM")
    node = helper.make_node(op, names, results, hidden_size=hidden, direction=direction, **attributes)
    model = model_of([node], declared, [floats(n, [None] * (4 if n == "y" else 3)) for n in results], tensors)

    def feed(steps, batch):
        sizes = {"steps": steps, "batch": batch}
        arrays = {
            v.name: array(*(d.dim_value or sizes[d.dim_param] for d in v.type.tensor_type.shape.dim)) for v in declared
        }
        if has_lengths:
            arrays["lengths"] = random.integers(1, steps + 1, batch).astype(np.int32)
        return arrays

    return model, feed


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("has_lengths", [False, True])
def test_recurrent_networks_of_open_length(op, direction, has_lengths):
    extra = {"linear_before_reset": 1} if op == "GRU" and has_lengths else {}
    model, feed = recurrent(op, direction, has_lengths, "steps", "batch", **extra)
    require_agreement(model, [feed(1, 1), feed(2, 3), feed(9, 1), feed(40, 5)])


@pytest.mark.parametrize("steps", [3, 600])
def test_recurrent_networks_of_fixed_length(steps):
    model, feed = recurrent("LSTM", "bidirectional", True, steps, 2)
    require_agreement(model, [feed(steps, 2)])


def test_branches_on_data():
    then = helper.make_graph([helper.make_node("Add", ["x", "x"], ["t"])], "then", [], [floats("t", ["n", 4])])
    other = helper.make_graph(
        [helper.make_node("Mul", ["x", "y"], ["m"]), helper.make_node("Relu", ["m"], ["e"])],
        "else",
        [],
        [floats("e", ["n", 4])],
    )
    node = helper.make_node("If", ["flag"], ["z"], then_branch=then, else_branch=other)
    model = model_of(
        [node, helper.make_node("Neg", ["z"], ["w"])],
        [info("flag", TensorProto.BOOL, []), floats("x", ["n", 4]), floats("y", ["n", 4])],
        [floats("w", ["n", 4]), floats("z", ["n", 4])],
    )
    feeds = [{"flag": np.array(flag), "x": array(n, 4), "y": array(n, 4)} for n in (1, 3, 50) for flag in (True, False)]
    require_agreement(model, feeds)


def test_an_artifact_has_control_flow(tmp_path):
    model, feed = recurrent("GRU", "reverse", False, "steps", "batch")
    executable = tw.compile(tw.load(model.SerializeToString()))
    executable.save(tmp_path / "m.twa")
    require_agreement(model, [feed(5, 2), feed(30, 1)], tw.load_executable(tmp_path / "m.twa"))


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_numbers_of_steps_that_are_known(count):
    initializer = helper.make_tensor("count", TensorProto.INT64, [], [count])
    declared, results = [floats("x", [3]), floats("s0", [3])], [floats("s", [3]), floats("kept", [count, 3])]
    model = model_of([doubling_loop("count")], declared, results, [initializer])
    require_agreement(model, [{"x": array(3), "s0": array(3)}])


def test_numbers_of_steps_that_a_run_says():
    declared = [info("count", TensorProto.INT64, []), floats("x", [3]), floats("s0", [3])]
    model = model_of([doubling_loop("count", outputs=("s",))], declared, [floats("s", [3])])
    require_agreement(model, [{"count": np.array(n), "x": array(3), "s0": array(3)} for n in (0, 1, 5, 1000)])


def test_a_loop_that_ends_by_its_condition():
    body = helper.make_graph(
        [
            helper.make_node("Add", ["s_in", "x"], ["s_out"]),
            helper.make_node("ReduceMax", ["s_out"], ["most"], keepdims=0),
            helper.make_node("Less", ["most", "limit"], ["go_on"]),
        ],
        "body",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), floats("s_in", [3])],
        [info("go_on", TensorProto.BOOL, []), floats("s_out", [3])],
    )
    node = helper.make_node("Loop", ["", "first", "s0"], ["s"], body=body)
    limit = helper.make_tensor("limit", TensorProto.FLOAT, [], [30.0])
    declared = [info("first", TensorProto.BOOL, []), floats("x", [3]), floats("s0", [3])]
    model = model_of([node], declared, [floats("s", [3])], [limit])
    feeds = [{"first": np.array(first), "x": np.abs(array(3)) + 0.25, "s0": array(3)} for first in (True, False)]
    require_agreement(model, feeds)


def test_a_loop_of_as_many_steps_as_the_number_of_another():
    inner = helper.make_graph(
        [helper.make_node("Add", ["t_in", "x"], ["t_out"]), helper.make_node("Identity", ["go1"], ["go_on1"])],
        "inner",
        [info("j", TensorProto.INT64, []), info("go1", TensorProto.BOOL, []), floats("t_in", [3])],
        [info("go_on1", TensorProto.BOOL, []), floats("t_out", [3])],
    )
    outer = helper.make_graph(
        [
            helper.make_node("Loop", ["i", "", "s_in"], ["t"], body=inner),
            helper.make_node("Tanh", ["t"], ["s_out"]),
            helper.make_node("Identity", ["go"], ["go_on"]),
        ],
        "outer",
        [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), floats("s_in", [3])],
        [info("go_on", TensorProto.BOOL, []), floats("s_out", [3])],
    )
    count = helper.make_tensor("count", TensorProto.INT64, [], [5])
    model = model_of(
        [helper.make_node("Loop", ["count", "", "s0"], ["s"], body=outer)],
        [floats("x", [3]), floats("s0", [3])],
        [floats("s", [3])],
        [count],
    )
    executable = require_agreement(model, [{"x": array(3), "s0": array(3)}])
    rows = {kernel.name: kernel for kernel in executable.profile({"x": array(3), "s0": array(3)}).kernels}
    assert rows["Loop_0/Loop_0/Add_0"].flops == 3 * (0 + 1 + 2 + 3 + 4)


def squeezed(condition_axis=1):
    """What exporters write for x.squeeze(1): the dimension goes where it is 1."""
    axis = helper.make_tensor("axis", TensorProto.INT64, [], [condition_axis])
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [condition_axis])
    one = helper.make_tensor("one", TensorProto.INT64, [], [1])
    then = helper.make_graph([helper.make_node("Squeeze", ["x", "axes"], ["t"])], "then", [], [floats("t", None)])
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["e"])], "else", [], [floats("e", None)])
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "axis"], ["size"]),
        helper.make_node("Equal", ["size", "one"], ["is_one"]),
        helper.make_node("If", ["is_one"], ["y"], "squeeze", then_branch=then, else_branch=other),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    return model_of(nodes, [floats("x", ["n", "m", 4])], [floats("z", ["n", 4])], [axis, axes, one])


def test_branches_of_different_ranks_decide_a_size():
    model = squeezed()
    executable = require_agreement(model, [{"x": array(n, 1, 4)} for n in (1, 3)])
    with pytest.raises(tw.Error, match="dimension 1 of input 'x' is 2"):
        executable.run({"x": array(3, 2, 4)})
    assert "squeeze" in tw.load(model.SerializeToString()).explain()


def test_branches_of_different_ranks_go_on_to_one_type():
    """Their results differ in rank by data: what follows, here around a known If, too, is in both branches."""
    zero = helper.make_graph([helper.make_node("ReduceSum", ["x"], ["t"], keepdims=0)], "then", [], [floats("t", None)])
    other = helper.make_graph([helper.make_node("Relu", ["x"], ["e"])], "else", [], [floats("e", None)])
    node = helper.make_node("If", ["flag"], ["y"], then_branch=zero, else_branch=other)
    always = helper.make_graph([node, helper.make_node("Neg", ["x"], ["m"])], "always", [], [floats("y", None)])
    never = helper.make_graph([helper.make_node("Neg", ["x"], ["n"])], "never", [], [floats("n", None)])
    yes = helper.make_tensor("yes", TensorProto.BOOL, [], [1])
    outer = helper.make_node("If", ["yes"], ["v"], then_branch=always, else_branch=never)
    for nodes in ([node, helper.make_node("Identity", ["y"], ["v"])], [outer]):
        nodes = [*nodes, helper.make_node("Add", ["v", "x"], ["w"]), helper.make_node("Tanh", ["w"], ["z"])]
        declared = [info("flag", TensorProto.BOOL, []), floats("x", [2, "n"])]
        model = model_of(nodes, declared, [floats("z", [2, "n"])], [yes])
        require_agreement(model, [{"flag": np.array(flag), "x": array(2, n)} for flag in (True, False) for n in (1, 3)])
    with pytest.raises(tw.Error, match=r"(?s)TW1003.*f32\[\] and f32\[2, `?n`?\], on a condition that a run decides"):
        tw.load(model_of([node], declared, [floats("y", None)]).SerializeToString())


@pytest.mark.parametrize("first", range(0, 160, 20))
def test_random_models(first):
    assert not random_control.problems(range(first, first + 20))


def test_a_branch_may_demand_what_the_other_does_not():
    """A product with four rows in one way, which reads rows of four: sizes at which the plan is tried may be others."""
    w = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3), "w")
    ways = [
        helper.make_graph(
            [
                helper.make_node("MatMul", ["x", "w"], ["p"]),
                helper.make_node("ReduceSum", ["p"], ["a"], keepdims=0),
            ],
            "product", [], [helper.make_tensor_value_info("a", TensorProto.FLOAT, [])], [w],
        ),
        helper.make_graph(
            [helper.make_node("ReduceSum", ["x"], ["b"], keepdims=0)],
            "sum", [], [helper.make_tensor_value_info("b", TensorProto.FLOAT, [])],
        ),
    ]  # fmt: skip
    node = helper.make_node("If", ["go"], ["y"], then_branch=ways[0], else_branch=ways[1])
    inputs = [helper.make_tensor_value_info("go", TensorProto.BOOL, []),
              helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, "k", "n"])]  # fmt: skip
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    executable = tw.compile(tw.load(model))
    x = np.random.default_rng(0).random((2, 3, 4), np.float32)
    expected = (x @ np.arange(12, dtype=np.float32).reshape(4, 3)).sum()
    np.testing.assert_allclose(executable.run({"go": np.array(True), "x": x})["y"], expected, rtol=1e-5)
    five = np.ones((2, 1, 5), np.float32)
    assert executable.run({"go": np.array(False), "x": five})["y"] == 10
    with pytest.raises(tw.Error, match="TW1"):
        executable.run({"go": np.array(True), "x": five})
