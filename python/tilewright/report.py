"""Tables and lines that `tw` prints, or with --json one object of the same facts."""

from __future__ import annotations

import json
import platform
import re
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import tilewright as tw

from . import _core, charts, gpu_kernels, gpus_tried, machine
from .deploying import BOARDS
from .executable import sizes_text
from .html_page import write_page
from .notes import note

# What is piped has lines as long as they are.
console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 10_000)


def print_json(facts: Any) -> None:
    print(json.dumps(facts))


def megabytes(count: float) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 1e4 else f"{count:.0f} bytes"


def tilewright_table(*columns: str, title: str | None = None) -> Table:
    """Columns whose name begins with ">" are aligned to the right."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", overflow="fold")
    return table


def machine_facts(measure: bool) -> dict[str, Any]:
    cache, cuda, measured = machine.kernel_cache(), machine.cuda(), []
    this = machine.describe()
    for threads in sorted({1, this["threads"]}) if measure else []:
        flops, read = machine.peak_flops(threads), machine.read_bandwidth(threads)
        measured.append({"threads": threads, "gflops": flops / 1e9, "read_gbs": read / 1e9})
    return {
        "tilewright": tw.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": this,
        "measured": measured,
        "targets": machine.targets(),
        "kernel_cache": dict(zip(("directory", "entries", "bytes"), cache, strict=True)) if cache else None,
        "cuda": {
            **cuda,
            "devices": [dict(zip(("name", "capability", "bytes"), gpu, strict=True)) for gpu in cuda["devices"]],
        },
        "gpus_tried": [asdict(row) for row in gpus_tried.read()],
        "gpus_never_tried": gpus_tried.never_tried(machine.targets(), gpus_tried.read()),
        "emulators": {name: shutil.which(name) for name in ("qemu-aarch64", "qemu-arm")},
        "boards": [path.parent.name for path in sorted(BOARDS.glob("*/tw-run"))],
    }


def doctor(facts: dict[str, Any]) -> None:
    this, cache, cuda = facts["machine"], facts["kernel_cache"], facts["cuda"]
    table = tilewright_table("", "")
    table.add_row("tilewright", f"{facts['tilewright']}, Python {facts['python']}, numpy {facts['numpy']}")
    table.add_row("CPU", f"{this['cpu'] or this['architecture']}, {this['threads']} threads")
    caches = [f"L{level} {this[f'l{level}_bytes'] >> 10} KiB" for level in (1, 2, 3)]
    table.add_row("caches", ", ".join(caches))
    table.add_row("target cpu", f"{this['llvm_cpu']}, vectors of {this['vector_bits']} bits")
    vector_features = [
        f for f in this["features"] if re.match(r"sse4|avx|amx|fma|f16c|neon|sve|dotprod|fullfp16|bf16|i8mm", f)
    ]
    table.add_row("vector features", " ".join(vector_features) or "none")
    for row in facts["measured"]:
        text = f"{row['gflops']:.1f} GFLOP/s f32 multiply-add, {row['read_gbs']:.1f} GB/s read"
        table.add_row(f"measured, {row['threads']} thread{'s' * (row['threads'] > 1)}", text)
    table.add_row("targets", " ".join(facts["targets"]))
    kept = f"{cache['entries']} in {cache['directory']}, {megabytes(cache['bytes'])}" if cache else ""
    table.add_row("compiled kernels", kept or "are not kept (TW_CACHE)")
    table.add_row("CUDA compiler", cuda["compiler"] or cuda["compiler_problem"].splitlines()[0])
    gpus = [f"{gpu['name']}, sm_{gpu['capability']}, {gpu['bytes'] >> 30} GiB" for gpu in cuda["devices"]]
    table.add_row("GPU", "; ".join(gpus) or cuda["device_problem"])
    if cuda["driver"]:
        table.add_row("GPU driver", cuda["driver"].removeprefix("the "))
    for row in facts["gpus_tried"]:
        table.add_row("GPUs tried", str(gpus_tried.Tried(**row)))
    table.add_row("never tried", f"{' '.join(facts['gpus_never_tried'])} (tw kit makes a folder that tries one)")
    table.add_row("runtime for boards", " ".join(facts["boards"]) or "none")
    for program, path in facts["emulators"].items():
        table.add_row("emulator", path or f"{program} is not installed")
    console.print(table)


def file_facts(executable: tw.Executable, path: Path, seconds: float) -> dict[str, Any]:
    plan = executable.describe()
    return {
        "artifact": str(path),
        "bytes": path.stat().st_size,
        "target": plan["target"],
        "kernels": sum(bool(step["kernel"]) for step in plan["steps"]),
        "profiles": len(executable.profiles),
        "seconds": seconds,
    }


def compiled(facts: dict[str, Any]) -> None:
    profiles = facts["profiles"]
    more = f" and those of {profiles} profile{'s'[: profiles != 1]}" if profiles else ""
    console.print(
        f"{facts['artifact']}: {megabytes(facts['bytes'])} for {facts['target']}, {facts['kernels']} kernels{more},"
        f" compiled in {facts['seconds']:.1f} s"
    )


def folder_facts(executable: tw.Executable, folder: Path) -> dict[str, Any]:
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {
        "folder": str(folder),
        "bytes": sum(path.stat().st_size for path in files),
        "target": executable.target,
        "files": [str(path.relative_to(folder)) for path in files],
    }


def deployed(facts: dict[str, Any]) -> None:
    console.print(
        f"{facts['folder']}: {megabytes(facts['bytes'])} for {facts['target']}; copy it there and run ./check.sh"
    )


def tensors_of(outputs: dict[str, Any]) -> dict[str, np.ndarray]:
    """Arrays by name, those of a sequence `y` as y.0, y.1 …, of maps the matrix; without optional values that are
    absent."""
    tensors: dict[str, np.ndarray] = {}
    for name, value in outputs.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            tensors[name] = np.array([list(row.values()) for row in value])
        elif isinstance(value, list):
            tensors |= {f"{name}.{k}": array for k, array in enumerate(value)}
        elif value is not None:
            tensors[name] = value.astype(str) if value.dtype == object else value
    return tensors


def output_facts(values: dict[str, Any]) -> dict[str, Any]:
    """Of each array, as `tensors_of` has them."""
    facts: dict[str, Any] = {}
    for name, array in tensors_of(values).items():
        row: dict[str, Any] = {"dtype": str(array.dtype), "shape": list(array.shape)}
        if array.dtype.kind != "U":
            numbers = array.astype(np.float64).ravel()
            finite = numbers[np.isfinite(numbers)]
            row["not_finite"] = numbers.size - finite.size
            if finite.size:
                row |= {"min": finite.min(), "mean": finite.mean(), "max": finite.max()}
        facts[name] = row
    return facts


def outputs(values: dict[str, Any]) -> None:
    table = tilewright_table("output", "type", ">min", ">mean", ">max", "first values")
    for name, value in values.items():
        if value is None or (isinstance(value, list) and not value):
            table.add_row(name, "absent" if value is None else "an empty sequence", "", "", "", "")
    for name, array in tensors_of(values).items():
        if array.dtype.kind == "U":
            table.add_row(name, f"strings{list(array.shape)}", "", "", "", " ".join(array.ravel()[:4]))
            continue
        numbers = array.astype(np.float64).ravel()
        spread = [f"{f(numbers):.6g}" for f in (np.min, np.mean, np.max)] if numbers.size else ["", "", ""]
        first = " ".join(f"{v:.6g}" for v in numbers[:4])
        table.add_row(name, f"{array.dtype}{list(array.shape)}", *spread, first)
    console.print(table)


def benchmark(
    executable: tw.Executable, feed: dict[str, np.ndarray], measured: tw.Benchmark, as_json: bool, times: Any = None
) -> tuple[float, float]:
    """Prints latency and rate; gives the measured peak and the read bandwidth that they relate to."""
    steps = executable.describe(feed)["steps"]
    flops = sum(step["flops"] * step["executions"] for step in steps)
    threads = min(executable.threads, machine.describe()["threads"])  # more share the cores that there are
    peak, read = machine.peak_flops(threads), machine.read_bandwidth(threads)
    rate = flops / measured.median
    if as_json:
        row = {**measured.as_dict(), "gflop": flops / 1e9, "peak_gflops": peak / 1e9, "memory_gbs": read / 1e9}
        if times is not None:
            row["kernels"] = [
                {"name": each.name, "us": each.seconds * 1e6, "gflop": each.flops / 1e9, "bytes": each.bytes}
                for each in times.kernels
            ]
        print_json(row)
        return peak, read
    console.print(str(measured))
    console.print(
        f"{flops / 1e9:.3f} GFLOP a run, {rate / 1e9:.1f} GFLOP/s: {rate / peak:.1%} of the measured peak "
        f"({peak / 1e9:.1f} GFLOP/s; memory {read / 1e9:.1f} GB/s)"
    )
    return peak, read


def kernels(profile: tw.Profile, peak: float, read: float) -> None:
    """What each kernel runs against: the one of arithmetic and memory that would take it longer at full speed."""
    table = tilewright_table(">µs", ">share", ">rate", "", "bound", ">reached", "kernel")
    total = profile.seconds or 1.0
    ran = [kernel for kernel in profile.kernels if kernel.symbol]
    for kernel in sorted(ran, key=lambda k: -k.seconds):
        seconds = max(kernel.seconds, 1e-9)
        is_compute = kernel.flops / peak > kernel.bytes / read
        rate, unit, bound = (kernel.flops, "GFLOP/s", peak) if is_compute else (kernel.bytes, "GB/s", read)
        table.add_row(
            f"{seconds * 1e6:.1f}",
            f"{seconds / total:.1%}",
            f"{rate / seconds / 1e9:.1f}",
            unit,
            "compute" if is_compute else "memory",
            f"{rate / seconds / bound:.0%}",
            kernel.name,
        )
    console.print(table)
    console.print(
        f"{profile.seconds * 1e3:.3f} ms in {len(ran)} kernels, each timed alone; "
        "caches are faster than memory, so what fits them may reach more than 100 %"
    )


def roofline(profile: tw.Profile, peak: float, read: float, path: Path, title: str) -> None:
    """A page with the kernels between the roofs that were measured."""
    groups: dict[tuple[str, str], list[charts.Worked]] = {
        ("bound by arithmetic", "#c2410c"): [],
        ("bound by memory", "#1d4ed8"): [],
    }
    of_arithmetic, of_memory = groups.values()
    for k in profile.kernels:
        worked = charts.Worked(k.name, k.seconds, k.flops, k.bytes, k.seconds / (profile.seconds or 1.0))
        (of_arithmetic if k.flops / peak > k.bytes / read else of_memory).append(worked)
    groups = {("bound by arithmetic", "#c2410c"): of_arithmetic, ("bound by memory", "#1d4ed8"): of_memory}
    body = charts.roofline(groups, peak, read) or "<p>No kernel computes anything.</p>"
    write_page(path, charts.page_of_charts(title, body))


def artifact_facts(path: Path) -> dict[str, Any]:
    """With what the assembler made of kernels for a GPU or, where NVIDIA's programs do not tell, why not."""
    plan = _core.inspect_artifact(str(path))
    facts = {"file": str(path), "bytes": path.stat().st_size, **plan, "gpu_kernels": [], "gpu_kernels_problem": ""}
    try:
        facts["gpu_kernels"] = [kernel.to_dict() for kernel in gpu_kernels.of_plan(path, plan)]
    except tw.Error as error:
        facts["gpu_kernels_problem"] = str(error)
    return facts


