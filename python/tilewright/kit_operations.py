"""The kit's cases of single operations: every operator, conversion and intrinsic of numbers, of every element type, on
special and random values, compared with the oracle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np

from . import _core, te
from .kit_case import Case, Limits, Work

FLOATS, SIGNED, UNSIGNED = ("f16", "bf16", "f32", "f64"), ("i8", "i16", "i32", "i64"), ("u8", "u16", "u32", "u64")
INTEGERS = SIGNED + UNSIGNED
TYPES = (*FLOATS, *INTEGERS, "bool")
SAME_BITS = {"f16": "i16", "bf16": "u16", "f32": "u32", "f64": "i64", "i16": "bf16", "i32": "f32", "u64": "f64"}

# Functions of floats of tensor_ir/intrinsics.def: how many floats of f32 and of f64 they may be off.  NVIDIA's table of
# "CUDA C++ Programming Guide", mathematical functions, and one for the oracle's own rounding.
ULPS = {
    "exp": (3, 2), "exp_nonpositive": (3, 2), "exp2": (3, 2), "log": (2, 2), "log2": (2, 2), "sqrt": (0, 0),
    "rsqrt": (3, 2), "tanh": (3, 3), "erf": (3, 3), "normal_cdf": (8, 8), "sigmoid": (6, 4), "sin": (3, 3),
    "cos": (3, 3), "tan": (5, 3), "asin": (5, 3), "acos": (4, 3), "atan": (3, 3), "sinh": (4, 3), "cosh": (3, 2),
    "asinh": (4, 4), "acosh": (5, 4), "atanh": (4, 3), "pow": (9, 3), "fmod": (0, 0), "floor": (0, 0), "ceil": (0, 0),
    "trunc": (0, 0), "round_even": (0, 0), "abs": (0, 0), "sign": (0, 0), "copysign": (0, 0), "fma": (0, 0),
    "scale_by_power": (0, 0), "minimum": (0, 0), "maximum": (0, 0),
}  # fmt: skip
ARGUMENTS = {"pow": 2, "fmod": 2, "copysign": 2, "scale_by_power": 2, "minimum": 2, "maximum": 2, "fma": 3}
OF_INTEGERS = ("abs", "sign", "minimum", "maximum")
# Of the smaller or larger one of 0 and -0 either is taken.
EITHER_ZERO = ("minimum", "maximum", "min", "max")
EXACT = Limits(zero_signs=True)


@dataclass(frozen=True)
class Operation:
    """An expression of x, y and z, which are elements of one type, and how far off its values may be."""

    name: str
    text: str
    arguments: int
    dtype: str
    result: str
    limits: Limits = EXACT

    @property
    def case_name(self) -> str:
        return f"operation-{self.name}-{self.dtype}"

    def func(self, count: int) -> te.Func:
        names = "xyz"[: self.arguments]
        text = self.text
        for name in names:
            text = text.replace(f"<{name}>", f"{name.upper()}[vi]")
        inputs = ", ".join(f"{name.upper()}: {self.dtype}[{count}]" for name in names)
        return te.parse(
            f"func operation({inputs}) -> (R: {self.result}[{count}]) {{ for i in 0..{count} {{ "
            f"block R(spatial vi: {count} = i) {{ R[vi] = {text} }} }} }}"
        )

    def case(self, target: str) -> Case:
        inputs = self.inputs()
        func = self.func(len(inputs[0]))
        expected = np.zeros(len(inputs[0]), _core.numpy_dtype(self.result))
        te.interpret(func, *inputs, expected)
        return Case(self.case_name, "operation", te.build(func, target), inputs, [expected], self.limits)

    def inputs(self) -> list[np.ndarray]:
        arrays = [each.copy() for each in combinations(self.dtype, self.arguments)]
        if self.dtype in INTEGERS and self.name in ("floor_div", "floor_mod", "div", "mod"):
            arrays[1][arrays[1] == 0] = 3
        if self.name in ("shift_left", "shift_right"):
            arrays[1] %= arrays[1].dtype.type(8 * arrays[1].itemsize)
        if self.name == "exp_nonpositive":
            arrays[0] = -np.abs(arrays[0])
        if self.name == "scale_by_power":
            whole = np.nan_to_num(np.trunc(arrays[1].astype(np.float64)), posinf=0, neginf=0)
            arrays[1] = np.clip(whole, -300, 300).astype(arrays[1].dtype)
        return arrays


def float_facts(dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "f":
        return np.finfo(dtype)
    import ml_dtypes

    return ml_dtypes.finfo(dtype)


@cache
def special(dtype: str) -> np.ndarray:
    """Zeros, the smallest and largest numbers, neighbours of 1, ties of rounding, infinities and NaN."""
    kind = _core.numpy_dtype(dtype)
    if dtype == "bool":
        return np.array([False, True])
    if dtype in INTEGERS:
        low, high = int(np.iinfo(kind).min), int(np.iinfo(kind).max)
        small = [0, 1, 2, 3, 7, 10, 100, *([-1, -2, -3, -7, -100] if low else [])]
        return np.array([*small, low, low + 1, high, high - 1, high // 2, high // 2 + 1], kind)
    facts = float_facts(kind)
    least, tiny, eps, most = (float(f) for f in (facts.smallest_subnormal, facts.tiny, facts.eps, facts.max))
    sizes = [0, least, 3 * least, tiny / 2, tiny, 2 * tiny, eps, 0.1, 0.5, 1 - eps, 1, 1 + eps, 1.5, 2, 2.5, 3, 3.5]
    sizes += [np.pi / 2, np.pi, 10, 17, 88, 104, 127, 128, 255.5, 256, 1000, 32767, 65504, 1e6, 2.0**31, 2.0**32, 1e10]
    sizes += [2.0**63, 2.0**64, 1e30, most / 2, most, np.inf, np.nan]
    with np.errstate(all="ignore"):
        return np.array([*sizes, *(-size for size in sizes)], np.float64).astype(kind)


@cache
def combinations(dtype: str, arguments: int) -> list[np.ndarray]:
    """Arrays for the arguments: special values, each with each, and random ones."""
    kind, rng = _core.numpy_dtype(dtype), np.random.default_rng(arguments)
    values = special(dtype)
    values = values[:: max(1, len(values) // {1: 1000, 2: 40, 3: 11}[arguments])]
    crossed = np.array(list(product(range(len(values)), repeat=arguments)))
    count = 512 if arguments == 1 else 1024
    columns = []
    for argument in range(arguments):
        if dtype == "bool":
            drawn = rng.integers(0, 2, 64).astype(kind)
        elif dtype in INTEGERS:
            drawn = np.frombuffer(rng.bytes(count * kind.itemsize), kind)
        else:
            facts = float_facts(kind)
            low, high = (float(np.log2(float(size))) for size in (facts.tiny, facts.max))
            wide = np.exp2(rng.uniform(low, high, count // 2)) * rng.choice([-1, 1], count // 2)
            drawn = np.concatenate([wide, rng.uniform(-4, 4, count - len(wide))]).astype(kind)
        columns.append(np.concatenate([values[crossed[:, argument]], drawn]))
    return columns


def limits_of(name: str, dtype: str) -> Limits:
    wide = dtype == "f64"
    ulps = ULPS[name][wide]
    if dtype in ("f16", "bf16"):
        ulps = min(ulps, 1)  # of f32, rounded once more
    # What is below the smallest normal number may be 0; of a tail what counts is the distance.
    tiny = float(float_facts(_core.numpy_dtype(dtype)).tiny)
    absolute = {"exp_nonpositive": tiny, "sigmoid": tiny, "normal_cdf": 1e-15 if wide else 1e-7}.get(name, 0.0)
    return Limits(ulps=ulps, absolute=absolute, zero_signs=name not in EITHER_ZERO)


def operations() -> Iterator[Operation]:
    """All of them."""
    x, y = "<x>", "<y>"
    for dtype in TYPES:
        for other in TYPES:
            if other != dtype:
                yield Operation(f"to_{other}", f"{other}({x})", 1, dtype, other)
        if dtype in SAME_BITS:
            other = SAME_BITS[dtype]
            yield Operation(f"reinterpret_{other}", f"reinterpret:{other}({x})", 1, dtype, other)
        for name, sign in (("equal", "=="), ("not_equal", "!="), ("less", "<"), ("less_equal", "<=")):
            yield Operation(name, f"{x} {sign} {y}", 2, dtype, "bool")
        yield Operation("select", f"select({x} < {y}, {x}, {y})", 2, dtype, dtype)
        yield from of_bools() if dtype == "bool" else of_numbers(dtype)
        yield from of_floats(dtype) if dtype in FLOATS else of_integers(dtype) if dtype in INTEGERS else ()


def of_bools() -> Iterator[Operation]:
    for name, sign in (("and", "&&"), ("or", "||"), ("bit_and", "&"), ("bit_or", "|"), ("bit_xor", "^")):
        yield Operation(name, f"<x> {sign} <y>", 2, "bool", "bool")
    yield Operation("not", "!<x>", 1, "bool", "bool")


def of_numbers(dtype: str) -> Iterator[Operation]:
    for name, sign in (("add", "+"), ("subtract", "-"), ("multiply", "*"), ("floor_div", "//"), ("floor_mod", "%")):
        yield Operation(name, f"<x> {sign} <y>", 2, dtype, dtype)
    yield Operation("div", "<x> / <y>" if dtype in FLOATS else "div(<x>, <y>)", 2, dtype, dtype)
    for name in ("mod", "min", "max"):
        yield Operation(name, f"{name}(<x>, <y>)", 2, dtype, dtype, Limits(zero_signs=name not in EITHER_ZERO))
    yield Operation("negate", "-<x>", 1, dtype, dtype)


def of_floats(dtype: str) -> Iterator[Operation]:
    for name in ULPS:
        count = ARGUMENTS.get(name, 1)
        arguments = ", ".join(("<x>", "<y>", "<z>")[:count])
        yield Operation(name, f"{name}({arguments})", count, dtype, dtype, limits_of(name, dtype))
    for name in ("is_nan", "is_inf"):
        yield Operation(name, f"{name}(<x>)", 1, dtype, "bool")
    if dtype == "f32":
        yield Operation("round_tf32", "round_tf32(<x>)", 1, dtype, dtype)
        for name in ("encode_e4m3", "encode_e5m2"):
            yield Operation(name, f"{name}(<x>)", 1, dtype, "u8")


def of_integers(dtype: str) -> Iterator[Operation]:
    for name, sign in (
        ("bit_and", "&"),
        ("bit_or", "|"),
        ("bit_xor", "^"),
        ("shift_left", "<<"),
        ("shift_right", ">>"),
    ):
        yield Operation(name, f"<x> {sign} <y>", 2, dtype, dtype)
    yield Operation("bit_not", "~<x>", 1, dtype, dtype)
    yield Operation("popcount", "popcount(<x>)", 1, dtype, dtype)
    for name in OF_INTEGERS:
        count = ARGUMENTS.get(name, 1)
        yield Operation(name, f"{name}({', '.join(('<x>', '<y>')[:count])})", count, dtype, dtype)
    if dtype == "u8":
        for name in ("decode_e4m3", "decode_e5m2"):
            yield Operation(name, f"{name}(<x>)", 1, dtype, "f32")
    if dtype == "u64":
        yield Operation("philox", "philox(<x>, <y>, <z>)", 3, dtype, dtype)


def works(target: str) -> list[Work]:
    """What makes the cases."""
    return [(each.case_name, partial(each.case, target)) for each in operations()]
