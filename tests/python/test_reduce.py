"""tw.reduce: what fails becomes small, stays a valid model, and fails in the same way."""

import json
import math

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright as tw
from conftest import model_of, run_tw, value
from fault_networks import FAULTS, network
from test_compare import loop_model
from tilewright.onnx_parts import Case, Parts
from tilewright.reduce_steps import minimised, with_size, without_attributes


@pytest.fixture(scope="module")
def forty():
    return network()


@pytest.fixture
def seed_fault(monkeypatch, tmp_path):
    monkeypatch.setenv("TW_CACHE", str(tmp_path / "kernels"))
    return lambda fault, node: monkeypatch.setenv("TW_FAULT", f"{fault}@{node}")


def names(model):
    return [node.name for node in model.graph.node]


def elements(model):
    shapes = [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input]
    return sum(map(math.prod, shapes)) + sum(math.prod(tensor.dims) for tensor in model.graph.initializer)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_seeded_fault_is_shrunk_to_at_most_three_nodes(forty, seed_fault, fault):
    seed_fault(fault, FAULTS[fault])
    small = tw.reduce(forty, against="onnxruntime")
    assert small.failure == "differs" and small.nodes_before == 40
    assert small.nodes <= 3 and FAULTS[fault] in names(small.model)
    assert elements(small.model) <= 16 and small.tried < 40
    onnx.checker.check_model(small.model, full_check=True)
    assert tw.compare(small.model, inputs=small.inputs).first.node == FAULTS[fault]


def test_a_fault_of_two_nodes_together_keeps_both(forty, seed_fault):
    seed_fault("wrong_constant", "scale2")
    assert names(tw.reduce(forty).model) == ["conv2", "scale2"]


@pytest.mark.parametrize("fault, failure", [("error", "error TW1404"), ("crash", "crash SIGABRT")])
def test_errors_and_crashes_do_not_end_the_search(seed_fault, fault, failure):
    model = model_of(
        [
            ("Neg", ["x"], ["a"], {"name": "first"}),
            ("Mul", ["a", "w"], ["b"], {"name": "wrong"}),
            ("Sqrt", ["b"], ["c"], {"name": "root"}),
            ("Add", ["c", "a"], ["y"], {"name": "last"}),
        ],
        [value("x", [4, 6])],
        [value("y", [4, 6])],
        {"w": np.arange(6, dtype=np.float32)},
    )
    seed_fault(fault, "wrong")
    small = tw.reduce(model)
    assert small.failure == failure
    assert names(small.model) == ["wrong"] and elements(small.model) == 2
    assert small.inputs is None


def test_a_compiler_that_hangs_is_ended(seed_fault):
    nodes = [("Neg", ["x"], ["a"], {"name": "before"}), ("Exp", ["a"], ["y"], {"name": "wrong"})]
    seed_fault("hang", "wrong")
    small = tw.reduce(model_of(nodes, [value("x", [1])], [value("y", [1])]), time_limit=3)
    assert small.failure == "hang" and names(small.model) == ["wrong"]


def test_a_predicate_says_what_fails(forty):
    tried = []

    def fails(model):
        tried.append(len(model.graph.node))
        onnx.checker.check_model(model, full_check=True)
        return {"weigh", "conv1"} <= set(names(model))

    small = tw.reduce(forty, fails)
    assert names(small.model) == ["conv1", "weigh"] and small.failure == "fails"
    assert small.command == [] and len(tried) - 1 == small.tried < 60
    assert elements(small.model) <= 4
    with pytest.raises(tw.Error, match="TW1101.*does not fail"):
        tw.reduce(forty, lambda model: False)


def test_sizes_shrink_as_far_as_the_failure_lets_them():
    model = model_of(
        [("Reshape", ["x", "s"], ["r"]), ("MatMul", ["r", "w"], ["y"])],
        [value("x", [4, 48])],
        [value("y", [32, 10])],
        {"s": np.array([32, 6]), "w": np.ones((6, 10), np.float32)},
    )

    def fails(model):
        return [n.op_type for n in model.graph.node][-1] == "MatMul" and any(
            list(tensor.dims)[:1] == [6] for tensor in model.graph.initializer
        )

    small = tw.reduce(model, fails).model
    assert [node.op_type for node in small.graph.node] == ["MatMul"]
    assert [list(tensor.dims) for tensor in small.graph.initializer] == [[6, 1]]
    assert [[d.dim_value for d in v.type.tensor_type.shape.dim] for v in small.graph.input] == [[1, 6]]


