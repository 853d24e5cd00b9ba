"""Which GPUs have run code of ours, as kits were read back: the list that `tw doctor` shows is part of the package."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from . import _core
from .error import Error

FILE = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class Tried:
    """`passed` cases of a kit were right on the device, and no other was there; `without`: what was made since."""

    target: str
    device: str
    driver: str
    passed: int
    without: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        text = f"{self.target} on {self.device} (driver {self.driver}): {self.passed:,} cases were right"
        return text + (f"; not yet {', '.join(self.without)}" if self.without else "")


def read(path: Path = FILE) -> list[Tried]:
    """Error(TW1001): the file is no such list."""
    try:
        return [Tried(**row) for row in json.loads(path.read_text())]
    except OSError as error:
        raise Error("TW1001", f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError):
        raise Error("TW1001", f"{path} is no list of GPUs that were tried") from None


def never_tried(targets: Iterable[str], tried: Iterable[Tried]) -> list[str]:
    """Of these targets the GPUs that have run nothing."""
    seen = {row.target for row in tried}
    gpus = (target for target in targets if _core.kernel_fit(target, 1, 1, 0) is not None)
    return [target for target in gpus if target not in seen]


def record(results: dict[str, Any], path: Path) -> Tried:
    """Puts what a kit's runner wrote in the list, in the place of what the device was known to have run before.
    Error(TW1001): a case did not pass, or was not run."""
    cases, cuda = results["cases"], results["device"]["driver"]
    bad = sum(case["status"] != "passed" for case in cases)
    if bad or not results["is_complete"]:
        why = f"{bad} of {len(cases)} cases did not pass" if bad else "not all cases were run"
        raise Error("TW1001", f"{results['device']['name']} is not put down as tried: {why}")
    driver = f"for CUDA {cuda // 1000}.{cuda % 1000 // 10}"
    made = Tried(results["target"], results["device"]["name"], driver, len(cases))
    others = [row for row in read(path) if (row.target, row.device) != (made.target, made.device)]
    rows = sorted([*others, made], key=lambda row: (row.target, row.device))
    path.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    return made
