"""The models that `./dev bench --kernels` measures, and how it finds regressions."""

import sys
from pathlib import Path

import onnx
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "perf"))

from kernel_cases import all_cases  # noqa: E402

CASES = all_cases()


def test_names_differ():
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("case", [case for case in CASES if case.bytes < 4e6], ids=lambda case: case.name)
def test_models_are_valid(case):
    """ONNX infers the output shape that the case states."""
    onnx.checker.check_model(case.model(), full_check=True)


def test_work_is_counted():
    cases = {case.name: case for case in CASES}
    assert cases["matmul/bert/128x768x3072"].flops == 2 * 128 * 768 * 3072
    conv = cases["conv/resnet50/56x56x64-64-3x3"]
    assert conv.flops == 2 * 56 * 56 * 64 * 64 * 9
    assert conv.bytes == 4 * (2 * 56 * 56 * 64 + 64 * 64 * 9 + 64)
    assert cases["conv/mobilenet_v2/112x112x96-96-3x3s2dw"].flops == 2 * 56 * 56 * 96 * 9


def test_a_lower_ratio_is_a_regression(tmp_path):
    pytest.importorskip("openvino")
    from kernels import compare

    old = tmp_path / "old.csv"
    old.write_text("kernel,ahead\nsame,1.0\nslower,1.0\nfaster,1.0\ngone,1.0\n")
    rows = [{"kernel": k, "ahead": a} for k, a in (("same", 0.95), ("slower", 0.8), ("faster", 1.5), ("new", 0.1))]
    assert compare(rows, old, tolerance=0.1) == 1
    assert compare(rows, old, tolerance=0.3) == 0
