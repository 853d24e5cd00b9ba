"""Tilewright beside its peers on the same networks, measured in turn in one process.

    ./dev bench                     the demo's three networks
    ./dev bench MODEL.onnx …        others, with static shapes
    ./dev bench --threads 1 …

Each round runs every contender for the same time; the figure is the median of the rounds, so that a slow spell of the
machine falls on all.  "ahead" is the latency of the fastest peer over ours: above 1, Tilewright is faster.
"""

import argparse
import math
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import openvino
from rich.console import Console
from rich.table import Table

import tilewright as tw

MODELS = Path(__file__).resolve().parents[2] / ".cache/demo/models"
DEMO = {
    "ch_PP-OCRv4_det_infer.onnx": (1, 3, 320, 640),
    "ch_ppocr_mobile_v2.0_cls_infer.onnx": (1, 3, 48, 192),
    "ch_PP-OCRv4_rec_infer.onnx": (1, 3, 48, 640),
}
console = Console(highlight=False)


def inputs_of(model: onnx.ModelProto, shapes: dict) -> dict[str, np.ndarray]:
    """Seeded inputs: normal floats, small integers, all-one masks."""
    constants, rng, feed = {t.name for t in model.graph.initializer}, np.random.default_rng(0), {}
    for value in model.graph.input:
        if value.name in constants:
            continue
        kind = value.type.tensor_type
        shape = shapes.get(value.name) or [max(d.dim_value, 1) for d in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if "mask" in value.name:
            feed[value.name] = np.ones(shape, dtype)
        elif dtype.kind == "f":
            feed[value.name] = rng.standard_normal(shape).astype(dtype)
        else:
            feed[value.name] = rng.integers(0, 100, shape).astype(dtype)
    return feed


def tilewright(path, feed, threads):
    executable = tw.compile(tw.load(path, shapes={name: x.shape for name, x in feed.items()}), threads=threads)
    return lambda: list(executable.run(feed).values())


def onnx_runtime(path, feed, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feed)


def open_vino(path, feed, threads):
    model = openvino.Core().read_model(path)
    model.reshape({name: list(x.shape) for name, x in feed.items()})
    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = openvino.Core().compile_model(model, "CPU", settings).create_infer_request()
    tensors = {name: openvino.Tensor(x) for name, x in feed.items()}
    return lambda: list(request.infer(tensors).values())


CONTENDERS = {"Tilewright": tilewright, "ONNX Runtime": onnx_runtime, "OpenVINO": open_vino}


def mean_latency(run, seconds: float) -> float:
    count, start = 0, time.perf_counter()
    while count < 2 or time.perf_counter() - start < seconds:
        run()
        count += 1
    return (time.perf_counter() - start) / count


def measure(path: Path, shapes: dict, options) -> tuple[dict[str, float], float]:
    """Median milliseconds of each contender, and the largest relative difference of ours from ONNX Runtime's."""
    feed = inputs_of(onnx.load(path), shapes)
    runs = {name: start(path, feed, options.threads) for name, start in CONTENDERS.items()}
    difference = 0.0
    for ours, theirs in zip(runs["Tilewright"](), runs["ONNX Runtime"](), strict=True):
        scale = float(np.abs(theirs).max()) or 1.0
        difference = max(difference, float(np.abs(ours - theirs).max()) / scale)
    samples = {name: [] for name in runs}
    for _ in range(options.rounds):
        for name, run in runs.items():
            run()
            samples[name].append(mean_latency(run, options.seconds) * 1e3)
    return {name: statistics.median(values) for name, values in samples.items()}, difference


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
