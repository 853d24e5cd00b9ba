"""Outputs in place of inputs: caches that a run updates where they lie."""

import numpy as np
import pytest

import tilewright as tw
from conftest import INT64, model_of, reference, run_tw, value


def cache_model(op="ScatterND", capacity=16):
    """Writes a row of `new` to position `at` of a cache, and sums the cache."""
    opset = 24 if op == "TensorScatter" else 18
    if op == "TensorScatter":
        nodes = [("TensorScatter", ["past", "new", "at"], ["present"], {"axis": 1})]
        shapes = [value("past", [1, capacity, 8]), value("new", [1, 1, 8]), value("at", [1], INT64)]
    elif op == "ScatterElements":
        nodes = [("ScatterElements", ["past", "at", "new"], ["present"], {"axis": 0})]
        shapes = [value("past", [capacity, 8]), value("new", [1, 8]), value("at", [1, 8], INT64)]
    else:
        nodes = [("ScatterND", ["past", "at", "new"], ["present"])]
        shapes = [value("past", [capacity, 8]), value("new", [1, 8]), value("at", [1, 1], INT64)]
    nodes.append(("ReduceSum", ["present"], ["total"], {"keepdims": 0}))
    past = [d.dim_value for d in shapes[0].type.tensor_type.shape.dim]
    return model_of(nodes, shapes, [value("present", past), value("total", [])], opset=opset)


def feed_of(executable, position):
    rng, feed = np.random.default_rng(position), {}
    for name, kind in executable.inputs.items():
        shape = [int(extent) for extent in kind[kind.index("[") + 1 : -1].split(",")]
        if name == "at":
            feed[name] = np.full(shape, position, np.int64)
        else:
            feed[name] = rng.integers(0, 10, shape).astype(np.float32)
    return feed


@pytest.mark.parametrize("op", ["ScatterND", "ScatterElements", "TensorScatter"])
def test_a_cache_is_updated_where_it_lies(op):
    model = cache_model(op)
    executable = tw.compile(tw.load(model), in_place={"present": "past"}, threads=2)
    plain = tw.compile(tw.load(model), threads=2)
    assert executable.in_place == {"present": "past"} and plain.in_place == {}
    cache = feed_of(executable, 0)["past"]
    for position in range(6):
        feed = {**feed_of(executable, position), "past": cache}
        expected = plain.run({**feed, "past": cache.copy()})
        outputs = executable.run(feed)
        assert outputs["present"] is cache
        np.testing.assert_array_equal(cache, expected["present"])
        np.testing.assert_array_equal(outputs["total"], expected["total"])


def test_values_stay_values_without_in_place():
    model = cache_model()
    executable = tw.compile(tw.load(model))
    feed = feed_of(executable, 3)
    before = feed["past"].copy()
    outputs = executable.run(feed)
    np.testing.assert_array_equal(feed["past"], before)
    np.testing.assert_array_equal(outputs["present"], reference(model, feed)[0])


def test_given_outputs_leave_the_shared_one_out():
    executable = tw.compile(tw.load(cache_model()), in_place={"present": "past"})
    feed, total = feed_of(executable, 2), np.empty((), np.float32)
    outputs = executable.run(feed, out={"total": total})
    assert outputs["present"] is feed["past"] and total == feed["past"].sum()
    executable.run(feed, out={"total": total, "present": feed["past"]})
    with pytest.raises(tw.Error, match="TW1101"):
        executable.run(feed, out={"total": total, "present": np.empty_like(feed["past"])})


@pytest.mark.parametrize("spoil", [np.asfortranarray, lambda a: a.tolist(), lambda a: np.broadcast_to(a, a.shape)])
def test_what_a_run_cannot_change_is_refused(spoil):
    executable = tw.compile(tw.load(cache_model()), in_place={"present": "past"})
    feed = feed_of(executable, 2)
    feed["past"] = spoil(feed["past"])
    with pytest.raises(tw.Error, match="TW1101.*past"):
        executable.run(feed)
    with pytest.raises(tw.Error, match="TW1101.*past"):
        executable(*feed.values())


def test_two_inputs_in_one_array_are_refused():
    nodes = [("ScatterND", ["past", "at", "new"], ["present"])]
    shapes = [value("past", [4, 8]), value("new", [1, 8]), value("at", [1, 1], INT64)]
    executable = tw.compile(tw.load(model_of(nodes, shapes, [value("present", [4, 8])])), in_place={"present": "past"})
    cache = np.zeros((4, 8), np.float32)
    with pytest.raises(tw.Error, match="shares memory"):
        executable.run({"past": cache, "new": cache[:1], "at": np.zeros((1, 1), np.int64)})


def test_a_cache_that_grows_is_refused():
    nodes = [("Concat", ["past", "new"], ["present"], {"axis": 0})]
    model = model_of(nodes, [value("past", [4, 8]), value("new", [1, 8])], [value("present", [5, 8])])
    with pytest.raises(tw.Error, match=r"(?s)TW1004.*fixed capacity.*concatenation grows"):
        tw.compile(tw.load(model), in_place={"present": "past"})


def test_artifacts_and_the_command_line(tmp_path):
    path = tmp_path / "cache.onnx"
    path.write_bytes(cache_model().SerializeToString())
    done = run_tw("compile", path, "--in-place", "present=past")
    assert done.returncode == 0, done.stderr
    executable = tw.load_executable(tmp_path / "cache.twa")
    assert executable.in_place == {"present": "past"}
    feed = feed_of(executable, 5)
    expected = reference(cache_model(), feed)[0]
    assert executable.run(feed)["present"] is feed["past"]
    np.testing.assert_array_equal(feed["past"], expected)
    assert "past" in run_tw("inspect", tmp_path / "cache.twa").stdout
    for command in (("run", tmp_path / "cache.twa"), ("bench", path, "--in-place", "present=past", "--seconds", "0.1")):
        done = run_tw(*command)
        assert done.returncode == 0, done.stderr
    done = run_tw("compile", path, "--in-place", "present")
    assert done.returncode == 2 and "TW1101" in done.stderr
