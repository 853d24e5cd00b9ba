"""Kits: folders with compiled cases that a machine with a GPU runs, and tells what they gave there.

The machine needs NVIDIA's driver and Python 3.9; nothing is compiled or installed on it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from . import _core, gpu_kernels, kit_kernels, kit_operations, kit_suite, machine
from .deploying import expected_outputs, runtime_of
from .differences import TOLERANCES
from .error import Error
from .executable import Executable
from .kit_case import Case, Work, shares
from .made_up import made_up_inputs, smallest_sizes
from .options import checked_path

RUNNER = Path(__file__).parent / "kit_runner"
MOST_BYTES = 60_000_000  # of a kit's cases

COMMAND = '''#!/usr/bin/env python3
"""Runs this kit: python3 kit.py --help"""

import sys
from pathlib import Path

from kit_runner.running import main

sys.exit(main(Path(__file__).resolve().parent))
'''

README = """# A kit of Tilewright's for NVIDIA GPUs

This folder has {count} small programs that Tilewright {version} compiled for {target}, what each has to compute, and a
runner. It asks of the machine: Linux on x86-64, a GPU of {capability}, NVIDIA's driver ({driver} or newer), and
Python 3.9 or newer. Nothing is installed, and nothing leaves the machine. Run

    python3 kit.py

here. It takes some minutes, shows what differs and how fast kernels are, and writes the folder `results/`. **Send that
folder back**: `results.json` says of each case whether it passed, and how far off or how fast it was; `outputs/` has
what differed, `worker.log` what the driver printed.

| | |
|---|---|
| `python3 kit.py --device 1` | another GPU, as `nvidia-smi` numbers them |
| `python3 kit.py -o FOLDER` | another folder for the results |
| `python3 kit.py --only 'time-*'` | some cases, by their names: the folders in `cases/` |
| `python3 kit.py --seconds 300` | end after about so many seconds, with the results that there are by then |

A case that crashes or hangs is ended, told as such, and does not stop the others. The exit status is 0 where all cases
passed, and 1 where not. While kernels are timed, nothing else should use the GPU.

| cases | what they are |
|---|---|
{kinds}

The artifacts are code: run those of kits that you trust.
"""

KINDS = {
    "operation": "one operation on numbers each, on special and random values, as its interpreter has it",
    "kernel": "sums, products, convolutions and more at sizes that do not divide, as the interpreter has it",
    "time": "kernels at sizes that fill a GPU, which are measured only",
    "network": "whole networks, as a CPU computes them, and measured",
    "suite": "cases of ONNX's own tests of operators",
}


def make_kit(
    folder: str | os.PathLike[str],
    target: str = "cuda:sm_90",
    executables: Mapping[str, Executable] | None = None,
    suite: int | None = None,
    only: Sequence[str] = ("*",),
    most_bytes: int = MOST_BYTES,
    on_case: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Makes a folder that tries a GPU of the target where there is no compiler, and measures it; gives its manifest.

    `executables`: networks by name that were compiled for the target; what they give for made-up inputs is compared
    with what a CPU computes while their models are loaded.  `suite`: every so many-th case of ONNX's tests of operators
    (1: all).  `only`: names of cases, with * and ?, as the manifest has them.  `most_bytes`: cases for which there is
    no room are left out; the manifest says of these, and of what the compiler refuses, why.  Of kernels that are timed
    it has the least time by the data sheet, as far as NVIDIA's programs are there that read them.  `on_case` is called
    with the name of each case.

    It takes the package onnx.  A kit that is there is replaced.  Error(TW1301) where the target is no GPU's, TW1001
    where nothing can be written.
    """
    if _core.kernel_fit(target, 1, 1, 0) is None:
        raise Error("TW1301", f"{target} is no GPU\nhelp: a kit is for a target such as cuda:sm_90")
    place = Path(checked_path(folder, "folder"))
    works = [*kit_operations.works(target), *kit_kernels.works(target), *network_works(target, executables or {})]
    if suite is not None:
        works += kit_suite.works(target, suite)
    works = [work for work in works if any(fnmatchcase(work[0], pattern) for pattern in only)]
    try:
        shutil.rmtree(place / "cases", ignore_errors=True)
        (place / "cases").mkdir(parents=True)
        manifest = {**facts_of(target), **write_cases(works, place / "cases", most_bytes, on_case)}
        write_runner(place, manifest)
    except OSError as error:
        raise Error("TW1001", f"{error.filename or place} cannot be written: {error.strerror}") from None
    return manifest


