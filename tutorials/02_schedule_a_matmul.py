"""Tutorial 02: schedule a matrix product by hand, from naive loops to near the peak of the core.

    ./dev run python tutorials/02_schedule_a_matmul.py

C[512,512] = A[512,512] · B[512,512] in f32 on one thread.  Each step is a schedule: the mathematics stays, the loops
change.  Every step's answer is checked.
"""

import argparse
import time

import numpy as np

import tilewright as tw
from tilewright import machine

arguments = argparse.ArgumentParser()
arguments.add_argument("--size", type=int, default=512)
arguments.add_argument("--seconds", type=float, default=0.3, help="of measuring each step")
options = arguments.parse_args()
N: int = options.size
LANES = machine.describe()["vector_bits"] // 32  # f32 numbers in a vector register
PEAK = machine.peak_flops(threads=1)

rng = np.random.default_rng(0)
A, B = (rng.standard_normal((N, N)).astype(np.float32) for _ in "AB")
EXPECTED = A @ B


def measure(title: str, program: tw.Schedule) -> float:
    """Builds, checks and times a schedule; returns GFLOP/s."""
    executable = tw.te.build(program, threads=1)
    (answer,) = executable(A, B)
    np.testing.assert_allclose(answer, EXPECTED, atol=1e-3)
    best, end = np.inf, time.perf_counter() + options.seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        executable(A, B)
        best = min(best, time.perf_counter() - start)
    rate = 2 * N**3 / best
    print(f"{title:58} {rate / 1e9:7.1f} GFLOP/s  {rate / PEAK:6.1%} of peak", flush=True)
    return rate


f = tw.te.matmul(N, N, N)
print(f"The mathematics, as loops:\n\n{f}\n")
print(f"The core's peak is {PEAK / 1e9:.1f} GFLOP/s: fused multiply-adds on vectors of {LANES} numbers.\n")

# Step 0: as written.  Every multiply-add waits for the one before it, and loads walk down columns of B.
s = tw.Schedule(f)
naive = measure("0  as written", s)

# Step 1: j innermost.  Loads and stores now walk along rows, so that lines of cache are used whole.
s = tw.Schedule(f)
i, j, k = s.loops("C")
s.reorder(k, j)
s.decompose_reduction("C", k)  # C = 0 in front of k instead of a test inside
measure("1  i, k, j: walk along rows", s)

# Step 2: vectors.  One instruction now does LANES multiply-adds; C still travels through memory for each of them.
s = tw.Schedule(f)
i, j, k = s.loops("C")
j0, j1 = s.split(j, [None, LANES])
s.reorder(k, j0, j1)
s.vectorize(j1)
s.decompose_reduction("C", k)
measure("2  vectors along j", s)

# Step 3: a tile of C lives in registers while k runs.  ROWS × COLUMNS accumulators are enough independent
# multiply-adds to hide their latency, and each number that is loaded is used ROWS or COLUMNS times.
ROWS, COLUMNS = (8, 2 * LANES) if LANES >= 16 else (4, 2 * LANES)


def register_tile(s: tw.Schedule, rows: int, columns: int) -> None:
    i, j, k = s.loops("C")
    i0, i1 = s.split(i, [None, rows])
    j0, j1, lane = s.split(j, [None, columns // LANES, LANES])
    s.reorder(i0, j0, k, i1, j1, lane)
    tile = s.cache_write("C", "C", "register")  # C's block now writes registers; `tile` copies them out
    s.reverse_compute_at(tile, j0)
    s.decompose_reduction("C", k)
    row, column = s.loops(tile)[-2:]
    s.split(column, [None, LANES])
    for block in s.blocks():  # C = 0, C += A · B, and the copy: all over i1, j1, lane
        *unrolled, lane = s.loops(block)[-3:]
        s.vectorize(lane)
        for loop in unrolled:
            s.unroll(loop)


s = tw.Schedule(f)
register_tile(s, ROWS, COLUMNS)
measure(f"3  a tile of {ROWS}×{COLUMNS} in registers", s)

# Step 4: what the target does by default: the tile that fits its registers, panels that fit its caches, B packed so
# that a panel is read from end to end.
s = tw.Schedule.default(f)
default = measure("4  the target's default schedule", s)

print(f"\nThe default schedule is {default / naive:.0f} times as fast as the loops as written. Its trace:\n")
print(s.trace)
print("\nThe loops that it makes:\n")
print(s.func)
