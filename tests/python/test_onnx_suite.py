"""ONNX's own suite of nodes: what we take gives the right answer, and everything else is refused."""

from pathlib import Path

import pytest

from onnx_suite import DRAWN, KINDS, reason_of, run_suite, summary

RUNNER = Path(__file__).resolve().parents[2] / "build/tests/onnx_node_runner"

# How it is run, from which input on inputs are constants (exporters write shapes, axes and scales so; the suite
# feeds them, and a shape that depends on data is refused), and the counts below which we do not fall again.
RUNS = {
    "oracle": ("oracle", None, 1962, 192),
    "oracle, constant shapes": ("oracle", 1, 1962, 192),
    "compiled": ("cpu", None, 900, 110),
}
REFUSALS = Path(__file__).with_name("onnx_refusals.txt")  # ./dev test --campaign onnx --refusals FILE writes it


@pytest.fixture(scope="module", params=RUNS)
def run(request):
    assert RUNNER.exists(), "./dev build makes the runner"
    mode, bound_from, passed, operators = RUNS[request.param]
    return request.param, run_suite(RUNNER, mode, bound_from=bound_from, kinds=KINDS), passed, operators


def test_no_case_of_the_suite_is_wrong(run):
    name, results, least_passed, least_operators = run
    text, counts, operators = summary(results)
    print(f"{name}: {text}")
    bad = [f"{r.status} {r.name}: {r.message[:200]}" for r in results if r.status in ("wrong", "crashed")]
    assert not bad, "\n".join([text, *bad])
    assert counts["passed"] >= least_passed, text
    assert len(operators) >= least_operators, text


def test_cases_that_draw_are_compared(run):
    assert {r.name for r in run[1] if r.status == "passed" and r.name in DRAWN} == set(DRAWN)


def test_what_is_refused_is_known_by_name_and_reason(run):
    refused = {r.name: reason_of(r.message) for r in run[1] if r.status == "refused"}
    assert refused == dict(line.split(": ", 1) for line in REFUSALS.read_text().splitlines())


def test_what_is_refused_is_refused_with_its_code(run):
    assert [r.name for r in run[1] if r.status == "refused" and not r.message.startswith("TW1003")] == []
