"""How commands compile models: one set of options, and what they make of a model or an artifact."""

from __future__ import annotations

import functools
import inspect
import runpy
import warnings
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import typer

import tilewright as tw

from .cli_options import (
    Constants,
    Fallback,
    Gpu,
    InPlace,
    OperatorFile,
    Precision,
    Profiles,
    Records,
    Shapes,
    Specialise,
    Strassen,
    Target,
    Threads,
    Winograd,
    parse_constants,
    parse_in_place,
    parse_profiles,
    parse_shapes,
    parse_sizes,
    read_inputs,
)
from .lazy import lazily
from .notes import note

if TYPE_CHECKING:
    import numpy as np

made_up = lazily("made_up")


def read_operators(path: Path | None) -> list[tw.Operator] | None:
    """The list `operators` of a Python file."""
    if path is None:
        return None
    try:
        operators = runpy.run_path(str(path)).get("operators")
    except OSError as error:
        raise tw.Error("TW1001", f"{path} cannot be read: {error.strerror}") from None
    if not isinstance(operators, (list, tuple)):
        raise tw.Error("TW1003", f"{path} has no list `operators`\nhelp: operators = [tw.Operator(…)]")
    return list(operators)


@dataclass
class Compiling:
    """How a command compiles: each field is an option of it (`compiles`)."""

    target: Target = "cpu"
    shape: Shapes = field(default_factory=list)
    constants: Constants = field(default_factory=list)
    threads: Threads = None
    precision: Precision = "f32"
    winograd: Winograd = True
    strassen: Strassen = True
    in_place: InPlace = field(default_factory=list)
    db: Records = None
    profile: Profiles = field(default_factory=list)
    specialise: Specialise = False
    operators: OperatorFile = None
    fallback: Fallback = None
    gpu: Gpu = None

    def load(self, path: Path) -> tw.Model:
        """With the file's operators, and with what falls back told."""
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", tw.FallbackWarning)
            model = tw.load(
                path,
                parse_shapes(self.shape),
                read_operators(self.operators),
                self.fallback,
                constants=parse_constants(self.constants),
            )
        for each in said:
            note(str(each.message))
        return model

    def compile(self, model: tw.Model, **more: Any) -> tw.Executable:
        return tw.compile(
            model,
            self.target,
            self.threads,
            self.precision,
            self.db,
            self.winograd,
            strassen=self.strassen,
            in_place=parse_in_place(self.in_place),
            profiles=parse_profiles(self.profile),
            specialise=self.specialise,
            **more,
        )

    def executable(self, context: typer.Context, path: Path) -> tw.Executable:
        """Of an artifact, or of a model that is loaded and compiled."""
        if path.suffix != ".twa":
            executable = self.compile(self.load(path))
            if self.gpu is not None:
                executable.gpu = self.gpu
            return executable
        refuse_options_of_compiling(context, path)
        executable = tw.load_executable(path, read_operators(self.operators), self.gpu or 0)
        if self.threads is not None:
            executable.threads = self.threads
        return executable


# What an artifact takes nevertheless.
OF_RUNS = {"threads", "operators", "gpu"}


def compiles(*left_out: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options of Compiling but for some, in place of the command's parameter `how`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        kinds, names = get_type_hints(Compiling, include_extras=True), []
        hints = get_type_hints(command, include_extras=True)
        parameters = [
            p.replace(annotation=hints[p.name])
            for p in inspect.signature(command).parameters.values()
            if p.name != "how"
        ]
        for option in fields(Compiling):
            if option.name not in left_out:
                names.append(option.name)
                default = [] if option.default is MISSING else option.default
                parameters.append(
                    inspect.Parameter(
                        option.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kinds[option.name]
                    )
                )

        @functools.wraps(command)
        def run(**given: Any) -> None:
            how = Compiling(**{name: given.pop(name) for name in names})
            command(**given, how=how)

        run.__signature__ = inspect.Signature([p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters])  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        return run

    return decorate


def refuse_options_of_compiling(context: typer.Context, artifact: Path) -> None:
    """An artifact is compiled: what says how has no effect, and is told so by its name."""
    of_compiling = {option.name for option in fields(Compiling)} - OF_RUNS
    given = [
        parameter.opts[0]
        for parameter in context.command.params
        if parameter.name in of_compiling
        and (source := context.get_parameter_source(parameter.name))
        and source.name == "COMMANDLINE"
    ]
    if given:
        raise tw.Error(
            "TW1101",
            f"{artifact} is compiled, and what says how cannot change it: {', '.join(given)}\n"
            "help: compile the model with that, or leave it out",
        )


def feed_of(executable: tw.Executable, files: list[str], sizes: list[str], seed: int) -> dict[str, np.ndarray]:
    """The inputs of these files, or made-up ones at these sizes of open dimensions."""
    if feed := read_inputs(files):
        return feed
    note("no --input: seeded random inputs")
    known = parse_sizes(sizes, executable.dimensions)
    made: dict[str, np.ndarray] = made_up.made_up_inputs(executable.input_tensors, seed, known)
    return made
