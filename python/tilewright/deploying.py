"""Folders that run where they are copied to: an artifact with a runner, libraries, an example and a check of itself."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .differences import TOLERANCES
from .error import Error
from .executable import Executable
from .made_up import made_up_inputs, smallest_sizes
from .options import checked_path

# What an installed package has for boards: ARCHITECTURE/, and common/ with what is the same for all.
BOARDS = Path(__file__).parent / "boards"

PLACES = {
    "tilewright.h": "include",
    "tilewright.pc": "lib/pkgconfig",
    "tilewright-config.cmake": "lib/cmake/tilewright",
    "run_artifact.c": "example",
    "Makefile": "example",
}

CHECK = """#!/bin/sh
# Runs the model on inputs/ and compares with expected/; options of tw-run may follow.  Status 0: it is as expected.
cd "$(dirname "$0")" || exit 2
exec ./tw-run model.twa {options} "$@"
"""

README = """# {name}

A network that Tilewright {version} compiled for {target} ({architecture}).  The folder is complete: copy it to the
machine, and run

    ./check.sh

{what_check_does}  `./check.sh --repeat 100` measures the latency, `--threads 1` uses one core.

| | |
|---|---|
| `model.twa` | code, plan and weights |
| `tw-run` | runs it on `.npy` files; one static program, `./tw-run --help` |
| `inputs/`{expected} | what `check.sh` takes |
| `include/`, `lib/` | the C interface, shared and static, with files for pkg-config and CMake |
| `example/` | a program in C: `make` there, then `./run_artifact ../model.twa` |

The machine has to be {architecture} with Linux{features}.  The shared library needs glibc 2.35 or newer, `tw-run`
nothing.  Artifacts are code: load those that you trust.

## Inputs and outputs

{tensors}
{dimensions}
"""


def get_include() -> str:
    """The folder of tilewright.h: for functions in C that a model calls, and for programs that run artifacts."""
    return str(BOARDS / "common")


def runtime_of(architecture: str) -> Path:
    """The folder with tw-run and the libraries for this architecture."""
    folder = BOARDS / architecture
    if not (folder / "tw-run").exists():
        known = ", ".join(sorted(path.parent.name for path in BOARDS.glob("*/tw-run"))) or "none"
        raise Error("TW1202", f"there is no runtime for {architecture} in this package\nhelp: it has {known}")
    return folder


def file_name(tensor: str) -> str:
    """As tw-run names the files of outputs."""
    return "".join("_" if character in "/:" else character for character in tensor) + ".npy"


def deploy(
    executable: Executable,
    folder: str | os.PathLike[str],
    inputs: Mapping[str, Any] | None = None,
    expected: Mapping[str, Any] | None = None,
    tolerance: float | None = None,
    name: str | None = None,
) -> Path:
    """Makes a folder with all that runs an executable on the machine that it was compiled for; gives its path.

    `inputs`: of the run that check.sh makes there; seeded ones, at the smallest sizes, if None.  `expected`: outputs
    to compare with there.  If None, the model that the executable was compiled from computes them here, in f32, while
    it is loaded; without it there is nothing to compare with.  `tolerance`: how far numbers may be off, as a share of
    an output's largest; by the precision if None, 1e-4 in f32.  `name`: for its README.

    A folder of that name is written into; Error(TW1001) where that cannot be, TW1202 where the package has no runtime
    for the target, TW1102 where the model calls functions that tw-run cannot have.
    """
    plan = executable.describe()
    runtime = runtime_of(plan["architecture"])
    if calls := sorted({function for function, _, _ in executable._core.host_calls}):
        raise Error(
            "TW1102",
            f"the model calls {', '.join(calls)}, which tw-run cannot: it is one static program\n"
            f"help: save the artifact, and write a program with the library of {runtime}",
        )
    target, inputs = Path(checked_path(folder, "folder")), dict(inputs or {})
    if not inputs:
        inputs = made_up_inputs(executable.input_tensors, 0, smallest_sizes(executable.dimensions))
    arrays = map(np.asarray, executable._ordered(inputs))  # of a GPU copied to the host
    given = dict(zip(executable.input_tensors, arrays, strict=True))
    outputs = expected_outputs(executable, given) if expected is None else as_tensors(executable, expected)
    if tolerance is None:
        tolerance = TOLERANCES[executable._compilation.precision if executable._made_from else "f32"]
    try:
        write(target, executable, runtime, given, outputs, tolerance)
        (target / "README.md").write_text(readme(executable, name or target.name, plan, bool(outputs)))
    except OSError as error:
        raise Error("TW1001", f"{error.filename or target} cannot be written: {error.strerror}") from None
    return target


def expected_outputs(executable: Executable, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the model computes here, in f32, by the names of its tensors; nothing where the model is gone."""
    if executable._made_from is None or (model := executable._made_from[0]()) is None:
        return {}
    as_here = replace(executable._compilation, target="cpu", precision="f32", database="", template=None)
    core, _ = as_here.run(model._core)
    arrays = [array.copy() for array in inputs.values()]  # a run may change some
    return dict(zip(executable._output_names, core.run(arrays), strict=True))


