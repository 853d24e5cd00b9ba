"""Single kernels beside ONNX Runtime and OpenVINO: models of one operator, measured in turn in one process.

    ./dev bench --kernels                          all of them
    ./dev bench --kernels --filter resnet50.*3x3   those whose name matches
    ./dev bench --kernels --csv new.csv --compare old.csv

Rates count a multiply-add as two operations, and each input, constant and output once.  "of bound" is Tilewright's
share of what this machine was measured to do on as many threads in the same rounds: multiply-adds for kernels that
compute, reading or copying memory for the others (small arrays stay in caches and go beyond 100 %).  "ahead" is the
time of the fastest peer over ours: above 1, Tilewright is faster.  Time is that of a whole call, with what a contender
does to the layout of its input and output; overhead/relu is an empty call.

A change in "ahead" from the file given by --compare is a regression when it is lower by more than --tolerance; then,
and when outputs differ from ONNX Runtime's, the status is 1.
"""

import argparse
import csv
import math
import os
import re
import sys
from pathlib import Path

import onnx
from contenders import CONTENDERS, inputs_of, interleaved_medians, largest_difference
from kernel_cases import Case, all_cases
from rich.console import Console
from rich.table import Table

from tilewright import machine

console = Console(highlight=False, soft_wrap=True)
PEERS = [name for name in CONTENDERS if name != "Tilewright"]


# Operations or bytes a second that so many threads can do, measured for some seconds.
BOUNDS = {
    "compute": machine.peak_flops,
    "read": machine.read_bandwidth,
    "copy": machine.copy_bandwidth,
}


def measure(case: Case, options) -> dict:
    """A row of the table, whose keys are the columns of the file."""
    model = case.model()
    feed, serialized = inputs_of(model, case.open_shapes), model.SerializeToString()
    onnx.checker.check_model(model, full_check=case.bytes < 1e8)
    is_open = bool(case.open_shapes)
    contenders = {name: start(serialized, feed, options.threads, is_open) for name, start in CONTENDERS.items()}
    seconds, bound = interleaved_medians(
        {name: contender.run for name, contender in contenders.items()},
        options.rounds,
        options.seconds,
        lambda seconds: BOUNDS[case.bound](options.threads, seconds),
    )
    outputs = {name: contender.outputs() for name, contender in contenders.items()}
    work = case.flops if case.bound == "compute" else case.bytes
    return {
        "kernel": case.name,
        "bound": case.bound,
        "flops": int(case.flops),
        "bytes": int(case.bytes),
        "threads": options.threads,
        **{f"{name} µs": round(seconds[name] * 1e6, 3) for name in CONTENDERS},
        **{f"{name} G/s": round(work / seconds[name] / 1e9, 2) for name in CONTENDERS},
        "of bound": round(work / seconds["Tilewright"] / bound, 4),
        "ahead": round(min(seconds[name] for name in PEERS) / seconds["Tilewright"], 4),
        "difference": largest_difference(outputs["Tilewright"], outputs["ONNX Runtime"]),
    }


def header(width: int) -> str:
    names = "".join(f"{name:>14}" for name in CONTENDERS)
    return f"{'kernel':{width}}{'our µs':>12}{names}  {'':7}{'of bound':>9}{'ahead':>8}"


def line(row: dict, width: int) -> str:
    rates = "".join(f"{row[f'{name} G/s']:14.1f}" for name in CONTENDERS)
    unit = "GFLOP/s" if row["bound"] == "compute" else "GB/s"
    shares = f"{row['of bound']:9.0%}{row['ahead']:7.2f}×"
    return f"{row['kernel']:{width}}{row['Tilewright µs']:12.1f}{rates}  {unit:7}{shares}"


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def compare(rows: list[dict], path: Path, tolerance: float) -> int:
    """Shows how "ahead" changed since `path` was written; the number of regressions."""
    with path.open(newline="") as file:
        before = {row["kernel"]: float(row["ahead"]) for row in csv.DictReader(file)}
    changes = [(row["ahead"] / before[row["kernel"]], row) for row in rows if before.get(row["kernel"])]
    if not changes:
        console.print(f"{path} has none of these kernels")
        return 0
    table = Table(title=f"changed by more than {tolerance:.0%} since {path}", title_justify="left", box=None)
    for column in ("kernel", "before", "now", "change"):
        table.add_column(column, justify="left" if column == "kernel" else "right")
    regressions = 0
    for change, row in sorted(changes, key=lambda pair: pair[0]):
        if 1 - tolerance <= change <= 1 + tolerance:
            continue
        regressions += change < 1
        style = "red" if change < 1 else "green"
        table.add_row(
            row["kernel"], f"{before[row['kernel']]:.2f}×", f"{row['ahead']:.2f}×", f"{change:.2f}", style=style
        )
    console.print(table)
    mean = geometric_mean([change for change, _ in changes])
    console.print(f"{regressions} regressions; {mean:.3f} over {len(changes)} kernels (geometric mean of the changes)")
    return regressions


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--filter", type=re.compile, default=re.compile(""), help="a regular expression")
    parser.add_argument("--list", action="store_true", help="only the names")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.03, help="of each contender in a round")
    parser.add_argument("--csv", type=Path, help="where to write the rows")
    parser.add_argument("--compare", type=Path, help="rows that were written before")
    parser.add_argument("--tolerance", type=float, default=0.1, help="of a change (0.1)")
    options = parser.parse_args()
    cases = [case for case in all_cases() if options.filter.search(case.name)]
    if options.list or not cases:
        console.print("\n".join(case.name for case in cases) or "no kernel matches")
        return 0 if cases else 2

    rows, width = [], max(len(case.name) for case in cases)
    bounds = {name: rate(options.threads) / 1e9 for name, rate in BOUNDS.items()}
    console.print(
        f"{machine.describe()['cpu']}, {options.threads} threads, f32: {bounds['compute']:.0f} GFLOP/s, "
        f"{bounds['read']:.1f} GB/s read, {bounds['copy']:.1f} GB/s copied"
    )
    console.print(header(width))
    for case in cases:
        with console.status(f"Measuring {case.name}"):
            rows.append(measure(case, options))
        console.print(line(rows[-1], width))
        if options.csv:  # after each kernel, so that an interrupted run leaves what it measured
            with options.csv.open("w", newline="") as file:
                writer = csv.DictWriter(file, rows[0].keys())
                writer.writeheader()
                writer.writerows(rows)
    mean = geometric_mean([row["ahead"] for row in rows])
    console.print(f"ahead of the fastest peer: {mean:.3f}× over {len(rows)} kernels (geometric mean)")
    wrong = [row for row in rows if not row["difference"] <= 1e-3]
    for row in wrong:
        console.print(f"{row['kernel']}: outputs differ from ONNX Runtime's by {row['difference']:.1e}", style="red")
    regressions = compare(rows, options.compare, options.tolerance) if options.compare else 0
    return 1 if wrong or regressions else 0


if __name__ == "__main__":
    sys.exit(main())