def artifact(plan: dict[str, Any]) -> None:
    table = tilewright_table("", "")
    table.add_row("file", f"{plan['file']}, {megabytes(plan['bytes'])}")
    table.add_row("built for", f"{plan['target']} ({plan['architecture']})")
    table.add_row("needs", " ".join(plan["features"]) or "nothing special")
    for name, kind in plan["inputs"]:
        table.add_row("input", escape(f"{name}: {kind}"))
    for name, kind in plan["outputs"]:
        table.add_row("output", escape(f"{name}: {kind}"))
    for name, low, high in plan["dimensions"]:
        table.add_row("open", f"{name}: {low} to {high}" if high is not None else f"{name}: {low} or more")
    for sizes in plan["profiles"]:
        table.add_row("kernels for", sizes_text({name: (low, high) for name, low, high in sizes}))
    if plan["dimensions"]:
        table.add_row("", "sizes below are those of the smallest run")
    table.add_row("code", megabytes(plan["image_bytes"]))
    table.add_row("constants", f"{plan['constants']}, {megabytes(plan['constant_bytes'])}")
    table.add_row("arena", megabytes(plan["arena_bytes"]))
    for key, value in plan["metadata"].items():
        table.add_row(key, value)
    console.print(table)
    steps(plan)


def steps(plan: dict[str, Any]) -> None:
    """The kernels of a plan and, of GPUs, what its assembler made of them."""
    table = tilewright_table(">tasks", ">MFLOP", ">MB", "kernel", "computes", title="\nkernels")
    for step in plan["steps"]:
        row = (
            f"{step['tasks']}",
            f"{step['flops'] / 1e6:.2f}",
            f"{step['bytes'] / 1e6:.3f}",
            step["kernel"] or step["calls"] or "(control)",
            step["name"],
        )
        table.add_row(*row)
    console.print(table)
    on_gpu(plan["gpu_kernels"])
    if plan["gpu_kernels_problem"]:
        note(f"what GPU kernels take is not known: {plan['gpu_kernels_problem']}")


