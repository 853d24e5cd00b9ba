"""Open dimensions: sizes of inputs that are not known when a model is compiled, and come with each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .error import Error


@dataclass(frozen=True)
class Dim:
    """An open dimension; those of one name have one size in a run.  Both bounds are included; no `high`: no end."""

    name: str
    low: int = 1
    high: int | None = None

    def __post_init__(self) -> None:
        if not self.name or self.low < 0 or (self.high is not None and self.high < self.low):
            raise Error("TW1004", f"{self!r} is no dimension\nhelp: it has a name, and 0 <= low <= high")


# Of one input: numbers fix a dimension, a name or a Dim opens it, None or -1 leaves it as the model has it.
Shape = Sequence[int | str | Dim | None]


def described(dimension: int | str | Dim | None) -> int | tuple[str, int, int]:
    """As the compiler takes it."""
    if dimension is None:
        return -1
    if isinstance(dimension, str):
        dimension = Dim(dimension)
    if isinstance(dimension, Dim):
        return dimension.name, int(dimension.low), -1 if dimension.high is None else int(dimension.high)
    return int(dimension)


# Of an input that is a sequence: a list of its tensors' shapes.  None: of an optional one that is absent.
InputShape = Shape | Sequence[Shape] | None


def described_shapes(shapes: Mapping[str, InputShape] | None) -> dict[str, list[int | tuple[str, int, int]] | None]:
    result: dict[str, list[int | tuple[str, int, int]] | None] = {}
    if shapes is not None and not isinstance(shapes, Mapping):
        raise Error("TW1004", f"shapes={shapes!r} is no dict of shapes\nhelp: shapes={{'x': (1, 3, 224, 224)}}")
    for name, shape in (shapes or {}).items():
        if shape is not None and (isinstance(shape, str) or not isinstance(shape, Sequence)):
            raise Error("TW1004", f"the shape of {name!r} is {shape!r}\nhelp: shapes={{{name!r}: (1, 3, 224, 224)}}")
        parts: list[Any] = list(shape or ())
        if parts and all(isinstance(part, (list, tuple)) for part in parts):
            result |= {f"{name}.{k}": [described(d) for d in part] for k, part in enumerate(parts)}
        else:
            result[name] = None if shape is None else [described(dimension) for dimension in parts]
    return result


# Of one open dimension: its size, (min, max), or (min, opt, max), where choices for all of them are made for opt.
Sizes = int | tuple[int, int] | tuple[int, int, int]
SizeProfile = Mapping[str, Sizes]  # by name; dimensions that it does not name stay as the model has them


def described_sizes(name: str, sizes: Sizes) -> tuple[int, int, int]:
    """As the compiler takes it: its least, typical and largest size; -1: none is typical."""
    numbers = tuple(sizes) if isinstance(sizes, Sequence) and not isinstance(sizes, str) else (sizes,)
    is_whole = all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in numbers)
    if not is_whole or not 1 <= len(numbers) <= 3 or list(numbers) != sorted(numbers):
        raise Error(
            "TW1004",
            f"the profile's sizes of {name!r} are {sizes!r}\n"
            "help: one whole number, (min, max) or (min, opt, max), the smallest first",
        )
    return int(numbers[0]), int(numbers[1]) if len(numbers) == 3 else -1, int(numbers[-1])


def described_profiles(profiles: Sequence[SizeProfile] | None) -> list[dict[str, tuple[int, int, int]]]:
    if isinstance(profiles, Mapping) or not all(isinstance(profile, Mapping) for profile in profiles or ()):
        raise Error("TW1004", f"profiles={profiles!r} is no list of profiles\nhelp: profiles=[{{'batch': 1}}, …]")
    return [{name: described_sizes(name, sizes) for name, sizes in profile.items()} for profile in profiles or ()]
