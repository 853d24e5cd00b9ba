"""Models of ONNX's suite, changed at random, against ONNX Runtime: all operators and types.

    ./dev test --campaign operators [--count 100000] [--seed 1] [--jobs 2] [--target cpu] [--keep FOLDER]

tests/python/mutants.py makes them and has the rules of what is left out, each with its reason; ONNX Runtime decides
which are valid.  Cases run by the oracle, compiled for this machine, with open dimensions, in bf16 and with random
schedules; `--target oracle` or `cpu` runs all in one way.  A difference has to be explained by how far results move
when inputs are rounded otherwise, or by ONNX's own evaluator, which then says what we say.  What fails is printed with
its seed; `--seed SEED --count 1 --keep FOLDER` leaves that model, its inputs and what was expected there.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from mutant_runs import Counts, share  # noqa: E402
from mutant_seeds import corpus  # noqa: E402


def campaign(count: int, seed: int, jobs: int, mode: str | None, keep: Path | None) -> int:
    start, total, at_once = time.monotonic(), Counts(), 250
    corpus()
    shares = [range(first, min(first + at_once, seed + count)) for first in range(seed, seed + count, at_once)]
    with ThreadPoolExecutor(jobs) as pool:
        for done, found in enumerate(pool.map(lambda seeds: share(seeds, mode, keep), shares), 1):
            total.add(found)
            for _, text in found.failures:
                print(text, flush=True)
            if done % 4 == 0 or done == len(shares):
                print(f"{done * at_once} seeds, {time.monotonic() - start:.0f} s: {dict(total.kinds)}", flush=True)
    for reason, number in total.reasons.most_common():
        print(f"  {number:5} refused: {reason} (seed {total.examples[reason]})")
    for op, number in total.theirs.most_common():
        print(f"  {number:5} in which ONNX's evaluator says what we say: {op} (seed {total.examples[op]})")
    cases = sum(total.operators.values())
    print(f"{cases} cases of {len(total.operators)} operators, {total.invalid} more that ONNX Runtime does not take: "
          f"{total.kinds['agree']} agree, {total.kinds['rounding']} differ by rounding, "
          f"{total.kinds['theirs']} by ONNX Runtime's fault, {total.kinds['refused']} are refused, "
          f"{len(total.failures)} are wrong")  # fmt: skip
    return len(total.failures)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first case; the others have the next ones")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--target", help="oracle, cpu, open, bf16 or random; not given: all of them")
    parser.add_argument("--keep", type=Path, help="also writes the cases to this folder")
    arguments = parser.parse_args()
    sys.exit(campaign(arguments.count, arguments.seed, arguments.jobs, arguments.target, arguments.keep) > 0)
