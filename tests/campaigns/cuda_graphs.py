"""Random graphs, of extents up to 70, compiled for CUDA and run in the emulator, against ONNX Runtime.

    ./dev test --campaign cuda_graphs [COUNT] [--target cuda:sm_90] [--seed 1] [--jobs 2]

The graphs are those of random_graphs: tests/python/random_graphs.py.  Of four, one has products of bf16 and one of f16;
what these may differ by, ONNX Runtime says of rounded inputs and weights.  Each that differs, does not compile or ends
the process is printed with its seed; `./dev test --campaign random_graphs --seed SEED --count 1 --keep FOLDER` leaves
that model there.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from random_graphs import cuda_differences  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]


def share(seeds: range, target: str) -> tuple[int, list[tuple[str, str]]]:
    places = dict.fromkeys(("CUDA_HOME", "LD_LIBRARY_PATH"), str(ROOT / "build/tests/cuda_emulator"))
    return cuda_differences(seeds, target, os.environ | places)


def campaign(count: int, target: str, seed: int, jobs: int) -> int:
    at_once = 20
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
    parser.add_argument("count", type=int, nargs="?", default=2000)
    parser.add_argument("--target", default="cuda:sm_90")
    parser.add_argument("--seed", type=int, default=1, help="of the first graph; the others have the next ones")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    sys.exit(campaign(arguments.count, arguments.target, arguments.seed, arguments.jobs) > 0)
