"""tw.compare: every seeded fault of the compiler is found at its node, and what is right is called so."""

import dataclasses
import json
import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from conftest import model_of, run_tw, value
from fault_networks import FAULTS, network
from test_tuning_page import chromium
from tilewright.differences import difference
from tilewright.executable import Compilation

AGAINST = ["oracle", "onnxruntime"]


@pytest.fixture(scope="module", autouse=True)
def kept_kernels(tmp_path_factory):
    """Searches compile one model many times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TW_CACHE", str(tmp_path_factory.mktemp("kernels")))
        yield


@pytest.fixture(scope="module")
def forty():
    return network()


@pytest.fixture
def seed_fault(monkeypatch):
    return lambda fault, node: monkeypatch.setenv("TW_FAULT", f"{fault}@{node}")


@pytest.mark.parametrize("against", AGAINST)
def test_what_is_right_does_not_differ(forty, against):
    found = tw.compare(forty, against)
    assert found.ok and found.first is None, str(found)
    assert len(found.rows) == len(forty.graph.node) == 40
    assert [row.node for row in found.rows] == [node.name for node in forty.graph.node]
    assert [row.operator for row in found.rows] == [node.op_type for node in forty.graph.node]
    assert all(row.own.relative < 1e-6 for row in found.rows)
    assert 0 < max(row.total.relative for row in found.rows) < 1e-5  # rounding is seen, and is no difference
    assert list(found.outputs) == ["y"] and found.outputs["y"].relative < 1e-5


@pytest.mark.parametrize("against", AGAINST)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_seeded_fault_is_found_at_its_node(forty, seed_fault, fault, against):
    seed_fault(fault, FAULTS[fault])
    found = tw.compare(forty, against)
    assert not found.ok
    assert found.first.node == FAULTS[fault], str(found)
    assert found.first.own.relative > found.tolerance
    assert found.first.inputs and found.first.ours != found.first.theirs
    # Nodes behind it inherit, and are not blamed.
    assert [row.node for row in found.rows if row.differs] in ([], [FAULTS[fault]])


def test_a_fault_that_all_values_hide_is_found_by_single_values(forty, seed_fault):
    seed_fault("wrong_constant", "scale2")
    found = tw.compare(forty, "onnxruntime")
    assert found.first.found_by == "single values"
    assert found.first.beside == ["conv2"]  # whose value ends the fusion in which the fault is
    assert found.first.without_pass == "fold_batch_norm"
    assert not any(row.differs for row in found.rows)


def test_the_pass_that_makes_the_difference_is_named(forty, seed_fault):
    seed_fault("swapped_operand", "centre")
    found = tw.compare(forty, "onnxruntime")
    assert (found.first.found_by, found.first.without_pass) == ("all values", "merge_projections")
    assert tw.compare(forty, "onnxruntime", skip=["merge_projections"]).ok
    worst = found.first.own
    assert worst.ours == pytest.approx(-worst.theirs) and len(worst.index) == 4


def test_two_compilations_are_compared(forty, seed_fault):
    model = tw.load(forty)
    right, fewer = tw.compile(model), tw.compile(model, skip=["recognise"])
    assert tw.compare(right, fewer).ok and tw.compare(right, {"winograd": False}).ok
    seed_fault("wrong_epsilon", "norm2")
    found = tw.compare(tw.compile(model), {"skip": ["recognise"]})
    assert found.first.node == "norm2"
    assert "without recognise" in found.theirs


def test_inputs_are_the_callers(forty):
    x = np.zeros((1, 3, 6, 6), np.float32)
    found = tw.compare(forty, "onnxruntime", {"x": x})
    assert found.ok
    with pytest.raises(tw.Error, match="TW1101.*'z'"):
        tw.compare(forty, "onnxruntime", {"z": x})


# ----------------------------------------------------------------------------------------------------------------------
# Precision


def sensitive():
    """Two products, of which the first one's rounding is made a hundred times as large."""
    rng = np.random.default_rng(0)
    w = [rng.standard_normal((64, 64)).astype(np.float32) / 8 for _ in range(2)]
    nodes = [
        ("MatMul", ["x", "w0"], ["a"], {"name": "first"}),
        ("Mul", ["a", "hundred"], ["b"], {"name": "scale"}),
        ("Sin", ["b"], ["c"], {"name": "wave"}),
        ("MatMul", ["c", "w1"], ["y"], {"name": "second"}),
    ]
    return model_of(
        nodes,
        [value("x", [32, 64])],
        [value("y", [32, 64])],
        {"w0": w[0], "w1": w[1], "hundred": np.linspace(100, 200, 2048, dtype=np.float32).reshape(32, 64)},
        check=True,
    )


