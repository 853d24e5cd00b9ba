"""fallback="onnxruntime": what would be refused is computed there, in few parts, and said."""

import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright as tw
from conftest import run_tw, value

RNG = np.random.default_rng(9)
X = RNG.standard_normal((4, 64)).astype(np.float32)


def inverse(x, y, name=""):
    """Of matrices: an operator of ONNX Runtime's that we do not have."""
    return helper.make_node("Inverse", [x], [y], name=name, domain="com.microsoft")


def model_with(nodes, inputs, outputs, initializers=()) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(np.asarray(a), n) for n, a in dict(initializers).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def two_inverses(rows=4) -> onnx.ModelProto:
    """A product of ours, an inverse, a product, an inverse, and a sum."""
    weights = {f"w{k}": RNG.standard_normal((64, 64)).astype(np.float32) / 8 for k in range(2)}
    node = helper.make_node
    return model_with(
        [
            node("MatMul", ["x", "w0"], ["a"]),
            node("Reshape", ["a", "square"], ["b"]),
            inverse("b", "c", "first"),
            node("Reshape", ["c", "flat"], ["d"]),
            node("MatMul", ["d", "w1"], ["e"]),
            node("Reshape", ["e", "square"], ["f"]),
            inverse("f", "h", "second"),
            node("Add", ["h", "c"], ["y"]),
        ],
        [value("x", [rows, 64])],
        [value("y", [None, 8, 8])],
        {**weights, "square": np.array([-1, 8, 8]), "flat": np.array([-1, 64])},
    )


def by_onnxruntime(model, feed):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feed)


def loaded(model, **options):
    with pytest.warns(tw.FallbackWarning):
        return tw.load(model, fallback="onnxruntime", **options)


@pytest.mark.parametrize("rows", [4, "n"], ids=["fixed", "open"])
def test_nodes_that_are_refused_are_computed_and_named(rows, tmp_path):
    model = two_inverses(rows)
    with pytest.raises(tw.Error, match="(?s)^TW1003.*Inverse.*first"):
        tw.load(model)
    network = loaded(model)
    text = str(network.fallback)
    assert "2 of 8 nodes, in 2 part" in text and "first (Inverse)" in text and "second (Inverse)" in text
    assert text in network.explain()
    executable = tw.compile(network, threads=2)
    (expected,) = by_onnxruntime(model, {"x": X})
    y = executable.run({"x": X})["y"]
    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
    profile = executable.profile({"x": X})
    on_host = [kernel for kernel in profile.kernels if kernel.is_on_host]
    assert len(on_host) == 2 and all("tilewright.onnxruntime.Part" in kernel.symbol for kernel in on_host)
    assert profile.host_share == sum(kernel.seconds for kernel in on_host) / profile.seconds > 0
    executable.save(tmp_path / "model.twa")
    again = tw.load_executable(tmp_path / "model.twa")  # it has the parts
    np.testing.assert_array_equal(again.run({"x": X})["y"], y)


def test_without_refusals_nothing_changes(network):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = tw.load(network, fallback="onnxruntime")
    assert model.fallback is None and model.text == tw.load(network).text


def test_refused_nodes_side_by_side_are_one_part():
    """None lies between the others: one call, though no value joins them."""
    nodes = [inverse("x", "a"), inverse("a", "b"), inverse("z", "c"), helper.make_node("Mul", ["b", "c"], ["d"])]
    model = model_with([*nodes, helper.make_node("Relu", ["d"], ["y"])], [value("x", [3, 3]), value("z", [3, 3])],
                       [value("y", [3, 3])])  # fmt: skip
    network = loaded(model)
    (part,) = network.fallback.parts
    assert len(part.nodes) == 3 and sorted(part.inputs) == ["x", "z"] and sorted(part.outputs) == ["b", "c"]
    feed = {"x": RNG.standard_normal((3, 3)).astype(np.float32), "z": RNG.standard_normal((3, 3)).astype(np.float32)}
    y = tw.compile(network).run(feed)["y"]
    np.testing.assert_allclose(y, by_onnxruntime(model, feed)[0], rtol=1e-4, atol=1e-4)


