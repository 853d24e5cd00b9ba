"""`tw reduce`: a model that fails, shrunk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

import tilewright as tw

from . import cli_options as options
from .compare_cli import Against, InputFiles, KeepF32, OnnxPath, Skip, Tolerance, Unfused, parse_against
from .interrupt import raise_keyboard_interrupt
from .notes import note


def told(event: dict[str, Any]) -> None:
    from .reducing import text_of

    note(text_of(event))


def parse_sizes(sizes: list[str]) -> dict[str, int]:
    parts = [size.rpartition("=") for size in sizes]
    if wrong := [
        size for size, (name, _, number) in zip(sizes, parts, strict=True) if not name or not number.isdigit()
    ]:
        raise tw.Error("TW1101", f"--size {wrong[0]}\nhelp: write --size NAME=8")
    return {name: int(number) for name, _, number in parts}


def reduce_command(
    model: OnnxPath,
    output: Annotated[Path, typer.Option("--output", "-o", help="The small model to write.")] = Path("small.onnx"),
    against: Against = "onnxruntime",
    inputs: InputFiles = [],  # noqa: B006
    tolerance: Tolerance = None,
    time_limit: Annotated[float, typer.Option(min=1, help="How many seconds one compilation and run may take.")] = 60.0,
    seed: options.Seed = 0,
    target: options.Target = "cpu",
    threads: options.Threads = None,
    precision: options.Precision = "f32",
    winograd: options.Winograd = True,
    strassen: options.Strassen = True,
    size: options.Sizes = [],  # noqa: B006
    skip: Skip = [],  # noqa: B006
    keep_f32: KeepF32 = [],  # noqa: B006
    unfused: Unfused = [],  # noqa: B006
    as_json: options.AsJson = False,
) -> None:
    """Shrink a model that differs, or on which the compiler fails, crashes or hangs, to a small one of the kind.

    Ctrl-C ends with the smallest so far.
    """
    chosen: dict[str, Any] = {"skip": skip, "keep_f32": keep_f32, "unfused": unfused, "threads": threads}
    chosen = {name: value for name, value in chosen.items() if value} | {"target": target, "precision": precision}
    chosen |= {} if winograd else {"winograd": False}
    chosen |= {} if strassen else {"strassen": False}
    raise_keyboard_interrupt()  # it ends with the smallest case so far
    result = tw.reduce(
        model,
        against=parse_against(against),
        inputs=options.read_inputs(inputs) or None,
        seed=seed,
        sizes=parse_sizes(size),
        tolerance=tolerance,
        time_limit=time_limit,
        on_event=told,
        **chosen,
    )
    command = result.save(output)
    if as_json:
        print(json.dumps({"model": str(output), "command": command} | result.to_dict()))
    else:
        print(f"{output}: {result}", command, sep="\n")
