"""Random models with If, Loop and Scan in each other, half of them with open dimensions, against ONNX Runtime.

    ./dev test --campaign control_flow [--count 5000] [--seed 1] [--jobs 2]

Each is compiled once and runs at several sizes, numbers of steps and truths: tests/python/random_control.py.  Each that
differs or does not compile is printed with its seed.
"""

from __future__ import annotations

import argparse
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from random_control import problems  # noqa: E402

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1, help="of the first model; the others have the next ones")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    share = 250
    last = arguments.seed + arguments.count
    shares = [range(first, min(last, first + share)) for first in range(arguments.seed, last, share)]
    failed = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for found in pool.map(problems, shares):
            failed += len(found)
            for seed, text in found:
                print(f"seed {seed}: {text}", flush=True)
    print(f"{arguments.count} random models with control flow: {arguments.count - failed} agree, {failed} do not")
    sys.exit(failed > 0)