def requests(of_kernels: dict[str, dict[str, int]]) -> None:
    """How warps of a GPU reach memory; nothing is printed of other targets."""
    if not of_kernels:
        return
    table = tilewright_table(
        ">requests", ">sectors each", ">at least", ">by data", "kernel", title="\nrequests of memory by two warps"
    )
    for kernel, found in of_kernels.items():
        count = max(found["requests"], 1)
        table.add_row(
            f"{found['requests']}",
            f"{found['sectors'] / count:.2f}",
            f"{found['least_sectors'] / count:.2f}",
            f"{found['unknown']}",
            kernel,
        )
    console.print(table)


def on_gpu(kernels: list[dict[str, Any]]) -> None:
    """What the assembler made of them; nothing is printed of other targets."""
    if not kernels:
        return
    columns = (
        ">threads",
        ">registers",
        ">stack",
        ">shared",
        ">blocks/SM",
        ">occupancy",
        "by",
        ">waves",
        ">µs at least",
        "bound",
    )
    classes = ("tensor", "f32", "global load", "shared load", "local", "integer")
    table = tilewright_table(
        *columns, *(f">{name}" for name in classes), "kernel", title="\non the GPU, by its data sheet and its assembler"
    )
    for kernel in kernels:
        table.add_row(
            str(kernel["threads"]),
            str(kernel["registers"]),
            str(kernel["stack_bytes"]),
            str(kernel["shared_bytes"]),
            str(kernel["blocks_of_multiprocessor"]),
            f"{kernel['occupancy']:.0%}",
            kernel["limited_by"],
            str(kernel["waves"]),
            f"{kernel['least_seconds'] * 1e6:.1f}",
            kernel["bound"],
            *(str(kernel["instructions"].get(name, 0)) for name in classes),
            kernel["symbol"],
        )
    console.print(table)