def as_tensors(executable: Executable, outputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    tensors = {name: np.asarray(value) for name, value in executable._values.tensors(dict(outputs), "expected").items()}
    if missing := [name for name in executable._output_names if name not in tensors]:
        raise Error("TW1101", f"expected has no {', '.join(missing)}\nhelp: one array for each output")
    return tensors


def write(
    target: Path,
    executable: Executable,
    runtime: Path,
    inputs: dict[str, np.ndarray],
    expected: dict[str, np.ndarray],
    tolerance: float,
) -> None:
    for old in ("inputs", "expected"):  # of a model that was here before
        shutil.rmtree(target / old, ignore_errors=True)
    for place in {"inputs", *PLACES.values()} | ({"expected"} if expected else set()):
        (target / place).mkdir(parents=True, exist_ok=True)
    executable.save(target / "model.twa")
    shutil.copy(runtime / "tw-run", target / "tw-run")
    for library in runtime.glob("libtilewright_runtime.*"):
        shutil.copy(library, target / "lib")
    for file, place in PLACES.items():
        shutil.copy(BOARDS / "common" / file, target / place)
    options = []
    for name, array in inputs.items():
        np.save(target / "inputs" / file_name(name), array)
        options.append(f"--input {shlex.quote(f'{name}=inputs/{file_name(name)}')}")
    for name, array in expected.items():
        np.save(target / "expected" / file_name(name), array)
    if expected:
        options.append(f"--expect expected --tolerance {tolerance:g}")
    check = target / "check.sh"
    check.write_text(CHECK.format(options=" ".join(options)))
    check.chmod(0o755)


def readme(executable: Executable, name: str, plan: dict[str, Any], has_expected: bool) -> str:
    from . import __version__

    tensors = [f"- input `{tensor}`: `{kind}`" for tensor, kind in executable.input_tensors.items()]
    tensors += [f"- output `{tensor}`: `{kind}`" for tensor, kind in executable._outputs]
    bounds = [
        f"`{dimension}` is any size from {low}" + (f" to {high}" if high is not None else "")
        for dimension, (low, high) in executable.dimensions.items()
    ]
    compares = "It runs the network on `inputs/` and compares with `expected/`, computed where it was compiled."
    return README.format(
        name=name,
        version=__version__,
        target=plan["target"],
        architecture=plan["architecture"],
        what_check_does=compares if has_expected else "It runs the network on `inputs/`.",
        expected=", `expected/`" if has_expected else "",
        features=f" and {', '.join(plan['features'])}" if plan["features"] else "",
        tensors="\n".join(tensors),
        dimensions="\n" + "; ".join(bounds) + "." if bounds else "",
    )
