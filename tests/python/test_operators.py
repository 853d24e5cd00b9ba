"""Operators of one's own: by a tensor expression, by a function in Python, by one in a shared library."""

import ctypes
import re
import subprocess
import threading

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tw
from conftest import FLOAT, ROOT, model_of, run_tw, value
from tilewright import te

RNG = np.random.default_rng(5)
X = RNG.standard_normal((6, 8)).astype(np.float32)


def using(*nodes, rows=6, output=(None, None)) -> onnx.ModelProto:
    """exp(nodes(relu(x))): x and y are f32[rows, 8]; the nodes lead from a to b."""
    made = [helper.make_node("Relu", ["x"], ["a"]), *nodes, helper.make_node("Exp", ["b"], ["y"])]
    graph = helper.make_graph(made, "g", [value("x", [rows, 8])], [value("y", output)])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("my", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def own(op, inputs=("a",), outputs=("b",), **attributes):
    return helper.make_node(op, inputs, outputs, name=op.lower(), domain="my", **attributes)


def swish(x, beta=1.0):
    return te.compute("s", x.shape, lambda *i: x[i] * te.sigmoid(x[i] * beta))


def centred(x):
    """Each row without its mean: two stages."""
    total = te.reduce("total", (x.shape[0], 1), (x.shape[1],), lambda i, j, k: x[i, k])
    return te.compute("rest", x.shape, lambda i, j: x[i, j] - total[i, 0] * 0.125)


def raises(code, *mentions):
    return pytest.raises(tw.Error, match=rf"(?s)^TW{code}" + "".join(f"(?=.*{word})" for word in mentions))


@pytest.mark.parametrize("rows", [6, "n"], ids=["fixed", "open"])
def test_an_expression_is_compiled_and_fused(rows):
    operator = tw.Operator("my", "Swish", expression=swish)
    executable = tw.compile(using(own("Swish", beta=0.5), rows=rows), operators=[operator], threads=2)
    a = np.maximum(X, 0)
    np.testing.assert_allclose(executable.run({"x": X})["y"], np.exp(a / (1 + np.exp(-0.5 * a))), rtol=1e-5)
    assert [step["name"] for step in executable.describe()["steps"]] == ["Relu_0+swish+Exp_2"]


def test_an_expression_keeps_the_shape_that_it_was_made_for():
    """Where what is around it is given another one: rows of one matrix, axes of an image, tables of codes."""
    operator, rng = tw.Operator("my", "Swish", expression=swish), np.random.default_rng(0)
    swish_node = ("Swish", ["a"], ["b"], {"domain": "my"})

    def swished(x):
        return x / (1 + np.exp(-x))

    def ran(nodes, x, y, tensors, feed):
        model = model_of(nodes, [x], [y], tensors, 20)
        model.opset_import.append(helper.make_opsetid("my", 1))
        return tw.compile(tw.load(model, operators=[operator])).run({"x": feed})["y"]

    x, w = rng.standard_normal((2, 3, 8)).astype(np.float32), rng.standard_normal((8, 8)).astype(np.float32)
    nodes = [("MatMul", ["x", "w"], ["a"]), swish_node, ("MatMul", ["b", "w"], ["y"])]
    y = ran(nodes, value("x", ["n", "s", 8]), value("y", ["n", "s", 8]), {"w": w}, x)
    np.testing.assert_allclose(y, swished(x @ w) @ w, rtol=1e-4, atol=1e-5)

    x, w = rng.standard_normal((1, 16, 6, 6)).astype(np.float32), rng.standard_normal((32, 16, 1, 1)).astype(np.float32)
    nodes = [("Conv", ["x", "w"], ["c"]), ("Reshape", ["c", "shape"], ["a"]), swish_node]
    nodes.append(("Transpose", ["b"], ["y"], {"perm": [0, 2, 1]}))
    y = ran(nodes, value("x", x.shape), value("y", [1, 36, 32]), {"w": w, "shape": np.array([1, 32, 36])}, x)
    expected = np.einsum("oc,ncp->npo", w[:, :, 0, 0], x.reshape(1, 16, 36))
    np.testing.assert_allclose(y, swished(expected), rtol=1e-4, atol=1e-5)

    x = rng.integers(0, 256, (4, 6)).astype(np.uint8)
    nodes = [("DequantizeLinear", ["x", "s", "z"], ["a"]), swish_node, ("Sigmoid", ["b"], ["c"])]
    nodes += [("Mul", ["b", "c"], ["d"]), ("QuantizeLinear", ["d", "s", "z"], ["y"])]
    codes = [value(name, x.shape, TensorProto.UINT8) for name in "xy"]
    y = ran(nodes, *codes, {"s": np.float32(0.05), "z": np.uint8(100)}, x)
    expected = swished(swished((x.astype(float) - 100) * np.float32(0.05))) / np.float32(0.05) + 100
    assert np.abs(y - np.clip(expected, 0, 255)).max() < 0.501


@pytest.mark.parametrize("rows", [6, "n"], ids=["fixed", "open"])
@pytest.mark.parametrize("target", ["cpu", "x86:sse4"])
def test_an_expression_of_several_stages(rows, target):
    model = tw.load(using(own("Centred"), rows=rows), operators=[tw.Operator("my", "Centred", expression=centred)])
    a = np.maximum(X, 0)
    y = tw.compile(model, target).run({"x": X})["y"]
    np.testing.assert_allclose(y, np.exp(a - a.mean(1, keepdims=True)), rtol=1e-5)


def test_several_results_and_inputs():
    def minmax(x, y):
        low = te.compute("low", x.shape, lambda *i: te.minimum(x[i], y[i]))
        return low, te.compute("high", x.shape, lambda *i: te.maximum(x[i], y[i]))

    nodes = [
        helper.make_node("Sin", ["x"], ["c"]),
        own("MinMax", ["a", "c"], ["low", "high"]),
        helper.make_node("Sub", ["high", "low"], ["b"]),
    ]
    executable = tw.compile(using(*nodes), operators=[tw.Operator("my", "MinMax", expression=minmax)])
    np.testing.assert_allclose(executable.run({"x": X})["y"], np.exp(np.abs(np.maximum(X, 0) - np.sin(X))), rtol=1e-5)


def test_an_expression_stays_within_its_inputs():
    def shifted(index):
        operator = tw.Operator(
            "my", "Shift", expression=lambda x: te.compute("s", x.shape, lambda i, j: index(x, i, j))
        )
        return tw.compile(using(own("Shift")), operators=[operator]).run({"x": X})["y"]

    with raises(1003, "shift", "outside", r"vi1 \+ 1"):
        shifted(lambda x, i, j: x[i, j + 1])
    with raises(1003, "outside"):
        shifted(lambda x, i, j: te.select(j < 7, x[i, j + 1], 0.0))
    a = np.maximum(X, 0)
    np.testing.assert_allclose(shifted(lambda x, i, j: x[i, te.minimum(j + 1, 7)])[:, :7], np.exp(a[:, 1:]), rtol=1e-5)
    y = shifted(lambda x, i, j: te.load_if(j < 7, x, i, j + 1))
    np.testing.assert_allclose(y, np.exp(np.pad(a[:, 1:], ((0, 0), (0, 1)))), rtol=1e-5)


def test_an_expression_is_known_where_its_inputs_are():
    model = model_of(
        [("Twice", ["c"], ["d"], {"domain": "my"}), ("Add", ["x", "d"], ["y"])],
        [value("x", [3])],
        [value("y", [3])],
        {"c": np.arange(3, dtype=np.float32)},
        opset=20,
    )
    twice = tw.Operator("my", "Twice", expression=lambda x: te.compute("t", x.shape, lambda i: x[i] * 2.0))
    loaded = tw.load(model, operators=[twice])
    assert "expression" not in loaded.text
    assert tw.compile(loaded).run({"x": np.zeros(3, np.float32)})["y"].tolist() == [0, 2, 4]


def cumulative(x, axis, scale=1.0, tags=()):
    assert not x.flags.writeable and tags == ["one", "two"]
    return np.cumsum(x, axis) * scale


CUMULATIVE = tw.Operator("my", "Cumulative", types=lambda x, **_: x, function=cumulative)


@pytest.mark.parametrize("rows", [6, "n"], ids=["fixed", "open"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_function_in_python(rows, threads, tmp_path):
    node = own("Cumulative", axis=1, scale=0.25, tags=["one", "two"])
    executable = tw.compile(using(node, rows=rows), operators=[CUMULATIVE], threads=threads)
    expected = np.exp(np.cumsum(np.maximum(X, 0), 1) * 0.25)
    for _ in range(3):
        np.testing.assert_allclose(executable.run({"x": X})["y"], expected, rtol=1e-5)
    profile = executable.profile({"x": X})
    assert [kernel.symbol for kernel in profile.kernels if kernel.is_on_host] == ["my.Cumulative"]
    assert 0 < profile.host_share < 1 and "host's functions" in str(profile)
    assert any(profile.kernels[span.step].is_on_host for span in profile.spans)
    executable.save(tmp_path / "model.twa")
    with raises(1102, "my.Cumulative", "load_executable"):
        tw.load_executable(tmp_path / "model.twa")
    again = tw.load_executable(tmp_path / "model.twa", operators=[CUMULATIVE])
    np.testing.assert_allclose(again.run({"x": X})["y"], expected, rtol=1e-5)


def test_sizes_of_results_follow_from_those_of_inputs():
    def types(x):
        return tw.ArrayType("f32", (x.shape[0] * 2, x.shape[1])), tw.ArrayType("i64", ())

    def function(x):
        return np.concatenate([x, -x]), np.int64(x.shape[0])

    nodes = [own("Double", outputs=["c", "n"]), helper.make_node("Cast", ["n"], ["f"], to=FLOAT)]
    model = using(*nodes, helper.make_node("Mul", ["c", "f"], ["b"]), rows="n")
    executable = tw.compile(model, operators=[tw.Operator("my", "Double", types=types, function=function)])
    for rows in (1, 3, 6):
        a = np.maximum(X[:rows], 0) / 10
        y = executable.run({"x": X[:rows] / 10})["y"]
        np.testing.assert_allclose(y, np.exp(rows * np.concatenate([a, -a])), rtol=1e-5)


def test_a_function_in_a_loop_and_a_branch():
    step = helper.make_graph(
        [
            helper.make_node("Halve", ["v"], ["w"], domain="my"),
            helper.make_node("Add", ["w", "x"], ["next"]),
            helper.make_node("Identity", ["go"], ["goes"]),
        ],
        "step",
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("v", [4])],
        [value("goes", [], TensorProto.BOOL), value("next", [4])],
    )
    model = model_of(
        [("Loop", ["count", "", "x"], ["y"], {"body": step})],
        [value("x", [4]), value("count", [], TensorProto.INT64)],
        [value("y", [4])],
        opset=20,
    )
    calls = []

    def halve(x):
        calls.append(x.sum())
        return x / 2

    executable = tw.compile(model, operators=[tw.Operator("my", "Halve", types=lambda x: x, function=halve)], threads=2)
    x = np.arange(4, dtype=np.float32)
    for count in (0, 1, 5):
        calls.clear()
        expected = x
        for _ in range(count):
            expected = expected / 2 + x
        np.testing.assert_allclose(executable.run({"x": x, "count": np.int64(count)})["y"], expected)
        assert len(calls) == count


def fails(function, *mentions):
    operator = tw.Operator("my", "F", types=lambda x: x, function=function)
    executable = tw.compile(using(own("F")), operators=[operator], threads=2)
    with raises(1102, "node `f`", "`my.F` failed", *mentions):
        executable.run({"x": X})


def test_a_function_that_fails_ends_the_run():
    fails(lambda x: 1 / 0, "ZeroDivisionError")
    fails(lambda x: x[1:], r"\(5, 8\) instead of \(6, 8\)")
    fails(lambda x: (x, x), "2 results instead of 1")
    fails(lambda x: x.astype(np.complex64), "Cannot cast")
    kept = []
    fails(lambda x: kept.append(x) or x, "kept an array")
    fails(lambda x: kept.append(x[1:, :2]) or x, "kept an array")
    kept.clear()


def test_a_run_that_failed_is_followed_by_one_that_does_not():
    bad = threading.Event()

    def function(x):
        if bad.is_set():
            raise ValueError("bad day")
        return x

    operator = tw.Operator("my", "F", types=lambda x: x, function=function)
    executable = tw.compile(using(own("F")), operators=[operator], threads=2)
    for is_bad in (False, True, False):
        (bad.set if is_bad else bad.clear)()
        if is_bad:
            with raises(1102, "bad day"):
                executable.run({"x": X})
        else:
            np.testing.assert_allclose(executable.run({"x": X})["y"], np.exp(np.maximum(X, 0)), rtol=1e-5)


def test_subnormal_numbers_are_as_usual_in_a_function():
    tiny = np.float32(1e-40)
    operator = tw.Operator(
        "my", "F", types=lambda x: x, function=lambda x: x + np.float32(tiny * 1) / np.float32(1e-40)
    )
    executable = tw.compile(using(own("F")), operators=[operator])
    np.testing.assert_allclose(executable.run({"x": X})["y"], np.exp(np.maximum(X, 0) + 1), rtol=1e-5)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("library")
    (folder / "scale.c").write_text(
        """
        #include <string.h>
        #include "runtime/tilewright.h"
        const char* scale(const char* attributes, int32_t input_count, const tw_argument* inputs, int32_t output_count,
                          const tw_argument* outputs) {
          if (input_count != 1 || output_count != 1 || strcmp(inputs[0].type.dtype, "f32")) return "one array of f32";
          if (strstr(attributes, "\\"fail\\":1")) return "asked to fail";
          const float* x = inputs[0].data;
          float* y = outputs[0].data;
          for (size_t i = 0; i < inputs[0].type.bytes / 4; ++i) y[i] = inputs[0].type.shape[0] * x[i];
          return 0;
        }
        """
    )
    path = folder / "libscale.so"
    subprocess.run(["clang-22", "-shared", "-fPIC", f"-I{ROOT}", "-o", path, folder / "scale.c"], check=True)
    return path


@pytest.mark.parametrize("rows", [6, "n"], ids=["fixed", "open"])
def test_a_function_in_a_library(library, rows, tmp_path):
    operator = tw.Operator("my", "Scale", types=lambda x, **_: x, library=library, symbol="scale")
    executable = tw.compile(using(own("Scale"), rows=rows), operators=[operator], threads=2)
    expected = np.exp(6 * np.maximum(X / 10, 0))
    np.testing.assert_allclose(executable.run({"x": X / 10})["y"], expected, rtol=1e-5)
    executable.save(tmp_path / "model.twa")
    np.testing.assert_allclose(tw.load_executable(tmp_path / "model.twa").run({"x": X / 10})["y"], expected, rtol=1e-5)
    failing = tw.compile(using(own("Scale", fail=1), rows=rows), operators=[operator])
    with raises(1102, "asked to fail"):
        failing.run({"x": X})


def test_a_library_beside_the_artifact(library, tmp_path):
    moved = tmp_path / "libscale.so"
    moved.write_bytes(library.read_bytes())
    operator = tw.Operator("my", "Scale", types=lambda x: x, library=moved, symbol="scale")
    tw.compile(using(own("Scale")), operators=[operator]).save(tmp_path / "model.twa")
    (tmp_path / "elsewhere").mkdir()
    for name in ("libscale.so", "model.twa"):
        (tmp_path / name).rename(tmp_path / "elsewhere" / name)
    executable = tw.load_executable(tmp_path / "elsewhere" / "model.twa")
    np.testing.assert_allclose(executable.run({"x": X / 10})["y"], np.exp(6 * np.maximum(X / 10, 0)), rtol=1e-5)
    (tmp_path / "elsewhere" / "libscale.so").unlink()
    missing = run_tw("run", tmp_path / "elsewhere" / "model.twa")  # this process has it open
    assert missing.returncode == 2 and re.match("(?s)TW1102.*libscale.so.*cannot be opened", missing.stderr)
    with raises(1102, "no function `other`"):
        wrong = tw.Operator("my", "Scale", types=lambda x: x, library=library, symbol="other")
        tw.compile(using(own("Scale")), operators=[wrong])


def test_a_function_that_c_gives(library, tmp_path):
    """An artifact that calls a function in Python runs without Python, too, once somebody gives one of this name."""
    operator = tw.Operator("my", "Scale", types=lambda x: x, function=lambda x: x * 6)
    tw.compile(using(own("Scale")), operators=[operator]).save(tmp_path / "model.twa")
    runtime = ctypes.CDLL(str(ROOT / "build/runtime/libtilewright_runtime.so"))
    handle, x, y = ctypes.c_void_p(), X / 10, np.zeros_like(X)
    assert runtime.tw_load(str(tmp_path / "model.twa").encode(), ctypes.byref(handle)) == 0

    def run():
        inputs, outputs = ((ctypes.c_void_p * 1)(array.ctypes.data) for array in (x, y))
        size = (ctypes.c_size_t * 1)(x.nbytes)
        return runtime.tw_run(handle, inputs, size, outputs, size)

    assert run() == 1102
    function = ctypes.cast(ctypes.CDLL(str(library)).scale, ctypes.c_void_p)
    assert runtime.tw_set_function(handle, b"my.Scale", None) != 0
    assert runtime.tw_set_function(handle, b"my.Scale", function) == 0
    assert run() == 0
    np.testing.assert_allclose(y, np.exp(6 * np.maximum(x, 0)), rtol=1e-5)
    runtime.tw_free(handle)


def test_wrong_uses_are_told_so(tmp_path):
    for wrong in ({}, {"function": swish}, {"expression": swish, "types": swish}, {"library": "x.so", "symbol": "f"}):
        with raises(1003, "my.F", "does not say what it does"):
            tw.Operator("my", "F", **wrong)
    model = using(own("F"))
    with raises(1003, "my.F"):
        tw.load(model)
    with raises(1003, "ZeroDivisionError", "node `f`"):
        tw.load(model, operators=[tw.Operator("my", "F", expression=lambda x: 1 / 0)])
    with raises(1003, "TypeError", "alpha"):
        tw.load(using(own("F", alpha=1)), operators=[tw.Operator("my", "F", expression=swish)])
    with raises(1003, "two operators my.F"):
        tw.load(model, operators=[tw.Operator("my", "F", expression=swish)] * 2)
    with raises(1003, "is no operator"):
        tw.load(model, operators=[swish])
    with raises(1003, "element type"):
        types = tw.Operator("my", "F", types=lambda x: tw.ArrayType("f33", x.shape), function=swish)
        tw.load(model, operators=[types])
    with raises(1003, "attribute `t`"):
        tensor = onnx.numpy_helper.from_array(np.zeros(2))
        tw.load(using(own("F", t=tensor)), operators=[tw.Operator("my", "F", expression=swish)])
    with raises(1004, "operators="):
        tw.compile(tw.load(using(helper.make_node("Abs", ["a"], ["b"]))), operators=[])
    with raises(1003, "cuda"):
        operator = tw.Operator("my", "F", types=lambda x: x, function=lambda x: x)
        tw.compile(model, "cuda:sm_80", operators=[operator])


def test_an_operator_of_ours_is_replaced_and_text_forms_hold(tmp_path):
    """One's own Exp comes first; an expression survives the text form that passes are dumped in."""
    model = model_of([("Exp", ["x"], ["y"])], [value("x", [4])], [value("y", [4])], opset=20)
    five = tw.Operator("", "Exp", expression=lambda x: te.compute("t", x.shape, lambda i: x[i] * 5.0))
    assert tw.compile(model, operators=[five]).run({"x": np.ones(4, np.float32)})["y"].tolist() == [5.0] * 4


def test_tuning_goes_past_functions(tmp_path, trials_of_a_task):
    weights = RNG.standard_normal((8, 8)).astype(np.float32)
    model = using(helper.make_node("MatMul", ["a", "w"], ["c"]), own("Cumulative", ["c"], axis=1, tags=["one", "two"]))
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    loaded = tw.load(model, operators=[CUMULATIVE])
    report = tw.tune(loaded, db=tmp_path / "t.db", budget="20s")
    assert report.tasks >= 1 and "wrong" not in report.by_status
    y = tw.compile(loaded, db=tmp_path / "t.db").run({"x": X})["y"]
    np.testing.assert_allclose(y, np.exp(np.cumsum(np.maximum(X, 0) @ weights, 1)), rtol=1e-4)


def test_own_operators_are_compared_with_all_but_onnxruntime():
    model = tw.load(using(own("Swish")), operators=[tw.Operator("my", "Swish", expression=swish)])
    assert tw.compare(model, "oracle", {"x": X}).ok
    with raises(1003, "node `swish`", "of your own"):
        tw.compare(model, "onnxruntime", {"x": X})
    shifted = tw.Operator("my", "Swish", types=lambda x, **_: x, function=lambda x: x / (1 + np.exp(-x)) + 1)
    other = tw.compile(tw.load(using(own("Swish")), operators=[shifted]))
    assert tw.compare(tw.compile(model), {"precision": "f32"}, {"x": X}).ok
    with raises(1101):
        tw.compare(tw.compile(model), other, {"x": X})  # of another model


def rows_of_four(schedule):
    """Each row a task, in vectors of four: of a kernel with one block of [6, 8], whatever else is fused into it."""
    *inlined, root = schedule.blocks()
    for block in inlined:
        schedule.compute_inline(block)
    *outer, last = schedule.loops(root)
    lanes = schedule.decide("lanes", [2, 4, 8], analytic=4)
    *_, lane = schedule.split(last, [None, lanes])
    schedule.vectorize(lane)
    return True


@pytest.mark.parametrize("rows", [6, "n"], ids=["fixed", "open"])
def test_an_expression_brings_its_schedule(rows):
    asked = []

    def schedule(s):
        asked.append(len(s.blocks()))
        return rows_of_four(s)

    operator = tw.Operator("my", "Swish", expression=swish, schedule=schedule)
    model = using(helper.make_node("Sin", ["a"], ["c"]), own("Swish", ["c"], beta=0.5), rows=rows)
    executable = tw.compile(model, operators=[operator])
    assert len(asked) == 1
    c = np.sin(np.maximum(X, 0))
    np.testing.assert_allclose(executable.run({"x": X})["y"], np.exp(c / (1 + np.exp(-0.5 * c))), rtol=1e-5)
    asked.clear()
    tw.compile(using(helper.make_node("Sin", ["a"], ["b"]), rows=rows), operators=[operator])
    assert not asked, "of a model without the operator"
    left = tw.Operator("my", "Swish", expression=swish, schedule=lambda s: False)
    y = tw.compile(model, operators=[left]).run({"x": X})["y"]
    np.testing.assert_allclose(y, np.exp(c / (1 + np.exp(-0.5 * c))), rtol=1e-5)


def test_a_schedule_is_asked_about_its_kernels_alone():
    """Among products and reductions, and behind a template of the whole network's."""
    weights = RNG.standard_normal((8, 8)).astype(np.float32)
    nodes = [
        helper.make_node("Softmax", ["a"], ["c"]),
        own("Centred", ["c"], ["d"]),
        helper.make_node("MatMul", ["d", "w"], ["b"]),
    ]
    model = using(*nodes)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    seen, all_kernels = [], []

    def schedule(s):
        seen.append(s.blocks())
        return False

    operator = tw.Operator("my", "Centred", expression=centred, schedule=schedule)
    loaded = tw.load(model, operators=[operator])
    y = tw.compile(loaded, template=lambda s: all_kernels.append(s.blocks()) or False).run({"x": X})["y"]
    assert len(seen) == 1 < len(all_kernels) and seen[0] in all_kernels
    a = np.exp(np.maximum(X, 0))
    a /= a.sum(1, keepdims=True)
    np.testing.assert_allclose(y, np.exp((a - a.mean(1, keepdims=True)) @ weights), rtol=1e-4)


def test_the_decisions_of_a_schedule_are_tuned(tmp_path, trials_of_a_task):
    x = RNG.standard_normal((64, 512)).astype(np.float32)
    graph = helper.make_graph([own("Swish", ["x"], ["y"])], "g", [value("x", x.shape)], [value("y", x.shape)])
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("my", 1)], ir_version=10
    )
    loaded = tw.load(model, operators=[tw.Operator("my", "Swish", expression=swish, schedule=rows_of_four)])
    tried = set()
    report = tw.tune(loaded, db=tmp_path / "t.db", budget="20s", threads=1,
                     on_event=lambda e: e["event"] == "trial" and tried.add(e["decisions"]))  # fmt: skip
    assert report.tasks == 1 and "wrong" not in report.by_status and "lanes=8" in tried
    y = tw.compile(loaded, db=tmp_path / "t.db", threads=1).run({"x": x})["y"]
    np.testing.assert_allclose(y, x / (1 + np.exp(-x)), rtol=1e-5)