def test_inputs_that_matter_are_kept(seed_fault, tmp_path):
    # Epsilon matters where the variance is as small, which that of made-up numbers is not.
    norm = ("LayerNormalization", ["a", "s"], ["y"], {"name": "norm", "epsilon": 1e-4})
    nodes = [("Neg", ["x"], ["a"], {"name": "before"}), norm]
    model = model_of(nodes, [value("x", [3, 8])], [value("y", [3, 8])], {"s": np.ones(8, np.float32)})
    inputs = {"x": np.linspace(0, 0.03, 24, dtype=np.float32).reshape(3, 8)}
    seed_fault("wrong_epsilon", "norm")
    small = tw.reduce(model, inputs=inputs, tolerance=0.3)
    assert small.failure == "differs" and names(small.model) == ["norm"] and list(small.inputs) == ["a"]
    command = small.save(tmp_path / "small.onnx").split()
    assert command[-2:] == ["--inputs", str(tmp_path / "small.npz")]
    assert run_tw(*command[1:]).returncode == 1
    assert run_tw(*command[1:-2]).returncode == 0


def test_what_control_flow_reads_around_it_comes_along(seed_fault):
    seed_fault("swapped_operand", "after")  # of one operand: no fault
    inputs = {"x": np.array([1, -2, 3, 0.5], np.float32), "steps": np.array(3)}
    with pytest.raises(tw.Error, match="TW1101.*does not fail"):
        tw.reduce(loop_model(), inputs=inputs)
    small = tw.reduce(loop_model(), lambda model: "loop" in names(model), inputs=inputs)
    assert names(small.model) == ["loop"]
    assert {v.name for v in small.model.graph.input} == {"steps", "start", "bias"}
    onnx.checker.check_model(small.model, full_check=True)
    assert tw.compare(small.model, inputs=small.inputs).ok