def facts_of(target: str) -> dict[str, Any]:
    from . import __version__

    return {"tilewright": __version__, "target": target, "compiler": machine.cuda()["compiler"]}


def network_works(target: str, executables: Mapping[str, Executable]) -> list[Work]:
    for name, executable in executables.items():
        if executable.target != target:
            raise Error("TW1202", f"{name} is compiled for {executable.target}\nhelp: the kit is for {target}")
    return [(f"network-{name}", partial(network_case, f"network-{name}", each)) for name, each in executables.items()]


def network_case(name: str, executable: Executable) -> Case:
    inputs = made_up_inputs(executable.input_tensors, 0, smallest_sizes(executable.dimensions))
    expected = list(expected_outputs(executable, inputs).values())
    if not expected:
        raise Error("TW1101", f"the model of {name} is gone, or was never there\nhelp: keep what tw.load gave")
    share = TOLERANCES[executable._compilation.precision]
    return Case(name, "network", executable, list(inputs.values()), expected, shares(share, expected), is_timed=True)


def write_cases(
    works: list[Work], folder: Path, most_bytes: int, on_case: Callable[[str], None] | None
) -> dict[str, Any]:
    """Rows of the manifest: the cases that were made, and what was left out and why."""
    cases: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    unpredicted: dict[str, str] = {}
    used = 0

    def made(work: Work) -> tuple[Case, dict[str, Any]] | Error:
        try:
            case = work[1]()
        except Error as error:
            return error
        try:
            return case, {"least_seconds": least_seconds(case.executable)} if case.is_timed else {}
        except Error as error:
            unpredicted[work[0]] = str(error).splitlines()[0]
            return case, {}

    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for (name, _), result in zip(works, pool.map(made, works), strict=True):
            if on_case:
                on_case(name)
            if isinstance(result, Error):
                left_out[name] = str(result).splitlines()[0]
                continue
            case, predicted = result
            size = case.write(folder / name)
            if used + size > most_bytes:
                shutil.rmtree(folder / name)
                left_out[name] = "there is no room"
                continue
            used += size
            cases.append({"name": name, "kind": case.kind, **case.facts, **predicted})
    return {"cases": cases, "left_out": left_out, "unpredicted": unpredicted}


def least_seconds(executable: Executable) -> dict[str, float]:
    """By kernel, the least time of one launch by the data sheet of the target's GPU."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.twa")
        executable.save(path)
        return {kernel.symbol: kernel.least_seconds / len(kernel.names) for kernel in gpu_kernels.of_artifact(path)}


def write_runner(place: Path, manifest: dict[str, Any]) -> None:
    shutil.copytree(RUNNER, place / "kit_runner", dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(runtime_of("x86_64") / "libtilewright_runtime.so", place)
    (place / "kit.py").write_text(COMMAND)
    (place / "manifest.json").write_text(json.dumps(manifest, indent=1))
    counts = Counter(case["kind"] for case in manifest["cases"])
    capability, _, ptx = manifest["target"].partition("sm_")[2].partition("+")
    (place / "README.md").write_text(
        README.format(
            count=len(manifest["cases"]),
            version=manifest["tilewright"],
            target=manifest["target"],
            capability=f"compute capability {capability[:-1]}.{capability[-1]}" + " or newer" * bool(ptx),
            driver=DRIVERS.get(str(manifest["compiler"]).partition(".")[0], "one for CUDA's same version"),
            kinds="\n".join(f"| {count} of `{kind}` | {KINDS[kind]} |" for kind, count in counts.items()),
        )
    )


# The first driver that takes what a CUDA compiler of this version makes.
DRIVERS = {"12": "525", "13": "580"}