def test_strings_stay_within_a_part():
    """A tokeniser's vocabulary: codes to strings, cleaned, and counted by length; what is ours takes numbers."""
    node = helper.make_node
    nodes = [
        node("Add", ["x", "one"], ["i"]),
        node("Gather", ["words", "i"], ["w"]),
        node("StringConcat", ["w", "w"], ["ww"]),
        node("Equal", ["ww", "wanted"], ["is"]),
        node("Cast", ["is"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["f", "two"], ["y"]),
    ]
    initializers = {
        "one": np.int64(1), "two": np.float32(2), "words": np.array(["a", "b", "c", "b"], object),
        "wanted": np.array(["bb"], object),
    }  # fmt: skip
    model = model_with(nodes, [value("x", [3], TensorProto.INT64)], [value("y", [3])], initializers)
    network = loaded(model)
    (part,) = network.fallback.parts
    assert [name.split(" ")[1] for name in part.nodes] == ["(Gather)", "(StringConcat)", "(Equal)"]
    assert tw.compile(network).run({"x": np.array([0, 1, 2])})["y"].tolist() == [2, 0, 2]


def test_sizes_that_only_a_run_knows_stay_within_a_part():
    """What takes them goes with them, up to where sizes are known again."""
    node = helper.make_node
    nodes = [
        node("Unique", ["s"], ["u"]),
        node("Gather", ["words", "x"], ["s"]),
        node("Shape", ["u"], ["n"]),
        node("Cast", ["n"], ["f"], to=TensorProto.FLOAT),
        node("Neg", ["f"], ["y"]),
    ]
    model = model_with(nodes, [value("x", [4], TensorProto.INT64)], [value("y", [1])],
                       {"words": np.array(["a", "b", "a"], object)})  # fmt: skip
    network = loaded(model)
    assert len(network.fallback.parts) == 1 and "Neg" not in str(network.fallback)
    assert tw.compile(network).run({"x": np.array([0, 1, 2, 0])})["y"].tolist() == [-2]


def test_large_weights_stay_with_ours_and_small_ones_go_along(tmp_path):
    large, small = RNG.standard_normal((1, 200, 200)).astype(np.float32), np.eye(200, dtype=np.float32)[None, :3, :3]
    nodes = [
        inverse("large", "a"),
        inverse("small", "b"),
        helper.make_node("Slice", ["a", "zero", "three", "axes"], ["c"]),
    ]
    nodes += [helper.make_node("Add", ["b", "c"], ["d"]), helper.make_node("Mul", ["d", "x"], ["y"])]
    model = model_with(nodes, [value("x", [1, 3, 3])], [value("y", [1, 3, 3])],
                       {"large": large, "small": small, "zero": np.array([0, 0]), "three": np.array([3, 3]),
                        "axes": np.array([1, 2])})  # fmt: skip
    network = loaded(model)
    (part,) = network.fallback.parts
    assert part.inputs == ["large"]
    x = np.ones((1, 3, 3), np.float32)
    expected = by_onnxruntime(model, {"x": x})[0]
    np.testing.assert_allclose(tw.compile(network).run({"x": x})["y"], expected, rtol=1e-3, atol=1e-3)


def test_a_node_within_control_flow_takes_it_along():
    then = helper.make_graph([inverse("x", "t")], "then", [], [value("t", [3, 3])])
    other = helper.make_graph([helper.make_node("Neg", ["x"], ["o"])], "else", [], [value("o", [3, 3])])
    nodes = [helper.make_node("If", ["c"], ["z"], then_branch=then, else_branch=other)]
    nodes.append(helper.make_node("Abs", ["z"], ["y"]))
    model = model_with(nodes, [value("x", [3, 3]), value("c", [], TensorProto.BOOL)], [value("y", [3, 3])])
    network = loaded(model)
    assert network.fallback.parts[0].inputs == ["c", "x"]
    executable = tw.compile(network)
    x = RNG.standard_normal((3, 3)).astype(np.float32)
    for c in (True, False):
        feed = {"x": x, "c": np.array(c)}
        np.testing.assert_allclose(executable.run(feed)["y"], by_onnxruntime(model, feed)[0], rtol=1e-4, atol=1e-5)


def test_what_neither_can_compute_is_refused():
    unknown = model_with([helper.make_node("Nothing", ["x"], ["y"], domain="no.such")], [value("x", [2])],
                         [value("y", [2])])  # fmt: skip
    with pytest.raises(tw.Error, match="(?s)^TW1003.*ONNX Runtime does not take.*Nothing"):
        tw.load(unknown, fallback="onnxruntime")
    strings = model_with([helper.make_node("StringConcat", ["x", "x"], ["y"])], [value("x", [2], TensorProto.STRING)],
                         [value("y", [2], TensorProto.STRING)])  # fmt: skip
    with pytest.raises(tw.Error, match="(?s)^TW1003"):
        tw.load(strings, fallback="onnxruntime")
    nodes = [helper.make_node("Gather", ["words", "x"], ["w"]), helper.make_node("StringConcat", ["w", "w"], ["y"])]
    gives = model_with(nodes, [value("x", [2], TensorProto.INT64)], [value("y", [2], TensorProto.STRING)],
                       {"words": np.array(["a"], object)})  # fmt: skip
    with pytest.raises(tw.Error, match=r"(?s)^TW1003 `y` is an output.*tensor\(string\)"):
        tw.load(gives, fallback="onnxruntime")
    with pytest.raises(tw.Error, match="(?s)^TW1003 fallback='tvm'"):
        tw.load(strings, fallback="tvm")


def test_the_command_line(tmp_path):
    onnx.save(two_inverses(), tmp_path / "model.onnx")
    explained = run_tw("explain", tmp_path / "model.onnx", "--fallback", "onnxruntime")
    assert explained.returncode == 0 and "ONNX Runtime computes 2 of 8 nodes" in explained.stdout
    benched = run_tw("bench", tmp_path / "model.onnx", "--fallback", "onnxruntime", "-k", "--seconds", "0.1")
    assert "2 of 8 nodes" in benched.stderr and "onnxruntime part 0" in benched.stdout
    (tmp_path / "own.py").write_text(
        "import numpy as np, tilewright as tw\n"
        "operators = [tw.Operator('com.microsoft', 'Inverse', types=lambda x: x, function=np.linalg.inv)]\n"
    )
    own = ("--operators", tmp_path / "own.py")
    assert run_tw("compile", tmp_path / "model.onnx", *own, "-o", tmp_path / "m.twa").returncode == 0
    assert run_tw("run", tmp_path / "m.twa", *own).returncode == 0
    assert "TW1102" in run_tw("run", tmp_path / "m.twa").stderr
    assert "com.microsoft.Inverse" in run_tw("inspect", tmp_path / "m.twa").stdout


def test_parts_are_compared_node_by_node(tmp_path):
    """ONNX Runtime runs the model as it was written; the oracle calls no functions of the host."""
    network = loaded(two_inverses())
    executable = tw.compile(network)
    found = tw.compare(executable, "onnxruntime", {"x": X})
    assert found.ok and [row.node for row in found.rows if "Part" in row.operator] == [
        "onnxruntime part 0", "onnxruntime part 1"]  # fmt: skip
    with pytest.raises(tw.Error, match="TW1003.*function of the host"):
        tw.compare(executable, "oracle", {"x": X})
    with pytest.warns(tw.FallbackWarning):
        assert tw.compare(two_inverses(), "onnxruntime", {"x": X}, fallback="onnxruntime").ok
    with pytest.raises(tw.Error, match="TW1101 the model does not fail"):
        tw.reduce(two_inverses(), fallback="onnxruntime")
    with pytest.raises(tw.Error, match="TW1101.*operators of your own"):
        tw.reduce(two_inverses(), operators=[])
    onnx.save(two_inverses(), tmp_path / "model.onnx")
    result = run_tw("compare", tmp_path / "model.onnx", "--fallback", "onnxruntime")
    assert result.returncode == 0 and "onnxruntime part 1" in result.stdout and "2 of 8 nodes" in result.stderr