def test_models_that_onnx_runtime_does_not_take_are_shrunk_by_their_types(seed_fault):
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], name="first"),
        helper.make_node("Frobnicate", ["a"], ["b"], name="unknown", domain="somewhere.else"),
        helper.make_node("Exp", ["a"], ["y"], name="last"),
    ]
    graph = helper.make_graph(nodes, "g", [value("x", [2, 3])], [value("y", [2, 3]), value("b", [2, 3])])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("somewhere.else", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    events = []
    small = tw.reduce(model, on_event=events.append)
    assert small.failure == "error TW1003" and names(small.model) == ["unknown"]
    assert any(event["event"] == "note" and "ONNX Runtime" in event["text"] for event in events)


def test_weights_in_a_file_of_their_own_come_along(forty, tmp_path):
    path = tmp_path / "model.onnx"
    model = onnx.ModelProto()
    model.CopyFrom(forty)
    onnx.save(model, path, save_as_external_data=True, size_threshold=0)
    small = tw.reduce(path, lambda model: "conv2" in names(model))
    assert names(small.model) == ["conv2"] and tw.compare(small.model, inputs=small.inputs).ok
    with pytest.raises(tw.Error, match="TW1006"):
        tw.reduce(path.read_bytes())


def test_ctrl_c_keeps_the_smallest(forty):
    calls = []

    def fails(model):
        calls.append(model)
        if len(calls) == 8:
            raise KeyboardInterrupt
        return "weigh" in names(model)

    small = tw.reduce(forty, fails)
    assert len(calls) == 8 and 1 <= small.nodes < 40


def test_mistakes_are_named(forty, tmp_path, monkeypatch):
    with pytest.raises(tw.Error, match="TW1001"):
        tw.reduce(tmp_path / "none.onnx")
    with pytest.raises(tw.Error, match="TW1002"):
        tw.reduce(b"nothing")
    with pytest.raises(tw.Error, match="TW1101.*inputs has z(.|\n)*the inputs are x"):
        tw.reduce(forty, inputs={"z": np.zeros(3)})
    with pytest.raises(tw.Error, match="TW1101.*another process"):
        tw.reduce(forty, against=tw.compile(forty))
    with pytest.raises(tw.Error, match="TW1101.*'n' is no open dimension"):
        tw.reduce(forty, sizes={"n": 3})
    with pytest.raises(tw.Error, match="TW1003.*cannot be found out.*`draw`"):
        random = [("RandomNormalLike", ["x"], ["y"], {"name": "draw"})]
        tw.reduce(model_of(random, [value("x", [3])], [value("y", [3])]))
    with pytest.raises(tw.Error, match="TW1003.*cannot be found out.*TW1202"):
        tw.reduce(forty, target="rpi4")
    monkeypatch.setattr("tilewright.onnx_parts.MOST_BYTES", 100)
    with pytest.raises(tw.Error, match=r"TW1005.*2 GB(.|\n)*extract_model"):
        tw.reduce(forty)
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(tw.Error, match=r"TW1003.*onnx is not installed(.|\n)*tilewright\[onnxruntime\]"):
        tw.reduce(forty)


def test_the_command_line_says_how_to_see_it_again(forty, seed_fault, tmp_path):
    onnx.save(forty, tmp_path / "model.onnx")
    small = tmp_path / "small.onnx"
    done = run_tw("reduce", tmp_path / "model.onnx", "-o", small, "--tolerance", "1e-3", "--no-winograd")
    assert done.returncode == 2 and "TW1101 the model does not fail" in done.stderr
    seed_fault("wrong_axis", "weigh")
    done = run_tw("reduce", tmp_path / "model.onnx", "-o", small, "--tolerance", "1e-3", "--no-winograd")
    assert done.returncode == 0, done.stderr
    assert "differs, first at weigh: 40 nodes" in done.stderr and "models tried" in done.stderr
    command = done.stdout.splitlines()[-1].split()
    assert command[:2] == ["tw", "compare"] and command[-1] == str(small) and "--no-winograd" in command
    done = run_tw(*command[1:], "--json")
    assert done.returncode == 1 and json.loads(done.stdout)["first"]["node"] == "weigh"


# ----------------------------------------------------------------------------------------------------------------------
# Steps


@pytest.mark.parametrize("needed", [[0], [7], [3, 4], [0, 15], [1, 6, 12], list(range(16))])
def test_delta_debugging_finds_what_is_needed(needed):
    tried = []

    def fails(items):
        assert items == sorted(items) and 0 < len(items) < 16
        tried.append(tuple(items))
        return set(needed) <= set(items)

    assert minimised(range(16), fails) == needed
    assert len(tried) < 16 * 5


def test_inputs_are_left_out_one_by_one():
    parts = Parts()
    model = model_of([("Frobnicate", ["", "x", "c"], ["y"])], [value("x", [2])], [value("y", [2])], {"c": np.ones(3)})
    proposals = list(without_attributes(parts, Case(model, {"x": np.zeros(2, np.float32)})))
    assert [list(case.model.graph.node[0].input) for case in proposals] == [["", "x"], ["", "", "c"]]
    assert [list(case.inputs) for case in proposals] == [["x"], []]
    assert [len(case.model.graph.initializer) for case in proposals] == [0, 1]
    proposals = list(without_attributes(parts, proposals[0]))
    assert [list(case.model.graph.node[0].input) for case in proposals] == [[]]


def test_a_size_changes_everywhere():
    parts = Parts()
    model = model_of(
        [("Reshape", ["x", "s"], ["y"], {"allowzero": 0})],
        [value("x", [6, 2])],
        [value("y", [2, 6])],
        {"s": np.array([2, 6])},
    )
    case = Case(model, {"x": np.arange(12, dtype=np.float32).reshape(6, 2)})
    smaller = with_size(parts, case, 6, 3, True)
    assert onnx.numpy_helper.to_array(smaller.model.graph.initializer[0]).tolist() == [2, 3]
    assert smaller.inputs["x"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert parts.is_valid(case)
