"""Tensor expressions and schedules from Python: every step keeps the meaning, and a trace replays."""

import re

import numpy as np
import pytest

import tilewright as tw
from conftest import ROOT
from tilewright import te


def arrays_for(m, n, k, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((m, k)).astype(np.float32), rng.standard_normal((k, n)).astype(np.float32)


def interpreted(program, *inputs, shape):
    """What the oracle makes of a program with one output."""
    output = np.full(shape, np.nan, np.float32)
    te.interpret(program, *inputs, output)
    return output


def test_a_matmul_is_what_numpy_says():
    f = te.matmul(5, 7, 6)
    a, b = arrays_for(5, 7, 6)
    np.testing.assert_allclose(interpreted(f, a, b, shape=(5, 7)), a @ b, atol=1e-5)
    np.testing.assert_allclose(te.build(f)(a, b)[0], a @ b, atol=1e-5)


def test_expressions_of_every_kind():
    x = te.placeholder("x", (4, 6))
    doubled = te.compute("doubled", (4, 6), lambda i, j: 2 * x[i, j] - 1.0)
    turned = te.compute("turned", (6, 4), lambda i, j: te.maximum(doubled[j, i], 0) / 3)
    peak = te.reduce("peak", (6,), (4,), lambda i, k: turned[i, k], combiner="max")
    soft = te.compute("soft", (6, 4), lambda i, j: te.exp(turned[i, j] - peak[i]) + te.call("sqrt", turned[i, j]))
    picked = te.compute("picked", (6, 4), lambda i, j: te.select(turned[i, j] < 0.5, soft[i, j], -soft[i, j]))
    f = te.func("mixed", [x], [picked])
    data = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
    t = np.maximum(2 * data - 1, 0).T / np.float32(3)
    s = np.exp(t - t.max(axis=1, keepdims=True)) + np.sqrt(t)
    expected = np.where(t < 0.5, s, -s)
    np.testing.assert_allclose(interpreted(f, data, shape=(6, 4)), expected, rtol=1e-5)
    np.testing.assert_allclose(te.build(f)(data)[0], expected, rtol=1e-4, atol=1e-6)


def test_index_arithmetic():
    x = te.placeholder("x", (12,))
    f = te.func("f", [x], [te.compute("y", (3, 4), lambda i, j: x[(j * 3 + i) % 12] + x[(11 - i * 4 - j) // 1])])
    data = np.arange(12, dtype=np.float32)
    expected = [[data[(j * 3 + i) % 12] + data[11 - i * 4 - j] for j in range(4)] for i in range(3)]
    np.testing.assert_array_equal(interpreted(f, data, shape=(3, 4)), expected)


def test_the_text_of_a_func_parses_back():
    f = te.matmul(4, 4, 4)
    assert str(te.parse(str(f))) == str(f)


@pytest.mark.parametrize("size", [(16, 16, 16), (17, 13, 9)], ids=str)
def test_primitives_keep_the_meaning(size):
    m, n, k = size
    a, b = arrays_for(m, n, k)
    s = tw.Schedule(te.matmul(m, n, k))

    def check():
        np.testing.assert_allclose(interpreted(s, a, b, shape=(m, n)), a @ b, atol=1e-4)

    i, j, r = s.loops("C")
    i0, i1 = s.split(i, [None, 4])
    check()
    j0, j1 = s.split(j, [None, 8])
    s.reorder(i0, j0, r, i1, j1)
    check()
    outer = s.fuse(i0, j0)
    check()
    s.parallel(outer)
    s.unroll(i1)
    s.vectorize(j1)
    check()
    assert [loop.name for loop in s.loops("C")][0] == outer.name
    np.testing.assert_allclose(te.build(s)(a, b)[0], a @ b, atol=1e-4)


@pytest.mark.parametrize("stages", [2, 3])
def test_a_pipelined_matmul_computes_the_same(stages):
    m, n, k = 24, 32, 40
    a, b = arrays_for(m, n, k)
    s = tw.Schedule(te.matmul(m, n, k))
    i, j, r = s.loops("C")
    r0, r1 = s.split(r, [None, 8])
    s.reorder(r0, i, j, r1)
    packed = s.cache_read("C", "B", "stack")
    s.compute_at(packed, r0)
    s.pipeline(r0, stages)
    s.vectorize(s.loops(packed)[-1])
    assert f"pipeline({r0.name}, {stages})" in s.trace
    np.testing.assert_allclose(te.build(s)(a, b)[0], a @ b, atol=1e-4)
    with pytest.raises(tw.Error, match="is pipelined"):
        s.parallel(r0)


def test_a_trace_replays_to_the_identical_func():
    f = te.matmul(32, 32, 32)
    s = tw.Schedule(f)
    i, j, k = s.loops("C")
    i0, i1 = s.split(i, [None, 4])
    s.reorder(i0, j, k, i1)
    s.cache_write("C", "C", "register")
    again = tw.Schedule.replay(s.trace, f)
    assert str(again.func) == str(s.func) and again.trace == s.trace
    assert ", [None, 4])" in s.trace


def test_the_default_schedule_is_a_trace_too():
    f = te.matmul(48, 64, 32)
    s = tw.Schedule.default(f)
    assert str(tw.Schedule.replay(s.trace, f).func) == str(s.func)
    a, b = arrays_for(48, 64, 32)
    np.testing.assert_allclose(te.build(s)(a, b)[0], a @ b, atol=1e-4)


def test_loops_are_handles():
    s = tw.Schedule(te.matmul(4, 4, 4))
    i, j, k = s.loops("C")
    assert (i.name, j.name, k.name) == tuple(loop.name for loop in s.loops("C"))
    assert i == s.loops("C")[0] and i != j and len({i, s.loops("C")[0]}) == 1


def test_registers_that_a_loop_indexes_are_refused():
    s = tw.Schedule(tw.te.matmul(8, 8, 8))
    s.cache_write("C", "C", "register")
    with pytest.raises(tw.Error, match="TW1404.*C_register.*indexed by a variable"):
        tw.te.build(s)


def test_building_for_a_board_gives_an_artifact(tmp_path):
    executable = te.build(te.matmul(8, 8, 8), target="aarch64")
    executable.save(tmp_path / "matmul.twa")
    with pytest.raises(tw.Error, match="TW1202"):
        tw.load_executable(tmp_path / "matmul.twa")


def test_templates_are_asked_and_decided():
    def template(s):
        rows = s.decide("rows", [1, 2, 4], analytic=2, costs=[1.5, 1.0, 1.2])
        i, j, k = s.loops("C")
        s.split(i, [None, rows])
        return rows

    f = tw.te.matmul(8, 8, 8)
    by_default = tw.Schedule(f)
    assert template(by_default) == 2
    assert by_default.asked == [
        {"name": "rows", "candidates": [1, 2, 4], "costs": [1.5, 1.0, 1.2], "analytic": 1, "chosen": 1}
    ]
    assert template(tw.Schedule(f, {"rows": 4})) == 4
    with pytest.raises(tw.Error, match="TW1401.*rows"):
        template(tw.Schedule(f, {"rows": 3}))
    with pytest.raises(tw.Error, match="TW1401.*no candidate"):
        tw.Schedule(f).decide("x", [1, 2], analytic=5)
    with pytest.raises(tw.Error, match="TW1401.*costs"):
        tw.Schedule(f).decide("x", [(1, 2), (3, 4)], analytic=(1, 2), costs=[1.0])
    assert tw.Schedule(f).decide("x", [(1, 2), (3, 4)], analytic=(3, 4)) == (3, 4)


def test_default_schedules_can_be_decided():
    f = tw.te.matmul(64, 64, 64)
    (tile,) = [asked for asked in tw.Schedule.default(f).asked if asked["name"] == "tile"]
    other = next(c for i, c in enumerate(tile["candidates"]) if i != tile["chosen"])
    decided = tw.Schedule.default(f, decisions={"tile": other})
    assert decided.trace != tw.Schedule.default(f).trace
    a, b = (np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32) for _ in "ab")
    np.testing.assert_allclose(tw.te.build(decided)(a, b)[0], a @ b, rtol=1e-4, atol=1e-4)
    with pytest.raises(tw.Error, match="TW1401.*nothing asks"):
        tw.Schedule.default(f, decisions={"no_such": 1})


def test_every_primitive_is_a_method():
    """Also those that the table does not bind, for they take something else in Python."""
    names = re.findall(r"^PRIMITIVE\(\w+, (\w+)", (ROOT / "schedule/primitives.def").read_text(), re.MULTILINE)
    assert names and all(hasattr(tw.Schedule, name) for name in names)
