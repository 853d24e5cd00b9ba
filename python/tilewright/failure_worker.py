"""The process of `failure.Judge`: a line of JSON in; "ran" when the model has run, and a line of JSON out."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tw

from .comparing import Comparer, side_of
from .sides import Compiled, Network


def dtype_named(name: str) -> np.dtype:
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes

        dtype: np.dtype = np.dtype(getattr(ml_dtypes, name))
        return dtype


def judged(request: dict[str, Any], say: Callable[[bytes], None]) -> dict[str, str]:
    folder = Path(request["folder"])
    inputs = {
        name: np.load(folder / f"{k}.npy", allow_pickle=False).view(dtype_named(dtype)).reshape(shape)
        for k, (name, dtype, shape) in enumerate(request["inputs"])
    }
    try:
        options = dict(request["options"])
        with warnings.catch_warnings(action="ignore", category=tw.FallbackWarning):
            model = tw.load((folder / "model.onnx").read_bytes(), fallback=options.pop("fallback", None))
        executable = tw.compile(model, **options)
        executable.run(inputs)
    except tw.Error as error:
        is_elsewhere = error.code == "TW1202"  # compiled for another machine, and so not run
        return {"kind": "unusable" if is_elsewhere else f"error {error.code}", "detail": str(error)}
    except Exception as error:  # what escapes the compiler otherwise is a bug of ours, and worth reducing
        return {"kind": f"error {type(error).__name__}", "detail": str(error)}
    say(b"ran")
    try:
        network = Network(model)
        theirs, ours = side_of(network, request["against"]), Compiled(network, executable._compilation)
        comparer = Comparer(network, executable, ours, theirs, request["tolerance"], inputs)
        if request["wants_node"]:
            first = comparer.run(propose=False).first
            return {"kind": "differs", "detail": str(first), "node": first.node} if first else {"kind": "ok"}
        expected = theirs.values(comparer.inputs, network.computed_outputs)
        differences = comparer.outputs(expected).items()
    except tw.Error as error:
        return {"kind": "unusable", "detail": str(error)}
    except Exception as error:  # of the other side
        return {"kind": "unusable", "detail": f"{type(error).__name__}: {error}"}
    off = [name for name, found in differences if not found.is_within(comparer.tolerance)]
    return {"kind": "differs", "detail": f"output `{off[0]}`"} if off else {"kind": "ok"}


def main() -> None:
    # Answers have a pipe of their own; what libraries print does not come between them.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def say(line: bytes) -> None:
        answers.write(line + b"\n")
        answers.flush()

    say(b"ready")
    for line in sys.stdin.buffer:
        say(json.dumps(judged(json.loads(line), say)).encode())


if __name__ == "__main__":
    main()
