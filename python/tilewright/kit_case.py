"""One case of a kit: an artifact with inputs and what is expected, and the files that it becomes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from . import _core
from .executable import Executable
from .lists import Type


@dataclass(frozen=True)
class Limits:
    """How far an element may be off: by `absolute` + `relative` of the number, or by `ulps` floats of its type."""

    ulps: int = 0
    relative: float = 0.0
    absolute: float = 0.0
    zero_signs: bool = False  # whether 0 and -0 are different


def shares(tolerance: float, expected: Sequence[np.ndarray]) -> list[Limits]:
    """Of each output a share of its largest number; whole numbers are equal."""
    result = []
    for array in expected:
        sizes = np.abs(array[np.isfinite(array)].astype(np.float64)) if array.dtype.kind not in "biu" else np.zeros(0)
        result.append(Limits(absolute=float(sizes.max()) * tolerance if sizes.size else 0.0))
    return result


@dataclass(frozen=True)
class Case:
    """Inputs and expected outputs are in the executable's order.  With `made_up` sizes instead, a kit has neither: the
    runner makes inputs up, and only measures."""

    name: str
    kind: str  # "operation", "kernel", "network", "suite" or "time"
    executable: Executable
    inputs: Sequence[np.ndarray] = ()
    expected: Sequence[np.ndarray] = ()
    limits: Limits | Sequence[Limits] = Limits()  # of each output, or of all
    is_timed: bool = False
    made_up: bool = False
    facts: dict[str, Any] = field(default_factory=dict)  # more that the manifest says of it

    def write(self, folder: Path) -> int:
        """Makes the folder; gives the bytes in it."""
        folder.mkdir(parents=True)
        (folder / "model.twa.gz").write_bytes(gzip.compress(self.executable.to_bytes(), mtime=0))
        described: dict[str, Any] = {
            "name": self.name,
            "made_up": self.made_up,
            "is_timed": self.is_timed,
            "inputs": self._tensors(self.executable._inputs, self.inputs),
            "outputs": self._tensors(self.executable._outputs, self.expected),
        }
        count = len(described["outputs"])
        limits = [self.limits] * count if isinstance(self.limits, Limits) else self.limits
        for output, limit in zip(described["outputs"], limits, strict=True):
            output |= asdict(limit)
        if not self.made_up:
            for name, arrays in (("inputs", self.inputs), ("expected", self.expected)):
                (folder / f"{name}.bin").write_bytes(b"".join(array.tobytes() for array in arrays))
        (folder / "case.json").write_text(json.dumps(described))
        return sum(path.stat().st_size for path in folder.iterdir())

    def _tensors(self, types: list[tuple[str, str]], arrays: Sequence[np.ndarray]) -> list[dict[str, Any]]:
        if self.made_up:
            return [{"name": name, "dtype": Type(kind).dtype, "shape": [*Type(kind).shape]} for name, kind in types]
        return [
            {"name": name, "dtype": _core.dtype_name(array), "shape": [*array.shape]}
            for (name, _), array in zip(types, arrays, strict=True)
        ]


Work = tuple[str, Callable[[], Case]]  # the name of a case, and what makes it
