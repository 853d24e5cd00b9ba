"""What options of compiling and tuning may be: a wrong one is told by its name, before anything is done."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np

from .error import Error

if TYPE_CHECKING:
    from .dimension import SizeProfile
    from .operators import Operators
    from .schedule import Schedule


Threads = int | Literal["openmp"] | None  # None: one for each core


class CompileOptions(TypedDict, total=False):
    """Those of `tw.compile` and `tw.load` that other functions hand on to them."""

    target: str | None
    threads: Threads
    precision: str
    db: str | os.PathLike[str] | None
    winograd: bool
    strassen: bool
    in_place: Mapping[str, str] | None
    template: Callable[[Schedule], bool] | None
    profiles: Sequence[SizeProfile] | None
    specialise: bool
    operators: Operators
    fallback: str | None
    constants: Mapping[str, Any] | None
    keep_f32: Sequence[str]
    unfused: Sequence[str]
    skip: Sequence[str]


def checked_target(target: str | None) -> str:
    """None stands for this machine."""
    if target is None:
        return "cpu"
    if not isinstance(target, str):
        raise Error("TW1301", f'target={target!r} is no target\nhelp: "cpu", "x86:avx2", "rpi4", "cuda:sm_90", …')
    return target


def gpu_of(target: str) -> int:
    """The ordinal of the machine's GPU that a target names: 1 of "cuda:1"."""
    found = re.fullmatch(r"cuda:(\d+)(\+ptx)?", target)
    return int(found[1]) if found else 0


def checked_gpu(ordinal: int) -> int:
    if isinstance(ordinal, bool) or not isinstance(ordinal, (int, np.integer)) or not 0 <= ordinal < 2**31:
        raise Error("TW1101", f"gpu={ordinal!r} is no GPU\nhelp: they are numbered 0, 1 and so on")
    return int(ordinal)


def checked_threads(count: int | None) -> int:
    """0 stands for one thread a core."""
    if count is None:
        return 0
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or not 1 <= count <= 1024:
        raise Error("TW1301", f"threads={count!r} is no number of threads\nhelp: use 1 to 1024, or None for every core")
    return int(count)


def checked_team(threads: Threads) -> tuple[int, str | None]:
    """The number of threads, 0 for one a core, and whose they are, where that is said."""
    if threads == "openmp":
        return 0, "openmp"
    return checked_threads(threads), None


PRECISIONS = ("f32", "tf32", "bf16", "f16")


def checked_precision(precision: str) -> None:
    if precision not in PRECISIONS:
        raise Error("TW1003", f"precision {precision!r} is not supported\nhelp: use one of {', '.join(PRECISIONS)}")


def checked_names(names: Sequence[str], option: str) -> frozenset[str]:
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise Error("TW1101", f"{option}={names!r} is no list of names\nhelp: {option}=['conv1', …]")
    return frozenset(names)


def constraints_of(winograd: bool, strassen: bool) -> str:
    """What passes of graphs must not decide otherwise, as decisions are written."""
    constraints = []
    for name, is_allowed in (("winograd", winograd), ("strassen", strassen)):
        if not isinstance(is_allowed, (bool, np.bool_)):
            raise Error("TW1101", f"{name}={is_allowed!r} is neither True nor False")
        constraints += [f"{name}=0"] * (not is_allowed)
    return " ".join(constraints)


def checked_in_place(pairs: Mapping[str, str] | None) -> dict[str, str]:
    if pairs is not None and not isinstance(pairs, Mapping):
        raise Error("TW1101", f'in_place={pairs!r} is no pairs\nhelp: in_place={{"present.0.key": "past.0.key"}}')
    return {str(output): str(input) for output, input in (pairs or {}).items()}


def checked_path(path: Any, option: str) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise Error("TW1001", f"{option}={path!r} is no path of a file")
    return os.fspath(path)


def checked_database(db: str | os.PathLike[str] | None) -> str:
    """Of one that is there; "" stands for none."""
    if db is None:
        return ""
    database = checked_path(db, "db")
    if not os.path.isfile(database):
        raise Error("TW1001", f"there is no database {database}\nhelp: `tw tune --db {database}` makes it")
    return database
