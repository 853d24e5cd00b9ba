"""`tw compare`: two ways to compute a model, node by node."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import tilewright as tw

from . import cli_options as options
from .cli_models import Compiling, compiles
from .notes import note

OnnxPath = Annotated[Path, typer.Argument(help="An ONNX model.")]
Against = Annotated[
    str,
    typer.Option(
        "--against",
        "-a",
        help="What to compare with: onnxruntime, oracle (slow), or another precision: f32, tf32, bf16, f16.",
    ),
]
Tolerance = Annotated[
    float | None,
    typer.Option(help="How far a value may be off, as a share of its largest number. Default: by the precision."),
]
InputFiles = Annotated[
    list[str],
    typer.Option("--inputs", "--input", "-i", help="The inputs: file.npz or NAME=file.npy. Default: random ones."),
]
Skip = Annotated[list[str], typer.Option(help="Leave out this optional pass of the compiler. May be repeated.")]
KeepF32 = Annotated[list[str], typer.Option("--keep-f32", help="Keep this node in f32. May be repeated.")]
Unfused = Annotated[list[str], typer.Option(help="Do not fuse this node with others. May be repeated.")]


def parse_against(text: str) -> Any:
    from .options import PRECISIONS

    return {"precision": text} if text in PRECISIONS else text


@compiles("in_place", "profile", "specialise", "gpu")
def compare_command(
    model: OnnxPath,
    how: Compiling,
    against: Against = "onnxruntime",
    inputs: InputFiles = [],  # noqa: B006
    html: Annotated[Path | None, typer.Option(help="Write a page with all nodes to this .html file.")] = None,
    as_json: options.AsJson = False,
    tolerance: Tolerance = None,
    propose: Annotated[bool, typer.Option(help="Look for the fewest nodes to keep in f32 or unfused.")] = True,
    seed: options.Seed = 0,
    size: options.Sizes = [],  # noqa: B006
    skip: Skip = [],  # noqa: B006
    keep_f32: KeepF32 = [],  # noqa: B006
    unfused: Unfused = [],  # noqa: B006
) -> None:
    """Compare a compiled model with ONNX Runtime or the oracle, node by node; status 1 where they differ."""
    if model.suffix == ".twa":
        raise tw.Error("TW1101", f"{model} is an artifact, in which nothing is left of nodes\nhelp: give the model")
    network = how.load(model)
    executable = how.compile(network, keep_f32=keep_f32, unfused=unfused, skip=skip)
    feed = options.read_inputs(inputs)
    if not feed:
        note("no --inputs: seeded random inputs")
    result = tw.compare(
        executable,
        parse_against(against),
        feed or None,
        seed=seed,
        sizes=options.parse_sizes(size, executable.dimensions),
        tolerance=tolerance,
        propose=propose,
        progress=sys.stderr.isatty(),
    )
    print(json.dumps(result.to_dict()) if as_json else result)
    if html:
        result.to_html(html)
    if not result.ok:
        raise typer.Exit(1)


@compiles("in_place", "profile", "specialise", "gpu")
def check_command(
    model: OnnxPath,
    how: Compiling,
    against: Against = "onnxruntime",
    inputs: InputFiles = [],  # noqa: B006
    nodes: Annotated[bool, typer.Option("--nodes", help="Compare node by node, like `tw compare`.")] = False,
    as_json: options.AsJson = False,
    tolerance: Tolerance = None,
    seed: options.Seed = 0,
    size: options.Sizes = [],  # noqa: B006
) -> None:
    """Check a compiled model's outputs beside ONNX Runtime's or the oracle's; status 1 where they differ."""
    if model.suffix == ".twa":
        raise tw.Error("TW1101", f"{model} is an artifact, in which nothing is left of the model\nhelp: give the model")
    network = how.load(model)
    executable = how.compile(network)
    feed = options.read_inputs(inputs)
    if not feed:
        note("no --inputs: seeded random inputs")
    result = (tw.compare if nodes else tw.check)(
        executable,
        parse_against(against),
        feed or None,
        seed=seed,
        sizes=options.parse_sizes(size, executable.dimensions),
        tolerance=tolerance,
    )
    print(json.dumps(result.to_dict()) if as_json else result)
    if not result.ok:
        raise typer.Exit(1)