def test_a_node_to_keep_in_f32_is_proposed_and_tried():
    model = tw.load(sensitive())
    found = tw.compare(model, "onnxruntime", precision="bf16")
    if found.ok:
        pytest.skip("this CPU multiplies no bf16")
    assert found.outputs["y"].relative > 0.1
    assert found.proposal.is_enough and found.proposal.nodes == ["first"], str(found)
    again = tw.compare(model, "onnxruntime", precision="bf16", keep_f32=found.proposal.nodes)
    assert again.ok and again.proposal is None
    assert 1e-4 < again.outputs["y"].relative < 2e-2  # the second product still has operands of 16 bits
    assert again.outputs["y"].relative == pytest.approx(found.proposal.worst)


def fused(executable):
    return [step["name"] for step in executable.describe()["steps"] if step["kernel"]]


def test_unfused_nodes_are_kernels_of_their_own(forty):
    x = {"x": np.random.default_rng(0).standard_normal((1, 3, 6, 6)).astype(np.float32)}
    model = tw.load(forty)
    together, apart = tw.compile(model), tw.compile(model, unfused=["relu2", "capped"])
    assert any("+relu2" in name for name in fused(together))
    assert {"relu2", "capped"} <= set(fused(apart)) and len(fused(apart)) > len(fused(together))
    np.testing.assert_allclose(apart.run(x)["y"], together.run(x)["y"], rtol=1e-5)


class WrongWhereFused:
    """An executable that gives wrong values from relu2 on, where that is computed with what is before it."""

    BEFORE = {"conv1", "scale1", "relu1", "conv2", "scale2"}

    def __init__(self, core):
        self._core = core
        self._is_wrong = all(step["name"] != "relu2" for step in core.describe()["steps"])

    def __getattr__(self, name):
        return getattr(self._core, name)

    def run(self, arrays):
        outputs = zip(self._core.outputs, self._core.run(arrays), strict=True)
        return [a * np.float32(1 + 0.01 * (self._is_wrong and name not in self.BEFORE)) for (name, _), a in outputs]


def test_a_node_to_leave_unfused_is_proposed_and_tried(forty, monkeypatch):
    run = Compilation.run

    def wrong(self, *arguments):
        core, report = run(self, *arguments)
        return WrongWhereFused(core), report

    monkeypatch.setattr(Compilation, "run", wrong)
    found = tw.compare(forty)
    assert (found.first.node, found.first.found_by) == ("relu2", "single values"), str(found)
    assert found.first.beside == ["scale2"] and not any(row.differs for row in found.rows)
    assert (found.proposal.option, found.proposal.is_enough) == ("unfused", True), str(found)
    assert len(found.proposal.nodes) == 1
    assert tw.compare(forty, unfused=found.proposal.nodes).ok


def test_an_executable_that_alone_is_wrong_is_called_so(forty, monkeypatch):
    model = tw.load(forty)
    executable = tw.compile(model)
    run = executable._core.run

    class Wrong:
        seed, in_place = executable._core.seed, executable._core.in_place

        def run(self, arrays):
            return [output + 1 for output in run(arrays)]

    monkeypatch.setattr(executable, "_core", Wrong())
    monkeypatch.setattr(tw.Executable, "dimensions", {})
    found = tw.compare(executable)
    assert (found.first.node, found.first.found_by) == ("y", "outputs alone")
    assert found.first.total.absolute == pytest.approx(1, abs=1e-4) and "only the executable itself" in str(found)


def test_all_nodes_in_f32_are_f32():
    model = tw.load(network())
    names = [node.name for node in network().graph.node]
    x = {"x": np.random.default_rng(0).standard_normal((1, 3, 6, 6)).astype(np.float32)}
    expected = tw.compile(model).run(x)["y"]
    np.testing.assert_array_equal(tw.compile(model, precision="bf16", keep_f32=names).run(x)["y"], expected)


def test_names_that_nothing_has_are_refused(forty):
    with pytest.raises(tw.Error, match="TW1101.*`conv9`(.|\n)*conv1"):
        tw.compile(forty, precision="bf16", keep_f32=["conv9"])
    with pytest.raises(tw.Error, match="TW1101.*unfused: no node(.|\n)*`conv9`"):
        tw.compile(forty, unfused=["conv9"])
    with pytest.raises(tw.Error, match="TW1402.*`fold_batchnorm`(.|\n)*fold_batch_norm"):
        tw.compile(forty, skip=["fold_batchnorm"])
    with pytest.raises(tw.Error, match="TW1402.*`lower_precision` is no optional pass"):
        tw.compile(forty, skip=["lower_precision"])
    with pytest.raises(tw.Error, match="TW1101.*keep_f32='conv1'"):
        tw.compile(forty, keep_f32="conv1")


