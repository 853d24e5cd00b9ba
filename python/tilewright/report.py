"""Tables and lines that `tw` prints."""

from __future__ import annotations

import json
import platform
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import tilewright as tw

from . import _core, machine
from .executable import sizes_text
from .roofline import svg as roofline_svg

console = Console(highlight=False, soft_wrap=True)


def megabytes(count: float) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 1e4 else f"{count:.0f} bytes"


def tilewright_table(*columns: str, title: str | None = None) -> Table:
    """Columns whose name begins with ">" are aligned to the right."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", overflow="fold")
    return table


def kernel_cache() -> str:
    cache = machine.kernel_cache()
    if not cache:
        return "are not kept (TW_CACHE)"
    directory, entries, size = cache
    return f"{entries} in {directory}, {megabytes(size)}"


def doctor(measure: bool) -> None:
    this = machine.describe()
    table = tilewright_table("", "")
    table.add_row("tilewright", f"{tw.__version__}, Python {platform.python_version()}, numpy {np.__version__}")
    table.add_row("CPU", f"{this['cpu'] or this['architecture']}, {this['threads']} threads")
    caches = [f"L{level} {this[f'l{level}_bytes'] >> 10} KiB" for level in (1, 2, 3)]
    table.add_row("caches", ", ".join(caches))
    table.add_row("target cpu", f"{this['llvm_cpu']}, vectors of {this['vector_bits']} bits")
    vector_features = [
        f for f in this["features"] if re.match(r"sse4|avx|amx|fma|f16c|neon|sve|dotprod|fullfp16|bf16|i8mm", f)
    ]
    table.add_row("vector features", " ".join(vector_features) or "none")
    if measure:
        for threads in sorted({1, this["threads"]}):
            flops, read = machine.peak_flops(threads), machine.read_bandwidth(threads)
            text = f"{flops / 1e9:.1f} GFLOP/s f32 multiply-add, {read / 1e9:.1f} GB/s read"
            table.add_row(f"measured, {threads} thread{'s' * (threads > 1)}", text)
    table.add_row("targets", " ".join(machine.targets()))
    table.add_row("compiled kernels", kernel_cache())
    cuda = machine.cuda()
    table.add_row("CUDA compiler", cuda["compiler"] or cuda["compiler_problem"].splitlines()[0])
    gpus = [f"{name}, sm_{capability}, {memory >> 30} GiB" for name, capability, memory in cuda["devices"]]
    table.add_row("GPU", "; ".join(gpus) or cuda["device_problem"])
    for program, purpose in (("qemu-aarch64", "AArch64"), ("qemu-arm", "ARMv7")):
        table.add_row(f"{purpose} emulator", shutil.which(program) or f"{program} is not installed")
    console.print(table)


def compiled(executable: tw.Executable, path: Path, seconds: float) -> None:
    plan, profiles = executable.describe(), len(executable.profiles)
    more = f" and those of {profiles} profile{'s'[: profiles != 1]}" if profiles else ""
    kernels = sum(bool(step["kernel"]) for step in plan["steps"])
    console.print(
        f"{path}: {megabytes(path.stat().st_size)} for {plan['target']}, {kernels} kernels{more},"
        f" compiled in {seconds:.1f} s"
    )


def deployed(executable: tw.Executable, folder: Path) -> None:
    total = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    console.print(f"{folder}: {megabytes(total)} for {executable.target}; copy it there and run ./check.sh")


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


def outputs(values: dict[str, Any]) -> None:
    table = tilewright_table("output", "type", ">min", ">mean", ">max", "first values")
    for name, value in values.items():
        if value is None or (isinstance(value, list) and not value):
            table.add_row(name, "absent" if value is None else "an empty sequence", "", "", "", "")
    for name, array in tensors_of(values).items():
        if array.dtype.kind == "U":
            table.add_row(name, f"strings{list(array.shape)}", "", "", "", " ".join(array.ravel()[:4]))
            continue
        values = array.astype(np.float64).ravel()
        spread = [f"{f(values):.6g}" for f in (np.min, np.mean, np.max)] if values.size else ["", "", ""]
        first = " ".join(f"{v:.6g}" for v in values[:4])
        table.add_row(name, f"{array.dtype}{list(array.shape)}", *spread, first)
    console.print(table)


def benchmark(
    executable: tw.Executable, feed: dict[str, np.ndarray], measured: tw.Benchmark, as_json: bool, times: Any = None
) -> tuple[float, float]:
    """Prints latency and rate; gives the measured peak and the read bandwidth that they relate to."""
    steps = executable.describe(feed)["steps"]
    flops, threads = sum(step["flops"] * step["executions"] for step in steps), executable.threads
    peak, read = machine.peak_flops(threads), machine.read_bandwidth(threads)
    rate = flops / measured.median
    if as_json:
        row = {**measured.as_dict(), "gflop": flops / 1e9, "peak_gflops": peak / 1e9, "memory_gbs": read / 1e9}
        if times is not None:
            row["kernels"] = [
                {"name": each.name, "us": each.seconds * 1e6, "gflop": each.flops / 1e9, "bytes": each.bytes}
                for each in times.kernels
            ]
        print(json.dumps(row))
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
    try:
        path.write_text(roofline_svg(profile, peak, read, title))
    except OSError as error:
        raise tw.Error("TW1001", f"{path} cannot be written: {error.strerror}") from None


def artifact(path: Path) -> None:
    plan = _core.inspect_artifact(str(path))
    table = tilewright_table("", "")
    table.add_row("file", f"{path}, {megabytes(path.stat().st_size)}")
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
    steps = tilewright_table(">tasks", ">MFLOP", ">MB", "kernel", "computes", title="\nkernels")
    for step in plan["steps"]:
        row = (
            f"{step['tasks']}",
            f"{step['flops'] / 1e6:.2f}",
            f"{step['bytes'] / 1e6:.3f}",
            step["kernel"] or step["calls"] or "(control)",
            step["name"],
        )
        steps.add_row(*row)
    console.print(steps)
