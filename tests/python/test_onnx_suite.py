"""ONNX's own suite of nodes: what we take gives the right answer, and everything else is refused."""

from pathlib import Path

import pytest
from onnx_suite import run_suite, summary

RUNNER = Path(__file__).resolve().parents[2] / "build/tests/onnx_node_runner"

# Raised when more passes; never lowered.
FLOOR_PASSED, FLOOR_OPERATORS = 1200, 140


@pytest.fixture(scope="module", params=["oracle", "cpu"])
def results(request):
    assert RUNNER.exists(), "./dev build makes the runner"
    return run_suite(RUNNER, request.param)


def test_no_case_of_the_suite_is_wrong(results):
    text, counts, operators = summary(results)
    print(text)
    bad = [f"{r.status} {r.name}: {r.message[:200]}" for r in results if r.status in ("wrong", "crashed")]
    assert not bad, "\n".join([text, *bad])
    assert counts["passed"] >= FLOOR_PASSED, text
    assert len(operators) >= FLOOR_OPERATORS, text


def test_what_is_refused_is_refused_with_its_code(results):
    assert [r.name for r in results if r.status == "refused" and not r.message.startswith("TW1003")] == []