# ----------------------------------------------------------------------------------------------------------------------
# Models of all kinds


def loop_model():
    """x is doubled and a bias that is computed outside is added, as often as `steps` says, between two other nodes."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["v", "v"], ["doubled"]),
            helper.make_node("Add", ["doubled", "bias"], ["next"]),
            helper.make_node("Identity", ["go"], ["go_on"]),
        ],
        "body",
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("v", [4])],
        [value("go_on", [], TensorProto.BOOL), value("next", [4])],
    )
    nodes = [
        ("Tanh", ["x"], ["start"], {"name": "before"}),
        ("Sin", ["x"], ["bias"], {"name": "outside"}),
        ("Loop", ["steps", "", "start"], ["looped"], {"name": "loop", "body": body}),
        ("Neg", ["looped"], ["y"], {"name": "after"}),
    ]
    return model_of(nodes, [value("x", [4]), value("steps", [], TensorProto.INT64)], [value("y", [4])])


@pytest.mark.parametrize("against", AGAINST)
def test_a_loop_is_one_node(seed_fault, against):
    inputs = {"x": np.array([1, -2, 3, 0.5], np.float32), "steps": np.array(3)}
    found = tw.compare(loop_model(), against, inputs)
    assert found.ok, str(found)
    assert [row.node for row in found.rows] == ["before", "outside", "loop", "after"]
    seed_fault("wrong_rounding", "outside")
    found = tw.compare(loop_model(), against, inputs)
    assert found.first.node == "outside"
    assert [row.differs for row in found.rows] == [False, True, False, False]  # what the loop captures is given to it


@pytest.mark.parametrize("against", AGAINST)
def test_open_sizes_are_fixed_by_inputs_and_sizes(seed_fault, against):
    nodes = [
        ("Concat", ["x", "x"], ["twice"], {"name": "join", "axis": 0}),
        ("Softmax", ["twice"], ["s"], {"name": "soft", "axis": 0}),
        ("ReduceSum", ["s"], ["y"], {"name": "sum", "keepdims": 0}),
    ]
    model = model_of(nodes, [value("x", ["n", 5])], [value("y", [])])
    found = tw.compare(model, against, sizes={"n": 3})
    assert found.ok and [row.node for row in found.rows] == ["join", "soft", "sum"], str(found)
    assert tw.compare(model, against, {"x": np.ones((7, 5), np.float32)}).ok
    with pytest.raises(tw.Error, match="TW1101.*'m' is no open dimension"):
        tw.compare(model, against, sizes={"m": 3})
    seed_fault("wrong_rounding", "soft")
    found = tw.compare(model, against, sizes={"n": 3})
    assert found.first.node == "soft" and found.first.inputs["twice"].type == "float32[6, 5]"


@pytest.mark.parametrize("against", AGAINST)
def test_outputs_in_place_profiles_and_sizes_of_their_own(against):
    nodes = [
        ("ScatterElements", ["cache", "at", "new"], ["out"], {"name": "write"}),
        ("Neg", ["out"], ["y"], {"name": "read"}),
    ]
    at = value("at", ["k"], TensorProto.INT64)
    model = tw.load(
        model_of(nodes, [value("cache", [8]), at, value("new", ["k"])], [value("out", [8]), value("y", [8])])
    )
    inputs = {"cache": np.arange(8, dtype=np.float32), "at": np.array([2, 5]), "new": np.array([7, 9], np.float32)}
    for options in ({"in_place": {"out": "cache"}}, {"profiles": [{"k": 2}]}, {"specialise": True}):
        executable = tw.compile(model, **options)
        assert tw.compare(executable, against, inputs).ok
        assert inputs["cache"].tolist() == list(range(8))


def test_sizes_that_only_a_run_knows():
    nodes = [
        ("NonZero", ["x"], ["where"], {"name": "where"}),
        ("Cast", ["where"], ["f"], {"name": "cast", "to": TensorProto.FLOAT}),
        ("ReduceSum", ["f"], ["y"], {"name": "sum", "keepdims": 0}),
    ]
    model = model_of(nodes, [value("x", [6])], [value("y", [])])
    for against in AGAINST:
        found = tw.compare(model, against, {"x": np.array([0, 1, 0, 2, 3, 0], np.float32)})
        assert found.ok and [row.node for row in found.rows] == ["where", "cast", "sum"], str(found)


def test_sequences_are_compared_where_they_are_tensors():
    nodes = [
        ("Neg", ["x"], ["n"], {"name": "neg"}),
        ("SplitToSequence", ["n", "two"], ["parts"], {"name": "split"}),
        ("SequenceAt", ["parts", "one"], ["y"], {"name": "at"}),
    ]
    model = model_of(nodes, [value("x", [6])], [value("y", [2])], {"two": np.int64(2), "one": np.int64(1)})
    found = tw.compare(model, "onnxruntime")
    assert found.ok and [row.node for row in found.rows] == ["neg", "at"], str(found)
    assert found.not_compared == []
    parts = onnx.helper.make_tensor_sequence_value_info("parts", TensorProto.FLOAT, None)
    found = tw.compare(model_of(nodes[:2], [value("x", [6])], [parts], {"two": np.int64(2)}), "onnxruntime")
    assert found.not_compared == ["parts.0", "parts.1", "parts.2"] and "not compared: parts.0" in str(found)


def test_what_is_known_before_is_compared_with_onnx_runtime():
    nodes = [("Exp", ["c"], ["e"], {"name": "exp"}), ("Add", ["x", "e"], ["y"], {"name": "add"})]
    model = model_of(nodes, [value("x", [3])], [value("y", [3])], {"c": np.array([0, 1, 2], np.float32)})
    rows = tw.compare(model, "onnxruntime").rows
    assert [(row.node, row.own is None) for row in rows] == [("exp", True), ("add", False)]
    assert [row.node for row in tw.compare(model, "oracle").rows] == ["add"]


def test_random_numbers_are_those_of_the_oracle():
    nodes = [
        ("RandomNormalLike", ["x"], ["r"], {"name": "draw"}),
        ("Add", ["x", "r"], ["y"], {"name": "add"}),
    ]
    model = model_of(nodes, [value("x", [50])], [value("y", [50])])
    assert tw.compare(model, "oracle").ok
    loaded = tw.load(model)
    executable = tw.compile(loaded)
    executable.run({"x": np.zeros(50, np.float32)})
    assert tw.compare(executable, "oracle").ok
    with pytest.raises(tw.Error, match="TW1003.*`draw`.*random"):
        tw.compare(model, "onnxruntime")


def test_accumulated_rounding_blames_no_node():
    # Each step is right; a chaotic map makes ever more of what the first one rounded.
    nodes, x = [], "x"
    for k in range(40):
        nodes.append(("Mul", [x, "pi"], [f"a{k}"], {"name": f"angle{k}"}))
        nodes.append(("Sin", [f"a{k}"], [f"s{k}"], {"name": f"sine{k}"}))
        nodes.append(("Mul", [f"s{k}", "less"], [f"x{k}"], {"name": f"less{k}"}))
        x = f"x{k}"
    constants = {"pi": np.float32(np.pi), "less": np.float32(0.99)}
    model = model_of(nodes, [value("x", [64])], [value(x, [64])], constants)
    inputs = {"x": np.random.default_rng(0).uniform(0.2, 0.8, 64).astype(np.float32)}
    found = tw.compare(model, "onnxruntime", inputs)
    assert not found.ok and found.first.found_by == "accumulated"
    assert not any(row.differs for row in found.rows)
    first = next(k for k, row in enumerate(found.rows) if row.is_off)
    assert found.first.node == found.rows[first].node and first > 20


# ----------------------------------------------------------------------------------------------------------------------
# Differences


def test_numbers_of_a_difference():
    a, b = np.array([[1, 2], [3.5, 4]], np.float32), np.array([[1, 2], [3, 4]], np.float32)
    d = difference(a, b)
    assert (d.absolute, d.relative, d.index, d.ours, d.theirs) == (0.5, 0.125, (1, 0), 3.5, 3)
    assert d.is_within(0.2) and not d.is_within(0.1)


def test_what_is_no_number_has_to_be_so_on_both_sides():
    odd = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    assert difference(odd, odd).absolute == 0
    for at in range(3):
        other = odd.copy()
        other[at] = 5
        assert difference(odd, other).absolute == math.inf == difference(other, odd).relative
    assert difference(odd, odd).finite == 0.25


def test_what_cannot_be_compared_is_said():
    model = model_of([("Log", ["x"], ["y"])], [value("x", [4])], [value("y", [4])])
    found = tw.compare(model, inputs={"x": np.array([-1, 1, 2, -3], np.float32)})
    assert found.ok and "only 50.0% of its elements are numbers" in str(found)


def test_whole_numbers_have_to_be_equal():
    a = np.array([2**60, 5])
    assert difference(a, a).is_within(0)
    assert not difference(a, a + np.array([1, 0])).is_within(0.5)
    assert not difference(np.array([True]), np.array([False])).is_within(1)


def test_a_mask_does_not_hide_the_others():
    b = np.array([1, 2, 3, -1e9], np.float32)
    a = b + np.array([0, 0, 0.01, 0], np.float32)
    assert difference(a, b).relative == pytest.approx(0.01 / 3, rel=1e-3)
    assert difference(b * np.float32(1.0001), b).relative == pytest.approx(1e-4, rel=0.01)


def test_types_of_few_bits_may_round_at_their_last_place():
    a = np.array([1, 2], np.float16)
    assert difference(np.nextafter(a, np.float16(9)), a).is_within(1e-4)
    assert not difference(a * np.float16(1.01), a).is_within(1e-4)
    assert difference(np.zeros(3), np.zeros(4)).absolute == math.inf


# ----------------------------------------------------------------------------------------------------------------------
# What is shown, and mistakes


def test_a_report_is_text_json_and_a_page(forty, seed_fault, tmp_path):
    seed_fault("wrong_axis", "weigh")
    found = tw.compare(forty, "onnxruntime")
    text = str(found)
    assert "`weigh` (Softmax)" in text and "DIFFERS" in text and "inherits" in text
    assert "onnx" not in json.dumps(found.to_dict()).lower().replace("onnx runtime", "")
    assert json.loads(json.dumps(found.to_dict()))["first"]["node"] == "weigh"
    found.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert page.count("<rect ") == 2 * len(found.rows) and "http" not in page
    tree = chromium(
        f"--user-data-dir={tmp_path}/profile",
        "--enable-logging=stderr",
        "--dump-dom",
        (tmp_path / "page.html").as_uri(),
    )
    assert tree.returncode == 0 and "CONSOLE" not in tree.stderr, tree.stderr[-3000:]
    assert "<td>weigh</td>" in tree.stdout


def test_a_page_escapes_and_draws_what_is_infinite(forty, tmp_path):
    found = tw.compare(forty, "onnxruntime")
    broken = dataclasses.replace(found.rows[0].total, absolute=math.inf, relative=math.inf)
    found.rows[0] = dataclasses.replace(found.rows[0], node="<b>", total=broken)
    found.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "&lt;b&gt;" in page and "<b>" not in page and "nan" not in page
    assert found.to_dict()["rows"][0]["total"]["absolute"] == "inf"
    with pytest.raises(tw.Error, match="TW1001"):
        found.to_html(tmp_path)


def test_mistakes_are_named(forty, monkeypatch):
    with pytest.raises(tw.Error, match="TW1101.*'torch' is nothing to compare with"):
        tw.compare(forty, "torch")
    executable = tw.compile(tw.load(forty))
    model = tw.load(forty)
    with pytest.raises(tw.Error, match="TW1101.*nothing to compare with"):
        tw.compare(tw.compile(model), tw.compile(tw.load(forty)))
    with pytest.raises(tw.Error, match="TW1101.*not there any more"):
        tw.compare(executable)
    with pytest.raises(tw.Error, match="TW1101.*options are for a model"):
        tw.compare(executable, precision="bf16")
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(tw.Error, match=r"TW1003.*onnxruntime is not installed(.|\n)*tilewright\[onnxruntime\]"):
        tw.compare(forty)


def test_the_command_line(forty, tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    onnx.save(forty, path)
    done = run_tw("compare", path, "--against", "oracle")
    assert done.returncode == 0 and "no node differs" in done.stdout, done.stderr
    np.savez(tmp_path / "x.npz", x=np.ones((1, 3, 6, 6), np.float32))
    monkeypatch.setenv("TW_FAULT", "wrong_axis@weigh")
    arguments = ("--inputs", tmp_path / "x.npz", "--json", "--html", tmp_path / "page.html")
    done = run_tw("compare", path, *arguments)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["first"]["node"] == "weigh"
    assert "weigh" in (tmp_path / "page.html").read_text()
    done = run_tw("compare", tmp_path / "model.twa")
    assert done.returncode == 2 and "TW1101" in done.stderr
