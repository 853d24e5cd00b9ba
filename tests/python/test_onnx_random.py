"""Operators with random parameters, and small graphs of them, against ONNX Runtime: on this machine and emulated ones.

tests/campaigns/random_graphs.py is the long form.
"""

import pytest

pytest.importorskip("onnxruntime")

import known_shapes  # noqa: E402
import open_graphs  # noqa: E402
from random_graphs import KINDS, differences, graph, single, small, wide  # noqa: E402

EMULATED = ["x86:avx2", "x86:sse4", "rpi3", "neoverse-v1", "armv7"]


def single_operators(sizes, cases, seed=0):
    """That many of each kind."""
    for k in range(cases * len(KINDS)):
        kind = KINDS[k % len(KINDS)]
        yield f"{k}-{kind.__name__}", *single(kind, sizes(seed + k))


def graphs(cases, seed=0):
    for k in range(cases):
        yield f"{k}-graph", *graph(wide(seed + k))


def check(cases, mode):
    cases = list(cases)
    compared, bad = differences(cases, mode)
    assert compared > 0.6 * len(cases)
    assert not bad, f"{len(bad)}:\n" + "\n".join(f"{name} {problem}" for name, problem in bad)


def test_operators_mean_what_onnx_runtime_means():
    check(single_operators(small, 25), "oracle")


def test_operators_agree_with_onnx_runtime():
    check(single_operators(wide, 10), "cpu")


@pytest.mark.parametrize("target", EMULATED)
def test_operators_agree_on_other_machines(target):
    check(single_operators(wide, 2, seed=1000 + 100 * EMULATED.index(target)), target)


def test_graphs_agree_with_onnx_runtime():
    check(graphs(40), "cpu")


def test_graphs_with_open_dimensions():
    assert open_graphs.problems(range(1000, 1150)) == []


# What once was wrong, and what did not compile.
@pytest.mark.parametrize("target", ["cpu", "rpi3", "armv7"])
def test_known_shapes(target):
    check(known_shapes.cases(), target)
