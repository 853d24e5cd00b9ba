"""Tilewright beside its peers on the same networks, measured in turn in one process.

    ./dev bench                     the demo's three networks
    ./dev bench MODEL.onnx …        others, with static shapes
    ./dev bench --threads 1 …
    ./dev bench --kernels …         single kernels instead: see kernels.py

Each round runs every contender for the same time; the figure is the median of the rounds, so that a slow spell of the
machine falls on all.  "ahead" is the latency of the fastest peer over ours: above 1, Tilewright is faster.
"""

import argparse
import math
import os
import sys
from pathlib import Path

import onnx
from contenders import CONTENDERS, inputs_of, interleaved_medians, largest_difference
from rich.console import Console
from rich.table import Table

MODELS = Path(__file__).resolve().parents[2] / ".cache/demo/models"
DEMO = {
    "ch_PP-OCRv4_det_infer.onnx": (1, 3, 320, 640),
    "ch_ppocr_mobile_v2.0_cls_infer.onnx": (1, 3, 48, 192),
    "ch_PP-OCRv4_rec_infer.onnx": (1, 3, 48, 640),
}
console = Console(highlight=False)


def measure(path: Path, shapes: dict, options) -> tuple[dict[str, float], float]:
    """Median milliseconds of each contender, and the largest relative difference of ours from ONNX Runtime's."""
    feed = inputs_of(onnx.load(path), shapes)
    contenders = {name: start(path, feed, options.threads) for name, start in CONTENDERS.items()}
    seconds, _ = interleaved_medians({n: c.run for n, c in contenders.items()}, options.rounds, options.seconds)
    difference = largest_difference(contenders["Tilewright"].outputs(), contenders["ONNX Runtime"].outputs())
    return {name: value * 1e3 for name, value in seconds.items()}, difference


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.3, help="of each contender in a round")
    options = parser.parse_args()
    work = [(path, {}) for path in options.models] or [(MODELS / name, {"x": shape}) for name, shape in DEMO.items()]

    table = Table(title=f"milliseconds, {options.threads} threads, f32", title_justify="left")
    table.add_column("network")
    for name in (*CONTENDERS, "ahead", "difference"):
        table.add_column(name, justify="right")
    ratios, worst = [], 0.0
    for path, shapes in work:
        with console.status(f"Measuring {path.name}"):
            latencies, difference = measure(path, shapes, options)
        ratio = min(ms for name, ms in latencies.items() if name != "Tilewright") / latencies["Tilewright"]
        ratios.append(ratio)
        worst = max(worst, difference)
        cells = [f"{latencies[name]:.3f}" for name in CONTENDERS]
        table.add_row(path.stem, *cells, f"{ratio:.2f}×", f"{difference:.1e}")
    console.print(table)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    console.print(f"ahead of the fastest peer: {mean:.3f}× over {len(ratios)} networks (geometric mean)")
    return 0 if worst <= 1e-3 else 1


if __name__ == "__main__":
    sys.exit(main())
