"""Tensor expressions: mathematics that becomes loops, for those who write schedules.

A = te.placeholder("A", (512, 512)); B = te.placeholder("B", (512, 512))
C = te.reduce("C", (512, 512), (512,), lambda i, j, k: A[i, k] * B[k, j])
f = te.func("matmul", [A, B], [C])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core
from ._core import Expr as Expr
from ._core import Func as Func
from ._core import Schedule
from ._core import Tensor as Tensor

if TYPE_CHECKING:
    from .executable import Executable

Extents = Sequence[int | Expr]  # expressions are of open dimensions
Value = Expr | float  # a number takes the element type of what it meets


def placeholder(name: str, shape: Extents, dtype: str = "f32") -> Tensor:
    """An input: `dtype` is "f32", "i64", …, and an extent a number, or an Expr where it is open."""
    return _core.placeholder(name, tuple(shape), dtype)


def compute(name: str, shape: Extents, value: Callable[..., Value]) -> Tensor:
    """An element for each index: compute("B", (4, 8), lambda i, j: A[j, i])."""
    return _core.compute(name, tuple(shape), value)


def reduce(name: str, shape: Extents, over: Extents, value: Callable[..., Value], combiner: str = "sum") -> Tensor:
    """Each element combines the values over the extents `over`, whose indices come last in the lambda.

    Combiners: sum, product, min, max, logical_and, logical_or.
    """
    return _core.reduce(name, tuple(shape), tuple(over), value, combiner)


@dataclass(frozen=True)
class Update:
    """The first input of an operator of your own (tw.Operator) but for some elements."""

    name: str
    past: Tensor
    shape: Extents
    place: Callable[..., Any]
    value: Callable[..., Value]


def update(name: str, past: Tensor, shape: Extents, place: Callable[..., Any], value: Callable[..., Value]) -> Update:
    """`past` with the element at `place(i…)` replaced by `value(i…)`, for each index of `shape`, one after the other.

    `place` gives an index, or a tuple of them; those outside of `past` change nothing.  `past[…]` in `value` is the
    element as it is by then, so that past[…] + x adds up.  As the result of an operator (tw.Operator) whose first input
    is `past`; `in_place=` of tw.compile then takes one array for both:

        def append(cache, row, at):
            return te.update("append", cache, row.shape, lambda i, j: (at[0] + i, j), lambda i, j: row[i, j])
    """
    return Update(name, past, tuple(shape), place, value)


def func(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Func:
    """The loops that compute `outputs` from `inputs`."""
    return _core.make_func(name, list(inputs), list(outputs))


def parse(text: str) -> Func:
    """A Func from its text form (tensor_ir/SYNTAX.md)."""
    return _core.parse_func(text)


def call(name: str, *arguments: Value) -> Expr:
    """A function of tensor_ir/intrinsics.def: call("exp", x)."""
    return _core.call(name, *arguments)


def exp(x: Expr) -> Expr:
    """e to the power of x."""
    return call("exp", x)


def tanh(x: Expr) -> Expr:
    """The hyperbolic tangent."""
    return call("tanh", x)


def sqrt(x: Expr) -> Expr:
    """The square root; NaN below 0."""
    return call("sqrt", x)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + exp(-x))."""
    return call("sigmoid", x)


def load_if(condition: Expr, tensor: Tensor, *indices: Any) -> Expr:
    """tensor[indices] where the condition holds, else 0; the element need not exist then."""
    return _core.load_if(condition, tensor, indices)


minimum, maximum, select, equal, cast = _core.minimum, _core.maximum, _core.select, _core.equal, _core.cast


def matmul(m: int, n: int, k: int, dtype: str = "f32") -> Func:
    """C[m,n] = A[m,k] · B[k,n]."""
    a, b = placeholder("A", (m, k), dtype), placeholder("B", (k, n), dtype)
    c = reduce("C", (m, n), (k,), lambda i, j, r: a[i, r] * b[r, j])
    return func("matmul", [a, b], [c])


def interpret(program: Func | Schedule, *arrays: np.ndarray) -> None:
    """The oracle: runs a Func, or a Schedule's, on arrays for all its buffers; outputs are written in place.

    Slow and strict: it stops, with an Error, at reads of memory never written, indices out of bounds and races.
    """
    for array in arrays:
        if not (isinstance(array, np.ndarray) and array.flags.c_contiguous):
            raise TypeError("interpret works in place: give C-contiguous numpy arrays")
    _core.interpret(program.func if isinstance(program, Schedule) else program, list(arrays))


def build(program: Func | Schedule, target: str = "cpu", threads: int | None = None) -> Executable:
    """Machine code for a Schedule as it stands, or for a Func with the target's default schedule; an Executable.

    Raises Error: TW1301, there is no such target; TW1404, the loops cannot be turned into its code.
    """
    from .executable import Executable
    from .machine import add_nvrtc_hints
    from .options import checked_threads, gpu_of

    add_nvrtc_hints()
    if isinstance(program, Func):
        program = Schedule.default(program, target)
    executable = Executable(_core.build_func(program.func, target))
    if gpu := gpu_of(target):
        executable.gpu = gpu
    executable._core.threads = checked_threads(threads)
    return executable
