"""Models as commands load them: with operators of a file, and with what falls back told."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path

import tilewright as tw

from .cli_options import parse_constants, parse_shapes
from .notes import note


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


def load_model(
    path: Path, shapes: list[str], operators: Path | None, fallback: str | None, constants: list[str]
) -> tw.Model:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", tw.FallbackWarning)
        model = tw.load(
            path, parse_shapes(shapes), read_operators(operators), fallback, constants=parse_constants(constants)
        )
    for each in said:
        note(str(each.message))
    return model
