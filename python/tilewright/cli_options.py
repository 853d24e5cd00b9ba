"""Options that commands of `tw` share, and what their texts mean."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

import tilewright as tw

if TYPE_CHECKING:
    import numpy as np

    from .dimension import Sizes as DimensionSizes

ModelPath = Annotated[Path, typer.Argument(help="An ONNX model, or a .twa artifact.")]
ModelFile = Annotated[Path, typer.Argument(help="An ONNX model.")]
Shapes = Annotated[
    list[str],
    typer.Option(
        "--shape",
        "-s",
        help="The shape of an input: NAME=1,3,224,224 is fixed; NAME=batch:1..64,3,224,224 leaves a dimension open.",
    ),
]
Sizes = Annotated[
    list[str],
    typer.Option("--size", help="NAME=8: the size of an open dimension, for made-up inputs. Default: the smallest."),
]
Target = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        help="What to compile for: cpu (this machine), x86:avx2, aarch64, rpi4, cuda:sm_90, … `tw doctor` lists them.",
    ),
]
Gpu = Annotated[
    int | None, typer.Option("--gpu", min=0, help="The GPU to run on, by its number, of what is compiled for CUDA.")
]
Threads = Annotated[
    int | None, typer.Option("--threads", "-j", help="How many threads a run uses. Default: one for each core.")
]
Precision = Annotated[
    str,
    typer.Option(help="The precision of convolutions and matrix products: f32, tf32 (on GPUs), bf16 or f16."),
]
Winograd = Annotated[
    bool,
    typer.Option(help="Use Winograd's algorithm for convolutions of 3×3, or 3. It is faster and rounds a little more."),
]
Strassen = Annotated[
    bool, typer.Option(help="Use Strassen's algorithm for large products. It is faster and rounds a little more.")
]
InPlace = Annotated[
    list[str], typer.Option("--in-place", help="OUTPUT=INPUT: use one array for both. A run changes elements of it.")
]
Profiles = Annotated[
    list[str],
    typer.Option(
        "--profile",
        help="Make extra kernels for these sizes of open dimensions: batch=1,seq=128 or batch=1,seq=1..32..64.",
    ),
]
Specialise = Annotated[
    bool, typer.Option("--specialise", help="Compile for exactly the sizes of a run before that run.")
]
Records = Annotated[
    Path | None, typer.Option("--db", help="Use tuned schedules from this database, which `tw tune` made.")
]
Fallback = Annotated[
    str | None,
    typer.Option(
        help="onnxruntime: let ONNX Runtime compute the nodes that are not supported. They are listed on stderr."
    ),
]
OperatorFile = Annotated[
    Path | None,
    typer.Option("--operators", help="A Python file with your own operators: a list `operators` of tw.Operator."),
]
Constants = Annotated[
    list[str],
    typer.Option("--set", help="Make an input a constant: NAME=16000, NAME=[1,2] or NAME=file.npy."),
]
Inputs = Annotated[
    list[str], typer.Option("--input", "-i", help="The inputs: NAME=file.npy or file.npz. Default: random ones.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
Seed = Annotated[
    int, typer.Option(help="The seed of made-up inputs and, in `tw run`, of the random numbers that the model draws.")
]


def parse_dimension(text: str, option: str) -> int | tw.Dim | None:
    """8, batch, batch:1..64, batch:1.., or ? for what the model says."""
    if text.isdecimal():
        return int(text)
    if text == "?":
        return None
    match = re.fullmatch(r"([A-Za-z_]\w*)(?::(\d+)\.\.(\d*))?", text)
    if not match:
        raise tw.Error(
            "TW1004",
            f"--shape {option} does not say a shape: {text!r} is no dimension\n"
            "help: write --shape NAME=1,3,224,224 or --shape NAME=batch:1..64,3,224,224",
        )
    name, low, high = match.groups()
    return tw.Dim(name, int(low or 1), int(high) if high else None)


def parse_shapes(options: list[str]) -> dict[str, tuple[int | tw.Dim | None, ...]]:
    shapes = {}
    for option in options:
        name, equals, extents = option.partition("=") if ":" in option.partition("=")[2] else option.rpartition("=")
        if not equals:
            raise tw.Error("TW1004", f"--shape {option} does not say a shape\nhelp: write --shape NAME=1,3,224,224")
        is_fixed = re.fullmatch(r"\d+([,x]\d+)*|", extents)
        parts = re.split("[,x]" if is_fixed else ",", extents) if extents else []
        shapes[name] = tuple(parse_dimension(part, option) for part in parts)
    return shapes


def parse_sizes(options: list[str], dimensions: dict[str, tuple[int, int | None]]) -> dict[str, int]:
    """A size for each open dimension."""
    from .made_up import smallest_sizes

    sizes = smallest_sizes(dimensions)
    for option in options:
        name, _, size = option.rpartition("=")
        if name not in sizes or not size.isdecimal():
            known = ", ".join(sizes) or "none"
            raise tw.Error("TW1101", f"--size {option}\nhelp: write --size NAME=8; the open dimensions are: {known}")
        sizes[name] = int(size)
    return sizes


def parse_constants(options: list[str]) -> dict[str, np.ndarray]:
    import numpy as np

    constants = {}
    for option in options:
        name, equals, text = option.partition("=")
        try:
            if not equals or not name:
                raise ValueError("there is no name")
            value = np.load(text, allow_pickle=False) if text.endswith(".npy") else np.asarray(json.loads(text))
        except (ValueError, OSError) as error:
            raise tw.Error(
                "TW1004",
                f"--set {option}: {error}\nhelp: write --set NAME=16000, NAME=true, NAME=[1,2] or NAME=file.npy",
            ) from None
        constants[name] = value
    return constants


def parse_in_place(options: list[str]) -> dict[str, str]:
    pairs = dict(option.partition("=")[::2] for option in options)
    if wrong := [option for option in options if "=" not in option]:
        raise tw.Error("TW1101", f"--in-place {wrong[0]} names no pair\nhelp: write --in-place OUTPUT=INPUT")
    return pairs


def parse_profiles(options: list[str]) -> list[dict[str, DimensionSizes]]:
    """Sizes by name: 8, min..max, or min..opt..max."""
    profiles = []
    for option in options:
        if not re.fullmatch(r"[A-Za-z_]\w*=\d+(\.\.\d+){0,2}(,[A-Za-z_]\w*=\d+(\.\.\d+){0,2})*", option):
            raise tw.Error(
                "TW1004",
                f"--profile {option} does not say sizes of dimensions\n"
                "help: write --profile batch=1,seq=128 or --profile batch=1,seq=1..32..64",
            )
        pairs = [part.split("=") for part in option.split(",")]
        profiles.append(
            {name: cast("DimensionSizes", tuple(int(n) for n in sizes.split(".."))) for name, sizes in pairs}
        )
    return profiles


def read_inputs(options: list[str]) -> dict[str, np.ndarray]:
    """NAME=file.npy options, and .npz files whose entries are named."""
    import numpy as np

    feed = {}
    for option in options:
        name, _, file = option.rpartition("=")
        try:
            loaded = np.load(file, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise tw.Error("TW1001", f"{file} cannot be read as a NumPy file: {error}") from None
        if isinstance(loaded, np.ndarray) and name:
            feed[name] = loaded
        elif not isinstance(loaded, np.ndarray) and not name:
            feed.update(loaded)
        else:
            raise tw.Error("TW1101", f"--input {option}\nhelp: write --input NAME=file.npy or --input file.npz")
    return feed