def test_a_schedule_that_fails():
    def compile_with(schedule, target="cpu"):
        return tw.compile(using(own("Swish")), target, operators=[tw.Operator("my", "Swish", expression=swish,
                                                                              schedule=schedule)])  # fmt: skip

    with raises(1401, "my.Swish", "ZeroDivisionError"):
        compile_with(lambda s: 1 / 0)
    with raises(1401, "my.Swish", "neither True nor False"):
        compile_with(lambda s: None)
    with raises(1401, "is no template"):
        compile_with(7)
    with raises(1401, "cuda", "schedules of your own"):
        compile_with(rows_of_four, "cuda:sm_80")
    with raises(1003, "nothing to schedule"):
        tw.Operator("my", "F", types=lambda x: x, function=lambda x: x, schedule=rows_of_four)


def append(cache, row, at):
    return te.update("append", cache, row.shape, lambda i, j: (at[0] + i, j), lambda i, j: row[i, j])


def cache_model(op="Append", rows=6, new=2, **attributes):
    """past, with rows put to at …, and its sum."""
    nodes = [
        helper.make_node("Relu", ["row"], ["r"]),
        own(op, ["past", "r", "at"], ["present"], **attributes),
        helper.make_node("ReduceSum", ["present"], ["total"], keepdims=0),
    ]
    inputs = [value("past", [rows, 8]), value("row", [new, 8]), value("at", [1], TensorProto.INT64)]
    graph = helper.make_graph(nodes, "g", inputs, [value("present", [rows, 8]), value("total", [])])
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("my", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


@pytest.mark.parametrize("rows", [6, "n"], ids=["fixed", "open"])
@pytest.mark.parametrize("at", [0, 3, 5, -1, 9, -(2**63), 2**63 - 1])
def test_an_update_is_in_place_where_that_is_asked(rows, at):
    operator = tw.Operator("my", "Append", expression=append)
    model = tw.load(cache_model(rows=rows), operators=[operator])
    row = RNG.standard_normal((2, 8)).astype(np.float32)
    expected = X.copy()
    for i in range(2):
        if 0 <= at + i < 6:
            expected[at + i] = np.maximum(row[i], 0)
    for in_place in (None, {"present": "past"}):
        executable = tw.compile(model, in_place=in_place)
        past = X.copy()
        outputs = executable.run({"past": past, "row": row, "at": np.array([at])})
        np.testing.assert_array_equal(outputs["present"], expected)
        np.testing.assert_allclose(outputs["total"], expected.sum(), rtol=1e-4)
        assert (outputs["present"] is past) == (in_place is not None)
        np.testing.assert_array_equal(past, expected if in_place else X)


def test_an_update_sees_what_it_has_changed():
    """A histogram, of stages that are computed before, in place and not."""

    def count(past, row, at):
        squares = te.compute("squares", row.shape, lambda i, j: row[i, j] * row[i, j] + past[0, 0])
        return te.update(
            "count", past, row.shape, lambda i, j: (at[0], 0), lambda i, j: past[at[0] * 0, 0] + squares[i, j]
        )

    model = tw.load(cache_model(), operators=[tw.Operator("my", "Append", expression=count)])
    row = RNG.standard_normal((2, 8)).astype(np.float32)
    expected = X.copy()
    expected[0, 0] += (np.maximum(row, 0) ** 2 + X[0, 0]).sum()
    for in_place in (None, {"present": "past"}):
        y = tw.compile(model, in_place=in_place).run({"past": X.copy(), "row": row, "at": np.array([0])})["present"]
        np.testing.assert_allclose(y, expected, rtol=1e-5)


def test_updates_that_do_not_fit():
    def load(expression, **options):
        return tw.load(cache_model(), operators=[tw.Operator("my", "Append", expression=expression, **options)])

    with raises(1003, "first input"):
        load(lambda past, row, at: append(row, row, at))
    with raises(1003, "takes no schedule"):
        load(append, schedule=rows_of_four)
    with raises(1003, "of 1 indices", "2 dimensions"):
        load(lambda past, row, at: te.update("u", past, (2,), lambda i: i, lambda i: row[i, 0]))
    with raises(1003, "the value is i64"):
        load(lambda past, row, at: te.update("u", past, (2,), lambda i: (i, i), lambda i: at[0]))
    with raises(1003, "may read outside", "v0"):
        load(lambda past, row, at: te.update("u", past, (3,), lambda i: (i, i), lambda i: row[i, 0]))
