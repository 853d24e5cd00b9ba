"""What each value of a template's decisions takes on a GPU: a kit of variants of some kernels.

./dev run python tests/perf/gpu_decisions.py -o decisions/       # where the compiler is
python3 decisions/kit.py                                         # where the GPU is
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from tilewright import _core, kit, load
from tilewright.executable import Executable
from tilewright.kit_case import Case, Work
from tilewright.kit_kernels import Kernel

KERNELS = [
    *(
        Kernel(f"product-{m}x{k}x{n}-{dtype}", [("MatMul", ["a", "b"], ["y"])], {"a": (m, k), "b": (k, n)}, dtype=dtype)
        for dtype in ("bf16", "f32")
        for m, k, n in ((4096, 4096, 4096), (512, 4096, 4096), (197, 768, 3072), (16, 4096, 4096))
    ),
    *(
        Kernel(f"softmax-{m}x{n}", [("Softmax", ["a"], ["y"])], {"a": (m, n)})
        for m, n in ((65536, 128), (16384, 1024), (8192, 8192))
    ),
    Kernel("sum-65536x256", [("ReduceSum", ["a", "axes"], ["y"])], {"a": (1 << 16, 256)}, {"axes": np.array([0])}),
]


def works(target: str) -> Iterator[Work]:
    """Each value by itself, the others as analysis has them; and the default."""
    for kernel in KERNELS:
        graph = load(kernel.model())._core

        def variant(name: str, decisions: dict[str, list[int]], graph=graph) -> Case:
            core, report = _core.compile_decided(graph, target, 1, decisions)
            return Case(name, "time", Executable(core, report), is_timed=True, made_up=True)

        points = [{}]
        for _, _, _, asked in _core.decisions(graph, target, 1, "f32", ""):
            for decision in asked:
                values = [[value] if isinstance(value, int) else list(value) for value in decision["candidates"]]
                points += [{decision["name"]: value} for at, value in enumerate(values) if at != decision["analytic"]]
        for point in points:
            text = " ".join(f"{name}={'x'.join(map(str, value))}" for name, value in point.items())
            name = f"{kernel.name}-{text or 'default'}"
            yield name, partial(variant, name, point)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", default="cuda:sm_90")
    parser.add_argument("-o", "--output", type=Path, default=Path("decisions"))
    options = parser.parse_args()
    (options.output / "cases").mkdir(parents=True)
    made = kit.write_cases([*works(options.target)], options.output / "cases", kit.MOST_BYTES, print)
    kit.write_runner(options.output, {**kit.facts_of(options.target), **made})


if __name__ == "__main__":
    main()
