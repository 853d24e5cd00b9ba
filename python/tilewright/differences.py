"""How far two arrays are apart, and when that is more than rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

# Of one node on equal inputs, as a share of its value's magnitude, by the precision that was asked for.  In f32 a sum
# of a million terms rounds by about √1000000 · 2⁻²⁴ = 6e-5, and Winograd's filtering by up to 5e-5.  Each operand of 16
# bits is off by up to half a unit of its last place, 2⁻⁹ in bf16 and 2⁻¹² in f16, of which a few meet.  tf32
# has as many bits of mantissa as f16.
TOLERANCES = {"f32": 1e-4, "tf32": 2e-3, "bf16": 2e-2, "f16": 2e-3}
# Numbers that are so many times the median are no part of the magnitude: masks add -1e9 to what they hide.
FAR = 1e4


@dataclass(frozen=True)
class Summary:
    """Of one array: what it holds."""

    type: str
    least: float
    mean: float
    largest: float
    not_finite: int

    def __str__(self) -> str:
        text = f"{self.type} {self.least:.6g} … {self.largest:.6g}, mean {self.mean:.6g}"
        return text + f", {self.not_finite} not finite" * (self.not_finite > 0)


def as_numbers(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def summary(array: np.ndarray) -> Summary:
    values = np.abs(as_numbers(array)) if array.dtype.kind == "c" else as_numbers(array)
    finite = values[np.isfinite(values)]
    least, mean, largest = (float(f(finite)) for f in (np.min, np.mean, np.max)) if finite.size else (math.nan,) * 3
    return Summary(f"{array.dtype}{list(array.shape)}", least, mean, largest, values.size - finite.size)


@dataclass(frozen=True)
class Difference:
    """Of `ours` from `theirs`: the largest, in absolute terms and as a share of the magnitude, and the worst element.

    The magnitude is that of the largest element, or an element's own if that is larger; elements that are FAR times the
    median count for themselves only.  Infinite where one side has a number and the other none, or the shapes differ.
    """

    absolute: float
    relative: float
    index: tuple[int, ...] = ()  #: of the element that is relatively worst
    ours: float = 0.0
    theirs: float = 0.0
    is_exact: bool = False  #: of whole numbers and truths: any difference is one too many
    unit: float = 0.0  #: between 1 and the next number of the type
    finite: float = 1.0  #: which share of elements is a number on both sides

    def is_within(self, tolerance: float) -> bool:
        """`tolerance` is for f32; types of fewer bits may round at their last place, too."""
        if self.is_exact:
            return self.absolute == 0
        return self.relative <= max(tolerance, 2 * self.unit if self.unit > np.finfo(np.float32).eps else 0.0)


def magnitude(values: np.ndarray) -> float:
    sizes = np.abs(values[np.isfinite(values)])
    sizes = sizes[sizes > 0]
    return float(sizes[sizes <= FAR * np.median(sizes)].max()) if sizes.size else 0.0


def unit_of(dtype: np.dtype) -> float:
    if dtype.kind in "biu":
        return 0.0
    try:
        return float(np.finfo(dtype).eps)
    except ValueError:  # bf16 and narrow types
        import ml_dtypes

        return float(ml_dtypes.finfo(dtype).eps) if "float" in dtype.name else 0.0


def difference(ours: np.ndarray, theirs: np.ndarray) -> Difference:
    is_exact = ours.dtype.kind in "biu" or "int" in ours.dtype.name
    unit = unit_of(ours.dtype)
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return Difference(math.inf, math.inf, is_exact=is_exact, unit=unit)
    if not ours.size:
        return Difference(0.0, 0.0, is_exact=is_exact, unit=unit)
    a, b = as_numbers(ours), as_numbers(theirs)
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.asarray(np.abs(a - b))
        apart[(a == b) | (np.isnan(a) & np.isnan(b))] = 0
        apart[np.isnan(apart)] = math.inf
        if is_exact:  # whole numbers of more than 53 bits
            apart[(ours != theirs) & (apart == 0)] = 1
        scale = np.maximum(np.where(np.isfinite(b), np.abs(b), 0), magnitude(b))
        share = np.divide(apart, scale, out=np.where(apart > 0, math.inf, 0.0), where=scale > 0)
    at = np.unravel_index(int(np.argmax(share)), share.shape)
    left, right = (float(np.abs(v[at])) if v.dtype.kind == "c" else float(v[at]) for v in (a, b))
    finite = float(np.mean(np.isfinite(a) & np.isfinite(b)))
    place = tuple(int(i) for i in at)
    return Difference(float(apart.max()), float(share[at]), place, left, right, is_exact, unit, finite)
