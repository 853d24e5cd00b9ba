"""Models of ONNX's suite, changed at random, against ONNX Runtime: ./dev test --campaign operators is the long form."""

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from mutant_runs import judge, mutant_of, share  # noqa: E402
from mutant_seeds import LEFT_OUT, ORDINARY, corpus  # noqa: E402

COUNT = 300


def test_changed_models_agree_with_onnx_runtime():
    counts = share(range(1, 1 + COUNT))
    assert not counts.failures, "\n".join(text for _, text in counts.failures)
    assert counts.kinds["agree"] > 0.9 * COUNT, counts.kinds
    assert counts.invalid < COUNT and len(counts.operators) > 0.4 * COUNT


def changed(array, at):
    other = array.copy()
    flat = other.reshape(-1)
    flat[at] = ~flat[at] if array.dtype == bool else flat[at] + np.array(1, array.dtype)
    return other


def test_one_wrong_element_is_noticed():
    noticed, tried = 0, 0
    for seed in range(1, 61):
        mutant, _ = mutant_of(seed, True)
        wants = mutant.expected if mutant else []
        if not wants or wants[0].size == 0 or not np.all(np.abs(wants[0].astype(float)) < 100):
            continue
        tried += 1
        haves = [changed(wants[0], wants[0].size // 2), *wants[1:]]
        noticed += judge(mutant.model, mutant.inputs, haves, wants, "oracle")[0] == "wrong"
    assert tried > 30 and noticed > 0.9 * tried


def test_rules_have_reasons_and_match_something():
    assert all(len(why) > 5 for why in [*LEFT_OUT.values(), *ORDINARY.values()])
    assert len(corpus()) > 300
