"""The tile model beside measurement: predicted and measured cycles of products and convolutions on one thread.

    ./dev bench --predictions [--filter resnet50.*1x1] [--tiles 6]

A row is a kernel with its default register tile, `predict` being what analysis expected
(targets/cpu/contraction/tile_model.h).
With --tiles, that many other tiles are measured, too, from the best predicted to the worst, and "ranks" is the rank
correlation of prediction and measurement: what a search by the model alone would rely on.  Cycles are those of the
core's clock while it multiplies, which follows from the measured peak.
"""

import argparse
import re
import time

import numpy as np
from kernel_cases import all_cases
from rich.console import Console
from rich.table import Table

import tilewright as tw
from tilewright import _core, machine
from tilewright.made_up import made_up_inputs
from tilewright.tuning_charts import spearman


def clock() -> float:
    """Cycles a second."""
    facts = machine.describe()
    return machine.peak_flops(1, 0.5) / (2 * facts["vector_bits"] / 32 * facts["fma_ports"])


def best_seconds(executable, seconds: float) -> float:
    """Of the kernel that takes longest, without conversions of layouts; neighbours can only slow it down."""
    feed = made_up_inputs(executable.inputs, 0)
    end, best = time.perf_counter() + seconds, float("inf")
    while time.perf_counter() < end:
        best = min(best, max(kernel.seconds for kernel in executable.profile(feed, 3).kernels))
    return best


def product_of(model) -> list[dict] | None:
    """What the only kernel with a register tile leaves to decide."""
    pieces = _core.decisions(tw.load(model)._core, "cpu", 1, "f32", "winograd=0 strassen=0")
    tiled = [asked for _, _, _, asked in pieces if any(a["name"] == "tile" for a in asked)]
    return tiled[0] if len(tiled) == 1 else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--filter", default=r"matmul/|conv.*/resnet50")
    parser.add_argument("--tiles", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.2, help="of measuring each")
    options = parser.parse_args()
    frequency = clock()
    table = Table("kernel", "tile", "predicted", "measured", "error", "ranks", box=None)
    errors = []
    for case in all_cases():
        if case.bound != "compute" or not re.search(options.filter, case.name):
            continue
        asked = product_of(case.model())
        if asked is None:
            continue
        tile = next(a for a in asked if a["name"] == "tile")
        chosen = tile["chosen"]
        model = tw.load(case.model())
        executable = tw.compile(model, threads=1, winograd=False, strassen=False)
        measured = best_seconds(executable, options.seconds) * frequency
        error = tile["costs"][chosen] / measured - 1
        errors.append(error)
        ranks = ""
        if options.tiles:
            ranks = f"{rank_correlation(model, tile, options):.2f}"
        rows, vectors = tile["candidates"][chosen]
        table.add_row(
            case.name,
            f"{rows}x{vectors}",
            f"{tile['costs'][chosen] / 1e3:.0f} kcycles",
            f"{measured / 1e3:.0f}",
            f"{error:+.0%}",
            ranks,
        )
    console = Console(soft_wrap=True, highlight=False)
    console.print(table)
    console.print(
        f"{len(errors)} kernels at {frequency / 1e9:.2f} GHz: median error {np.median(errors):+.0%}, "
        f"median of its magnitude {np.median(np.abs(errors)):.0%}"
    )


def rank_correlation(model, tile: dict, options) -> float:
    order = np.argsort(tile["costs"])
    picked = sorted({int(i) for i in np.linspace(0, len(order) - 1, options.tiles)})
    pairs = []
    for i in picked:
        at = int(order[i])
        executable = tw.Executable(*_core.compile_decided(model._core, "cpu", 1, {"tile": tile["candidates"][at]}))
        pairs.append((tile["costs"][at], best_seconds(executable, options.seconds)))
    return spearman(pairs)


if __name__ == "__main__":
    main()
