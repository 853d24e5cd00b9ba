"""Random graphs, of extents up to 70 in every position, against ONNX Runtime.

    ./dev test --campaign random_graphs [--count 5000] [--target TARGET] [--open] [--seed 1] [--jobs 2]

A graph is an operator with random parameters and up to four more that take what it gives:
tests/python/random_graphs.py.  For other machines than this one (--target armv7, --target cuda:sm_90) it runs in the
emulator.  Memory holds NaN before.  Of four for a GPU, one has products of bf16 and one of f16; what these may differ
by, ONNX Runtime says of rounded inputs and weights.
With --open, graphs have open dimensions and are compiled once for several sizes, on this machine or for a GPU:
tests/python/open_graphs.py.
Each that differs, does not compile or ends the process is printed with its seed; `--seed SEED --count 1 --keep FOLDER`
leaves that model there.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

import onnx  # noqa: E402

import open_graphs  # noqa: E402
from random_graphs import cuda_differences, differences, graph, wide  # noqa: E402

EMULATED_GPU = Path(__file__).resolve().parents[2] / "build/tests/cuda_emulator"
EMULATED = os.environ | dict.fromkeys(("CUDA_HOME", "LD_LIBRARY_PATH"), str(EMULATED_GPU))


def share(seeds: range, target: str) -> tuple[int, list[tuple[str, str]]]:
    """How many of the graphs were compared, and what was wrong."""
    return differences([(f"seed-{seed}", *graph(wide(seed))) for seed in seeds], target, timeout=1800)


def open_share(seeds: range, target: str) -> tuple[int, list[tuple[str, str]]]:
    env = EMULATED if target.startswith("cuda") else None
    bad = open_graphs.problems(seeds, target=target, env=env)
    return len(seeds), [(f"seed-{seed}", problem) for seed, problem in bad]


def gpu_share(seeds: range, target: str) -> tuple[int, list[tuple[str, str]]]:
    return cuda_differences(seeds, target, EMULATED)


def campaign(share, count: int, target: str, seed: int, jobs: int) -> int:
    at_once = 25
    shares = [range(first, min(first + at_once, seed + count)) for first in range(seed, seed + count, at_once)]
    compared, failed = 0, 0
    with ProcessPoolExecutor(jobs) as pool:
        for number, bad in pool.map(share, shares, [target] * len(shares)):
            compared += number
            failed += len(bad)
            for name, problem in bad:
                print(f"{name} {problem}", flush=True)
    print(f"{compared} random graphs for {target}: {compared - failed} agree with ONNX Runtime, {failed} do not")
    return failed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--target", default="cpu", help="cpu, armv7, rpi3, neoverse-v1, x86:sse4, cuda:sm_90, …")
    parser.add_argument("--open", action="store_true", help="graphs with open dimensions: on this machine, or cuda")
    parser.add_argument("--seed", type=int, default=1, help="of the first graph; the others have the next ones")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="also writes the models to this folder")
    arguments = parser.parse_args()
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
        for seed in range(arguments.seed, arguments.seed + arguments.count):
            model = open_graphs.OpenGraph(seed).model() if arguments.open else graph(wide(seed))[0]
            onnx.save(model, arguments.keep / f"seed-{seed}.onnx")
    run = open_share if arguments.open else gpu_share if arguments.target.startswith("cuda") else share
    sys.exit(campaign(run, arguments.count, arguments.target, arguments.seed, arguments.jobs) > 0)
