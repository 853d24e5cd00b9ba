"""ONNX's own suite of models that need no download, compiled and by the oracle, and what of it is refused.

    ./dev test --campaign onnx [--target cpu] [--pattern NAME] [--refusals FILE]

Prints the counts, by reason what is refused, and case by case what is wrong or crashed.  `--refusals` writes what is
refused, by name and reason, as tests/python/onnx_refusals.txt has it.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from onnx_suite import KINDS, reason_of, run_suite, summary

ROOT = Path(__file__).resolve().parents[2]

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="cpu", help="besides the oracle")
    parser.add_argument("--pattern", default="", help="only cases with this in their names")
    parser.add_argument("--refusals", type=Path, help="a file to write")
    arguments = parser.parse_args()
    bad = 0
    for mode in ("oracle", arguments.target):
        results = run_suite(ROOT / "build/tests/onnx_node_runner", mode, arguments.pattern, kinds=KINDS)
        print(f"{mode}: {summary(results)[0]}")
        for result in results:
            if result.status in ("wrong", "crashed"):
                bad += 1
                print(f"  {result.status} {result.name}: {result.message[:300]}")
        refused = {r.name: reason_of(r.message) for r in results if r.status == "refused"}
        for reason, count in Counter(refused.values()).most_common():
            print(f"  {count:4} refused: {reason}")
        if arguments.refusals:
            lines = [f"{name}: {reason}\n" for name, reason in sorted(refused.items())]
            arguments.refusals.write_text("".join(lines))
    sys.exit(bad > 0)
