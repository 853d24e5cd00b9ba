"""Operators of your own, for models with nodes that Tilewright does not know.

def gelu_like(x, alpha=1.0):  # a tensor expression: compiled, fused and tuned like any operator
    return te.compute("y", x.shape, lambda *i: x[i] * te.sigmoid(x[i] * alpha))

swish = tw.Operator("my.domain", "Swish", expression=gelu_like)
executable = tw.compile(tw.load("model.onnx", operators=[swish]))
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import _core, te
from .error import Error
from .schedule import Schedule, name_of_template


@dataclass(frozen=True)
class ArrayType:
    """What is known of an array when a model is loaded.

    `dtype`: "f32", "i64", …  `shape`: of an open dimension an expression (te.Expr), with which sizes of results can be
    computed; of others a number.  Of a result, None is a size that `sizes` says in the run.
    """

    dtype: str
    shape: tuple[int | te.Expr | None, ...]


class Operator:
    """An operator that nodes of a model use: they name `domain` and `name`; it comes before one of ours of that name.

    Attributes of a node (numbers, strings, and lists of these) are keyword arguments of the functions that follow.
    There are three ways to say what it does:

    `expression`: a function of te.Tensors that gives one, or a sequence of them.  It is compiled, fused, checked and
    tuned like any other operator, on every target.  Inputs of 16 bits come as they are.  Or it gives a te.update of its
    first input, which can be in place (in_place= of tw.compile).

    `schedule`, beside an expression: called with a tw.Schedule of each kernel that the operator is in, perhaps fused
    with its neighbours; it schedules that and returns True, or returns False and leaves it to the target.  What it asks
    with Schedule.decide is tuned.

    `types` and `function`: `types` takes an ArrayType of each input, and gives that of the result, or a sequence of
    them, from shapes and attributes alone; `function` takes the arrays of a run (read-only; the run's memory, so keep
    copies) and gives such results as numpy arrays.  It runs on one thread, and has to give the same for the same
    inputs, since a node whose result nobody needs, or that is there twice, may not be run.

    `sizes`, beside these: takes the arrays of a run, and gives the sizes that `types` left None, in order; it is called
    before the function.

    `types`, `library` and `symbol`: the same with a function of a shared library, a `tw_function` of tilewright.h.
    Artifacts name the library, so they run where it can be found: by the loader, or beside the artifact.  `sizes` is
    then the name of another such function there, whose result is an i64 a size.
    """

    def __init__(
        self,
        domain: str,
        name: str,
        *,
        expression: Callable[..., Any] | None = None,
        schedule: Callable[[Schedule], bool] | None = None,
        types: Callable[..., Any] | None = None,
        function: Callable[..., Any] | None = None,
        library: str | os.PathLike[str] | None = None,
        symbol: str | None = None,
        sizes: Callable[..., Any] | str | None = None,
    ):
        ways = (
            expression is not None and (types, function, library, symbol) == (None,) * 4,
            None not in (types, function) and (expression, library, symbol) == (None,) * 3,
            None not in (types, library, symbol) and (expression, function) == (None,) * 2,
        )
        if sum(ways) != 1:
            raise Error(
                "TW1003",
                f"the operator {domain}.{name} does not say what it does\n"
                "help: give expression=, or types= and function=, or types=, library= and symbol=",
            )
        if schedule is not None and expression is None:
            raise Error(
                "TW1003",
                f"the operator {domain}.{name} has a schedule, and nothing to schedule\n"
                "help: a schedule is of an expression; functions run as they are",
            )
        if sizes is not None and (expression is not None or isinstance(sizes, str) != (library is not None)):
            raise Error(
                "TW1003",
                f"the operator {domain}.{name} has sizes={sizes!r}\n"
                "help: a function beside function=, the name of one beside library=, nothing beside expression=",
            )
        self.domain, self.name, self.sizes = domain, name, sizes
        self.schedule, self._schedule_name = schedule, name_of_template(schedule)
        self.expression, self.types, self.function = expression, types, function
        self.library, self.symbol = None if library is None else os.fspath(library), symbol

    takes_attributes = True  # whether `call` looks at them

    @property
    def full_name(self) -> str:
        """The name with its domain: "domain.Name"."""
        return f"{self.domain}.{self.name}" if self.domain else self.name

    @property
    def sizes_name(self) -> str:
        """What runs call for the sizes of results."""
        return f"{self.full_name}.sizes"

    @property
    def schedule_name(self) -> str:
        """What kernels of it name its schedule by, so that what was tuned with another is not taken; "": none."""
        return f"{self.full_name} ({self._schedule_name})" if self.schedule else ""

    def __repr__(self) -> str:
        way = "expression" if self.expression else f"library {self.library}" if self.library else "function"
        return f"<tilewright.Operator {self.full_name} by {way}>"

    def lower(self, node: str, attributes: str, inputs: list[te.Tensor]) -> Any:
        """What a node becomes, as the importer asks it."""
        given = json.loads(attributes)
        try:
            if self.expression is not None:
                results = self.expression(*inputs, **given)
                if isinstance(results, te.Update):
                    return *self.lower_update(results, inputs), ""
                results = [results] if isinstance(results, te.Tensor) else list(results)
                return te.func(self.name, inputs, results), None, self.schedule_name
            assert self.types is not None
            results = self.types(*(ArrayType(x.dtype, x.shape) for x in inputs), **given)
            outputs = [results] if isinstance(results, ArrayType) else list(results)
            described = [(x.dtype, tuple(x.shape)) for x in outputs]
            if self.sizes is None and any(size is None for _, shape in described for size in shape):
                raise ValueError("types leaves a size None, and there are no sizes=")
            sizes = self.sizes if isinstance(self.sizes, str) else self.sizes_name
            return self.symbol or self.full_name, self.library or "", (described, sizes)
        except Exception as error:
            shapes = ", ".join(f"{x.dtype}{list(x.shape)}" for x in inputs)
            raise Error(
                "TW1003",
                f"the operator {self.full_name} does not take node `{node}` ({shapes}; {attributes}): "
                f"{error if isinstance(error, Error) else f'{type(error).__name__}: {error}'}",
            ) from error

    def lower_update(self, update: te.Update, inputs: list[te.Tensor]) -> Any:
        """The expression of what is between, or None, and the loops that write the changed elements."""
        if not inputs or update.past is not inputs[0]:
            raise ValueError("te.update changes the operator's first input")
        if self.schedule is not None:
            raise ValueError("te.update takes no schedule: its loops run in order")
        return _core.make_update(self.name, inputs, update.shape, update.place, update.value)

    def call(self, attributes: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Runs the function on arrays of a run, and writes its results."""
        assert self.function is not None
        results = self.function(*inputs, **json.loads(attributes))
        results = [results] if isinstance(results, (np.ndarray, np.generic)) else list(results)
        if len(results) != len(outputs):
            raise ValueError(f"it gave {len(results)} results instead of {len(outputs)}")
        for result, output in zip(results, outputs, strict=True):
            if np.shape(result) != output.shape:
                raise ValueError(f"it gave a result of shape {np.shape(result)} instead of {output.shape}")
            np.copyto(output, result, casting="same_kind")

    def call_sizes(self, attributes: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Writes what `sizes` says of arrays of a run."""
        assert callable(self.sizes)
        found = np.atleast_1d(np.asarray(self.sizes(*inputs, **json.loads(attributes))))
        if found.shape != outputs[0].shape:
            raise ValueError(f"sizes gave {found.size} numbers instead of {outputs[0].size}")
        np.copyto(outputs[0], found, casting="same_kind")


Operators = Iterable[Operator] | None


def lowered_by(operators: Operators) -> dict[tuple[str, str], Callable[..., Any]]:
    """As the importer takes them."""
    result = {}
    for each in operators or ():
        if not isinstance(each, Operator):
            raise Error("TW1003", f"{each!r} is no operator\nhelp: operators=[tw.Operator(…)]")
        key = ("" if each.domain == "ai.onnx" else each.domain, each.name)
        if key in result:
            raise Error("TW1003", f"there are two operators {each.full_name}")
        result[key] = each.lower
    return result


def functions_of(operators: Iterable[Operator]) -> dict[str, tuple[Callable[..., Any], bool]]:
    """As the compiler takes those that are functions in Python."""
    in_python = [each for each in operators if each.function is not None]
    functions = {each.full_name: (each.call, each.takes_attributes) for each in in_python}
    return functions | {each.sizes_name: (each.call_sizes, True) for each in in_python if each.sizes is not None}


def schedules_of(operators: Iterable[Operator]) -> dict[str, Callable[[Schedule], bool]]:
    """By what kernels name them."""
    return {each.schedule_name: each.schedule for each in operators if each.schedule is not None}


def give_functions(executable: _core.Executable, operators: Operators) -> None:
    """Gives an executable the functions in Python that it calls."""
    wanted = {name for name, library, _ in executable.host_calls if not library}
    known = functions_of(operators or ())
    if missing := sorted(wanted - known.keys()):
        raise Error(
            "TW1102",
            f"the model calls functions of Python that are not given: {', '.join(missing)}\n"
            "help: load_executable(path, operators=[…]), the operators that the model was compiled with",
        )
    for name in wanted:
        executable.set_host_function(name, *known[name])
